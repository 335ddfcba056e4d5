"""The lines of a journal, and the session that they make: of a recording that has ended, still runs, or was killed.

Every line is decoded once, also while the journal grows; invalid lines are counted and cost only themselves. Whoever
follows a recording (report, live view, pytest plugin) looks at one ``Recording``.
"""

from __future__ import annotations

import io
import re
from array import array
from collections.abc import Iterator, Sequence
from math import isnan, nan
from typing import Any, BinaryIO, NamedTuple, TypedDict

import msgspec
from msgspec.structs import replace

from nncftools import intake
from nncftools.errors import SessionFileError
from nncftools.intake import Duration, Figure, Level, Pid, Seconds, Whole
from nncftools.journal.reading import FORMAT, VERSION, End, Header, Lines, Start
from nncftools.journal.writing import Plan
from nncftools.metrics import OF_DEVICES, cpu_counters, is_counter, name_of
from nncftools.redaction import Redaction
from nncftools.session import model
from nncftools.session.model import FileRead, LateReadings, Process, SamplerFacts, Series, SessionData
from nncftools.session.samples import TIME, Samples, merge_warning, rising, usual_distance
from nncftools.session.snapshots import snapshots_from

_MOST_OF_DEVICES = 500
"""Columns; with 8 GPUs of 7 instances each there are 168."""
_WRONG = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError, TypeError, KeyError, SystemError)
"""What a damaged line raises; SystemError: by msgspec before 0.22, where a float has 400 digits."""


class Rise(model.Rise, frozen=True, kw_only=True):
    """The rise of a process's high-water mark."""

    id: int
    """Of the process."""


class Span(TypedDict):
    """Two moments in seconds since the start."""

    from_s: Seconds
    to_s: Seconds


class FilesRead(TypedDict):
    """Files that processes had open for reading while they read much; later lines add to earlier ones."""

    files: list[tuple[str, Whole]]
    """Path and bytes."""


class DeviceReadings(TypedDict):
    """What the helper read of devices at one moment."""

    at_s: Seconds
    values: dict[str, Level | None]
    """By column, such as ``device_memory@nvidia0``."""


class SamplerEnd(SamplerFacts, frozen=True, kw_only=True):
    """The sampler's facts in the last line."""

    rows: Whole = 0
    """Samples written, after merging."""


class Line(TypedDict, total=False):
    """A line that is not a sample; it has one of these keys."""

    start: Start
    columns: list[str]
    """The columns of all samples, if they differ from the plan: a device metric has one column per device."""
    process: dict[str, Any]
    """Some fields of a ``Process``, which add to those of earlier lines with the same ``id``; or ``left_out``: the
    process does not belong to the run after all."""
    rise: Rise
    held: model.HeldLine
    exec: model.ExecLine
    late: Span
    """The time of the sample that follows, and when its last process was read."""
    limit_reached: model.LimitReached
    memory_limit: model.MemoryLimit
    group: model.ControlGroup
    oom_kills: model.OomKills
    file_system: model.FileSystem
    """Later lines replace earlier ones of the same role."""
    floor: model.Floor
    devices: DeviceReadings
    device: model.Device
    """Later lines replace earlier ones of the same device."""
    files_read: FilesRead
    each: dict[Whole, Whole]
    """RSS in bytes by process ``id``, at the sample on the previous line (``--per-process``)."""
    warning: str
    """A warning, which every report repeats."""
    end: End


class _PlanNumbers(msgspec.Struct, kw_only=True):
    """The numbers of a plan."""

    pid: Pid | None = None
    max_samples: Whole = 0
    limit: dict[str, Whole | str] | None = None


class _EndNumbers(msgspec.Struct, kw_only=True):
    """The numbers of the last line."""

    duration_s: Duration | None = None
    totals: dict[str, Whole | Figure | None] = {}
    exit: model.Exit | None = None
    sampler: SamplerEnd = SamplerEnd()


