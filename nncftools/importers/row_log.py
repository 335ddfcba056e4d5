"""Logs of rows of numbers: parsed in bulk when all lines are valid, line by line otherwise."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from math import isnan, nan
from typing import TYPE_CHECKING, Any

import msgspec

from nncftools.importers.table import Table, session_of
from nncftools.intake import LARGEST, LATEST_S, are_within
from nncftools.metrics import is_counter, is_memory
from nncftools.session.samples import TIME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.importers.source import Lines, Source
    from nncftools.session.session import Session

_AHEAD = 20
"""A row this many times farther ahead of its neighbours than they are apart is treated as the bad row."""
_END = b";"
_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
_NUMBERS = msgspec.json.Decoder(list[float])


class RowLog(ABC):
    """Reads such a log. Rows are taken in time order; a row before the last one is left out."""

    recorder: str
    """The importer's name."""
    metrics: Sequence[str] = ("rss",)
    """The metrics that a log may hold, in a session's order."""
    unit = 1
    """The log's unit of memory, in bytes."""
    counted_before: float | None = None
    """What counters had counted before the log's start; None: the first value."""
    separator: bytes | None = None
    """The separator of numbers; None: any whitespace."""
    lowest = 0.0
    """The smallest valid number; a time is never below zero."""
    unknown: bytes | None = None
    """The text for an unknown value, in any column but the time."""
    ends_open = False
    """Whether the last line is complete without a line break."""

    def __init__(self, source: Source, columns: Sequence[str] = ()) -> None:
        """Read nothing yet. ``columns`` name the values of a row, the time and metrics; others are ignored."""
        self.begin_s: float | None = None
        """The time of the first row, in the log's own clock."""
        self.over = False
        """Whether the recording has ended: a further row belongs to another one."""
        self._source = source
        self._columns = columns
        """Empty until the header is read."""
        self._last_s = -LARGEST
        self._runs = 1
        self._run_began = 1
        self.reset()

    def reset(self) -> None:
        """Drop all rows: another recording begins in the same file."""
        self.began: float | None = None
        """The start in Unix seconds."""
        self.table = Table([name for name in self.metrics if name in self._columns])
        self.counters = {name: MonotonicTotal(self.counted_before) for name in self.table.new if is_counter(name)}

    def take(self, columns: dict[str, list[float]]) -> None:
        """Add rows, given as columns."""
        for name, counter in self.counters.items():
            columns[name] = counter.take(columns[name])
        self.table.extend(columns)

    @abstractmethod
    def take_line(self, number: int, line: bytes, /) -> bool:
        """Read a line that is not a row; return whether it belongs to this kind of log."""

    def numbers_of(self, text: bytes) -> bytes:
        """Return the text with only the numbers of each line. Raises ValueError for other lines."""
        return text

    def known(self) -> dict[str, Any]:
        """Return further fields of the session, when all is read. Raises SessionFileError."""
        return {}

    def read(self) -> Session:
        """Return the session of the whole log. Raises SessionFileError."""
        for lines in self._source.lines():
            try:
                columns = self._values(lines)
            except (ValueError, msgspec.DecodeError):  # some line is invalid
                self._read_one_by_one(lines)
            else:
                self._pass_on(columns)
        if self._runs > 1:
            self._source.problems.warn(
                f"the file holds {self._runs:,} recordings, one after another; "
                f"this is the last, from line {self._run_began:,} on"
            )
        known = self.known()
        return session_of(self._source, self.recorder, self.table, unit=self.unit, began=self.began, **known)

    def begin_again(self, number: int, columns: Sequence[str] | None = None) -> None:
        """Start another recording at this line, if the previous one has rows; ``columns`` are those of a header."""
        self.over = False
        if self.begin_s is not None:
            self._runs += 1
            self._run_began = number
            self.begin_s = None
            self._last_s = -LARGEST
            self.reset()
        if columns is not None:
            self._columns = columns
            self.reset()

    def _pass_on(self, columns: Sequence[list[float]]) -> None:
        times = columns[self._columns.index(TIME)]
        self.begin_s = times[0] if self.begin_s is None else self.begin_s
        self._last_s = times[-1]
        self.take(dict(zip(self._columns, columns, strict=True)))

    def _values(self, lines: Lines) -> list[list[float]]:
        """Return lines as columns; raise ValueError or DecodeError when one is invalid."""
        if not lines.whole or not self._columns or self.over:
            raise ValueError
        columns = _split(self.numbers_of(lines.text), len(self._columns), self.separator)
        times = columns[self._columns.index(TIME)]
        is_in_order = self._last_s <= times[0] and times == sorted(times)
        named = zip(self._columns, columns, strict=True)
        is_possible = all(are_within(column, self.lowest, self._largest(name)) for name, column in named)
        if not (is_in_order and is_possible and times[0] >= 0 and times[-1] <= LATEST_S):
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
                if not ((lines.whole or self.ends_open) and self.take_line(place, line)):
                    problems.unreadable(place, line, why, is_whole=lines.whole)
                continue
            if self.over:
                self.begin_again(place)
            time_at = self._columns.index(TIME)
            time = row[time_at]
            before = rows[-1][time_at] if rows else self._last_s
            if not lines.whole:
                problems.unreadable(place, line, "", is_whole=False)
            elif time < before:
                problems.went_back(place, before - (self.begin_s or 0.0), time - (self.begin_s or 0.0))
                if len(rows) > 1 and before - time > _AHEAD * (time - rows[-2][time_at]) >= 0:
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
        if not self._columns:
            raise ValueError("no row is expected before the header")
        texts = self.numbers_of(line).split(self.separator)
        if len(texts) != len(self._columns):
            raise ValueError(f"{len(self._columns)} values expected, found {len(texts)}")
        return [self._number(name, text) for name, text in zip(self._columns, texts, strict=True)]

    def _largest(self, column: str) -> float:
        """Return the largest number that a column may hold, in its own unit."""
        return LARGEST / self.unit if is_memory(column) else LARGEST

    def _number(self, column: str, text: bytes) -> float:
        """Parse a number. Raises ValueError, which says what was expected."""
        if text == self.unknown and column != TIME:
            return nan
        if _NUMBER.fullmatch(text) is None:
            raise ValueError("a number expected")
        value = float(text)
        lowest, largest = (0.0, LATEST_S) if column == TIME else (self.lowest, self._largest(column))
        if not lowest <= value <= largest:
            raise ValueError(f"a number from {lowest:g} to {largest:g} expected")
        return value


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


class MonotonicTotal:
    """A sum of counters over live processes that never falls: what processes that ended had counted is kept.

    The total is a lower bound: a fall hides what other processes counted meanwhile.
    """

    def __init__(self, before: float | None = None) -> None:
        """``before`` is the count before the log's start; None means the first value."""
        self._before = before
        self._total = 0.0

    def take(self, values: list[float]) -> list[float]:
        """Return the total after each value; NaN for unknown values."""
        if self._before is None or isnan(sum(values)) or values[0] < self._before or values != sorted(values):
            return list(map(self._after, values))
        shift = self._total - self._before  # while nothing falls, the totals are the values
        self._before = values[-1]
        self._total = self._before + shift
        return [value + shift for value in values] if shift else values

    def _after(self, value: float) -> float:
        if isnan(value):
            return value
        if self._before is not None:
            self._total += max(0.0, value - self._before)
        self._before = value
        return self._total
