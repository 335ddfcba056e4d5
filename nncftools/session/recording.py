"""Snapshots from the log of the helper process, which may be cut off by a kill.

The lines of a journal about limits, killed processes, room on disks and the floor, as fields of a session.

A session from a journal: of a recording that has ended, still runs, or was killed.
"""

from __future__ import annotations

import io
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from math import isnan, nan
from typing import Any, BinaryIO, NamedTuple

import msgspec
from msgspec.structs import replace

from nncftools import intake
from nncftools.errors import SessionFileError
from nncftools.journal import lines
from nncftools.journal.lines import End, Header, Held, Line, ProcessFields, SnapshotLine
from nncftools.journal.lines import Start as StartFields
from nncftools.journal.reading import Tail
from nncftools.metrics import cpu_counters, is_counter, is_memory
from nncftools.redaction import Redaction
from nncftools.session import readings
from nncftools.session.model import (
    MOST_FRAMES,
    ControlGroup,
    Exit,
    FileRead,
    FileSystem,
    Floor,
    Frame,
    Host,
    LimitReached,
    Look,
    MappingGroup,
    MappingsMoment,
    MemoryLimit,
    OomKills,
    Process,
    ProcessMappings,
    Rank,
    Rise,
    SamplerFacts,
    Series,
    SessionData,
    Snapshots,
    Start,
    ThreadLook,
    Unseen,
    WatchedProcess,
)
from nncftools.session.peaks import peaks, sampled_peak
from nncftools.session.samples import TIME, Samples, kept_rows, merge_warning, rising, usual_distance

TICKS_PER_S = 100
"""Clock ticks in ``/proc`` (USER_HZ), the same on all machines that Linux runs on today."""
_OUR_FILE = "<frozen importlib._bootstrap nncf-tools>"
"""Frames of the hook: see ``marks/hook/sitecustomize.py``."""


def snapshots_from(
    data: bytes, start: Start, processes: Sequence[Process], redact: Sequence[str] | None
) -> Snapshots | None:
    """Return what the helper's log ``data`` contains; None if it is empty.

    Unreadable lines are left out; after a lost frame or stack, nothing more is read.
    """
    if start.monotonic_ns is None or not data:
        return None
    reader = _SnapshotReader(start.monotonic_ns, processes, Redaction(redact))
    for text in data.split(b"\n"):
        if text:
            try:
                line = msgspec.json.decode(text, type=SnapshotLine)
                intake.check(line)
                reader.take(line)
            except _LostError:
                break
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, LookupError, TypeError, ValueError):
                continue
    return reader.finished()


class _LostError(Exception):
    """A frame or a stack is missing: later lines may name another one by its number."""