class Chunk(NamedTuple):
    """The content of some lines of a journal."""

    samples: list[list[float | None]]
    """Each is the seconds since the start, then a value per column."""
    each: list[tuple[float, dict[int, int]]]
    """Seconds, and the RSS of every process at that sample: bytes, by the process's ``id``."""
    lines: list[Line]
    """All other lines, in order."""
    bad: list[int]
    """Numbers of the unreadable lines, from 1."""


class Tail:
    """A journal from its first line to the latest."""

    def __init__(self, file: BinaryIO, origin: str, header: Header | None = None) -> None:
        """Read the first line of ``file``; ``origin`` names the file in messages.

        With ``header``, the first line is skipped and ``header`` is used instead. Raises SessionFileError, OSError.
        """
        self._lines = Lines(file)
        self._number = 1
        self._sample_before = b""
        first = self._lines.next(single=True)
        self.header, self.plan = _header(first, origin) if header is None else (header, _plan(header))

    def read(self) -> Iterator[Chunk]:
        """Yield the lines appended since the last call, in chunks. Raises OSError."""
        while data := self._lines.next():
            chunk = Chunk([], [], [], [])
            rows = []
            for text in data[:-1].split(b"\n"):
                self._number += 1
                if text.startswith(b"["):
                    self._sample_before = text
                    rows.append((self._number, text))
                else:
                    self._take_line(self._number, text, chunk)
            self._take_samples(rows, chunk)
            yield chunk

    def _take_samples(self, rows: Sequence[tuple[int, bytes]], chunk: Chunk) -> None:
        """Decode many samples at once; when that fails, find the bad ones by bisection."""
        if not rows:
            return
        try:
            joined = b"[" + b",".join([text for _, text in rows]) + b"]"
            samples = msgspec.json.decode(joined, type=list[list[Figure | None]])
            width = 1 + len(self.plan.columns)
            if any(len(sample) != width or sample[0] is None for sample in samples) or len(samples) != len(rows):
                raise ValueError("a figure too many or too few, or a sample without its time")
            times = [sample[0] or 0.0 for sample in samples]
            if min(times) < 0 or max(times) > intake.LATEST_S:
                raise ValueError("seconds since the start expected")
        except _WRONG:
            if len(rows) == 1:
                chunk.bad.append(rows[0][0])
                return
            middle = len(rows) // 2
            self._take_samples(rows[:middle], chunk)
            self._take_samples(rows[middle:], chunk)
            return
        chunk.samples.extend(samples)

    def _take_line(self, number: int, text: bytes, chunk: Chunk) -> None:
        try:
            line = msgspec.json.decode(text, type=Line)
            msgspec.convert(line.get("start", {}), model.Start)
            msgspec.convert(line.get("process", {"id": 0}), Process)
            msgspec.convert(line.get("end", {}), _EndNumbers)
            _check_devices(line)
            if "each" in line:
                time_s = msgspec.json.decode(self._sample_before[1 : self._sample_before.index(b",")], type=Seconds)
                chunk.each.append((time_s, line["each"]))
                return
            if "columns" in line:
                if self._sample_before:
                    raise ValueError("columns after a sample")
                _check_columns(line["columns"])
                self.plan.columns = line["columns"]
            chunk.lines.append(line)
        except _WRONG:
            chunk.bad.append(number)


def _check_devices(line: Line) -> None:
    """Raise ValueError for a reading of devices that has other columns, very many, or a figure that cannot be."""
    values = line["devices"]["values"] if "devices" in line else {}
    if not {name_of(name) for name in values} <= {*OF_DEVICES} or len(values) > _MOST_OF_DEVICES:
        raise ValueError("columns of devices expected")


def _header(line: bytes, origin: str) -> tuple[Header, Plan]:
    try:
        header = msgspec.json.decode(line.removeprefix(intake.UTF_8_MARK), type=Header)
        if header["format"] != FORMAT:
            raise ValueError(f"{FORMAT!r} expected")
        plan = _plan(header)
    except _WRONG as error:
        raise SessionFileError(f"{origin}: line 1 is not the header of a journal: {error}") from error
    version = header.get("version", VERSION)
    if version > VERSION:
        raise SessionFileError(f"{origin}: journal version {version}, this nncf-tools reads up to {VERSION}: upgrade")
    return header, plan


