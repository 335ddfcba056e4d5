"""Curves and areas made of characters: dots of Braille, or where there is only ASCII, one character in each cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_ACROSS, _UP = 2, 4
_BITS = np.array([[1, 8], [2, 16], [4, 32], [64, 128]], dtype=np.uint32)
"""Which dot of a Braille character is where (Unicode, block 2800)."""
_BRAILLE, _BLANK = 0x2800, 0x20


class Levels(NamedTuple):
    """The least and the largest value in each column of dots, as parts of the height; NaN where nothing is known."""

    low: Floats
    high: Floats


def levels(time_s: Floats, values: Floats, begin_s: float, end_s: float, cells: int) -> tuple[Floats, Floats]:
    """Return the least and the largest value in each of ``cells`` equal parts of a time; between values, a line.

    ``time_s`` rises. There is nothing before the first and after the last value.
    """
    if not len(time_s):
        return np.full(cells, np.nan), np.full(cells, np.nan)
    middles = begin_s + (np.arange(cells) + 0.5) * (end_s - begin_s) / cells
    low = np.interp(middles, time_s, values, left=np.nan, right=np.nan)
    high = low.copy()
    places = np.floor((time_s - begin_s) / (end_s - begin_s) * cells)
    within = (places >= 0) & (time_s <= end_s)
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
        self._roles = [""]
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
        self._draw(filled & self._tinted if self._unicode else filled, role, ":" if not self._unicode else "")

    def curve(self, shown: Levels, role: str, plain: str = "") -> None:
        """Draw a curve; ``plain`` is its character where dots do not tell curves apart."""
        top, bottom = self._edge(shown)
        self._draw((self._from_below < top) & (self._from_below >= bottom), role, plain)

    def _edge(self, shown: Levels) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return above which dot a curve ends, and at which it begins: it has no holes where it is steep."""
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
        """Put dots into cells, beside those that are there, or else this character."""
        if not self._unicode:
            into = drawn
        else:
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
        if role not in self._roles:
            self._roles.append(role)
        return self._roles.index(role)

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
        result = []
        for characters, owners in zip(self._characters, self._owners, strict=True):
            whole = characters.astype("<u4").tobytes().decode("utf-32-le")
            ends = [*(np.flatnonzero(np.diff(owners)) + 1).tolist(), len(whole)]
            begins = [0, *ends[:-1]]
            result.append([(whole[a:b], self._roles[owners[a]]) for a, b in zip(begins, ends, strict=True)])
        return result
