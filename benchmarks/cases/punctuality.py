"""How many of the samples that were asked for are taken."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.recording import Order, record
from benchmarks.table import Row, share
from benchmarks.tools import Tool, ToolError
from benchmarks.workloads import program

if TYPE_CHECKING:
    import pathlib

    from benchmarks.bench import Bench, Figures

_BOUND_S = 60
"""Of the busy loops."""


def measure(bench: Bench) -> list[Row]:
    """Measure many children, a short interval, and a short interval on a busy machine."""
    return [
        many(bench),
        _row(bench, children=10, interval_s=0.001, busy=False),
        _row(bench, children=10, interval_s=0.001, busy=True),
    ]


def many(bench: Bench) -> Row:
    """Measure many children."""
    return _row(bench, children=bench.scale.most_children, interval_s=0.01, busy=False)


def _row(bench: Bench, *, children: int, interval_s: float, busy: bool) -> Row:
    load = ", all cores busy" if busy else ""
    title = f"samples taken at {interval_s * 1000:.0f} ms, {children} children{load}"
    beside = program("busy", os.cpu_count(), _BOUND_S) if busy else ()
    order = Order(program("sleepers", children, bench.scale.long_s / 2), interval_s, beside=beside)
    return Row(title, bench.paired(title, partial(_measure, order=order)), "share", share)


def _measure(tool: Tool, folder: pathlib.Path, _number: int, *, order: Order) -> Figures:
    """Compare with the samples that fit between the first and the last; a first one off the grid makes it one more."""
    _, recording = record(tool, order, folder)
    if not recording.span_s:
        raise ToolError("took one sample")
    return {"share": min(1.0, (recording.samples - 1) * order.interval_s / recording.span_s)}
