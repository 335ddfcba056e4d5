"""A column made ready to be drawn: gaps as NaN, and no more points than can be seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Points = tuple[NDArray[np.float64], NDArray[np.float64]]

SELDOM = 0.6
"""The share of samples: a figure that fewer hold has an interval of its own, as PSS."""
GAP = 2.5
"""In intervals: a distance of two samples from which on nothing is known in between."""


def drawn(time_s: ArrayLike, values: ArrayLike, interval_s: float | None, points: int = 4000) -> Points:
    """Return time and values of at most about ``points`` points that look like the whole column.

    Every bucket keeps its smallest and its largest value, so that no peak is lost. Where samples are missing, one NaN
    breaks the line. A figure that most samples do not hold (PSS) has its own, changing interval: only its known values
    are returned.
    """
    time, value = np.asarray(time_s, dtype=np.float64), np.asarray(values, dtype=np.float64)
    known = ~np.isnan(value)
    if known.sum() < len(known) * SELDOM:
        time, value = time[known], value[known]
    elif interval_s:
        after = np.flatnonzero(np.diff(time) > GAP * interval_s) + 1
        if len(after):
            time, value = np.insert(time, after, time[after]), np.insert(value, after, np.nan)
    return decimated(time, value, points)


def decimated(time: NDArray[np.float64], value: NDArray[np.float64], points: int) -> Points:
    """Return the smallest and largest value of each of at most ``points / 2`` buckets, in time order.

    A bucket with a NaN keeps it, too, so that a gap stays a gap.
    """
    if len(time) <= points:
        return time, value
    unknown = np.isnan(value)
    length = -(-len(time) // (points // 2))
    whole = len(time) // length * length
    kept = [np.flatnonzero(unknown)]
    for extreme, instead in ((np.argmin, np.inf), (np.argmax, -np.inf)):
        filled = np.where(unknown, instead, value) if len(kept[0]) else value
        kept.append(extreme(filled[:whole].reshape(-1, length), axis=1) + np.arange(0, whole, length))
        if whole < len(time):
            kept.append(np.array([whole + extreme(filled[whole:])]))
    places = np.unique(np.concatenate(kept))
    return time[places], value[places]
