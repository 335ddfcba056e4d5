"""Which signals the command is still to get: those that only one of command line and sampler got.

All three share a process group. A signal for the group (Ctrl-C, a scheduler's SIGUSR1) reaches the command by itself,
and command line and sampler as well. A signal for the command line alone was meant for the command.
"""

from __future__ import annotations

import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

LATE_S = 1.0
"""The command line may be this late in telling of a signal, on a busy machine."""
TOGETHER_S = 0.1
"""The kernel signals a group in one go: when the command line tells of a signal, the sampler's own is there, too. Equal
signals that are closer than this may have become one in one of the two."""


class _Arrival:
    """A signal that arrived at one of the two."""

    __slots__ = ("at_s", "is_decided", "is_ours", "number", "partner")

    def __init__(self, number: int, at_s: float, *, is_ours: bool) -> None:
        self.number = number
        self.at_s = at_s
        self.is_ours = is_ours
        self.is_decided = False
        self.partner: _Arrival | None = None

    @property
    def due_s(self) -> float:
        """When to decide."""
        return self.at_s + (LATE_S if self.is_ours else TOGETHER_S)


class PassingOn:
    """Compares what arrived at both."""

    def __init__(self, deliver: Callable[[int], None]) -> None:
        """``deliver`` sends a signal to the command."""
        self._deliver = deliver
        self._arrivals: list[_Arrival] = []

    def take(self, number: int, now_s: float, *, is_ours: bool) -> None:
        """Note a signal that the sampler got (``is_ours``), or the command line."""
        new = _Arrival(number, now_s, is_ours=is_ours)
        for other in self._arrivals:
            if other.number != number or other.is_ours == is_ours:
                continue
            if now_s - other.at_s <= (LATE_S if other.partner is None else TOGETHER_S):
                new.partner = other
                other.partner = other.partner or new
                break
        self._arrivals.append(new)

    def remaining_s(self, now_s: float) -> float | None:
        """Return the seconds until the next decision; None when none is due."""
        due = [arrival.due_s for arrival in self._arrivals if not arrival.is_decided]
        return max(0.0, min(due) - now_s) if due else None

    def settle(self, now_s: float, *, alone: bool) -> None:
        """Decide what is due. With ``alone``, the command line is gone and nothing more is to be waited for.

        Of what only the sampler got, SIGTERM is passed on, nothing else.
        """
        for arrival in self._arrivals:
            if arrival.is_decided or not (alone or arrival.due_s <= now_s):
                continue
            arrival.is_decided = True
            if arrival.partner is None and (not arrival.is_ours or arrival.number == signal.SIGTERM):
                self._deliver(arrival.number)
        self._arrivals = [arrival for arrival in self._arrivals if now_s - arrival.at_s <= LATE_S]
