"""Resident memory of the tools."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.recording import Order, record
from benchmarks.table import Row, cost
from benchmarks.workloads import program

if TYPE_CHECKING:
    import pathlib

    from benchmarks.bench import Bench, Figures
    from benchmarks.tools import Tool

_INTERVAL_S = 0.01
_CHILDREN = 10


def measure(bench: Bench) -> list[Row]:
    """Measure high-water marks while ten sleeping children are sampled."""
    title = f"resident memory, {_CHILDREN} children"
    order = Order(program("sleepers", _CHILDREN, bench.scale.long_s / 2), _INTERVAL_S)
    results = bench.paired(title, partial(_measure, order=order))
    return [
        Row("MiB resident, the process that samples", results, "sampling", cost),
        Row("MiB resident, the tool's largest process", results, "largest", cost),
    ]


def _measure(tool: Tool, folder: pathlib.Path, _number: int, *, order: Order) -> Figures:
    """Take the largest process that was waited for: the workload's are smaller than any tool."""
    spent, recording = record(tool, order, folder)
    return {"sampling": (recording.sampler_rss or spent.max_rss) / 2**20, "largest": spent.max_rss / 2**20}
