"""The lines around and between the parts of the view, with texts in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nncftools.render.canvas import fitted, length, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.render.canvas import Medium, Row

TOP, BETWEEN, BOTTOM = "╭╮", "├┤", "╰╯"
SIDES = 4
"""Columns that the sides take."""


def ruled(ends: str, left: Sequence[Row], right: Sequence[Row], width: int, medium: Medium) -> Row:
    """Return a horizontal line with texts in it; those on the left are cut if they are too long."""
    line = medium.style("axis")
    tail = [part for one in right for part in (text(" "), *one, text(" "), text("─", line))]
    head: Row = []
    for one in left:
        room = width - length(tail) - length(head) - 5
        if room > 0:
            head += [text("─", line), text(" "), *_cut(one, room), text(" ")]
    between = max(0, width - 2 - length(head) - length(tail))
    return fitted([text(ends[0], line), *head, text("─" * between, line), *tail, text(ends[1], line)], width)


def sided(row: Row, width: int, medium: Medium) -> Row:
    """Return a row between the sides of the box."""
    line = medium.style("axis")
    return [text("│ ", line), *fitted(row, width - SIDES), text(" │", line)]


def _cut(row: Row, room: int) -> Row:
    return row if length(row) <= room else fitted(row, room)