def _plan(header: Header) -> Plan:
    """Return the plan of a header; keys of other versions are ignored. Raises ValueError."""
    fields: dict[str, Any] = dict(header["plan"])
    msgspec.convert(fields, _PlanNumbers)
    if fields["interval_s"] <= 0:
        raise ValueError("at `$.plan.interval_s`: seconds expected")
    _check_columns(fields["columns"])
    for pattern in fields.get("redact") or ():
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"at `$.plan.redact`: {error}") from error
    return Plan(**fields)


def _check_columns(columns: list[str]) -> None:
    if len(set(columns)) != len(columns):
        raise ValueError("at `$.plan.columns`: a metric is listed twice")


class Recording:
    """What a journal says, up to where it was last read; it takes the same memory after a minute and after a day."""

    def __init__(self, file: BinaryIO, origin: str, header: Header | None = None) -> None:
        """Read the first line of ``file``; see ``Tail``. Raises SessionFileError, OSError."""
        self.origin = origin
        self._tail = Tail(file, origin, header)
        self.header, self.plan = self._tail.header, self._tail.plan
        try:
            self.host = msgspec.convert(self.header["host"], model.Host)
            self.rank = msgspec.convert(self.header.get("rank"), model.Rank | None)
        except msgspec.MsgspecError as error:
            raise SessionFileError(f"{origin}: line 1 is not the header of a journal: {error}") from error
        self.redaction = Redaction(self.plan.redact)
        self.command = self.redaction.words(self.header.get("command", []))
        self.start: Start | None = None
        self.end: End | None = None
        self.limits: list[model.MemoryLimit] = []
        """Those that processes were seen with."""

    def read(self) -> Iterator[Chunk]:
        """Yield the lines appended since the last call, in chunks; commands have no secrets. Raises OSError."""
        for chunk in self._tail.read():
            for line in chunk.lines:
                self.take(line)
            yield chunk

    def take(self, line: Line) -> None:
        """Take a line that is not a sample."""
        self.start = line.get("start", self.start)
        self.end = line.get("end", self.end)
        if "memory_limit" in line:
            self.limits.append(line["memory_limit"])
        if "command" in line.get("process", {}):
            line["process"]["command"] = self.redaction.words(line["process"]["command"])


class StarterFacts(NamedTuple):
    """What the starter of a recording knows, in place of lines that damage or a full disk may have lost."""

    header: Header | None = None
    start: Start | None = None
    end: End | None = None


_NOTHING = StarterFacts()


def session_from(file: BinaryIO, origin: str, known: StarterFacts = _NOTHING, *, snapshots: bytes = b"") -> SessionData:
    """Return what a journal recorded; ``origin`` names it in messages, ``snapshots`` is the helper's log.

    A last line that was cut off by a kill is ignored. Other unreadable lines are skipped and counted. Without an
    ``end`` line the session is unfinished. Raises SessionFileError when nothing was recorded, OSError.
    """
    recording = WholeRecording(file, origin, known.header)
    session = recording.session(known.start, known.end)
    session.snapshots = snapshots_from(snapshots, session.start, session.processes, recording.plan.redact)
    return session


