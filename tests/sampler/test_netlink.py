from __future__ import annotations

import errno
import os
import struct
from typing import Any

import pytest

from nncftools.sampler import process_records
from nncftools.sampler.process_records import Netlink, attributes
from tests.sampler.fake_netlink import FAMILY, FakeSocket, acknowledgement, answer, attribute, family_of


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeSocket:
    """Replace the socket by one that knows the family."""
    socket = FakeSocket(family_of("TASKSTATS"), acknowledgement())
    module: Any = process_records._socket
    monkeypatch.setattr(module, "socket", socket)
    return socket


class TestAttributes:
    def test_padding(self) -> None:
        """Every attribute begins at a multiple of four bytes and has its own length."""
        data = b"head" + attribute(1, b"a") + attribute(2, b"") + attribute(3, b"12345678")

        assert list(attributes(data, 4)) == [(1, b"a"), (2, b""), (3, b"12345678")]

    @pytest.mark.parametrize("rest", [b"", b"\0", b"\0\0\0"])
    def test_rest(self, rest: bytes) -> None:
        """What is too short for an attribute is none."""
        assert list(attributes(attribute(1, b"abcd") + rest, 0)) == [(1, b"abcd")]

    @pytest.mark.parametrize("length", [0, 3])
    def test_without_length(self, length: int) -> None:
        """An attribute shorter than its own header is refused, and causes no endless loop."""
        with pytest.raises(OSError, match="without length"):
            list(attributes(struct.pack("=HH", length, 1) + b"\0" * 8, 0))


class TestSocket:
    def test_asks_for_the_family(self, fake: FakeSocket) -> None:
        """The family's number is asked for by its name, and then used."""
        of = Netlink("TASKSTATS", 1 << 20)
        fake.answers = [acknowledgement()]
        of.ask(1, 3, b"0-1\0")
        first, second = fake.sent

        assert struct.unpack_from("=IHH", first) == (len(first), 16, 5)
        assert b"TASKSTATS\0" in first
        assert struct.unpack_from("=IHH", second) == (len(second), FAMILY, 5)
        assert list(attributes(second, 20)) == [(3, b"0-1\0")]

    def test_refusal(self, fake: FakeSocket) -> None:
        """What the kernel refuses is the OSError that it names."""
        of = Netlink("TASKSTATS", 1 << 20)
        fake.answers = [acknowledgement(errno.EPERM)]

        with pytest.raises(PermissionError, match="Operation not permitted"):
            of.ask(1, 3, b"0\0")

    def test_unknown_family(self, fake: FakeSocket) -> None:
        """A kernel without the family is an error, and no descriptor stays open."""
        fake.answers = [acknowledgement(errno.ENOENT)]

        with pytest.raises(FileNotFoundError):
            Netlink("TASKSTATS", 1 << 20)
        assert fake.closed

    def test_messages_between_question_and_answer(self, fake: FakeSocket) -> None:
        """A message that comes before the kernel's word is not taken for it."""
        of = Netlink("TASKSTATS", 1 << 20)
        fake.answers = [answer(b""), acknowledgement(errno.EPERM)]

        with pytest.raises(PermissionError):
            of.ask(1, 3, b"0\0")

    def test_received(self, fake: FakeSocket) -> None:
        """What waits is given, and then the end, without waiting for more."""
        of = Netlink("TASKSTATS", 1 << 20)
        fake.answers = [b"one", b"two"]

        assert list(of.received()) == [b"one", b"two"]

    def test_lost(self, fake: FakeSocket) -> None:
        """A loss is raised, after what came before it."""
        of = Netlink("TASKSTATS", 1 << 20)
        fake.answers = [b"one", OSError(errno.ENOBUFS, "No buffer space available")]
        found = []

        with pytest.raises(OSError, match="No buffer space"):
            found.extend(list(of.received()))
        assert (found, fake.answers) == ([], [])


def test_family_that_no_kernel_has() -> None:
    """This machine's kernel refuses a family that it does not know, and no descriptor stays open."""
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 — counted, not used
    with pytest.raises(OSError, match=r"."):
        Netlink("NO_SUCH_FAMILY", 1 << 16)

    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 — the same
