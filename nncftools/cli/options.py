"""Options that several subcommands share, and the checks of their values."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from nncftools.errors import UsageError
from nncftools.metrics import MEMORY_METRICS
from nncftools.units import MemoryUnit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SOURCES = ("proc", "psutil")
DEFAULT_SOURCE = "proc" if sys.platform == "linux" else "psutil"
ALL = "all"
DEFAULT_TYPES = ("rss", "system")
SHORTEST_INTERVAL_S = 0.001
LONGEST_S = 366 * 24 * 3600.0

Types = Annotated[
    list[str] | None,
    typer.Option(
        "--type",
        "-t",
        metavar="METRIC",
        help=f"Memory to show: {', '.join(MEMORY_METRICS)}, or all; repeatable. Default: {', '.join(DEFAULT_TYPES)}.",
    ),
]
Unit = Annotated[
    MemoryUnit,
    typer.Option(
        "--unit", "-u", metavar="UNIT", case_sensitive=False, help=f"Unit of memory: {', '.join(MemoryUnit)}."
    ),
]
FromZero = Annotated[bool, typer.Option("--from-zero", help="Show only what came on top of the first sample.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")]
Source = Annotated[
    str,
    typer.Option(
        "--source",
        metavar="|".join(SOURCES),
        help="Where figures come from: /proc (Linux), or psutil (macOS, Windows).",
    ),
]


def memory_types(asked: Sequence[str] | None, available: Iterable[str]) -> list[str]:
    """Return the memory metrics to show, each once; raise UsageError for one that is not available."""
    here = list(available)
    if asked is None:
        return [name for name in DEFAULT_TYPES if name in here] or here
    for name in asked:
        if name not in (*here, ALL):
            raise UsageError(f"option --type: {name!r} is not one of {', '.join((*here, ALL))}")
    return here if ALL in asked else list(dict.fromkeys(asked))


def checked_seconds(option: str, seconds: float, shortest: float) -> float:
    """Return ``seconds``; raise UsageError when it is not a number from ``shortest`` to a year."""
    if not (math.isfinite(seconds) and shortest <= seconds <= LONGEST_S):
        raise UsageError(
            f"option {option}: a number of seconds from {shortest:g} to a year expected, found {seconds:g}"
        )
    return seconds


def check_source(source: str) -> None:
    """Raise UsageError when there is no such source of figures."""
    if source not in SOURCES:
        raise UsageError(f"option --source: {source!r} is not one of {', '.join(SOURCES)}")
