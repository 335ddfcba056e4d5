"""The processes that mattered, in the text report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from nncftools.render.tables.cells import FIRST_COLUMN, table
from nncftools.text import printable, shortened
from nncftools.units import UNKNOWN, seconds_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from nncftools.session.model import Process, Session
    from nncftools.units import MemoryUnit

_SEVERAL = 2
_SHOWN = 5
_NAME = 28
_SHARE = 0.05
"""Of the largest process's memory, or of all CPU time: a process with less did not matter."""


def processes(session: Session, unit: MemoryUnit) -> Iterator[RenderableType]:
    """Yield a table of the processes that held or worked most, in the order of their starts; not of a single one."""
    shown = mattering(session.processes)
    if len(shown) < _SEVERAL:  # the summary has told of it
        return
    figures = table()
    figures.add_column("Process", min_width=FIRST_COLUMN, no_wrap=True)
    for heading in ("pid", "from", "to", f"Peak, {unit}", "CPU"):
        figures.add_column(heading, justify="right", no_wrap=True)
    for process in sorted(shown, key=lambda process: process.start_s or 0.0):
        figures.add_row(
            shortened(printable(process.name), _NAME) or "?",
            UNKNOWN if process.pid is None else str(process.pid),
            seconds_text(process.start_s),
            seconds_text(process.end_s),
            unit.text(peak_of(process) or None),
            seconds_text(process.cpu_s),
        )
    yield Text()
    yield figures


def mattering(processes: list[Process]) -> list[Process]:
    """Return those that held most memory or took most CPU time."""
    most = max(map(peak_of, processes), default=0)
    total_s = sum(process.cpu_s or 0.0 for process in processes)
    ranked = sorted(processes, key=lambda process: (peak_of(process), process.cpu_s or 0.0), reverse=True)
    busy = sorted(processes, key=lambda process: process.cpu_s or 0.0, reverse=True)[:_SHOWN]
    large = [process for process in ranked[:_SHOWN] if peak_of(process) >= most * _SHARE]
    working = [process for process in busy if (process.cpu_s or 0.0) >= total_s * _SHARE]
    return large + [process for process in working if process not in large][: max(0, _SHOWN - len(large))]


def peak_of(process: Process) -> int:
    """Return the most memory that is known of a process alone, in bytes, 0 for unknown."""
    return max(process.peak_rss or 0, process.high_water_mark or 0)
