"""The report for a terminal, readable at 80 columns and without colour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from nncftools.analysis.hints import hints
from nncftools.analysis.summary import Level, level
from nncftools.render.tables import facts
from nncftools.render.tables.cells import FIRST_COLUMN, signed, table
from nncftools.render.tables.operations_text import operations
from nncftools.render.tables.processes import processes
from nncftools.render.tables.ranks import ranks
from nncftools.render.view import View, command_text, label
from nncftools.text import printable, shortened
from nncftools.units import MemoryUnit, seconds_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from nncftools.session.model import Session

_TITLE = 200
_UNBOUNDED = 10_000
_HEADINGS = ("Peak", "at", "Final", "Delta", "Average", "Min")


def report(session: Session, view: View) -> RenderableType:
    """Return the report as something that a Rich console prints."""
    return Group(
        Text("PERFORMANCE REPORT", style="bold"),
        Text(printable(view.title) or shortened(command_text(session), _TITLE)),
        Text(facts.run(session), style="dim"),
        Text(),
        *_peak(session, view),
        _Memory(session, view),
        Text(),
        *_ranks(session, view.unit),
        *operations(session, view),
        _facts(session, view.unit),
        *processes(session, view.unit),
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

    def __init__(self, session: Session, view: View) -> None:
        self._view = view
        self._levels = [(label(name), level(session.samples, name, session.peaks)) for name in view.metrics]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = self._rows()
        unbounded = options.update(max_width=_UNBOUNDED)
        yield rows if console.measure(rows, options=unbounded).maximum <= options.max_width else self._blocks()

    def _rows(self) -> Table:
        view = self._view
        rows = _table(view)
        for heading in _HEADINGS:
            rows.add_column(heading, justify="right", min_width=7, no_wrap=True)
        for name, absolute in self._levels:
            if not view.from_zero:
                rows.add_row(name, *_cells(absolute, view.unit))
            rows.add_row(
                f"{name} from zero" if view.from_zero else "  from zero",
                *_cells(absolute.from_zero(), view.unit),
                style="" if view.from_zero else "dim",
            )
        return rows

    def _blocks(self) -> Table:
        view = self._view
        blocks = _table(view)
        if not view.from_zero:
            blocks.add_column("absolute", justify="right", no_wrap=True)
        blocks.add_column("from zero", justify="right", no_wrap=True)
        for name, absolute in self._levels:
            shown = [absolute.from_zero()] if view.from_zero else [absolute, absolute.from_zero()]
            blocks.add_row(name)
            for heading, *cells in zip(_HEADINGS, *(_cells(of, view.unit) for of in shown), strict=True):
                blocks.add_row(f"  {heading}", *cells)
        return blocks


def _table(view: View) -> Table:
    rows = table()
    rows.add_column(f"Memory, {view.unit}", min_width=FIRST_COLUMN, no_wrap=True)
    return rows


def _ranks(session: Session, unit: MemoryUnit) -> Iterator[RenderableType]:
    """Yield what each part of a job did, when several were put together."""
    found = ranks(session, unit)
    if found is None:
        return
    rows = table()
    for place, heading in enumerate(found.headings):
        is_text = place < found.texts
        rows.add_column(heading, justify="left" if is_text else "right", no_wrap=not is_text, overflow="fold")
    rows.add_column(no_wrap=True)
    for place, cells in enumerate(found.rows):
        is_worst = place == found.worst
        rows.add_row(*cells, "<- largest" if is_worst else "", style="bold" if is_worst else "")
    yield rows
    yield Text()


def _cells(of: Level, unit: MemoryUnit) -> Iterator[Text]:
    yield Text(unit.text(of.peak), style="bold")
    yield Text(seconds_text(of.at_s))
    yield Text(unit.text(of.final))
    yield Text(signed(of.delta, unit))
    yield Text(unit.text(of.average))
    yield Text(unit.text(of.lowest))


def _facts(session: Session, unit: MemoryUnit) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(min_width=FIRST_COLUMN, no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in facts.facts(session, unit):
        table.add_row(name, Text(text))
    return table


def _warnings(session: Session, unit: MemoryUnit) -> Iterator[RenderableType]:
    found = hints(session, unit)
    if found:
        yield Text()
    for text in found:
        yield Padding(Text(f"! {printable(text)}", style="yellow"), 0)
