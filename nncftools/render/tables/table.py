"""A table as data: what it says, typed; text, Markdown and the page paint it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Flag, auto
from typing import TYPE_CHECKING, NamedTuple

from nncftools.units import UNKNOWN, seconds_text, size_text

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
    """A column; neighbours of one ``group`` have its name above them."""

    heading: str
    group: str = ""
    unit: str = ""
    is_text: bool = False
    """Whether it stands on the left; figures stand on the right."""
    output: Output = Output.ALL


class Words(NamedTuple):
    """A cell of text from anywhere: each output writes out what would mean something to it."""

    text: str
    is_strong: bool = False
    below: str = ""
    """What is to be said of it in small."""

    def shown(self, _unit: MemoryUnit | None = None) -> str:
        """Return the text."""
        return self.text


class Size(NamedTuple):
    """A cell of bytes in a unit, with a sign where it is a difference; without a unit in the one that fits."""

    value: float | None
    unit: MemoryUnit | None = None
    is_signed: bool = False
    is_strong: bool = False

    def shown(self, unit: MemoryUnit | None = None) -> str:
        """Return the size; one without a unit is in ``unit``, which the table's head tells."""
        text = _text(self.value, self.unit or unit)
        return f"+{text}" if self.is_signed and self.value is not None and self.value > 0 else text


def _text(size: float | None, unit: MemoryUnit | None) -> str:
    return size_text(size) if unit is None else unit.text(size)


class Seconds(NamedTuple):
    """A cell of seconds."""

    value: float | None
    is_strong: bool = False

    def shown(self, _unit: MemoryUnit | None = None) -> str:
        """Return the duration or moment."""
        return seconds_text(self.value)


class Number(NamedTuple):
    """A cell of a number with so many decimals."""

    value: float | None
    decimals: int = 0
    is_strong: bool = False

    def shown(self, _unit: MemoryUnit | None = None) -> str:
        """Return the number."""
        return UNKNOWN if self.value is None else f"{self.value:,.{self.decimals}f}"


Cell = Words | Size | Seconds | Number


def cell_of(value: float | None, unit: str) -> Cell:
    """Return the cell of a figure whose unit is ``"B"``, ``"s"`` or ``""``."""
    if unit == "B":
        return Size(value)
    return Seconds(value) if unit == "s" else Number(value)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row with a cell for each column."""

    cells: Sequence[Cell]
    depth: int = 0
    """How far the first text is indented."""
    is_strong: bool = False
    is_faint: bool = False
    note: str = ""
    """What text says behind the row of it that the others say by their looks."""
    details: str = ""
    colour: str = ""
    span_s: tuple[float, float] | None = None
    """The part of the run that it is about."""
    output: Output = Output.ALL


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table; without rows there is nothing to show."""

    columns: Sequence[Column]
    rows: Sequence[Row]
    more: str = ""
    """What the table does not show."""

    def of(self, output: Output) -> Table:
        """Return the part of the table that an output shows."""
        places = [place for place, column in enumerate(self.columns) if output in column.output]
        return replace(self, rows=[row for row in self.rows if output in row.output]).with_columns(places)

    def with_columns(self, places: Sequence[int]) -> Table:
        """Return the table with these of its columns."""
        rows = [replace(row, cells=[row.cells[place] for place in places]) for row in self.rows]
        return replace(self, columns=[self.columns[place] for place in places], rows=rows)

    def headings(self, between: str, *, has_units: bool = True) -> list[str]:
        """Return a heading for each column: name of the group, ``between`` and its own in the first of a group.

        A group of one column is called by its name alone. Units are left out where ``has_units`` is False.
        """
        groups = [column.group for column in self.columns]
        found = []
        for place, column in enumerate(self.columns):
            own = f"{column.heading}, {column.unit}" if column.unit and has_units else column.heading
            is_first = column.group != "" and (place == 0 or groups[place - 1] != column.group)
            if is_first:
                own = column.group if groups.count(column.group) == 1 else f"{column.group}{between}{own}"
            found.append(own)
        return found
