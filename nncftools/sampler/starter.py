"""The process that starts recordings: what it changes of itself for that, and what a command gets as it was before."""

from __future__ import annotations

import contextlib
import resource
import signal
from typing import TYPE_CHECKING, Self

from nncftools.files import descriptors_in_use
from nncftools.sampler import target
from nncftools.sampler.signals import CAUGHT, ENDING, OF_FAULTS, ignore_faults_of_others

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_USUAL_DESCRIPTORS = 256


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Have signals wait; threads that are started meanwhile never get one."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, CAUGHT)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Interrupted(BaseException):
    """A signal came while results were shown; ``number`` is the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.number = number


class Starter:
    """A context manager around one recording or several: from its begin to its end, no signal ends this process.

    A signal goes to whoever ``passes_to`` names, the sampler of the command that runs. At its end signals are ignored:
    what is left to do is to exit with the command's status. (Blocked ones would be taken by other threads.)
    """

    def __init__(self) -> None:
        self.passes_to: Callable[[int], None] | None = None
        self.asked_to_end: int | None = None
        """A signal that asked for the end while no command ran: no other is to be started."""
        self.ignored: list[int] = []
        """Signals that a command is to ignore, as this process did."""
        self.blocked: list[int] = []
        """Signals that a command is to have blocked, as this process has."""
        self.descriptors: int | None = None
        """The soft limit of open files that a command is to have; None for this process's."""
        self._raises = False

    def __enter__(self) -> Self:
        """Catch signals; a signal that is ignored (nohup) stays so."""
        self.blocked = sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:  # the exit status of children would be lost
            self.ignored = [signal.SIGCHLD]
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.ignored += [number for number in OF_FAULTS if signal.getsignal(number) is signal.SIG_IGN]
        ignore_faults_of_others()
        for number in CAUGHT:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._take)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY and soft - descriptors_in_use() < _USUAL_DESCRIPTORS:
            self.descriptors = soft
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        target.adopt_orphans()  # should a sampler be killed, its command becomes our child and can be waited for
        return self

    def __exit__(self, *_: object) -> None:
        for number in CAUGHT:
            signal.signal(number, signal.SIG_IGN)

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let a signal that asks for an end raise Interrupted."""
        self._raises = True
        try:
            yield
        finally:
            self._raises = False

    def _take(self, number: int, _frame: object) -> None:
        if self._raises and number in ENDING:
            self._raises = False
            raise Interrupted(number)
        if self.passes_to is not None:
            self.passes_to(number)
        elif number in ENDING:
            self.asked_to_end = self.asked_to_end or number
