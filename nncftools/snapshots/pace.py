"""How often the helper polls: seldom while memory does not grow, and never more than its budget allows."""

from __future__ import annotations

import math
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nncftools.snapshots.budget import Budget

_MS = 1_000_000
_DISTANCES = ((0.01, 20 * _MS), (0.02, 3_000 * _MS), (0.05, 10_000 * _MS), (0.1, math.inf))
"""The distance of polls in seconds, up to this time after memory last rose fast."""
_RENEW_EVERY_NS = 500 * _MS
_MORE_WHEN_USED = 2
"""Polls are up to this many times farther apart, as the steps between looks grow."""
_MEAN_OF = 50
_FIRST_S = 0.0001
_LONGEST_S = 0.001
"""An iteration that takes longer did more than poll."""


class Pace:
    """Measures what polls cost, and spreads them."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._poll_s = _FIRST_S
        self._allowed_s = 0.0
        self._slower = 1.0
        self._renew_at_ns = 0
        self._cpu_s = time.process_time()

    def rest_s(self, now_ns: int, rose_fast_ns: int) -> float:
        """Return the time until the next poll, after one that began at ``now_ns``."""
        cpu_s = time.process_time()
        if cpu_s - self._cpu_s < _LONGEST_S:
            self._poll_s += (cpu_s - self._cpu_s - self._poll_s) / _MEAN_OF
        self._cpu_s = cpu_s
        if now_ns >= self._renew_at_ns:
            self._renew_at_ns = now_ns + _RENEW_EVERY_NS
            self._allowed_s = self._budget.distance_s(self._poll_s)
            self._slower = 1 + _MORE_WHEN_USED * self._budget.used
        calm_ns = now_ns - rose_fast_ns
        distance_s = next(wanted_s for wanted_s, until_ns in _DISTANCES if calm_ns < until_ns)
        return max(distance_s * self._slower, self._allowed_s) - (time.monotonic_ns() - now_ns) / 1e9
