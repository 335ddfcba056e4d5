"""A session from a journal: of a recording that has ended, still runs, or was killed."""

from __future__ import annotations

import io
from array import array
from bisect import bisect_left
from math import isnan, nan
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import msgspec
from msgspec.structs import replace

from nncftools.errors import SessionFileError
from nncftools.journal.tail import Tail
from nncftools.metrics import cpu_counters, is_counter, is_memory
from nncftools.redaction import Redaction
from nncftools.session import held
from nncftools.session.from_snapshots import snapshots_from
from nncftools.session.limit_facts import LimitFacts
from nncftools.session.model import (
    Exit,
    Host,
    LimitReached,
    Process,
    Rank,
    Rise,
    SamplerFacts,
    Series,
    SessionData,
    Start,
    Unseen,
)
from nncftools.session.peaks import peaks, sampled_peak
from nncftools.session.samples import TIME, Samples, kept_rows, merge_warning, rising, usual_distance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.journal.lines import End, Header, Held, Line, ProcessFields
    from nncftools.journal.lines import Start as StartFields


class Known(NamedTuple):
    """What the starter of a recording knows, in place of lines that damage or a full disk may have lost."""

    header: Header | None = None
    start: StartFields | None = None
    end: End | None = None


_NOTHING = Known()
_LENGTHS_OF_HELD = {2, 4}
"""With and without bounds."""
_HUGE = "huge_pages"
"""A column of all recordings that say what samples do not show."""


def session_from(file: BinaryIO, origin: str, known: Known = _NOTHING, *, snapshots: bytes = b"") -> SessionData:
    """Return what a journal recorded; ``origin`` names it in messages, ``snapshots`` is the helper's log.

    A last line that was cut off by a kill is ignored. Other unreadable lines are skipped and counted. Without an
    ``end`` line the session is unfinished. Raises SessionFileError when nothing was recorded, OSError.
    """
    reader = _Reader(file, origin, known.header)
    session = reader.session(known.start, known.end)
    session.snapshots = snapshots_from(snapshots, session.start, session.processes, reader.plan.redact)
    return session


def host_and_rank(header: Header, origin: str) -> tuple[Host, Rank | None]:
    """Return the machine and the rank that a journal's header names. Raises SessionFileError."""
    try:
        return msgspec.convert(header["host"], Host), msgspec.convert(header.get("rank"), Rank | None)
    except msgspec.MsgspecError as error:
        raise SessionFileError(f"{origin}: line 1 is not the header of a journal: {error}") from error


