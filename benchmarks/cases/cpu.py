"""CPU time of sampling."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks import floor
from benchmarks.recording import Order, record
from benchmarks.table import Row, cost, figure
from benchmarks.tools import Tool, ToolError
from benchmarks.workloads import program

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Sequence

    from benchmarks.bench import Bench, Figures
    from benchmarks.scale import Scale

_INTERVAL_S = 0.01
_FLOOR = "CPU s per 1,000 wake-ups of a loop that only sleeps, beside each tool"
_WAKE_UPS = 100
_BOUND_S = 120
"""Time limit of the background processes, in seconds."""


def alone(bench: Bench) -> list[Row]:
    """Measure trees of several sizes, and beside the first what no sampling can be cheaper than."""
    rows = [_row(bench, children, 0) for children in bench.scale.children]
    return [Row(_FLOOR, rows[0].results, "floor_s", figure), *rows]


def in_a_crowd(bench: Bench) -> list[Row]:
    """Measure the same on a machine where many other processes sleep."""
    return [_row(bench, children, bench.scale.crowd) for children in bench.scale.crowd_children]


def _row(bench: Bench, children: int, crowd: int) -> Row:
    others = f", {crowd} unrelated processes beside" if crowd else ""
    title = f"CPU s per 1,000 samples, {children} {'child' if children == 1 else 'children'}{others}"
    results = bench.paired(title, partial(_measure, children=children, crowd=crowd, scale=bench.scale))
    return Row(title, results, "cpu_s", cost)


def _measure(tool: Tool, folder: pathlib.Path, _number: int, *, children: int, crowd: int, scale: Scale) -> Figures:
    """Subtract a short run from a long one: start-up and the workload's own CPU time cancel out."""
    beside = program("sleepers", crowd, _BOUND_S) if crowd else ()
    floor_s, _ = floor.slept(_INTERVAL_S, _WAKE_UPS)
    short_s, few = _run(tool, folder / "short", program("sleepers", children, scale.short_s), beside)
    long_s, many = _run(tool, folder / "long", program("sleepers", children, scale.long_s), beside)
    if many <= few:
        raise ToolError(f"took {few} samples in {scale.short_s} s and {many} in {scale.long_s} s")
    return {"cpu_s": (long_s - short_s) / (many - few) * 1000, "floor_s": floor_s}


def _run(tool: Tool, folder: pathlib.Path, words: Sequence[str], beside: Sequence[str]) -> tuple[float, int]:
    """Return CPU time and number of samples."""
    folder.mkdir()
    spent, recording = record(tool, Order(words, _INTERVAL_S, beside=beside), folder)
    return spent.cpu_s, recording.samples
