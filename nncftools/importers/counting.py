"""Turns counters that fall when a process ends into totals that never fall."""

from __future__ import annotations

from itertools import accumulate
from math import isnan


class MonotonicTotal:
    """A sum of counters over live processes; keeps the counts of processes that ended, as far as they were seen.

    The total is a lower bound: a fall hides what other processes counted meanwhile.
    """

    def __init__(self, before: float | None = None) -> None:
        """``before`` is the count before the log's start; None means the first value."""
        self._before = before
        self._total = 0.0

    def take(self, values: list[float]) -> list[float]:
        """Return the total after each value; NaN for unknown values."""
        if self._before is None or isnan(sum(values)) or values[0] < self._before or values != sorted(values):
            return list(map(self._after, values))
        shift = self._total - self._before  # while nothing falls, the totals are the values
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


class CpuTime:
    """CPU time, from the CPU percentage since the previous row."""

    def __init__(self) -> None:
        """Start at 0: the first row covers no time."""
        self._last_s: float | None = None
        self._total = 0.0

    def take(self, time_s: list[float], percent: list[float]) -> list[float]:
        """Return the CPU seconds up to each row; 100 % is one core."""
        before = [time_s[0] if self._last_s is None else self._last_s, *time_s[:-1]]
        seconds = ((now - then) * busy / 100 for now, then, busy in zip(time_s, before, percent, strict=True))
        totals = list(accumulate(seconds, initial=self._total))
        self._last_s = time_s[-1]
        self._total = totals[-1]
        return totals[1:]
