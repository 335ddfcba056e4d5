"""What goes wrong in a way that the user can mend: one line of text and an exit status."""

import os

CAN_RECORD = os.name == "posix"
"""Whether a process can hand descriptors on, as a recorder does with its journal and its pipes."""


class NncfToolsError(Exception):
    """The work could not be done; the message says what, where, what was expected and what to do."""

    exit_code = 1

    def __init__(self, message: str, *, mended_by: str = "") -> None:
        """Fail with ``message``; ``mended_by`` names what would help. By which option it is said, ``cli`` knows."""
        super().__init__(message)
        self.mended_by = mended_by


class UsageError(NncfToolsError):
    """What is asked for cannot be; the command line names the option before the message."""

    exit_code = 2


class CommandNotFoundError(NncfToolsError):
    """The command to measure does not exist; the status is the shell's."""

    exit_code = 127


class CommandNotExecutableError(NncfToolsError):
    """The command to measure exists and cannot be executed; the status is the shell's."""

    exit_code = 126


class SessionFileError(NncfToolsError):
    """A session or journal file cannot be read; the message names the file and the place in it."""


def refuse_to_record() -> None:
    """Raise NncfToolsError where nothing can be recorded: on Windows."""
    if not CAN_RECORD:
        raise NncfToolsError("recording needs Linux or macOS; reports, comparisons and pictures work here")
