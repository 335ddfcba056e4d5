"""Signals as wake-ups: the sampler sleeps until its next deadline or until a signal arrives.

It shares the terminal's foreground process group with the command, so that Ctrl-C, Ctrl-\\ and a hang-up reach the
command without help. Here they are caught by handlers that only note them: an ignored signal would be inherited by the
command, a handler is reset by exec. A signal that was ignored from the start (nohup) stays ignored for all.
"""

from __future__ import annotations

import os
import select
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

CAUGHT = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT") if hasattr(signal, name))
_WINDOWS_SLICE_S = 0.05


class Signals:
    """Note the signals that arrive and wake the sleeper."""

    def __init__(self) -> None:
        self._noted: list[int] = []
        self._wake, writer = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(writer, False)
        if os.name == "posix":
            signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
            signal.signal(signal.SIGCHLD, self._note)
        for number in CAUGHT:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._note)

    def _note(self, number: int, _frame: object) -> None:
        self._noted.append(number)

    def take(self) -> list[int]:
        """Return the signals noted since the last call."""
        noted, self._noted = self._noted, []
        return noted

    def sleep(self, timeout_s: float | None, descriptors: Sequence[int] = ()) -> list[int]:
        """Sleep until the time-out, a signal, or one of the descriptors becomes readable; return those that are."""
        if os.name != "posix":  # select does not take pipes there, and no signal tells of a child's end
            time.sleep(_WINDOWS_SLICE_S if timeout_s is None else min(timeout_s, _WINDOWS_SLICE_S))
            return []
        ready, _, _ = select.select([self._wake, *descriptors], [], [], timeout_s)
        if self._wake in ready:
            os.read(self._wake, 4096)
            ready.remove(self._wake)
        return ready
