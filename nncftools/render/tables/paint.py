"""Formats tables for a terminal with Rich."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from nncftools.render.tables.table import Output, Table
from nncftools.units import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from nncftools.render.tables.table import Cell
    from nncftools.units import MemoryUnit

FIRST_COLUMN = 12


def grid(*, gap: int = 1, has_header: bool = True) -> Grid:
    """Return an empty table without lines."""
    padding = (0, gap, 0, 0)
    return Grid(box=None, pad_edge=False, padding=padding, header_style="bold", show_header=has_header)


def pairs(rows: Iterable[tuple[str, Text]], min_width: int = 0) -> Grid:
    """Return names and their texts side by side; a long text is wrapped."""
    result = grid(gap=2, has_header=False)
    result.add_column(min_width=min_width, no_wrap=True)
    result.add_column(overflow="fold")
    for name, text in rows:
        result.add_row(Text(name), text)
    return result


def warnings(texts: Iterable[str]) -> Iterator[RenderableType]:
    """Yield warnings, each in its own lines."""
    for text in texts:
        yield Padding(Text(f"! {printable(text)}", style="yellow"), 0)


def painted(
    table: Table,
    *,
    widths: Sequence[int] = (),
    unit: MemoryUnit | None = None,
    folds: bool = False,
    has_header: bool = True,
) -> Grid:
    """Return a table for Rich to print.

    ``widths`` are the smallest widths of the first columns. ``unit`` is the one of all sizes that have none of their
    own; the heading names it. With ``folds``, texts are wrapped where there is no room.
    """
    of = table.of(Output.TEXT)
    result = grid(has_header=has_header)
    headings = of.headings("\n", has_units=unit is None)
    lines = max((heading.count("\n") for heading in headings), default=0)
    for place, (column, heading) in enumerate(zip(of.columns, headings, strict=True)):
        result.add_column(
            "\n" * (lines - heading.count("\n")) + heading,
            justify="left" if column.is_text else "right",
            min_width=widths[place] if place < len(widths) else None,
            no_wrap=not (folds and column.is_text),
            overflow="fold" if folds else "ellipsis",
        )
    has_notes = any(row.note for row in of.rows)
    if has_notes:
        result.add_column(no_wrap=True)
    for row in of.rows:
        cells = [_painted(cell, unit) for cell in row.cells]
        notes = [Text(row.note)] if has_notes else []
        result.add_row(*cells, *notes, style="bold" if row.note else "dim" if row.is_faint else "")
    return result


def _painted(cell: Cell, unit: MemoryUnit | None) -> Text:
    text = Text(cell.shown(unit), style="bold" if cell.is_strong else "")
    return text.append(f"\n{cell.below}", style="not bold dim") if cell.below else text


class Fitting:
    """A table whose columns continue below when the console is too narrow; groups of columns stay together."""

    def __init__(self, table: Table, unit: MemoryUnit | None = None) -> None:
        """Show sizes that have no unit of their own in ``unit``; None when all have one."""
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
    """Return the places of the columns after the first, grouped."""
    groups: list[list[int]] = []
    for place, column in enumerate(table.columns[1:], start=1):
        if groups and column.group and table.columns[place - 1].group == column.group:
            groups[-1].append(place)
        else:
            groups.append([place])
    return groups


def fits(of: Grid, console: Console, options: ConsoleOptions) -> bool:
    """Return whether a table fits without being cut."""
    unbounded = options.update(max_width=10_000)
    return console.measure(of, options=unbounded).maximum <= options.max_width
