"""Read the lines of a journal and make a session.

The recording may have ended, may still be running, or may have been killed. Every line is decoded only once, also while
the journal grows. An invalid line is counted and skipped. The report, the live view and the pytest plugin all read a
recording through ``Recording``.
"""

from __future__ import annotations

import io
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from math import isnan
from typing import Any, BinaryIO, NamedTuple, TypedDict

import msgspec
from msgspec.structs import replace

from nncftools import intake
from nncftools.errors import SessionFileError
from nncftools.intake import Duration, Figure, Level, Pid, Redaction, Seconds, Size, Whole
from nncftools.journal.reading import FORMAT, VERSION, End, Header, Lines, Start
from nncftools.journal.writing import Plan
from nncftools.metrics import OF_DEVICES, cpu_counters, is_counter, name_of
from nncftools.session import model
from nncftools.session.model import FileRead, LateReadings, Process, SamplerFacts, Series, SessionData
from nncftools.session.samples import (
    TIME,
    Samples,
    columns_in_use,
    find_rising_rows,
    merge_warning,
    nan_for_none,
    usual_distance,
)
from nncftools.session.snapshots import snapshots_from

_MOST_DEVICE_COLUMNS = 500
"""The largest number of device columns that a line may have. For comparison: 8 GPUs, divided into 7 MIG instances per
GPU, have 56 instances with 3 columns per instance: 168 columns."""
_DAMAGE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError, TypeError, KeyError, SystemError)
"""Exceptions that a damaged line raises. msgspec before 0.22 raises SystemError for a number of 400 digits."""


class Rise(model.Rise, frozen=True, kw_only=True):
    """A rise of the high-water mark of a process (its largest RSS so far)."""

    id: int
    """The ``id`` (not the PID) of the process whose memory rose."""


class Span(TypedDict):
    """A span of time, in seconds since the start of the recording."""

    from_s: Seconds
    to_s: Seconds


class FilesRead(TypedDict):
    """A line of the journal about files that were open for reading while processes read many bytes."""

    files: list[tuple[str, Size]]
    """Pairs of the path and the size of the file in bytes."""


class DeviceReadings(TypedDict):
    """Values of the devices at one moment, read by the helper for devices."""

    at_s: Seconds
    values: dict[str, Level | None]
    """``{column: value}``; a column is, for example, ``device_memory@nvidia0``. None if the value is unknown."""


class SamplerEnd(SamplerFacts, frozen=True, kw_only=True):
    """Facts about the sampling, in the last line of a journal."""

    rows: Whole = 0
    """Number of samples written, after neighbouring samples were merged."""


class JournalLine(TypedDict, total=False):
    """A line that is not a sample. A line has exactly one of these keys."""

    start: Start
    columns: list[str]
    """The columns of all samples. This line exists only if the columns differ from the metrics in the header. For
    example, the metric ``disk_free`` has a column for each file system."""
    process: dict[str, Any]
    """Some fields of a ``Process``; they add to earlier lines with the same ``id``. With the key ``left_out``, the
    process does not belong to the run after all."""
    rise: Rise
    held: model.HeldLine
    exec: model.ExecLine
    late: Span
    """A sample that took long. ``from_s``: time of this sample, whose line follows in the journal; ``to_s``: time when
    the last process was read."""
    limit_reached: model.LimitReached
    memory_limit: model.MemoryLimit
    group: model.ControlGroup
    oom_kills: model.OomKills
    file_system: model.FileSystem
    """Free space of a file system. A later line replaces earlier lines with the same ``role`` (the use of the file
    system, such as ``cwd`` for the working folder)."""
    floor: model.Floor
    devices: DeviceReadings
    device: model.Device
    """A device. A later line replaces earlier lines of the same device."""
    files_read: FilesRead
    each: dict[Size, Size]
    """RSS of each process in bytes, by the process's ``id``, in the sample of the previous line (``--per-process``)."""
    warning: str
    """A warning; every report repeats the warning."""
    end: End


class _PlanNumbers(msgspec.Struct, kw_only=True):
    pid: Pid | None = None
    max_samples: Whole = 0
    limit: dict[str, Whole | str] | None = None


class _EndNumbers(msgspec.Struct, kw_only=True):
    duration_s: Duration | None = None
    totals: dict[str, Size | Level | None] = {}
    exit: model.Exit | None = None
    sampler: SamplerEnd = SamplerEnd()


