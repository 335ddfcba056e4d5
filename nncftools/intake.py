"""Opens files that others wrote, reads them in bounded memory, and checks the numbers, times, texts and lists in them.

Every reader checks with this module. A key names what its value is: ``..._s`` are seconds, ``pid`` is a PID, ``time_s``
rises. So a new field needs no line here. ``docs/reading.md`` lists the limits for users.
"""

from __future__ import annotations

import datetime as dt
import gzip
import io
import os
import pathlib
import select
import stat
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import isfinite
from operator import le
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import msgspec

from nncftools.backports import moment_of
from nncftools.errors import SessionFileError
from nncftools.units import printable, shortened

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


Progress = Callable[[int, int | None], None]
"""Called with the bytes read and the total, None when that is unknown."""

LARGEST = 2.0**63
"""Of a size, a count or nanoseconds."""
LATEST_S = 1e10
"""Of seconds since the start, and of Unix time: the year 2286."""
LARGEST_PID = 2**31 - 1
"""The kernel's own limit is 2^22 (proc(5))."""
DEEPEST = 100
"""Lists and objects inside each other."""
_LARGEST_STATUS = 2**32
"""An exit status is 32 bits on Windows."""
_RANGES: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(("pid", "tid", "attached_to"), (0, LARGEST_PID)),
    **dict.fromkeys(("count", "size", "memory", "high_water_mark", "high_water_limit"), (0, LARGEST)),
    **dict.fromkeys(("depth", "cpus"), (0, 1_000_000)),
    "duration_s": (0, LATEST_S),
    "code": (-_LARGEST_STATUS, _LARGEST_STATUS),
    "signal": (0, 1_000),
}
_PAIRS = (("start_s", "end_s"), ("from_s", "to_s"), ("rose_from_s", "rose_to_s"))
"""The second moment is not before the first."""
_UTC = "utc"
"""A moment in ISO 8601 with its zone."""
_TIMES, _VALUES = "time_s", "rss"
"""Two lists of one length; the times rise."""
_SHOWN = 40
_SHORT = 1_000
"""A text that is not too long, whatever the limit."""
_LONGEST_LOCATION = 100


class Limits(NamedTuple):
    """How much a file may bring: more than any recording that `monitor` writes."""

    size: int = 2 << 30
    """Bytes of a file, unpacked: several times a recording of a million samples."""
    text: int = 1 << 22
    """Characters of one text: the kernel limits a command line to 2 MiB on most machines."""
    items: int = 10_000_000
    """Items of a list."""
    processes: int = 200_000
    marks_of_recording: int = 50_000
    marks_of_process: int = 20_000
    marks_of_operation: int = 1_000
    """Operations of a marks log that are listed: in all, of one process, and directly inside one operation of it. The
    others are counted together."""
    warnings: int = 10_000
    table_bytes: int = 10_000_000
    table_rows: int = 1_000
    """Of a table of compressed models: a longer one is unreadable, and a picture has no room for more names."""
    packed_ratio: int = 800
    """To how many times its size a packed file may unpack, beyond 64 MiB: recordings unpack to 3 to 30 times theirs,
    and to 600 times at most, if nothing happens."""


LIMITS = Limits()


class WrongValueError(ValueError):
    """A value cannot be; the message says where it is, what was expected and what was found."""


def moment(text: str) -> dt.datetime:
    """Return a time in ISO 8601 with its zone. Raises ValueError, also for one before 1970 or after 2286."""
    at = moment_of(text)
    if at.tzinfo is None:
        raise ValueError(f"a time with its zone expected, as in 2026-11-21T07:00:00+01:00, found {shown(text)!r}")
    if not 0 <= at.timestamp() <= LATEST_S:
        raise ValueError(f"a year from 1970 to 2286 expected, found {shown(text)!r}")
    return at


def check(value: object, location: str = "$", name: str = "", depth: int = 0) -> None:
    """Raise WrongValueError for the first number, text or list of a decoded document that cannot be.

    ``name`` is the key that ``value`` has; ``depth`` counts the lists and objects around it.
    """
    if value is None or value is True or value is False:
        return
    if isinstance(value, int | float):
        _check_number(value, location, name)
    elif isinstance(value, str):
        _check_text(value, location, name)
    elif depth > DEEPEST:
        raise error_at(location, f"at most {DEEPEST} levels of lists and objects expected")
    elif isinstance(value, list | tuple):
        _check_list(value, location, name, depth)
    elif isinstance(value, dict):
        _check_object(value, location, name, depth)
    elif isinstance(value, msgspec.Struct):
        known = {name: of for name in value.__struct_fields__ if (of := getattr(value, name)) is not None}
        _check_fields(known, location, depth)


def _check_object(value: Mapping[object, object], location: str, name: str, depth: int) -> None:
    _check_count(len(value), LIMITS.items, location, "keys")
    if set(map(type, value)) == {int}:  # the keys are data as well
        _check_list([*value, *value.values()], location, name, depth)
        return
    for key in value:
        check(key, f"{location} (a key)", depth=depth)
    _check_fields({str(key): item for key, item in value.items()}, location, depth)


