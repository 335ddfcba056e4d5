"""The report for a terminal, readable at 80 columns and without colour."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from nncftools.analysis.hints import hints
from nncftools.render.tables import facts
from nncftools.render.tables.memory import memory
from nncftools.render.tables.operations import operations
from nncftools.render.tables.paint import FIRST_COLUMN, Fitting, fits, grid, painted
from nncftools.render.tables.processes import few_processes
from nncftools.render.tables.ranks import ranks
from nncftools.render.tables.table import Column, Output, Words
from nncftools.render.tables.timeline_text import timeline
from nncftools.render.view import View, command_text
from nncftools.text import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.table import Table as Grid

    from nncftools.render.tables.table import Table
    from nncftools.session.session import Session
    from nncftools.units import MemoryUnit

_TITLE = 200
_MANY = 60
"""Operations; of more the longest are shown."""
_FIGURE = 7
_SEVERAL = 2


def report(session: Session, view: View) -> RenderableType:
    """Return the report as something that a Rich console prints."""
    return Group(
        Text("PERFORMANCE REPORT", style="bold"),
        Text(printable(view.title) or shortened(command_text(session), _TITLE)),
        Text(facts.run(session), style="dim"),
        Text(),
        *_peak(session, view),
        _Memory(memory(session, view)),
        Text(),
        *_ranks(session, view.unit),
        *_operations(session, view),
        _facts(session, view.unit),
        *_processes(session, view.unit),
        *_warnings(session, view.unit),
    )


def _peak(session: Session, view: View) -> Iterator[RenderableType]:
    """Say how much, when, and during which operation, when that is to be shown."""
    peak = facts.peak(session, view)
    if peak is not None:
        most, at, during = peak
        text = Text(f"Peak memory  {most}", style="bold")
        text.append(f" {at}" if at else "", style="not bold")
        text.append(f"  {during}" if during else "")
        yield text
        yield Text()


class _Memory:
    """The table of memory: a row for each metric where that fits, else a block for each."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = painted(self._table, widths=[FIRST_COLUMN] + [_FIGURE] * (len(self._table.columns) - 1))
        yield rows if fits(rows, console, options) else self._blocks()

    def _blocks(self) -> Grid:
        name, *headings = self._table.headings("")
        blocks = grid()
        blocks.add_column(name, min_width=FIRST_COLUMN, no_wrap=True)
        rows = self._table.rows
        absolute = [place for place, row in enumerate(rows) if not row.is_faint]
        has_both = len(absolute) < len(rows)
        for heading in ("absolute", "from zero") if has_both else ("from zero",):
            blocks.add_column(heading, justify="right", no_wrap=True)
        for place in absolute:
            shown = rows[place : place + 2] if has_both else [rows[place]]
            blocks.add_row(shown[0].cells[0].shown())
            for number, heading in enumerate(headings, start=1):
                cells = [row.cells[number] for row in shown]
                texts = [Text(cell.shown(), style="bold" if cell.is_strong else "") for cell in cells]
                blocks.add_row(f"  {heading}", *texts)
        return blocks


def _ranks(session: Session, unit: MemoryUnit) -> Iterator[RenderableType]:
    table = ranks(session, unit)
    if table.rows:
        yield painted(table, folds=True)
        yield Text()


def _operations(session: Session, view: View) -> Iterator[RenderableType]:
    """Yield what was marked, as a timeline and as figures; nothing when nothing was."""
    table = operations(session, view, _MANY)
    if not table.rows:
        return
    yield Text("Operations", style="bold")
    yield from timeline(session, view, _MANY)
    yield Text()
    yield Fitting(_numbered(table.of(Output.TEXT), view.unit), view.unit)
    yield Text()


def _numbered(table: Table, unit: MemoryUnit) -> Table:
    """Return a table whose first column has the numbers of the timeline, and the unit above them."""
    rows = [replace(row, cells=[Words(f"{row.cells[0].shown()}."), *row.cells[1:]]) for row in table.rows]
    return replace(table, columns=[Column(f"{unit}"), *table.columns[1:]], rows=rows)


def _facts(session: Session, unit: MemoryUnit) -> Grid:
    drawn = grid()
    drawn.show_header = False
    drawn.padding = (0, 2, 0, 0)
    drawn.add_column(min_width=FIRST_COLUMN, no_wrap=True)
    drawn.add_column(overflow="fold")
    for row in facts.facts(session, unit).of(Output.TEXT).rows:
        drawn.add_row(*(Text(cell.shown()) for cell in row.cells))
    return drawn


def _processes(session: Session, unit: MemoryUnit) -> Iterator[RenderableType]:
    """Yield the processes that held or worked most; the summary has told of a single one."""
    table = few_processes(session, unit)
    if len(table.rows) >= _SEVERAL:
        yield Text()
        yield painted(table, widths=[FIRST_COLUMN])


def _warnings(session: Session, unit: MemoryUnit) -> Iterator[RenderableType]:
    found = hints(session, unit)
    if found:
        yield Text()
    for text in found:
        yield Padding(Text(f"! {printable(text)}", style="yellow"), 0)
