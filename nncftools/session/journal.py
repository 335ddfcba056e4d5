"""A session from a journal: of a finished recording, one that goes on, or one that was killed.

The sampler writes the lines; ``nncftools.sampler.journal`` says what they are.
"""

from __future__ import annotations

from array import array
from math import isnan, nan
from typing import Any

import msgspec

from nncftools.errors import SessionFileError
from nncftools.metrics import COUNTERS, MEMORY_METRICS
from nncftools.session.header import VERSION
from nncftools.session.merging import kept_rows, merging_told, usual_distance
from nncftools.session.model import Exit, Host, Process, Rank, SamplerFacts, Series, Session, Start
from nncftools.session.peaks import peaks
from nncftools.session.samples import TIME, Samples

NOTHING_RECORDED = "nothing was recorded"
_CHUNK = 10_000


class _Header(msgspec.Struct, kw_only=True):
    format: str
    version: int
    tool_version: str = ""
    name: str = ""
    command: list[str] = []
    cwd: str = ""
    rank: Rank | None = None
    host: Host
    plan: dict[str, Any]


class _Begin(msgspec.Struct, kw_only=True):
    utc: str
    monotonic_ns: int
    utc_error_s: float | None = None
    pid: int


class _End(msgspec.Struct, kw_only=True):
    error: str | None = None
    duration_s: float | None = None
    totals: dict[str, int | float | None] = {}
    exit: Exit | None = None
    sampler: SamplerFacts = SamplerFacts()


class _Event(msgspec.Struct, kw_only=True):
    start: _Begin | None = None
    process: dict[str, Any] | None = None
    each: dict[int, int] | None = None
    warning: str | None = None
    end: _End | None = None


def session_from(data: bytes, origin: str) -> Session:
    """Return what the journal ``data`` recorded; ``origin`` names it in messages.

    A last line that was cut by a kill is left out, other lines that cannot be read are left out and counted. Without an
    ``end`` line the session is unfinished. Raises SessionFileError when nothing was recorded.
    """
    return _Reader(data, origin).session()


