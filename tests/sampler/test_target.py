from __future__ import annotations

import signal
from dataclasses import dataclass, field

import pytest

from nncftools.sampler.target import SAME_WITHIN_S, SignalForwarder

TERM, USR1 = signal.SIGTERM, signal.SIGUSR1
LATER_S = 2 * SAME_WITHIN_S
FAR_S = 1000.0


@dataclass
class Group:
    """Command line, sampler and command, at times that the tests name."""

    delivered: list[int] = field(default_factory=list)
    asked: int = 0

    def __post_init__(self) -> None:
        self.forwarder = SignalForwarder(self.delivered.append, self._ask)

    def _ask(self) -> None:
        self.asked += 1

    def ours(self, number: int, at_s: float) -> None:
        """Let a signal arrive at the sampler."""
        self.forwarder.note_ours(number, at_s)

    def theirs(self, number: int, at_s: float) -> None:
        """Let the command line report a signal."""
        self.forwarder.note_theirs(number, at_s)

    def settle(self, at_s: float, *, alone: bool = False) -> list[int]:
        """Make the due decisions; return all signals that the command was sent."""
        self.forwarder.settle(at_s, alone=alone)
        return self.delivered

    def answer(self) -> list[int]:
        """Let the command line answer; return the same."""
        self.forwarder.take_answer()
        return self.delivered


def test_for_the_group() -> None:
    """A signal that arrived at both, in any order, is not forwarded."""
    group = Group()
    group.ours(USR1, 0)
    group.theirs(USR1, 0.01)
    group.theirs(TERM, 0.02)
    group.ours(TERM, 0.03)

    assert group.settle(FAR_S) == []
    assert group.asked == 0


def test_for_the_command_line() -> None:
    """A signal that only the command line received is forwarded as soon as that is certain, not before."""
    group = Group()
    group.theirs(USR1, 0)

    assert group.settle(SAME_WITHIN_S / 2) == []
    assert group.settle(SAME_WITHIN_S) == [USR1]
    assert group.settle(FAR_S) == [USR1]


def test_for_the_sampler() -> None:
    """Of signals that only the sampler received, only SIGTERM is forwarded, after the command line's answer."""
    group = Group()
    group.ours(USR1, 0)
    group.ours(TERM, 0)
    before = list(group.settle(LATER_S))

    assert (before, group.asked) == ([], 1)
    assert group.answer() == [TERM]
    assert group.settle(FAR_S) == [TERM]


def test_command_line_that_is_late() -> None:
    """A signal to the group is not forwarded, no matter how late the command line reports it."""
    group = Group()
    group.ours(TERM, 0)
    group.settle(LATER_S)
    group.theirs(TERM, FAR_S)

    assert group.answer() == []
    assert group.settle(FAR_S + LATER_S) == []


def test_equal_signals_become_one() -> None:
    """Several signals to the group may merge into one in a stopped command line, or in a stopped sampler."""
    group = Group()
    group.ours(TERM, 0)
    group.settle(LATER_S)
    group.ours(TERM, 1)
    group.theirs(TERM, FAR_S)
    group.answer()
    group.theirs(USR1, FAR_S)
    group.theirs(USR1, FAR_S)
    group.ours(USR1, FAR_S)
    group.theirs(USR1, FAR_S)

    assert group.settle(2 * FAR_S) == []
    assert group.asked == 1


def test_one_at_a_time() -> None:
    """While a question awaits its answer, no other is asked; signals that arrive in that time are asked about later."""
    group = Group()
    group.ours(TERM, 0)
    group.settle(LATER_S)
    group.ours(TERM, 1)
    group.settle(1 + LATER_S)
    group.answer()
    first = list(group.delivered)
    group.settle(2)

    assert (first, group.asked) == ([TERM], 2)
    assert group.answer() == [TERM, TERM]


def test_distant_signals() -> None:
    """A signal to the command line alone is forwarded although a signal to the group came before."""
    group = Group()
    group.ours(TERM, 0)
    group.theirs(TERM, 0)
    group.settle(LATER_S)
    group.theirs(TERM, 1)

    assert group.settle(1 + LATER_S) == [TERM]


def test_without_command_line() -> None:
    """Without a command line, arriving signals were sent to the group; those it reported before are still forwarded."""
    group = Group()
    group.ours(TERM, 0)
    group.theirs(USR1, 0)

    assert group.settle(0, alone=True) == []
    assert group.settle(LATER_S, alone=True) == [USR1]
    assert group.asked == 0


def test_when_to_look_again() -> None:
    """The sampler is woken when a decision is due, but not while it waits for an answer."""
    group = Group()
    remaining_s = group.forwarder.remaining_s
    assert remaining_s(0) is None
    group.ours(TERM, 1)
    assert remaining_s(1) == pytest.approx(SAME_WITHIN_S)
    group.settle(1 + LATER_S)

    assert remaining_s(2) is None
    group.theirs(USR1, 3)
    assert remaining_s(4) == 0
