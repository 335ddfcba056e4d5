"""How fast a counter rose."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nncftools.analysis.series import GAP

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Rates = tuple[NDArray[np.float64], NDArray[np.float64]]


def rates(time_s: ArrayLike, totals: ArrayLike, window_s: float, interval_s: float | None = None) -> Rates:
    """Return moments, and by how much the counter ``totals`` rose per second from each of them to the next.

    There is one rate fewer than moments, as ``Axes.stairs`` takes them. Moments are samples that hold the counter, at
    least ``window_s`` apart; the last sample closes the last window. A rate is NaN where samples are missing: two are
    more than 2.5 windows and 2.5 ``interval_s`` apart there. Both are empty when the samples span no window.
    """
    time, total = np.asarray(time_s, dtype=np.float64), np.asarray(totals, dtype=np.float64)
    known = ~np.isnan(total)
    time, total = time[known], total[known]
    bounds = _bounds(time, window_s)
    if len(bounds) <= 1:
        return np.empty(0), np.empty(0)
    moments = time[bounds]
    rate = np.diff(total[bounds]) / np.diff(moments)
    if interval_s:
        gaps = np.flatnonzero(np.diff(time) > GAP * max(interval_s, window_s))
        rate[np.searchsorted(bounds, gaps, side="right") - 1] = np.nan
    return moments, rate


def _bounds(time: NDArray[np.float64], window_s: float) -> NDArray[np.intp]:
    """Return the places of the samples that bound windows, in a step of Python for each window, not for each sample."""
    places = []
    following = 0
    while following < len(time):
        places.append(following)
        moment = time[following]
        following = int(np.searchsorted(time, max(moment + window_s, np.nextafter(moment, np.inf))))
    if len(places) > 1:
        places[-1] = len(time) - 1
    return np.array(places, dtype=np.intp)
