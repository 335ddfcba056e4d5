"""The figures of one column between two moments."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise
from math import inf, isnan, nextafter
from typing import TYPE_CHECKING

from nncftools.session.operation import RATE_WINDOW_S, UNKNOWN, Bounds, Bracket, Figures
from nncftools.session.peaks import first_at_least, noise

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_TRIGGERED = 0.2
"""A sample was triggered by a mark if it follows the mark within this part of the distance to the sample before."""


class Column:
    """The samples in which a metric is known."""

    def __init__(self, times: Sequence[float], values: Sequence[float]) -> None:
        if isnan(sum(values)):
            known = [(time, value) for time, value in zip(times, values, strict=True) if not isnan(value)]
            times, values = [time for time, _ in known], [value for _, value in known]
        self.times = times
        """In seconds since the start."""
        self.values = values

    def held(self, start_s: float, end_s: float, *, until_triggered: bool = True) -> Figures:
        """Return the figures of a gauge between two moments; by default a sample triggered by the end counts."""
        if not self.times:
            return UNKNOWN
        first = bisect_left(self.times, start_s)
        after = self._after(end_s) if until_triggered else bisect_right(self.times, end_s)
        values = self.values[first:after]
        start, end = self.values[max(0, self._after(start_s) - 1)], self.values[max(0, after - 1)]
        if not values:
            return Figures(start, end)
        highest = max(values)
        at_s = self.times[first + first_at_least(values, highest - noise(highest))]
        return Figures(start, end, Bracket(highest, None, at_s, at_s))

    def around(self, at_s: float) -> tuple[float | None, Bounds | None]:
        """Return a gauge at a moment: its sample up to then, or triggered then, and the bounds by both neighbours.

        The bounds are None when both samples say nearly the same.
        """
        if not self.times:
            return None, None
        after = bisect_right(self.times, at_s)
        values = self.values[max(0, after - 1) : after + 1]
        low, high = min(values), max(values)
        value = self.values[max(0, self._after(at_s) - 1)]
        return value, None if high - low <= noise(value) else Bounds(low, high)

    def counted(self, start_s: float, end_s: float) -> Figures:
        """Return the figures of a counter between two moments."""
        if not self.times:
            return UNKNOWN
        spent = self._at(end_s) - self._at(start_s)
        rates = [
            (self.values[after] - self.values[before]) / (self.times[after] - self.times[before])
            for before, after in pairwise(spaced(self.times, RATE_WINDOW_S, start_s, end_s))
        ]
        if not rates:
            return Figures(spent=spent)
        return Figures(spent=spent, peak=Bracket(max([*rates, spent / (end_s - start_s)]), None, start_s, end_s))

    def _after(self, at_s: float) -> int:
        """Return the place after the last sample up to a moment, including a sample triggered by it."""
        after = bisect_right(self.times, at_s)
        return after + self._is_triggered(at_s, after)

    def sampled_before(self, at_s: float) -> float | None:
        """Return the time of the last sample up to a moment, including a sample triggered by it."""
        after = self._after(at_s)
        return self.times[max(0, after - 1)] if self.times else None

    def read_until(self, at_s: float) -> float:
        """Return until when the sample that a mark at ``at_s`` triggered was read; ``at_s`` if it triggered none."""
        after = bisect_right(self.times, at_s)
        if not self._is_triggered(at_s, after):
            return at_s
        return self.times[after] + _TRIGGERED * (self.times[after] - self.times[after - 1])

    def _is_triggered(self, at_s: float, after: int) -> bool:
        """Return whether a mark at ``at_s`` triggered the sample at place ``after``, the first one that follows."""
        if not 0 < after < len(self.times):
            return False
        return self.times[after] - at_s <= _TRIGGERED * (self.times[after] - self.times[after - 1])

    def _at(self, at_s: float) -> float:
        """Return a counter's value: that of a sample triggered by this moment, else interpolated between two."""
        times, values = self.times, self.values
        after = bisect_left(times, at_s)
        if after in {0, len(times)}:
            return values[min(after, len(times) - 1)]
        if self._is_triggered(at_s, after):
            return values[after]
        share = (at_s - times[after - 1]) / (times[after] - times[after - 1])
        return values[after - 1] + share * (values[after] - values[after - 1])


def spaced(times: Sequence[float], distance_s: float, start_s: float = -inf, end_s: float = inf) -> Iterator[int]:
    """Yield the places of samples between two moments, each at least ``distance_s`` after the one before."""
    place, stop = bisect_left(times, start_s), bisect_right(times, end_s)
    while place < stop:
        yield place
        next_s = max(times[place] + distance_s, nextafter(times[place], inf))
        place += 1
        if place < stop and times[place] < next_s:  # most samples are further apart: no search for the next one
            place = bisect_left(times, next_s, place)
