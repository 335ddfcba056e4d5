"""What a shell offers at Tab where a file name would not do; see completions/."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import typer  # noqa: TC002 — Typer reads the types of completion functions at run time

from nncftools.metrics import MEMORY, METRICS

if TYPE_CHECKING:
    from collections.abc import Iterator


def memory_types(incomplete: str) -> list[tuple[str, str]]:
    """Return the memory metrics, and what they mean."""
    offered = {name: METRICS[name].meaning for name in MEMORY} | {"all": "everything that is available here"}
    return [(name, meaning) for name, meaning in offered.items() if name.startswith(incomplete)]


def programs(context: typer.Context, incomplete: str) -> list[str]:
    """Return the programs on PATH for the first word of a command; beyond it, and with a folder, files do."""
    if context.params.get("words") or not incomplete or os.sep in incomplete:
        return []
    return sorted(set(_executables(incomplete)))


def _executables(beginning: str) -> Iterator[str]:
    for folder in os.get_exec_path():
        with (
            contextlib.suppress(OSError),
            os.scandir(folder or os.curdir) as files,
        ):  # it may be gone, or another user's
            for file in files:
                if file.name.startswith(beginning) and os.access(file, os.X_OK) and file.is_file():
                    yield file.name
