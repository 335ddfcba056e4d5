"""What a recording adds to a command that does nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import launch, recording
from benchmarks.table import Row, cost
from benchmarks.tools import Tool, ToolError

if TYPE_CHECKING:
    import pathlib

    from benchmarks.bench import Bench, Figures

_ORDER = recording.Order(["true"], 0.1)
_BOUND_S = 10


def measure(bench: Bench) -> list[Row]:
    """Measure wall time and CPU time."""
    results = bench.paired("added to `true`", _measure, bench.wall_runs)
    return [
        Row("ms wall time added to `true`", results, "wall_ms", cost),
        Row("ms CPU time added to `true`", results, "cpu_ms", cost),
    ]


def _measure(tool: Tool, folder: pathlib.Path, _number: int) -> Figures:
    """Subtract ``true`` alone, just before."""
    if tool.attaches:
        raise ToolError("attaches to a process, starts none")
    alone = launch.run(_ORDER.words, folder, _BOUND_S)
    spent = recording.run(tool, _ORDER, folder)
    return {"wall_ms": (spent.wall_s - alone.wall_s) * 1000, "cpu_ms": (spent.cpu_s - alone.cpu_s) * 1000}