class _SnapshotReader:
    def __init__(self, start_ns: int, processes: Sequence[Process], redaction: Redaction) -> None:
        self.found = Snapshots()
        self._start_ns = start_ns
        self._processes = processes
        self._redaction = redaction
        self._watched: dict[int, WatchedProcess] = {}
        self._stacks: dict[int, dict[int, int]] = {}
        """By process and thread: the stack at the last look."""

    def take(self, line: SnapshotLine) -> None:
        if "helper" in line:
            self.found.missing = line["helper"]["missing"]
        elif "frame" in line:
            number, function, file, line_number = line["frame"]
            self._expect(number, len(self.found.frames))
            self.found.frames.append(Frame(function, self._redaction.text(file), line_number))
        elif "stack" in line:
            self._take_stack(*line["stack"])
        elif "process" in line:
            self._take_process(line["process"])
        elif "rss" in line:
            self._take_points(line["rss"])
        elif "look" in line:
            self._take_look(line["look"])
        elif "mappings" in line:
            self._take_mappings(line["mappings"])
        elif "problem" in line:
            self.found.missing = self.found.missing or self._problem(line["problem"])
        elif "end" in line:
            self.found.cpu_s, self.found.failed = line["end"]["cpu_s"], line["end"]["failed"]

    def finished(self) -> Snapshots:
        """Return what was found; a log without its last line says so."""
        if self.found.cpu_s is None and self.found.missing is None:
            last_s = max((watched.time_s[-1] for watched in self.found.processes if watched.time_s), default=0.0)
            self.found.missing = f"the helper process ended early, at {last_s:.1f} s"
        return self.found

    def _expect(self, number: int, expected: int) -> None:
        if number != expected:
            raise _LostError(f"number {expected} is missing")

    def _seconds(self, t_ns: int) -> float:
        return max(0.0, round((t_ns - self._start_ns) / 1e9, 6))

    def _take_stack(self, number: int, stack: list[int]) -> None:
        self._expect(number, len(self.found.stacks))
        if len(stack) > MOST_FRAMES or not all(0 <= frame < len(self.found.frames) for frame in stack):
            raise _LostError("the line was damaged")
        self.found.stacks.append([place for place in stack if self.found.frames[place].file != _OUR_FILE])

    def _take_process(self, line: lines.WatchedProcess) -> None:
        at_s = self._seconds(line["t_ns"])
        same = [process for process in self._processes if process.pid == line["pid"] and _lives(process, at_s)]
        watched = WatchedProcess(process=same[-1].id if same else None, pid=line["pid"], inherited=line["inherited"])
        self._watched[line["number"]] = watched
        self.found.processes.append(watched)

    def _take_points(self, line: lines.RssPoints) -> None:
        watched = self._watched[line["process"]]
        for t_ns, rss in zip(line["t_ns"], line["rss"], strict=False):
            time_s = self._seconds(t_ns)
            before = (watched.time_s[-1], watched.rss[-1]) if watched.time_s else (0.0, None)
            if (time_s, rss) != before and time_s >= before[0]:
                watched.time_s.append(time_s)
                watched.rss.append(rss)

    def _take_look(self, line: lines.Look) -> None:
        known = self._stacks.setdefault(line["process"], {})
        for thread, stack in line["stacks"].items():
            if stack is None:
                known.pop(thread, None)
            else:
                if not 0 <= stack < len(self.found.stacks):
                    raise LookupError("the line was damaged")
                known[thread] = stack
        faults, ticks = line["faults"], line["ticks"]
        threads = [
            ThreadLook(thread, known.get(thread), faults.get(thread, 0), ticks.get(thread, 0) / TICKS_PER_S)
            for thread in sorted(known.keys() | faults.keys())
        ]
        look = Look(self._seconds(line["t_ns"]), threads, line["lost"])
        looks = self._watched[line["process"]].looks
        intake.check_rising([*(before.time_s for before in looks[-1:]), look.time_s], "$.look.t_ns")
        looks.append(look)

    def _take_mappings(self, line: lines.Mappings) -> None:
        listed = []
        for number, groups in line["processes"]:
            watched = self._watched.get(number)
            found = [MappingGroup(kind, self._redaction.text(file), *sizes) for kind, file, sizes in groups]
            listed.append(ProcessMappings(None if watched is None else watched.process, found))
        moment = MappingsMoment(time_s=self._seconds(line["t_ns"]), total=line["total"], processes=listed)
        self.found.mappings.append(moment)

    def _problem(self, line: lines.Problem) -> str:
        watched = self._watched.get(line["process"])
        who = "a process" if watched is None else f"process {watched.pid}"
        if line["text"] == "refused":
            return f"the kernel does not allow to read the stacks of {who}"
        if line["text"] == "no_python":
            return f"no program that grew runs Python, {who} for instance"
        return f"the stacks of {who} could not be read: {line['text']}"


def _lives(process: Process, at_s: float) -> bool:
    near_s = 0.2
    return (process.start_s or 0.0) - near_s <= at_s and (process.end_s is None or at_s <= process.end_s + near_s)


class LimitFacts:
    """Collects the lines."""

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        self._limits: list[MemoryLimit] = []
        self._groups: list[ControlGroup] = []
        self._kills: list[OomKills] = []
        self._file_systems: dict[str, FileSystem] = {}
        self._floor: Floor | None = None
        self._files: dict[str, int] = {}

    def take(self, line: Line) -> None:
        """Take a line if it is one of these. Raises msgspec.ValidationError."""
        if "memory_limit" in line:
            self._limits.append(msgspec.convert(line["memory_limit"], MemoryLimit))
        if "group" in line:
            self._groups.append(msgspec.convert(line["group"], ControlGroup))
        if "oom_kills" in line:
            self._kills.append(msgspec.convert(line["oom_kills"], OomKills))
        if "file_system" in line:
            found = msgspec.convert(line["file_system"], FileSystem)
            self._file_systems[found.role] = replace(found, path=self._redaction.text(found.path))
        if "floor" in line:
            self._floor = msgspec.convert(line["floor"], Floor)
        if "files_read" in line:
            for path, size in line["files_read"]["files"]:
                self._files[path] = max(size, self._files.get(path, 0))

    def fields(self) -> dict[str, Any]:
        """Return the fields of the session."""
        files = [FileRead(path=self._redaction.text(path), size=size) for path, size in self._files.items()]
        return {
            "memory_limits": self._limits,
            "control_groups": self._groups,
            "oom_kills": self._kills,
            "file_systems": list(self._file_systems.values()),
            "floor": self._floor,
            "files_read": files,
        }


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
        readings.keep(session, readings.HeldLines(self._held, self.plan.children))
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
