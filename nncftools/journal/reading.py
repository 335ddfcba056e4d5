"""Creates, locks, reads and removes the file of a journal, and never touches another recording's file.

Each recording holds a file lock (flock(2)) on the journal until the sampler exits. The lock belongs to the open file
description: the starter locks, passes the descriptor to the sampler and closes its own descriptor. Readers open another
description; otherwise a dead sampler would look alive. Only the holder of a file's lock removes that file.

``Lines`` reads a file of lines while another process appends to it.

A journal is JSON Lines, UTF-8; sizes are in bytes and times in seconds; null is unknown. The first line is a
``Header``. Every other line is a sample or an object. A sample is a list: the seconds since the start, and a value per
column of the plan. An object has a single key; ``nncftools.session.recording.Line`` has the types of the values, as in
a session. Keys that are always there have a class of their own, apart from keys that may be missing (``Required`` needs
Python 3.11).
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
"""1: first version (2026-11)."""


class MemoryLimit(TypedDict):
    """The memory limit for all processes together, and the action when they exceed it."""

    rss: int
    """In bytes."""
    action: str
    """``warn`` or ``kill``."""


class _RequiredOfPlan(TypedDict):
    columns: list[str]
    interval_s: float
    source: str


class PlanFields(_RequiredOfPlan, total=False):
    """The request to the sampler; ``nncftools.journal.writing.Plan`` documents each field."""

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
    """The first line: the facts of a run that are known before the start."""

    version: int
    tool_version: str
    name: str
    command: list[str]
    """The command as typed; bytes that are not UTF-8 are written ``\\xff``."""
    cwd: str
    rank: dict[str, Any] | None
    """See ``nncftools.session.model.Rank``."""


class ExitStatus(TypedDict):
    """How a process ended: ``code`` if it exited, ``signal`` if it was killed; the other is null."""

    code: int | None
    signal: int | None


class _RequiredOfStart(TypedDict):
    utc: str
    """ISO 8601 with zone."""
    monotonic_ns: int
    """The time of ``utc`` on CLOCK_MONOTONIC."""
    pid: int
    """The PID of the command."""


class Start(_RequiredOfStart, total=False):
    """The start of the command: all seconds of a session count from here."""

    utc_error_s: float | None
    """The possible error of ``utc``, as the kernel estimates it (adjtimex(2))."""
    sampler_pid: int


class End(TypedDict, total=False):
    """The last line of a finished recording."""

    error: str | None
    """Why the command did not start; the other keys are missing then."""
    duration_s: float | None
    totals: dict[str, int | float | None]
    """The counters at the end, including processes that ended earlier."""
    exit: ExitStatus | None
    sampler: dict[str, Any]
    """The cost and punctuality of the sampler: see ``nncftools.session.recording.SamplerEnd``."""
    unwritten: str
    """Lines that could not be written because the disk was full; sent to the starter, never in the journal itself."""


ENDING = ".journal.jsonl"
SNAPSHOTS_ENDING = ".snapshots.jsonl"
"""The ending of the helper's log, next to the journal."""
SIDECARS = (".marks.json", ".marks.jsonl", ".marks.csv")
"""Endings of the sidecars that are found automatically next to a session or journal."""
MARKS_ENDING = SIDECARS[1]
"""The ending of the marks log of a running recording."""
PRIVATE = 0o600
"""The mode of a journal, which holds the command as typed."""
_OLD = os.O_NONBLOCK | os.O_CLOEXEC
_TRIES = 50
_PAUSE_S = 0.01
"""The pause before the next try: a reader that checks for a recording holds the lock for microseconds."""


def snapshots_beside(journal: pathlib.Path) -> pathlib.Path:
    """Return the path of the helper's log of a recording."""
    return journal.with_name(journal.name.removesuffix(ENDING) + SNAPSHOTS_ENDING)


def find_sidecar(path: pathlib.Path) -> pathlib.Path | None:
    """Return the sidecar next to a session ``NAME.json`` or a journal, such as ``NAME.marks.json``, or None."""
    name = path.name.removesuffix(".gz").removesuffix(".json").removesuffix(".journal.jsonl")
    sidecars = (path.with_name(name + ending) for ending in SIDECARS)
    return next(filter(pathlib.Path.is_file, sidecars), None)


class BusyError(OSError):
    """Another recording holds the journal."""


def create(path: pathlib.Path, *, replace: bool) -> int:
    """Create and lock a new journal, and return the descriptor (append-only, mode 0600).

    With ``replace``, the journal of an ended recording is removed first. Raises BusyError, FileExistsError, OSError.
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
    """Remove the journal of an ended recording, if there is such a journal. Raises BusyError, OSError."""
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
    """Remove a file locked through ``descriptor``, unless ``path`` now leads to another file. Raises OSError."""
    if leads_to(path, descriptor):
        path.unlink(missing_ok=True)


class NotAFileError(OSError):
    """A FIFO, device or folder is in the place of a file."""


def reader(path: pathlib.Path, descriptor: int | None = None) -> BinaryIO:
    """Open a journal or a marks log for reading while another process appends to the file.

    With ``descriptor``, open the file of that descriptor. Raises OSError, also if the file is not a regular file.
    """
    file = os.open(path, os.O_RDONLY | _OLD) if descriptor is None else _reopen(path, descriptor)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise NotAFileError(f"{path}: a file expected")
    return os.fdopen(above_standard(file), "rb", buffering=0)


def _reopen(path: pathlib.Path, descriptor: int) -> int:
    """Open the file of a descriptor again, even when the path leads to another file by now. Raises OSError."""
    with suppress(OSError):
        return os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | _OLD)
    file = os.open(path, os.O_RDONLY | _OLD)
    if not os.path.sameopenfile(file, descriptor):
        os.close(file)
        raise OSError(f"{path}: another file has taken the place of this file")
    return file


def is_recording(path: pathlib.Path) -> bool:
    """Return whether a recording holds the journal; False if we may not read the journal. Raises OSError."""
    with suppress(FileNotFoundError, PermissionError, NotAFileError):
        if path.is_file():
            with reader(path) as journal:
                return is_locked(journal.fileno())
    return False


def is_locked(descriptor: int) -> bool:
    """Return whether another description of the same file is locked; False where the file system has no locks."""
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
    """Lock a file; return False when another process holds the lock. Without lock support, succeed.

    The starter locks the file again when the sampler has ended, so that the journal does not look abandoned.
    """
    import fcntl

    for _ in range(_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_PAUSE_S)
        except OSError:  # a file system without locks
            return True
        else:
            return True
    return False


_CHUNK = 1 << 18
_LONGEST_LINE = 1 << 26
"""Header and process lines hold a command line. On most machines, the kernel limits command lines to 2 MiB."""


class Lines:
    """The complete lines appended to a file since the last read.

    An incomplete line is read again when the rest is there: the writer may truncate the line.
    """

    _offset = 0

    def __init__(self, file: BinaryIO) -> None:
        self.file = file

    def next(self, *, single: bool = False) -> bytes:
        """Return the next lines, or a ``single`` line; empty when there are none. Raises OSError."""
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
            if size >= _LONGEST_LINE:  # the rest of the line is not JSON, and counts as a bad line
                self._offset += size
            size = min(2 * size, _LONGEST_LINE)
