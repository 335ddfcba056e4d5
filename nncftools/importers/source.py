"""Open any file as a session: a session or journal of nncf-tools, or the log of another recorder.

A log is read in blocks of whole lines, so memory use is limited for logs of any size. If a log has very many rows,
neighbouring rows are merged, and no peak is lost. Lines that cannot be read are counted.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import importlib
import io
import os
import pathlib
import re
import shlex
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from math import inf
from operator import le, sub
from typing import Any, NamedTuple

import msgspec

from nncftools import intake, metrics
from nncftools.analysis.session import Session
from nncftools.errors import SessionFileError, UsageError
from nncftools.importers import IMPORTERS
from nncftools.intake import LARGEST, LATEST_S, Progress, Redaction, WrongValueError
from nncftools.journal.writing import select_extremes
from nncftools.metrics import is_memory
from nncftools.session import session
from nncftools.session.model import Host, Process, SamplerFacts, Series, SessionData, Start
from nncftools.session.recording import last_counters
from nncftools.session.samples import TIME, Samples, merge_warning, usual_distance
from nncftools.session.session import mend
from nncftools.units import not_one_of

_HEAD = 1 << 16
_LONGEST_LINE = 4 << 20
"""Longest line in bytes: enough for a line of con-duct with 20,000 processes."""
_SHOWN = 60


class LogLines(NamedTuple):
    """Consecutive lines of a file, without their line breaks."""

    number: int
    """Number of the first of these lines; the first line of the file is line 1."""
    texts: list[bytes]
    is_whole: bool = True
    """False if this is the last line of a file and lacks a line break."""


class Source:
    """An open log; a context manager."""

    def __init__(self, path: pathlib.Path, progress: Progress | None = None) -> None:
        """Open a file or FIFO, also if gzipped. Raises SessionFileError."""
        self.path = path
        self.progress = progress
        self.first_left_out = ""
        """The first line that could not be used, with the reason; empty if all lines were used."""
        self._left_out = 0
        self._warnings: dict[str, None] = {}
        self._file = intake.open_file(path)
        self._bytes = io.BufferedReader(intake.Counted(self._file, progress), _HEAD)

    @functools.cached_property
    def head(self) -> bytes:
        """Up to 64 KiB from the start of the file, unpacked and with Unix line breaks. Raises OSError.

        The last line may be cut off.
        """
        begin = self._bytes.peek(_HEAD)[:_HEAD]
        if begin.startswith(intake.GZIP):
            begin = intake.begin(begin, _HEAD)
        return begin.removeprefix(intake.UTF_8_MARK).replace(b"\r\n", b"\n")

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def as_session(self) -> Session:
        """Read the file as a session or a journal of nncf-tools. Raises SessionFileError."""
        intake.check_size(self._file, self.path)
        return Session.of(session.load_from(self._bytes, self.path))

    def leave_out(self, number: int, text: bytes, why: object) -> None:
        """Count a line that cannot be used."""
        self.first_left_out = self.first_left_out or f"line {number}: {quote(text)}: {why}"
        self._left_out += 1

    def warn(self, text: str) -> None:
        """Add a warning, unless the same text was already added."""
        self._warnings[text] = None

    def warnings(self) -> list[str]:
        """Return all warnings, including the number of lines that could not be used."""
        warnings = list(self._warnings)
        if self._left_out:
            warnings.insert(0, f"lines left out: {self._left_out:,}; the first is {self.first_left_out}")
        return warnings

    def lines(self) -> Iterator[LogLines]:
        """Yield all lines; lines of more than 4 MiB are cut. Raises SessionFileError, OSError.

        If the gzip data is damaged, stop at the damage and add a warning.
        """
        number = 1
        rest = b""
        try:
            for piece in intake.pieces(self._bytes, self.path):
                *texts, rest = (rest + piece).replace(b"\r\n", b"\n").split(b"\n")
                rest = rest[:_LONGEST_LINE]
                if texts:
                    yield LogLines(number, texts)
                    number += len(texts)
        except intake.DAMAGED as error:
            self.warn(f"the gzip file is damaged or truncated; only the part before the damage was read: {error}")
        if rest and not rest.isspace():
            yield LogLines(number, [rest], is_whole=False)


def quote(line: bytes) -> str:
    """Return a line for a message: shortened, printable and in quotation marks."""
    return f"'{intake.shown(line[:_SHOWN].decode('utf-8', 'backslashreplace'))}'"


_OURS = re.compile(rb'"format"\s*:\s*"nncf-tools-(session|journal)"')


def read_session(path: str | os.PathLike[str], forced: str | None = None, progress: Progress | None = None) -> Session:
    """Load any file as a session: a session, a journal, or another recorder's log; each may be gzipped.

    ``forced`` is the name of the importer; if None, the content of the file decides. While an importer reads,
    ``progress`` is called with the bytes read so far and the total (None if unknown). Raises SessionFileError with the
    file, the line and the expected content; raises UsageError for an unknown importer.
    """
    if forced == "prmon":
        raise UsageError("prmon was removed; psrecord reads a CSV with the columns elapsed_time,mem_real (s, MiB)")
    if forced not in (None, *IMPORTERS):
        raise UsageError(not_one_of(str(forced), IMPORTERS))
    try:
        with Source(pathlib.Path(path), progress) as source:
            return _read(source, forced)
    except OSError as error:
        raise SessionFileError(f"{path}: cannot be read: {error.strerror or error}") from error


def _read(source: Source, forced: str | None) -> Session:
    path = source.path
    head = source.head
    begins_an_object = head.lstrip().startswith(b"{")
    if forced is None and begins_an_object and _OURS.search(head):
        return source.as_session()
    begin = os.fsencode(path.name) + b"\n" + head
    for name, importer in IMPORTERS.items():
        module, _, log_class = importer.partition(":")
        log = getattr(importlib.import_module(module), log_class)
        if name == forced or (forced is None and log.head.match(begin)):
            return _remove_secrets(log(source).read(), path)
    if begins_an_object or not head.strip() or head.startswith(intake.UTF_16_MARKS):
        return source.as_session()  # raises an error with the reason
    raise SessionFileError(
        f"{path}: neither a session nor a log of a known recorder (line 1 is {quote(head.splitlines()[0])})",
        remedy="importer",
    )


def _remove_secrets(session: Session, path: pathlib.Path) -> Session:
    """Check a session, and hide secrets in commands. Raises SessionFileError.

    Other recorders store commands as typed.
    """
    try:
        mend(session)
    except WrongValueError as error:
        raise SessionFileError(f"{path}: {error}") from error
    redaction = Redaction()
    session.command = redaction.words(session.command)
    for process in session.processes:
        process.command = redaction.words(process.command)
    return session


MAX_ROWS = 1_000_000
"""The largest number of rows in a session. If a log has more rows, neighbouring rows are merged."""
MAX_PROCESSES = 10_000
_BATCH = 100_000
"""Rows are merged when a table has more than this many rows above ``MAX_ROWS``."""
Columns = dict[str, Sequence[Any]]
"""Values of several rows, by name of the column."""


class LogTable:
    """The samples of a log. If there are too many rows, neighbouring rows are merged while the log is read.

    Rows are merged in buckets. All buckets have the same number of original rows, so that early rows are merged as much
    as late rows.
    """

    def __init__(self, names: Iterable[str], command: Sequence[str] = ()) -> None:
        """Start without rows. ``names`` are metrics; the column for the time is added."""
        self.columns = {name: array("d") for name in (TIME, *names)}
        self.command = command
        self.taken = 0
        """Number of rows that were added, counted before merging."""
        self._numbers = array("d")
        """The index of each row among all added rows, from 0. Merging removes rows, but keeps these indices."""
        self.bucket = 1
        """Number of added rows per bucket (a group of neighbouring rows); 1 if no rows were merged."""
        self._merged = 0
        """Index of the first row of the last bucket. More rows may be added to this bucket."""

    def __len__(self) -> int:
        return len(self._numbers)

    def extend(self, columns: Columns) -> None:
        """Add rows as columns of equal length, in time order. Columns that this table lacks are ignored."""
        for name, column in self.columns.items():
            column.extend(columns[name])
        taken = self.taken + len(columns[TIME])
        self._numbers.extend(range(self.taken, taken))
        self.taken = taken
        if len(self) > MAX_ROWS + _BATCH:
            self.shorten()

    def shorten(self) -> None:
        """Merge rows until a session can contain all of them."""
        if self.bucket > 1:
            self._merge()
        while len(self) > MAX_ROWS:
            self.halve()

    def halve(self) -> None:
        """Double the bucket size, and merge the rows.

        Each bucket keeps the last row, and the rows with the smallest and the largest value of each metric.
        """
        self.bucket *= 2
        self._merged = 0
        self._merge()

    def _merge(self) -> None:
        gauges = [column for name, column in self.columns.items() if is_memory(name)]
        begin = self._merged
        kept: list[int] = []
        rows_left = range(begin, len(self))
        for _, rows in groupby(rows_left, lambda row: self._numbers[row] // self.bucket):
            self._merged = begin + len(kept)  # the last bucket may get more rows
            first, *others = rows
            kept += select_extremes(gauges, first, first + len(others) + 1)
        for column in (*self.columns.values(), self._numbers):
            column[begin:] = array("d", map(column.__getitem__, kept))


class Children:
    """RSS over time for each process in a log. All rows with the same PID belong to the same process."""

    def __init__(self) -> None:
        self.tables: dict[int | None, LogTable] = {}
        self._left_out = False
        self._rows = 0

    def extend(
        self, pid: int | None, times: Sequence[float], sizes: Sequence[float], command: Sequence[str] = ()
    ) -> None:
        """Add samples of a process, in the log's unit; ``pid`` is None if unknown."""
        if pid not in self.tables:
            if len(self.tables) == MAX_PROCESSES:
                self._left_out = True
                return
            self.tables[pid] = LogTable(["rss"], command)
        self.tables[pid].extend({TIME: times, "rss": sizes})
        self._rows += len(times)
        while self._rows > MAX_ROWS:
            for table in self.tables.values():
                table.halve()
            self._rows = sum(map(len, self.tables.values()))

    def processes(self, source: Source, end_s: float, unit: int = 1) -> list[Process]:
        """Return the processes. If the last row of a process is at ``end_s``, the process is still alive.

        ``end_s`` is the time of the log's last row, or infinite if the log is finished. ``unit`` is the log's unit in
        bytes. Add a warning if processes were left out.
        """
        if self._left_out:
            source.warn(f"only the first {MAX_PROCESSES:,} processes are listed; RSS is the sum of all")
        processes: list[Process] = []
        for pid, table in self.tables.items():
            command = list(table.command)
            times = list(table.columns[TIME])
            sizes = [round(value * unit) for value in table.columns["rss"]]
            program = command[0] if command else ""
            process = Process(
                id=len(processes),
                pid=pid,
                name=os.path.basename(program),  # noqa: PTH119 — a path on another machine
                command=command,
                start_s=times[0],
                end_s=times[-1] if times[-1] < end_s else None,
                samples=table.taken,
                peak_rss=max(sizes),
                series=Series(time_s=times, rss=sizes),
            )
            processes.append(process)
        return processes


