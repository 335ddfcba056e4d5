"""Reading files of ``/proc`` by kept descriptors, and the units in which the kernel counts."""

from __future__ import annotations

import errno
import os

NONE_LEFT = (errno.EMFILE, errno.ENFILE)
"""No file can be opened: that means nothing about the process whose file it is."""
GONE = (errno.ENOENT, errno.ESRCH)
"""The process has ended."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
SMALL = 448
"""Bytes to read of stat and io: enough for the fields in use, and small enough for Python's own allocator, which saves
1 µs compared with 1,024 bytes."""
_CHUNK = 4096
_KIB = 1024


def read_all(descriptor: int) -> bytes:
    """Read a kernel file from its start; the kernel may end a read early, at the edge of its buffer."""
    data = os.pread(descriptor, _CHUNK, 0)
    if len(data) < _CHUNK // 2:
        return data
    parts = [data]
    length = len(data)
    while data := os.pread(descriptor, _CHUNK, length):
        parts.append(data)
        length += len(data)
    return b"".join(parts)


def value_of(data: bytes, key: bytes) -> int | None:
    """Return the size in a line of a status file, in bytes; None when the line is missing."""
    place = data.find(key)
    if place < 0:
        return None
    return int(data[place + len(key) : data.index(b"kB", place)]) * _KIB