class Chunk(NamedTuple):
    """The decoded content of several lines of a journal."""

    samples: list[list[float | None]]
    """The samples. Each sample is a list: seconds since the start of the recording, then a value per column."""
    each: list[tuple[float, dict[int, int]]]
    """Pairs of the time of a sample and ``{id of a process: RSS in bytes}``."""
    lines: list[JournalLine]
    """The lines that are neither samples nor ``each`` lines, in order."""
    bad: list[int]
    """Numbers of unreadable lines; the first line of the journal is line 1."""


class Tail:
    """Reads a journal while the journal grows."""

    def __init__(self, file: BinaryIO, origin: str, header: Header | None = None) -> None:
        """Read the header from the first line of ``file``; ``origin`` is the file's name in messages.

        If ``header`` is given, skip the first line and use ``header`` instead. Raises SessionFileError, OSError.
        """
        self._lines = Lines(file)
        self._number = 1
        self._last_sample = b""
        first = self._lines.next(single=True)
        self.header = _decode_header(first, origin) if header is None else header
        self.plan = _read_plan(self.header)

    def read(self) -> Iterator[Chunk]:
        """Yield the lines that were appended since the last call, in chunks. Raises OSError."""
        while data := self._lines.next():
            chunk = Chunk([], [], [], [])
            rows = []
            for text in data[:-1].split(b"\n"):
                self._number += 1
                if text.startswith(b"["):
                    self._last_sample = text
                    rows.append((self._number, text))
                else:
                    self._take_line(self._number, text, chunk)
            self._take_samples(rows, chunk)
            yield chunk

    def _take_samples(self, rows: Sequence[tuple[int, bytes]], chunk: Chunk) -> None:
        """Decode many samples at once. If that fails, halve the lines repeatedly to find the bad samples."""
        if not rows:
            return
        try:
            texts = [text for _, text in rows]
            chunk.samples.extend(_decode_samples(texts, 1 + len(self.plan.columns)))
        except _DAMAGE:
            if len(rows) == 1:
                chunk.bad.append(rows[0][0])
                return
            middle = len(rows) // 2
            self._take_samples(rows[:middle], chunk)
            self._take_samples(rows[middle:], chunk)

    def _take_line(self, number: int, text: bytes, chunk: Chunk) -> None:
        try:
            line = msgspec.json.decode(text, type=JournalLine)
            msgspec.convert(line.get("start", {}), model.Start)
            msgspec.convert(line.get("process", {"id": 0}), Process)
            msgspec.convert(line.get("end", {}), _EndNumbers)
            _check_devices(line)
            if "each" in line:
                number_text = self._last_sample[1 : self._last_sample.index(b",")]
                time_s = msgspec.json.decode(number_text, type=Seconds)
                chunk.each.append((time_s, line["each"]))
                return
            if "columns" in line:
                if self._last_sample:
                    raise ValueError("columns after a sample")
                _check_columns(line["columns"])
                self.plan.columns = line["columns"]
            chunk.lines.append(line)
        except _DAMAGE:
            chunk.bad.append(number)


def _decode_samples(texts: Sequence[bytes], width: int) -> list[list[float | None]]:
    """Return samples, each with ``width`` numbers, the time first. Raises ValueError or another of ``_DAMAGE``."""
    list_text = b"[%b]" % b",".join(texts)
    samples = msgspec.json.decode(list_text, type=list[list[Figure | None]])
    if len(samples) != len(texts) or any(len(sample) != width for sample in samples):
        raise ValueError("a sample with too many or too few values")
    times = [nan_for_none(sample[0]) for sample in samples]
    if any(map(isnan, times)):
        raise ValueError("a sample without time")
    if min(times) < 0 or max(times) > intake.LATEST_S:
        raise ValueError("seconds since the start expected")
    return samples


def _check_devices(line: JournalLine) -> None:
    values = line["devices"]["values"] if "devices" in line else {}
    if not {name_of(name) for name in values} <= {*OF_DEVICES} or len(values) > _MOST_DEVICE_COLUMNS:
        raise ValueError("columns of devices expected")


def _decode_header(line: bytes, origin: str) -> Header:
    try:
        header = msgspec.json.decode(line.removeprefix(intake.UTF_8_MARK), type=Header)
        if header["format"] != FORMAT:
            raise ValueError(f"{FORMAT!r} expected")
        _read_plan(header)
        msgspec.convert(header["host"], model.Host)
        msgspec.convert(header.get("rank"), model.Rank | None)
    except _DAMAGE as error:
        raise SessionFileError(f"{origin}: line 1 is not the header of a journal: {error}") from error
    version = header.get("version", VERSION)
    if version > VERSION:
        raise SessionFileError(f"{origin}: journal version {version}, this nncf-tools reads up to {VERSION}: upgrade")
    return header


