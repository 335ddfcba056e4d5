"""The most memory that a command may hold, and what happens when it holds more."""

from __future__ import annotations

import contextlib
import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nncftools.journal.lines import MemoryLimit

KILL = "kill"
GRACE_S = 5.0
"""From SIGTERM to SIGKILL."""
_MIB = 2**20
_ROUNDS = 10
"""What is killed may just have forked."""


class Limit:
    """Says once when the processes together hold more than they may, and ends them where that is asked for."""

    def __init__(self, limit: MemoryLimit, alive: Callable[[float], Sequence[int]], say: Callable[[str], None]) -> None:
        """``alive`` returns the PIDs of the processes at a moment in seconds, ``say`` tells the user."""
        self._most = limit["rss"]
        self._kills = limit["action"] == KILL
        self._alive = alive
        self._say = say
        self._exceeded = False
        self._kill_at_s: float | None = None

    @property
    def is_ending(self) -> bool:
        """Whether SIGTERM was sent and SIGKILL is still to come for those that do not heed it."""
        return self._kill_at_s is not None

    def check(self, rss: float | None, now_s: float) -> None:
        """Compare the sum of a sample, in bytes."""
        if self._exceeded or rss is None or rss <= self._most:
            return
        self._exceeded = True
        over = f"RSS of {rss / _MIB:,.1f} MiB at {now_s:.3f} s is above --max-memory {self._most / _MIB:,.1f} MiB"
        self._say(f"{over}: the command is ended" if self._kills else over)
        if self._kills:
            self._kill_at_s = now_s + GRACE_S
            _signal(self._alive(now_s), signal.SIGTERM)

    def remaining_s(self, now_s: float) -> float | None:
        """Return the seconds until there is something to do; None when there is not."""
        return None if self._kill_at_s is None else max(0.0, self._kill_at_s - now_s)

    def enforce(self, now_s: float) -> None:
        """Send SIGKILL to what has not heeded SIGTERM in time."""
        if self._kill_at_s is None or now_s < self._kill_at_s:
            return
        self._kill_at_s = None
        left = self._alive(now_s)
        if left:
            self._say(f"{len(left)} of the processes went on for {GRACE_S:g} s after SIGTERM: SIGKILL")
        for _ in range(_ROUNDS):
            _signal(left, signal.SIGKILL)
            left = self._alive(now_s)
            if not left:
                return


def _signal(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):  # it ended meanwhile, or is another user's
            os.kill(pid, number)
