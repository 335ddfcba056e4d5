"""What command line and sampler say to each other: JSON Lines through two pipes, which nobody else can reach.

To the sampler: the order first, then ``{"signal": N}`` for each signal that the starter got, ``{"release": FD}`` for a
relay that has ended, ``{"answer": true}``, or ``{"stop": true}``. The end of this pipe says that the starter is gone.

From the sampler: ``{"started": PID}``, ``{"start": …}`` as the journal has it, ``{"sampled": true}`` with the first
sample, ``{"exit": …}`` before the command is reaped, and ``{"end": …}``, the journal's last line. ``{"ask": true}`` is
answered when all signals were told of that the starter got before. The end of this pipe says that the sampler is gone.
"""

from __future__ import annotations

import contextlib
import json
import os

from nncftools.files import write_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, TypedDict

    from nncftools.journal.lines import PlanFields

    class Order(TypedDict):
        """What is to be started and recorded; never written to a file."""

        plan: PlanFields
        argv: list[str]
        """The command and its arguments, each byte a character (latin-1): arguments need not be text."""
        marks: str | None
        """The file that marks are appended to: each is answered by a sample."""
        blocked: list[int]
        """Signals that were blocked in the starter, to be blocked in the command."""
        ignored: list[int]
        """Signals that the starter ignored and the sampler must not: the command gets them ignored."""
        descriptors: int | None
        """The soft limit of open files to give to the command, where the starter raised its own."""
        relays: list[tuple[int, int]]
        """Descriptors that the command's output arrives at, and where it goes when the starter is killed."""
        beside: bool
        """Whether the sampler records its own starter: it is not to be the starter's child, and ends with it."""


STARTED, START, SAMPLED, EXIT, END, ASK = "started", "start", "sampled", "exit", "end", "ask"
SIGNAL, STOP, RELEASE, ANSWER = "signal", "stop", "release", "answer"
_CHUNK = 1 << 16


def line(key: str, value: object = True) -> bytes:  # noqa: FBT002 — JSON's true, for what is only named
    """Return one message."""
    return json.dumps({key: value}, separators=(",", ":")).encode("ascii") + b"\n"


class Link:
    """The sampler's ends."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        """Keep both from the command."""
        os.set_inheritable(incoming, False)
        os.set_inheritable(outgoing, False)
        self.descriptor = incoming
        self.is_open = True
        """Whether the starter is still there."""
        self._outgoing = outgoing
        self._rest = b""

    def order(self) -> Order:
        """Wait for the order. Raises EOFError when the starter is gone before."""
        while b"\n" not in self._rest:
            data = os.read(self.descriptor, _CHUNK)
            if not data:
                raise EOFError("the starter is gone")
            self._rest += data
        text, _, self._rest = self._rest.partition(b"\n")
        os.set_blocking(self.descriptor, False)
        order: Order = json.loads(text)
        return order

    def tell(self, key: str, value: object = True) -> None:  # noqa: FBT002 — the same
        """Say something, if the starter is still there."""
        with contextlib.suppress(OSError):
            write_all(self._outgoing, line(key, value))

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yield what the starter said since the last call."""
        with contextlib.suppress(BlockingIOError):
            while self.is_open:
                data = os.read(self.descriptor, _CHUNK)
                self.is_open = bool(data)
                self._rest += data
        *whole, self._rest = self._rest.split(b"\n")
        for text in whole:
            yield json.loads(text)
