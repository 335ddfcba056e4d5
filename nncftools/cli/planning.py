"""Turn the options of a recording into the command's argument list and the plan (the settings of the sampler).

All mistakes, and a lack of memory or disk space (``--require``), are reported before the command starts.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from nncftools.cli import options, screen
from nncftools.cli.options import Request
from nncftools.errors import (
    CommandNotExecutableError,
    CommandNotFoundError,
    NncfToolsError,
    UsageError,
    refuse_to_record,
)
from nncftools.intake import Redaction
from nncftools.journal.reading import MemoryLimit
from nncftools.journal.writing import Plan
from nncftools.metrics import DEVICE, DEVICE_MEMORY, MEMORY, METRICS, is_memory, is_room, recorded_with
from nncftools.units import brief_size, bytes_from, nearest, not_one_of

if TYPE_CHECKING:
    from nncftools.limits.needs import Requirement
    from nncftools.snapshots.client import StackAccess


SHELL = "/bin/sh"
_PYTHON = "python"
_INTERPRETERS = {".py": _PYTHON, ".sh": "sh"}
_SHORTEST_INTERVAL_S = 0.001
_LONGEST_S = 366 * 24 * 3600.0
_QUOTED_OR_SPECIAL = (
    r"""(?s)'[^']*'|(?P<special>\\\n)|\\.|"(?P<double>(?:[^"\\]|\\.)*)"|"""
    r"""(?P<other>\A[A-Za-z_]\w*=|&&|\|\||>>|[|&;<>()$`*?\[\n]|(?<!\S)[~#])"""
)
_SPECIAL_IN_DOUBLE_QUOTES = r"(?s)(?P<special>\\?[$`]|\\\n)|\\."


def arguments(words: Sequence[str], *, shell: bool) -> list[str]:
    """Return the argument list to execute.

    Several words stay unchanged. A single word is split like a line of a shell, unless it is the name of a program. If
    the line has characters that only a shell understands, UsageError is raised. With ``shell``, the single word is a
    shell script.
    """
    if shell:
        if len(words) != 1:
            raise UsageError("option --shell: one quoted string expected, as in --shell 'make | tee log'")
        return [SHELL, "-c", words[0]]
    line = " ".join(words)
    if len(words) != 1 or os.path.isfile(line) or shutil.which(line):  # noqa: PTH113 — a name may be too long
        return list(words)
    special = find_special(line)
    if special:
        raise UsageError(
            f"argument COMMAND: only a shell understands {special!r} in {_redact(line)!r}; "
            "put --shell before it, or quote literal characters"
        )
    try:
        return shlex.split(line)
    except ValueError as error:
        raise UsageError(f"argument COMMAND: {_redact(line)!r} cannot be split into words: {error}") from error


def find_special(line: str) -> str:
    """Return the first characters of a line that a shell would not read literally; empty if there are none.

    Examples are assignments, redirections, pipes, lists, substitutions, patterns, continued lines, comments and ``~``
    without quotes (POSIX Shell Command Language, 2.2 Quoting and 2.3 Token Recognition). ``shlex``
    understands quotes, so quotes are not special here. In double quotes, some characters are special even after a
    backslash: a shell removes this backslash, but ``shlex`` keeps it.
    """
    for match in re.finditer(_QUOTED_OR_SPECIAL, line.strip()):
        quoted = [part["special"] for part in re.finditer(_SPECIAL_IN_DOUBLE_QUOTES, match["double"] or "")]
        specials = [match["special"], match["other"], *quoted]
        for special in filter(None, specials):
            return str(special)
    return ""


def check_executable(argv: Sequence[str]) -> None:
    """Raise CommandNotFoundError or CommandNotExecutableError, with a suggestion, if the command cannot be started."""
    program = argv[0]
    has_folder = os.sep in program
    if has_folder and os.path.exists(program):  # noqa: PTH110 — the folder may be closed to us
        reason = _explain_refusal(Path(program))
        if reason:
            raise CommandNotExecutableError(f"cannot run {program!r}: {reason}")
    elif has_folder or shutil.which(program) is None:
        missing = "no such file" if has_folder else "no program of that name on PATH"
        raise CommandNotFoundError(f"cannot run {_redact(program)!r}: {missing}{_suggest(argv)}")


