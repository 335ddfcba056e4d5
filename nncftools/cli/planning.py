"""From options to the sampler's plan; shared by the commands that record.

From the words on the command line to the argument list to execute.

``--max-memory`` and ``--on-limit``: a limit on the command's memory; ``--require``: what it needs to start.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from nncftools.cli import options, screen
from nncftools.cli.parameters import RUN, option
from nncftools.errors import (
    CommandNotExecutableError,
    CommandNotFoundError,
    NncfToolsError,
    UsageError,
    refuse_to_record,
)
from nncftools.journal.lines import MemoryLimit
from nncftools.journal.writing import Plan
from nncftools.metrics import MEMORY, METRICS, is_memory, is_room, recorded_with
from nncftools.redaction import Redaction
from nncftools.units import brief_size, bytes_from, nearest, not_one_of

if TYPE_CHECKING:
    from nncftools.limits.needs import Requirement
    from nncftools.snapshots.client import Looking


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
    if len(words) != 1 or os.path.isfile(words[0]) or shutil.which(words[0]):  # noqa: PTH113 — a name may be too long
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
    if os.path.isfile(program):  # noqa: PTH113 — a name may be too long
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


def plan(  # noqa: PLR0913 — one parameter per option
    columns: Sequence[str],
    *,
    interval: float,
    pid: int | None = None,
    duration: float | None = None,
    children: bool = True,
    wait_all: bool = False,
    per_process: bool = False,
    max_samples: int = options.DEFAULT_MAX_SAMPLES,
    source: str = options.DEFAULT_SOURCE,
    limit: MemoryLimit | None = None,
    redact: Sequence[str] | None = (),
    pss_budget: str = options.DEFAULT_PSS_BUDGET,
) -> Plan:
    """Return the plan of a recording. Raises UsageError."""
    options.checked_seconds("--interval", interval, options.SHORTEST_INTERVAL_S)
    if duration is not None:
        options.checked_seconds("--duration", duration, 0)
    return Plan(
        columns if limit is None or "rss" in columns else ["rss", *columns],
        pid=pid,
        interval_s=interval,
        duration_s=duration,
        children=children,
        wait_all=wait_all,
        per_process=per_process,
        max_samples=max_samples,
        source=source,
        limit=limit,
        redact=redact,
        slow_share=options.share("--pss-budget", pss_budget),
    )


def watch_disks(plan: Plan, argv: Sequence[str], output: pathlib.Path) -> None:
    """Make a plan watch the file systems that a command probably writes to; ``output`` is the recording's."""
    from nncftools.limits.needs import file_systems

    if argv and plan.source == "proc":
        plan.file_systems = [list(pair) for pair in file_systems(argv, output)]
        plan.columns += filter(is_room, METRICS)


def looking(*, stacks: bool | None, default: bool, source: str) -> Looking | None:
    """Return how stacks and mappings are taken, None to take none.

    Raises UsageError if stacks are asked for and cannot be taken here.
    """
    if stacks is False or not (stacks or default):
        return None
    from nncftools.snapshots import client

    found = client.looking(with_hook=default) if source == "proc" else client.Looking(None, f"not with {source}")
    if stacks and found.py_spy is None:
        raise UsageError(f"option --stacks: {found.missing}")
    return found if source == "proc" and sys.platform == "linux" else None


def columns(types: list[str] | None, source: str, default: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the memory metrics to record, and the other metrics that are always recorded.

    Raises NncfToolsError if this machine cannot record them.
    """
    refuse_to_record()
    from nncftools.sampler import client

    options.check_source(source)
    client.check(source)
    offers = client.offers(source)
    for name in options.listed(types or ()):
        if is_memory(name) and (name not in offers or offers[name].missing):
            reason = offers[name].missing if name in offers else f"not from --source {source}"
            raise UsageError(f"option --type: {name!r} is not available here: {reason}")
    here = [name for name, offer in offers.items() if not offer.missing]
    memory = [name for name in MEMORY if name in here]
    shown = options.memory_types(types, memory, default)
    return shown, [name for name in recorded_with(shown) if name in here]


def target(words: list[str], pid: int | None, *, shell: bool) -> list[str]:
    """Return the argument list to execute; an empty one attaches to ``pid``. Raises NncfToolsError."""
    if pid is None:
        argv = arguments(words, shell=shell)
        if not argv:
            raise UsageError("argument COMMAND: missing; give a command to run, such as `python script.py`")
        check_executable(argv)
        return argv
    if words:
        raise UsageError("option --pid: either a command or --pid, not both")
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        raise NncfToolsError(f"option --pid: there is no process {pid}") from None
    except PermissionError:
        pass
    return []


ACTIONS = ("warn", "kill")

MaxMemory = Annotated[
    int | None,
    option(
        "--max-memory SIZE", RUN, "Limit on the sum of RSS over all processes, such as 8GiB or 500M.", parser=bytes_from
    ),
]
OnLimit = Annotated[
    str,
    option(
        f"--on-limit {'|'.join(ACTIONS)}",
        RUN,
        "If a sample exceeds it: warn once, or end all processes (SIGTERM, after 5 s SIGKILL).",
    ),
]
Require = Annotated[
    str | None,
    option(
        "--require SIZE|SESSION",
        RUN,
        "Start only if so much memory is available; with an earlier session of the command, if memory and disk "
        "suffice for what it needed then.",
    ),
]


def limit(max_memory: int | None, action: str) -> MemoryLimit | None:
    """Return the limit that the two options set, or None. Raises UsageError."""
    if action not in ACTIONS:
        raise UsageError(f"option --on-limit: {not_one_of(action, ACTIONS)}")
    if max_memory is None:
        if action != ACTIONS[0]:
            raise UsageError("option --on-limit: only with --max-memory")
        return None
    return {"rss": max_memory, "action": action}


def check_required(
    text: str | None, argv: Sequence[str], output: pathlib.Path, redact: Sequence[str] | None = ()
) -> None:
    """Refuse to start a command that cannot fit: raises UsageError, with the figures.

    ``text`` is a size or the path of an earlier session; ``output`` is the folder of the recording.
    """
    if text is None:
        return
    if not argv:
        raise UsageError("option --require: not with --pid")
    from nncftools.limits import needs
    from nncftools.limits.needs import available

    needed = _required(text, Redaction(redact).words(list(argv)))
    rooms = needs.rooms(needed.disks, argv, output)
    missing = needs.shortage(needed.memory, rooms, available("/proc", os.getpid()))
    if missing:
        raise UsageError(f"option --require: {missing}")


def _required(text: str, words: Sequence[str]) -> Requirement:
    from nncftools.limits import needs

    try:
        return needs.Requirement(bytes_from(text), {})
    except ValueError as error:
        if not os.path.isfile(text):  # noqa: PTH113 — a name may be too long
            expected = "a size such as 12GiB, or the file of a session, expected"
            raise UsageError(f"option --require: {expected}, found {text!r}") from error
    from nncftools.session import session as session_session

    session = session_session.load(text)
    found = needs.of_session(session)
    if found is None:
        raise UsageError(f"option --require: {text!r} does not hold what its command needed; record it again")
    if session.command != words:
        screen.message(f"option --require: {text!r} is of another command")
    if found.is_bound:
        more = f"the run in {text!r} was cut short: it needs more than {brief_size(found.memory)}"
        screen.message(f"option --require: {more}")
    return found
