"""Errors that the user can fix. Each error has a message and an exit status."""

from __future__ import annotations

import os

__version__ = "0.1.0"
"""The version of nncf-tools, for `--version` and for every recording."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

CAN_RECORD = os.name == "posix"
"""Whether this system can record: recorders pass descriptors of the journal and of pipes to other processes."""


class NncfToolsError(Exception):
    """The command cannot do its work. The message names the problem, the place, the expected value and the remedy."""

    exit_code = 1

    def __init__(self, message: str, *, remedy: str = "", lines: Sequence[str] = ()) -> None:
        """Fail with ``message``.

        ``remedy`` is a key: the command line has an advice for each key, such as an option to use, and appends the
        advice to the message. ``lines`` are the lines of a long message.
        """
        super().__init__(message)
        self.remedy = remedy
        self.lines = lines


class UsageError(NncfToolsError):
    """The request is invalid. The command line puts the name of the option before the message."""

    exit_code = 2


class CommandNotFoundError(NncfToolsError):
    """The command to record does not exist. The exit status is 127, as in a shell."""

    exit_code = 127


class CommandNotExecutableError(NncfToolsError):
    """The command to record exists but cannot be executed. The exit status is 126, as in a shell."""

    exit_code = 126


class SessionFileError(NncfToolsError):
    """A session or journal cannot be read. The message names the file and the location in the file."""


_OF_MEMORY = ("failed to map segment", "annot allocate memory", "can't start new thread")
"""Parts of error messages about missing memory or address space: from the library loader, the kernel, and Python."""


def memory_shortage(error: Exception) -> str:
    """Return a message for the user if ``error`` means that memory ran out; otherwise, return an empty text.

    SystemError is included, because Python may raise SystemError if memory runs out. Errors of the library loader are
    included, too.
    """
    if isinstance(error, MemoryError | SystemError) or any(text in str(error) for text in _OF_MEMORY):
        return "not enough memory; if `ulimit -v` limits the address space, allow more"
    return ""


def refuse_to_record() -> None:
    """Raise NncfToolsError on Windows: recording does not work there."""
    if not CAN_RECORD:
        raise NncfToolsError("recording needs Linux or macOS; reports, comparisons and pictures work here")
