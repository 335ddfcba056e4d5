"""How much CPU time the helper may still spend, and how far apart its polls are."""

from __future__ import annotations

import math
import time

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable


_SPREAD_S = 20.0
"""Polls at rest, and readings below the maximum when little is left, would spend in this time what is left."""
_AMPLE, _RESERVE = 0.15, 0.05
"""Parts of the least budget. With more than the first left, every poll of what grows reads stacks; the second is for
rises to a new maximum."""
_SLOWEST_POLLS, _FARTHEST_S, _COSTLY = 0.1, 0.5, 0.25
"""The part of the share that polling takes when nothing is left. Polls are not farther apart than the second, unless
they take the last part of the share then: there may be thousands of processes."""


class Budget:
    """A share of one core's time since the start, or ``least_s`` CPU seconds where that is more."""

    def __init__(
        self,
        share: float,
        least_s: float,
        clock: Callable[[], float] = time.monotonic,
        own_cpu: Callable[[], float] = time.process_time,
    ) -> None:
        self._share = share
        self._least_s = least_s
        self._clock = clock
        self.own_cpu = own_cpu
        """Returns the CPU seconds that count so far."""
        self._begun_s = clock()

    @property
    def is_ample(self) -> bool:
        """Whether much is left: every poll may read stacks."""
        return self.left_s > self._least_s * _AMPLE

    @property
    def left_s(self) -> float:
        """The CPU seconds that may be spent now."""
        return max(self._least_s, self._share * (self._clock() - self._begun_s)) - self.own_cpu()

    @property
    def rate(self) -> float:
        """The part of a core at which what is left, but for the reserve, would be spent in ``_SPREAD_S``."""
        return (self.left_s - self._least_s * _RESERVE) / _SPREAD_S

    def distance_s(self, poll_s: float) -> float:
        """Return the shortest distance of polls that take ``poll_s`` CPU seconds each."""
        farthest_s = max(_FARTHEST_S, poll_s / (self._share * _COSTLY))
        return min(poll_s / max(self._share * _SLOWEST_POLLS, self.rate), farthest_s)


_MS = 1_000_000
_DISTANCES = ((0.001, 500 * _MS), (0.005, 3_000 * _MS), (0.01, 10_000 * _MS), (0.1, math.inf))
"""The longest distance of polls in seconds, up to this time after memory last rose fast."""
_SHORTEST_S = 0.002
_LEAST_EXPECTED = 512 << 20
"""Memory is expected to double, or to grow by so many bytes. What is left of the budget is for this growth."""
_DECAY = 0.5
_GOLDEN = 0.618
"""Its multiples spread evenly. Polls at even distances could always meet the same function of a loop."""
_RENEW_EVERY_NS = 100 * _MS
_MEAN_OF = 10
_FIRST_S, _FIRST_READING_S = 0.0002, 0.001


class Pace:
    """Measures what polls cost, and spreads them: over the growth of memory, and at rest over time.

    While much of the budget is left, polls follow the growth, and each of a process that grows reads its stacks. Later,
    only rises to a new maximum are followed, with a step of memory between readings. Memory that is freed and taken
    again all the time would spend any budget: below the maximum, readings are spread over time.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._spent_s = budget.own_cpu()
        self._poll_s, self._mean_s, self._reading_s = _FIRST_S, _FIRST_S, _FIRST_READING_S
        """What a poll costs: without readings of stacks, all in the mean, and with readings."""
        self._left_s, self._is_ample, self._calm_s, self._readings = budget.left_s, budget.is_ample, 0.0, 0
        self._renew_at_ns = self._polled_ns = self._read_at_ns = self._highest = 0
        self._phase = 0.0
        self._speed = 0.0
        """Bytes a second by which memory rises."""

    def step(self, held: int, now_ns: int) -> float:
        """Return how many bytes are to come between two readings of stacks, while memory is ``held`` bytes."""
        if self._is_ample or (self._left_s > 0 and now_ns >= self._read_at_ns):
            return 0.0
        return self._spread(held, self._reading_s) if held > self._highest else math.inf

    def _spread(self, held: int, cost_s: float) -> float:
        return max(held, _LEAST_EXPECTED) * cost_s / self._left_s if self._left_s > 0 else math.inf

    def rest_s(self, now_ns: int, rose_fast_ns: int, rise: int, held: int, readings: int) -> float:
        """Return the time until the next poll, after one that began at ``now_ns``.

        Since the poll before, memory rose by ``rise`` bytes to ``held``. Stacks were read ``readings`` times so far.
        """
        before_s, self._spent_s = self._spent_s, self._budget.own_cpu()
        cost_s = self._spent_s - before_s
        self._mean_s += (cost_s - self._mean_s) / _MEAN_OF
        if readings == self._readings:
            self._poll_s += (cost_s - self._poll_s) / _MEAN_OF
        else:
            self._reading_s += (cost_s - self._reading_s) / _MEAN_OF
            self._read_at_ns = now_ns + int(self._reading_s / max(self._budget.rate, 1e-9) * 1e9)
        self._readings = readings
        poll_s, reading_s = (self._mean_s, self._mean_s) if self._is_ample else (self._poll_s, self._reading_s)
        if now_ns >= self._renew_at_ns:
            self._renew_at_ns = now_ns + _RENEW_EVERY_NS
            self._left_s, self._is_ample = self._budget.left_s, self._budget.is_ample
            self._calm_s = self._budget.distance_s(poll_s)
        self._speed = max(self._speed * _DECAY, rise / (now_ns - self._polled_ns) * 1e9)
        self._polled_ns = now_ns
        calm_ns = now_ns - rose_fast_ns
        distance_s = max(self._calm_s, next(longest_s for longest_s, until_ns in _DISTANCES if calm_ns < until_ns))
        if self._speed and self._left_s > 0 and (self._is_ample or held > self._highest):
            distance_s = min(distance_s, max(_SHORTEST_S, self._spread(held, reading_s) / self._speed))
        self._highest = max(self._highest, held)
        self._phase = (self._phase + _GOLDEN) % 1.0
        return distance_s * (0.5 + self._phase) - (time.monotonic_ns() - now_ns) / 1e9
