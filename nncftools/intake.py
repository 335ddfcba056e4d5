"""Opens files that others wrote, and reads them in bounded memory: packed or not, from a file or a FIFO."""

from __future__ import annotations

import gzip
import io
import os
import select
import stat
import time
import zlib
from typing import TYPE_CHECKING, Any

from nncftools.bounds import limits
from nncftools.errors import SessionFileError

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator
    from typing import BinaryIO

    from _typeshed import WriteableBuffer

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


class _Fifo(io.RawIOBase):
    """A FIFO that waits for what a writer writes, but not for ever for a writer."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self._until_s: float | None = time.monotonic() + _WRITER_S

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        if not self.closed:
            os.close(self._descriptor)
        super().close()

    def _had_writer(self) -> bool:
        """Return whether somebody has opened it for writing, and closed it, since we opened it."""
        return any(event & select.POLLHUP for _, event in self._poll.poll(0))

    def readinto(self, buffer: WriteableBuffer) -> int:
        while True:
            try:
                data = os.read(self._descriptor, len(memoryview(buffer)))
            except BlockingIOError:  # there is a writer
                self._until_s = None
                self._poll.poll()
                continue
            if data:
                self._until_s = None
                memoryview(buffer)[: len(data)] = data
                return len(data)
            if self._until_s is None or self._had_writer():
                return 0
            if time.monotonic() > self._until_s:
                raise OSError(f"nobody writes to this FIFO: a writer within {_WRITER_S:g} seconds expected")
            time.sleep(_PAUSE_S)


def whole(path: pathlib.Path, *, most: int | None = None, may_wait: bool = True) -> bytes:
    """Return the content of a file, unpacked, without a byte-order mark; of a FIFO only if it ``may_wait``.

    Raises SessionFileError, also for more than ``most`` bytes.
    """
    with open_file(path, may_wait=may_wait) as file:
        return content(file, path, most)


def content(file: BinaryIO, path: pathlib.Path, most: int | None = None) -> bytes:
    """Return the content of an open file, as ``whole`` does."""
    found = io.BytesIO()  # its content is not copied when it is taken
    limit = limits().size if most is None else min(most, limits().size)
    try:
        for piece in pieces(file, path):
            found.write(piece)
            if found.tell() > limit:
                raise too_large(path, limit)
    except DAMAGED as error:
        raise SessionFileError(f"{path}: the gzip archive is damaged or cut off: {error}") from error
    except OSError as error:
        raise SessionFileError(f"{path}: cannot be read: {error.strerror or error}") from error
    except MemoryError as error:
        raise too_large(path, found.tell()) from error
    return found.getvalue()


def too_large(path: pathlib.Path, limit: int) -> TooLargeError:
    """Return the error of a file that holds more than ``limit`` bytes."""
    size = f"{limit >> 30} GiB" if limit >= 1 << 30 else f"{limit:,} bytes"
    return TooLargeError(f"{path}: larger than {size}, the largest file that is read", mended_by="size")


def pieces(file: BinaryIO, path: pathlib.Path) -> Iterator[bytes]:
    """Yield a file in short pieces, unpacked, without a byte-order mark.

    Raises TooLargeError when it unpacks to far more than recordings do; OSError; ``DAMAGED``.
    """
    counted = io.BufferedReader(_Counted(file), _PIECE)
    read = counted.raw
    is_packed = counted.peek(len(GZIP))[: len(GZIP)] == GZIP
    source = gzip.GzipFile(fileobj=counted) if is_packed else counted
    total = 0
    piece = _first(source)
    while piece:
        total += len(piece)
        if is_packed and total > _FREE and total > limits().packed_ratio * read.count:
            raise TooLargeError(
                f"{path}: it unpacks to more than {limits().packed_ratio} times its size, which no recording does",
                mended_by="size",
            )
        yield piece
        piece = source.read1(_PIECE)


def _first(source: gzip.GzipFile | io.BufferedReader[Any]) -> bytes:
    """Return the first piece without a byte-order mark; a mark alone is no end."""
    piece = source.read1(_PIECE)
    return piece.removeprefix(UTF_8_MARK) or source.read1(_PIECE)


def begin(packed: bytes, most: int) -> bytes:
    """Return what the beginning of a gzip file unpacks to, ``most`` bytes at most; empty if it is damaged."""
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(packed, most)
    except zlib.error:
        return b""


class _Counted(io.RawIOBase):
    """A file that counts how much was read of it."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file = file
        self.count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        read: int = self._file.readinto(buffer)  # type: ignore[attr-defined] # every binary file has it
        self.count += read
        return read
