"""The samples and processes of a log, any number in bounded memory, and the session that they become.

Beyond a limit, neighbours are merged; no peak is lost.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import re
import shlex
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isnan, nan
from typing import Any

import msgspec

from nncftools.errors import SessionFileError
from nncftools.importers.source import Line, Problems, Source
from nncftools.intake import LARGEST, LATEST_S
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
        self._settled += rows
        for name, column in self._kept.items():
            column.extend(new[name])
        self.new = {name: array("d") for name in self._kept}

    def halve(self) -> None:
        """Keep half of the rows."""
        self.settle()
        self._bucket = 2 * (self._bucket or len(self._gauges(self._kept)) * 2 + 1)
        self._kept = self._merged(self._kept, self._settled)

    def columns(self) -> Columns:
        """Return all rows that were kept, at most as many as a session holds."""
        self.settle()
        if len(self) > MAX_ROWS:
            self.halve()
        return self._kept

    def _merged(self, columns: Columns, rows: int) -> Columns:
        """Return the rows to keep of columns that hold this many original rows."""
        gauges = self._gauges(columns)
        kept = kept_rows(gauges, len(columns[TIME]), round(rows / self._bucket) * (len(gauges) * 2 + 1))
        return {name: array("d", map(column.__getitem__, kept)) for name, column in columns.items()}

    @staticmethod
    def _gauges(columns: Columns) -> list[array[float]]:
        return [column for name, column in columns.items() if is_memory(name)]


class Table(Merged):
    """The samples of a log as they are read, with their count and longest gap."""

    def __init__(self, names: Iterable[str]) -> None:
        """Start without rows; ``names`` are metrics; a time column is added."""
        super().__init__(names)
        self.taken = 0
        """The number of samples before merging."""
        self.longest_gap_s: float | None = None
        self.last_s = 0.0
        """The time of the last row; 0 without rows."""

    def extend(self, columns: Mapping[str, Sequence[float]]) -> None:
        """Add rows: columns of equal length, times ascending."""
        for row in zip(*(columns[name] for name in self.new), strict=True):
            self.append(row)

    def append(self, row: Iterable[float]) -> None:
        """Add one row: the time, then the metrics in their order."""
        for column, value in zip(self.new.values(), row, strict=True):
            column.append(value)
        time = self.new[TIME][-1]
        if self.taken:
            self.longest_gap_s = max(self.longest_gap_s or 0.0, time - self.last_s)
        self.taken += 1
        self.last_s = time
        if len(self.new[TIME]) >= max(_BATCH, self._bucket):
            self.columns()


class Children:
    """The processes that a log lists one by one, each with its RSS over time. A PID is one process."""

    def __init__(self) -> None:
        """Start without processes."""
        self._left_out = False
        self._known: dict[int | None, tuple[Table, Sequence[str]]] = {}
        self._values = 0

    def take(self, pid: int | None, time: float, rss: float, command: Sequence[str] = ()) -> None:
        """Add a sample, in the log's units; PID None is the one process whose PID is unknown."""
        if pid not in self._known:
            if len(self._known) == MAX_PROCESSES:
                self._left_out = True
                return
            self._known[pid] = Table(["rss"]), command
        self._known[pid][0].append((time, rss))
        self._values += 1
        if self._values > MAX_ROWS:
            for series, _ in self._known.values():
                series.halve()
            self._values = sum(len(series) for series, _ in self._known.values())

    def warn(self, problems: Problems) -> None:
        """Warn if processes were left out."""
        if self._left_out:
            problems.warn(f"only the first {MAX_PROCESSES:,} processes are listed; RSS is the sum of all")

    def processes(self, end: float, *, unit: int = 1, zero: float = 0.0) -> list[Process]:
        """Return the processes; those with a row at ``end``, the time of the last row, had not ended.

        ``unit`` is the size of the log's unit in bytes, ``zero`` the time of the start.
        """
        processes = []
        for number, (pid, (table, command)) in enumerate(self._known.items()):
            columns = table.columns()
            series = Series(
                time_s=[time - zero for time in columns[TIME]],
                rss=[round(value * unit) for value in columns["rss"]],
            )
            process = Process(
                id=number,
                pid=pid,
                name=os.path.basename(command[0]) if command else "",  # noqa: PTH119 — not of this machine
                command=list(command),
                start_s=series.time_s[0],
                end_s=series.time_s[-1] if table.last_s < end else None,
                samples=table.taken,
                peak_rss=max(series.rss),
                series=series,
            )
            processes.append(process)
        return processes


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
    if not table.taken:
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
    if is_merged:
        source.problems.warn(merge_warning(table.taken, len(time_s)))
    start = Start()
    with contextlib.suppress(ValueError, OverflowError, OSError):  # else it is no time
        if began is not None:
            start = Start(utc=dt.datetime.fromtimestamp(began, dt.timezone.utc).isoformat(timespec="microseconds"))
    facts = SamplerFacts(
        source=recorder,
        taken=table.taken,
        achieved_interval_s=(time_s[-1] - time_s[0]) / (table.taken - 1) if table.taken > 1 else None,
        longest_gap_s=table.longest_gap_s,
        merged_s=usual_distance(time_s) if is_merged else None,
    )
    fields: dict[str, Any] = {"duration_s": time_s[-1], "host": Host(), "finished": None, **known}
    return Session(
        name=source.path.name,
        start=start,
        sampler=facts,
        samples=samples,
        totals=last_counters(samples),
        peaks=peaks(samples, [], None, {}),
        warnings=source.problems.warnings(),
        **fields,
    )


