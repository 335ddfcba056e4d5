"""Paints tables for a terminal, by Rich."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table as Grid
from rich.text import Text

from nncftools.render.tables.table import Output, Table, Words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console, ConsoleOptions, RenderResult

    from nncftools.render.tables.table import Cell
    from nncftools.units import MemoryUnit

FIRST_COLUMN = 12
_UNBOUNDED = 10_000


def grid() -> Grid:
    """Return an empty table without lines."""
    return Grid(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")


def painted(table: Table, *, widths: Sequence[int] = (), unit: MemoryUnit | None = None, folds: bool = False) -> Grid:
    """Return a table as Rich prints it.

    The columns are at least as wide as ``widths``, as far as these go. The head tells ``unit``, in which sizes
    without one of their own are. With ``folds``, texts are broken into lines where there is no room.
    """
    of = table.of(Output.TEXT)
    drawn = grid()
    headings = of.headings("\n", has_units=unit is None)
    lines = max((heading.count("\n") for heading in headings), default=0)
    for place, (column, heading) in enumerate(zip(of.columns, headings, strict=True)):
        drawn.add_column(
            "\n" * (lines - heading.count("\n")) + heading,
            justify="left" if column.is_text else "right",
            min_width=widths[place] if place < len(widths) else None,
            no_wrap=not (folds and column.is_text),
            overflow="fold" if folds else "ellipsis",
        )
    has_notes = any(row.note for row in of.rows)
    if has_notes:
        drawn.add_column(no_wrap=True)
    for row in of.rows:
        cells = [_painted(cell, unit) for cell in row.cells]
        notes = [Text(row.note)] if has_notes else []
        drawn.add_row(*cells, *notes, style="bold" if row.note else "dim" if row.is_faint else "")
    return drawn


def _painted(cell: Cell, unit: MemoryUnit | None) -> Text:
    text = Text(cell.shown(unit), style="bold" if cell.is_strong else "")
    if isinstance(cell, Words) and cell.below:
        text.append(f"\n{cell.below}", style="not bold dim")
    return text


class Fitting:
    """A table of figures that is too wide for a console goes on below, groups of columns kept together."""

    def __init__(self, table: Table, unit: MemoryUnit) -> None:
        """Paint sizes without a unit of their own in ``unit``."""
        self._table = table.of(Output.TEXT)
        self._unit = unit

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        parts = [[0]]
        for group in _groups(self._table):
            wider = self._part([*parts[-1], *group])
            if len(parts[-1]) > 1 and not fits(wider, console, options):
                parts.append([0])
            parts[-1] += group
        for number, places in enumerate(parts):
            if number:
                yield Text()
            yield self._part(places)

    def _part(self, places: Sequence[int]) -> Grid:
        return painted(self._table.with_columns(places), unit=self._unit)


def _groups(table: Table) -> list[list[int]]:
    """Return the places of the columns after the first, those of one group together."""
    groups: list[list[int]] = []
    for place, column in enumerate(table.columns[1:], start=1):
        is_next = groups and column.group and table.columns[place - 1].group == column.group
        if is_next:
            groups[-1].append(place)
        else:
            groups.append([place])
    return groups


def fits(drawn: Grid, console: Console, options: ConsoleOptions) -> bool:
    """Return whether nothing of a table has to be cut."""
    unbounded = options.update(max_width=_UNBOUNDED)
    return console.measure(drawn, options=unbounded).maximum <= options.max_width