def _read_plan(header: Header) -> Plan:
    """Return the plan (the settings of a recording) from a header, ignoring unknown keys. Raises ValueError."""
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
    """The facts about a run from all journal lines read so far. Memory use does not grow with the length of the run."""

    def __init__(self, file: BinaryIO, origin: str, header: Header | None = None) -> None:
        """Read the header from the first line of ``file``; ``origin`` is the file's name in messages.

        If ``header`` is given, skip the first line and use ``header`` instead. Raises SessionFileError, OSError.
        """
        self.origin = origin
        self._tail = Tail(file, origin, header)
        self.header = self._tail.header
        self.plan = self._tail.plan
        self.host = msgspec.convert(self.header["host"], model.Host)
        self.rank = msgspec.convert(self.header.get("rank"), model.Rank | None)
        self.redaction = Redaction(self.plan.redact)
        self.command = self.redaction.words(self.header.get("command", []))
        self.start: Start | None = None
        self.end: End | None = None
        self.limits: list[model.MemoryLimit] = []
        """Memory limits that apply to the processes."""

    def read(self) -> Iterator[Chunk]:
        """Yield the lines that were appended since the last call, in chunks. Secrets in commands are hidden.

        Raises OSError.
        """
        for chunk in self._tail.read():
            for line in chunk.lines:
                self.take(line)
            yield chunk

    def take(self, line: JournalLine) -> None:
        """Process a line that is not a sample."""
        self.start = line.get("start", self.start)
        self.end = line.get("end", self.end)
        if "memory_limit" in line:
            self.limits.append(line["memory_limit"])
        if "command" in line.get("process", {}):
            line["process"]["command"] = self.redaction.words(line["process"]["command"])


class StarterFacts(NamedTuple):
    """Facts from the process that started the recording. They replace journal lines lost by damage or a full disk."""

    header: Header | None = None
    start: Start | None = None
    end: End | None = None


_NOTHING = StarterFacts()


def session_from(file: BinaryIO, origin: str, known: StarterFacts = _NOTHING, *, snapshots: bytes = b"") -> SessionData:
    """Return the session in a journal; ``origin`` is the file's name in messages.

    ``snapshots`` is the content of the log with stacks and mappings. If a kill cut off the last line, the line is
    ignored. Other unreadable lines are skipped and counted. If there is no ``end`` line, the session is unfinished.
    Raises OSError, and SessionFileError if nothing was recorded.
    """
    recording = WholeRecording(file, origin, known.header)
    session = recording.session(known.start, known.end)
    session.snapshots = snapshots_from(snapshots, session.start, session.processes, recording.plan.redact)
    return session


_LISTED = ("exec", "group", "oom_kills", "warning")
_NO_USE = model.Peak(sampled=0, at_s=None, low=0)
"""Peak of a device's memory if the run did not use the device."""


