from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from nncftools.sampler import link
from nncftools.sampler.link import Link, StarterLink

Both = tuple[StarterLink, Link]


@pytest.fixture
def both() -> Iterator[Both]:
    """Return the ends of a starter and of its sampler."""
    with StarterLink.opened() as (ours, theirs):
        sampler = Link(os.dup(theirs[0]), os.dup(theirs[1]))
    yield ours, sampler
    ours.close()
    os.close(sampler.descriptor)
    os.close(sampler._outgoing)


ORDER = {"argv": ["é" * 70_000]}


@pytest.mark.process
def test_order_longer_than_a_pipe_holds(both: Both) -> None:
    """An order of any length arrives complete, and messages directly after it are not part of it."""
    ours, sampler = both
    if os.fork() == 0:
        ours.send_order(ORDER)  # type: ignore[arg-type]
        ours.send_message(link.SIGNAL, 15)
        os._exit(0)
    order = sampler.order()
    os.wait()

    assert order == ORDER
    assert list(sampler.messages()) == [{"signal": 15}]


def test_starter_that_is_gone(both: Both) -> None:
    """A starter that is gone is an error before the order; afterwards the link is merely closed."""
    ours, sampler = both
    ours.hang_up()

    with pytest.raises(EOFError):
        sampler.order()
    assert list(sampler.messages()) == []
    assert not sampler.is_open
    ours.close()
    sampler.send(link.STARTED, 1)


def test_parts_of_a_message_wait_for_the_rest(both: Both) -> None:
    """A message is read when it has arrived completely."""
    ours, sampler = both
    ours.send_order({})  # type: ignore[typeddict-item]
    sampler.order()
    os.write(ours._outgoing, b'{"stop":true}\n{"sig')
    first = list(sampler.messages())
    os.write(ours._outgoing, b'nal":1}\n')

    assert (first, list(sampler.messages())) == ([{"stop": True}], [{"signal": 1}])


def test_questions_are_answered(both: Both) -> None:
    """The starter answers a question after the messages that it sent before."""
    ours, sampler = both
    ours.send_order({})  # type: ignore[typeddict-item]
    sampler.order()
    sampler.send(link.STARTED, 7)
    sampler.send(link.ASK)
    os.close(sampler._outgoing)
    ours.send_message(link.SIGNAL, 15)
    told = ours.listen()
    sampler._outgoing = os.open(os.devnull, os.O_WRONLY)
    answers = list(sampler.messages())

    assert told[link.STARTED] == 7
    assert answers == [{"signal": 15}, {"answer": True}]


def test_full_pipe_stops_nobody(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped sampler does not stop the starter, even when the pipe is full."""
    monkeypatch.setattr(link, "_ROOM_WITHIN_S", 0)
    ours, _ = both
    ours.send_order({})  # type: ignore[typeddict-item]

    assert all(ours.send_message(link.SIGNAL, 10) for _ in range(10_000))


def test_sampler_that_is_gone(both: Both) -> None:
    """The starter notices that no sampler can receive the message."""
    ours, sampler = both
    ours.send_order({})  # type: ignore[typeddict-item]
    os.close(sampler.descriptor)
    said = ours.send_message(link.SIGNAL, 10)
    sampler.descriptor = os.open(os.devnull, os.O_RDONLY)

    assert not said