def _explain_refusal(path: Path) -> str:
    """Return why a file cannot be executed; empty if no reason is found."""
    if path.is_dir():
        return "it is a folder"
    interpreter = _INTERPRETERS.get(path.suffix, "")
    suggestion = f"did you mean `{interpreter} {path}`?"
    if not os.access(path, os.X_OK):
        return f"it is not executable ({suggestion if interpreter else 'use chmod +x, or name the interpreter first'})"
    if interpreter == _PYTHON:
        with suppress(OSError), path.open("rb") as file:  # a file may be executable but not readable
            if file.read(2) != b"#!":
                return f"it has no `#!` line, so a shell would run it; {suggestion}"
    return ""


def _suggest(argv: Sequence[str]) -> str:
    """Return a suggestion for a program that does not exist; empty if there is none."""
    program = argv[0]
    if program.rstrip(",").lower() in METRICS:
        return f"; to record several metrics, write them as one word: -t rss,{program.lower()}"
    if program.lower() in {"ms", "s", "sec", "min"}:
        return f"; write a time as one word: 100{program.lower()}"
    if program == "help":
        return "; `nncf-tools COMMAND --help` shows the help of a command"
    if os.path.isfile(program):  # noqa: PTH113 — a name may be too long
        interpreter = _INTERPRETERS.get(Path(program).suffix)
        return f"; did you mean `{interpreter} {program}`?" if interpreter else f"; did you mean `./{program}`?"
    names = {file.name for file in options.find_on_path(program[:1])}
    near = nearest(program, sorted(names))
    return f"; did you mean `{near}`?" if near else ""


def _redact(text: str) -> str:
    """Return a mistyped command for a message, with secrets hidden: it may begin with ``HF_TOKEN=...``."""
    return Redaction().text(text)


def make_plan(columns: Sequence[str], request: Request) -> Plan:
    """Return the plan (the settings of the sampler) for a recording. Raises UsageError."""
    from nncftools.sampler import client

    limit = _make_limit(request)
    redact = _list_redactions(request)
    _check_seconds("--interval", request.interval, _SHORTEST_INTERVAL_S)
    if request.duration is not None:
        _check_seconds("--duration", request.duration, 0)
    return Plan(
        columns if limit is None or "rss" in columns else ["rss", *columns],
        pid=request.pid,
        interval_s=request.interval,
        duration_s=request.duration,
        children=not request.no_children,
        wait_all=request.wait_all,
        per_process=request.per_process,
        source=client.platform_source(),
        limit=limit,
        redact=redact,
    )


def _check_seconds(option: str, seconds: float, shortest: float) -> None:
    if not (math.isfinite(seconds) and shortest <= seconds <= _LONGEST_S):
        expected = f"a number of seconds from {shortest:g} to a year expected"
        raise UsageError(f"option {option}: {expected}, found {seconds:g}")


def _make_limit(request: Request) -> MemoryLimit | None:
    if request.on_limit not in options.ACTIONS:
        raise UsageError(f"option --on-limit: {not_one_of(request.on_limit, options.ACTIONS)}")
    if request.max_memory is not None:
        return {"rss": request.max_memory, "action": request.on_limit}
    if request.on_limit != options.ACTIONS[0]:
        raise UsageError("option --on-limit: only with --max-memory")
    return None


def _list_redactions(request: Request) -> list[str] | None:
    """Return patterns for texts to hide in addition to likely secrets.

    None means that nothing is hidden, not even likely secrets. Raises UsageError.
    """
    options.compile_patterns("--redact", request.redact)
    if request.no_redact and request.redact:
        raise UsageError("option --redact: either --redact or --no-redact, not both")
    return None if request.no_redact else request.redact or []


def watch_disks(plan: Plan, argv: Sequence[str], output: Path) -> None:
    """Add to the plan the file systems that the command, or the recording in ``output``, may fill.

    The sampler records the free space of these file systems.
    """
    from nncftools.limits.needs import file_systems

    if argv and plan.source == "proc":
        plan.file_systems = [list(pair) for pair in file_systems(argv, output)]
        plan.columns += filter(is_room, METRICS)


