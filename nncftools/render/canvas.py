"""What charts in a terminal are drawn with: a canvas of characters, colours, rows of styled texts, the visible time.

Curves and areas are dots of Braille, or where there is only ASCII, one character in each cell. The colours are readable
on light and on dark backgrounds, whatever the terminal can show.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len, set_cell_size
from rich.color import Color, ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style

from nncftools.units import MemoryUnit

Floats = NDArray[np.float64]
Row = list[Segment]
text = Segment
"""A text with its style."""

_ACROSS, _UP = 2, 4
_BITS = np.array([[1, 8], [2, 16], [4, 32], [64, 128]], dtype=np.uint32)
"""Which dot of a Braille character is where (Unicode, block 2800)."""
_BRAILLE, _BLANK = 0x2800, 0x20


class Levels(NamedTuple):
    """The least and the largest value in each column of dots, as parts of the height; NaN where nothing is known."""

    low: Floats
    high: Floats


def levels(time_s: Floats, values: Floats, end_s: float, cells: int) -> tuple[Floats, Floats]:
    """Return the least and the largest value in each of ``cells`` equal parts of a time; between values, a line.

    ``time_s`` rises. There is nothing before the first and after the last value.
    """
    if not len(time_s):
        return np.full(cells, np.nan), np.full(cells, np.nan)
    middles = (np.arange(cells) + 0.5) * end_s / cells
    low = np.interp(middles, time_s, values, left=np.nan, right=np.nan)
    high = low.copy()
    places = np.floor(time_s / end_s * cells)
    within = time_s <= end_s
    places = np.minimum(places[within], cells - 1).astype(np.intp)
    np.fmin.at(low, places, values[within])
    np.fmax.at(high, places, values[within])
    return low, high


class Canvas:
    """A rectangle of cells that is drawn on; what is drawn later is above. Rows count from the top."""

    def __init__(self, columns: int, rows: int, *, unicode: bool) -> None:
        """Begin with blanks."""
        self._across, self._up = (_ACROSS, _UP) if unicode else (1, 1)
        self._columns, self._rows = columns, rows
        self._unicode = unicode
        self._characters = np.full((rows, columns), _BLANK, dtype=np.uint32)
        self._owners = np.zeros((rows, columns), dtype=np.int16)
        self._roles = {"": 0}
        shape = rows * self._up, columns * self._across
        self._from_below = np.arange(shape[0])[::-1, np.newaxis]
        self._tinted = (self._from_below + np.arange(shape[1])) % 2 == 0

    @property
    def dots(self) -> int:
        """How many columns of dots there are."""
        return self._columns * self._across

    def area(self, shown: Levels, role: str) -> None:
        """Draw an area, tinted by every second dot."""
        top, _ = self._edge(shown)
        filled = self._from_below < top
        self._draw(filled & self._tinted if self._unicode else filled, role, "" if self._unicode else ":")

    def curve(self, shown: Levels, role: str, plain: str = "") -> None:
        """Draw a curve; ``plain`` is its character where dots do not tell curves apart."""
        top, bottom = self._edge(shown)
        self._draw((self._from_below < top) & (self._from_below >= bottom), role, plain)

    def _edge(self, shown: Levels) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the dots between which a curve is drawn in each column: a steep curve has no holes."""
        dots = self._rows * self._up
        known = ~np.isnan(shown.high)
        top, low = (
            np.where(known, np.clip(np.ceil(np.nan_to_num(part) * dots - 1e-9), 1, dots), 0).astype(np.int64)
            for part in (shown.high, shown.low)
        )
        around = np.where(known, top, dots)
        least = np.minimum(np.append(around[1:], dots), np.insert(around[:-1], 0, dots))
        return top, np.minimum(np.minimum(least + 1, low), top) - 1

    def _draw(self, drawn: NDArray[np.bool_], role: str, character: str) -> None:
        """Add dots to those that cells have, or write this character into the cells."""
        into = drawn
        if self._unicode:
            codes = np.zeros(self._characters.shape, dtype=np.uint32)
            for up, across in np.ndindex(_UP, _ACROSS):
                codes += drawn[up::_UP, across::_ACROSS] * _BITS[up, across]
            into = codes > 0
        if character:
            self._characters[into] = ord(character)
        else:
            before = self._characters
            codes |= np.where((before >= _BRAILLE) & (before < _BRAILLE + 256), before, _BRAILLE)
            self._characters[into] = codes[into]
        self._owners[into] = self._owner(role)

    def _owner(self, role: str) -> int:
        return self._roles.setdefault(role, len(self._roles))

    def row_of(self, part: float) -> int:
        """Return the row that a part of the height is in."""
        return int(np.clip(self._rows - np.ceil(part * self._rows - 1e-9), 0, self._rows - 1))

    def write(self, row: int, column: int, text: str, role: str) -> None:
        """Write text over whatever is there, as far as there is room."""
        text = text[: max(0, self._columns - column)]
        self._characters[row, column : column + len(text)] = [ord(character) for character in text]
        self._owners[row, column : column + len(text)] = self._owner(role)

    def line(self, part: float, role: str) -> None:
        """Draw a horizontal line at a part of the height, where nothing is."""
        row = self.row_of(part)
        free = self._characters[row] == _BLANK
        up = int(np.clip(np.ceil(part * self._rows * self._up - 1e-9) - 1, 0, None)) % self._up
        self._characters[row, free] = _BRAILLE + _BITS[_UP - 1 - up].sum() if self._unicode else ord("-")
        self._owners[row, free] = self._owner(role)

    def rows(self) -> list[list[tuple[str, str]]]:
        """Return the rows, each as texts with their roles; blanks have none."""
        result, roles = [], list(self._roles)
        for characters, owners in zip(self._characters, self._owners, strict=True):
            whole = characters.astype("<u4").tobytes().decode("utf-32-le")
            ends = [*(np.flatnonzero(np.diff(owners)) + 1).tolist(), len(whole)]
            begins = [0, *ends[:-1]]
            result.append([(whole[a:b], roles[owners[a]]) for a, b in zip(begins, ends, strict=True)])
        return result


