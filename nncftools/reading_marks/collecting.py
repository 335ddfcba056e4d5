"""Adds operations and saved models to a session, from the marks log of a recording or from sidecar files.

A process that marks operations reads its own memory and the memory of its descendants at each mark. These figures are
exact. ``TreeReader`` adds the memory of the other processes of the tree, as ``docs/operations.md`` describes. The
high-water marks of a process narrow down the time of the peak. This file also finds the sizes of saved files, and the
reason why a recording has no marks.
"""

from __future__ import annotations

import functools
import heapq
import io
import os
from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from math import inf, isnan
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec.structs import replace

from nncftools import intake
from nncftools.analysis.peaks import narrow
from nncftools.analysis.session import Session
from nncftools.errors import NncfToolsError
from nncftools.files import write_file
from nncftools.intake import LIMITS, Redaction
from nncftools.marks.line import OUTPUT
from nncftools.reading_marks.entries import BEGIN, EXEC, LOST, Entry, Key, Number, Row, read_rows
from nncftools.reading_marks.resolving import Log, resolve
from nncftools.session.model import (
    UNFINISHED,
    Failure,
    Mark,
    OwnMemory,
    Process,
    ProcessTable,
    SavedModel,
    SessionData,
    Start,
)
from nncftools.session.nesting import add_ends, find_device, in_order, renumber_marks, take_allocated
from nncftools.session.samples import noise
from nncftools.units import count_text, seconds_text, shortened

_ARGUMENT = 40
"""An argument is cut to at most this many characters."""
_ARGUMENTS = 120
"""All arguments of a call together are cut to at most this many characters."""
_MOST_KEPT = 1_000
"""A session has at most this many saved models, and at most this many failures."""


def take_log(session: Session, log: BinaryIO, name: str, redaction: Redaction, path: Path | None = None) -> LogNotes:
    """Add the marks and saved models of a marks log to ``session``; return the other facts in the log.

    Secrets in arguments and paths are hidden. Unreadable or missing rows cause a warning in the session, with the
    number of rows. If ``path`` is given, this function also checks that ``log`` is still the file at this path.
    """
    notes = LogNotes(session)
    is_full = False
    if path is not None:
        notes.is_gone = _is_gone(log, path)
        room = os.fstatvfs(log.fileno())
        is_full = room.f_bavail == 0 < room.f_blocks  # some file systems do not know their size, and report 0
    entries = notes.operations(read_rows(log, name, session.start), redaction)
    _take_marks(session, entries, notes, TreeReader(session), is_cut=is_full)
    session.warnings += notes.warnings
    if is_full:
        session.warnings.append("the file system of the marks log is full: marks may be missing")
    if notes.is_gone:
        session.warnings.append("the marks log was removed, replaced or emptied: marks are missing")
    if notes.wrong > 0:
        session.warnings.append(
            f"{count_text(notes.wrong, 'mark')} could not be read, the first is {notes.first_wrong} of {name}"
        )
    session.models = list(notes.models.values())
    session.failures = notes.failures
    return notes


def _take_marks(
    session: Session, entries: Iterable[Entry], notes: LogNotes, reader: TreeReader, *, is_cut: bool = False
) -> None:
    """Add the operations of a log to the session, with the memory at each mark."""
    facts = Log(notes.begun_s, reader.at, reader.execs(), notes.is_gone or is_cut)
    marks = resolve(entries, session, facts)
    session.marks = _within(marks, session)
    notes.outside = len(marks) - len(session.marks)
    if notes.missing > 0:
        count = count_text(notes.missing, "mark")
        session.warnings.append(f"the marks log lacks {count}: for a time, it could not be written (a full disk?)")
    narrow(session)
    for mark in session.marks:
        if any(own is not None and own.devices for own in (mark.own_start, mark.own_end)):
            take_allocated(session)
            break


def _is_gone(log: BinaryIO, path: Path) -> bool:
    """Return whether the log was removed, replaced by another file, or emptied."""
    try:
        is_same = os.path.samestat(os.fstat(log.fileno()), path.lstat())
        return not is_same or os.pread(log.fileno(), 1, 0) != b" "
    except OSError:
        return True


