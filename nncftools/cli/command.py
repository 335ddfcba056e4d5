"""From the words on the command line to the argument list to execute."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shlex
import shutil
from typing import TYPE_CHECKING

from nncftools.errors import CommandNotExecutableError, CommandNotFoundError, UsageError
from nncftools.metrics import METRICS
from nncftools.units import nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

SHELL = "/bin/sh"
_PYTHON = "python"
_MUCH_ALIKE = 0.75
_TIME_UNITS = {"ms", "s", "sec", "min"}
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


def check_executable(argv: Sequence[str]) -> None:
    """Raise CommandNotFoundError or CommandNotExecutableError if a command cannot be started; say what was meant."""
    program = argv[0]
    path = pathlib.Path(program)
    has_folder = os.sep in program or (os.altsep is not None and os.altsep in program)
    if has_folder and _exists(path):
        why_not = _why_not(path)
        if why_not:
            raise CommandNotExecutableError(f"cannot run {program!r}: {why_not}")
    elif has_folder or shutil.which(program) is None:
        place = "no such file" if has_folder else "no program of that name on PATH"
        raise CommandNotFoundError(f"cannot run {_redacted(program)!r}: {place}{_meant(argv)}")


def _exists(path: pathlib.Path) -> bool:
    """Return whether there is such a file, as far as we may know."""
    try:
        return path.exists()
    except PermissionError:
        return False


def _why_not(path: pathlib.Path) -> str:
    """Return why a file cannot be run; empty if it can."""
    if path.is_dir():
        return "it is a folder"
    interpreter = _interpreter(path)
    with_it = f"did you mean `{interpreter} {path}`?"
    if not os.access(path, os.X_OK):
        return f"it is not executable ({with_it if interpreter else 'chmod +x, or name its interpreter first'})"
    if interpreter == _PYTHON and not _begins_with(path, b"#!"):
        return f"it has no `#!` line, so a shell would run it; {with_it}"
    return ""


def _begins_with(path: pathlib.Path, beginning: bytes) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(beginning)) == beginning
    except OSError:  # it may be executable without being readable
        return True


def _interpreter(path: pathlib.Path) -> str:
    return {".py": _PYTHON, ".sh": "sh"}.get(path.suffix, "")


def _meant(argv: Sequence[str]) -> str:
    """Return what was probably meant by a command that is not there; empty if that is not known."""
    program = argv[0]
    if program.rstrip(",").lower() in METRICS:
        return f"; to record several metrics, write them as one word: -t rss,{program.lower()}"
    if program.lower() in _TIME_UNITS:
        return f"; write a time as one word: 100{program.lower()}"
    if program == "help":
        return "; `nncf-tools COMMAND --help` shows the help of a command"
    if is_file(program):
        interpreter = _interpreter(pathlib.Path(program))
        return f"; did you mean `{interpreter} {program}`?" if interpreter else f"; did you mean `./{program}`?"
    near = nearest(program, _programs(program[:1]), _MUCH_ALIKE)
    return f"; did you mean `{near}`?" if near else ""


def _programs(beginning: str) -> set[str]:
    found: set[str] = set()
    for folder in os.get_exec_path():
        with contextlib.suppress(OSError), os.scandir(folder or os.curdir) as files:
            found.update(file.name for file in files if file.name.startswith(beginning))
    return found


def _redacted(text: str) -> str:
    """Hide secrets in a mistyped command: `HF_TOKEN=... program` works only in a shell."""
    from nncftools.redaction import Redaction

    return Redaction().text(text)