GUTTER = 12
"""Columns to the left of a chart, for the labels of its axis."""
AREA = "area"
_SYSTEMS = {"256": ColorSystem.EIGHT_BIT, "truecolor": ColorSystem.TRUECOLOR}
_DEEP, _HIGH = (0x30, 0x70, 0xD8), (0x00, 0x9D, 0xC6)
"""The area at the bottom and at the top of a chart. All colours have a contrast (WCAG) of 3 to white and to black."""


_STYLES = {
    "axis": "#787878",
    "title": "bold",
    "curve 0": "#0098f0",
    "curve 1": "#c860b0",
    "curve 2": "#209850",
    "curve 3": "#c07f20",
    "peak": "#e85040",
    "limit": "#e85040",
    "cpu": "#209850",
    "read": "#4a90e0",
    "write": "#c07f20",
    "rate": "#c860b0",
    "good": "#209850",
    "warning": "#c07f20",
    "danger": "bold #e85040",
    "key": "bold #0098f0",
}
"""Their nearest ones of 16 colours differ, too, and are neither black nor white."""
CURVES = tuple(role for role in _STYLES if role.startswith("curve"))
_DARK = (0, 4, 8)
"""Of 16 colours: black, blue, grey."""


class TerminalStyle(NamedTuple):
    """What a chart is drawn on, and in which unit of memory."""

    unit: MemoryUnit = MemoryUnit.MiB
    unicode: bool = True
    """Whether it shows more than ASCII."""
    colours: ColorSystem | None = ColorSystem.EIGHT_BIT
    """None: no colours at all, but bold characters."""
    gutter: int = GUTTER

    def style(self, role: str, height: float = 0.0) -> Style:
        """Return the style of a part of the chart; that of the area depends on the height, from 0 to 1."""
        if role == AREA:
            share = round(height * 16) / 16
            mixed = (round(low + (high - low) * share) for low, high in zip(_DEEP, _HIGH, strict=True))
            return _style("#{:02x}{:02x}{:02x}".format(*mixed), self.colours)
        return _style(_STYLES[role], self.colours)

    def filled(self, ink: str, colour: str) -> Style:
        """Return the style of text on an operation's colour."""
        if self.colours == ColorSystem.STANDARD:
            is_dark = Color.parse(colour).downgrade(self.colours).number in _DARK
            ink = "bright_white" if is_dark else "black"
        return _style(f"{ink} on {colour}", self.colours)


def colours_of(console: Console) -> ColorSystem | None:
    """Return the colours that a console shows; None for none."""
    if console.color_system is None or console.no_color:
        return None
    return _SYSTEMS.get(console.color_system, ColorSystem.STANDARD)


@lru_cache(maxsize=256)
def _style(text: str, colours: ColorSystem | None) -> Style:
    """Return a style in the colours of the terminal. It is cached: Rich keeps the escape sequences of a style."""
    style = Style.parse(text)
    if colours is None:
        return style.without_color
    ink = style.color and style.color.downgrade(colours)
    ground = style.bgcolor and style.bgcolor.downgrade(colours)
    return Style(color=ink, bgcolor=ground, bold=style.bold)


_ASCII = str.maketrans("›–…●×·◆━─│┤├┬└╭╮╰╯█▏", ">-~*x-^=-|++++++++# ")


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


def painted(row: Iterable[Segment], medium: TerminalStyle) -> str:
    """Return a row as text with colours as escape sequences, in characters that the medium has."""
    colours = medium.colours or ColorSystem.STANDARD
    parts = (part.style.render(part.text, color_system=colours) if part.style else part.text for part in row)
    return plain("".join(parts), medium)


def plain(content: str, medium: TerminalStyle) -> str:
    """Return text in characters that the medium has."""
    if medium.unicode or content.isascii():
        return content
    return content.translate(_ASCII).encode("ascii", "replace").decode()


class Window(NamedTuple):
    """The time axis, from the start of a run, and its number of columns."""

    end_s: float
    columns: int
    now_s: float
    """Up to when something is known."""

    def column(self, at_s: float) -> int:
        """Return the column of a moment."""
        return min(max(int(at_s / self.end_s * self.columns), 0), self.columns - 1)
