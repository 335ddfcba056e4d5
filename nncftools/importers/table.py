"""The samples and processes of a log, any number in bounded memory, and the session that they become.

Beyond a limit, neighbours are merged; no peak is lost.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import shlex
from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from math import inf, isnan, nan
from typing import Any

import msgspec

from nncftools.errors import SessionFileError
from nncftools.importers.source import Line, Problems, Source
from nncftools.intake import LARGEST, LATEST_S
from nncftools.journal.writing import kept_of_bucket
from nncftools.metrics import is_counter, is_memory
from nncftools.session.model import Host, Process, SamplerFacts, Series, Start
from nncftools.session.peaks import peaks
from nncftools.session.recording import last_counters
from nncftools.session.samples import TIME, Samples, merge_warning, usual_distance
from nncftools.session.session import Session

MAX_ROWS = 1_000_000
"""The most rows that a session holds."""
MAX_PROCESSES = 10_000
_BATCH = 100_000
"""Rows beyond the limit that are merged together."""
_NUMBER = "number"
"""The column of the numbers that rows had when they were read."""


class Table:
    """The samples of a log as they are read, with their count and longest gap.

    Beyond a limit, rows merge into buckets of equal numbers of original rows, so early and late rows count alike.
    """

    def __init__(self, names: Iterable[str]) -> None:
        """Start without rows; ``names`` are metrics; a time column is added."""
        self._rows = {name: array("d") for name in (TIME, *names, _NUMBER)}
        self.taken = 0
        """The number of samples before merging."""
        self.longest_gap_s: float | None = None
        self.last_s = 0.0
        """The time of the last row; 0 without rows."""
        self.bucket = 1
        """Original rows per bucket; 1: not merged."""

    def __len__(self) -> int:
        return len(self._rows[TIME])

    def extend(self, columns: Mapping[str, Sequence[float]]) -> None:
        """Add rows: columns of equal length, times ascending."""
        for row in zip(*(columns[name] for name in [*self._rows][:-1]), strict=True):
            self.append(row)

    def append(self, row: Iterable[float]) -> None:
        """Add one row: the time, then the metrics in their order."""
        for column, value in zip(self._rows.values(), (*row, self.taken), strict=True):
            column.append(value)
        time_s = self._rows[TIME][-1]
        if self.taken:
            self.longest_gap_s = max(self.longest_gap_s or 0.0, time_s - self.last_s)
        self.taken += 1
        self.last_s = time_s
        if len(self) > MAX_ROWS + _BATCH:
            self.columns()

    def halve(self) -> None:
        """Double the buckets: each keeps its last row, and those with the smallest and the largest values."""
        self.bucket *= 2
        self._merge()

    def columns(self) -> dict[str, array[float]]:
        """Return all rows that were kept, at most as many as a session holds."""
        self._merge()
        while len(self) > MAX_ROWS:
            self.halve()
        return {name: column for name, column in self._rows.items() if name != _NUMBER}

    def _merge(self) -> None:
        if self.bucket == 1:
            return
        gauges = [column for name, column in self._rows.items() if is_memory(name)]
        buckets = array("d", (number // self.bucket for number in self._rows[_NUMBER]))
        kept = array("q")
        for _, rows in groupby(range(len(buckets)), buckets.__getitem__):
            bucket = list(rows)
            kept.extend(kept_of_bucket(gauges, bucket[0], bucket[-1] + 1))
        self._rows = {name: array("d", map(column.__getitem__, kept)) for name, column in self._rows.items()}


class Children:
    """The processes that a log lists one by one, each with its RSS over time. A PID is one process."""

    def __init__(self) -> None:
        """Start without processes."""
        self._known: dict[int | None, tuple[Table, Sequence[str]]] = {}
        self._left_out = False
        self._values = 0

    def take(self, pid: int | None, time_s: float, rss: float, command: Sequence[str] = ()) -> None:
        """Add a sample, in the log's units; PID None is the one process whose PID is unknown."""
        if pid not in self._known:
            if len(self._known) == MAX_PROCESSES:
                self._left_out = True
                return
            self._known[pid] = Table(["rss"]), command
        self._known[pid][0].append((time_s, rss))
        self._values += 1
        while self._values > MAX_ROWS:
            for table, _ in self._known.values():
                table.halve()
            self._values = sum(len(table) for table, _ in self._known.values())

    def warn(self, problems: Problems) -> None:
        """Warn if processes were left out."""
        if self._left_out:
            problems.warn(f"only the first {MAX_PROCESSES:,} processes are listed; RSS is the sum of all")

    def processes(self, end_s: float, unit: int = 1) -> list[Process]:
        """Return the processes; those with a row at ``end_s``, the time of the last row, had not ended.

        ``unit`` is the size of the log's unit in bytes.
        """
        processes: list[Process] = []
        for pid, (table, command) in self._known.items():
            columns = table.columns()
            series = Series(time_s=list(columns[TIME]), rss=[round(value * unit) for value in columns["rss"]])
            process = Process(
                id=len(processes),
                pid=pid,
                name=os.path.basename(command[0]) if command else "",  # noqa: PTH119 — not of this machine
                command=list(command),
                start_s=series.time_s[0],
                end_s=table.last_s if table.last_s < end_s else None,
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


def session_of(
    source: Source,
    recorder: str,
    table: Table,
    *,
    unit: int = 1,
    began: float | None = None,
    **known: Any,  # noqa: ANN401 — any field of a session
) -> Session:
    """Return the session of a log.

    ``recorder`` is the importer's name, ``unit`` the size of the table's memory unit in bytes, ``began`` the start in
    Unix seconds; ``known`` are further fields of ``Session``. Raises SessionFileError when there is no sample.
    """
    if not table.taken:
        why = source.problems.first_unreadable or "it holds no sample"
        raise SessionFileError(f"{source.path}: nothing could be read as a log of {recorder}: {why}")
    columns = table.columns()
    for name in filter(is_memory, columns):
        columns[name] = array("d", [(value * unit + 0.5) // 1 for value in columns[name]])
    samples = Samples(columns, str(source.path), may_fall_below_zero=known.get("from_zero", False))
    time_s = samples.time_s
    if table.bucket > 1:
        source.problems.warn(merge_warning(table.taken, len(time_s)))
    start = None if began is None else dt.datetime.fromtimestamp(began, dt.timezone.utc)
    facts = SamplerFacts(
        source=recorder,
        taken=table.taken,
        achieved_interval_s=(time_s[-1] - time_s[0]) / (table.taken - 1) if table.taken > 1 else None,
        longest_gap_s=table.longest_gap_s,
        merged_s=usual_distance(time_s) if len(time_s) < table.taken else None,
    )
    fields: dict[str, Any] = {"duration_s": time_s[-1], "host": Host(), "finished": None, **known}
    return Session(
        name=source.path.name,
        start=Start() if start is None else Start(utc=start.isoformat(timespec="microseconds")),
        sampler=facts,
        samples=samples,
        totals=last_counters(samples),
        peaks=peaks(samples, [], None, {}),
        warnings=source.problems.warnings(),
        **fields,
    )


_AHEAD = 20
"""A row this many times farther ahead of its neighbours than they are apart is treated as the bad row."""
_NUMBERS = msgspec.json.Decoder(list[float])
_UNREADABLE = (ValueError, msgspec.DecodeError, OverflowError, RecursionError)


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
    is_unix = False
    """Whether times are Unix seconds: then the start is ``start_s``, or the first row if that is earlier."""
    start_s = inf
    others = ""
    """The pattern of lines that are not rows; its named groups are facts."""
    last = ""
    """The fact that ends a recording: a further row belongs to another one."""
    other_may_end_open = row_may_end_open = False
    """Whether the last line is complete without a line break."""

    def __init__(self, source: Source, columns: Sequence[str] = ()) -> None:
        """Read nothing yet. ``columns`` name the values of a row, the time and metrics; others are ignored."""
        self.source = source
        self.found: dict[str, str] = {}
        self._columns = columns
        """Empty until the header is read."""
        self._runs = 1
        self._run_began = 1
        self.reset()

    def reset(self) -> None:
        """Drop all rows: another recording begins in the same file."""
        self.began: float | None = None
        self._row: dict[str, Any] = {}
        """The last row, which is taken with the next one."""
        self._before_s = nan
        """The time of the row before it."""
        self._last_s = 0.0
        self.table = Table([name for name in self.metrics if name in self._columns])
        self._counters = {name: MonotonicTotal() for name in self._columns if is_counter(name)}

    def take(self, row: dict[str, Any]) -> None:
        """Add a row."""
        for name, counter in self._counters.items():
            row[name] = counter.take([row[name]])[0]
        self.table.extend({name: [value] for name, value in row.items()})

    def take_other(self, found: dict[str, str], _number: int) -> None:
        """Take the facts of a line that is not a row, by their names, and the number of the line."""
        self.found.update(found)

    def known(self) -> dict[str, Any]:
        """Return further fields of the session, when all is read. Raises SessionFileError."""
        return {}

    def read(self) -> Session:
        """Return the session of the whole log. Raises SessionFileError."""
        problems = self.source.problems
        for line in self.source.lines():
            try:
                row = self.parse(line.text)
            except _UNREADABLE as why:
                match = re.fullmatch(self.others, line.text.decode("utf-8", "backslashreplace"))
                if match and (line.is_whole or self.other_may_end_open):
                    found = {name: text for name, text in match.groupdict().items() if text is not None}
                    self.take_other(found, line.number)
                else:
                    problems.unreadable(line, why)
            else:
                self._take_row(line, row)
        if self._row:
            self.take(self._row)
        if self._runs > 1:
            this = f"this is the last, from line {self._run_began:,} on"
            problems.warn(f"the file holds {self._runs:,} recordings, one after another; {this}")
        known = self.known()
        return session_of(self.source, self.recorder, self.table, **{"unit": self.unit, "began": self.began, **known})

    def begin_again(self, number: int, columns: Sequence[str] = ()) -> None:
        """Start another recording at this line, if the previous one has rows; ``columns`` are those of a header."""
        if self._row:
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
        try:
            row = dict(zip(self._columns, _NUMBERS.decode(b"[%b]" % b",".join(texts)), strict=True))
        except msgspec.DecodeError:
            raise ValueError("a number expected") from None
        for name, value in row.items():
            lowest, largest = (0.0, LATEST_S) if name == TIME else (self.lowest, LARGEST)
            if not lowest <= value <= largest:
                raise ValueError(f"a number from {lowest:g} to {largest:g} expected")
        return row

    def _take_row(self, line: Line, row: dict[str, Any]) -> None:
        if self.last in self.found:
            self.found.clear()
            self.begin_again(line.number)
        if self.is_unix:
            self.began = min(row[TIME], self.start_s) if self.began is None else self.began
            row[TIME] -= self.began
        time_s = row[TIME]
        if not line.is_whole and not self.row_may_end_open:
            self.source.problems.unreadable(line, "")
        elif time_s < self._last_s:
            self.source.problems.went_back(line.number, self._last_s, time_s)
            if self._last_s - time_s > _AHEAD * (time_s - self._before_s) >= 0:
                self._row = row  # else a single time far ahead would lose all rows after it
                self._last_s = time_s
        else:
            if self._row:
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
        totals = []
        for value in values:
            if not isnan(value):
                self._total += 0.0 if self._before is None else max(0.0, value - self._before)
                self._before = value
            totals.append(value if isnan(value) else self._total)
        return totals
