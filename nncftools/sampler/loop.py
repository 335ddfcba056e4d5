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
        self.sampling = True
        """Whether a deadline is still to come."""
        self._next = 0
        self._next_ns = self.start_ns
        self.missed = 0
        """Deadlines that passed without a tick."""
        self._longest_gap_ns = 0
        self._first_ns = 0
        self._latest_ns = 0

    def elapsed_s(self) -> float:
        """Return the seconds since the start."""
        return (time.monotonic_ns() - self.start_ns) / NANOSECONDS

    def stop(self) -> None:
        """Stop ticking."""
        self.sampling = False

    def close(self) -> None:
        """Count the deadlines that passed since the last tick; the one that is just due does not count."""
        if not self.sampling:
            return
        now_ns = time.monotonic_ns()
        trailing = self._due(now_ns, beyond=1) - self._next
        if trailing > 0:
            self.missed += trailing
            self._next += trailing
            self._longest_gap_ns = max(self._longest_gap_ns, now_ns - (self._latest_ns or self.start_ns))

    def punctuality(self, lost: int = 0, longest_lost_s: float = 0.0) -> dict[str, float | None]:
        """Return the number of ticks, and how far they kept their deadlines.

        The samples of ``lost`` ticks could not be written, over up to ``longest_lost_s`` seconds: they count as missed.
        """
        ticks = self._next - self.missed
        several = ticks > 1
        between_ns = (self._latest_ns - self._first_ns) / (ticks - 1) if several else 0
        gap_s = self._longest_gap_ns / NANOSECONDS
        if lost:
            gap_s = max(gap_s, longest_lost_s + 2 * self._interval_ns / NANOSECONDS)
            lost = min(lost, ticks)  # samples for marks, between the ticks, may be among them
        return {
            "achieved_interval_s": round(between_ns / NANOSECONDS, 9) if several else None,
            "taken": ticks - lost,
            "missed": self.missed + lost,
            "longest_gap_s": gap_s if several or gap_s else None,
        }

    def run(
        self, tick: Callable[[float], None], sleep: Callable[[float | None], bool], step: Callable[[], bool]
    ) -> None:
        """Tick and sleep until ``step`` returns False; it runs first, and after each sleep that returns True."""
        clock_ns, start_ns = time.monotonic_ns, self.start_ns
        has_news = True
        while not has_news or step():
            now_ns = clock_ns()
            if self.sampling and now_ns >= self._next_ns:
                self._note(now_ns)
                tick((now_ns - start_ns) / NANOSECONDS)
            if self.sampling:
                wait_ns = self._next_ns - clock_ns()
                has_news = sleep(wait_ns / NANOSECONDS if wait_ns > 0 else 0)
            elif not step():
                return
            else:
                has_news = sleep(None)

    def _due(self, now_ns: int, beyond: int = 0) -> int:
        """Return the number of the deadline that passed most recently, at most ``beyond`` after the last one."""
        passed = (now_ns - self.start_ns) // self._interval_ns
        return passed if self._last_deadline is None else min(passed, self._last_deadline + beyond)

    def _note(self, now_ns: int) -> None:
        """Count a tick; the next one comes at the deadline after this one, or after those that have passed since."""
        gap_ns, self._latest_ns = now_ns - self._latest_ns, now_ns
        if self._next == 0:
            self._first_ns = now_ns
        elif gap_ns > self._longest_gap_ns:
            self._longest_gap_ns = gap_ns
        self._next += 1
        self._next_ns += self._interval_ns
        if now_ns >= self._next_ns:
            late = self._due(now_ns) + 1 - self._next
            self.missed += late
            self._next += late
            self._next_ns += late * self._interval_ns
        if self._last_deadline is not None and self._next > self._last_deadline:
            self.sampling = False
