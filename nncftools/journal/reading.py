"""Create, lock, read and remove the journal of a recording; journals of other recordings stay untouched.

Each recording holds a file lock (flock(2)) on the journal until the sampler exits. The lock belongs to the open file
description. The starter (the process that starts the sampler) locks the journal, passes the descriptor to the sampler
and closes its own descriptor. A reader opens the file again: a shared description would keep the lock after the
sampler's death. Only the process that holds the lock removes the file.

``Lines`` reads a file while another process appends lines.

A journal is JSON Lines in UTF-8. Sizes are in bytes and times in seconds; null is unknown. The first line is a
``Header``. Every other line is a sample or an object. A sample is a list: the seconds since the start, and a value per
metric. An object has a single key; ``nncftools.session.recording.JournalLine`` has the type of each value.

Required keys and optional keys are in separate classes, because ``Required`` needs Python 3.11.
"""

from __future__ import annotations

import os
import pathlib
import stat
import time
from contextlib import suppress
from typing import Any, BinaryIO, TypedDict

from nncftools.files import NEW_LOG, above_standard

FORMAT = "nncf-tools-journal"
VERSION = 1
"""Version 1 is the first version (2026-11)."""


class MemoryLimit(TypedDict):
    """A limit on the memory of all processes together, and the action if the limit is exceeded."""

    rss: int
    """Limit of RSS in bytes."""
    action: str
    """``warn`` or ``kill``."""


class _RequiredOfPlan(TypedDict):
    columns: list[str]
    interval_s: float
    source: str


class PlanFields(_RequiredOfPlan, total=False):
    """The settings of a recording, for the sampler; ``nncftools.journal.writing.Plan`` documents each field."""

    pid: int | None
    duration_s: float | None
    children: bool
    wait_all: bool
    per_process: bool
    max_samples: int
    limit: MemoryLimit | None
    redact: list[str] | None
    slow_share: float
    file_systems: list[list[str]]


class _RequiredOfHeader(TypedDict):
    format: str
    host: dict[str, Any]
    """See ``nncftools.session.model.Host``."""
    plan: PlanFields


class Header(_RequiredOfHeader, total=False):
    """The first line of a journal: the facts that are known before the command starts."""

    version: int
    tool_version: str
    name: str
    command: list[str]
    """The command as typed. A byte that is not UTF-8 is written as an escape, such as ``\\xff``."""
    cwd: str
    rank: dict[str, Any] | None
    """See ``nncftools.session.model.Rank``."""


class ExitStatus(TypedDict):
    """How a process ended: by an exit status (``code``) or by a ``signal``. The other field is null."""

    code: int | None
    signal: int | None


class _RequiredOfStart(TypedDict):
    utc: str
    """Date and time in ISO 8601, with the time zone."""
    monotonic_ns: int
    """The time of ``utc`` in nanoseconds on CLOCK_MONOTONIC."""
    pid: int
    """The PID of the command."""


class Start(_RequiredOfStart, total=False):
    """The start of the command. All other times of the journal count from this moment."""

    utc_error_s: float | None
    """Largest possible error of ``utc`` in seconds, as the kernel estimates it (adjtimex(2))."""
    sampler_pid: int


class End(TypedDict, total=False):
    """The last line of a finished recording: how the command ended."""

    error: str | None
    """Why the command did not start. If this key exists, all other keys are missing."""
    duration_s: float | None
    totals: dict[str, int | float | None]
    """Final values of the counters, including processes that ended earlier."""
    exit: ExitStatus | None
    sampler: dict[str, Any]
    """CPU time, memory and missed samples of the sampler: see ``nncftools.session.recording.SamplerEnd``."""
    unwritten: str
    """Lines that could not be written because the disk was full. The sampler passes them to the process that started
    it; a journal never contains this key."""


ENDING = ".journal.jsonl"
SNAPSHOTS_ENDING = ".snapshots.jsonl"
"""File name ending of the helper's log. The helper is the process that reads stacks and mappings."""
SIDECARS = (".marks.json", ".marks.jsonl", ".marks.csv")
"""File name endings of sidecars. A sidecar is a file with marks next to a session or journal, and is read
automatically."""
MARKS_ENDING = SIDECARS[1]
"""File name ending of the marks log of a running recording."""
PRIVATE = 0o600
"""File mode of a journal: only the user may read the journal, because the command may contain secrets."""
_OLD = os.O_NONBLOCK | os.O_CLOEXEC
_TRIES = 50
_PAUSE_S = 0.01
"""Seconds between two tries to lock. A process that only checks the lock holds the lock for microseconds."""


def snapshots_beside(journal: pathlib.Path) -> pathlib.Path:
    """Return the path of the log of stacks and mappings, next to the journal."""
    return journal.with_name(journal.name.removesuffix(ENDING) + SNAPSHOTS_ENDING)


