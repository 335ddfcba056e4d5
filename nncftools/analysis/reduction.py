"""Fewer points of a series, for charts: no peak and no gap is lost."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MOST_POINTS = 2000
"""More cannot be told apart on a screen."""


def keep_extremes(
    time: NDArray[np.float64], value: NDArray[np.float64], most: int = MOST_POINTS
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return at most ``most`` points in time order: of each bucket the least and the largest value, and the last point.

    Where values are unknown, a bucket also keeps its first NaN, so that a gap stays a gap.
    """
    if len(value) <= most:
        return time, value
    unknown = np.isnan(value)
    kept_of_bucket = 3 if unknown.any() else 2
    width = -(-len(value) // ((most - 1) // kept_of_bucket))
    padding = (0, -len(value) % width)
    buckets = np.pad(value, padding, mode="edge").reshape(-1, width)
    is_unknown = np.pad(unknown, padding, mode="edge").reshape(-1, width)
    kept = [
        np.where(is_unknown, np.inf, buckets).argmin(axis=1),
        np.where(is_unknown, -np.inf, buckets).argmax(axis=1),
        is_unknown.argmax(axis=1),
    ]
    places = np.arange(0, len(value), width) + np.array(kept[:kept_of_bucket])
    places = np.unique(np.append(places, len(value) - 1))
    return time[places], value[places]
