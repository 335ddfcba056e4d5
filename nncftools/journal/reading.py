"""The file of a journal: created, locked, taken over and removed without touching another recording's file.

A recording is a lock (flock(2)) on its journal. The lock belongs to the open file description: the starter locks, hands
the descriptor to the sampler and closes its own copy, so that the lock ends with the sampler. Readers open their own
description; otherwise a dead sampler would look alive. Only the holder of a file's lock removes that file.

Reads a journal, whole or while it grows: every line is decoded once, and invalid lines are reported.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import stat
import time
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple

import msgspec

from nncftools import intake
from nncftools.errors import SessionFileError
from nncftools.files import above_standard
from nncftools.intake import UTF_8_MARK
from nncftools.journal.lines import FORMAT, VERSION, Header, Line
from nncftools.journal.writing import Plan

ENDING = ".journal.jsonl"
SNAPSHOTS_ENDING = ".snapshots.jsonl"
"""Of the log of the helper, next to the journal."""
SIDECARS = (".marks.json", ".marks.jsonl", ".marks.csv")
"""Endings of the sidecars that are found automatically next to a session or journal."""
MARKS_ENDING = SIDECARS[1]
"""The ending of the marks log of a running recording."""
PRIVATE = 0o600
"""The journal holds the command as typed."""
_NEW = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_NONBLOCK | os.O_CLOEXEC
_TRIES = 50
_PAUSE_S = 0.01
"""Readers hold the lock for microseconds to check for a recording."""


def snapshots_beside(journal: pathlib.Path) -> pathlib.Path:
    """Return the path of the helper's log of a recording."""
    return journal.with_name(journal.name.removesuffix(ENDING) + SNAPSHOTS_ENDING)


def find_sidecar(path: pathlib.Path) -> pathlib.Path | None:
    """Return the sidecar next to a session ``NAME.json`` or a journal, such as ``NAME.marks.json``, or None."""
    name = path.name.removesuffix(".gz").removesuffix(".json").removesuffix(".journal.jsonl")
    return next((found for ending in SIDECARS if (found := path.with_name(name + ending)).is_file()), None)


class BusyError(OSError):
    """Another recording holds the journal."""


def create(path: pathlib.Path, *, replace: bool) -> int:
    """Create and lock a new journal, and return its descriptor (append-only, mode 0600).

    With ``replace``, the journal of an ended recording is removed first. Raises BusyError, FileExistsError, OSError.
    """
    for _ in range(_TRIES):
        try:
            descriptor = above_standard(os.open(path, os.O_RDWR | os.O_APPEND | _NEW, PRIVATE))
        except FileExistsError:
            if not replace:
                raise
            remove_ended(path)
            continue
        if hold(descriptor) and leads_to(path, descriptor):
            return descriptor
        os.close(descriptor)
    raise BusyError("another recording that still runs writes to it")


def remove_ended(path: pathlib.Path) -> None:
    """Remove the journal of an ended recording, if there is one. Raises BusyError, OSError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | _OLD)
    except FileNotFoundError:
        return
    try:
        if not hold(descriptor):
            raise BusyError("another recording that still runs writes to it")
        remove(path, descriptor)
    finally:
        os.close(descriptor)


def remove(path: pathlib.Path, descriptor: int) -> None:
    """Remove a file locked through ``descriptor``, unless ``path`` now leads to another file. Raises OSError."""
    if leads_to(path, descriptor):
        path.unlink(missing_ok=True)


def reader(path: pathlib.Path, descriptor: int | None = None) -> BinaryIO:
    """Open a journal or a marks log for reading while it grows.

    With ``descriptor``, open the very file behind it. Raises OSError, also if it is not a regular file.
    """
    own = os.open(path, os.O_RDONLY | _OLD) if descriptor is None else _opened_again(path, descriptor)
    if not stat.S_ISREG(os.fstat(own).st_mode):
        os.close(own)
        raise OSError(f"{path}: a file expected")
    return os.fdopen(above_standard(own), "rb", buffering=0)


def _opened_again(path: pathlib.Path, descriptor: int) -> int:
    """Open the file of a descriptor again, even when its name leads elsewhere by now. Raises OSError."""
    with contextlib.suppress(OSError):
        return os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | _OLD)
    own = os.open(path, os.O_RDONLY | _OLD)
    if not os.path.sameopenfile(own, descriptor):
        os.close(own)
        raise OSError(f"{path}: another file has taken its place")
    return own


def is_recording(path: pathlib.Path) -> bool:
    """Return whether a recording holds the journal; False if it is not readable for us. Raises OSError."""
    with contextlib.suppress(FileNotFoundError, PermissionError):
        if path.is_file():
            with reader(path) as journal:
                return is_held(journal.fileno())
    return False


def is_held(descriptor: int) -> bool:
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
    with contextlib.suppress(OSError):
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    return False


def hold(descriptor: int) -> bool:
    """Lock a file; return False when another process holds the lock. Without lock support, succeed.

    The starter takes the lock after the sampler released it, so that the journal does not look abandoned.
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
"""Header and process lines hold a command line, which the kernel limits to 2 MiB on most machines."""
_WRONG = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError, TypeError, KeyError)


class Each(NamedTuple):
    """The RSS of every process at a sample."""

    time_s: float
    rss: dict[int, int]
    """In bytes, by the process's ``id``."""


