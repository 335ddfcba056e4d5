"""How fast a counter rose."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nncftools.analysis.series import GAP
from nncftools.session.operations import RATE_WINDOW_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from nncftools.session.session import Session

    Rates = tuple[NDArray[np.float64], NDArray[np.float64]]


_SHORTEST_S = 1e-3


def run_s(session: Session) -> float:
    """Return how long the time axis of a session is, in seconds: never 0."""
    return max([session.duration_s, *session.samples.time_s[-1:], _SHORTEST_S])


def window_s(session: Session, most: int) -> float:
    """Return the seconds over which a rate of a session is averaged, for at most ``most`` rates."""
    return max(RATE_WINDOW_S, run_s(session) / most)


def rates_of(session: Session, counters: Sequence[str], most: int) -> Rates:
    """Return moments, and how fast counters rose together from each to the next; empty when one was not recorded.

    There are about ``most`` rates at most.
    """
    samples = session.samples
    if not counters or not all(column in samples for column in counters):
        return np.empty(0), np.empty(0)
    totals = np.sum([np.asarray(samples[column]) for column in counters], axis=0)
    return rates(samples.time_s, totals, window_s(session, most), session.sampler.spacing_s)


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
