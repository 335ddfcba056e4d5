"""A build-like storm of short-lived children: what it suffers, and what the tool makes of it."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING

from benchmarks import launch
from benchmarks.recording import Order, record
from benchmarks.table import Row, count, figure
from benchmarks.workloads import program

if TYPE_CHECKING:
    import pathlib

    from benchmarks.bench import Bench, Figures
    from benchmarks.tools import Tool

_INTERVAL_S = 0.01
_BOUND_S = 60


def measure(bench: Bench) -> list[Row]:
    """Measure the workload's own wall time, and whether there is a result."""
    title = f"{bench.scale.storm:,} short-lived children"
    results = bench.paired(title, partial(_measure, children=bench.scale.storm), bench.wall_runs)
    return [
        Row(f"{title}: wall time, times that without a tool", results, "slow_down", figure),
        Row(f"{title}: a result is there", results, "alive", count),
        Row(f"{title}: processes in it, of {bench.scale.storm + 1:,}", results, "processes", figure),
    ]


def _measure(tool: Tool, folder: pathlib.Path, _number: int, *, children: int) -> Figures:
    """Run the storm alone, then recorded."""
    taken = folder / "taken"
    words = program("storm", taken, shutil.which("true"), children)
    launch.run(words, folder, _BOUND_S)
    alone_s = float(taken.read_text(encoding="ascii"))
    _, recording = record(tool, Order(words, _INTERVAL_S), folder)
    recorded_s = float(taken.read_text(encoding="ascii"))
    return {"slow_down": recorded_s / alone_s, "alive": 1, "processes": recording.processes}