class Chunk(NamedTuple):
    """The content of some lines of a journal."""

    samples: list[list[float | None]]
    """Each is the seconds since the start, then a value per column."""
    each: list[Each]
    lines: list[Line]
    """All other lines, in order."""
    bad: list[int]
    """Numbers of the unreadable lines, from 1."""


class Lines:
    """The complete lines appended to a file since the last read.

    An incomplete line is read again when its rest is there: the writer may truncate it.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self._offset = 0

    def next(self, *, one: bool = False) -> bytes:
        """Return the next lines, or the next ``one``; empty when there are none. Raises OSError."""
        size = _CHUNK
        while True:
            self.file.seek(self._offset)
            data = self.file.read(size)
            end = (data.find(b"\n") if one else data.rfind(b"\n")) + 1
            if end:
                self._offset += end
                return data[:end]
            if len(data) < size:
                return b""
            if size >= _LONGEST_LINE:  # its rest is not JSON, and counts as bad
                self._offset += size
            size = min(2 * size, _LONGEST_LINE)


class Tail:
    """A journal from its first line to the latest."""

    def __init__(self, file: BinaryIO, origin: str, header: Header | None = None) -> None:
        """Read the first line of ``file``; ``origin`` names the file in messages.

        With ``header``, the first line is skipped and ``header`` is used instead. Raises SessionFileError, OSError.
        """
        self.file = file
        self._lines = Lines(file)
        self._number = 1
        self._sample_before = b""
        first = self._lines.next(one=True)
        self.header, self.plan = _header(first, origin) if header is None else (header, _plan(header))

    def read(self) -> Iterator[Chunk]:
        """Yield the lines appended since the last call, in chunks. Raises OSError."""
        while data := self._lines.next():
            yield self._decoded(data)

    def _decoded(self, data: bytes) -> Chunk:
        chunk = Chunk([], [], [], [])
        numbered = list(enumerate(data[:-1].split(b"\n"), start=self._number + 1))
        self._number += len(numbered)
        rows = []
        for number, text in numbered:
            if text.startswith(b"["):
                self._sample_before = text
                rows.append((number, text))
            else:
                self._take_line(number, text, chunk)
        self._take_samples(rows, chunk)
        return chunk

    def _take_samples(self, rows: Sequence[tuple[int, bytes]], chunk: Chunk) -> None:
        """Decode many samples at once; when that fails, find the bad ones by bisection."""
        if not rows:
            return
        try:
            joined = b"[" + b",".join([text for _, text in rows]) + b"]"
            samples = msgspec.json.decode(joined, type=list[list[float | None]])
            width = 1 + len(self.plan.columns)
            if any(len(sample) != width or sample[0] is None for sample in samples) or len(samples) != len(rows):
                raise ValueError("a figure too many or too few, or a sample without its time")
            _check_samples(samples)
        except _WRONG:
            if len(rows) == 1:
                chunk.bad.append(rows[0][0])
                return
            middle = len(rows) // 2
            self._take_samples(rows[:middle], chunk)
            self._take_samples(rows[middle:], chunk)
            return
        chunk.samples.extend(samples)

    def _take_line(self, number: int, text: bytes, chunk: Chunk) -> None:
        try:
            line = msgspec.json.decode(text, type=Line)
            intake.check(line)
            if "each" in line:
                time_s = float(self._sample_before[1 : self._sample_before.index(b",")])
                intake.check(time_s, name="time_s")
                chunk.each.append(Each(time_s, line["each"]))
                return
            if "columns" in line:
                if self._sample_before:
                    raise ValueError("columns after a sample")
                _check_columns(line["columns"])
                self.plan.columns = line["columns"]
            chunk.lines.append(line)
        except _WRONG:
            chunk.bad.append(number)


def _check_samples(samples: Sequence[Sequence[float | None]]) -> None:
    """Raise ValueError for a figure that cannot be."""
    times, *columns = zip(*samples, strict=True)
    if not intake.are_within(times, 0, intake.LATEST_S):
        raise ValueError("seconds since the start expected")
    for column in columns:
        known = column if None not in column else [value for value in column if value is not None]
        if not intake.are_within(known, -intake.LARGEST, intake.LARGEST):
            raise ValueError("a figure up to 2^63 expected")


def _header(line: bytes, origin: str) -> tuple[Header, Plan]:
    try:
        header = msgspec.json.decode(line.removeprefix(UTF_8_MARK), type=Header)
        intake.check(header)
        if header["format"] != FORMAT:
            raise ValueError(f"{FORMAT!r} expected")
        plan = _plan(header)
    except _WRONG as error:
        raise SessionFileError(f"{origin}: line 1 is not the header of a journal: {error}") from error
    version = header.get("version", VERSION)
    if version > VERSION:
        message = f"{origin}: journal version {version}, this nncf-tools reads up to {VERSION}: upgrade"
        raise SessionFileError(message)
    return header, plan


def _plan(header: Header) -> Plan:
    """Return the plan of a header; keys of other versions are ignored. Raises ValueError."""
    fields: dict[str, Any] = dict(header["plan"])
    if fields["interval_s"] <= 0:
        raise ValueError("at `$.plan.interval_s`: seconds expected")
    _check_columns(fields["columns"])
    for pattern in fields.get("redact") or ():
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"at `$.plan.redact`: {error}") from error
    return Plan(**fields)


def _check_columns(columns: list[str]) -> None:
    if len(set(columns)) != len(columns):
        raise ValueError("at `$.plan.columns`: a metric is listed twice")
