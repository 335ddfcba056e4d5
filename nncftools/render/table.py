"""Tables as data, and their output for a terminal and Markdown; ``page.py`` makes them HTML.

A ``≈`` before a number marks an estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Flag, auto
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.containers import Lines
from rich.padding import Padding
from rich.segment import SegmentLines
from rich.table import Table as Grid
from rich.text import Text as RichText

from nncftools import markdown
from nncftools.analysis.operation import Operation
from nncftools.analysis.peaks import Figures
from nncftools.units import UNKNOWN, MemoryUnit, find_breaks, printable, text_of


class Text(RichText):
    """Text whose lines break between names and numbers, not inside a name or a number, if possible."""

    def wrap(self, console: Console, width: int, **settings: Any) -> Lines:  # noqa: ANN401 — Rich's
        """Return the lines of the wrapped text."""
        if settings["no_wrap"]:
            return super().wrap(console, width, **settings)
        lines: list[RichText] = []
        for line in self.split(allow_blank=True):
            lines += line.divide(find_breaks(line.plain, width))
        return RichText("\n").join(lines).wrap(console, width, **settings)


class Output(Flag):
    """The outputs that show a row."""

    TEXT = auto()
    MARKDOWN = auto()
    PAGE = auto()
    ALL = TEXT | MARKDOWN | PAGE


@dataclass(frozen=True)
class Column:
    """A column. Adjacent columns with the same ``group`` have a common heading above them."""

    heading: str
    group: str = ""
    unit: str = ""
    is_text: bool = False

    @property
    def alignment(self) -> Literal["left", "right"]:
        """``left`` for texts, ``right`` for numbers."""
        return "left" if self.is_text else "right"


def make_columns(name: str, figures: Iterable[str]) -> list[Column]:
    """Return a text column called ``name``, and columns of numbers."""
    return [Column(name, is_text=True), *map(Column, figures)]


class Cell(NamedTuple):
    """A cell. The text may have any characters, because each output escapes special characters."""

    text: str
    is_strong: bool = False
    below: str = ""
    """A second text. A terminal shows it below ``text``, Markdown in brackets."""
    size: float | None = None
    """The size in bytes that ``text`` gives, so that a table can write all sizes in the same unit."""
    value: float | None = None
    """The number that ``text`` gives, so that a picture can draw a bar of this length."""

    def shown(self, unit: MemoryUnit | None) -> str:
        """Return the text; if a unit is given, write a size in this unit."""
        return self.text if unit is None or self.size is None else unit.text(self.size)


def size_cell(size: float | None, unit: MemoryUnit, *, is_strong: bool = False) -> Cell:
    """Return a cell for a size in bytes; the heading of the column must name the unit."""
    return Cell(unit.text(size), is_strong)


def figure_cell(value: float | None, unit: str) -> Cell:
    """Return a cell for a number whose unit is ``"B"``, ``"s"`` or ``""``; the text has the most suitable unit."""
    return Cell(text_of(value, unit), size=value if unit == "B" else None, value=value)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row with a cell for each column."""

    cells: Sequence[Cell]
    depth: int = 0
    """Level of indentation of the first text column."""
    is_strong: bool = False
    is_faint: bool = False
    note: str = ""
    """A note that plain text adds to the row, such as ``<- peak``; other outputs emphasize the row instead."""
    heading: str = ""
    """A text across all columns; the cells of such a row have no texts."""
    function: str = ""
    """The function that the operation called, with arguments. Markdown and comparisons show this text, other outputs
    show ``details``."""
    details: str = ""
    colour: str = ""
    span_s: tuple[float, float] | None = None
    """Start and end of the time that the row is about. An unknown end is the same as the start."""
    output: Output = Output.ALL


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table. Outputs leave out tables without rows."""

    columns: Sequence[Column]
    rows: Sequence[Row]
    more: str = ""
    """A text about rows that were left out."""
    notes: Sequence[str] = ()
    """Explanations of the words and signs in the cells. Outputs leave out empty texts."""
    lines: Sequence[str] = ()
    """Further texts about single rows."""

    @property
    def note(self) -> str:
        """All ``notes`` as one text."""
        return ". ".join(filter(None, self.notes))

    def of(self, output: Output) -> Table:
        """Return the table with only the rows that appear in this output."""
        return replace(self, rows=[row for row in self.rows if output in row.output])

    def with_columns(self, indexes: Sequence[int]) -> Table:
        """Return the table with only the columns at these indexes."""
        rows = [
            replace(
                row,
                cells=[row.cells[index] for index in indexes],
            )
            for row in self.rows
        ]
        return replace(self, columns=[self.columns[index] for index in indexes], rows=rows)

    def headings(self, between: str, *, has_units: bool = True) -> list[str]:
        """Return the headings of the columns; if ``has_units`` is true, with units.

        The first column of a group has the group's name before the heading, joined by ``between``. If ``between``
        is a line break, the unit is after the group's name. If a group has only one column, the heading is the group's
        name.
        """
        groups = ["", *(column.group for column in self.columns)]
        headings = []
        for previous, column in zip(groups, self.columns, strict=False):
            unit = f", {column.unit}" if column.unit and has_units else ""
            heading = f"{column.heading}{unit}"
            if column.group not in {"", previous}:
                if groups.count(column.group) == 1:
                    heading = column.group
                elif between == "\n":
                    heading = f"{column.group}{unit}\n{column.heading}"
                else:
                    heading = f"{column.group}{between}{heading}"
            headings.append(heading)
        return headings


def render_markdown(table: Table, *, code_in: int | None = None) -> Iterator[list[str]]:
    """Yield the table in Markdown, and the lines below the table; nothing if the table has no rows.

    ``code_in`` is the index of a column whose texts are code.
    """
    table = table.of(Output.MARKDOWN)
    if not table.rows:
        return
    alignments = [column.alignment for column in table.columns]
    rows = [_render_cells(table, row, code_in) for row in table.rows]
    yield [markdown.draw_table(table.headings(" "), rows, alignments)]
    if table.more:
        yield [f"… {table.more}"]
    yield [f"- {markdown.text(line)}" for line in table.lines]
    if table.note:
        yield [markdown.text(table.note)]


def _render_cells(table: Table, row: Row, code_in: int | None) -> list[str]:
    """Return the cells of a row in Markdown, with emphasis; the last text column (the names) is indented."""
    texts = []
    names = 0
    for index, cell in enumerate(row.cells):
        text = markdown.text(cell.text)
        if index == code_in:
            text = markdown.code(cell.text)
        elif text and (cell.is_strong or row.note):
            text = f"**{text}**"
        if table.columns[index].is_text:
            names = index
        texts.append(f"{text} ({markdown.text(cell.below)})" if cell.below else text)
    heading = f"**{markdown.text(row.heading)}**" if row.heading else ""
    name = f"{texts[names]}{heading} {markdown.code(row.function)}".strip()
    texts[names] = "&nbsp;&nbsp;" * row.depth + name
    return texts


def join_blocks(blocks: Iterable[Sequence[str]]) -> str:
    """Return blocks of lines as Markdown, without empty blocks; the text ends with a line break."""
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


FIRST_COLUMN = 12


def grid(*, gap: int = 1, has_header: bool = True) -> Grid:
    """Return an empty table of Rich, without lines between the cells."""
    padding = (0, gap, 0, 0)
    return Grid(box=None, pad_edge=False, padding=padding, header_style="bold", show_header=has_header)


def pairs(rows: Iterable[tuple[str, RichText]], min_width: int = 0) -> Grid:
    """Return a table of Rich with names on the left and their texts on the right; long texts are wrapped."""
    result = grid(gap=2, has_header=False)
    result.add_column(min_width=min_width, no_wrap=True)
    result.add_column(overflow="fold")
    for name, text in rows:
        result.add_row(Text(name), Text.assemble(text))
    return result


def render_warnings(texts: Iterable[str]) -> Iterator[RenderableType]:
    """Yield warnings for Rich to print. Each warning begins on a new line."""
    for text in texts:
        yield Padding(Text(f"! {printable(text)}", style="yellow"), 0)


def render_table(table: Table, *, unit: MemoryUnit | None = None) -> Grid:
    """Return a table for Rich to print.

    If a unit is given, all sizes are written in this unit, and headings have no units. Texts are indented and, if they
    do not fit, wrapped.
    """
    table = table.of(Output.TEXT)
    result = grid()
    headings = table.headings("\n", has_units=unit is None)
    height = max((heading.count("\n") for heading in headings), default=0)
    for column, heading in zip(table.columns, headings, strict=True):
        result.add_column(
            "\n" * (height - heading.count("\n")) + heading,
            justify=column.alignment,
            no_wrap=not column.is_text,
            overflow="fold",
        )
    has_notes = any(row.note for row in table.rows)
    if has_notes:
        result.add_column(no_wrap=True)
    for row in table.rows:
        cells: list[RenderableType] = []
        for column, cell in zip(table.columns, row.cells, strict=True):
            text = Text(cell.shown(unit), style="bold" if cell.is_strong else "")
            text.append(f"\n{cell.below}" if cell.below else "", style="not bold dim")
            is_indented = column.is_text and row.depth
            cells.append(Padding.indent(text, 2 * row.depth) if is_indented else text)
        if has_notes:
            cells.append(Text(row.note))
        style = "dim" if row.is_faint else ""
        result.add_row(*cells, style="bold" if row.note else style)
    return result


_NAMES = 20
"""Least width of the column of names in a terminal. In a narrow console, a third of the console's width is enough."""


