"""Whether peaks are found: a spike between two samples, an orphan, memory that processes share."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.recording import Order, record
from benchmarks.table import Row, count, figure
from benchmarks.workloads import program

if TYPE_CHECKING:
    import pathlib

    from benchmarks.bench import Bench, Figures
    from benchmarks.tools import Tool

_INTERVAL_S = 0.1
_SPIKE_MIB = 60
_SPIKE_BETWEEN_S = (0.8, 2.7)
_TOLERANCE = 0.02
_LIFE_S = 3
_ORPHAN_MIB = 300
_ORPHAN_S = 2
_SHARED_MIB = 400
_COPIES = 4
_SHARED_S = 2


def spike(bench: Bench) -> list[Row]:
    """Spikes at random moments, the same for every tool."""
    title = f"peak within 2 % of the truth, {_SPIKE_MIB} MiB for 40 ms, sampled at 100 ms"
    return [Row(title, bench.paired(title, _spike, bench.scale.spikes), "found", count)]


def _spike(tool: Tool, folder: pathlib.Path, number: int) -> Figures:
    moment = random.Random(number).uniform(*_SPIKE_BETWEEN_S)  # noqa: S311 — not a secret
    truth = folder / "truth"
    order = Order(program("spike", truth, _SPIKE_MIB, moment, _LIFE_S), _INTERVAL_S)
    _, recording = record(tool, order, folder)
    real = int(truth.read_text(encoding="ascii"))
    return {"found": None if recording.peak is None else abs(recording.peak - real) <= real * _TOLERANCE}


def orphan(bench: Bench) -> list[Row]:
    """Record a daemon that holds most of the memory."""
    title = f"peak contains a daemon's {_ORPHAN_MIB} MiB"
    return [Row(title, bench.paired(title, _orphan), "found", count)]


def _orphan(tool: Tool, folder: pathlib.Path, _number: int) -> Figures:
    order = Order(program("orphan", _ORPHAN_MIB, _ORPHAN_S, _LIFE_S), _INTERVAL_S)
    _, recording = record(tool, order, folder)
    return {"found": None if recording.peak is None else recording.peak >= _ORPHAN_MIB * 2**20}


def shared(bench: Bench) -> list[Row]:
    """Record forked processes that share their parent's memory."""
    what = f"{_SHARED_MIB} MiB shared by {_COPIES + 1} processes"
    return [_shared_row(bench, f"MiB of {metric.upper()} at the peak, {what}", metric) for metric in ("rss", "pss")]


def _shared_row(bench: Bench, title: str, metric: str) -> Row:
    return Row(title, bench.paired(title, partial(_shared, metric=metric)), "peak", figure)


def _shared(tool: Tool, folder: pathlib.Path, _number: int, *, metric: str) -> Figures:
    order = Order(program("shared", _SHARED_MIB, _COPIES, _SHARED_S), _INTERVAL_S, metric)
    _, recording = record(tool, order, folder)
    return {"peak": None if recording.peak is None else recording.peak / 2**20}