class _Reader:
    def __init__(self, data: bytes, origin: str) -> None:
        self._origin = origin
        first, *self._lines = data.split(b"\n")[:-1] or [b""]
        try:
            self._header = msgspec.json.decode(first, type=_Header)
            columns: list[str] = self._header.plan["columns"]
            self._columns = {name: array("d") for name in (TIME, *columns)}
            self._interval_s = float(self._header.plan["interval_s"])
            self._source = str(self._header.plan["source"])
        except (msgspec.MsgspecError, RecursionError, KeyError, TypeError, ValueError) as error:
            raise SessionFileError(f"{origin}: line 1 is not the header of a journal: {error}") from error
        if self._header.version > VERSION:
            message = (
                f"{origin}: journal version {self._header.version}, this nncf-tools reads up to {VERSION}: upgrade"
            )
            raise SessionFileError(message)
        self._start: _Begin | None = None
        self._end: _End | None = None
        self._processes: dict[int, dict[str, Any]] = {}
        self._row_before = b""
        self._series: dict[int, Series] = {}
        self._warnings: list[str] = []
        self._bad_lines: list[int] = []

    def session(self) -> Session:
        self._read()
        if self._end is not None and self._end.error is not None:
            raise SessionFileError(f"{self._origin}: {NOTHING_RECORDED}: {self._end.error}")
        if self._start is None:
            raise SessionFileError(f"{self._origin}: {NOTHING_RECORDED}: the recorder ended before the command began")
        if self._bad_lines:
            self._warnings.append(_damage(self._bad_lines))
        end = self._end or _End()
        facts = msgspec.structs.replace(end.sampler, interval_s=self._interval_s, source=self._source)
        taken = facts.taken or len(self._columns[TIME])
        self._merge()
        left = len(self._columns[TIME])
        if left < taken - len(self._bad_lines):
            facts = msgspec.structs.replace(facts, merged_s=usual_distance(self._columns[TIME]))
            self._warnings.append(merging_told(taken, left, " (--max-samples)"))
        samples = Samples(self._columns, self._origin)
        listed = (fields for fields in self._processes.values() if not fields.get("left_out"))
        processes = [msgspec.convert(fields, Process, strict=True) for fields in listed]
        for process in processes:
            process.series = self._series.get(process.id)
        last_s = samples.time_s[-1] if len(samples) else 0.0
        attached = self._header.plan.get("pid") is not None
        return Session(
            tool_version=self._header.tool_version,
            name=self._header.name,
            command=processes[0].command if attached and processes else self._header.command,
            cwd=self._header.cwd,
            attached_to=self._header.plan.get("pid"),
            rank=self._header.rank,
            start=Start(
                utc=self._start.utc, monotonic_ns=self._start.monotonic_ns, utc_error_s=self._start.utc_error_s
            ),
            duration_s=last_s if end.duration_s is None else end.duration_s,
            finished=self._end is not None,
            exit=end.exit,
            host=self._header.host,
            sampler=facts,
            samples=samples,
            totals=end.totals or last_counters(samples),
            peaks=peaks(samples, processes, facts.peak_rss),
            processes=processes,
            warnings=self._warnings,
        )

    def _merge(self) -> None:
        """Merge neighbours until there are no more rows than planned."""
        limit = self._header.plan.get("max_samples")
        time_s = self._columns[TIME]
        if isinstance(limit, int) and len(time_s) > limit > 0:
            gauges = [column for name, column in self._columns.items() if name in MEMORY_METRICS]
            kept = kept_rows(gauges, len(time_s), limit)
            self._columns = {name: array("d", map(column.__getitem__, kept)) for name, column in self._columns.items()}
            self._thin_series(set(self._columns[TIME]))

    def _thin_series(self, times: set[float]) -> None:
        for number, series in self._series.items():
            kept = [(time, rss) for time, rss in zip(series.time_s, series.rss, strict=True) if time in times]
            self._series[number] = Series(time_s=[time for time, _ in kept], rss=[rss for _, rss in kept])

    def _read(self) -> None:
        rows: list[bytes] = []
        numbers: list[int] = []
        for number, line in enumerate(self._lines, start=2):
            if line.startswith(b"["):
                self._row_before = line
                rows.append(line)
                numbers.append(number)
                if len(rows) == _CHUNK:
                    self._take_rows(rows, numbers)
                    rows, numbers = [], []
            else:
                self._take_event(line, number)
        self._take_rows(rows, numbers)

    def _take_rows(self, rows: list[bytes], numbers: list[int]) -> None:
        if not rows:
            return
        try:
            new = list(zip(self._columns.values(), _columns_of(rows), strict=True))
        except (msgspec.MsgspecError, ValueError):
            if len(rows) == 1:
                self._bad_lines.append(numbers[0])
                return
            middle = len(rows) // 2
            self._take_rows(rows[:middle], numbers[:middle])
            self._take_rows(rows[middle:], numbers[middle:])
            return
        for column, values in new:
            column.extend(nan if value is None else value for value in values)

    def _take_event(self, line: bytes, number: int) -> None:
        try:
            event = msgspec.json.decode(line, type=_Event)
            if event.process is not None:
                known = self._processes.get(event.process["id"], {})
                self._processes[event.process["id"]] = _checked({**known, **event.process})
            if event.each is not None:
                self._take_each(event.each)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, KeyError, TypeError, ValueError):
            self._bad_lines.append(number)
            return
        self._start = event.start or self._start
        self._end = event.end or self._end
        if event.warning is not None:
            self._warnings.append(event.warning)

    def _take_each(self, each: dict[int, int]) -> None:
        time_s = float(self._row_before[1 : self._row_before.find(b",")])
        for number, rss in each.items():
            series = self._series.setdefault(number, Series(time_s=[], rss=[]))
            series.time_s.append(time_s)
            series.rss.append(rss)


def _columns_of(rows: list[bytes]) -> list[tuple[float | None, ...]]:
    """Return sample lines as columns; raise ValueError or MsgspecError when one of them cannot be right."""
    samples = msgspec.json.decode(b"[" + b",".join(rows) + b"]", type=list[list[float | None]])
    columns = list(zip(*samples, strict=True))
    if None in columns[0]:
        raise ValueError("a sample without its time")
    return columns


def _checked(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a process; raise ValidationError when one of them cannot be right."""
    msgspec.convert(fields, Process, strict=True)
    return fields


def _damage(lines: list[int]) -> str:
    if len(lines) == 1:
        return f"1 line of the journal could not be read: line {lines[0]}"
    return f"{len(lines)} lines of the journal could not be read, the first is line {min(lines)}"


def last_counters(samples: Samples) -> dict[str, int | float | None]:
    """Return the counters of the last sample: all that a recording without an end of its own knows."""
    last = {name: samples[name][-1] for name in samples.metrics if name in COUNTERS and len(samples)}
    return {name: None if isnan(value) else value for name, value in last.items()}