class LogNotes:
    """All facts in a marks log except the operations."""

    def __init__(self, session: Session) -> None:
        self._devices = session.devices
        self._watched = [] if session.snapshots is None else session.snapshots.processes
        self.programs = 0
        """The number of Python processes in which the hook ran."""
        self.begun_s: dict[Number, list[float]] = {}
        """Times in seconds when each program wrote the first row: ``{pid: [times]}``. A process that calls exec runs
        several programs.
        """
        self._programs: set[Number] = {None}
        """The random numbers of the programs in the log, and None for rows without a number. A forked process has the
        number of the parent.
        """
        self.outside = 0
        """The number of operations outside the time of the recording."""
        self.warnings: dict[str, None] = {}
        self.models: dict[str, SavedModel] = {}
        """``{path: model that was saved last at this path}``."""
        self.failures: list[Failure] = []
        self.is_gone = False
        self.missing = 0
        """The number of rows that programs could not write."""
        self.wrong = 0
        self.first_wrong = ""

    def operations(self, log: Iterable[Row], redaction: Redaction) -> Iterator[Entry]:
        """Yield the operations, and collect the other facts."""
        for row in log:
            if row.entry is None:
                self.first_wrong = self.first_wrong or f"{row.position} ({row.problem})"
                self.wrong += 1
                continue
            entry = _hide_secrets(row.entry, redaction)
            start_s = entry.start_s or 0.0
            if entry.ended:
                for watched in self._watched:
                    if watched.pid == entry.pid:
                        watched.take_end_of_code(start_s, entry.rss or 0)
            elif entry.python is not None:
                self.programs += 1
            if entry.program not in self._programs and len(self._programs) <= LIMITS.marks_of_recording:
                self._programs.add(entry.program)
                self.begun_s.setdefault(entry.pid, []).append(start_s)
                yield Entry(event=EXEC, pid=entry.pid, start_s=entry.start_s, error=UNFINISHED)
            if entry.warning is not None and len(self.warnings) < LIMITS.warnings:
                self.warnings[entry.warning] = None
            self._take_failure(entry)
            if entry.rt_info and entry.saved and len(self.models) < _MOST_KEPT:
                facts = dict(_facts_of(entry.rt_info))
                if facts:
                    self.models[entry.saved] = SavedModel(path=entry.saved, saved_s=start_s, facts=facts)
            if entry.is_operation:
                yield entry
            elif entry.lost is not None:
                self.missing += entry.lost
                self.wrong -= entry.cut  # these rows were first written in part, and then again
                if entry.lost:
                    yield replace(entry, event=LOST)

    def _take_failure(self, entry: Entry) -> None:
        if entry.failure is None or entry.pid is None or len(self.failures) >= _MOST_KEPT:
            return
        device = None
        if entry.device is not None:
            uuids = {name: uuid for name, uuid, *_ in entry.devices or ()}
            device = find_device(entry.device, uuids.get(entry.device, ""), self._devices)
            if device.isalpha():  # the device has no number: any of several devices may have failed
                device = None
        failure = Failure(
            pid=entry.pid,
            at_s=entry.start_s or 0.0,
            error=entry.failure,
            cause=entry.cause,
            device=device,
            fatal=entry.fatal,
        )
        self.failures.append(failure)


def _hide_secrets(entry: Entry, redaction: Redaction) -> Entry:
    """Return the entry with hidden secrets. Arguments are shortened last: a cut secret would not be recognised."""
    if entry.arguments is None and entry.saved is None:
        return entry
    arguments = [entry.arguments] if isinstance(entry.arguments, str) else entry.arguments or []
    text = ", ".join([shortened(redaction.text(argument), _ARGUMENT) for argument in arguments])
    saved = None if entry.saved is None else redaction.text(entry.saved)
    return replace(entry, arguments=shortened(text, _ARGUMENTS) or None, saved=saved)


def _facts_of(xml: str) -> Iterator[tuple[str, str]]:
    """Yield path and value of each leaf of ``rt_info``, such as ``nncf/weight_compression/mode`` and ``int4_sym``."""
    if len(xml) > 1 << 16:  # the hook does not read more than this from a model's file
        return
    from xml.etree import ElementTree as ET

    try:
        root = ET.fromstring(f"<rt_info>{xml}</rt_info>")  # noqa: S314 — a fragment has no DTD, and so no entities
    except (ET.ParseError, ValueError):
        return
    pending = deque(("", child) for child in root)
    while pending:
        path, element = pending.popleft()
        value = element.get("value")
        if value is not None:
            yield path + element.tag, value
        pending += [(f"{path}{element.tag}/", child) for child in element]


