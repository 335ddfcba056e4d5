"""Tables as data, which text, Markdown and the page write in their own ways, and how Rich paints them in a terminal.

Estimates of memory have a ``≈``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Flag, auto
from itertools import pairwise
from typing import Any, NamedTuple

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.containers import Lines
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text as RichText

from nncftools.analysis.operation import Operation
from nncftools.analysis.peaks import Figures
from nncftools.units import UNKNOWN, MemoryUnit, folds, printable, text_of


class Text(RichText):
    """Text whose lines are not broken inside of names and figures, as far as there is room."""

    def wrap(self, console: Console, width: int, **settings: Any) -> Lines:  # noqa: ANN401 — Rich's
        """Return its lines."""
        lines = [part for line in self.split(allow_blank=True) for part in line.divide(folds(line.plain, width))]
        of = self if settings["no_wrap"] else RichText("\n").join(lines)
        return RichText.wrap(of, console, width, **settings)


class Output(Flag):
    """Where a row is shown."""

    TEXT = auto()
    MARKDOWN = auto()
    PAGE = auto()
    ALL = TEXT | MARKDOWN | PAGE


@dataclass(frozen=True)
class Column:
    """A column; adjacent columns with the same ``group`` have its name above them."""

    heading: str
    group: str = ""
    unit: str = ""
    is_text: bool = False
    """Whether it is left-aligned; figures are right-aligned."""


class Cell(NamedTuple):
    """A cell of any text: each output escapes what has a special meaning in it."""

    text: str
    is_strong: bool = False
    below: str = ""
    """An addition in small print."""
    size: float | None = None
    """The bytes that ``text`` states in a unit that suits them; a table may write all sizes in one unit instead."""
    value: float | None = None
    """The figure in ``text``, which a picture shows as a bar."""

    def shown(self, unit: MemoryUnit | None = None) -> str:
        """Return the text; a size without a unit of its own is in ``unit``."""
        return self.text if unit is None or self.size is None else unit.text(self.size)


def size_cell(size: float | None, unit: MemoryUnit, *, is_strong: bool = False) -> Cell:
    """Return the cell of bytes in a unit, which the heading names."""
    return Cell(unit.text(size), is_strong)


def figure_cell(value: float | None, unit: str) -> Cell:
    """Return the cell of a figure in ``"B"``, ``"s"`` or ``""``, written in the unit that suits it."""
    return Cell(text_of(value, unit), size=value if unit == "B" else None, value=value)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row with a cell for each column."""

    cells: Sequence[Cell]
    depth: int = 0
    """How far the first text is indented."""
    is_strong: bool = False
    is_faint: bool = False
    note: str = ""
    """What plain text adds to the row where other outputs use emphasis."""
    function: str = ""
    """The function of an operation, for outputs that show no ``details``."""
    details: str = ""
    colour: str = ""
    span_s: tuple[float, float] | None = None
    """The part of the run that the row describes; what has no known end ends with its start."""
    output: Output = Output.ALL


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table; one without rows is not shown."""

    columns: Sequence[Column]
    rows: Sequence[Row]
    more: str = ""
    """What the table leaves out."""
    note: str = ""
    """What explains its cells."""

    def of(self, output: Output) -> Table:
        """Return the part of the table that an output shows."""
        return replace(self, rows=[row for row in self.rows if output in row.output])

    def with_columns(self, indexes: Sequence[int]) -> Table:
        """Return the table with only these of its columns."""
        rows = [replace(row, cells=[row.cells[index] for index in indexes]) for row in self.rows]
        return replace(self, columns=[self.columns[index] for index in indexes], rows=rows)

    def headings(self, between: str, *, has_units: bool = True) -> list[str]:
        """Return a heading for each column; the first column of a group has the group's name and ``between`` before it.

        The heading of a group of one column is the group's name alone. Without ``has_units``, units are left out; on
        two lines, the group has the unit.
        """
        groups = ["", *(column.group for column in self.columns)]
        headings = []
        for before, column in zip(groups, self.columns, strict=False):
            unit = f", {column.unit}" if column.unit and has_units else ""
            heading = f"{column.heading}{unit}"
            if column.group not in {"", before}:
                is_alone, on_two_lines = groups.count(column.group) == 1, f"{column.group}{unit}\n{column.heading}"
                in_group = on_two_lines if between == "\n" else f"{column.group}{between}{heading}"
                heading = column.group if is_alone else in_group
            headings.append(heading)
        return headings


FIRST_COLUMN = 12


def grid(*, gap: int = 1, has_header: bool = True) -> Grid:
    """Return an empty table without lines."""
    padding = (0, gap, 0, 0)
    return Grid(box=None, pad_edge=False, padding=padding, header_style="bold", show_header=has_header)


def pairs(rows: Iterable[tuple[str, RichText]], min_width: int = 0) -> Grid:
    """Return names and their texts side by side; a long text is wrapped."""
    result = grid(gap=2, has_header=False)
    result.add_column(min_width=min_width, no_wrap=True)
    result.add_column(overflow="fold")
    for name, text in rows:
        result.add_row(Text(name), Text.assemble(text))
    return result


def warnings(texts: Iterable[str]) -> Iterator[RenderableType]:
    """Yield warnings, each in its own lines."""
    for text in texts:
        yield Padding(Text(f"! {printable(text)}", style="yellow"), 0)


def painted(table: Table, *, unit: MemoryUnit | None = None, folds: bool = False) -> Grid:
    """Return a table for Rich to print.

    ``unit`` is the one of all sizes that have none of their own; the heading names it. With ``folds``, texts are
    wrapped where there is no room, and indented.
    """
    of = table.of(Output.TEXT)
    result = grid()
    headings = of.headings("\n", has_units=unit is None)
    lines = max((heading.count("\n") for heading in headings), default=0)
    for column, heading in zip(of.columns, headings, strict=True):
        result.add_column(
            "\n" * (lines - heading.count("\n")) + heading,
            justify="left" if column.is_text else "right",
            no_wrap=not (folds and column.is_text),
            overflow="fold" if folds else "ellipsis",
        )
    has_notes = any(row.note for row in of.rows)
    if has_notes:
        result.add_column(no_wrap=True)
    for row in of.rows:
        texts = [Text(cell.shown(unit), style="bold" if cell.is_strong else "") for cell in row.cells]
        for cell, text in zip(row.cells, texts, strict=True):
            text.append(f"\n{cell.below}" if cell.below else "", style="not bold dim")
        notes = [Text(row.note)] if has_notes else []
        indents = (2 * row.depth if folds and column.is_text else 0 for column in of.columns)
        cells = (Padding.indent(text, by) if by else text for text, by in zip(texts, indents, strict=True))
        result.add_row(*cells, *notes, style="bold" if row.note else "dim" if row.is_faint else "")
    return result


_NAMES = 20
"""In a terminal, names have so many columns at least, or a third of the width."""


class Fitting(NamedTuple):
    """A table whose columns continue below when the console is too narrow; groups of columns stay together."""

    table: Table
    unit: MemoryUnit | None = None
    """The one of sizes that have none of their own."""
    first: int = 0
    """Unless all columns fit, so many are a part of their own."""
    cut_names: Callable[[int], Sequence[str]] | None = None
    """Returns the names of the rows for a width; without it, names are wrapped."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = self.table.of(Output.TEXT)
        widths = column_widths(table, self.unit)
        room = options.max_width - max((len(row.note) + 1 for row in table.rows if row.note), default=0)
        names = min(widths[0], _NAMES, options.max_width // 3)
        parts = _split(column_groups(table), widths, room - names)
        if len(parts) > 1 and 0 < sum(widths[1 : self.first + 1]) <= room - names:
            rest = [group for group in column_groups(table) if group[0] > self.first]
            parts = [list(range(1, self.first + 1)), *_split(rest, widths, room - names)]
        for number, places in enumerate(parts):
            if number:
                table = replace(table, rows=[replace(row, note="") for row in table.rows])
                room = options.max_width
                yield Text()
            left = max(room - sum(widths[place] for place in places), names)
            part = table.with_columns([0, *places])
            if self.cut_names is not None:
                named = zip(self.cut_names(left), part.rows, strict=True)
                rows = [replace(row, cells=[Cell(name), *row.cells[1:]], depth=0) for name, row in named]
                part = replace(part, rows=rows)
            shown = painted(part, unit=self.unit, folds=True)
            shown.columns[0].max_width = left
            yield shown


def column_widths(table: Table, unit: MemoryUnit | None = None) -> list[int]:
    """Return the widths of the columns, each with the gap before it."""
    headings = table.headings("\n", has_units=unit is None)
    widths = []
    for index, heading in enumerate(headings):
        cells = [row.cells[index] for row in table.rows]
        texts = [*heading.split("\n"), *(cell.shown(unit) for cell in cells), *(cell.below for cell in cells)]
        widths.append(max(map(cell_len, texts)) + (index > 0))
    return widths


def _split(groups: Iterable[Sequence[int]], widths: Sequence[int], room: int) -> list[list[int]]:
    """Return the columns of each part: as many groups as there is room for beside the names."""
    parts: list[list[int]] = []
    for group in groups:
        if not parts or sum(widths[place] for place in (*parts[-1], *group)) > room:
            parts.append([])
        parts[-1] += group
    return parts or [[]]


def column_groups(table: Table) -> list[list[int]]:
    """Return the columns after the first by group; one without a heading belongs to the one before."""
    groups: list[list[int]] = []
    for index, (before, column) in enumerate(pairwise(table.columns), 1):
        is_same = column.group == before.group if column.group else not column.heading
        groups = [*groups[:-1], [*groups[-1], index]] if groups and is_same else [*groups, [index]]
    return groups


NOTE = "≈: an estimate; memory changed while the operation was marked"


def has_estimates(operations: Iterable[Operation]) -> bool:
    """Return whether RSS at the start or at the end of any of the operations is an estimate."""
    return any(operation.of("rss").delta_is_estimate for operation in operations)


def change_text(of: Figures, write: Callable[[float], str]) -> str:
    """Return with its sign by how much memory grew; an estimate has a ``≈``."""
    if of.delta is None:
        return UNKNOWN
    return f"{'≈' if of.delta_is_estimate else ''}{signed(write(of.delta))}"


def signed(change: str) -> str:
    """Return the text of a change with its sign, unless it is 0 as written."""
    is_zero_or_less = change.startswith(("-", UNKNOWN)) or not change.strip("0.,")
    return change if is_zero_or_less else f"+{change}"
