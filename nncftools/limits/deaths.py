"""Which processes of a run were killed by a signal."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nncftools.session.model import Process, SessionData

SHELL = 128
"""A shell ends with this plus the number of the signal that killed its command (POSIX, Shell Command Language)."""
_TOLD = {signal.SIGKILL, signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGTERM}
"""Programs use other statuses above 128 for ordinary failures."""


class Death(NamedTuple):
    """The end of a process by a signal."""

    number: int
    """Of the signal."""
    at_s: float
    process: Process | None
    """None if it is not known which process it was."""
    is_command: bool
    by_status: bool = False
    """Whether only the command's exit status says so."""

    @property
    def signal_name(self) -> str:
        """``SIGKILL``."""
        try:
            return signal.Signals(self.number).name
        except ValueError:
            return f"signal {self.number}"


def deaths(session: SessionData) -> list[Death]:
    """Return them in the order of their ends."""
    return sorted(_deaths(session), key=lambda death: (death.at_s, not death.is_command))


def _deaths(session: SessionData) -> Iterator[Death]:
    command = command_of(session)
    for process in session.processes:
        if process is not command and process.exit is not None and process.exit.signal is not None:
            at_s = session.duration_s if process.end_s is None else process.end_s
            yield Death(process.exit.signal, at_s, process, is_command=False)
    if session.exit is None:
        return
    at_s = session.duration_s if command is None or command.end_s is None else command.end_s
    if session.exit.signal is not None:
        yield Death(session.exit.signal, at_s, command, is_command=True)
    number = (session.exit.code or 0) - SHELL
    of_children = {process.exit.signal for process in session.processes if process.exit is not None}
    if number in _TOLD and number not in of_children:
        yield Death(number, at_s, None, is_command=False, by_status=True)


def command_of(session: SessionData) -> Process | None:
    """Return the process of the command; None when it was not seen, or when the recording was attached to a process."""
    if session.attached_to is not None:
        return None
    return next((process for process in session.processes if process.id == 0), None)
