"""Options that several subcommands share, and checks of their values."""

from __future__ import annotations

import contextlib
import math
import pathlib
import re
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from nncftools import bounds
from nncftools.cli import candidates
from nncftools.errors import NncfToolsError, SessionFileError, UsageError
from nncftools.metrics import MEMORY, columns_of
from nncftools.units import MemoryUnit, size_from

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

SOURCES = ("proc", "psutil")
DEFAULT_SOURCE = "proc" if sys.platform == "linux" else "psutil"
ALL = "all"
DEFAULT_TYPES = ("rss", "system")
SHORTEST_INTERVAL_S = 0.001
LONGEST_S = 366 * 24 * 3600.0
DEFAULT_LOG_DIR = pathlib.Path("memory_logs")
DEFAULT_MAX_SAMPLES = 1_000_000
DEFAULT_PSS_BUDGET = "1%"
DEFAULT_STACKS_BUDGET = "1%"
_LARGEST_BUDGET = 50.0

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="COMMAND [ARGUMENT]",
        show_default=False,
        autocompletion=candidates.programs,
        help="The command and its arguments; it keeps terminal, folder and environment.",
    ),
]
Interval = Annotated[float, typer.Option("--interval", "-i", metavar="SECONDS", help="Time between samples.")]
Output = Annotated[
    pathlib.Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write only the session, to this file (.json or .json.gz)."),
]
LogDir = Annotated[
    pathlib.Path,
    typer.Option("--log-dir", metavar="DIR", help="Make a new folder with session, logs and pictures in DIR."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no summary.")]
Name = Annotated[str, typer.Option("--name", metavar="TEXT", help="A name for the run.")]
NoChildren = Annotated[bool, typer.Option("--no-children", help="Leave out descendants.")]
WaitAll = Annotated[bool, typer.Option("--wait-all", help="Record until the last descendant has ended.")]
PerProcess = Annotated[bool, typer.Option("--per-process", help="Keep each process's RSS over time.")]
MaxSamples = Annotated[
    int,
    typer.Option(
        "--max-samples",
        min=100,
        metavar="N",
        help="Beyond this number, merge neighbouring samples; minimum and maximum are kept.",
    ),
]
Depth = Annotated[int, typer.Option("--depth", min=1, metavar="N", help="Levels of operations to show.")]
Shell = Annotated[bool, typer.Option("--shell", help="Run one quoted string through the shell.")]

Live = Annotated[bool, typer.Option("--live", help="Show memory, CPU and operations while the command runs.")]
Capture = Annotated[
    pathlib.Path | None,
    typer.Option("--capture", metavar="FILE", help="With --live: write the command's output to this file instead."),
]

Types = Annotated[
    list[str] | None,
    typer.Option(
        "--type",
        "-t",
        metavar="METRIC",
        autocompletion=candidates.memory_types,
        help=f"Memory to show: {', '.join(MEMORY)}, or all; repeatable. Default: {', '.join(DEFAULT_TYPES)}.",
    ),
]
PssBudget = Annotated[
    str,
    typer.Option(
        "--pss-budget",
        metavar="PERCENT",
        help="The share of the time that counting PSS and USS may take: more of it, more samples that know them.",
    ),
]
Stacks = Annotated[
    bool | None,
    typer.Option(
        "--stacks/--no-stacks",
        help="See which code and which files hold the memory: by py-spy, from outside. Default: "
        "`profile` does where it can, `monitor` does not.",
    ),
]
StacksBudget = Annotated[
    str,
    typer.Option(
        "--stacks-budget",
        metavar="PERCENT",
        help="The share of one core that taking stacks may use; half a CPU second in any case.",
    ),
]
Unit = Annotated[
    MemoryUnit,
    typer.Option(
        "--unit", "-u", metavar="UNIT", case_sensitive=False, help=f"Unit of memory: {', '.join(MemoryUnit)}."
    ),
]
FromZero = Annotated[bool, typer.Option("--from-zero", help="Show memory relative to the first sample.")]
MaxSize = Annotated[
    str | None,
    typer.Option(
        "--max-size",
        metavar="SIZE",
        help=f"Read files up to this size, unpacked, and as many more operations and processes. Default: "
        f"{bounds.Limits().size >> 30}GiB.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]
Redact = Annotated[
    list[str] | None,
    typer.Option("--redact", metavar="REGEX", help="Besides likely secrets, hide matches of REGEX in command lines."),
]
NoRedact = Annotated[bool, typer.Option("--no-redact", help="Keep command lines unchanged.")]
Source = Annotated[
    str,
    typer.Option(
        "--source",
        metavar="|".join(SOURCES),
        help="Where figures come from: /proc (Linux) or psutil (macOS).",
    ),
]


@contextlib.contextmanager
def named(option: str) -> Iterator[None]:
    """Put the option's name before the message of an error; an error in a file keeps the name of the file."""
    try:
        yield
    except SessionFileError:
        raise
    except NncfToolsError as error:
        error.args = (f"option {option}: {error}",)
        raise


@contextlib.contextmanager
def reading(max_size: str | None) -> Iterator[None]:
    """Read files up to ``max_size``, None for the usual limits; the error of a file that is larger names the option.

    Raises UsageError for a size that is none.
    """
    try:
        size = None if max_size is None else size_from(max_size)[0]
    except ValueError as error:
        raise UsageError(f"option --max-size: {error}") from error
    with bounds.raised(size), mended(size="; to read it anyway, raise the limit with --max-size"):
        yield


@contextlib.contextmanager
def mended(**by: str) -> Iterator[None]:
    """Append to an error's message which option helps; ``by`` maps ``NncfToolsError.mended_by`` to the text."""
    try:
        yield
    except NncfToolsError as error:
        error.args = (f"{error}{by.get(error.mended_by, '')}",)
        raise


def memory_types(
    asked: Sequence[str] | None, available: Iterable[str], default: Sequence[str] = DEFAULT_TYPES
) -> list[str]:
    """Return the memory metrics to show, without duplicates. Raises UsageError for one that is not available."""
    here = list(available)
    if asked is None:
        return [name for name in default if name in here] or here
    for name in asked:
        if name != ALL and not columns_of([name], here):
            raise UsageError(f"option --type: {name!r} is not one of {', '.join((*here, ALL))}")
    return here if ALL in asked else columns_of(asked, here)


def checked_seconds(option: str, seconds: float, shortest: float) -> float:
    """Return ``seconds``. Raises UsageError unless it is a number from ``shortest`` to a year."""
    if not (math.isfinite(seconds) and shortest <= seconds <= LONGEST_S):
        raise UsageError(
            f"option {option}: a number of seconds from {shortest:g} to a year expected, found {seconds:g}"
        )
    return seconds


def share(option: str, budget: str) -> float:
    """Return the share of the time that a percentage means. Raises UsageError, which names ``option``."""
    with contextlib.suppress(ValueError):
        percent = float(budget.strip().removesuffix("%"))
        if 0 < percent <= _LARGEST_BUDGET:
            return percent / 100
    expected = f"a percentage above 0 and up to {_LARGEST_BUDGET:g} expected, such as 5%"
    raise UsageError(f"option {option}: {expected}, found {budget!r}")


def redaction(patterns: Sequence[str] | None, *, is_off: bool) -> list[str] | None:
    """Return the patterns to hide in addition to likely secrets, or None to hide nothing. Raises UsageError."""
    for pattern in patterns or ():
        try:
            re.compile(pattern)
        except re.error as error:
            raise UsageError(f"option --redact: {pattern!r} is not a regular expression: {error}") from error
    if is_off and patterns:
        raise UsageError("option --redact: either --redact or --no-redact, not both")
    return None if is_off else list(patterns or ())


def check_source(source: str) -> None:
    """Raise UsageError for an unknown source."""
    if source not in SOURCES:
        raise UsageError(f"option --source: {source!r} is not one of {', '.join(SOURCES)}")


def checked_capture(capture: pathlib.Path | None, *, live: bool, force: bool) -> pathlib.Path | None:
    """Return the file for the command's output. Raises UsageError if it cannot be written, or without a live view."""
    if capture is None:
        return None
    from nncftools.cli import destination

    if not live:
        raise UsageError("option --capture: only with --live and a command; without a view, use `> FILE`")
    return destination.written("--capture", capture, force=force)