_EARLY_S = 0.01
"""The start of a process is known in ticks of 10 ms (proc(5)): the process may have begun up to 10 ms earlier."""
_LATE_S = 0.05
"""If the sample after a mark comes later than this, other processes may have begun, changed or ended before the sample.
The tree's memory at the mark is then an estimate.
"""
_MOST_OTHERS = 64


def _lived_after(process: Process, at_s: float) -> bool:
    """Return whether the first sample of a process came after ``at_s``; False if no sample read the process."""
    return process.counted_s is not None and process.counted_s > at_s and bool(process.samples)


class TreeReader:
    """Adds up the memory of a session's process tree at each mark. The marks must be nearly sorted by time.

    A mark contains the exact memory of the process that wrote the mark, and of the process's descendants. The mark
    triggers a sample, which reads the other processes. If the memory of these processes changed since the previous
    sample, the sum is an estimate. On machines with many cores, the kernel's own RSS of a process may be inexact
    (``rss_error``).
    """

    def __init__(self, session: SessionData) -> None:
        """Use the samples of each process in the session's journal.

        Without these samples, the only known memory at a mark is the memory of the processes in the mark's row.
        """
        held = session.unsaved.of_marks
        self._with_descendants = held.with_descendants
        self._execs = held.execs
        self._lines = sorted(held.lines, key=lambda line: line["to_s"])
        self._table = ProcessTable(session.processes)
        self._sizes: dict[int, list[tuple[float, int, int | None]]] = {}
        """The samples of each process: ``{process number: [(seconds, RSS, highest minus lowest RSS since the previous
        sample)]}``. RSS is in bytes. The difference is None if the process ended, and may have grown before the end.
        """
        for line in self._lines:
            for number, *sizes in line["rss"] or ():
                has_ended = sizes[0] == 0 and len(sizes) > 1
                size = line["to_s"], sizes[0], None if has_ended else max(sizes) - min(sizes)
                self._sizes.setdefault(number, []).append(size)
        changes: list[tuple[float, bool, Process]] = []
        for process in session.processes:
            changes.append(((process.start_s or 0.0) - _EARLY_S, False, process))
            if process.end_s is not None:
                changes.append((process.end_s, True, process))
        self._changes = deque(sorted(changes, key=lambda change: change[:2]))
        """Starts and ends of processes, sorted by time: ``[(seconds, True for an end, process)]``. ``at`` removes all
        entries before the time of the mark."""
        self._alive: dict[int, Process] = {}
        self._samples = session.samples
        self._devices = session.devices

    def at(self, at_s: float, pid: Number, reading: Entry) -> OwnMemory | None:
        """Return the memory at a mark, of the process that made the mark and of the whole tree; None if unknown.

        If the sample after a mark from outside shows no memory, the processes have ended, and the memory is unknown.
        """
        process = self._table.at(pid, at_s + _EARLY_S)
        has_own = reading.rss is not None and (process is not None or self._with_descendants)
        held = reading.rss or 0 if has_own else 0
        covered = set[int]()
        for child, rss in reading.descendants or ():
            descendant = self._table.at(child, at_s + _EARLY_S)
            if descendant is not None:
                covered.add(descendant.id)
            if descendant is not None or self._with_descendants:
                held += rss
        others = self._others(at_s, process, covered, reading)
        devices = None if reading.devices is None else self._allocated(reading.devices)
        own = OwnMemory(rss=reading.rss, high_water_mark=reading.high_water_mark, devices=devices)
        if not (held or self._sampled(at_s)):
            return replace(own, is_estimate=True)
        if others and not self._lines:
            return None if own.rss is None and own.high_water_mark is None else own
        tree, change = self._with_others(others, at_s, held)
        return replace(own, tree=tree or None, is_estimate=change is None or change > noise(tree))

    def execs(self) -> Iterator[tuple[int, float, float]]:
        """Yield each process that began another program (exec): PID, last time before exec, first time after exec."""
        for line in sorted(self._execs, key=lambda line: line["to_s"]):
            process = self._table.by_id.get(line["id"])
            if process is not None and process.pid is not None:
                yield process.pid, line["from_s"], line["to_s"]

    def _allocated(self, readings: Sequence[tuple[str, str, int, int]]) -> dict[str, tuple[int, int]]:
        """Return the bytes in use by torch's allocator: ``{device: (now, highest value so far)}``.

        ``readings`` has tuples: torch's name of the device, UUID, bytes now, highest value so far.
        """
        allocated = {}
        for name, uuid, held, most in readings:
            allocated[find_device(name, uuid, self._devices)] = held, most
        return allocated

    def _others(self, at_s: float, process: Process | None, covered: Collection[int], reading: Entry) -> list[Process]:
        """Return the processes that were alive at the time ``at_s`` of a mark, but are missing from the mark's row.

        The row ``reading`` was written by ``process``. ``covered`` contains the ``id`` of each descendant in the row.
        """
        while self._changes and self._changes[0][0] < at_s:
            _, is_end, changed = self._changes.popleft()
            if is_end:
                self._alive.pop(changed.id, None)
            else:
                self._alive[changed.id] = changed
        others = []
        for other in self._alive.values():
            if other is process or other.id in covered:
                continue
            parent = self._table.by_id.get(other.parent)
            if parent is not None and reading.descendants is not None:
                is_covered = parent.id in covered
                if parent is process or (is_covered and reading.listed):
                    continue  # not alive: the reading lists all living children
                if not is_covered and _lived_after(parent, at_s):
                    continue  # not alive: the parent is not in the reading, and so had not begun
            others.append(other)
        return others

    def _with_others(self, others: Sequence[Process], at_s: float, held: int) -> tuple[int, float | None]:
        """Return (memory of the whole tree, change of the other processes' memory since the last sample).

        ``held`` is the memory that the mark's row contains; the memory of ``others`` is added. The change is None if
        unknown.
        """
        number = bisect_left(self._lines, at_s, key=lambda line: line["to_s"])
        line = self._lines[number] if number < len(self._lines) else None
        if len(others) > _MOST_OTHERS or (others and line is not None and line["rss"] is None):
            return max(held, self._sampled(at_s)), None
        changes = 0.0
        for other in others:
            sizes = self._sizes.get(other.id, [])
            place = bisect_left(sizes, (at_s,))
            change: int | None = 0
            sampled_s = sizes[place][0] if place < len(sizes) else None
            if line is not None and line["to_s"] == sampled_s:
                _, size, change = sizes[place]
                held += size
            elif place:
                held += sizes[place - 1][1]
            elif not sizes:  # the process ended before a sample could read the memory
                change = None
            changes += (other.high_water_limit or inf) if change is None else change
        is_triggered = line is not None and line["from_s"] <= at_s and line["to_s"] <= at_s + _LATE_S
        return held, changes if is_triggered or not others else None

    def _sampled(self, at_s: float) -> int:
        """Return RSS of the whole tree in the first sample after a mark; 0 if unknown."""
        number = bisect_left(self._samples.time_s, at_s)
        if "rss" not in self._samples or number == len(self._samples):
            return 0
        sampled = self._samples["rss"][number]
        return 0 if isnan(sampled) else int(sampled)


