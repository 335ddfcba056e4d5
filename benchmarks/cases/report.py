"""Drawing a long recording."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks import launch
from benchmarks.recording import Order, record
from benchmarks.table import Row, cost
from benchmarks.workloads import program

if TYPE_CHECKING:
    import pathlib

    from benchmarks.bench import Bench, Figures
    from benchmarks.scale import Scale
    from benchmarks.tools import Tool

_ORDER = Order(program("sleepers", 0, 1), 0.05)
_SMALL_S = 60
"""Bound of drawing a small recording."""


def measure(bench: Bench) -> list[Row]:
    """Measure CPU time and memory."""
    title = f"{bench.scale.samples:,} samples drawn"
    results = bench.paired(title, partial(_measure, scale=bench.scale))
    return [Row(f"{title}, CPU s", results, "cpu_s", cost), Row(f"{title}, MiB resident", results, "mebibytes", cost)]


def _measure(tool: Tool, folder: pathlib.Path, _number: int, *, scale: Scale) -> Figures:
    """Record a second and draw it, which fills the caches; then make the recording long and draw it again."""
    words = tool.draw(folder)
    record(tool, _ORDER, folder)
    launch.run(words, folder, _SMALL_S)
    tool.grow(folder, scale.samples)
    spent = launch.run(words, folder, scale.drawing_s)
    return {"cpu_s": spent.cpu_s, "mebibytes": spent.max_rss / 2**20}
