"""The build-up of a peak for a terminal, readable at 80 columns and without colour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from nncftools.render.tables.build_up import tables
from nncftools.render.tables.paint import FIRST_COLUMN, grid, pairs
from nncftools.render.view import command_text
from nncftools.units import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType
    from rich.table import Table as Grid

    from nncftools.render.tables.build_up import Whole
    from nncftools.render.tables.table import Table

_TITLE = 200


def rendered(whole: Whole) -> RenderableType:
    """Return the build-up for Rich to print."""
    return Group(
        Text("BUILD-UP OF MEMORY", style="bold"),
        Text(shortened(command_text(whole.session), _TITLE)),
        Text(),
        Text(whole.title, style="bold"),
        pairs(((f"  {heading}", Text(text)) for heading, text in whole.lines), FIRST_COLUMN),
        *_tables(whole),
        Text(),
        *(Text(printable(note), style="dim") for note in whole.notes),
    )


def _tables(whole: Whole) -> Iterator[RenderableType]:
    for title, table in tables(whole):
        if table.rows:
            yield Text()
            yield Text(title, style="bold")
            yield _painted(table)
        if table.more:
            yield Text(f"… {table.more}", style="dim")


def _painted(table: Table) -> Grid:
    """Return a table whose last column is wrapped inside of its indentation."""
    result = grid(gap=2)
    for column in table.columns:
        right, is_last = not column.is_text, column is table.columns[-1]
        result.add_column(
            Text(column.heading), justify="right" if right else "left", no_wrap=not is_last, overflow="fold"
        )
    for row in table.rows:
        *cells, name = row.cells
        result.add_row(*(Text(cell.text) for cell in cells), Padding(Text(name.text), (0, 0, 0, 2 * row.depth)))
    return result