class WholeRecording(Recording):
    """Reads a whole journal, and keeps all samples in memory."""

    def __init__(self, file: BinaryIO, origin: str, header: Header | None = None) -> None:
        """Read the header from the first line of ``file``; ``origin`` is the file's name in messages.

        If ``header`` is given, skip the first line and use ``header`` instead. Raises SessionFileError, OSError.
        """
        super().__init__(file, origin, header)
        self._columns: dict[str, array[float]] = {}
        self._processes: dict[int, dict[str, Any]] = {}
        self._series: dict[int, Series] = {}
        self._rises: dict[int, list[model.Rise]] = {}
        self._held: list[model.HeldLine] = []
        self._late: dict[float, float] = {}
        self._file_systems: dict[str, model.FileSystem] = {}
        self._devices: dict[str, model.Device] = {}
        self._device_readings: list[tuple[float, Mapping[str, float | None]]] = []
        self._files: dict[str, int] = {}
        self._bad_lines: list[int] = []
        self._fields: dict[str, Any] = {}
        """Maps the name of a field of the session to its value. The name is also the key of the journal line with the
        value."""
        self._lists: dict[str, list[Any]] = {key: [] for key in _LISTED}
        """Maps a key to the values of all lines with this key."""
        self._warnings: list[str] = self._lists["warning"]

    def take(self, line: JournalLine) -> None:
        """Process a line that is not a sample."""
        super().take(line)
        for key, value in line.items():
            if key in self._lists:
                self._lists[key].append(value)
            elif key in {"limit_reached", "floor"}:
                self._fields[key] = value
        if "process" in line:
            self._processes.setdefault(line["process"]["id"], {}).update(line["process"])
        elif "rise" in line:
            rise = msgspec.convert(line["rise"], model.Rise, from_attributes=True)
            self._rises.setdefault(line["rise"].id, []).append(rise)
        elif "held" in line:
            if all(len(entry) > 1 for entry in line["held"]["rss"] or ()):
                self._held.append(line["held"])
        elif "late" in line:
            self._late[line["late"]["from_s"]] = line["late"]["to_s"]
        elif "file_system" in line:
            file_system = line["file_system"]
            path = self.redaction.text(file_system.path)
            self._file_systems[file_system.role] = replace(file_system, path=path)
        elif "device" in line:
            self._devices[line["device"].device] = line["device"]
        elif "devices" in line:
            self._device_readings.append((line["devices"]["at_s"], line["devices"]["values"]))
        elif "files_read" in line:
            for path, size in line["files_read"]["files"]:
                self._files[path] = max(size, self._files.get(path, 0))

    def session(self, start: Start | None, end: End | None) -> SessionData:
        """Return the session. If the journal lacks the line ``start`` or ``end``, use the argument with this name.

        Raises SessionFileError.
        """
        self._read_samples()
        unwritten = "" if self.end is not None or end is None else end.get("unwritten", "")
        if unwritten:
            rest = Tail(io.BytesIO(b"\n" + unwritten.encode()), self.origin, self.header)
            rest.plan.columns = self.plan.columns
            self._tail = rest
            self._read_samples()
        end = self.end or end
        start = self.start or start
        error = None if end is None else end.get("error")
        if error is None and start is None:
            error = "the recorder ended before the command began"
        if error is not None or start is None:
            raise SessionFileError(f"{self.origin}: nothing was recorded: {error}")
        if self._bad_lines:
            self._warnings.append(_describe_damage(sorted(self._bad_lines)))
        return self._make_session(start, end)

    def _read_samples(self) -> None:
        for chunk in self.read():
            self._bad_lines += chunk.bad
            if chunk.samples:
                self._begin_columns()
                by_column = zip(*chunk.samples, strict=True)
                for column, values in zip(self._columns.values(), by_column, strict=True):
                    try:
                        column.fromlist(list(values))
                    except TypeError:  # a value is None
                        column.extend(map(nan_for_none, values))
            for time_s, each in chunk.each:
                for number, rss in each.items():
                    series = self._series.setdefault(number, Series(time_s=[], rss=[]))
                    series.time_s.append(time_s)
                    series.rss.append(rss)

    def _begin_columns(self) -> None:
        if not self._columns:
            self._columns = {name: array("d") for name in (TIME, *self.plan.columns)}

    def _make_session(self, start: Start, end: End | None) -> SessionData:
        self._begin_columns()
        columns_of_devices, unused = columns_in_use(self._columns[TIME], self._device_readings)
        self._columns |= columns_of_devices
        fields = end or {}
        header = self.header
        plan = self.plan
        facts = self._read_facts(fields)
        samples = Samples(self._columns, self.origin)
        processes = self._make_processes()
        last_s = samples.time_s[-1] if len(samples) else 0.0
        duration_s = fields.get("duration_s")
        files_read = []
        for path, size in self._files.items():
            files_read.append(FileRead(path=self.redaction.text(path), size=size))
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
            totals=_complete_cpu_time(fields.get("totals") or last_counters(samples), processes),
            peaks=dict.fromkeys(unused, _NO_USE),
            late=self._make_late_readings(samples),
            memory_limits=self.limits,
            control_groups=self._lists["group"],
            oom_kills=self._lists["oom_kills"],
            file_systems=list(self._file_systems.values()),
            devices=list(self._devices.values()),
            files_read=files_read,
            processes=self._select_largest(processes),
            warnings=self._warnings,
            **self._fields,
        )
        session.unsaved.of_marks = model.HeldLines(self._held, plan.children, self._lists["exec"])
        return session

    def _make_late_readings(self, samples: Samples) -> LateReadings:
        times = [at_s for at_s in samples.time_s if at_s in self._late]
        return LateReadings(from_s=times, to_s=[self._late[at_s] for at_s in times])

    def _read_facts(self, end: End) -> SamplerFacts:
        """Return the facts about the sampling; add a warning if samples were merged or are missing."""
        fields = end.get("sampler", {})
        facts = msgspec.convert(fields, SamplerFacts)
        facts = replace(facts, interval_s=self.plan.interval_s, source=self.plan.source)
        read = len(self._columns[TIME])
        lost = len(self._bad_lines)
        cut = fields.get("rows", 0) - read - lost
        if cut > 0:
            lost += cut
            self._warnings.append(f"{cut:,} samples are missing from the journal: the file was truncated or edited")
        lost += self._drop_out_of_order()
        taken = facts.taken or read
        left = len(self._columns[TIME])
        is_merged = left < taken - lost
        if is_merged or left > self.plan.max_samples:
            facts = replace(facts, merged_s=usual_distance(self._columns[TIME]))
        if is_merged:
            self._warnings.append(merge_warning(taken, left))
        return facts

    def _make_processes(self) -> list[Process]:
        listed = [fields for fields in self._processes.values() if not fields.get("left_out")]
        processes = msgspec.convert(listed, list[Process])
        for process in processes:
            process.series = self._series.get(process.id)
            process.rises = self._rises.get(process.id, [])
            if not self.plan.children:  # ``ru_maxrss`` includes children, but this recording excludes children
                process.high_water_limit = None
            highest = max((rise.high_water_mark for rise in process.rises), default=0)
            if highest > (process.high_water_mark or 0):  # if the sampler was killed, only rises have the mark
                process.high_water_mark = highest
        return processes

    def _select_largest(self, processes: list[Process]) -> list[Process]:
        """Return the processes to list. If there are too many, only the first process and the largest processes."""
        most = intake.LIMITS.processes
        if len(processes) <= most:
            return processes
        self._warnings.append(f"of {len(processes):,} processes, only the {most:,} largest are listed")
        others = sorted(processes[1:], key=lambda process: process.high_water_mark or process.peak_rss or 0)
        largest = others[1 - most :]
        return [processes[0], *sorted(largest, key=lambda process: process.id)]

    def _drop_out_of_order(self) -> int:
        """Drop rows whose time is not in order; return the number of dropped rows."""
        rows = find_rising_rows(self._columns[TIME])
        dropped = len(self._columns[TIME]) - len(rows)
        if dropped:
            self._warnings.append(
                f"{dropped:,} samples of the journal were left out, because their times are not in order"
            )
            for name, column in self._columns.items():
                self._columns[name] = array("d", map(column.__getitem__, rows))
        for series in self._series.values():
            rows = find_rising_rows(series.time_s)
            series.time_s = [series.time_s[row] for row in rows]
            series.rss = [series.rss[row] for row in rows]
        return dropped


