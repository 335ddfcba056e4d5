"""The memory limit of a command, and what happens above it."""

from __future__ import annotations

import contextlib
import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nncftools.journal.reading import MemoryLimit
    from nncftools.sampler.tree import WriteLine

KILL = "kill"
GRACE_S = 5.0
"""From SIGTERM to SIGKILL."""
_ROUNDS = 10
"""A process may fork just before it is killed."""


class Limit:
    """Warns once when the processes together exceed the limit, and ends them if the plan asks for that."""

    def __init__(
        self, limit: MemoryLimit, alive: Callable[[float], Sequence[int]], warn: Callable[[str], None], write: WriteLine
    ) -> None:
        """``alive`` returns the PIDs of the running processes at a time in seconds; ``warn`` warns the user."""
        self._write_line = write
        self._most = limit["rss"]
        self._action = limit["action"]
        self._alive = alive
        self._warn = warn
        self._exceeded = False
        self._kill_at_s: float | None = None

    @property
    def is_ending(self) -> bool:
        """Whether SIGTERM was sent, and SIGKILL is still to come for processes that go on."""
        return self._kill_at_s is not None

    def check(self, rss: float | None, now_s: float) -> None:
        """Compare the RSS of a sample, in bytes, with the limit."""
        if self._exceeded or rss is None or rss <= self._most:
            return
        self._exceeded = True
        reached = {"at_s": round(now_s, 6), "rss": round(rss), "limit": self._most, "action": self._action}
        self._write_line("limit_reached", reached)
        over = f"RSS of {rss / 2**20:,.1f} MiB at {now_s:.3f} s is above --max-memory {self._most / 2**20:,.1f} MiB"
        self._warn(f"{over}: the command is ended" if self._action == KILL else over)
        if self._action == KILL:
            self._kill_at_s = now_s + GRACE_S
            _signal(self._alive(now_s), signal.SIGTERM)

    def remaining_s(self, now_s: float) -> float | None:
        """Return the seconds until ``enforce`` is due; None when nothing is."""
        return None if self._kill_at_s is None else max(0.0, self._kill_at_s - now_s)

    def enforce(self, now_s: float) -> None:
        """Send SIGKILL to the processes that go on after SIGTERM, when that is due."""
        if self._kill_at_s is None or now_s < self._kill_at_s:
            return
        self._kill_at_s = None
        left = self._alive(now_s)
        if left:
            self._warn(f"{len(left)} of the processes went on for {GRACE_S:g} s after SIGTERM: SIGKILL")
        for _ in range(_ROUNDS):
            _signal(left, signal.SIGKILL)
            left = self._alive(now_s)
            if not left:
                return


def _signal(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended meanwhile, or belongs to another user
            os.kill(pid, number)
