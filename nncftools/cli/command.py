"""From the words on the command line to the argument list to execute."""

from __future__ import annotations

import os
import pathlib
import shlex
import shutil
from typing import TYPE_CHECKING

from nncftools.errors import CommandNotExecutableError, CommandNotFoundError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

SHELL = "/bin/sh"


def arguments(words: Sequence[str], *, shell: bool) -> list[str]:
    """Return the argument list to execute.

    Words are used unchanged. A single word with spaces is split as a shell would split it, without expansion, unless
    a program of that name exists. With ``shell`` the single word is a shell script. Raises UsageError.
    """
    if shell:
        if len(words) != 1:
            raise UsageError("option --shell: one quoted string expected, as in --shell 'make | tee log'")
        return [SHELL, "-c", words[0]]
    if len(words) == 1 and len(words[0].split()) > 1 and not pathlib.Path(words[0]).is_file():
        try:
            return shlex.split(words[0])
        except ValueError as error:
            raise UsageError(
                f"argument COMMAND: {_redacted(words[0])!r} cannot be split into words: {error}"
            ) from error
    return list(words)


def check_executable(program: str) -> None:
    """Raise CommandNotFoundError or CommandNotExecutableError if ``program`` cannot be started."""
    path = pathlib.Path(program)
    has_folder = os.sep in program or (os.altsep is not None and os.altsep in program)
    if has_folder and path.exists():
        if path.is_dir() or not os.access(path, os.X_OK):
            raise CommandNotExecutableError(f"cannot run {program!r}: {_why_not(path)}")
    elif has_folder or shutil.which(program) is None:
        place = "no such file" if has_folder else "no program of that name on PATH"
        raise CommandNotFoundError(f"cannot run {_redacted(program)!r}: {place}")


def _why_not(path: pathlib.Path) -> str:
    return "it is a folder" if path.is_dir() else "it is not executable (chmod +x, or name its interpreter first)"


def _redacted(text: str) -> str:
    """Hide secrets in a mistyped command: `HF_TOKEN=... program` works only in a shell."""
    from nncftools.redaction import Redaction

    return Redaction().text(text)
