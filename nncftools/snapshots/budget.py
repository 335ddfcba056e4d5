"""How much CPU time the helper may still spend, and when it may take the next stacks."""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_SPREAD_S = 3.0
"""What is left would be spent in about this time: often while much is left, so that short runs are seen well."""
_POLLS = 0.35
"""The part of the share that polling may take."""
_SPREAD_OF_POLLS_S = 30.0
"""Polling may also spend what is left, over this time."""


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
        self._own_cpu = own_cpu
        self._begun_s = clock()
        self._of_children_s = 0.0
        self._wait_until_s = 0.0

    @property
    def spent_s(self) -> float:
        """The CPU seconds of this process and of the programs that it has started."""
        return self._own_cpu() + self._of_children_s

    @property
    def left_s(self) -> float:
        """The CPU seconds that may be spent now."""
        return max(self._least_s, self._share * (self._clock() - self._begun_s)) - self.spent_s

    @property
    def left_share(self) -> float:
        """The part of the CPU seconds that were there in any case that is left; 0.01 at least."""
        return max(0.01, min(1.0, self.left_s / self._least_s))

    def allows(self, expected_s: float) -> bool:
        """Return whether something that takes this many CPU seconds may begin now."""
        return self._clock() >= self._wait_until_s and self.left_s > expected_s

    def begin(self, expected_s: float) -> None:
        """Begin something that ``allows`` allowed: the less is left, the longer the next one waits."""
        left_s = max(self.left_s, expected_s)
        self._wait_until_s = max(self._wait_until_s, self._clock()) + expected_s * _SPREAD_S / left_s

    def add(self, cpu_s: float) -> None:
        """Count the CPU seconds of a program that has ended."""
        self._of_children_s += cpu_s

    def distance_s(self, poll_s: float, shortest_s: float) -> float:
        """Return the distance of polls that take ``poll_s`` CPU seconds each."""
        return max(shortest_s, poll_s / (self._share * _POLLS + max(0.0, self.left_s) / _SPREAD_OF_POLLS_S))
