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
from collections.abc import Iterable, Sequence
from itertools import groupby
from math import inf
from operator import le, sub
from typing import Any

import msgspec

from nncftools import metrics
from nncftools.analysis.session import Session
from nncftools.errors import SessionFileError
from nncftools.importers.source import LogLines, Source
from nncftools.intake import LARGEST, LATEST_S
from nncftools.journal.writing import kept_of_bucket
from nncftools.metrics import is_memory
from nncftools.session.model import Host, Process, SamplerFacts, Series, SessionData, Start
from nncftools.session.recording import last_counters
from nncftools.session.samples import TIME, Samples, merge_warning, usual_distance

MAX_ROWS = 1_000_000
"""The most rows that a session holds."""
MAX_PROCESSES = 10_000
_BATCH = 100_000
"""Rows beyond the limit that are merged together."""
Columns = dict[str, Sequence[Any]]
"""The values of several rows, by the column's name."""


class LogTable:
    """The samples of a log as they are read, with their count and longest gap.

    Beyond a limit, rows merge into buckets of equal numbers of original rows, so early and late rows count alike.
    """

    def __init__(self, names: Iterable[str]) -> None:
        """Start without rows; ``names`` are metrics; a time column is added."""
        self.columns = {name: array("d") for name in (TIME, *names)}
        self.taken = 0
        """The number of samples before merging."""
        self._numbers = array("d")
        """By row: how many samples were taken before it."""
        self.bucket = 1
        """Original rows per bucket; 1: not merged."""
        self._merged = 0
        """The first row that may still be merged with later ones."""

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def last_s(self) -> float:
        """The time of the last row; 0 without rows."""
        return self.columns[TIME][-1] if self.taken else 0.0

    def extend(self, columns: Columns) -> None:
        """Add rows: columns of equal length, times ascending; columns of other names are ignored."""
        for name, column in self.columns.items():
            column.extend(columns[name])
        taken = self.taken + len(columns[TIME])
        self._numbers.extend(range(self.taken, taken))
        self.taken = taken
        if len(self) > MAX_ROWS + _BATCH:
            self.shorten()

    def shorten(self) -> None:
        """Merge rows until there are at most as many as a session holds."""
        if self.bucket > 1:
            self._merge()
        while len(self) > MAX_ROWS:
            self.halve()

    def halve(self) -> None:
        """Double the buckets: each keeps its last row, and those with the smallest and the largest values."""
        self.bucket *= 2
        self._merged = 0
        self._merge()

    def _merge(self) -> None:
        gauges = [column for name, column in self.columns.items() if is_memory(name)]
        begin = self._merged
        kept: list[int] = []
        for _, rows in groupby(range(begin, len(self)), lambda row: self._numbers[row] // self.bucket):
            self._merged = begin + len(kept)  # the last bucket may get further rows
            bucket = list(rows)
            kept += kept_of_bucket(gauges, bucket[0], bucket[-1] + 1)
        for column in (*self.columns.values(), self._numbers):
            column[begin:] = array("d", map(column.__getitem__, kept))


class Children:
    """The processes that a log lists one by one, each with its RSS over time. A PID is one process."""

    def __init__(self) -> None:
        """Start without processes."""
        self.tables: dict[int | None, LogTable] = {}
        self._commands: dict[int | None, list[str]] = {}
        self._left_out = False
        self._rows = 0

    def extend(
        self, pid: int | None, times: Sequence[float], sizes: Sequence[float], command: Sequence[str] = ()
    ) -> None:
        """Add samples, in the log's units; PID None is the one process whose PID is unknown."""
        if pid not in self.tables:
            if len(self.tables) == MAX_PROCESSES:
                self._left_out = True
                return
            self.tables[pid] = LogTable(["rss"])
            self._commands[pid] = list(command)
        self.tables[pid].extend({TIME: times, "rss": sizes})
        self._rows += len(times)
        while self._rows > MAX_ROWS:
            for table in self.tables.values():
                table.halve()
            self._rows = sum(map(len, self.tables.values()))

    def processes(self, source: Source, end_s: float, unit: int = 1) -> list[Process]:
        """Return the processes; those with a row at ``end_s``, the time of the last row, had not ended.

        ``unit`` is the size of the log's unit in bytes. Warn if processes were left out.
        """
        if self._left_out:
            source.warn(f"only the first {MAX_PROCESSES:,} processes are listed; RSS is the sum of all")
        processes: list[Process] = []
        for pid, table in self.tables.items():
            command = self._commands[pid]
            times = list(table.columns[TIME])
            sizes = [round(value * unit) for value in table.columns["rss"]]
            processes.append(
                Process(
                    id=len(processes),
                    pid=pid,
                    name=os.path.basename(next(iter(command), "")),  # noqa: PTH119 — not of this machine
                    command=command,
                    start_s=times[0],
                    end_s=times[-1] if times[-1] < end_s else None,
                    samples=table.taken,
                    peak_rss=max(sizes),
                    series=Series(time_s=times, rss=sizes),
                )
            )
        return processes


def words(command: str) -> list[str]:
    """Split a command that a log stores as one text into words; return it whole when that fails."""
    try:
        return shlex.split(command)
    except ValueError:
        return [command]


_NUMBERS = msgspec.json.Decoder(list[float])
_UNREADABLE = (ValueError, msgspec.DecodeError, OverflowError, RecursionError)


class RowLog:
    """Reads a log with a row for each sample, in time order.

    Many lines are read at once. If a line is not a row, each half of the lines is read alone, down to the single line.
    """

    head: re.Pattern[bytes]
    """The pattern of the file's name and its first lines, by which it is recognised."""
    recorder: str
    """The importer's name."""
    columns: Sequence[str]
    """The values of a row: the time, metrics, and others, which the samples do not hold."""
    unit = 1
    """The log's unit of memory, in bytes."""
    lowest = 0.0
    """The smallest valid number; a time is never below zero."""
    start_s: float | None = None
    """The start, if times are Unix seconds; the first row counts if it is earlier. None: times are since the start."""
    others = ""
    """The pattern of lines that are not rows; its named groups are facts."""
    first = last = ""
    """The facts that begin and end a recording: what follows belongs to another one."""
    other_may_end_open = False
    """Whether the last line, if it is not a row, is complete without a line break."""

    def __init__(self, source: Source) -> None:
        """Read nothing yet."""
        self.source = source
        self.found: dict[str, str] = {}
        self.reset()

    def reset(self) -> None:
        """Drop all rows: another recording begins in the same file."""
        self.began: float | None = None
        self.table = LogTable(metrics.in_order(name for name in self.columns if metrics.of(name)))
        self.children = Children()

    def take(self, columns: Columns) -> None:
        """Add rows."""
        self.table.extend(columns)

    def take_other(self, found: dict[str, str]) -> None:
        """Take the facts of a line that is not a row, by their names."""
        self.found.update(found)

    def known(self) -> dict[str, Any]:
        """Return further fields of the session, when all is read and there are rows."""
        return {}

    def read(self) -> Session:
        """Return the session of the whole log. Raises SessionFileError when there is no sample."""
        source = self.source
        for lines in source.lines():
            if lines.is_whole:
                self._read_lines(lines)
            else:
                self._read_other(lines, "")
        if not self.table.taken:
            raise SessionFileError(
                f"{source.path}: nothing could be read as a log of {self.recorder}: "
                f"{source.first_left_out or 'it holds no sample'}"
            )
        return self._session(self.known())

    def parse(self, texts: list[bytes]) -> Columns:
        """Return lines as the values of rows. Raises ValueError, which says why not."""
        rows = [text.split() for text in b"\n".join(texts).replace(b",", b" ").split(b"\n")]
        if {*map(len, rows)} != {len(self.columns)}:
            raise ValueError(f"{len(self.columns)} values expected, found {len(rows[-1])}")
        columns: Columns = {}
        for name, values in zip(self.columns, zip(*rows, strict=True), strict=True):
            largest = LARGEST / self.unit if is_memory(name) else LARGEST
            lowest, largest = (0.0, LATEST_S) if name == TIME else (self.lowest, largest)
            with contextlib.suppress(*_UNREADABLE):
                columns[name] = _NUMBERS.decode(b"[%b]" % b",".join(values))
            numbers = columns.get(name)
            if not numbers or min(numbers) < lowest or max(numbers) > largest:
                raise ValueError(f"a number from {lowest:g} to {largest:g} expected as {name}")
        return columns

    def _session(self, known: dict[str, Any]) -> Session:
        """Return the session of all rows; ``known`` are fields of it."""
        source = self.source
        table = self.table
        table.shorten()
        if table.bucket > 1:
            source.warn(merge_warning(table.taken, len(table)))
        for name in filter(is_memory, table.columns):
            table.columns[name] = array("d", [(value * self.unit + 0.5) // 1 for value in table.columns[name]])
        samples = Samples(table.columns, str(source.path), may_fall_below_zero=known.get("from_zero", False))
        time_s = samples.time_s
        is_each_known = len(table) == table.taken
        facts = SamplerFacts(
            source=self.recorder,
            taken=table.taken,
            achieved_interval_s=(time_s[-1] - time_s[0]) / (table.taken - 1) if table.taken > 1 else None,
            longest_gap_s=max(map(sub, time_s[1:], time_s), default=None) if is_each_known else None,
            merged_s=None if is_each_known else usual_distance(time_s),
        )
        start = Start()
        if self.began is not None:
            start = Start(utc=dt.datetime.fromtimestamp(self.began, dt.timezone.utc).isoformat(timespec="microseconds"))
        end_s = inf if known.get("finished") else time_s[-1]  # then all processes have ended
        fields: dict[str, Any] = {"host": Host(), "finished": None, **known}
        fields["duration_s"] = max(known.get("duration_s", 0.0), time_s[-1])
        processes = self.children.processes(source, end_s, self.unit)
        session = Session.of(
            SessionData(
                name=source.path.name,
                start=start,
                sampler=facts,
                samples=samples,
                totals=last_counters(samples),
                warnings=source.warnings(),
                **fields,
            )
        )
        session.processes = processes  # their own peaks say nothing of the sum
        return session

    def _read_lines(self, lines: LogLines) -> None:
        try:
            columns = self._rows_of(lines.texts)
        except _UNREADABLE as why:
            half = len(lines.texts) // 2
            if half:
                self._read_lines(LogLines(lines.number, lines.texts[:half]))
                self._read_lines(LogLines(lines.number + half, lines.texts[half:]))
            else:
                self._read_other(lines, why)
        else:
            self.take(columns)

    def _rows_of(self, texts: list[bytes]) -> Columns:
        """Return lines as rows that follow the last one. Raises ValueError, which says why not."""
        columns = self.parse(texts)
        if self.last in self.found:
            self.found.clear()
            self._begin_again()
        if self.start_s is not None:
            began = self.began = min(columns[TIME][0], self.start_s) if self.began is None else self.began
            columns[TIME] = [time_s - began for time_s in columns[TIME]]
        times = columns[TIME]
        last_s = self.table.last_s
        if not all(map(le, [last_s, *times], times)):
            raise ValueError(f"its time of {times[0]:.6g} s is before that of the row before, {last_s:.6g} s")
        return columns

    def _read_other(self, lines: LogLines, why: object) -> None:
        """Take a line that is not a row."""
        (text,) = lines.texts
        match = re.fullmatch(self.others, text.decode("utf-8", "backslashreplace"))
        if match and (lines.is_whole or self.other_may_end_open):
            found = {name: fact for name, fact in match.groupdict().items() if fact is not None}
            if self.first in found:
                self._begin_again()
            self.take_other(found)
        elif not lines.is_whole:
            self.source.warn("the last line is cut off: it was left out")
        elif text and not text.isspace():
            self.source.leave_out(lines.number, text, why)

    def _begin_again(self) -> None:
        """Start another recording, if the previous one has rows."""
        if self.table.taken:
            self.source.warn("the file holds several recordings, one after another: this is the last")
        self.reset()
