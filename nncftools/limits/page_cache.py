"""Drops files from the page cache: pages that are cached outside of a control group cost nothing inside of it."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def drop(paths: Iterable[str]) -> int:
    """Drop files as far as that is possible; return how many of their bytes are still cached.

    The kernel keeps pages that a process has mapped, and dirty ones (posix_fadvise(2)).
    """
    left = 0
    for path in paths:
        with contextlib.suppress(OSError, ValueError):
            left += _drop(path)
    return left


def _drop(path: str) -> int:
    descriptor = os.open(_name(path), os.O_RDONLY | os.O_NONBLOCK)
    try:
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return cached(descriptor)
    finally:
        os.close(descriptor)


def _name(path: str) -> bytes:
    """Return the bytes of a path in which those that are no UTF-8 are ``\\xff``, and a line break is ``\\012``."""
    name = os.fsencode(path)
    if b"\\" not in name or os.path.lexists(name):
        return name
    name = re.sub(rb"\\x([89a-f][0-9a-f])", lambda found: bytes.fromhex(found[1].decode()), name)
    return name.replace(b"\\012", b"\n")


def cached(descriptor: int) -> int:
    """Return how many bytes of a file are cached, without reading any (mincore(2)). Raises OSError, ValueError.

    Without the right to write to the file, the kernel says that all of them are.
    """
    with mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY) as mapping:
        size = len(mapping)
        pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
        address = (ctypes.c_char * size).from_buffer(mapping)
        try:
            failed = ctypes.CDLL(None, use_errno=True).mincore(
                ctypes.c_void_p(ctypes.addressof(address)), ctypes.c_size_t(size), pages
            )
        finally:
            del address
        if failed:
            raise OSError(ctypes.get_errno(), "mincore failed")
    return min(size, bytes(pages).count(1) * mmap.PAGESIZE)