def stack_access(request: Request, *, default: bool) -> StackAccess | None:
    """Return how stacks and mappings can be read; None if no stacks are wanted.

    Raises UsageError if --stacks is given and this machine does not allow stacks.
    """
    takes_stacks = default if request.stacks is None else request.stacks
    if not takes_stacks:
        return None
    from nncftools.sampler.client import platform_source
    from nncftools.snapshots import client

    if platform_source() != "proc":
        if request.stacks:
            raise UsageError("option --stacks: only on Linux")
        return None
    access = client.stack_access(with_hook=default)
    if request.stacks and not access.is_allowed:
        raise UsageError(f"option --stacks: {access.missing}")
    return access


def choose_columns(request: Request, default: Sequence[str] = options.DEFAULT_TYPES) -> tuple[list[str], list[str]]:
    """Return the memory metrics to show, and all metrics to record.

    Raises NncfToolsError if this machine cannot record a wanted metric.
    """
    refuse_to_record()
    from nncftools.sampler import client

    client.check()
    offers = client.list_offers()
    for typed in options.split_types(request.types or ()):
        name = DEVICE_MEMORY if typed == DEVICE else typed
        if is_memory(name):
            reason = offers[name].missing if name in offers else "not on this platform"
            if reason:
                raise UsageError(f"option --type: {typed!r} is not available here: {reason}")
    available = [name for name, offer in offers.items() if not offer.missing]
    memory = [name for name in MEMORY if name in available]
    shown = options.memory_types(request.types, memory, default)
    return shown, [*shown, *(name for name in recorded_with(shown) if name in available)]


_OUR_OPTIONS = ("--live", "--open", "--stacks", "--no-stacks", "--mark-call", "--mark-on", "--max-memory", "--capture")
"""Options of nncf-tools that few other programs have."""


def name_late_options(argv: Sequence[str]) -> None:
    """Print a note if options of nncf-tools come after the command: the command gets these options."""
    late = [word for word in argv[1:] if word.partition("=")[0] in _OUR_OPTIONS]
    if late:
        screen.message(f"note: the command gets {', '.join(late)}; an option of nncf-tools comes before the command")


def resolve_target(request: Request) -> list[str]:
    """Return the argument list to execute; empty for --pid. Raises NncfToolsError."""
    if request.pid is None:
        argv = arguments(request.words or [], shell=request.shell)
        if not argv:
            raise UsageError("argument COMMAND: missing; give a command to run, such as `python script.py`")
        check_executable(argv)
        return argv
    if request.words:
        raise UsageError("option --pid: either a command or --pid, not both")
    try:
        with suppress(PermissionError):
            os.kill(request.pid, 0)
    except (ProcessLookupError, OverflowError):
        raise NncfToolsError(f"option --pid: there is no process {request.pid}") from None
    return []


def check_required(text: str | None, argv: Sequence[str], output: Path, redact: Sequence[str] | None = ()) -> None:
    """Raise UsageError if there is less memory or disk space than the command needs.

    ``text`` is a size, or the path of an earlier session; ``output`` is the folder of the recording.
    """
    if text is None:
        return
    if not argv:
        raise UsageError("option --require: not with --pid")
    from nncftools.limits import needs

    required = _read_required(text, Redaction(redact).words(list(argv)))
    rooms = needs.rooms(required.disks, argv, output)
    missing = needs.shortage(required.memory, rooms, needs.available("/proc", os.getpid()))
    if missing:
        raise UsageError(f"option --require: {missing}")


def _read_required(text: str, words: Sequence[str]) -> Requirement:
    from nncftools.limits import needs

    try:
        return needs.Requirement(bytes_from(text), {})
    except ValueError as error:
        if not os.path.isfile(text):  # noqa: PTH113 — a name may be too long
            expected = "a size such as 12GiB or the file of a session expected"
            raise UsageError(f"option --require: {expected}, found {text!r}") from error
    from nncftools.analysis import forecast
    from nncftools.session.session import load

    earlier = forecast.loaded(Path(text)) or load(text)
    required = needs.of_forecast(earlier) if isinstance(earlier, forecast.Result) else needs.of_session(earlier)
    if required is None:
        raise UsageError(
            f"option --require: {text!r} does not say how much memory the command needs; record the command again"
        )
    if earlier.command != words:
        screen.message(f"option --require: {text!r} was recorded with a different command")
    if required.is_bound:
        more = f"the run in {text!r} was cut short: it needs more than {brief_size(required.memory)}"
        screen.message(f"option --require: {more}")
    return required