_AHEAD = 20
"""A row this many times farther ahead of its neighbours than they are apart is treated as the bad row."""
_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
_UNREADABLE = (ValueError, msgspec.DecodeError, OverflowError, RecursionError)
Others = Sequence[tuple[str, Callable[[Any, re.Match[str], int], None]]]


class RowLog:
    """Reads a log with a row for each sample, in time order; a row before the last one is left out."""

    recorder: str
    """The importer's name."""
    metrics: Sequence[str] = ("rss",)
    """The metrics that a log may hold, in a session's order."""
    unit = 1
    """The log's unit of memory, in bytes."""
    separator: bytes | None = None
    """The separator of numbers; None: any whitespace."""
    lowest = 0.0
    """The smallest valid number; a time is never below zero."""
    others: Others = ()
    """For lines that are not rows: a pattern, and the method that takes the match and the number of the line."""
    other_may_end_open = row_may_end_open = False
    """Whether the last line is complete without a line break."""

    def __init__(self, source: Source, columns: Sequence[str] = ()) -> None:
        """Read nothing yet. ``columns`` name the values of a row, the time and metrics; others are ignored."""
        self.source = source
        self.over = False
        """Whether the recording has ended: a further row belongs to another one."""
        self._columns = columns
        """Empty until the header is read."""
        self._runs = 1
        self._run_began = 1
        self.reset()

    def reset(self) -> None:
        """Drop all rows: another recording begins in the same file."""
        self.began: float | None = None
        """The start in Unix seconds."""
        self.begin_s: float | None = None
        """The time of the first row, in the log's own clock."""
        self._row: dict[str, Any] | None = None
        """The last row, which is taken with the next one."""
        self._last_s, self._before_s = 0.0, nan
        """The times of this row and of the one before it."""
        self.table = Table([name for name in self.metrics if name in self._columns])
        self._counters = {name: MonotonicTotal() for name in self.table.new if is_counter(name)}
        self._limits = {name: (self.lowest, LARGEST / (self.unit if is_memory(name) else 1)) for name in self._columns}
        self._limits[TIME] = 0.0, LATEST_S

    def take(self, row: dict[str, Any]) -> None:
        """Add a row."""
        for name, counter in self._counters.items():
            row[name] = counter.count(row[name])
        self.table.append(map(row.__getitem__, self.table.new))

    def known(self) -> dict[str, Any]:
        """Return further fields of the session, when all is read. Raises SessionFileError."""
        return {}

    def read(self) -> Session:
        """Return the session of the whole log. Raises SessionFileError."""
        for line in self.source.lines():
            try:
                row = self.parse(line.text)
            except _UNREADABLE as why:
                if not self._take_other(line):
                    self.source.problems.unreadable(line, why)
            else:
                self._take_row(line, row)
        if self._row is not None:
            self.take(self._row)
        if self._runs > 1:
            this = f"this is the last, from line {self._run_began:,} on"
            self.source.problems.warn(f"the file holds {self._runs:,} recordings, one after another; {this}")
        known = self.known()
        return session_of(self.source, self.recorder, self.table, unit=self.unit, began=self.began, **known)

    def begin_again(self, number: int, columns: Sequence[str] | None = None) -> None:
        """Start another recording at this line, if the previous one has rows; ``columns`` are those of a header."""
        self.over = False
        if self.begin_s is not None:
            self._runs += 1
            self._run_began = number
        self._columns = columns or self._columns
        self.reset()

    def parse(self, text: bytes) -> dict[str, Any]:
        """Return a line as the values of a row. Raises ValueError, which says why not."""
        if not self._columns:
            raise ValueError("no row is expected before the header")
        texts = text.split(self.separator)
        if len(texts) != len(self._columns):
            raise ValueError(f"{len(self._columns)} values expected, found {len(texts)}")
        return {name: self._number(name, text) for name, text in zip(self._columns, texts, strict=True)}

    def _number(self, column: str, text: bytes) -> float:
        """Parse a number. Raises ValueError, which says what was expected."""
        if _NUMBER.fullmatch(text) is None:
            raise ValueError("a number expected")
        value = float(text)
        lowest, largest = self._limits[column]
        if not lowest <= value <= largest:
            raise ValueError(f"a number from {lowest:g} to {largest:g} expected")
        return value

    def _take_other(self, line: Line) -> bool:
        """Read a line that is not a row; return whether it belongs to this kind of log."""
        if line.is_whole or self.other_may_end_open:
            text = line.text.decode("utf-8", "backslashreplace")
            for pattern, take in self.others:
                if match := re.fullmatch(pattern, text):
                    take(self, match, line.number)
                    return True
        return False

    def _take_row(self, line: Line, row: dict[str, Any]) -> None:
        if self.over:
            self.begin_again(line.number)
        time_s = row[TIME]
        if not line.is_whole and not self.row_may_end_open:
            self.source.problems.unreadable(line, "")
        elif time_s < self._last_s:
            begin_s = self.begin_s or 0.0
            self.source.problems.went_back(line.number, self._last_s - begin_s, time_s - begin_s)
            if self._last_s - time_s > _AHEAD * (time_s - self._before_s) >= 0:
                self._row = row  # else a single time far ahead would lose all rows after it
                self._last_s = time_s
        else:
            if self._row is None:
                self.begin_s = time_s
            else:
                self.take(self._row)
                self._before_s = self._last_s
            self._row = row
            self._last_s = time_s


class MonotonicTotal:
    """A sum of counters over live processes that never falls: what processes that ended had counted is kept.

    The total is a lower bound: a fall hides what other processes counted meanwhile.
    """

    def __init__(self, before: float | None = None) -> None:
        """``before`` is the count before the log's start; None means the first value."""
        self._before = before
        self._total = 0.0

    def take(self, values: Iterable[float]) -> list[float]:
        """Return the total after each value; NaN for unknown values."""
        return list(map(self.count, values))

    def count(self, value: float) -> float:
        """Return the total after a value; NaN for an unknown one."""
        if isnan(value):
            return value
        if self._before is not None:
            self._total += max(0.0, value - self._before)
        self._before = value
        return self._total
