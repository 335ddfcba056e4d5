"""The kernel's side of generic netlink: what a socket answers, and what a subscription gives."""

from __future__ import annotations

import errno
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

FAMILY = 21


def attribute(kind: int, value: bytes) -> bytes:
    """Return an attribute, padded to a multiple of four bytes."""
    return struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def answer(body: bytes) -> bytes:
    """Return a message of the kernel's list of families."""
    return struct.pack("=IHHII", 20 + len(body), 16, 0, 0, 0) + struct.pack("=BBH", 1, 2, 0) + body


def family_of(name: str) -> bytes:
    """Return the kernel's answer to the question for a family."""
    return answer(
        attribute(2, name.encode() + b"\0") + attribute(1, struct.pack("=H", FAMILY)) + attribute(3, b"\1\0\0\0")
    )


def acknowledgement(code: int = 0) -> bytes:
    """Return the kernel's word that it did what it was asked, or the error."""
    return struct.pack("=IHHIIi", 36, 2, 0, 0, 0, -code) + b"\0" * 16


class FakeSocket:
    """A socket whose answers a test gives; an exception among them is raised."""

    def __init__(self, *answers: bytes | OSError) -> None:
        self.answers = list(answers)
        self.sent: list[bytes] = []
        self.closed = False

    def __call__(self, *_: object) -> FakeSocket:
        """Take the place of the class."""
        return self

    def bind(self, _address: object) -> None:
        """Do nothing."""

    def setsockopt(self, *_: object) -> None:
        """Do nothing."""

    def send(self, data: bytes) -> None:
        """Note what was sent."""
        self.sent.append(data)

    def recv(self, _size: int, _flags: int = 0) -> bytes:
        """Return the next answer."""
        if not self.answers:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        found = self.answers.pop(0)
        if isinstance(found, OSError):
            raise found
        return found

    def close(self) -> None:
        """Note that it was closed."""
        self.closed = True


class FakeNetlink:
    """A subscription whose messages a test gives; None among them is the kernel's word that some were lost."""

    def __init__(self) -> None:
        self.waiting: list[bytes | None] = []
        self.asked: list[tuple[int, int, bytes]] = []
        self.family = ""

    def __call__(self, family: str, _buffer: int) -> FakeNetlink:
        """Take the place of the class."""
        self.family = family
        return self

    def ask(self, *question: object) -> None:
        """Note what was asked."""
        self.asked.append(question)  # type: ignore[arg-type]

    def received(self) -> Iterator[bytes]:
        """Yield the messages that wait."""
        while self.waiting:
            data = self.waiting.pop(0)
            if data is None:
                raise OSError(errno.ENOBUFS, "No buffer space available")
            yield data
