from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import Any

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

    def settle(self, at_s: float) -> None:
        """Make the due decisions."""
        self.forwarder.settle(at_s, alone=False)

    def settle_alone(self, at_s: float) -> None:
        """Make the due decisions without a command line."""
        self.forwarder.settle(at_s, alone=True)

    def answer(self) -> None:
        """Let the command line answer."""
        self.forwarder.take_answer()


@pytest.mark.parametrize(
    ("steps", "delivered", "asked"),
    [
        ([("ours", USR1, 0), ("theirs", USR1, 0), ("theirs", TERM, 0), ("ours", TERM, 0), ("settle", FAR_S)], [], 0),
        ([("theirs", USR1, 0), ("settle", SAME_WITHIN_S / 2)], [], 0),
        ([("theirs", USR1, 0), ("settle", SAME_WITHIN_S), ("settle", FAR_S)], [USR1], 0),
        ([("ours", USR1, 0), ("ours", TERM, 0), ("settle", LATER_S)], [], 1),
        ([("ours", USR1, 0), ("ours", TERM, 0), ("settle", LATER_S), ("answer",), ("settle", FAR_S)], [TERM], 1),
        ([("ours", TERM, 0), ("settle", LATER_S), ("theirs", TERM, FAR_S), ("answer",), ("settle", 2 * FAR_S)], [], 1),
        (
            [
                *[("ours", TERM, 0), ("settle", LATER_S), ("ours", TERM, 1), ("theirs", TERM, FAR_S), ("answer",)],
                *[("theirs", USR1, FAR_S), ("theirs", USR1, FAR_S), ("ours", USR1, FAR_S), ("settle", 2 * FAR_S)],
            ],
            [],
            1,
        ),
        (
            [
                *[("ours", TERM, 0), ("settle", LATER_S), ("ours", TERM, 1), ("settle", 1 + LATER_S), ("answer",)],
                *[("settle", 2), ("answer",)],
            ],
            [TERM, TERM],
            2,
        ),
        (
            [("ours", TERM, 0), ("theirs", TERM, 0), ("settle", LATER_S), ("theirs", TERM, 1), ("settle", 1 + LATER_S)],
            [TERM],
            0,
        ),
        ([("ours", TERM, 0), ("theirs", USR1, 0), ("settle_alone", LATER_S)], [USR1], 0),
    ],
    ids=[
        "to the group",
        "to the command line, not yet certain",
        "to the command line",
        "to the sampler, not answered yet",
        "to the sampler, only SIGTERM is forwarded",
        "to the group, the command line is late",
        "to the group, equal signals became one",
        "to the sampler twice, one question at a time",
        "to the command line long after the group",
        "without a command line",
    ],
)
def test_forwarding(steps: list[tuple[Any, ...]], delivered: list[int], asked: int) -> None:
    """A signal to the command line or the sampler alone is forwarded as soon as that is certain."""
    group = Group()
    for name, *arguments in steps:
        getattr(group, name)(*arguments)

    assert (group.delivered, group.asked) == (delivered, asked)


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
