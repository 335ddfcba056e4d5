from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest

from nncftools.sampler import link
from nncftools.sampler.link import Link, OutputRelay, StarterLink
from tests.waiting import until

Both = tuple[StarterLink, Link]


@pytest.fixture
def outgoing() -> int:
    """Return the sampler's end of the pipe to its starter."""
    return os.dup(0)


@pytest.fixture
def both(outgoing: int) -> Iterator[Both]:
    """Return the ends of a starter and of its sampler."""
    with StarterLink.opened() as (ours, theirs):
        os.dup2(theirs[1], outgoing)
        sampler = Link(os.dup(theirs[0]), outgoing)
    yield ours, sampler
    ours.close()
    os.close(sampler.descriptor)
    os.close(outgoing)


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
    assert sampler.messages() == [{"signal": 15}]


def test_starter_that_is_gone(both: Both) -> None:
    """A starter that is gone is an error before the order; afterwards the link is merely closed."""
    ours, sampler = both
    ours.hang_up()

    with pytest.raises(EOFError):
        sampler.order()
    assert sampler.messages() == []
    assert not sampler.is_open
    ours.close()
    sampler.send(link.STARTED, 1)


def test_sampler_that_is_stopped_or_gone(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped sampler does not stop the starter, even when the pipe is full; the starter notices its end."""
    monkeypatch.setattr(link, "_ROOM_WITHIN_MS", 0)
    ours, sampler = both
    ours.send_order({})  # type: ignore[typeddict-item]

    assert all(ours.send_message(link.SIGNAL, 10) for _ in range(7_000))
    os.close(sampler.descriptor)
    sampler.descriptor = os.open(os.devnull, os.O_RDONLY)
    assert not ours.send_message(link.SIGNAL, 10)


Pipes = tuple[OutputRelay, int, int, int]


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    """Return a relay with its source, the writer to the source and the reader of the sink."""
    (source, writer), (reader, sink) = os.pipe(), os.pipe()
    yield OutputRelay([(source, sink)]), source, writer, reader
    for descriptor in (source, writer, reader, sink):
        with contextlib.suppress(OSError):
            os.close(descriptor)


def test_sink_that_is_gone_takes_all(pipes: Pipes) -> None:
    """After the output's reader is gone, the command's writes still succeed."""
    relay, source, writer, reader = pipes
    os.close(reader)
    relay.begin()
    for _ in range(100):
        os.write(writer, b"x" * 10_000)
    os.close(writer)
    until(lambda: not relay.relays, "the end of the output")
    relay.release(source)  # the command line may say late that it has closed it