def _check_fields(fields: Mapping[str, object], location: str, depth: int) -> None:
    for name, item in fields.items():
        kind = type(item)
        if kind is int or kind is float:  # most are: no location is made up for those that are right
            low, high = _RANGES.get(name) or range_of(name)
            if low <= item <= high:  # type: ignore[operator] # a number
                continue
        elif kind is str and name != _UTC and len(item) <= _SHORT:  # type: ignore[arg-type] # a text
            continue
        check(item, f"{location}.{name}", name, depth + 1)
    _check_order(fields, location)


def _check_text(text: str, location: str, name: str) -> None:
    _check_count(len(text), LIMITS.text, location, "characters")
    try:
        if name == _UTC:
            moment(text)
    except (ValueError, OverflowError) as error:
        raise error_at(location, str(error)) from error


def range_of(name: str) -> tuple[float, float]:
    """Return the smallest and the largest number that the key ``name`` may have."""
    if name in _RANGES:
        return _RANGES[name]
    return (-LATEST_S, LATEST_S) if name.endswith("_s") else (-LARGEST, LARGEST)


def _check_number(value: float, location: str, name: str) -> None:
    low, high = range_of(name)
    if not low <= value <= high:
        raise error_at(location, f"a number from {low:.12g} to {high:.12g} expected, found {shown(value)}")


def are_within(values: Sequence[float], low: float = -LARGEST, high: float = LARGEST) -> bool:
    """Return whether all numbers are known, finite, and from ``low`` to ``high``."""
    return not values or (low <= min(values) and max(values) <= high and isfinite(sum(values)))


def is_pid(text: str) -> bool:
    """Return whether a text is a PID that a kernel can give."""
    return text.isdecimal() and len(text) <= len(str(LARGEST_PID)) and int(text) <= LARGEST_PID


def _check_list(values: Sequence[object], location: str, name: str, depth: int) -> None:
    most = LIMITS.processes if name == "processes" else LIMITS.items
    _check_count(len(values), most, location, "items")
    if set(map(type, values)) <= {int, float, type(None)}:
        numbers: list[float] = [value for value in values if value is not None]  # type: ignore[misc]
        low, high = range_of(name)
        if not are_within(numbers, low, high):
            number, value = next((number, value) for number, value in enumerate(numbers) if not low <= value <= high)
            _check_number(value, f"{location}[{number}]", name)
        return
    for number, item in enumerate(values):
        check(item, f"{location}[{number}]", name, depth + 1)


def _check_order(fields: Mapping[str, object], location: str) -> None:
    for first, second in _PAIRS:
        if second not in fields:
            continue
        begin, end = fields.get(first), fields[second]
        if isinstance(begin, int | float) and isinstance(end, int | float) and end < begin:
            raise error_at(f"{location}.{second}", f"not before `{first}` ({begin:g}) expected, found {end:g}")
    times, values = fields.get(_TIMES), fields.get(_VALUES)
    if isinstance(times, list) and isinstance(values, list):
        if len(times) != len(values):
            what = f"as many values as `{_TIMES}` expected ({len(times):,}), found {len(values):,}"
            raise error_at(f"{location}.{_VALUES}", what)
        check_rising(times, f"{location}.{_TIMES}")


def check_rising(times: Sequence[float], location: str) -> None:
    """Raise WrongValueError if a time is before the one before it."""
    if not all(map(le, times, times[1:])):
        number, (before, after) = next(
            (number, pair) for number, pair in enumerate(pairwise(times), start=1) if not pair[0] <= pair[1]
        )
        raise error_at(f"{location}[{number}]", f"time goes back from {before} to {after}")


def _check_count(count: int, most: int, location: str, what: str) -> None:
    if count > most:
        raise error_at(location, f"at most {most:,} {what} expected, found {count:,}")


def shown(value: object) -> str:
    """Return a value from outside as a message quotes it: short and printable."""
    return printable(shortened(value if isinstance(value, str) else repr(value), _SHOWN))


def error_at(location: str, what: str) -> WrongValueError:
    """Return the error of the value at a location; ``what`` was expected, and what was found."""
    return WrongValueError(f"at `{printable(shortened(location, _LONGEST_LOCATION))}`: {what}")


UTF_8_MARK = b"\xef\xbb\xbf"
"""Some editors and PowerShell put it first; it means nothing."""
UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
GZIP = b"\x1f\x8b"
_PIECE = 1 << 16
_FREE = 64 << 20
"""What may be unpacked from any file."""
_WRITER_S = 3.0
"""How long to wait until somebody opens a FIFO for writing."""
_PAUSE_S = 0.05
DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile)
"""What a gzip file raises that is damaged or cut off."""


class TooLargeError(SessionFileError):
    """A file holds more than we read."""


