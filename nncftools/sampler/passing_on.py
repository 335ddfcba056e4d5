"""Which signals the command is still to get: those that only one of command line and sampler got.

All three share a process group. A signal for the group (Ctrl-C, a scheduler's SIGUSR1) reaches the command by itself,
and command line and sampler as well. A signal for the command line alone was meant for the command.

The kernel signals a group in one go. So what the command line told of, and did not arrive here within a moment, was for
the command line alone. The other way round no time is long enough, for the command line may be stopped, or load a
library: it is asked, and tells of all signals that it got before it answers.

A command that has made a group of its own (``timeout`` does) is not reached by a signal for ours, as it would be alone,
where the group is its own from the start.
"""

from __future__ import annotations

import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

TOGETHER_S = 0.1
"""What is sent to a group has arrived at both within this time. Equal signals that are closer than this may have become
one in one of the two."""


class _Arrival:
    """A signal that arrived here."""

    __slots__ = ("at_s", "is_asked", "is_known", "number")

    def __init__(self, number: int, at_s: float, *, is_known: bool) -> None:
        self.number = number
        self.at_s = at_s
        self.is_known = is_known
        """Whether the command line got it, too."""
        self.is_asked = False


class PassingOn:
    """Compares what arrived at both."""

    def __init__(
        self, deliver: Callable[[int], None], ask: Callable[[], None], spread: Callable[[int], object] = int
    ) -> None:
        """``deliver`` sends a signal to the command; ``ask`` asks the command line what it got.

        ``spread`` is called with each signal that was for the group.
        """
        self._deliver = deliver
        self._spread = spread
        self._ask = ask
        self._ours: list[_Arrival] = []
        self._theirs: list[tuple[int, float]] = []
        """What the command line told of, and when."""
        self._waits = False
        """Whether the command line was asked."""

    def take_ours(self, number: int, now_s: float) -> None:
        """Note a signal that arrived here."""
        others = [told for told in self._theirs if told[0] != number]
        is_known = len(others) < len(self._theirs)
        self._ours.append(_Arrival(number, now_s, is_known=is_known))
        self._theirs = others
        if is_known:
            self._spread(number)

    def take_theirs(self, number: int, now_s: float) -> None:
        """Note a signal that the command line told of."""
        same = [arrival for arrival in self._ours if arrival.number == number]
        if any(not arrival.is_known for arrival in same):
            self._spread(number)
        for arrival in same:
            arrival.is_known = True
        if not same:
            self._theirs.append((number, now_s))

    def answered(self) -> None:
        """Decide what the command line was asked about: of what it did not get, SIGTERM is passed on, nothing else."""
        self._waits = False
        asked = [arrival for arrival in self._ours if arrival.is_asked]
        self._ours = [arrival for arrival in self._ours if not arrival.is_asked]
        if any(arrival.number == signal.SIGTERM and not arrival.is_known for arrival in asked):
            self._deliver(signal.SIGTERM)

    def remaining_s(self, now_s: float) -> float | None:
        """Return the seconds until the next decision; None when none is due."""
        since = [at_s for _, at_s in self._theirs]
        since += [arrival.at_s for arrival in self._ours if not (self._waits and not arrival.is_known)]
        return max(0.0, min(since) + TOGETHER_S - now_s) if since else None

    def settle(self, now_s: float, *, alone: bool) -> None:
        """Decide what is due; all that arrived before ``now_s`` has been taken.

        With ``alone``, the command line is gone: what arrived here was for the group.
        """
        due = [number for number, at_s in self._theirs if at_s + TOGETHER_S <= now_s]
        self._theirs = self._theirs[len(due) :]
        for number in due:
            self._deliver(number)
        self._ours = [
            arrival for arrival in self._ours if (arrival.at_s + TOGETHER_S > now_s if arrival.is_known else not alone)
        ]
        open_ones = [arrival for arrival in self._ours if not arrival.is_known]
        if self._waits or not any(arrival.at_s + TOGETHER_S <= now_s for arrival in open_ones):
            return
        self._waits = True
        for arrival in open_ones:
            arrival.is_asked = True
        self._ask()
