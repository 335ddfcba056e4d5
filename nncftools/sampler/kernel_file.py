"""Files of ``/proc``, read by descriptors that are kept open."""

from __future__ import annotations

import errno
import os

NONE_LEFT = (errno.EMFILE, errno.ENFILE)
"""Nothing can be opened: that says nothing of the process whose file it is."""
GONE = (errno.ENOENT, errno.ESRCH)
"""The process has ended."""
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
