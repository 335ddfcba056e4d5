"""Turns what a terminal shows, with its colours as escape sequences, into a picture."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, NamedTuple

from matplotlib import get_data_path  # noqa: TID253 — its fonts come with it
from PIL import Image, ImageDraw, ImageFont
from rich.ansi import AnsiDecoder
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import TerminalTheme

if TYPE_CHECKING:
    from collections.abc import Sequence

    Colour = tuple[int, ...]

WIDTH, HEIGHT, SIZE = 9, 18, 15
"""Of a cell, and of its characters, in pixels."""
MARGIN = 12
COLOURS = 200
_FONTS = pathlib.Path(get_data_path(), "fonts", "ttf")
_XTERM = (
    [(0, 0, 0), (205, 49, 49), (13, 150, 90), (190, 140, 20), (36, 90, 200), (176, 60, 160), (17, 140, 170)],
    [(200, 200, 200), (102, 102, 102), (235, 80, 75), (35, 190, 120), (225, 180, 40), (70, 130, 240), (214, 112, 200)],
    [(41, 184, 219), (245, 245, 245)],
)
_SIXTEEN = [colour for row in _XTERM for colour in row]
THEMES = {
    "dark": TerminalTheme((16, 18, 22), (214, 217, 222), _SIXTEEN[:8], _SIXTEEN[8:]),
    "light": TerminalTheme((255, 255, 255), (36, 40, 46), _SIXTEEN[:8], _SIXTEEN[8:]),
}
_ARMS = {
    "─": "lr", "│": "ud", "╭": "rd", "╮": "ld", "╰": "ru", "╯": "lu", "├": "udr", "┤": "udl", "┬": "lrd", "└": "ur",
    "━": "lr",
}  # fmt: skip
"""To which sides the lines of a character lead."""
_BRAILLE, _BLOCKS = 0x2800, "▁▂▃▄▅▆▇█"
_DOTS = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))


class _Cell(NamedTuple):
    character: str
    ink: Colour
    paper: Colour | None
    bold: bool


def picture(lines: Sequence[str], size: tuple[int, int], theme: str) -> Image.Image:
    """Return a picture of a screen of ``size`` columns and rows, in few colours."""
    columns, rows = size
    colours = THEMES[theme]
    drawn = Image.new("RGB", (columns * WIDTH + 2 * MARGIN, rows * HEIGHT + 2 * MARGIN), colours.background_color)
    draw = ImageDraw.Draw(drawn)
    fonts = [ImageFont.truetype(_FONTS / f"DejaVuSansMono{kind}.ttf", SIZE) for kind in ("", "-Bold")]
    decoder = AnsiDecoder()
    for row, line in enumerate(lines[:rows]):
        for column, cell in enumerate(_cells(decoder, line, colours)[:columns]):
            _draw(draw, (MARGIN + column * WIDTH, MARGIN + row * HEIGHT), cell, fonts[cell.bold])
    return drawn.quantize(COLOURS, dither=Image.Dither.NONE)


def _cells(decoder: AnsiDecoder, line: str, theme: TerminalTheme) -> list[_Cell]:
    console = Console(width=1000, color_system="truecolor", force_terminal=True, _environ={})
    found = []
    for segment in console.render(decoder.decode_line(line)):
        style = segment.style or Style()
        ink: Colour = style.color.get_truecolor(theme) if style.color else theme.foreground_color
        paper: Colour | None = style.bgcolor.get_truecolor(theme, foreground=False) if style.bgcolor else None
        if style.reverse:
            ink, paper = paper or theme.background_color, ink
        if style.dim:
            ink = tuple((one + other) // 2 for one, other in zip(ink, theme.background_color, strict=True))
        found += [_Cell(character, ink, paper, bool(style.bold)) for character in segment.text if character != "\n"]
    return found


def _draw(draw: ImageDraw.ImageDraw, at: tuple[int, int], cell: _Cell, font: ImageFont.FreeTypeFont) -> None:
    """Draw a cell; lines, blocks and dots meet those of the next cell, as in good terminals."""
    x, y = at
    if cell.paper is not None:
        draw.rectangle((x, y, x + WIDTH - 1, y + HEIGHT - 1), fill=cell.paper)
    character = cell.character
    if character in _BLOCKS:
        filled = round((_BLOCKS.index(character) + 1) / len(_BLOCKS) * HEIGHT)
        draw.rectangle((x, y + HEIGHT - filled, x + WIDTH - 1, y + HEIGHT - 1), fill=cell.ink)
    elif character in _ARMS:
        _draw_lines(draw, at, cell)
    elif _BRAILLE <= ord(character) < _BRAILLE + 256:
        for bit, (across, down) in enumerate(_DOTS):
            if ord(character) - _BRAILLE >> bit & 1:
                left, top = x + 1 + across * WIDTH / 2, y + 1 + down * HEIGHT / 4
                draw.ellipse((left, top, left + 2.6, top + 2.6), fill=cell.ink)
    elif character != " ":
        draw.text((x, y), character, font=font, fill=cell.ink)


def _draw_lines(draw: ImageDraw.ImageDraw, at: tuple[int, int], cell: _Cell) -> None:
    x, y = at
    middle, centre = y + HEIGHT // 2, x + WIDTH // 2
    thick = 3 if cell.character == "━" else 1
    for arm in _ARMS[cell.character]:
        if arm in "lr":
            left, right = (x, centre) if arm == "l" else (centre, x + WIDTH - 1)
            draw.rectangle((left, middle - thick // 2, right, middle + thick // 2), fill=cell.ink)
        else:
            top, bottom = (y, middle) if arm == "u" else (middle, y + HEIGHT - 1)
            draw.rectangle((centre, top, centre, bottom), fill=cell.ink)
