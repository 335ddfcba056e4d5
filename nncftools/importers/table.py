"""The samples and processes of a log, any number in bounded memory, and the session that they become.

Beyond a limit, neighbours are merged; no peak is lost. Rows of numbers are parsed in bulk when all lines are valid,
line by line otherwise.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import re
import shlex
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Mapping, Sequence
from math import isnan, nan
from operator import sub
from typing import Any

import msgspec

from nncftools.errors import SessionFileError
from nncftools.importers.source import Lines, Problems, Source
from nncftools.intake import LARGEST, LATEST_S, are_within
from nncftools.metrics import is_counter, is_memory
from nncftools.session.model import Host, Process, SamplerFacts, Series, Start
from nncftools.session.peaks import peaks
from nncftools.session.recording import last_counters
from nncftools.session.samples import TIME, Samples, kept_rows, merge_warning, usual_distance
from nncftools.session.session import Session

MAX_ROWS = 1_000_000
"""The most rows that a session holds."""
MAX_PROCESSES = 10_000
_BATCH = 100_000
"""New rows are merged in batches of at least this many."""

Columns = dict[str, "array[float]"]


class Merged:
    """Columns that keep all rows at first, and half as many after each ``halve``.

    All rows count alike, early or late: every bucket holds the same number of original rows.
    """

    def __init__(self, names: Iterable[str]) -> None:
        """Start without rows; ``names`` are metrics; a time column is added."""
        self.new: Columns = {name: array("d") for name in (TIME, *names)}
        """Rows since the last ``settle``; append to all columns or none."""
        self._kept: Columns = {name: array("d") for name in self.new}
        self._kept_per_bucket = 2 * sum(is_memory(name) for name in self.new) + 1
        self._bucket = 0
        """Original rows per bucket; 0: not merged."""
        self._settled = 0
        """Original rows before the new ones."""

    def __len__(self) -> int:
        return len(self._kept[TIME]) + len(self.new[TIME])

    def settle(self) -> None:
        """Merge the new rows as the earlier ones were merged."""
        rows = len(self.new[TIME])
        new = self._merged(self.new, rows) if self._bucket else self.new
        for name, column in self._kept.items():
            column.extend(new[name])
        self._settled += rows
        self.new = {name: array("d") for name in self._kept}

    def halve(self) -> None:
        """Keep half of the rows."""
        self.settle()
        self._bucket = 2 * (self._bucket or self._kept_per_bucket)
        self._kept = self._merged(self._kept, self._settled)

    def bound(self) -> None:
        """Merge when there are enough new rows, and more rows than a session holds."""
        if len(self.new[TIME]) >= max(_BATCH, self._bucket):
            self.settle()
            if len(self) > MAX_ROWS:
                self.halve()

    def _merged(self, columns: Columns, rows: int) -> Columns:
        """Return the rows to keep of columns that hold this many original rows."""
        gauges = [column for name, column in columns.items() if is_memory(name)]
        kept = kept_rows(gauges, len(columns[TIME]), round(rows / self._bucket) * self._kept_per_bucket)
        return {name: array("d", map(column.__getitem__, kept)) for name, column in columns.items()}

    def columns(self) -> Columns:
        """Return all rows that were kept."""
        self.settle()
        return self._kept


class Table(Merged):
    """The samples of a log as they are read, with their count and longest gap."""

    def __init__(self, names: Iterable[str]) -> None:
        """Start without rows; ``names`` are metrics; a time column is added."""
        super().__init__(names)
        self.taken = 0
        """The number of samples before merging."""
        self.longest_gap_s: float | None = None
        self._last: list[float] = []

    @property
    def last_s(self) -> float:
        """The time of the last row; 0 without rows."""
        return self._last[0] if self._last else 0.0

    def extend(self, columns: Mapping[str, list[float]]) -> None:
        """Add rows: columns of equal length, times ascending."""
        for name, column in self.new.items():
            column.fromlist(columns[name])
        self.taken += len(columns[TIME])
        times = [*self._last, *columns[TIME]]
        gap = max(map(sub, times[1:], times), default=0.0)
        if self.taken > 1:
            self.longest_gap_s = max(gap, self.longest_gap_s or 0.0)
        self._last = times[-1:]
        self.bound()

    def append(self, row: Sequence[float]) -> None:
        """Add one row: the time, then the metrics in their order."""
        self.extend({name: [value] for name, value in zip(self.new, row, strict=True)})

    def columns(self) -> Columns:
        """Return all rows that were kept, at most as many as a session holds."""
        if len(self) > MAX_ROWS:
            self.halve()
        return super().columns()


class Children:
    """The processes that a log lists one by one, each with its RSS over time. A PID is one process."""

    def __init__(self) -> None:
        """Start without processes."""
        self._left_out = False
        self._known: dict[int | None, _Child] = {}
        self._values = 0

    def __bool__(self) -> bool:
        return bool(self._known)

    def take(self, pid: int | None, time: float, rss: float, command: Sequence[str] = ()) -> None:
        """Add a sample, in the log's units; PID None is the one process whose PID is unknown."""
        child = self._known.get(pid)
        if child is None:
            if len(self._known) == MAX_PROCESSES:
                self._left_out = True
                return
            child = self._known[pid] = _Child(command)
        child.samples += 1
        child.new[TIME].append(time)
        child.new["rss"].append(rss)
        self._values += 1
        if self._values > MAX_ROWS:
            for child in self._known.values():
                child.halve()
            self._values = sum(map(len, self._known.values()))

    def warn(self, problems: Problems) -> None:
        """Warn if processes were left out."""
        if self._left_out:
            problems.warn(f"only the first {MAX_PROCESSES:,} processes are listed; RSS is the sum of all")

    def processes(self, end: float, *, unit: int = 1, zero: float = 0.0) -> list[Process]:
        """Return the processes; those with a row at ``end``, the time of the last row, had not ended.

        ``unit`` is the size of the log's unit in bytes, ``zero`` the time of the start.
        """
        processes = []
        for number, (pid, child) in enumerate(self._known.items()):
            columns = child.columns()
            time_s = [time - zero for time in columns[TIME]]
            rss = [round(value * unit) for value in columns["rss"]]
            process = Process(
                id=number,
                pid=pid,
                name=os.path.basename(child.command[0]) if child.command else "",  # noqa: PTH119 — not of this machine
                command=child.command,
                start_s=time_s[0],
                end_s=time_s[-1] if time_s[-1] < end - zero else None,
                samples=child.samples,
                peak_rss=max(rss),
                series=Series(time_s=time_s, rss=rss),
            )
            processes.append(process)
        return processes


