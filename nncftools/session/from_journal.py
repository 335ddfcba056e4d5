"""A session from a journal: of a finished recording, one that goes on, or one that was killed."""

from __future__ import annotations

import io
from array import array
from math import isnan, nan
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from nncftools.errors import SessionFileError
from nncftools.journal.tail import Tail
from nncftools.metrics import is_counter, is_memory
from nncftools.redaction import Redaction
from nncftools.session.merging import kept_rows, merging_told, usual_distance
from nncftools.session.model import Exit, Host, Process, Rank, SamplerFacts, Series, SessionData, Start
from nncftools.session.peaks import peaks
from nncftools.session.samples import TIME, Samples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.journal.lines import End, Header, Line, ProcessFields
    from nncftools.journal.lines import Start as StartFields
    from nncftools.journal.tail import Each

NOTHING_RECORDED = "nothing was recorded"


def session_from(
    file: BinaryIO,
    origin: str,
    header: Header | None = None,
    start: StartFields | None = None,
    end: End | None = None,
) -> SessionData:
    """Return what a journal recorded; ``origin`` names it in messages.

    A last line that was cut by a kill is left out, other lines that cannot be read are left out and counted. Without an
    ``end`` line the session is unfinished. ``header``, ``start`` and ``end`` stand for lines that damage or a full disk
    may have lost. Raises SessionFileError when nothing was recorded, OSError.
    """
    return _Reader(file, origin, header).session(start, end)


