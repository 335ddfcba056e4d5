"""The table of processes: the tree, or the few that held or worked most."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nncftools.render.tables.table import Column, Row, Seconds, Size, Table, Words
from nncftools.text import printable, shortened
from nncftools.units import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nncftools.session.model import Process
    from nncftools.session.session import Session
    from nncftools.units import MemoryUnit

_SHOWN = 5
_SHARE = 0.05
"""Of the largest process's memory, or of all CPU time: a process with less did not matter."""
_MOST = 300
_NAME, _SHORT_NAME, _COMMAND = 80, 28, 400


def processes(session: Session, unit: MemoryUnit) -> Table:
    """Return the tree of processes, parents above their children; of very many, those that held or worked most."""
    kept = _kept(session.processes)
    left = len(session.processes) - len(kept)
    return _table(list(_tree(kept)), unit, f"and {left:,} smaller ones" if left else "")


def few_processes(session: Session, unit: MemoryUnit) -> Table:
    """Return the processes that held or worked most, in the order of their starts."""
    shown = sorted(mattering(session.processes), key=lambda process: process.start_s or 0.0)
    return _table([(process, 0) for process in shown], unit, name=_SHORT_NAME)


def _table(shown: Sequence[tuple[Process, int]], unit: MemoryUnit, more: str = "", *, name: int = _NAME) -> Table:
    columns = [Column("Process", is_text=True), *map(Column, ("pid", "from", "to", f"Peak, {unit}", "CPU"))]
    return Table(columns=columns, rows=[_row(process, depth, unit, name) for process, depth in shown], more=more)


def _row(process: Process, depth: int, unit: MemoryUnit, name: int) -> Row:
    cells = (
        Words(shortened(printable(process.name), name) or "?"),
        Words(UNKNOWN if process.pid is None else f"{process.pid}"),
        Seconds(process.start_s),
        Seconds(process.end_s),
        Size(peak_of(process) or None, unit),
        Seconds(process.cpu_s),
    )
    return Row(cells=cells, depth=depth, details=shortened(printable(" ".join(process.command)), _COMMAND))


def mattering(processes: list[Process]) -> list[Process]:
    """Return those that held most memory or took most CPU time."""
    most = max(map(peak_of, processes), default=0)
    total_s = sum(process.cpu_s or 0.0 for process in processes)
    ranked = _ranked(processes)
    busy = sorted(processes, key=lambda process: process.cpu_s or 0.0, reverse=True)[:_SHOWN]
    large = [process for process in ranked[:_SHOWN] if peak_of(process) >= most * _SHARE]
    working = [process for process in busy if (process.cpu_s or 0.0) >= total_s * _SHARE]
    return large + [process for process in working if process not in large][: max(0, _SHOWN - len(large))]


def peak_of(process: Process) -> int:
    """Return the most memory that is known of a process alone, in bytes, 0 for unknown."""
    return max(process.peak_rss or 0, process.high_water_mark or 0)


def _ranked(processes: Sequence[Process]) -> list[Process]:
    return sorted(processes, key=lambda process: (peak_of(process), process.cpu_s or 0.0), reverse=True)


def _kept(every: Sequence[Process]) -> list[Process]:
    """Return those that mattered most, and the processes above them."""
    by_id = {process.id: process for process in every}
    wanted: set[int] = set()
    for process in _ranked(every)[:_MOST]:
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