class _Child(Merged):
    def __init__(self, command: Sequence[str]) -> None:
        super().__init__(["rss"])
        self.command = list(command)
        self.samples = 0


def words(command: str) -> list[str]:
    """Split a command that a log stores as one text into words; return it whole when that fails."""
    try:
        return shlex.split(command)
    except ValueError:
        return [command]


def session_of(  # noqa: PLR0913 — everything that differs between logs
    source: Source,
    recorder: str,
    table: Table,
    *,
    unit: int = 1,
    zero: float = 0.0,
    began: float | None = None,
    **known: Any,  # noqa: ANN401 — any field of a session
) -> Session:
    """Return the session of a log.

    ``recorder`` is the importer's name, ``unit`` the size of the table's memory unit in bytes, ``zero`` the table's
    time at the start, ``began`` the start in Unix seconds; ``known`` are further fields of ``Session``. Raises
    SessionFileError when there is no sample.
    """
    if not len(table):
        why = source.problems.first_unreadable or "it holds no sample"
        raise SessionFileError(f"{source.path}: nothing could be read as a log of {recorder}: {why}")
    columns = dict(table.columns())
    for name, column in columns.items():
        if name == TIME and zero:
            columns[name] = array("d", [time - zero for time in column])
        elif is_memory(name) and unit != 1:
            columns[name] = array("d", [(value * unit + 0.5) // 1 for value in column])
    samples = Samples(columns, str(source.path), may_fall_below_zero=known.get("from_zero", False))
    time_s = samples.time_s
    is_merged = len(time_s) < table.taken
    facts = SamplerFacts(
        source=recorder,
        taken=table.taken,
        achieved_interval_s=(time_s[-1] - time_s[0]) / (table.taken - 1) if table.taken > 1 else None,
        longest_gap_s=table.longest_gap_s,
        merged_s=usual_distance(time_s) if is_merged else None,
    )
    given: dict[str, Any] = {"duration_s": time_s[-1], "host": Host(), "finished": None}
    start = Start()
    with contextlib.suppress(ValueError, OverflowError, OSError):  # else it is no time
        if began is not None:
            start = Start(utc=dt.datetime.fromtimestamp(began, dt.timezone.utc).isoformat(timespec="microseconds"))
    return Session(
        name=source.path.name,
        start=start,
        sampler=facts,
        samples=samples,
        totals=last_counters(samples),
        peaks=peaks(samples, [], None, {}),
        warnings=[*source.problems.warnings(), *([merge_warning(table.taken, len(time_s))] if is_merged else [])],
        **(given | known),
    )


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
            this = f"this is the last, from line {self._run_began:,} on"
            self._source.problems.warn(f"the file holds {self._runs:,} recordings, one after another; {this}")
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
        for number, line in lines.numbered():
            try:
                row = self._row(line)
            except ValueError as why:
                self._pass_on_rows(rows)
                if not ((lines.whole or self.ends_open) and self.take_line(number, line)):
                    problems.unreadable(number, line, why, is_whole=lines.whole)
                continue
            if self.over:
                self.begin_again(number)
            time_at = self._columns.index(TIME)
            time = row[time_at]
            before = rows[-1][time_at] if rows else self._last_s
            if not lines.whole:
                problems.unreadable(number, line, "", is_whole=False)
            elif time < before:
                problems.went_back(number, before - (self.begin_s or 0.0), time - (self.begin_s or 0.0))
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
    return [numbers[column::width] for column in range(width)]


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
