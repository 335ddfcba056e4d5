"""What a shell offers at Tab where a file name would not do; see completions/."""

from __future__ import annotations

import os
import pathlib
from typing import TYPE_CHECKING

import typer  # noqa: TC002 — Typer reads the types of completion functions at run time

from nncftools.metrics import MEMORY_METRICS, METRICS

if TYPE_CHECKING:
    from collections.abc import Iterator


def memory_types(incomplete: str) -> list[tuple[str, str]]:
    """Return the memory metrics, and what they mean."""
    offered = {name: METRICS[name].meaning for name in MEMORY_METRICS} | {"all": "everything that is available here"}
    return [(name, meaning) for name, meaning in offered.items() if name.startswith(incomplete)]


def programs(context: typer.Context, incomplete: str) -> list[str]:
    """Return the programs on PATH for the first word of a command; beyond it, and with a folder, files do."""
    if context.params.get("words") or not incomplete or os.sep in incomplete:
        return []
    return sorted(set(_executables(incomplete)))


def _executables(beginning: str) -> Iterator[str]:
    for folder in os.get_exec_path():
        for path in pathlib.Path(folder).glob(f"{beginning}*"):
            if os.access(path, os.X_OK) and path.is_file():
                yield path.name
