"""Which signals must be forwarded to the command: those that only the command line or only the sampler received.

All three share a process group. A signal to the group (Ctrl-C, a scheduler's SIGUSR1) reaches command, command line and
sampler directly. A signal to the command line alone was meant for the command.

The kernel signals all processes of a group at once. So a signal that the command line reports, and that does not arrive
here within a moment, was sent to the command line alone. In the other direction no time is long enough, because the
command line may be stopped, or may be loading a library: the sampler asks it, and it reports all signals that it
received before it answers.

A command that has made a group of its own (``timeout`` does) is not reached by a signal to our group. Without
nncf-tools it would be, because the group would have been its own from the start.
"""

from __future__ import annotations

import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

SAME_WITHIN_S = 0.1
"""A signal to the group arrives at both processes within this time. Equal signals that are closer than this may have
merged into one in one of the two."""


class _Arrival:
    """A signal that arrived here."""

    def __init__(self, number: int, at_s: float, *, is_known: bool) -> None:
        self.number = number
        self.at_s = at_s
        self.is_known = is_known
        """Whether the command line received it, too."""
        self.is_asked = False


class SignalForwarder:
    """Compares the signals that arrived here with those that the command line reports."""

    def __init__(
        self, deliver: Callable[[int], None], ask: Callable[[], None], group_signal: Callable[[int], object] = int
    ) -> None:
        """``deliver`` sends a signal to the command; ``ask`` asks the command line which signals it received.

        ``group_signal`` is called with each signal that was sent to the group.
        """
        self._deliver = deliver
        self._group_signal = group_signal
        self._ask = ask
        self._ours: list[_Arrival] = []
        self._theirs: list[tuple[int, float]] = []
        """Signals that the command line reported, and when."""
        self._waits = False
        """Whether an answer of the command line is awaited."""

    def note_ours(self, number: int, now_s: float) -> None:
        """Note a signal that arrived here."""
        others = [reported for reported in self._theirs if reported[0] != number]
        is_known = len(others) < len(self._theirs)
        self._ours.append(_Arrival(number, now_s, is_known=is_known))
        self._theirs = others
        if is_known:
            self._group_signal(number)

    def note_theirs(self, number: int, now_s: float) -> None:
        """Note a signal that the command line reported."""
        same = [arrival for arrival in self._ours if arrival.number == number]
        if any(not arrival.is_known for arrival in same):
            self._group_signal(number)
        for arrival in same:
            arrival.is_known = True
        if not same:
            self._theirs.append((number, now_s))

    def answered(self) -> None:
        """Decide about the signals that the command line was asked about: only a SIGTERM it missed is forwarded."""
        self._waits = False
        asked = [arrival for arrival in self._ours if arrival.is_asked]
        self._ours = [arrival for arrival in self._ours if not arrival.is_asked]
        if any(arrival.number == signal.SIGTERM and not arrival.is_known for arrival in asked):
            self._deliver(signal.SIGTERM)

    @property
    def is_waiting(self) -> bool:
        """Whether a decision is to be made."""
        return bool(self._ours or self._theirs)

    def remaining_s(self, now_s: float) -> float | None:
        """Return the seconds until the next decision; None when none is due."""
        since = [at_s for _, at_s in self._theirs]
        since += [arrival.at_s for arrival in self._ours if not (self._waits and not arrival.is_known)]
        return max(0.0, min(since) + SAME_WITHIN_S - now_s) if since else None

    def settle(self, now_s: float, *, alone: bool) -> None:
        """Make the decisions that are due; all signals that arrived before ``now_s`` have been noted.

        ``alone`` means that the command line is gone: every signal that arrived here was sent to the group.
        """
        due = [number for number, at_s in self._theirs if at_s + SAME_WITHIN_S <= now_s]
        self._theirs = self._theirs[len(due) :]
        for number in due:
            self._deliver(number)
        self._ours = [
            arrival
            for arrival in self._ours
            if (arrival.at_s + SAME_WITHIN_S > now_s if arrival.is_known else not alone)
        ]
        unknown = [arrival for arrival in self._ours if not arrival.is_known]
        if self._waits or not any(arrival.at_s + SAME_WITHIN_S <= now_s for arrival in unknown):
            return
        self._waits = True
        for arrival in unknown:
            arrival.is_asked = True
        self._ask()
