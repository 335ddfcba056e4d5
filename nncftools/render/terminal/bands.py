"""Operations along the time axis of a chart: coloured, with their names where there is room."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size

from nncftools.render.colours import fills
from nncftools.render.terminal.rows import plain, text
from nncftools.session.operation import Operation
from nncftools.units import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.render.terminal.palette import Medium
    from nncftools.render.terminal.rows import Row
    from nncftools.render.terminal.window import Window

_SHORTEST_NAME, _WITH_END = 3, 14
"""Columns from which on a name is shown, and from which on its end, too, if it is too long."""
_LABEL = "Operations"


@dataclass(frozen=True)
class Span:
    """An operation; ``end_s`` is None while it is running."""

    name: str
    start_s: float
    end_s: float | None = None
    kind: str | None = None


def operations_row(spans: Sequence[Span], shown: Window, medium: Medium) -> Row:
    """Return one row with the names of the operations, each at the time of its operation."""
    label = _LABEL if len(_LABEL) < medium.gutter else ""
    row = [text(f"{label:<{medium.gutter + 1}}", medium.style("axis"))]
    visible = [span for span in spans if span.end_s is None or span.end_s >= shown.begin_s]
    colours = fills([Operation(name=span.name, start_s=0, end_s=0, kind=span.kind) for span in visible])
    last = shown.column(shown.now_s)
    column = 0
    for place, span in enumerate(visible):
        begin = max(column, shown.column(max(span.start_s, shown.begin_s)))
        end = last if span.end_s is None else shown.column(min(span.end_s, shown.end_s))
        if place + 1 < len(visible):  # the next one must keep a column of its own
            end = min(end, shown.column(max(visible[place + 1].start_s, shown.begin_s)) - 1)
        room = min(end + 1, shown.columns) - begin
        if room <= 0:
            continue
        row.append(text(" " * (begin - column)))
        name = plain(_fitting(span.name, room), medium)
        if medium.colours is None:
            row.append(text(_bracketed(name, room, unicode=medium.unicode)))
        else:
            fill = colours[span.name]
            row.append(text(_centred(name, room), medium.filled(fill.ink, fill.colour)))
        column = begin + room
    return row


def _fitting(name: str, room: int) -> str:
    """Return a name as it fits, with a column to its left and right if there are that many."""
    if room < _SHORTEST_NAME:
        return ""
    name = printable(name)
    if room < _WITH_END:
        return name if len(name) <= room else f"{name[: room - 1]}…"
    return shortened(name, room - 2)


def _centred(name: str, room: int) -> str:
    before = max(0, room - cell_len(name)) // 2
    return set_cell_size(" " * before + name, room)


def _bracketed(name: str, room: int, *, unicode: bool) -> str:
    left, flat, right = ("├", "─", "┤") if unicode else ("|", "-", "|")
    if room <= 2:  # noqa: PLR2004 — both ends
        return left[:room] + right[: room - 1]
    name = set_cell_size(name, min(cell_len(name), room - 2))
    before = (room - 2 - cell_len(name)) // 2
    return f"{left}{flat * before}{name}{flat * (room - 2 - cell_len(name) - before)}{right}"
