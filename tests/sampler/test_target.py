from __future__ import annotations

import signal

import pytest

from nncftools.sampler.target import SAME_WITHIN_S, SignalForwarder

FORWARDED = {
    "to the group": ("0 ours USR1, 0 theirs USR1, 0 theirs TERM, 0 ours TERM, 99 settle", "", 0),
    "to the command line, not yet certain": ("0 theirs USR1, 0.5 settle", "", 0),
    "to the command line": ("0 theirs USR1, 1 settle, 99 settle", "USR1", 0),
    "to the sampler, not answered yet": ("0 ours USR1, 0 ours TERM, 2 settle", "", 1),
    "to the sampler, only SIGTERM is forwarded": (
        "0 ours USR1, 0 ours TERM, 2 settle, 2 answer, 99 settle",
        "TERM",
        1,
    ),
    "to the group, the command line is late": (
        "0 ours TERM, 2 settle, 99 theirs TERM, 99 answer, 198 settle",
        "",
        1,
    ),
    "to the group, equal signals became one": (
        (
            "0 ours TERM, 2 settle, 10 ours TERM, 99 theirs TERM, 99 answer, "
            "99 theirs USR1, 99 theirs USR1, 99 ours USR1, 198 settle"
        ),
        "",
        1,
    ),
    "to the sampler twice, one question at a time": (
        "0 ours TERM, 2 settle, 10 ours TERM, 12 settle, 12 answer, 20 settle, 20 answer",
        "TERM TERM",
        2,
    ),
    "to the command line long after the group": (
        "0 ours TERM, 0 theirs TERM, 2 settle, 10 theirs TERM, 12 settle",
        "TERM",
        0,
    ),
    "without a command line": ("0 ours TERM, 0 theirs USR1, 2 settle alone", "USR1", 0),
}
"""By case: what happened, at multiples of the time in which equal signals are one; what is forwarded and asked."""


@pytest.mark.parametrize("steps, delivered, asked", FORWARDED.values(), ids=FORWARDED)
def test_forwarding(steps: str, delivered: str, asked: int) -> None:
    """A signal to the command line or the sampler alone is forwarded as soon as that is certain."""
    forwarded: list[int] = []
    questions: list[bool] = []
    forwarder = SignalForwarder(forwarded.append, lambda: questions.append(True))
    for step in steps.split(", "):
        at, name, *words = step.split()
        at_s = float(at) * SAME_WITHIN_S
        if name == "settle":
            forwarder.settle(at_s, alone=words == ["alone"])
        elif name == "answer":
            forwarder.take_answer()
        else:
            note = forwarder.note_ours if name == "ours" else forwarder.note_theirs
            note(signal.Signals[f"SIG{words[0]}"], at_s)

    assert (forwarded, len(questions)) == ([signal.Signals[f"SIG{name}"] for name in delivered.split()], asked)


def test_when_to_look_again() -> None:
    """The sampler is woken when a decision is due, but not while it waits for an answer."""
    forwarder = SignalForwarder(lambda _: None, lambda: None)
    assert forwarder.remaining_s(0) is None
    forwarder.note_ours(signal.SIGTERM, 1)
    assert forwarder.remaining_s(1) == pytest.approx(SAME_WITHIN_S)
    forwarder.settle(1 + 2 * SAME_WITHIN_S, alone=False)

    assert forwarder.remaining_s(2) is None
    forwarder.note_theirs(signal.SIGUSR1, 3)
    assert forwarder.remaining_s(4) == 0
