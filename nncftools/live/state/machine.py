"""What this machine says while a view is drawn, as the recording does not hold it: memory and CPU time of processes.

And how long memory will last.
"""

from __future__ import annotations

import contextlib
import os
from itertools import islice
from math import isnan
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST = 200
"""The most processes that one reading looks at."""
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_USER, _SYSTEM, _STARTED, _RSS = 11, 12, 19, 21
"""Places behind the name of the process, from 0."""
_MOSTLY_FREE, _HALF_FREE, _SOON_S = 0.9, 0.5, 60.0
_FREED = 0.1
_FURTHEST = 30
"""A trend over T seconds is extrapolated over at most this many times T."""
_FEWEST = 10
_SHORTEST_S = 5.0
_NOISE = 3.0
_NOTICEABLE = 16 << 20


class Reading(NamedTuple):
    """One process at one moment."""

    rss: int
    """In bytes."""
    cpu_s: float
    """Its CPU seconds since it began."""
    started: int
    """When it began, in the kernel's ticks: a PID may be reused."""


def readings(pids: Iterable[int], proc: str = "/proc") -> dict[int, Reading]:
    """Return RSS and CPU time of the first 200 processes, without those that have ended; see proc_pid_stat(5)."""
    found = {}
    for pid in islice(pids, _MOST):
        with contextlib.suppress(OSError, ValueError, IndexError):
            descriptor = os.open(f"{proc}/{pid}/stat", os.O_RDONLY)
            try:
                fields = os.read(descriptor, 4096).rpartition(b")")[2].split()
            finally:
                os.close(descriptor)
            ticks = int(fields[_USER]) + int(fields[_SYSTEM])
            found[pid] = Reading(int(fields[_RSS]) * _PAGE, ticks / _TICKS_PER_S, int(fields[_STARTED]))
    return found


def time_left(used: Iterable[tuple[float, float]], available: float, size: float | None) -> float | None:
    """Return the seconds until ``available`` bytes of ``size`` are used up, or None when there is no such trend.

    ``used`` are the seconds and bytes of the last half minute. The trend is the least-squares line. It counts when all
    of this holds: over at least 5 seconds it rises by more than 16 MiB and by more than three times the standard
    deviation of the residuals; the last figure is above the mean of the second half, and by less than a tenth of the
    rise below the highest one, as memory that is freed now and then need not grow on; memory is exhausted within thirty
    times the span of the figures, that is a quarter of an hour. While half is free, only what happens within a minute
    is foretold; while nine tenths are free, nothing is.
    """
    free = 0.0 if not size else available / size
    if free >= _MOSTLY_FREE:
        return None
    known = [(at_s, level) for at_s, level in used if not isnan(level)]
    time, value = np.array(known).reshape(-1, 2).T
    if len(time) < _FEWEST or time[-1] - time[0] < _SHORTEST_S:
        return None
    slope, level = np.polyfit(time - time[-1], value, 1)
    risen = slope * (time[-1] - time[0])
    deviation = float(np.std(value - (level + slope * (time - time[-1]))))
    half = len(time) // 2
    if risen <= max(_NOTICEABLE, _NOISE * deviation) or value[half:].mean() >= value[-1]:
        return None
    if value.max() - value[-1] > _FREED * risen:
        return None
    left_s = available / float(slope)
    return left_s if left_s <= (_SOON_S if free >= _HALF_FREE else _FURTHEST * (time[-1] - time[0])) else None
