"""Rows of results as a Markdown table with footnotes."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.bench import Results

UNKNOWN = "–"
_NOT_SAID = "not in its output"

Values = Sequence[float | None]
Style = Callable[[Values, Values | None], str]
"""The text of a tool's cell, from its values and ours of the same rounds; None in our own column."""


@dataclass(frozen=True)
class Row:
    """One line of the table: one figure of one measurement."""

    title: str
    results: Results
    key: str
    style: Style


def markdown(tools: Sequence[str], rows: Sequence[Row]) -> str:
    """Return the table; our column comes first."""
    notes: list[str] = []
    lines = ["| | " + " | ".join(tools) + " |", "|---|" + "---:|" * len(tools)]
    for row in rows:
        cells = [_cell(row, tool, tools[0], notes) for tool in tools]
        lines.append(f"| {row.title} | " + " | ".join(cells) + " |")
    footnotes = [f"[^{number}]: {note}" for number, note in enumerate(notes, start=1)]
    return "\n".join([*lines, *(["", *footnotes] if footnotes else [])]) + "\n"


def _cell(row: Row, tool: str, ours: str, notes: list[str]) -> str:
    values = row.results.values(tool, row.key)
    text = row.style(values, None if tool == ours else row.results.values(ours, row.key))
    note = _note(row, tool, values)
    if not note:
        return text
    if note not in notes:
        notes.append(note)
    return f"{text}[^{notes.index(note) + 1}]"


def _note(row: Row, tool: str, values: Values) -> str:
    failures = row.results.failures(tool)
    if failures:
        often = "" if len(failures) == len(values) else f" ({len(failures)} of {len(values)} runs)"
        return f"{tool}: {failures[0]}{often}"
    return f"{tool}: {_NOT_SAID}" if all(value is None for value in values) else ""


def cost(values: Values, ours: Values | None) -> str:
    """Return the median, and the median ratio to ours; the smaller the better.

    There is no ratio when one of ours is not above 0, lost in the noise of a difference.
    """
    text = figure(values, ours)
    rounds = zip(values, ours or (), strict=False)
    pairs = [(theirs, our) for theirs, our in rounds if theirs is not None and our is not None]
    if not pairs or min(our for _, our in pairs) <= 0:
        return text
    return f"{text} ({number(statistics.median(theirs / our for theirs, our in pairs))}×)"


def figure(values: Values, _ours: Values | None) -> str:
    """Return the median."""
    known = [value for value in values if value is not None]
    return number(statistics.median(known)) if known else UNKNOWN


def share(values: Values, _ours: Values | None) -> str:
    """Return the median as a percentage."""
    known = [value for value in values if value is not None]
    return f"{statistics.median(known):.1%}".replace("%", " %") if known else UNKNOWN


def count(values: Values, _ours: Values | None) -> str:
    """Return how many are not 0; what failed counts as 0, unless all did."""
    if all(value is None for value in values):
        return UNKNOWN
    return f"{sum(bool(value) for value in values)} of {len(values)}"


def number(value: float) -> str:
    """Return a figure to three significant digits, with zero to three decimals."""
    decimals = next((digits for bound, digits in ((100, 0), (10, 1), (1, 2)) if abs(value) >= bound), 3)
    return f"{value:,.{decimals}f}"
