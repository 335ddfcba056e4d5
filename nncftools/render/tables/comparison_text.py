"""The comparison for a terminal, readable at 80 columns and without colour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from nncftools.render.tables.comparison import figures, notes, shown, sides, stacks, title_of
from nncftools.render.tables.paint import painted, pairs, warnings
from nncftools.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from nncftools.analysis.comparison import Comparison
    from nncftools.render.tables.table import Table
    from nncftools.units import MemoryUnit


def rendered(comparison: Comparison, unit: MemoryUnit) -> RenderableType:
    """Return the comparison for Rich to print."""
    operations, left_out = shown(comparison.operations)
    whole = figures(comparison, comparison.figures, unit)
    parts = [(title_of(one, comparison), figures(comparison, one.differences, unit)) for one in operations]
    widths = _widths([whole, *(table for _, table in parts)])
    grown = stacks(comparison, unit)
    found = [Text(printable(note), style="dim") for note in notes(comparison)]
    return Group(
        Text("COMPARISON", style="bold"),
        pairs(_sides(comparison)),
        Text(),
        painted(whole, widths=widths),
        *((Text(), painted(grown, folds=True)) if grown.rows else ()),
        *(
            piece
            for title, table in parts
            for piece in (Text(), Text(title, style="bold"), painted(table, widths=widths, has_header=False))
        ),
        *([Text(f"\n… and {left_out:,} operations that changed less", style="dim")] if left_out else []),
        *([Text()] if found or comparison.warnings else []),
        *found,
        *warnings(comparison.warnings),
    )


def _sides(comparison: Comparison) -> Iterator[tuple[str, Text]]:
    for row in sides(comparison).rows:
        side, session, command = (cell.text for cell in row.cells)
        yield side.lower(), Text(session)
        yield "", Text(command, style="dim")


def _widths(tables: Sequence[Table]) -> list[int]:
    """Return the widths of the columns, which are the same in all tables."""
    rows = [row.cells for table in tables for row in table.rows]
    texts = [[cell.text for cell in cells] for cells in rows] + [[cell.below for cell in cells] for cells in rows]
    texts.append([column.heading for column in tables[0].columns])
    return [max(map(len, column)) for column in zip(*texts, strict=True)]
