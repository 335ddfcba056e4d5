"""Columns prepared for drawing: levels with gaps as NaN and no more points than can be seen, and rates of counters."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nncftools.analysis.operation import CPU, RATE_WINDOW_S, spaced
from nncftools.analysis.session import Session
from nncftools.metrics import cpu_counters

Floats = NDArray[np.float64]
Points = tuple[Floats, Floats]

SELDOM = 0.6
"""A share of the samples: a figure that is known in fewer of them has its own interval, as PSS has."""
GAP = 2.5
"""In intervals: when two samples are further apart, what was between them is unknown."""
_SHORTEST_S = 1e-3

MOST_POINTS = 2000
"""More cannot be told apart on a screen."""


def keep_extremes(time: Floats, value: Floats, most: int = MOST_POINTS) -> Points:
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


def decimated_with_gaps(
    time_s: ArrayLike, values: ArrayLike, interval_s: float | None, points: int = MOST_POINTS
) -> Points:
    """Return time and values of at most ``points`` points that look like the whole column.

    Where samples are missing, one NaN breaks the line. A figure that most samples do not hold (PSS) has its own,
    changing interval: only its known values are returned.
    """
    time, value = np.asarray(time_s, dtype=np.float64), np.asarray(values, dtype=np.float64)
    known = ~np.isnan(value)
    if known.sum() < len(known) * SELDOM:
        time, value = time[known], value[known]
    elif interval_s:
        after = np.flatnonzero(np.diff(time) > GAP * interval_s) + 1
        if len(after):
            time, value = np.insert(time, after, time[after]), np.insert(value, after, np.nan)
    return keep_extremes(time, value, points)


def run_s(session: Session) -> float:
    """Return how long the time axis of a session is, in seconds: never 0."""
    return max([session.duration_s, *session.samples.time_s[-1:], _SHORTEST_S])


def window_s(session: Session, most: int) -> float:
    """Return the seconds over which a rate of a session is averaged, for at most ``most`` rates."""
    return max(RATE_WINDOW_S, run_s(session) / most)


def rates_of(session: Session, counters: Sequence[str], most: int) -> Points:
    """Return moments, and the rate from each to the next at which the sum of some counters rose.

    There are about ``most`` rates at most, and none if a counter was not recorded.
    """
    samples = session.samples
    if not counters or not all(column in samples for column in counters):
        return np.empty(0), np.empty(0)
    totals = np.sum([np.asarray(samples[column]) for column in counters], axis=0)
    return rates(samples.time_s, totals, window_s(session, most), session.sampler.spacing_s)


def highest_rate(session: Session, counters: Sequence[str]) -> float | None:
    """Return the highest rate of some counters together over 0.2 s; None for unknown, and for a shorter run.

    It is at least the highest rate of any operation: their windows begin at other moments.
    """
    _, sampled = rates_of(session, counters, sys.maxsize)
    column = CPU if tuple(counters) == cpu_counters(session.samples) else counters[0] if len(counters) == 1 else ""
    of_operations = (operation.rates.get(column) for operation in session.operations)
    known = [*sampled[~np.isnan(sampled)].tolist(), *(rate for rate in of_operations if rate is not None)]
    return max(known, default=None)


def rates(time_s: ArrayLike, totals: ArrayLike, window_s: float, interval_s: float | None = None) -> Points:
    """Return moments, and by how much the counter ``totals`` rose per second from each of them to the next.

    There is one rate fewer than moments, as ``Axes.stairs`` takes them. Moments are samples that hold the counter, at
    least ``window_s`` apart; the last sample closes the last window. A rate is NaN where samples are missing: where two
    are more than 2.5 windows and 2.5 ``interval_s`` apart. Both are empty when the samples span no window.
    """
    time, total = np.asarray(time_s, dtype=np.float64), np.asarray(totals, dtype=np.float64)
    known = ~np.isnan(total)
    time, total = time[known], total[known]
    bounds = list(spaced(time.data, window_s))  # a step of Python for each window, not for each sample
    if len(bounds) <= 1:
        return np.empty(0), np.empty(0)
    bounds[-1] = len(time) - 1
    moments = time[bounds]
    rate = np.diff(total[bounds]) / np.diff(moments)
    if interval_s:
        gaps = np.flatnonzero(np.diff(time) > GAP * max(interval_s, window_s))
        rate[np.searchsorted(bounds, gaps, side="right") - 1] = np.nan
    return moments, rate
