"""The process that starts recordings: what it changes of itself for that, and what a command gets as it was before."""

from __future__ import annotations

import contextlib
import resource
import signal
from typing import TYPE_CHECKING, Any, Self

from nncftools.sampler import target
from nncftools.sampler.signals import CAUGHT, ENDING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_USUAL_DESCRIPTORS = 256


class Interrupted(BaseException):
    """A signal came while results were shown; ``number`` is the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.number = number


class Starter:
    """A context manager around one recording or several: from its begin to its end, no signal ends this process.

    A signal goes to whoever ``passes_to`` names, the sampler of the command that runs. At its end signals stay blocked:
    what is left to do is to exit with the command's status.
    """

    def __init__(self) -> None:
        self.passes_to: Callable[[int], None] | None = None
        self.ignored: list[int] = []
        """Signals that a command is to ignore, as this process did."""
        self.blocked: list[int] = []
        """Signals that a command is to have blocked, as this process has."""
        self.descriptors: int | None = None
        """The soft limit of open files that a command is to have; None for this process's."""
        self._raises = False
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> Self:
        """Catch signals; a signal that is ignored (nohup) stays so."""
        self.blocked = sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:  # the exit status of children would be lost
            self.ignored = [signal.SIGCHLD]
            self._handlers[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number in CAUGHT:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._handlers[number] = signal.signal(number, self._take)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY and soft < _USUAL_DESCRIPTORS:
            self.descriptors = soft
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        target.adopt_orphans()  # should a sampler be killed, its command becomes our child and can be waited for
        return self

    def __exit__(self, *_: object) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, CAUGHT)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

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
