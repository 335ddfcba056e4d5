"""Errors that the user can fix: a line of text and an exit status."""

from __future__ import annotations

import os

__version__ = "0.1.0"
"""The version of the package, which `--version` prints and every recording names."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

CAN_RECORD = os.name == "posix"
"""Whether a process can pass on descriptors, as a recorder does with its journal and pipes."""


class NncfToolsError(Exception):
    """The work could not be done; the message has the problem, the place, the expected value and the remedy."""

    exit_code = 1

    def __init__(self, message: str, *, remedy: str = "", lines: Sequence[str] = ()) -> None:
        """Fail with ``message``; ``cli`` adds the option for ``remedy``.

        ``lines`` is a long message as a list of lines.
        """
        super().__init__(message)
        self.remedy = remedy
        self.lines = lines


class UsageError(NncfToolsError):
    """The request is invalid; the command line puts the option's name before the message."""

    exit_code = 2


class CommandNotFoundError(NncfToolsError):
    """The command to record does not exist; the exit status is the shell's."""

    exit_code = 127


class CommandNotExecutableError(NncfToolsError):
    """The command to record exists but cannot be executed; the exit status is the shell's."""

    exit_code = 126


class SessionFileError(NncfToolsError):
    """A session or journal cannot be read; the message has the file and the location."""


_OF_MEMORY = ("failed to map segment", "annot allocate memory", "can't start new thread")
"""Parts of messages about missing memory or address space, by the library loader, the kernel and Python."""


def memory_shortage(error: Exception) -> str:
    """Return a message if an error means too little memory, also for loading a library; empty for other errors.

    Python may raise SystemError if memory runs out.
    """
    if isinstance(error, MemoryError | SystemError) or any(text in str(error) for text in _OF_MEMORY):
        return "not enough memory; if `ulimit -v` limits the address space, allow more"
    return ""


def refuse_to_record() -> None:
    """Raise NncfToolsError on systems that cannot record: Windows."""
    if not CAN_RECORD:
        raise NncfToolsError("recording needs Linux or macOS; reports, comparisons and pictures work here")