def _describe_damage(lines: Sequence[int]) -> str:
    if len(lines) == 1:
        return f"1 line of the journal could not be read: line {lines[0]}"
    return f"{len(lines)} lines of the journal could not be read, the first is line {lines[0]}"


def _complete_cpu_time(
    totals: dict[str, int | float | None], processes: Sequence[Process]
) -> dict[str, int | float | None]:
    """Return the totals, with the CPU time raised to at least the sum over the processes.

    The recorded total lacks a child if its parent did not wait for the child (proc(5), ``cutime``). User and system
    time keep their ratio, because the kernel also scales both to the exact total (``cputime_adjust``).
    """
    names = cpu_counters(totals)
    counted = [totals[name] or 0.0 for name in names if totals[name] is not None]
    cpu_s = sum(process.cpu_s or 0.0 for process in processes)
    if not counted or len(counted) < len(names) or sum(counted) >= cpu_s:
        return totals
    first, *others = names
    scale = cpu_s / (sum(counted) or 1)
    rest = {name: round((totals[name] or 0) * scale, 6) for name in others}
    first_s = round(cpu_s - sum(rest.values()), 6)
    return {**totals, first: first_s, **rest}


def last_counters(samples: Samples) -> dict[str, int | float | None]:
    """Return the counters of the last sample. An unfinished recording has no other totals."""
    totals = {}
    for name in samples.metrics:
        if is_counter(name) and len(samples):
            value = samples[name][-1]
            totals[name] = None if isnan(value) else value
    return totals
