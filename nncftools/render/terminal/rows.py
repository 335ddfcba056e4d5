"""Rows of a screen: texts with their styles, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.color import ColorSystem
from rich.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.style import Style

    from nncftools.render.terminal.palette import Medium

    Row = list[Segment]

_ASCII = str.maketrans(
    {
        "›": ">",
        "–": "-",
        "…": "~",
        "●": "*",
        "×": "x",
        "·": "-",
        "◆": "^",
        "━": "=",
        "─": "-",
        "│": "|",
        "┤": "+",
        "├": "+",
        "┬": "+",
        "└": "+",
        "╭": "+",
        "╮": "+",
        "╰": "+",
        "╯": "+",
        "█": "#",
        "▏": " ",
    }
)


def text(content: str, style: Style | None = None) -> Segment:
    """Return a text with its style."""
    return Segment(content, style)


def length(row: Iterable[Segment]) -> int:
    """Return how many columns a row takes."""
    return sum(cell_len(part.text) for part in row)


def fitted(row: Sequence[Segment], width: int) -> Row:
    """Return a row cut or padded to ``width`` columns."""
    result: Row = []
    left = width
    for part in row:
        columns = cell_len(part.text)
        if columns > left:
            result.append(Segment(set_cell_size(part.text, left), part.style))
            return result
        result.append(part)
        left -= columns
    if left:
        result.append(Segment(" " * left))
    return result


def painted(row: Iterable[Segment], medium: Medium) -> str:
    """Return a row as text with colours as escape sequences, in characters that the medium has."""
    colours = medium.colours or ColorSystem.STANDARD
    parts = (part.style.render(part.text, color_system=colours) if part.style else part.text for part in row)
    return plain("".join(parts), medium)


def plain(content: str, medium: Medium) -> str:
    """Return text in characters that the medium has."""
    if medium.unicode or content.isascii():
        return content
    return content.translate(_ASCII).encode("ascii", "replace").decode()
