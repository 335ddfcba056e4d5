"""The figures of a run over time in bounded memory: buckets that double their width."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Points = tuple[NDArray[np.float64], NDArray[np.float64]]

BUCKETS = 4096
_FINEST_S = 0.01
_TICKS_S = 0.2
"""CPU time is counted in ticks of 10 ms: over a shorter time, a rate measures the tick more than the program."""


class History:
    """The smallest and the largest value of every column in buckets of equal length."""

    def __init__(self, columns: Sequence[str], interval_s: float, buckets: int = BUCKETS) -> None:
        """Begin with buckets that hold one sample each."""
        self._places = {name: place for place, name in enumerate(columns)}
        self._size = buckets
        self.width_s = max(interval_s, _FINEST_S)
        """Seconds that a bucket covers."""
        self.last_s = 0.0
        """The time of the last sample."""
        self._used = 0
        shape = (len(columns), buckets)
        self._low, self._high = np.full(shape, np.nan), np.full(shape, np.nan)
        self._moments = np.full(buckets, np.nan)
        """The time of the last sample in each bucket."""

    def add(self, time_s: NDArray[np.float64], rows: NDArray[np.float64]) -> None:
        """Take samples in the order of their times, a row for each; NaN is unknown."""
        if not len(time_s):
            return
        self.last_s = float(time_s[-1])
        while self.last_s >= self.width_s * self._size:
            self._double()
        places = (time_s / self.width_s).astype(np.intp)
        begins = np.flatnonzero(np.diff(places, prepend=-1))
        into = places[begins]
        self._used = max(self._used, int(into[-1]) + 1)
        self._low[:, into] = np.fmin(self._low[:, into], np.fmin.reduceat(rows, begins, axis=0).T)
        self._moments[into] = time_s[np.append(begins[1:], len(time_s)) - 1]
        self._high[:, into] = np.fmax(self._high[:, into], np.fmax.reduceat(rows, begins, axis=0).T)

    def _double(self) -> None:
        half = self._size // 2
        for values, of_two in ((self._low, np.fmin), (self._high, np.fmax), (self._moments, np.fmax)):
            values[..., :half] = of_two(values[..., ::2], values[..., 1::2])
            values[..., half:] = np.nan
        self.width_s *= 2
        self._used = -(-self._used // 2)

    def points(self, name: str, begin_s: float, end_s: float, cells: int) -> Points:
        """Return times and values to draw on ``cells`` columns: the smallest and the largest value of each.

        There are no points where nothing is known.
        """
        first = max(0, int(begin_s / self.width_s))
        last = min(self._used, int(end_s / self.width_s) + 1)
        group = max(1, -(-(last - first) // max(cells, 1)))
        first -= first % group  # groups stay the same as the window moves on: the chart does not flicker
        groups = range(first, max(last, first), group)
        if name not in self._places or not groups:
            return np.empty(0), np.empty(0)
        place = self._places[name]
        starts = np.arange(len(groups)) * group
        low = np.fmin.reduceat(self._low[place, first:last], starts)
        high = np.fmax.reduceat(self._high[place, first:last], starts)
        middle = np.minimum((first + starts + group / 2) * self.width_s, self.last_s)
        known = ~np.isnan(high)
        middle, low, high = middle[known], low[known], high[known]
        rising = np.diff(high, prepend=high[:1]) >= 0
        pairs = np.where(rising, np.stack([low, high]), np.stack([high, low]))
        values, times = pairs.T.ravel(), np.repeat(middle, 2)
        different = np.append(True, (np.diff(values) != 0) | (np.diff(times) != 0))
        return times[different[: len(times)]], values[different[: len(times)]]

    def rates(self, name: str, begin_s: float, end_s: float, cells: int) -> NDArray[np.float64]:
        """Return the rate per second of a counter in each of ``cells`` equal parts; empty when it is unknown."""
        if name not in self._places or not self._used or end_s <= begin_s:
            return np.empty(0)
        totals = self._high[self._places[name], : self._used]
        known = np.flatnonzero(~np.isnan(totals))
        if not len(known):
            return np.empty(0)
        moments = np.concatenate([[0.0], self._moments[known]])
        values = np.concatenate([[0.0], totals[known]])
        middles = begin_s + (np.arange(cells) + 0.5) * (end_s - begin_s) / cells
        reach = max((end_s - begin_s) / cells, _TICKS_S, self.width_s) / 2
        before = np.clip(middles - reach, 0, self.last_s)
        after = np.clip(middles + reach, 0, self.last_s)
        span = after - before
        risen = np.interp(after, moments, values) - np.interp(before, moments, values)
        rates: NDArray[np.float64] = np.divide(risen, span, out=np.zeros(cells), where=span > 0)
        return rates