def split_command(command: str) -> list[str]:
    """Split a command line into words. If a quotation mark is missing, return the whole line as a single word."""
    try:
        return shlex.split(command)
    except ValueError:
        return [command]


_NUMBERS = msgspec.json.Decoder(list[float])
_UNREADABLE = (ValueError, msgspec.DecodeError, OverflowError, RecursionError)


class RowLog:
    """Reads a log that has a row for each sample, in time order. The base class of the importers.

    Many lines are parsed at once. If that fails, each half of the lines is parsed separately, and so on down to a
    single line.
    """

    head: re.Pattern[bytes]
    """Matches the file name, a line break, and the first lines of a log of this recorder."""
    recorder: str
    """Name of the importer, for the option ``--from``."""
    columns: Sequence[str]
    """The names of the values in a row, in order: the time, metrics, and other values (not part of the samples)."""
    unit = 1
    """The log's unit of memory in bytes."""
    lowest = 0.0
    """Smallest valid value in any column except the time. Times are never below 0."""
    start_s: float | None = None
    """Start of the recording in Unix seconds; infinite if unknown. If the first row is earlier, the recording starts at
    the first row. None if the times of the log are seconds since the start."""
    others = ""
    """A regular expression for lines that are not rows; empty if there are no such lines. Each named group matches a
    fact about the recording, such as the command."""
    first = ""
    """Name of a group in the regular expression ``others``. The group matches a line above the rows of each recording
    in the file. Empty if there is no such line."""
    last = ""
    """Name of a group in the regular expression ``others``. The group matches a line below the rows of each recording;
    later rows belong to another recording in the same file. Empty if there is no such line."""
    other_may_end_open = False
    """Whether the last line of a file is read without a line break, if the line matches the regular expression
    ``others``. A row without a line break is never read, because the recorder may have written only a part of the row.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.found: dict[str, str] = {}
        self.reset()

    def reset(self) -> None:
        """Drop all rows, because another recording begins in the same file."""
        self.began: float | None = None
        names = filter(metrics.of, self.columns)
        self.table = LogTable(metrics.in_order(names))
        self.children = Children()

    def take(self, columns: Columns) -> None:
        """Add rows to the samples."""
        self.table.extend(columns)

    def take_other(self, found: dict[str, str]) -> None:
        """Store the facts in a line that is not a row: ``{name of the fact: text}``."""
        self.found.update(found)

    def known(self) -> dict[str, Any]:
        """Return further fields of the session. Called after all lines were read."""
        return {}

    def read(self) -> Session:
        """Return the session of the whole log. Raises SessionFileError if the log has no sample."""
        source = self.source
        for lines in source.lines():
            if lines.is_whole:
                self._read_lines(lines)
            else:
                self._read_other(lines, "")
        if not self.table.taken:
            raise SessionFileError(
                f"{source.path}: nothing could be read as a log of {self.recorder}: "
                f"{source.first_left_out or 'no sample found'}"
            )
        return self._make_session(self.known())

    def parse(self, texts: list[bytes]) -> Columns:
        """Return the rows in some lines as ``{column: values}``.

        Raises ValueError with the reason if a line is not a row.
        """
        rows = [text.replace(b",", b" ").split() for text in texts]
        if {*map(len, rows)} != {len(self.columns)}:
            raise ValueError(f"{len(self.columns)} values expected, found {len(rows[-1])}")
        columns: Columns = {}
        by_column = zip(*rows, strict=True)
        for name, values in zip(self.columns, by_column, strict=True):
            lowest = self.lowest
            largest = LARGEST / self.unit if is_memory(name) else LARGEST
            if name == TIME:
                lowest = 0.0
                largest = LATEST_S
            with contextlib.suppress(*_UNREADABLE):
                columns[name] = _NUMBERS.decode(b"[%b]" % b",".join(values))
            numbers = columns.get(name)
            if not numbers or min(numbers) < lowest or max(numbers) > largest:
                raise ValueError(f"a number from {lowest:g} to {largest:g} expected as {name}")
        return columns

    def _make_session(self, known: dict[str, Any]) -> Session:
        source = self.source
        table = self.table
        table.shorten()
        is_merged = len(table) < table.taken
        if is_merged:
            source.warn(merge_warning(table.taken, len(table)))
        for name in filter(is_memory, table.columns):
            sizes = [(value * self.unit + 0.5) // 1 for value in table.columns[name]]
            table.columns[name] = array("d", sizes)
        is_from_zero = known.get("from_zero", False)
        samples = Samples(table.columns, str(source.path), may_fall_below_zero=is_from_zero)
        time_s = samples.time_s
        duration_s = time_s[-1] - time_s[0]
        gaps = map(sub, time_s[1:], time_s)
        facts = SamplerFacts(
            source=self.recorder,
            taken=table.taken,
            achieved_interval_s=duration_s / (table.taken - 1) if table.taken > 1 else None,
            longest_gap_s=None if is_merged else max(gaps, default=None),
            merged_s=usual_distance(time_s) if is_merged else None,
        )
        start = Start()
        if self.began is not None:
            begin = dt.datetime.fromtimestamp(self.began, dt.timezone.utc)
            start = Start(utc=begin.isoformat(timespec="microseconds"))
        end_s = inf if known.get("finished") else time_s[-1]  # in a finished log, all processes have ended
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
        session.processes = processes  # added last, because the peak of a process is not a peak of the sum
        return session

    def _read_lines(self, lines: LogLines) -> None:
        try:
            columns = self._parse_in_order(lines.texts)
        except _UNREADABLE as why:
            half = len(lines.texts) // 2
            if not half:
                self._read_other(lines, why)
                return
            self._read_lines(LogLines(lines.number, lines.texts[:half]))
            self._read_lines(LogLines(lines.number + half, lines.texts[half:]))
        else:
            self.take(columns)

    def _parse_in_order(self, texts: list[bytes]) -> Columns:
        """Return lines as rows. Raises ValueError with the reason if a time is before the time of the previous row."""
        columns = self.parse(texts)
        if self.last in self.found:
            self.found.clear()
            self._begin_again()
        if self.start_s is not None:
            if self.began is None:
                self.began = min(columns[TIME][0], self.start_s)
            columns[TIME] = [time_s - self.began for time_s in columns[TIME]]
        times = columns[TIME]
        last_s = self.table.columns[TIME][-1] if self.table.taken else 0.0
        if not all(map(le, [last_s, *times], times)):
            raise ValueError(f"the time {times[0]:.6g} s is before the time of the previous row, {last_s:.6g} s")
        return columns

    def _read_other(self, lines: LogLines, why: object) -> None:
        (text,) = lines.texts
        match = re.fullmatch(self.others, text.decode("utf-8", "backslashreplace"))
        if match and (lines.is_whole or self.other_may_end_open):
            facts = match.groupdict()
            found = {name: fact for name, fact in facts.items() if fact is not None}
            if self.first in found:
                self._begin_again()
            self.take_other(found)
        elif not lines.is_whole:
            self.source.warn("the last line is cut off: it was left out")
        elif text and not text.isspace():
            self.source.leave_out(lines.number, text, why)

    def _begin_again(self) -> None:
        """Drop the rows of the previous recording, if there are any, because another recording begins."""
        if self.table.taken:
            self.source.warn("the file holds several recordings, one after another: the last recording is shown")
        self.reset()
