"""The tables of the page: operations, and the tree of processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nncftools.analysis.timeline import timeline
from nncftools.render.operations import operations
from nncftools.render.tables.cells import signed
from nncftools.render.tables.processes import peak_of
from nncftools.text import printable, shortened
from nncftools.units import UNKNOWN, seconds_text, size_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nncftools.render.operations import Operation
    from nncftools.render.view import View
    from nncftools.session.model import Process, Session
    from nncftools.units import MemoryUnit

_MOST_PHASES = 1000
_MOST_PROCESSES = 300
_NAME, _DETAILS, _COMMAND = 80, 120, 400


def phases(session: Session, view: View) -> dict[str, Any]:
    """Return the table of operations; of very many, the longest."""
    every = operations(timeline(session.phases, view.depth))
    longest = sorted(every, key=lambda operation: operation.phase.duration_s, reverse=True)[:_MOST_PHASES]
    shown = sorted(longest, key=lambda operation: operation.number)
    headings = ["#", "Operation", "Start", "Duration", f"RSS start\n{view.unit}", "end", "delta", "peak"]
    headings += ["Cores\nmean", "peak", "Storage\nread", "written", "Calls\nread", "written"]
    more = f"and {len(every) - len(shown):,} shorter ones" if len(every) > len(shown) else ""
    return {"headings": headings, "rows": [_phase(operation, view.unit) for operation in shown], "more": more}


def _phase(operation: Operation, unit: MemoryUnit) -> dict[str, Any]:
    phase = operation.phase
    return {
        "cells": [
            f"{operation.number}",
            shortened(operation.title, _NAME),
            seconds_text(phase.start_s),
            seconds_text(phase.duration_s),
            unit.text(phase.rss_start),
            unit.text(phase.rss_end),
            signed(phase.delta, unit),
            unit.text(phase.rss_peak),
            *(UNKNOWN if cores is None else f"{cores:.2f}" for cores in (phase.cpu_average, phase.cpu_peak)),
            *(size_text(size) for size in operation.figures),
        ],
        "details": shortened(operation.details, _DETAILS),
        "depth": phase.depth,
        "colour": operation.look.colour,
        "peak": phase.has_peak,
        "from_s": phase.start_s,
        "to_s": phase.end_s,
    }


def processes(session: Session, unit: MemoryUnit) -> dict[str, Any]:
    """Return the tree of processes, parents above their children; of very many, those that held or worked most."""
    kept = _kept(session.processes)
    rows = [_process(process, depth, unit) for process, depth in _tree(kept)]
    left = len(session.processes) - len(kept)
    headings = ["Process", "pid", "from", "to", f"Peak, {unit}", "CPU"]
    return {"headings": headings, "rows": rows, "more": f"and {left:,} smaller ones" if left else ""}


def _kept(every: Sequence[Process]) -> list[Process]:
    """Return those that mattered most, and the processes above them."""
    ranked = sorted(every, key=lambda process: (peak_of(process), process.cpu_s or 0.0), reverse=True)
    by_id = {process.id: process for process in every}
    wanted: set[int] = set()
    for process in ranked[:_MOST_PROCESSES]:
        above: Process | None = process
        while above is not None and above.id not in wanted:
            wanted.add(above.id)
            above = by_id.get(above.parent) if above.parent is not None else None
    return [process for process in every if process.id in wanted]


def _tree(every: Sequence[Process]) -> Iterator[tuple[Process, int]]:
    """Yield processes with their depth, children after their parent in the order of their starts."""
    by_id = {process.id for process in every}
    children: dict[int | None, list[Process]] = {}
    for process in sorted(every, key=lambda process: (process.start_s or 0.0, process.id), reverse=True):
        above = process.parent if process.parent in by_id and process.parent != process.id else None
        children.setdefault(above, []).append(process)
    waiting = [(process, 0) for process in children.pop(None, [])]
    while waiting:
        process, depth = waiting.pop()
        yield process, depth
        waiting += [(child, depth + 1) for child in children.pop(process.id, [])]


def _process(process: Process, depth: int, unit: MemoryUnit) -> dict[str, Any]:
    return {
        "cells": [
            shortened(printable(process.name), _NAME) or "?",
            UNKNOWN if process.pid is None else f"{process.pid}",
            seconds_text(process.start_s),
            seconds_text(process.end_s),
            unit.text(peak_of(process) or None),
            seconds_text(process.cpu_s),
        ],
        "depth": depth,
        "command": shortened(printable(" ".join(process.command)), _COMMAND),
    }