class Fitting(NamedTuple):
    """A table that fits into any console. If the columns need too much room, the table is split into parts.

    Each part has the column of names. The parts are printed below each other. Columns of the same group stay together.
    """

    table: Table
    unit: MemoryUnit | None = None
    """The unit in which all sizes are written. None keeps the texts of the cells."""
    first: int = 0
    """If the table is split into parts, the first part has the column of names and this number of other columns. 0
    means as many as fit."""
    cut_names: Callable[[int], Sequence[str]] | None = None
    """Function that returns the rows' names for a given width. Without a function, names are wrapped."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = self.table.of(Output.TEXT)
        widths = column_widths(table, self.unit)
        notes = max([len(row.note) for row in table.rows], default=0)
        room = options.max_width - notes - (notes > 0)
        names = min(widths[0], _NAMES, options.max_width // 3)
        groups = column_groups(table)
        parts = _split(groups, widths, room - names)
        first = range(1, self.first + 1)
        fits = sum(widths[index] for index in first) <= room - names
        if first and fits and len(parts) > 1:
            rest = [group for group in groups if group[0] > self.first]
            parts = [list(first), *_split(rest, widths, room - names)]
        for number, indexes in enumerate(parts):
            if number:
                table = replace(table, rows=[replace(row, note="") for row in table.rows])
                room = options.max_width
                yield Text()
            width = max(room - sum(widths[index] for index in indexes), names)
            part = table.with_columns([0, *indexes])
            if self.cut_names is not None:
                rows = []
                for name, row in zip(self.cut_names(width), part.rows, strict=True):
                    cells = [Cell(name), *row.cells[1:]]
                    rows.append(replace(row, cells=cells, depth=0))
                part = replace(part, rows=rows)
            result = render_table(part, unit=self.unit)
            result.columns[0].max_width = width
            headings = (row.heading for row in table.rows if row.heading)
            for line in console.render_lines(result, options, pad=False):
                if any(segment.text.strip() for segment in line):
                    yield SegmentLines([line], new_lines=True)
                else:  # the empty cells of a heading
                    yield Text(next(headings, ""), style="bold")


def column_widths(table: Table, unit: MemoryUnit | None = None) -> list[int]:
    """Return the widths of the columns, including the gap before each."""
    widths = []
    for index, heading in enumerate(table.headings("\n", has_units=unit is None)):
        texts = heading.split("\n")
        for row in table.rows:
            texts += (row.cells[index].shown(unit), row.cells[index].below)
        widths.append(max(map(cell_len, texts)) + (index > 0))
    return widths


def _split(groups: Iterable[Sequence[int]], widths: Sequence[int], room: int) -> list[list[int]]:
    """Return the indexes of the columns in each part of a split table.

    A part has as many groups as fit beside the names.
    """
    parts: list[list[int]] = []
    free = -1
    for group in groups:
        width = sum(widths[index] for index in group)
        if width > free:
            parts.append([])
            free = room
        parts[-1] += group
        free -= width
    return parts or [[]]


def column_groups(table: Table) -> list[list[int]]:
    """Return the indexes of all columns but the first, by group. A column without heading joins the previous group."""
    groups: list[list[int]] = []
    for index, (previous, column) in enumerate(pairwise(table.columns), 1):
        is_same = column.group == previous.group if column.group else not column.heading
        if not groups or not is_same:
            groups.append([])
        groups[-1].append(index)
    return groups


NOTE = "≈: an estimate; memory changed while the operation started or ended"


def has_estimates(operations: Iterable[Operation]) -> bool:
    """Return whether the change of RSS during any operation is an estimate."""
    return any(operation.of("rss").delta_is_estimate for operation in operations)


def change_text(figures: Figures, write: Callable[[float], str]) -> str:
    """Return the growth of memory with a sign; an estimate has a ``≈``."""
    if figures.delta is None:
        return UNKNOWN
    return f"{'≈' if figures.delta_is_estimate else ''}{signed(write(figures.delta))}"


def signed(change: str) -> str:
    """Return the text with a sign; 0 has no sign."""
    is_zero_or_less = change.startswith(("-", UNKNOWN)) or not change.strip("0.,")
    return change if is_zero_or_less else f"+{change}"
