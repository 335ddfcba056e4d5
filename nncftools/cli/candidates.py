"""What a shell offers at Tab instead of file names; see completions/."""

from __future__ import annotations

import contextlib
import os
import pathlib
from typing import TYPE_CHECKING

import typer

from nncftools.metrics import MEMORY, METRICS
from nncftools.units import MemoryUnit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MOST_SESSIONS = 10


def memory_types(incomplete: str) -> list[tuple[str, str]]:
    """Return the memory metrics with their meanings."""
    offered = {name: METRICS[name].meaning for name in MEMORY} | {"all": "all metrics that are available here"}
    before, comma, last = incomplete.rpartition(",")
    begun = f"{before}{comma}"
    return [(begun + name, meaning) for name, meaning in offered.items() if name.startswith(last.lower())]


def units(incomplete: str) -> list[str]:
    """Return the units of memory."""
    return beginning(incomplete, MemoryUnit)


def formats(incomplete: str) -> list[str]:
    """Return the formats of a report."""
    from nncftools.render.view import FORMATS

    return beginning(incomplete, FORMATS)


def importers(incomplete: str) -> list[str]:
    """Return the tools whose logs are read."""
    from nncftools.importers import IMPORTERS

    return beginning(incomplete, IMPORTERS)


def sessions(incomplete: str) -> list[str | tuple[str, str]]:
    """Return the words for the newest recordings, and the files beside; nothing where the shell offers files itself."""
    from nncftools.cli import destination, naming

    latest = naming.WORDS[0]
    if not latest.startswith(incomplete.partition("~")[0]):
        return []
    found = naming.in_order(destination.DEFAULT_LOG_DIR)[:_MOST_SESSIONS]
    names = [latest, *(f"{latest}~{number}" for number in range(1, len(found)))]
    words = [(name, path.parent.name) for name, path in zip(names, found, strict=False) if name.startswith(incomplete)]
    beside = sorted(path.name for path in pathlib.Path().iterdir() if path.name.startswith(incomplete))
    return [*words, *beside] if words else []


def beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    """Return the names that begin with what was typed, in any case."""
    return [str(name) for name in names if name.lower().startswith(incomplete.lower())]


def programs(context: typer.Context, incomplete: str) -> list[str]:
    """Return programs on PATH for the first word of a command; for later words and paths the shell offers files."""
    if context.params.get("words") or not incomplete or os.sep in incomplete:
        return []
    return sorted(set(_executables(incomplete)))


def _executables(beginning: str) -> Iterator[str]:
    for folder in os.get_exec_path():
        with (
            contextlib.suppress(OSError),
            os.scandir(folder or os.curdir) as files,
        ):  # the folder may be missing or unreadable
            for file in files:
                if file.name.startswith(beginning) and os.access(file, os.X_OK) and file.is_file():
                    yield file.name