class _Reader:
    def __init__(self, file: BinaryIO, origin: str, header: Header | None) -> None:
        self._origin = origin
        self._tail = Tail(file, origin, header)
        self.plan = self._tail.plan
        self._host, self._rank = host_and_rank(self._tail.header, origin)
        self._redaction = Redaction(self.plan.redact)
        self._columns: dict[str, array[float]] = {}
        self._start: StartFields | None = None
        self._end: End | None = None
        self._processes: dict[int, ProcessFields] = {}
        self._series: dict[int, Series] = {}
        self._rises: dict[int, list[Rise]] = {}
        self._held: list[Held] = []
        self._unseen = Unseen()
        self._limit_reached: LimitReached | None = None
        self._facts_of_run = LimitFacts(self._redaction)
        self._warnings: list[str] = []
        self._bad_lines: list[int] = []

    def session(self, start: StartFields | None, end: End | None) -> SessionData:
        self._read(self._tail)
        unwritten = "" if self._end is not None or end is None else end.get("unwritten", "")
        if unwritten:
            rest = Tail(io.BytesIO(b"\n" + unwritten.encode()), self._origin, self._tail.header)
            rest.plan.columns = self.plan.columns
            self._read(rest)
        end, start = self._end or end, self._start or start
        error = None if end is None else end.get("error")
        if error is None and start is None:
            error = "the recorder ended before the command began"
        if error is not None or start is None:
            raise SessionFileError(f"{self._origin}: nothing was recorded: {error}")
        if self._bad_lines:
            self._warnings.append(_damage(sorted(self._bad_lines)))
        return self._session(start, end)

    def _read(self, tail: Tail) -> None:
        for chunk in tail.read():
            self._bad_lines += chunk.bad
            if chunk.samples:
                self._begin_columns()
                for column, values in zip(self._columns.values(), zip(*chunk.samples, strict=True), strict=False):
                    column.extend(
                        values if None not in values else [nan if value is None else value for value in values]
                    )
            for time_s, each in chunk.each:
                for number, rss in each.items():
                    series = self._series.setdefault(number, Series(time_s=[], rss=[]))
                    series.time_s.append(time_s)
                    series.rss.append(rss)
            for line in chunk.lines:
                self._take(line)

    def _begin_columns(self) -> None:
        self._columns = self._columns or {name: array("d") for name in (TIME, *self.plan.columns)}

    def _take(self, line: Line) -> None:
        self._start = line.get("start", self._start)
        self._end = line.get("end", self._end)
        if "process" in line:
            number = line["process"]["id"]
            self._processes[number] = {**self._processes.get(number, {"id": number}), **line["process"]}
        if "rise" in line:
            rise = msgspec.convert(line["rise"], Rise)
            self._rises.setdefault(line["rise"]["id"], []).append(rise)
        if "held" in line and all(len(entry) in _LENGTHS_OF_HELD for entry in line["held"]["rss"] or ()):
            self._held.append(line["held"])
        if "unseen" in line:
            found = line["unseen"]
            self._unseen.from_s.append(found["from_s"])
            self._unseen.to_s.append(found["to_s"])
            self._unseen.most.append(found["rss"])
        if "limit_reached" in line:
            self._limit_reached = msgspec.convert(line["limit_reached"], LimitReached)
        self._facts_of_run.take(line)
        if "warning" in line:
            self._warnings.append(line["warning"])

    def _session(self, start: StartFields, end: End | None) -> SessionData:
        self._begin_columns()
        fields: End = end or {}
        header = self._tail.header
        facts = self._facts(fields)
        samples = Samples(self._columns, self._origin)
        processes = self._listed()
        last_s = samples.time_s[-1] if len(samples) else 0.0
        duration_s = fields.get("duration_s")
        attached = self.plan.pid is not None
        command = processes[0].command if attached and processes else self._redaction.words(header.get("command", []))
        session = SessionData(
            tool_version=header.get("tool_version", ""),
            name=header.get("name", ""),
            command=command,
            cwd=header.get("cwd", ""),
            attached_to=self.plan.pid,
            rank=self._rank,
            start=msgspec.convert(start, Start),
            duration_s=last_s if duration_s is None else duration_s,
            finished=end is not None,
            exit=msgspec.convert(fields.get("exit"), Exit | None),
            host=self._host,
            sampler=facts,
            samples=samples,
            totals=_with_all_cpu_time(fields.get("totals") or last_counters(samples), processes),
            peaks=peaks(samples, processes, facts.peak_rss),
            unseen=self._unseen if self.plan.source == "proc" and _HUGE in self.plan.columns else None,
            limit_reached=self._limit_reached,
            **self._facts_of_run.fields(),
            processes=processes,
            warnings=self._warnings,
        )
        held.keep(session, held.HeldLines(self._held, self.plan.children))
        return session

    def _facts(self, end: End) -> SamplerFacts:
        """Return the sampler's facts; merge rows beyond the planned number."""
        fields = end.get("sampler", {})
        facts = msgspec.convert(fields, SamplerFacts)
        facts = replace(facts, interval_s=self.plan.interval_s, source=self.plan.source)
        read = len(self._columns[TIME])
        lost = len(self._bad_lines)
        cut = fields.get("rows", 0) - read - lost
        if cut > 0:
            lost += cut
            self._warnings.append(f"{cut:,} samples are missing from the journal: it was cut while it was written")
        lost += self._leave_out_of_order()
        self._merge()
        taken, left = facts.taken or read, len(self._columns[TIME])
        if left < taken - lost:
            facts = replace(facts, merged_s=usual_distance(self._columns[TIME]))
            self._warnings.append(merge_warning(taken, left, " (--max-samples)"))
        return facts

    def _listed(self) -> list[Process]:
        kept = [fields for fields in self._processes.values() if not fields.get("left_out")]
        processes = msgspec.convert(kept, list[Process])
        for process in processes:
            process.command = self._redaction.words(process.command)
            process.series = self._series.get(process.id)
            process.rises = self._rises.get(process.id, [])
            if not self.plan.children:  # ``ru_maxrss`` is that of children, too, which do not count
                process.high_water_limit = None
            marks = [rise.high_water_mark for rise in process.rises]
            if marks and max(marks) > (process.high_water_mark or 0):  # a killed sampler did not record it otherwise
                process.high_water_mark = max(marks)
        return processes

    def _leave_out_of_order(self) -> int:
        """Leave out rows whose time goes back, or is far ahead of what follows; return how many."""
        kept = rising(self._columns[TIME])
        left_out = len(self._columns[TIME]) - len(kept)
        if left_out:
            self._warnings.append(f"{left_out:,} samples of the journal were left out: their time goes back")
            self._keep(kept)
        for series in self._series.values():
            places = rising(series.time_s)
            if len(places) < len(series.time_s):
                series.time_s = [series.time_s[place] for place in places]
                series.rss = [series.rss[place] for place in places]
        return left_out

    def _keep(self, rows: Sequence[int]) -> None:
        self._columns = {name: array("d", map(column.__getitem__, rows)) for name, column in self._columns.items()}

    def _merge(self) -> None:
        """Merge neighbours until there are no more rows than planned."""
        rows = len(self._columns[TIME])
        if not rows > self.plan.max_samples > 0:
            return
        samples = Samples(self._columns)
        memory = [name for name in samples.metrics if is_memory(name)]
        reached_s = (sampled_peak(name, samples).at_s for name in memory)
        reached = {bisect_left(samples.time_s, at_s) for at_s in reached_s if at_s is not None}
        kept = kept_rows([self._columns[name] for name in memory], rows, self.plan.max_samples - len(memory))
        self._keep(sorted(reached.union(kept)))
        times = set(self._columns[TIME])
        for series in self._series.values():
            left = [(time, rss) for time, rss in zip(series.time_s, series.rss, strict=True) if time in times]
            series.time_s, series.rss = [time for time, _ in left], [rss for _, rss in left]