class _Reader:
    def __init__(self, file: BinaryIO, origin: str, header: Header | None) -> None:
        self._origin = origin
        self._tail = Tail(file, origin, header)
        self._plan = self._tail.plan
        try:
            self._host = msgspec.convert(self._tail.header["host"], Host)
            self._rank = msgspec.convert(self._tail.header.get("rank"), Rank | None)
        except msgspec.MsgspecError as error:
            raise SessionFileError(f"{origin}: line 1 is not the header of a journal: {error}") from error
        self._redaction = Redaction(self._plan.redact)
        self._columns: dict[str, array[float]] = {}
        self._start: StartFields | None = None
        self._end: End | None = None
        self._processes: dict[int, ProcessFields] = {}
        self._series: dict[int, Series] = {}
        self._warnings: list[str] = []
        self._bad_lines: list[int] = []

    def session(self, start: StartFields | None, end: End | None) -> SessionData:
        self._read(self._tail)
        unwritten = "" if self._end is not None or end is None else end.get("unwritten", "")
        if unwritten:
            rest = Tail(io.BytesIO(b"\n" + unwritten.encode()), self._origin, self._tail.header)
            rest.plan.columns = self._plan.columns
            self._read(rest)
        end = self._end or end
        error = None if end is None else end.get("error")
        if error is not None:
            raise SessionFileError(f"{self._origin}: {NOTHING_RECORDED}: {error}")
        start = self._start or start
        if start is None:
            raise SessionFileError(f"{self._origin}: {NOTHING_RECORDED}: the recorder ended before the command began")
        if self._bad_lines:
            self._warnings.append(_damage(sorted(self._bad_lines)))
        return self._made(start, end)

    def _read(self, tail: Tail) -> None:
        for chunk in tail.read():
            self._bad_lines += chunk.bad
            self._take_samples(chunk.samples)
            self._take_each(chunk.each)
            for line in chunk.lines:
                self._take(line)

    def _begin_columns(self) -> None:
        self._columns = {name: array("d") for name in (TIME, *self._plan.columns)}

    def _made(self, start: StartFields, end: End | None) -> SessionData:
        told: End = end or {}
        header = self._tail.header
        if not self._columns:
            self._begin_columns()
        facts = self._facts(told)
        samples = Samples(self._columns, self._origin)
        processes = self._listed()
        last_s = samples.time_s[-1] if len(samples) else 0.0
        duration_s = told.get("duration_s")
        attached = self._plan.pid is not None
        command = processes[0].command if attached and processes else self._redaction.words(header.get("command", []))
        exit_ = told.get("exit")
        return SessionData(
            tool_version=header.get("tool_version", ""),
            name=header.get("name", ""),
            command=command,
            cwd=header.get("cwd", ""),
            attached_to=self._plan.pid,
            rank=self._rank,
            start=Start(utc=start["utc"], monotonic_ns=start["monotonic_ns"], utc_error_s=start.get("utc_error_s")),
            duration_s=last_s if duration_s is None else duration_s,
            finished=end is not None,
            exit=None if exit_ is None else Exit(**exit_),
            host=self._host,
            sampler=facts,
            samples=samples,
            totals=told.get("totals") or last_counters(samples),
            peaks=peaks(samples, processes, facts.peak_rss),
            processes=processes,
            warnings=self._warnings,
        )

    def _facts(self, end: End) -> SamplerFacts:
        """Return the sampler's facts; rows beyond the planned number are merged."""
        told: dict[str, Any] = {**end.get("sampler", {})}
        told.update(interval_s=self._plan.interval_s, source=self._plan.source)
        facts = SamplerFacts(**{key: told[key] for key in SamplerFacts.__struct_fields__ if key in told})
        read = len(self._columns[TIME])
        taken = facts.taken or read
        gone = len(self._bad_lines)
        cut = told.get("rows", 0) - read - gone
        if cut > 0:
            gone += cut
            self._warnings.append(f"{cut:,} samples are missing from the journal: it was cut while it was written")
        self._merge()
        left = len(self._columns[TIME])
        if left < taken - gone:
            facts = msgspec.structs.replace(facts, merged_s=usual_distance(self._columns[TIME]))
            self._warnings.append(merging_told(taken, left, " (--max-samples)"))
        return facts

    def _listed(self) -> list[Process]:
        processes = []
        for fields in self._processes.values():
            if not fields.get("left_out"):
                process = msgspec.convert(fields, Process, strict=True)
                process.command = self._redaction.words(process.command)
                process.series = self._series.get(process.id)
                processes.append(process)
        return processes

    def _merge(self) -> None:
        """Merge neighbours until there are no more rows than planned."""
        limit = self._plan.max_samples
        time_s = self._columns[TIME]
        if len(time_s) > limit > 0:
            gauges = [column for name, column in self._columns.items() if is_memory(name)]
            kept = kept_rows(gauges, len(time_s), limit)
            self._columns = {name: array("d", map(column.__getitem__, kept)) for name, column in self._columns.items()}
            self._thin_series(set(self._columns[TIME]))

    def _thin_series(self, times: set[float]) -> None:
        for number, series in self._series.items():
            kept = [(time, rss) for time, rss in zip(series.time_s, series.rss, strict=True) if time in times]
            self._series[number] = Series(time_s=[time for time, _ in kept], rss=[rss for _, rss in kept])

    def _take_samples(self, samples: Sequence[Sequence[float | None]]) -> None:
        if samples and not self._columns:
            self._begin_columns()
        for column, values in zip(self._columns.values(), zip(*samples, strict=True), strict=False):
            column.extend(values if None not in values else [nan if value is None else value for value in values])

    def _take_each(self, rows: Sequence[Each]) -> None:
        for time_s, each in rows:
            for number, rss in each.items():
                series = self._series.setdefault(number, Series(time_s=[], rss=[]))
                series.time_s.append(time_s)
                series.rss.append(rss)

    def _take(self, line: Line) -> None:
        self._start = line.get("start", self._start)
        self._end = line.get("end", self._end)
        if "process" in line:
            fields = line["process"]
            known = self._processes.get(fields["id"])
            self._processes[fields["id"]] = fields if known is None else {**known, **fields}
        if "warning" in line:
            self._warnings.append(line["warning"])


def _damage(lines: Sequence[int]) -> str:
    if len(lines) == 1:
        return f"1 line of the journal could not be read: line {lines[0]}"
    return f"{len(lines)} lines of the journal could not be read, the first is line {lines[0]}"


def last_counters(samples: Samples) -> dict[str, int | float | None]:
    """Return the counters of the last sample: all that a recording without an end of its own knows."""
    last = {name: samples[name][-1] for name in samples.metrics if is_counter(name) and len(samples)}
    return {name: None if isnan(value) else value for name, value in last.items()}
