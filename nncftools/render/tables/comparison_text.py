"""The comparison for a terminal, readable at 80 columns and without colour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from nncftools.render.tables.cells import table
from nncftools.render.tables.comparison import cells, notable, notes, runs_text, shown, title
from nncftools.text import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import RenderableType

    from nncftools.analysis.comparison import Comparison, Difference
    from nncftools.units import MemoryUnit

    Line = tuple[str, str, str, str, str, str]

_COMMAND = 200
_NAME = 70
_HEADINGS = ("", "Base", "New", "Change ", "", "p  ")


def rendered(comparison: Comparison, unit: MemoryUnit) -> RenderableType:
    """Return the comparison as something that a Rich console prints."""
    operations, left_out = shown(comparison.operations)
    whole = _lines(notable(comparison.figures), unit)
    parts = [(title(operation, comparison), _lines(notable(operation.differences), unit)) for operation in operations]
    widths = _widths([whole, *(lines for _, lines in parts)])
    return Group(
        Text("COMPARISON", style="bold"),
        _sides(comparison),
        Text(),
        _table(whole, widths, show_header=True),
        *(piece for name, lines in parts for piece in _operation(name, lines, widths)),
        *([Text(f"\n… and {left_out:,} operations that changed less", style="dim")] if left_out else []),
        *_notes(comparison),
    )


def _sides(comparison: Comparison) -> Table:
    sides = Table.grid(padding=(0, 2, 0, 0))
    sides.add_column(no_wrap=True)
    sides.add_column(overflow="fold")
    for name, runs in (("base", comparison.base), ("new", comparison.new)):
        sides.add_row(name, Text(printable(runs_text(runs))))
        sides.add_row("", Text(shortened(printable(runs[0].command), _COMMAND), style="dim"))
    return sides


def _lines(differences: Iterable[Difference], unit: MemoryUnit) -> list[Line]:
    """Return a line for each figure, and beneath it the range of the runs where there are several."""
    lines = []
    for difference in differences:
        of = cells(difference, unit)
        lines.append((of.name, of.base, of.new, f"{of.change}{of.mark or ' '}", of.percent, of.p))
        if of.base_range or of.new_range:
            lines.append(("", of.base_range, of.new_range, "", "", ""))
    return lines


def _widths(parts: Iterable[list[Line]]) -> list[int]:
    """Return the width of each column, the same in all parts."""
    every = [_HEADINGS, *(line for lines in parts for line in lines)]
    return [max(map(len, column)) for column in zip(*every, strict=True)]


def _table(lines: Sequence[Line], widths: list[int], *, show_header: bool) -> Table:
    rows = table()
    rows.show_header = show_header
    grouped = any(line[-1] for line in lines)
    for place, (heading, width) in enumerate(zip(_HEADINGS, widths, strict=True)):
        if place < len(_HEADINGS) - 1 or grouped:
            rows.add_column(heading, justify="right" if place else "left", min_width=width, no_wrap=True)
    for name, base, new, change, *rest in lines:
        style = "" if name else "dim"
        rows.add_row(name, base, new, Text(change, style="bold"), *(rest if grouped else rest[:1]), style=style)
    return rows


def _operation(name: str, lines: list[Line], widths: list[int]) -> Iterator[RenderableType]:
    yield Text()
    yield Text(shortened(printable(name), _NAME), style="bold")
    yield _table(lines, widths, show_header=False)


def _notes(comparison: Comparison) -> Iterator[RenderableType]:
    found = [Text(printable(note), style="dim") for note in notes(comparison)]
    if found or comparison.warnings:
        yield Text()
    yield from found
    for warning in comparison.warnings:
        yield Padding(Text(f"! {printable(warning)}", style="yellow"), 0)