def take_own(session: Session, log: BinaryIO, name: str, pid: int, profiler: int = 0) -> None:
    """Add the marks of a program that records itself, and of its descendants.

    If ``profiler`` (the number of a profiler) is not 0, marks of other profilers are left out.
    """
    members = {pid, None, *(process.pid for process in session.processes)}
    notes = LogNotes(session)
    entries = notes.operations(read_rows(log, name, session.start), Redaction())
    own = (entry for entry in entries if entry.pid in members and (entry.start_s or 0) >= 0)
    _take_marks(session, _without_others(own, pid, profiler) if profiler else own, notes, TreeReader(session))


def _without_others(entries: Iterable[Entry], pid: int, profiler: int) -> Iterator[Entry]:
    """Yield all entries except marks of other profilers."""
    around: dict[Key, Number] = {}
    """The outer operation of each operation that is left out: ``{(pid, op): outer op}``."""
    for entry in entries:
        outer = entry.within and around.get((entry.pid, entry.within), entry.within)
        if entry.profiler is None or (entry.pid, entry.profiler) == (pid, profiler):
            yield entry if outer == entry.within else replace(entry, within=outer)
        elif entry.event == BEGIN:
            around[entry.pid, entry.op] = outer


def _within(marks: Iterable[Mark], session: Session) -> list[Mark]:
    """Return the marks that overlap the recording. A start before the recording is set to 0.

    A mark from a line of the command's output may start after the recording, because the line was read late. Such a
    mark is kept, with the end of the recording as start: the command wrote the line before the end.
    """
    inside = []
    for mark in marks:
        has_begun = mark.start_s <= session.duration_s or mark.source == OUTPUT
        if has_begun and (mark.end_s is None or mark.end_s >= 0):
            start_s = min(max(0.0, mark.start_s), session.duration_s)
            inside.append(replace(mark, start_s=start_s))
    return inside