def find_sidecar(path: pathlib.Path) -> pathlib.Path | None:
    """Return the sidecar next to a session or a journal: ``NAME.marks.json`` for ``NAME.json``.

    None if there is no sidecar.
    """
    name = path.name.removesuffix(".gz").removesuffix(".json").removesuffix(".journal.jsonl")
    sidecars = (path.with_name(name + ending) for ending in SIDECARS)
    return next(filter(pathlib.Path.is_file, sidecars), None)


class BusyError(OSError):
    """Another recording still writes to the journal."""


def create(path: pathlib.Path, *, replace: bool) -> int:
    """Create and lock a new journal; return the descriptor (append-only, file mode 0600).

    If ``replace`` is true, remove the journal of an ended recording first. Raises BusyError, FileExistsError, OSError.
    """
    for _ in range(_TRIES):
        try:
            descriptor = above_standard(os.open(path, NEW_LOG, PRIVATE))
        except FileExistsError:
            if not replace:
                raise
            remove_ended(path)
            continue
        if lock(descriptor) and leads_to(path, descriptor):
            return descriptor
        os.close(descriptor)
    raise BusyError("another recording that still runs writes to it")


def remove_ended(path: pathlib.Path) -> None:
    """Remove the journal of an ended recording, if the file exists. Raises BusyError, OSError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | _OLD)
    except FileNotFoundError:
        return
    try:
        if not lock(descriptor):
            raise BusyError("another recording that still runs writes to it")
        remove(path, descriptor)
    finally:
        os.close(descriptor)


def remove(path: pathlib.Path, descriptor: int) -> None:
    """Remove a locked file, unless ``path`` now leads to another file than ``descriptor``. Raises OSError."""
    if leads_to(path, descriptor):
        path.unlink(missing_ok=True)


class NotAFileError(OSError):
    """The path leads to a FIFO, a device or a folder instead of a file."""


def reader(path: pathlib.Path, descriptor: int | None = None) -> BinaryIO:
    """Open a journal or a marks log for reading while another process appends to the file.

    If ``descriptor`` is given, open the descriptor's file again. Raises OSError, also if the file is not a regular
    file.
    """
    file = os.open(path, os.O_RDONLY | _OLD) if descriptor is None else _reopen(path, descriptor)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise NotAFileError(f"{path}: a file expected")
    return os.fdopen(above_standard(file), "rb", buffering=0)


def _reopen(path: pathlib.Path, descriptor: int) -> int:
    """Open the file of a descriptor again, even if ``path`` now leads to another file.

    Without /proc, open ``path`` instead; in this case, raise OSError if ``path`` leads to another file. Also raises
    OSError if the file cannot be opened.
    """
    with suppress(OSError):
        return os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | _OLD)
    file = os.open(path, os.O_RDONLY | _OLD)
    if not os.path.sameopenfile(file, descriptor):
        os.close(file)
        raise OSError(f"{path}: another file has taken the place of this file")
    return file


def is_recording(path: pathlib.Path) -> bool:
    """Return whether a recording still writes to the journal; False if this user may not read the journal.

    Raises OSError.
    """
    with suppress(FileNotFoundError, PermissionError, NotAFileError):
        if path.is_file():
            with reader(path) as journal:
                return is_locked(journal.fileno())
    return False


def is_locked(descriptor: int) -> bool:
    """Return whether the file is locked through another descriptor; False if the file system has no locks."""
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def leads_to(path: pathlib.Path, descriptor: int) -> bool:
    """Return whether ``path`` is the file that ``descriptor`` has open."""
    with suppress(OSError):
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    return False


def lock(descriptor: int) -> bool:
    """Lock a file; return False if another process holds the lock.

    If the file system has no locks, return True. The process that started the sampler locks the journal again after the
    end of the sampler, so that the journal does not look abandoned.
    """
    import fcntl

    for _ in range(_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_PAUSE_S)
        except OSError:  # the file system has no locks
            return True
        else:
            return True
    return False


_CHUNK = 1 << 18
_LONGEST_LINE = 1 << 26
"""Largest length of a line in bytes. Header and process lines contain a command line: at most 2 MiB on most
machines."""


class Lines:
    """Reads the complete lines that were appended to a file since the last read.

    An incomplete line stays unread until the line is complete, because the writer may still truncate the line.
    """

    _offset = 0

    def __init__(self, file: BinaryIO) -> None:
        self.file = file

    def next(self, *, single: bool = False) -> bytes:
        """Return the next lines; empty if there are none. With ``single``, return at most a single line.

        Raises OSError.
        """
        size = _CHUNK
        while True:
            self.file.seek(self._offset)
            data = self.file.read(size)
            end = 1 + (data.find(b"\n") if single else data.rfind(b"\n"))
            if end:
                self._offset += end
                return data[:end]
            if len(data) < size:
                return b""
            if size >= _LONGEST_LINE:  # the rest of the line is not JSON and will count as a bad line
                self._offset += size
            size = min(2 * size, _LONGEST_LINE)
