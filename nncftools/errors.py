"""What goes wrong in a way that the user can mend: one line of text and an exit status."""


class NncfToolsError(Exception):
    """The work could not be done; the message says what, where, what was expected and what to do."""

    exit_code = 1


class UsageError(NncfToolsError):
    """The command line asks for something that cannot be; the message names the option."""

    exit_code = 2


class CommandNotFoundError(NncfToolsError):
    """The command to measure does not exist; the status is the shell's."""

    exit_code = 127


class CommandNotExecutableError(NncfToolsError):
    """The command to measure exists and cannot be executed; the status is the shell's."""

    exit_code = 126


class SessionFileError(NncfToolsError):
    """A session or journal file cannot be read; the message names the file and the place in it."""
