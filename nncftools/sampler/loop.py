"""The only loop: absolute deadlines, ticks, and their punctuality."""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

NANOSECONDS = 1_000_000_000


class Loop:
    """Call ``tick`` on every deadline until ``step`` returns that the run is over.

    Deadlines are multiples of the interval from the start. A deadline that has already passed is counted as
    missed and never made up for.
    """

    def __init__(self, interval_s: float, duration_s: float | None) -> None:
        """Plan deadlines from now on (CLOCK_MONOTONIC); no tick comes after ``duration_s``."""
        self.start_ns = time.monotonic_ns()
        self._interval_ns = max(1, round(interval_s * NANOSECONDS))
        self._last_deadline = None if duration_s is None else int(duration_s * NANOSECONDS) // self._interval_ns
        self._stopped = False
        self._next = 0
        self._ticks = 0
        self.missed = 0
        """Deadlines that passed without a tick."""
        self._longest_gap_ns = 0
        self._first_ns = 0
        self._latest_ns = 0

    def elapsed_s(self) -> float:
        """Return the seconds since the start."""
        return (time.monotonic_ns() - self.start_ns) / NANOSECONDS

    @property
    def is_first_tick(self) -> bool:
        """Whether no tick came before this one."""
        return self._ticks == 1

    @property
    def sampling(self) -> bool:
        """Whether a deadline is still to come."""
        return not self._stopped and (self._last_deadline is None or self._next <= self._last_deadline)

    def stop(self) -> None:
        """Stop ticking."""
        self._stopped = True

    def close(self) -> None:
        """Count the deadlines that passed since the last tick; the one that is just due does not count."""
        if not self.sampling:
            return
        now_ns = time.monotonic_ns()
        trailing = self._due(now_ns, beyond=1) - self._next
        if trailing > 0:
            self.missed += trailing
            self._longest_gap_ns = max(self._longest_gap_ns, now_ns - (self._latest_ns or self.start_ns))

    def punctuality(self, lost: int = 0, longest_lost_s: float = 0.0) -> dict[str, float | None]:
        """Return the number of ticks, and how far they kept their deadlines.

        The samples of ``lost`` ticks could not be written, over up to ``longest_lost_s`` seconds: they count as missed.
        """
        several = self._ticks > 1
        between_ns = (self._latest_ns - self._first_ns) / (self._ticks - 1) if several else 0
        gap_s = self._longest_gap_ns / NANOSECONDS
        if lost:
            gap_s = max(gap_s, longest_lost_s + 2 * self._interval_ns / NANOSECONDS)
            lost = min(lost, self._ticks)  # samples for marks, between the ticks, may be among them
        return {
            "achieved_interval_s": round(between_ns / NANOSECONDS, 9) if several else None,
            "taken": self._ticks - lost,
            "missed": self.missed + lost,
            "longest_gap_s": gap_s if several or gap_s else None,
        }

    def run(
        self, tick: Callable[[float], None], sleep: Callable[[float | None], None], step: Callable[[], bool]
    ) -> None:
        """Tick and sleep until ``step``, which runs after every sleep, returns False."""
        while step():
            now_ns = time.monotonic_ns()
            passed = self._due(now_ns)
            if self.sampling and passed >= self._next:
                self._note(now_ns, passed)
                tick((now_ns - self.start_ns) / NANOSECONDS)
            if self.sampling:
                wait_ns = self.start_ns + self._next * self._interval_ns - time.monotonic_ns()
                sleep(max(0, wait_ns) / NANOSECONDS)
            elif not step():
                return
            else:
                sleep(None)

    def _due(self, now_ns: int, beyond: int = 0) -> int:
        """Return the number of the deadline that passed most recently, at most ``beyond`` after the last one."""
        passed = (now_ns - self.start_ns) // self._interval_ns
        return passed if self._last_deadline is None else min(passed, self._last_deadline + beyond)

    def _note(self, now_ns: int, passed: int) -> None:
        self.missed += passed - self._next
        self._next = passed + 1
        self._ticks += 1
        if self._ticks == 1:
            self._first_ns = now_ns
        else:
            self._longest_gap_ns = max(self._longest_gap_ns, now_ns - self._latest_ns)
        self._latest_ns = now_ns
