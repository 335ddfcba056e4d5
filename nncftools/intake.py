"""Opens files that others wrote, reads them in bounded memory, and has the types of the numbers in them.

A decoder checks the range of a number by its type. ``docs/reading.md`` lists the limits for users.
"""

from __future__ import annotations

import datetime as dt
import gzip
import io
import os
import pathlib
import re
import select
import stat
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import inf
from operator import le
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, NamedTuple

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
Whole = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Size = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
Pid = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_PID)]
Figure = Annotated[float, msgspec.Meta(ge=-LARGEST, le=LARGEST)]
Level = Annotated[float, msgspec.Meta(ge=0, le=LARGEST)]
Seconds = Annotated[float, msgspec.Meta(ge=-LATEST_S, le=LATEST_S)]
Duration = Annotated[float, msgspec.Meta(ge=0, le=LATEST_S)]
_SHOWN = 40
_LONGEST_LOCATION = 100


class Limits(NamedTuple):
    """How much a file may bring: more than any recording that `monitor` writes."""

    size: int = 2 << 30
    """Bytes of a file, unpacked: several times a recording of a million samples."""
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


def is_pid(text: str) -> bool:
    """Return whether a text is a PID that a kernel can give."""
    return text.isdecimal() and len(text) <= len(str(LARGEST_PID)) and int(text) <= LARGEST_PID


def check_rising(times: Sequence[float], location: str) -> None:
    """Raise WrongValueError if a time is before the one before it."""
    if not all(map(le, times, times[1:])):
        number, (before, after) = next(
            (number, pair) for number, pair in enumerate(pairwise(times), start=1) if not pair[0] <= pair[1]
        )
        raise error_at(f"{location}[{number}]", f"time goes back from {before} to {after}")


def check_columns(key: str, time_s: Sequence[float], *others: Sequence[object]) -> None:
    """Raise WrongValueError for columns of different lengths, and for times that go back."""
    if any(len(column) != len(time_s) for column in others):
        raise error_at(key, "columns of the same length expected")
    check_rising(time_s, f"{key}.time_s")


def shown(value: object) -> str:
    """Return a value from outside as a message quotes it: short and printable."""
    return printable(shortened(value if isinstance(value, str) else repr(value), _SHOWN))


def unknown_text(count: int, location: str) -> str:
    """Return the warning that values out of range, such as the one at a location, count as unknown."""
    return f"values out of range count as unknown: {count:,}, the first at `{printable(location)}`"


def error_at(location: str, what: str) -> WrongValueError:
    """Return the error of the value at a location; ``what`` was expected, and what was found."""
    return WrongValueError(f"at `{printable(shortened(location, _LONGEST_LOCATION))}`: {what}")


_OUT_OF_RANGE = re.compile(r"(?:Number out of range|Expected `(?:int|float)` ([<>]=) (\S+))(?: - at `\$(.*)`)?")
_STEP = re.compile(r"\.(\w+)|\[[^]]*\]")


def decode(raw: bytes, kind: Any, path: str, warnings: list[str]) -> Any:  # noqa: ANN401 — of any field
    """Return JSON as a ``kind``. Numbers that are out of range become None, and a warning counts them.

    Raises WrongValueError for anything else that cannot be.
    """
    message = ""
    while True:
        try:
            return msgspec.json.decode(raw, type=kind)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            text = str(error) if "at `$" in str(error) else f"{error} - at `$`"
            text = text.replace("`$", f"`{path}", 1)
            found = _OUT_OF_RANGE.fullmatch(str(error))
            if found is None:  # perhaps it must not be None
                raise WrongValueError(message if message and "`null`" in text else text) from error
            limit = LARGEST if found[2] is None else msgspec.json.decode(found[2])
            low, high = (limit, inf) if found[1] == ">=" else (-inf, limit)
            document = [msgspec.json.decode(raw)]
            count = _set_unknown(document, ["", *_STEP.findall(found[3] or "")], low, high)
            if not count:
                raise WrongValueError(text) from error
            message = text
            warnings.append(unknown_text(count, path + (found[3] or "")))
            raw = msgspec.json.encode(document[0])


def _set_unknown(value: Any, steps: Sequence[str], low: float, high: float) -> int:  # noqa: ANN401 — of any field
    """Set numbers at a place that are out of range to None; return how many. An empty step is every key or index."""
    step, *inner = steps
    every = value.keys() if isinstance(value, dict) else range(len(value))
    count = 0
    for key in [step] if step else every:
        found = value.get(key) if isinstance(value, dict) else value[key]
        if inner and isinstance(found, dict | list):
            count += _set_unknown(found, inner, low, high)
        elif not inner and isinstance(found, int | float) and not low <= found <= high:
            value[key] = None
            count += 1
    return count


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