def open_file(path: pathlib.Path, holding: str = "", *, may_wait: bool = True) -> io.BufferedReader:
    """Open a file or, if it ``may_wait``, a FIFO for reading. Raises SessionFileError, also for anything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        mode = os.fstat(descriptor).st_mode
        if may_wait and stat.S_ISFIFO(mode):
            return io.BufferedReader(_Fifo(descriptor), _PIECE)
        if not stat.S_ISREG(mode):
            os.close(descriptor)
            raise SessionFileError(f"{path}: cannot be read: a file expected{holding}")
        return os.fdopen(descriptor, "rb")
    except OSError as error:
        raise SessionFileError(f"{path}: cannot be read: {error.strerror or error}") from error


class _Fifo(io.FileIO):
    """A FIFO that waits for what a writer writes, but not for ever for a writer."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self._until_s: float | None = time.monotonic() + _WRITER_S

    def readinto(self, buffer: WriteableBuffer) -> int:
        while not (count := super().readinto(buffer)):
            if count is None:  # there is a writer
                self._until_s = None
                self._poll.poll()
                continue
            had_writer = any(event & select.POLLHUP for _, event in self._poll.poll(0))  # it has closed it again
            if self._until_s is None or had_writer:
                return 0
            if time.monotonic() > self._until_s:
                raise OSError(f"nobody writes to this FIFO: a writer within {_WRITER_S:g} seconds expected")
            time.sleep(_PAUSE_S)
        self._until_s = None
        return count


def whole(path: pathlib.Path, *, most: int | None = None, may_wait: bool = True) -> bytes:
    """Return the content of a file, unpacked, without a byte-order mark; of a FIFO only if it ``may_wait``.

    Raises SessionFileError, also for more than ``most`` bytes.
    """
    with open_file(path, may_wait=may_wait) as file:
        return content(file, path, most)


def content(file: BinaryIO, path: pathlib.Path, most: int | None = None) -> bytes:
    """Return the content of an open file, as ``whole`` does."""
    data = io.BytesIO()  # its content is not copied when it is taken
    limit = LIMITS.size if most is None else min(most, LIMITS.size)
    try:
        for piece in pieces(file, path):
            data.write(piece)
            if data.tell() > limit:
                raise too_large(path, limit)
    except DAMAGED as error:
        raise SessionFileError(f"{path}: the gzip archive is damaged or cut off: {error}") from error
    except OSError as error:
        raise SessionFileError(f"{path}: cannot be read: {error.strerror or error}") from error
    except MemoryError as error:
        raise too_large(path, data.tell()) from error
    return data.getvalue()


def size_of(file: BinaryIO) -> int | None:
    """Return the size of an open file, packed as it is; None for a FIFO."""
    status = os.fstat(file.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def check_size(file: BinaryIO, path: pathlib.Path) -> None:
    """Raise TooLargeError for a file that is larger than what is read, before it is read: it may be sparse."""
    if (size_of(file) or 0) > LIMITS.size:
        raise too_large(path, LIMITS.size)


def too_large(path: pathlib.Path, limit: int) -> TooLargeError:
    """Return the error of a file that holds more than ``limit`` bytes."""
    size = f"{limit >> 30} GiB" if limit >= 1 << 30 else f"{limit:,} bytes"
    return TooLargeError(f"{path}: larger than {size}, the largest file that is read")


def pieces(file: BinaryIO, path: pathlib.Path) -> Iterator[bytes]:
    """Yield a file in short pieces, unpacked, without a byte-order mark.

    Raises TooLargeError when it unpacks to far more than recordings do; OSError; ``DAMAGED``.
    """
    counted = io.BufferedReader(Counted(file), _PIECE)
    read = counted.raw
    is_packed = counted.peek(len(GZIP))[: len(GZIP)] == GZIP
    source = gzip.GzipFile(fileobj=counted) if is_packed else counted
    total = 0
    piece = source.read1(_PIECE).removeprefix(UTF_8_MARK) or source.read1(_PIECE)  # a mark alone is no end
    while piece:
        total += len(piece)
        ratio = LIMITS.packed_ratio
        if is_packed and total > _FREE and total > ratio * read.count:
            message = f"{path}: it unpacks to more than {ratio} times its size, which no recording does"
            raise TooLargeError(message)
        yield piece
        piece = source.read1(_PIECE)


def begin(packed: bytes, most: int) -> bytes:
    """Return what the beginning of a gzip file unpacks to, ``most`` bytes at most; empty if it is damaged."""
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(packed, most)
    except zlib.error:
        return b""


class Counted(io.RawIOBase):
    """A file that counts how much was read of it, and reports it."""

    def __init__(self, file: BinaryIO, progress: Progress | None = None) -> None:
        super().__init__()
        self._file = file
        self._progress = progress
        self.count = 0

    def readable(self) -> bool:  # noqa: D102 — as in io.RawIOBase
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:  # noqa: D102 — as in io.RawIOBase
        read: int = self._file.readinto(buffer)  # type: ignore[attr-defined] # every binary file has it
        self.count += read
        if self._progress is not None:
            self._progress(self.count, size_of(self._file))
        return read