def read_sidecar(path: Path, session: Session) -> list[Mark]:
    """Return the operations of a sidecar file.

    Raises NncfToolsError with the file, the row and the expected content.
    """
    entries = sorted(_entries_of(path, session.start), key=lambda entry: entry.start_s or 0.0)
    marks = resolve(entries, session)
    for mark in marks:
        if not 0 <= mark.start_s <= session.duration_s:
            raise NncfToolsError(
                f"{path}: {mark.name!r} begins at {mark.start_s:,.3f} s, which is not within the recording "
                f"({seconds_text(session.duration_s)})"
            )
    return marks


def _entries_of(path: Path, start: Start) -> Iterator[Entry]:
    for row in read_rows(io.BytesIO(intake.read_file(path)), path.name, start):
        if row.entry is None:
            raise NncfToolsError(f"{path}: {row.position}: {row.problem}")
        entry = row.entry
        if isinstance(entry.arguments, list):
            entry = _hide_secrets(entry, Redaction())
        if entry.is_operation:
            yield replace(entry, source=entry.source or "sidecar")


def add_enclosing(session: Session, outer: Sequence[Mark]) -> None:
    """Add the operations ``outer`` to a session.

    If an operation of the session begins within an added operation, the operation of the session becomes nested in the
    added operation.
    """
    outer = renumber_marks(outer, session.marks)
    inner = []
    around: list[tuple[int, float]] = []
    waiting = deque(add_ends(outer, session))
    for mark in in_order(session.marks):
        while waiting and waiting[0][0].start_s <= mark.start_s:
            enclosing, end_s = waiting.popleft()
            heapq.heappush(around, (-enclosing.depth - 1, end_s))
        while around and around[0][1] <= mark.start_s:  # this operation ends before all later marks
            heapq.heappop(around)
        added = -around[0][0] if around else 0
        inner.append(replace(mark, depth=mark.depth + added))
    session.marks = in_order([*outer, *inner])


def write_sidecar(marks: Iterable[Mark], path: Path) -> None:
    """Write operations as a sidecar that is easy to edit, with an operation in each line. Raises OSError."""
    always = ("name", "start_s", "end_s", "depth", "pid")
    plain = msgspec.structs.asdict(Mark(name="", start_s=0.0))
    lines = []
    for mark in marks:
        fields = msgspec.structs.asdict(mark).items()
        chosen = {key: value for key, value in fields if key in always or value != plain[key]}
        lines.append(msgspec.json.encode(chosen).decode())
    write_file(path, ("[\n" + ",\n".join(lines) + "\n]\n" if lines else "[]\n").encode())


_MOST_FILES = 10_000
"""If a folder has more files, the size of the folder is unknown."""
_WEIGHTS = {".xml": ("{stem}.bin",), ".onnx": ("{stem}.onnx_data", "{stem}.onnx.data")}
"""``{ending of a model's file name: possible file names of the weights}``. ``{stem}`` is the model's file name without
the ending.
"""


def take_sizes(marks: Iterable[Mark]) -> None:
    """Set the size of each saved file; the size of a missing file stays None."""
    size = functools.cache(measure_size)
    for mark in marks:
        if mark.saved is not None:
            mark.saved_size = size(Path(mark.saved))


def measure_size(path: Path) -> int | None:
    """Return the bytes of a file, or of all files in a folder; None if unknown.

    The size of a model's file includes the file with the weights.
    """
    try:
        if not path.is_dir():
            size = path.stat().st_size
            for name in _WEIGHTS.get(path.suffix, ()):
                weights = path.with_name(name.format(stem=path.stem))
                if weights.exists():
                    size += weights.stat().st_size
            return size
        sizes: list[int] = []
        for folder, _, names in os.walk(path):
            if len(sizes) + len(names) > _MOST_FILES:
                return None
            sizes += [Path(folder, name).lstat().st_size for name in names]
        return sum(sizes)
    except (OSError, ValueError):
        return None
