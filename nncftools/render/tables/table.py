"""A table as data, which text, Markdown and the page format in their own ways."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Flag, auto
from typing import TYPE_CHECKING, NamedTuple

from nncftools.units import text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.units import MemoryUnit


class Output(Flag):
    """Where a column or a row is shown."""

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
    output: Output = Output.ALL


class Cell(NamedTuple):
    """A cell of any text: each output escapes what has a special meaning in it."""

    text: str
    is_strong: bool = False
    below: str = ""
    """An addition in small print."""
    size: float | None = None
    """The bytes that ``text`` states in the unit that suits them, for tables whose sizes have one unit."""

    def shown(self, unit: MemoryUnit | None = None) -> str:
        """Return the text; a size without a unit of its own is in ``unit``."""
        return self.text if unit is None or self.size is None else unit.text(self.size)


def size_cell(size: float | None, unit: MemoryUnit, *, is_signed: bool = False, is_strong: bool = False) -> Cell:
    """Return the cell of bytes in a unit, which the heading names; a difference has a sign."""
    return Cell(f"{'+' if is_signed and size is not None and size > 0 else ''}{unit.text(size)}", is_strong)


def figure_cell(value: float | None, unit: str) -> Cell:
    """Return the cell of a figure in ``"B"``, ``"s"`` or ``""``, written in the unit that suits it."""
    return Cell(text_of(value, unit), size=value if unit == "B" else None)


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
        places = [place for place, column in enumerate(self.columns) if output in column.output]
        return replace(self, rows=[row for row in self.rows if output in row.output]).with_columns(places)

    def with_columns(self, places: Sequence[int]) -> Table:
        """Return the table with only these of its columns."""
        rows = [replace(row, cells=[row.cells[place] for place in places]) for row in self.rows]
        return replace(self, columns=[self.columns[place] for place in places], rows=rows)

    def headings(self, between: str, *, has_units: bool = True) -> list[str]:
        """Return a heading for each column; the first column of a group has the group's name and ``between`` before it.

        The heading of a group of one column is the group's name alone. Without ``has_units``, units are left out; on
        two lines, the group has the unit.
        """
        groups = [column.group for column in self.columns]
        found = []
        for place, column in enumerate(self.columns):
            is_first = column.group != "" and (place == 0 or groups[place - 1] != column.group)
            unit = f", {column.unit}" if column.unit and has_units else ""
            own = f"{column.heading}{unit}"
            if is_first and groups.count(column.group) == 1:
                own = column.group
            elif is_first and between == "\n":
                own = f"{column.group}{unit}\n{column.heading}"
            elif is_first:
                own = f"{column.group}{between}{own}"
            found.append(own)
        return found
