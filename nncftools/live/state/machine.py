"""What is asked of this machine when a view is drawn, because the recording does not hold it."""

from __future__ import annotations

import contextlib
import os
import pathlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST = 200
"""Processes looked at in one drawing: 2 ms."""
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def memory_available(proc: str = "/proc") -> int | None:
    """Return the bytes that programs can still have without swapping, as the kernel estimates it; None for unknown."""
    if sys.platform != "linux":
        import psutil

        return int(psutil.virtual_memory().available)
    with contextlib.suppress(OSError, ValueError, IndexError), pathlib.Path(proc, "meminfo").open("rb") as file:
        return int(file.read().partition(b"MemAvailable:")[2].split(None, 1)[0]) * 1024
    return None


def resident(pids: Iterable[int], proc: str = "/proc") -> dict[int, int]:
    """Return the RSS in bytes of processes that are there, of the first 200."""
    found = {}
    for pid, _ in zip(pids, range(_MOST), strict=False):
        with contextlib.suppress(OSError, ValueError, IndexError):
            descriptor = os.open(f"{proc}/{pid}/statm", os.O_RDONLY)
            try:
                found[pid] = int(os.read(descriptor, 200).split()[1]) * _PAGE
            finally:
                os.close(descriptor)
    return found