class WholeRecording(Recording):
    """All that a journal says."""

    def __init__(self, file: BinaryIO, origin: str, header: Header | None = None) -> None:
        """Read the first line of ``file``; see ``Tail``. Raises SessionFileError, OSError."""
        super().__init__(file, origin, header)
        self._columns: dict[str, array[float]] = {}
        self._processes: dict[int, dict[str, Any]] = {}
        self._series: dict[int, Series] = {}
        self._rises: dict[int, list[model.Rise]] = {}
        self._held: list[model.HeldLine] = []
        self._execs: list[model.ExecLine] = []
        self._late: dict[float, float] = {}
        self._fields: dict[str, Any] = {"control_groups": [], "oom_kills": []}
        self._file_systems: dict[str, model.FileSystem] = {}
        self._devices: dict[str, model.Device] = {}
        self._device_readings: list[tuple[float, dict[str, float | None]]] = []
        self._files: dict[str, int] = {}
        self._warnings: list[str] = []
        self._bad_lines: list[int] = []

    def take(self, line: Line) -> None:
        """Take a line that is not a sample."""
        super().take(line)
        if "process" in line:
            self._processes.setdefault(line["process"]["id"], {}).update(line["process"])
        elif "rise" in line:
            rise = msgspec.convert(line["rise"], model.Rise, from_attributes=True)
            self._rises.setdefault(line["rise"].id, []).append(rise)
        elif "held" in line:
            if all(len(entry) > 1 for entry in line["held"]["rss"] or ()):
                self._held.append(line["held"])
        elif "exec" in line or "late" in line:
            self._take_span(line)
        elif "group" in line:
            self._fields["control_groups"].append(line["group"])
        elif "oom_kills" in line:
            self._fields["oom_kills"].append(line["oom_kills"])
        elif "file_system" in line:
            room = line["file_system"]
            self._file_systems[room.role] = replace(room, path=self.redaction.text(room.path))
        elif "devices" in line or "device" in line:
            self._take_devices(line)
        elif "files_read" in line:
            for path, size in line["files_read"]["files"]:
                self._files[path] = max(size, self._files.get(path, 0))
        elif "warning" in line:
            self._warnings.append(line["warning"])
        else:
            self._fields.update((name, value) for name, value in line.items() if name in {"limit_reached", "floor"})

    def _take_span(self, line: Line) -> None:
        if "exec" in line:
            self._execs.append(line["exec"])
        if "late" in line:
            self._late[line["late"]["from_s"]] = line["late"]["to_s"]

    def _take_devices(self, line: Line) -> None:
        if "device" in line:
            self._devices[line["device"].device] = line["device"]
        if "devices" in line:
            self._device_readings.append((line["devices"]["at_s"], line["devices"]["values"]))

    def _add_devices(self) -> dict[str, model.Peak]:
        """Add the columns of devices; return the peaks of those that the run did not use."""
        from nncftools.session.devices import used_columns

        of_devices, unused = used_columns(self._columns[TIME], self._device_readings)
        self._columns |= of_devices
        return unused

    def session(self, start: Start | None, end: End | None) -> SessionData:
        """Return what the whole journal says, and what is given in place of its lost lines. Raises SessionFileError."""
        self._read_samples()
        unwritten = "" if self.end is not None or end is None else end.get("unwritten", "")
        if unwritten:
            rest = Tail(io.BytesIO(b"\n" + unwritten.encode()), self.origin, self.header)
            rest.plan.columns, self._tail = self.plan.columns, rest
            self._read_samples()
        end, start = self.end or end, self.start or start
        error = None if end is None else end.get("error")
        if error is None and start is None:
            error = "the recorder ended before the command began"
        if error is not None or start is None:
            raise SessionFileError(f"{self.origin}: nothing was recorded: {error}")
        if self._bad_lines:
            self._warnings.append(_damage(sorted(self._bad_lines)))
        return self._session(start, end)

    def _read_samples(self) -> None:
        for chunk in self.read():
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

    def _begin_columns(self) -> None:
        self._columns = self._columns or {name: array("d") for name in (TIME, *self.plan.columns)}

    def _session(self, start: Start, end: End | None) -> SessionData:
        self._begin_columns()
        unused = self._add_devices() if self._device_readings else {}
        fields: End = end or {}
        header, plan = self.header, self.plan
        facts = self._facts(fields)
        samples = Samples(self._columns, self.origin)
        processes = self._listed()
        last_s = samples.time_s[-1] if len(samples) else 0.0
        duration_s = fields.get("duration_s")
        session = SessionData(
            tool_version=header.get("tool_version", ""),
            name=header.get("name", ""),
            command=processes[0].command if plan.pid is not None and processes else self.command,
            cwd=header.get("cwd", ""),
            attached_to=plan.pid,
            rank=self.rank,
            start=msgspec.convert(start, model.Start),
            duration_s=last_s if duration_s is None else duration_s,
            finished=end is not None,
            exit=msgspec.convert(fields.get("exit"), model.Exit | None),
            host=self.host,
            sampler=facts,
            samples=samples,
            totals=_with_all_cpu_time(fields.get("totals") or last_counters(samples), processes),
            peaks=unused,
            late=self._late_readings(samples),
            memory_limits=self.limits,
            file_systems=list(self._file_systems.values()),
            devices=list(self._devices.values()),
            files_read=[FileRead(path=self.redaction.text(path), size=size) for path, size in self._files.items()],
            processes=self._largest(processes),
            warnings=self._warnings,
            **self._fields,
        )
        session.unsaved.of_marks = model.HeldLines(self._held, plan.children, self._execs)
        return session

    def _late_readings(self, samples: Samples) -> LateReadings:
        """Return what is known of the samples that are left."""
        times = [at_s for at_s in samples.time_s if at_s in self._late] if self._late else []
        return LateReadings(from_s=times, to_s=[self._late[at_s] for at_s in times])

    def _facts(self, end: End) -> SamplerFacts:
        """Return the sampler's facts; warn of samples that it merged, and of those that are missing."""
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
        taken, left = facts.taken or read, len(self._columns[TIME])
        is_merged = left < taken - lost
        if is_merged or left > self.plan.max_samples:
            facts = replace(facts, merged_s=usual_distance(self._columns[TIME]))
        if is_merged:
            self._warnings.append(merge_warning(taken, left))
        return facts

    def _listed(self) -> list[Process]:
        kept = [fields for fields in self._processes.values() if not fields.get("left_out")]
        processes = msgspec.convert(kept, list[Process])
        for process in processes:
            process.series = self._series.get(process.id)
            process.rises = self._rises.get(process.id, [])
            if not self.plan.children:  # ``ru_maxrss`` is that of children, too, which do not count
                process.high_water_limit = None
            highest = max((rise.high_water_mark for rise in process.rises), default=0)
            if highest > (process.high_water_mark or 0):  # a killed sampler did not record it otherwise
                process.high_water_mark = highest
        return processes

    def _largest(self, processes: list[Process]) -> list[Process]:
        """Return the processes to list: if there are too many, the first one and those that held the most."""
        most = intake.LIMITS.processes
        if len(processes) <= most:
            return processes
        self._warnings.append(f"of {len(processes):,} processes, the {most:,} that held the most are listed")
        largest = sorted(processes[1:], key=lambda process: process.high_water_mark or process.peak_rss or 0)
        return [processes[0], *sorted(largest[1 - most :], key=lambda process: process.id)]

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
                series.time_s = [series.time_s[row] for row in places]
                series.rss = [series.rss[row] for row in places]
        return left_out

    def _keep(self, rows: Sequence[int]) -> None:
        self._columns = {name: array("d", map(column.__getitem__, rows)) for name, column in self._columns.items()}


def _damage(lines: Sequence[int]) -> str:
    if len(lines) == 1:
        return f"1 line of the journal could not be read: line {lines[0]}"
    return f"{len(lines)} lines of the journal could not be read, the first is line {lines[0]}"


def _with_all_cpu_time(
    totals: dict[str, int | float | None], processes: Sequence[Process]
) -> dict[str, int | float | None]:
    """Return totals whose CPU time is not below the sum of the processes.

    A total counts children only if their parent waits for them (proc(5), ``cutime``). User and system time keep their
    ratio, as the kernel itself scales them to the exact time (``cputime_adjust``).
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
