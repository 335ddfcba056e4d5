from __future__ import annotations

import os

import pytest

from nncftools.sampler.link import OutputRelay
from tests.waiting import until


def test_nothing_is_read_before(capfd: pytest.CaptureFixture[str]) -> None:
    """Output is left to the command line until that is gone; then all of it is read, until the last writer ends."""
    (source, writer), (reader, sink) = os.pipe(), os.pipe()
    relay = OutputRelay([(source, sink)])
    os.write(writer, b"before ")
    os.set_blocking(reader, False)
    with pytest.raises(BlockingIOError):
        os.read(reader, 100)
    relay.begin()
    relay.begin()
    os.write(writer, b"after")
    os.close(writer)
    assert relay._done is not None
    until(lambda: not relay._relays, "the end of the output")

    assert os.read(reader, 100).startswith(b"before")
    assert capfd.readouterr() == ("", "")
    for descriptor in (source, reader, sink):
        os.close(descriptor)


def test_sink_that_is_gone_takes_all() -> None:
    """After the output's reader is gone, the command's writes still succeed."""
    (source, writer), (reader, sink) = os.pipe(), os.pipe()
    os.close(reader)
    relay = OutputRelay([(source, sink)])
    relay.begin()
    for _ in range(100):
        os.write(writer, b"x" * 10_000)
    os.close(writer)
    until(lambda: not relay._relays, "the end of the output")

    for descriptor in (source, sink):
        os.close(descriptor)


def test_many_descriptors() -> None:
    """Relays work also when more files are open than select(2) can wait for."""
    many = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    (source, writer), (reader, sink) = os.pipe(), os.pipe()
    assert source > 1024
    OutputRelay([(source, sink)]).begin()
    os.write(writer, b"all")
    os.close(writer)

    assert os.read(reader, 100) == b"all"
    for descriptor in (*many, reader, sink):
        os.close(descriptor)


def test_release() -> None:
    """A pair that the command line has closed is closed here, so that the command notices."""
    (source, writer), (reader, sink) = os.pipe(), os.pipe()
    relay = OutputRelay([(source, sink)])
    relay.release(source)
    relay.release(source)
    relay.begin()

    with pytest.raises(BrokenPipeError):
        os.write(writer, b"x")
    assert os.read(reader, 1) == b""
    relay.finish()
    for descriptor in (writer, reader):
        os.close(descriptor)
