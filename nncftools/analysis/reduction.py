"""Fewer points of a series, for charts: no peak and no gap is lost."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MOST_POINTS = 2000
"""More cannot be told apart on a screen."""
_PER_BUCKET = 3


def keep_extremes(
    time: NDArray[np.float64], value: NDArray[np.float64], most: int = MOST_POINTS
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return at most ``most`` points in time order, among them the least and the largest value of each bucket.

    The third point of a bucket is its first NaN, so that a gap stays a gap; a bucket without NaN keeps its first point.
    """
    if len(value) <= most:
        return time, value
    width = -(-len(value) // (most // _PER_BUCKET))
    buckets = np.pad(value, (0, -len(value) % width), mode="edge").reshape(-1, width)
    unknown = np.isnan(buckets)
    kept = (
        unknown.argmax(axis=1),
        np.where(unknown, np.inf, buckets).argmin(axis=1),
        np.where(unknown, -np.inf, buckets).argmax(axis=1),
    )
    places = np.unique(np.arange(0, len(value), width) + np.array(kept))
    return time[places], value[places]