def _damage(lines: Sequence[int]) -> str:
    if len(lines) == 1:
        return f"1 line of the journal could not be read: line {lines[0]}"
    return f"{len(lines)} lines of the journal could not be read, the first is line {lines[0]}"


def _with_all_cpu_time(
    totals: dict[str, int | float | None], processes: Sequence[Process]
) -> dict[str, int | float | None]:
    """Return totals whose CPU time is not below the sum of the processes.

    A total counts whole ticks of 10 ms (proc(5), ``utime`` and ``cutime``), and children only if their parent waits for
    them; exit accounting counts each process, in nanoseconds. User and system time keep their ratio, as the kernel
    itself scales them to the exact time (``cputime_adjust``).
    """
    names = cpu_counters(totals)
    counted = [value for name in names if (value := totals[name]) is not None]
    whole = sum(process.cpu_s or 0.0 for process in processes)
    if not counted or len(counted) < len(names) or sum(counted) >= whole:
        return totals
    first, *others = names
    rest = {name: round((totals[name] or 0) * whole / (sum(counted) or 1), 6) for name in others}
    return {**totals, first: round(whole - sum(rest.values()), 6), **rest}


def last_counters(samples: Samples) -> dict[str, int | float | None]:
    """Return the counters of the last sample: the only totals that an unfinished recording has."""
    last = {name: samples[name][-1] for name in samples.metrics if is_counter(name) and len(samples)}
    return {name: None if isnan(value) else value for name, value in last.items()}
