"""Signals as wake-ups: the sampler sleeps until its next deadline or until a signal arrives.

It shares the process group with the command, so that what is sent to the group (Ctrl-C, Ctrl-\\, a hang-up, a
scheduler's SIGUSR1) reaches the command without help. Here such signals are caught by handlers that only note them: an
ignored signal would be inherited by the command, a handler is reset by exec. A signal that was ignored from the start
(nohup) stays ignored for all.
"""

from __future__ import annotations

import os
import select
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

ENDING = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
"""Those with which a user or a system ends a program."""
_NEVER_CAUGHT = {"SIGKILL", "SIGSTOP"}
OF_FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
"""After a handler of Python's, a fault would happen again, for ever. Ignored, they end a process by a fault of its own
alone, not by what a group was sent."""
_IGNORED_BY_DEFAULT = {"SIGCHLD", "SIGCLD", "SIGCONT", "SIGURG", "SIGWINCH", "SIGINFO"}
_STOPPING = {"SIGTSTP", "SIGTTIN", "SIGTTOU"}
_IGNORED_BY_PYTHON = {"SIGPIPE", "SIGXFSZ"}
_LEFT_ALONE = {
    *_NEVER_CAUGHT, *_IGNORED_BY_DEFAULT, *_STOPPING, *_IGNORED_BY_PYTHON, *(number.name for number in OF_FAULTS),
}  # fmt: skip


_MOST_OF_SELECT = 1024


def _name(number: int) -> str:
    return number.name if isinstance(number, signal.Signals) else ""


CAUGHT = tuple(sorted(number for number in signal.valid_signals() if _name(number) not in _LEFT_ALONE))
"""All that would end a process that a group may get."""


class Signals:
    """Note the signals that arrive and wake the sleeper."""

    def __init__(self, blocked: Sequence[int] = ()) -> None:
        """Catch; let through whatever was blocked, but for signals that the starter has ``blocked``, too."""
        self._noted: list[int] = []
        self._wake, writer = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, self._note)
        for number in CAUGHT:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._note)
        ignore_faults_of_others()
        signal.pthread_sigmask(signal.SIG_SETMASK, {*blocked} - {signal.SIGCHLD})

    def _note(self, number: int, _frame: object) -> None:
        self._noted.append(number)

    def take(self) -> list[int]:
        """Return the signals noted since the last call."""
        noted, self._noted = self._noted, []
        return noted

    def sleep(self, timeout_s: float | None, descriptors: Sequence[int] = ()) -> list[int]:
        """Sleep until the time-out, a signal, or one of the descriptors becomes readable; return those that are."""
        ready = readable([self._wake, *descriptors], timeout_s)
        if self._wake in ready:
            os.read(self._wake, 4096)
            ready.remove(self._wake)
        return ready


def readable(descriptors: Sequence[int], timeout_s: float | None = None) -> list[int]:
    """Wait for descriptors; return those that can be read."""
    if max(descriptors) < _MOST_OF_SELECT:
        return select.select(descriptors, [], [], timeout_s)[0]
    poll = select.poll()  # takes any descriptor, and waits whole milliseconds only
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(None if timeout_s is None else int(timeout_s * 1000) + 1)]


def ignore_faults_of_others() -> None:
    """Survive what looks like a fault and was sent by somebody."""
    for number in OF_FAULTS:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.SIG_IGN)
