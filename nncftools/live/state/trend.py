"""How long until the machine's memory is exhausted, if things go on as they do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

_FURTHEST = 30
"""How many times as far ahead as was looked back a straight line is believed."""
_FEWEST = 10
_SHORTEST_S = 5.0
_NOISE = 3.0
_NOTICEABLE = 16 << 20


def time_left(time_s: Sequence[float], used: Sequence[float], available: float) -> float | None:
    """Return the seconds until ``available`` bytes are used up, or None when there is no such trend.

    ``used`` are bytes at moments of the last half minute. The trend is the straight line of least squares. It counts
    when over at least 5 seconds it rises by more than 16 MiB and by more than three times what the figures stray from
    it (their standard deviation), the last figure is above the mean of the second half, and the end is at most thirty
    times as far away as was looked back: a quarter of an hour.
    """
    time, value = np.asarray(time_s, dtype=np.float64), np.asarray(used, dtype=np.float64)
    known = ~np.isnan(value)
    time, value = time[known], value[known]
    if len(time) < _FEWEST or time[-1] - time[0] < _SHORTEST_S:
        return None
    slope, level = np.polyfit(time - time[-1], value, 1)
    risen = slope * (time[-1] - time[0])
    strays = float(np.std(value - (level + slope * (time - time[-1]))))
    half = len(time) // 2
    if risen <= max(_NOTICEABLE, _NOISE * strays) or value[half:].mean() >= value[-1]:
        return None
    left_s = available / float(slope)
    return left_s if left_s <= _FURTHEST * (time[-1] - time[0]) else None
