"""The look of charts in a terminal: colours readable on light and dark backgrounds, and rows of styled texts."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from rich.cells import cell_len
from rich.color import Color, ColorSystem
from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from nncftools.units import MemoryUnit

GUTTER = 12
"""Columns to the left of a chart, for the labels of its axis."""
AXIS, TITLE, PEAK, KEY = "#787878", "bold default", "#e85040", "bold #0098f0"
GOOD, WARNING, DANGER = "#209850", "#c07f20", "bold #e85040"
CURVES = ("#0098f0", "#c860b0", "#209850", "#c07f20")
AREA = "#3070d8"
COLOURS = (AXIS, PEAK, KEY, GOOD, WARNING, DANGER, *CURVES, AREA)
"""All have a contrast (WCAG) of 3 to white and to black. Their nearest ones of 16 colours are neither of both."""
_DARK = (0, 4, 8)
"""Of 16 colours: black, blue, grey."""
_SYSTEMS = {"256": ColorSystem.EIGHT_BIT, "truecolor": ColorSystem.TRUECOLOR}
_ASCII = str.maketrans("›–…●×·◆━╸╺─│┤├╭╮╰╯▁▂▃▄▅▆▇█↑↓←→", ">-~*x-^==--|++++++.:-=+*#@^v<>")


class TerminalStyle(NamedTuple):
    """The abilities of a terminal, and the unit of memory."""

    unit: MemoryUnit = MemoryUnit.MiB
    unicode: bool = True
    """Whether it shows more than ASCII."""
    colours: ColorSystem | None = ColorSystem.EIGHT_BIT
    """None: no colours at all, but bold characters."""
    gutter: int = GUTTER


def colours_of(console: Console) -> ColorSystem | None:
    """Return the colours that a console shows; None for none."""
    if console.color_system is None or console.no_color:
        return None
    return _SYSTEMS.get(console.color_system, ColorSystem.STANDARD)


def render_rows(content: RenderableType, width: int, height: int | None, style: TerminalStyle) -> list[list[Segment]]:
    """Return the rows of some content, in characters and colours that the terminal has; at most ``height`` rows."""
    console = Console(
        width=width,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        no_color=style.colours is None,
        _environ={},
    )
    rows = console.render_lines(content, console.options.update(height=height))[:height]
    return [[_shown(part.text, part.style or Style.null(), style) for part in row] for row in rows]


def _shown(text: str, style: Style, terminal: TerminalStyle) -> Segment:
    if not terminal.unicode:
        text = re.sub("[^\0-\x7f]", lambda sign: "?" * cell_len(sign[0]), text.translate(_ASCII))
    return Segment(text, _in_colours(style, terminal.colours))


@lru_cache(maxsize=256)
def _in_colours(style: Style, colours: ColorSystem | None) -> Style:
    """Return a style in the colours of the terminal. Rich keeps the escape sequences of a style, so it is a new one."""
    if colours is None:
        return style.without_color
    ink = style.color and style.color.downgrade(colours)
    ground = style.bgcolor and style.bgcolor.downgrade(colours)
    return Style(color=ink, bgcolor=ground, bold=style.bold)


def fitting(parts: Iterable[Text], width: int, gap: int = 0) -> Text:
    """Return the first parts beside each other, as many as fit: no figure is cut."""
    row = Text(no_wrap=True)
    for part in parts:
        blanks = gap if row else 0
        if row.cell_len + blanks + part.cell_len > width:
            break
        row.append(" " * blanks).append_text(part)
    return row


def coloured(row: Iterable[Segment]) -> str:
    """Return a row as text, with its colours as escape sequences."""
    return "".join((part.style or Style.null()).render(part.text) for part in row)


def name_style(ink: str, colour: str, colours: ColorSystem) -> Style:
    """Return the style of a name on the colour of its operation."""
    if colours == ColorSystem.STANDARD:
        is_dark = Color.parse(colour).downgrade(colours).number in _DARK
        ink = "bright_white" if is_dark else "black"
    return Style(color=ink, bgcolor=colour)
