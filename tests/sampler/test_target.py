from __future__ import annotations

import signal
from typing import Any

import pytest

from nncftools.sampler.target import SAME_WITHIN_S, SignalForwarder

TERM, USR1 = signal.SIGTERM, signal.SIGUSR1
LATER_S = 2 * SAME_WITHIN_S
FAR_S = 1000.0


@pytest.mark.parametrize(
    ("steps", "delivered", "asked"),
    [
        (
            [
                ("note_ours", USR1, 0),
                ("note_theirs", USR1, 0),
                ("note_theirs", TERM, 0),
                ("note_ours", TERM, 0),
                ("settle", FAR_S),
            ],
            [],
            0,
        ),
        ([("note_theirs", USR1, 0), ("settle", SAME_WITHIN_S / 2)], [], 0),
        ([("note_theirs", USR1, 0), ("settle", SAME_WITHIN_S), ("settle", FAR_S)], [USR1], 0),
        ([("note_ours", USR1, 0), ("note_ours", TERM, 0), ("settle", LATER_S)], [], 1),
        (
            [("note_ours", USR1, 0), ("note_ours", TERM, 0), ("settle", LATER_S), ("take_answer",), ("settle", FAR_S)],
            [TERM],
            1,
        ),
        (
            [
                ("note_ours", TERM, 0),
                ("settle", LATER_S),
                ("note_theirs", TERM, FAR_S),
                ("take_answer",),
                ("settle", 2 * FAR_S),
            ],
            [],
            1,
        ),
        (
            [
                *[
                    ("note_ours", TERM, 0),
                    ("settle", LATER_S),
                    ("note_ours", TERM, 1),
                    ("note_theirs", TERM, FAR_S),
                    ("take_answer",),
                ],
                *[
                    ("note_theirs", USR1, FAR_S),
                    ("note_theirs", USR1, FAR_S),
                    ("note_ours", USR1, FAR_S),
                    ("settle", 2 * FAR_S),
                ],
            ],
            [],
            1,
        ),
        (
            [
                *[
                    ("note_ours", TERM, 0),
                    ("settle", LATER_S),
                    ("note_ours", TERM, 1),
                    ("settle", 1 + LATER_S),
                    ("take_answer",),
                ],
                *[("settle", 2), ("take_answer",)],
            ],
            [TERM, TERM],
            2,
        ),
        (
            [
                ("note_ours", TERM, 0),
                ("note_theirs", TERM, 0),
                ("settle", LATER_S),
                ("note_theirs", TERM, 1),
                ("settle", 1 + LATER_S),
            ],
            [TERM],
            0,
        ),
        ([("note_ours", TERM, 0), ("note_theirs", USR1, 0), ("settle alone", LATER_S)], [USR1], 0),
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
    forwarded: list[int] = []
    questions: list[bool] = []
    forwarder = SignalForwarder(forwarded.append, lambda: questions.append(True))
    for name, *arguments in steps:
        if name.startswith("settle"):
            forwarder.settle(*arguments, alone=name == "settle alone")
        else:
            getattr(forwarder, name)(*arguments)

    assert (forwarded, len(questions)) == (delivered, asked)


def test_when_to_look_again() -> None:
    """The sampler is woken when a decision is due, but not while it waits for an answer."""
    forwarder = SignalForwarder(lambda _: None, lambda: None)
    assert forwarder.remaining_s(0) is None
    forwarder.note_ours(TERM, 1)
    assert forwarder.remaining_s(1) == pytest.approx(SAME_WITHIN_S)
    forwarder.settle(1 + LATER_S, alone=False)

    assert forwarder.remaining_s(2) is None
    forwarder.note_theirs(USR1, 3)
    assert forwarder.remaining_s(4) == 0
