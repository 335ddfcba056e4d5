"""The comparison for a terminal, readable at 80 columns and without colour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from nncftools.render.tables.comparison import figures, notes, shown, sides, title_of
from nncftools.render.tables.paint import grid, painted
from nncftools.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType
    from rich.table import Table as Grid

    from nncftools.analysis.comparison import Comparison
    from nncftools.render.tables.table import Table
    from nncftools.units import MemoryUnit


def rendered(comparison: Comparison, unit: MemoryUnit) -> RenderableType:
    """Return the comparison as something that a Rich console prints."""
    operations, left_out = shown(comparison.operations)
    whole = figures(comparison, comparison.figures, unit)
    parts = [(title_of(one, comparison), figures(comparison, one.differences, unit)) for one in operations]
    widths = _widths([whole, *(table for _, table in parts)])
    return Group(
        Text("COMPARISON", style="bold"),
        _sides(comparison),
        Text(),
        painted(whole, widths=widths),
        *(piece for title, table in parts for piece in _operation(title, table, widths)),
        *([Text(f"\n… and {left_out:,} operations that changed less", style="dim")] if left_out else []),
        *_notes(comparison),
    )


def _sides(comparison: Comparison) -> Grid:
    drawn = grid()
    drawn.show_header = False
    drawn.padding = (0, 2, 0, 0)
    drawn.add_column(no_wrap=True)
    drawn.add_column(overflow="fold")
    for row in sides(comparison).rows:
        side, session, command = (cell.shown() for cell in row.cells)
        drawn.add_row(side.lower(), Text(session))
        drawn.add_row("", Text(command, style="dim"))
    return drawn


def _widths(tables: Sequence[Table]) -> list[int]:
    """Return the width of each column, the same in all parts."""
    rows = [row.cells for table in tables for row in table.rows]
    texts = [[cell.shown() for cell in cells] for cells in rows]
    texts += [[getattr(cell, "below", "") for cell in cells] for cells in rows]
    texts.append([column.heading for column in tables[0].columns])
    return [max(map(len, column)) for column in zip(*texts, strict=True)]


def _operation(title: str, table: Table, widths: Sequence[int]) -> Iterator[RenderableType]:
    yield Text()
    yield Text(title, style="bold")
    drawn = painted(table, widths=widths)
    drawn.show_header = False
    yield drawn


def _notes(comparison: Comparison) -> Iterator[RenderableType]:
    found = [Text(printable(note), style="dim") for note in notes(comparison)]
    if found or comparison.warnings:
        yield Text()
    yield from found
    for warning in comparison.warnings:
        yield Padding(Text(f"! {printable(warning)}", style="yellow"), 0)
