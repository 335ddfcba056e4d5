"""The process that starts recordings: what it changes in itself for that, and what a command still gets unchanged.

The starter's end of the pipes between starter and sampler; ``link.py`` describes the messages.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from nncftools.files import above_standard, descriptors_in_use, write_all
from nncftools.sampler import link
from nncftools.sampler.signals import CAUGHT, ENDING, OF_FAULTS, catch_all
from nncftools.sampler.target import adopt_orphans

if TYPE_CHECKING:
    from typing_extensions import Self

    from nncftools.sampler.link import Order


_USUAL_DESCRIPTORS = 256


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Block signals until the end of the block; threads that are started meanwhile never receive one."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, CAUGHT)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Interrupted(BaseException):
    """A signal arrived while results were shown; ``number`` is the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.number = number


class Starter:
    """A context manager around one recording or several: inside it, no signal ends this process.

    A signal goes to ``passes_to``, which sends it to the sampler of the running command. At the end of the context,
    signals are ignored: the only thing left to do is to exit with the command's status. (If they were blocked, other
    threads would take them.)
    """

    def __init__(self) -> None:
        self.passes_to: Callable[[int], None] | None = None
        self.asked_to_end: int | None = None
        """A signal that asked for the end while no command ran: no further command is started."""
        self.received: int | None = None
        """The first signal that asks for the end, also one that was passed on."""
        self.ignored: list[int] = []
        """Signals that a command must ignore, because this process did."""
        self.blocked: list[int] = []
        """Signals that a command must block, because this process does."""
        self.descriptors: int | None = None
        """A command's soft limit of open files; None when it is the same as this process's."""
        self._raises = False

    def __enter__(self) -> Self:
        """Catch signals; an ignored signal (nohup) stays ignored."""
        self.blocked = sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:  # the exit status of children would be lost
            self.ignored = [signal.SIGCHLD]
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.ignored += [number for number in OF_FAULTS if signal.getsignal(number) is signal.SIG_IGN]
        catch_all(self._take)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY and soft - descriptors_in_use() < _USUAL_DESCRIPTORS:
            self.descriptors = soft
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        adopt_orphans()  # if a sampler is killed, its command becomes our child, and we can wait for it
        return self

    def __exit__(self, *_: object) -> None:
        for number in CAUGHT:
            signal.signal(number, signal.SIG_IGN)

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Raise Interrupted when a signal asks for the end."""
        self._raises = True
        try:
            yield
        finally:
            self._raises = False

    def _take(self, number: int, _frame: object) -> None:
        if self._raises and number in ENDING:
            self._raises = False
            raise Interrupted(number)
        if number in ENDING:
            self.received = self.received or number
        if self.passes_to is not None:
            self.passes_to(number)
        elif number in ENDING:
            self.asked_to_end = self.asked_to_end or number


_ROOM_WITHIN_S = 1.0


class StarterLink(link.Link):
    """The starter's ends of the two pipes."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        """Read from ``incoming``, write to ``outgoing``."""
        super().__init__(incoming, outgoing)
        self.received: dict[str, Any] = {}
        """The sampler's messages so far."""

    @classmethod
    @contextlib.contextmanager
    def opened(cls) -> Iterator[tuple[StarterLink, tuple[int, int]]]:
        """Yield our ends and the sampler's; ours are closed when its start fails, and the sampler's in any case."""
        theirs_in, ours_out = map(above_standard, os.pipe())
        ours_in, theirs_out = map(above_standard, os.pipe())
        ours = cls(ours_in, ours_out)
        try:
            yield ours, (theirs_in, theirs_out)
        except BaseException:
            ours.close()
            raise
        finally:
            os.close(theirs_in)
            os.close(theirs_out)

    def send_order(self, order: Order) -> None:
        """Send the order, which may be longer than a pipe holds; later messages are short, and never wait."""
        with contextlib.suppress(BrokenPipeError):  # the sampler has failed: its exit status says so
            write_all(self._outgoing, link.encoded(order))
        os.set_blocking(self._outgoing, False)

    def send_message(self, key: str, value: object = True) -> bool:  # noqa: FBT002 — JSON's true
        """Send a message; return whether the sampler is still there.

        The end of a long order may still fill the pipe. The wait for a stopped sampler is limited to one second.
        """
        try:
            select.select([], [self._outgoing], [], _ROOM_WITHIN_S)
            os.write(self._outgoing, link.encoded({key: value}))
        except BlockingIOError:
            return True
        except (OSError, ValueError):  # ValueError: closed
            return False
        return True

    def listen(self) -> dict[str, Any]:
        """Return all messages of the sampler up to its end."""
        while (message := self.next_message()) is not None:
            if link.ASK in message:
                self.send_message(link.ANSWER)
            self.received.update(message)
        return self.received

    def hang_up(self) -> None:
        """Close the pipe to the sampler."""
        if self._outgoing >= 0:
            os.close(self._outgoing)
        self._outgoing = -1

    def close(self) -> None:
        """Close both pipes."""
        self.hang_up()
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = -1
