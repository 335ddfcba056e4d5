"""Logs of rows of numbers: parsed in bulk when all lines are valid, line by line otherwise."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from math import nan
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.importers.source import Lines, Source

LARGEST = 2.0**63
LATEST_S = 1e10
"""In Unix seconds, the year 2286."""
_CUT_OFF = "the last line is cut off: it was left out"
_AHEAD = 20
"""A row this many times farther ahead of its neighbours than they are apart is taken for the wrong one."""
_END = b";"
_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
_NUMBERS = msgspec.json.Decoder(list[float])


class RowLog(ABC):
    """Reads such a log. Rows are passed on in time order; a row before the last one is left out."""

    separator: bytes | None = None
    """The separator of numbers; None: any whitespace."""
    time_at = 0
    """The position of the time in a row."""
    lowest = 0.0
    """The smallest valid number; a time is never below zero."""
    unknown: bytes | None = None
    """The text for an unknown value, in any column but the time."""
    ends_open = False
    """Whether the last line is complete without a line break."""

    def __init__(self, source: Source) -> None:
        """Read nothing yet."""
        self.width = 0
        """The number of values per row; 0 until the header is read."""
        self.begin_s: float | None = None
        """The time of the first row, in the log's own clock."""
        self.over = False
        """Whether the recording has ended: a further row belongs to another one."""
        self._source = source
        self._last_s = -LARGEST
        self._runs = 1
        self._run_began = 1

    @abstractmethod
    def take(self, columns: Sequence[list[float]]) -> None:
        """Add rows, given as columns."""

    @abstractmethod
    def take_line(self, number: int, line: bytes, /) -> bool:
        """Read a line that is not a row; return whether it belongs to this kind of log."""

    def numbers_of(self, text: bytes) -> bytes:
        """Return the text with only the numbers of each line. Raises ValueError for other lines."""
        return text

    @abstractmethod
    def reset(self) -> None:
        """Drop all rows: another recording begins in the same file."""

    def read(self) -> None:
        """Read the whole log."""
        for lines in self._source.lines():
            try:
                columns = self._columns(lines)
            except (ValueError, msgspec.DecodeError):  # some line is invalid
                self._read_one_by_one(lines)
            else:
                self._pass_on(columns)
        if self._runs > 1:
            self._source.problems.warn(
                f"the file holds {self._runs:,} recordings, one after another; "
                f"this is the last, from line {self._run_began:,} on"
            )

    def begin_again(self, number: int) -> None:
        """Start another recording at this line, if the previous one has rows."""
        self.over = False
        if self.begin_s is not None:
            self._runs += 1
            self._run_began = number
            self.begin_s = None
            self._last_s = -LARGEST
            self.reset()

    def _pass_on(self, columns: Sequence[list[float]]) -> None:
        times = columns[self.time_at]
        self.begin_s = times[0] if self.begin_s is None else self.begin_s
        self._last_s = times[-1]
        self.take(columns)

    def _columns(self, lines: Lines) -> list[list[float]]:
        """Return lines as columns; raise ValueError or DecodeError when one is invalid."""
        if not lines.whole or not self.width or self.over:
            raise ValueError
        columns = _split(self.numbers_of(lines.text), self.width, self.separator)
        times = columns[self.time_at]
        if times[0] < self._last_s or times != sorted(times):
            raise ValueError
        if (
            times[0] < 0
            or times[-1] > LATEST_S
            or any(min(column) < self.lowest or max(column) > LARGEST for column in columns)
        ):
            raise ValueError
        return columns

    def _read_one_by_one(self, lines: Lines) -> None:
        problems = self._source.problems
        rows: list[list[float]] = []
        for place, line in lines.numbered():
            try:
                row = self._row(line)
            except ValueError as why:
                self._pass_on_rows(rows)
                if (lines.whole or self.ends_open) and self.take_line(place, line):
                    continue
                if lines.whole:
                    problems.unreadable(place, line, why)
                else:
                    problems.warn(_CUT_OFF)
                continue
            if self.over:
                self.begin_again(place)
            time = row[self.time_at]
            before = rows[-1][self.time_at] if rows else self._last_s
            if not lines.whole:
                problems.warn(_CUT_OFF)
            elif time < before:
                problems.went_back(place, before - (self.begin_s or 0.0), time - (self.begin_s or 0.0))
                if len(rows) > 1 and before - time > _AHEAD * (time - rows[-2][self.time_at]) >= 0:
                    rows[-1] = row  # else a single time far ahead would lose all rows after it
            else:
                self.begin_s = time if self.begin_s is None else self.begin_s
                rows.append(row)
        self._pass_on_rows(rows)

    def _pass_on_rows(self, rows: list[list[float]]) -> None:
        if rows:
            self._pass_on([list(column) for column in zip(*rows, strict=True)])
            rows.clear()

    def _row(self, line: bytes) -> list[float]:
        """Return a line as numbers. Raises ValueError, which says why not."""
        if not self.width:
            raise ValueError("no row is expected before the header")
        texts = self.numbers_of(line).split(self.separator)
        if len(texts) != self.width:
            raise ValueError(f"{self.width} values expected, found {len(texts)}")
        return [self._number(place, text) for place, text in enumerate(texts)]

    def _number(self, place: int, text: bytes) -> float:
        if place == self.time_at:
            return number(text, 0.0, LATEST_S)
        return nan if text == self.unknown else number(text, self.lowest)


def _split(text: bytes, width: int, separator: bytes | None) -> list[list[float]]:
    """Split lines of numbers into columns; raise ValueError or DecodeError when one has another shape."""
    between = separator or b" "
    words = text.replace(b"\n", between + _END + between).split(separator)
    if separator is not None:
        words.pop()
    rows = text.count(b"\n")
    if len(words) != rows * (width + 1) or words[width :: width + 1].count(_END) != rows:
        raise ValueError
    del words[width :: width + 1]
    numbers = _NUMBERS.decode(b"[%b]" % b",".join(words))
    if len(numbers) != rows * width:
        raise ValueError
    return [numbers[place::width] for place in range(width)]


def number(text: bytes, lowest: float = 0.0, largest: float = LARGEST) -> float:
    """Parse a number. Raises ValueError, which says what was expected."""
    if _NUMBER.fullmatch(text) is None:
        raise ValueError("a number expected")
    value = float(text)
    if not lowest <= value <= largest:
        raise ValueError(f"a number from {lowest:g} to {largest:g} expected")
    return value
