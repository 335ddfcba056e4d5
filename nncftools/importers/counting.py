"""Counters of logs, which may fall when a process ends, as totals that never do."""

from __future__ import annotations

from itertools import accumulate
from math import isnan


class NeverFalling:
    """A counter of the processes that are alive: what ended processes counted is kept, as far as it was seen.

    The total is at least what it says: a fall hides what others counted meanwhile.
    """

    def __init__(self, before: float | None = None) -> None:
        """``before`` is what had been counted before the log's start; None: the first value."""
        self._before = before
        self._total = 0.0

    def take(self, values: list[float]) -> list[float]:
        """Return the totals after each of the values; NaN for those that are unknown."""
        if self._before is None or isnan(sum(values)) or values[0] < self._before or values != sorted(values):
            return list(map(self._after, values))
        shift = self._total - self._before  # as long as nothing falls, the totals are the values
        self._before = values[-1]
        self._total = self._before + shift
        return [value + shift for value in values] if shift else values

    def _after(self, value: float) -> float:
        if isnan(value):
            return value
        if self._before is not None:
            self._total += max(0.0, value - self._before)
        self._before = value
        return self._total


class Spent:
    """CPU time, from how busy the processes were since the row before."""

    def __init__(self) -> None:
        """Begin at 0: a first row tells of no time."""
        self._last_s: float | None = None
        self._total = 0.0

    def take(self, time_s: list[float], percent: list[float]) -> list[float]:
        """Return the seconds that were spent up to each row; 100 % is one core."""
        before = [time_s[0] if self._last_s is None else self._last_s, *time_s[:-1]]
        spent = ((now - then) * busy / 100 for now, then, busy in zip(time_s, before, percent, strict=True))
        totals = list(accumulate(spent, initial=self._total))
        self._last_s = time_s[-1]
        self._total = totals[-1]
        return totals[1:]
