"""Signals as wake-ups: the sampler sleeps until its next deadline or until a signal arrives.

The sampler shares the process group with the command, so a signal to the group (Ctrl-C, Ctrl-\\, a hang-up, a
scheduler's SIGUSR1) reaches the command directly. The sampler catches such signals with handlers that only note them:
the command would inherit an ignored signal, while exec resets a handler. A signal that was ignored from the start
(nohup) stays ignored in all processes.
"""

from __future__ import annotations

import os
import select
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ENDING = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
"""Those with which a user or a system ends a program."""
OF_FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
"""A Python handler cannot catch these: after it, the same fault would happen again, for ever. If they are ignored, only
a fault of its own ends a process, not a signal that another process sent."""
_NEVER_CAUGHT = {"SIGKILL", "SIGSTOP"}
_IGNORED_BY_DEFAULT = {"SIGCHLD", "SIGCLD", "SIGCONT", "SIGURG", "SIGWINCH", "SIGINFO"}
_STOPPING = {"SIGTSTP", "SIGTTIN", "SIGTTOU"}
_IGNORED_BY_PYTHON = {"SIGPIPE", "SIGXFSZ"}
_NOT_CAUGHT = _NEVER_CAUGHT | _IGNORED_BY_DEFAULT | _STOPPING | _IGNORED_BY_PYTHON | {fault.name for fault in OF_FAULTS}
CAUGHT = tuple(sorted(number for number in signal.valid_signals() if getattr(number, "name", "") not in _NOT_CAUGHT))
"""All signals that a group may receive and that would end a process."""
_MOST_OF_SELECT = 1024


class Signals:
    """Note the signals that arrive and wake the sleeper."""

    def __init__(self, blocked: Sequence[int] = ()) -> None:
        """Catch all signals, and block only those that the starter has ``blocked``."""
        self._noted: list[int] = []
        self.ready: list[int] = []
        """The descriptors that were readable after the last sleep."""
        self._wake, writer = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(writer, False)
        self.watch(())
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, self._note)
        catch_all(self._note)
        signal.pthread_sigmask(signal.SIG_SETMASK, {*blocked} - {signal.SIGCHLD})

    def _note(self, number: int, _frame: object) -> None:
        self._noted.append(number)

    def take(self) -> list[int]:
        """Return the signals noted since the last call."""
        noted, self._noted = self._noted, []
        return noted

    def watch(self, descriptors: Sequence[int]) -> None:
        """Wake up, from now on, when one of these descriptors becomes readable."""
        self._watched = [self._wake, *descriptors]
        self._may_select = max(self._watched) < _MOST_OF_SELECT

    def sleep(self, timeout_s: float | None) -> bool:
        """Sleep until the time-out, a signal, or a descriptor becomes readable; return False after the time-out."""
        if self._may_select:
            ready, _, _ = select.select(self._watched, (), (), timeout_s)
        else:
            ready = readable(self._watched, timeout_s)
        self.ready = ready
        if not ready:
            return False
        if self._wake in ready:
            os.read(self._wake, 4096)
            ready.remove(self._wake)
        return True


def readable(descriptors: Sequence[int], timeout_s: float | None = None) -> list[int]:
    """Wait for descriptors; return those that can be read."""
    if max(descriptors) < _MOST_OF_SELECT:
        return select.select(descriptors, (), (), timeout_s)[0]
    poll = select.poll()  # takes any descriptor, but waits for whole milliseconds only
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(None if timeout_s is None else int(timeout_s * 1000) + 1)]


def catch_all(handler: Callable[[int, object], None]) -> None:
    """Catch all signals that would end this process, and ignore those of faults; ignored signals stay ignored."""
    for number in OF_FAULTS:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.SIG_IGN)
    for number in CAUGHT:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)
