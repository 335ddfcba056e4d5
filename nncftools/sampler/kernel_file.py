"""Files of ``/proc``, read by descriptors that are kept open, and the units that the kernel counts in."""

from __future__ import annotations

import errno
import os

NONE_LEFT = (errno.EMFILE, errno.ENFILE)
"""Nothing can be opened: that says nothing of the process whose file it is."""
GONE = (errno.ENOENT, errno.ESRCH)
"""The process has ended."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
SMALL = 448
"""Enough for what is read of stat and io, and small enough for Python's own allocator: 1 µs less than 1,024."""
_CHUNK = 4096


def read_all(descriptor: int) -> bytes:
    """Read a kernel file from its start; such a file may end a read early, at the edge of its buffer."""
    data = os.pread(descriptor, _CHUNK, 0)
    if len(data) < _CHUNK // 2:
        return data
    parts = [data]
    length = len(data)
    while data := os.pread(descriptor, _CHUNK, length):
        parts.append(data)
        length += len(data)
    return b"".join(parts)
