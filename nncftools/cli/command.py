"""From the words on the command line to the argument list to execute."""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import shutil
from typing import TYPE_CHECKING

from nncftools.errors import CommandNotExecutableError, CommandNotFoundError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

SHELL = "/bin/sh"
_QUOTED_OR_SPECIAL = re.compile(
    r"""'[^']*'|(?P<special>\\\n)|\\.|"(?P<double>(?:[^"\\]|\\.)*)"|"""
    r"""(?P<other>\A[A-Za-z_]\w*=|&&|\|\||>>|[|&;<>()$`*?\[\n]|(?<!\S)[~#])""",
    re.DOTALL,
)
_SPECIAL_IN_DOUBLE_QUOTES = re.compile(r"(?P<special>\\?[$`]|\\\n)|\\.", re.DOTALL)


def arguments(words: Sequence[str], *, shell: bool) -> list[str]:
    """Return the argument list to execute.

    Words are used unchanged. A single word with spaces is split as a shell would split it, unless a program of that
    name exists; one with characters that only a shell understands is refused. With ``shell`` the single word is a shell
    script. Raises UsageError.
    """
    if shell:
        if len(words) != 1:
            raise UsageError("option --shell: one quoted string expected, as in --shell 'make | tee log'")
        return [SHELL, "-c", words[0]]
    if len(words) != 1 or is_file(words[0]) or shutil.which(words[0]):
        return list(words)
    special = shell_only(words[0])
    if special:
        raise UsageError(
            f"argument COMMAND: only a shell understands {special!r} in {_redacted(words[0])!r}; "
            "put --shell before it, or quote what is meant literally"
        )
    try:
        return shlex.split(words[0])
    except ValueError as error:
        raise UsageError(f"argument COMMAND: {_redacted(words[0])!r} cannot be split into words: {error}") from error


def is_file(name: str) -> bool:
    """Return whether a file of this name exists."""
    try:
        return pathlib.Path(name).is_file()
    except (OSError, ValueError):  # too long, or with a zero byte
        return False


def shell_only(line: str) -> str:
    """Return the first characters of a line that a shell would not take literally; an empty string if there are none.

    These are assignments, redirections, pipes, lists, substitutions, patterns, continued lines, comments and ``~``,
    unless they are quoted (POSIX Shell Command Language, 2.2 Quoting and 2.3 Token Recognition). Quotes themselves do
    not count, except escapes in double quotes that ``shlex`` does not undo.
    """
    for found in _QUOTED_OR_SPECIAL.finditer(line.strip()):
        inside = [part["special"] for part in _SPECIAL_IN_DOUBLE_QUOTES.finditer(found["double"] or "")]
        for special in (found["special"], found["other"], *inside):
            if special:
                return str(special)
    return ""


def check_executable(program: str) -> None:
    """Raise CommandNotFoundError or CommandNotExecutableError if ``program`` cannot be started."""
    path = pathlib.Path(program)
    has_folder = os.sep in program or (os.altsep is not None and os.altsep in program)
    if has_folder and _exists(path):
        if path.is_dir() or not os.access(path, os.X_OK):
            raise CommandNotExecutableError(f"cannot run {program!r}: {_why_not(path)}")
    elif has_folder or shutil.which(program) is None:
        place = "no such file" if has_folder else "no program of that name on PATH"
        raise CommandNotFoundError(f"cannot run {_redacted(program)!r}: {place}")


def _exists(path: pathlib.Path) -> bool:
    """Return whether there is such a file, as far as we may know."""
    try:
        return path.exists()
    except PermissionError:
        return False


def _why_not(path: pathlib.Path) -> str:
    return "it is a folder" if path.is_dir() else "it is not executable (chmod +x, or name its interpreter first)"


def _redacted(text: str) -> str:
    """Hide secrets in a mistyped command: `HF_TOKEN=... program` works only in a shell."""
    from nncftools.redaction import Redaction

    return Redaction().text(text)
