"""Adds marks and saved models to a session: from the log of a recording, and from sidecar files.

What processes read of their own high-water mark when they marked operations is exact, and narrows the peak's moment.
Here are also the sizes of what marked calls have saved, and why a recording has no marks, as far as that is known.
"""

from __future__ import annotations

import functools
import heapq
import io
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
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
from nncftools.reading_marks.entries import BEGIN, EXEC, LOST, Entry, Row, rows
from nncftools.reading_marks.resolving import resolve
from nncftools.session.model import UNFINISHED, Failure, Mark, SavedModel, Start
from nncftools.session.nesting import in_order, renumbered, with_ends
from nncftools.units import seconds_text, shortened

_ARGUMENT, _ARGUMENTS = 40, 120
"""The longest argument, and the longest text of all arguments of a call."""
_MOST = 1_000
"""Models and failures that are kept."""


def take_log(session: Session, log: BinaryIO, name: str, redaction: Redaction, path: Path | None = None) -> LogNotes:
    """Add the marks and saved models of a marks log to ``session``; return what it says besides.

    Secrets in arguments and paths are hidden. Unreadable lines are left out and counted in the session's warnings, and
    so are lines that are missing. Programs wrote to ``path``, if it is given: another file may be there by now.
    """
    notes = LogNotes(session)
    notes.is_gone = path is not None and _is_gone(log, path)
    # Some file systems do not know their size.
    is_full = path is not None and (room := os.fstatvfs(log.fileno())).f_bavail == 0 < room.f_blocks
    _take_marks(session, notes.operations(rows(log, name, session.start), redaction), notes, is_cut=is_full)
    session.warnings += notes.warnings
    if is_full:
        session.warnings.append("the file system of the marks log is full: marks may be missing")
    if notes.is_gone:
        session.warnings.append("the marks log was removed, replaced or emptied: marks are missing")
    if notes.wrong > 0:
        count = "1 mark" if notes.wrong == 1 else f"{notes.wrong:,} marks"
        session.warnings.append(f"{count} could not be read, the first is {notes.first_wrong} of {name}")
    session.models = list(notes.models.values())
    session.failures = notes.failures
    return notes


def _take_marks(session: Session, entries: Iterable[Entry], notes: LogNotes, *, is_cut: bool = False) -> None:
    """Add the operations of a log, and what was read at their marks."""
    marks = resolve(entries, session, notes.begun_s, is_cut=is_cut or notes.is_gone)
    session.marks = _within(marks, session)
    notes.outside = len(marks) - len(session.marks)
    if notes.missing > 0:
        count = "1 mark is" if notes.missing == 1 else f"{notes.missing:,} marks are"
        session.warnings.append(f"{count} missing: for a time, the marks log could not be written (a full disk?)")
    narrow(session)
    read = (own for mark in session.marks for own in (mark.own_start, mark.own_end))
    if any(own is not None and own.devices for own in read):
        from nncftools.session.nesting import take_allocated

        take_allocated(session)


def _is_gone(log: BinaryIO, path: Path) -> bool:
    try:
        return os.pread(log.fileno(), 1, 0) != b" " or not os.path.samestat(os.fstat(log.fileno()), path.lstat())
    except OSError:
        return True


class LogNotes:
    """What a marks log says besides operations."""

    def __init__(self, session: Session) -> None:
        self._devices = session.devices
        self._watched = [] if session.snapshots is None else session.snapshots.processes
        self.programs = 0
        """How many Pythons the hook ran in."""
        self.begun_s: dict[int | None, list[float]] = {}
        """By process: when programs in it wrote their first lines."""
        self._programs: set[int | None] = {None}
        """Their numbers, and None for lines without. A forked process has the number of its parent."""
        self.outside = 0
        """How many operations were not between start and end of the recording."""
        self.warnings: dict[str, None] = {}
        self.models: dict[str, SavedModel] = {}
        """By path: of models saved repeatedly under one path, the last state."""
        self.failures: list[Failure] = []
        self.is_gone = False
        """Whether the log was removed or emptied, or another file is in its place."""
        self.missing = 0
        """How many lines programs could not write."""
        self.wrong = 0
        self.first_wrong = ""

    def operations(self, log: Iterable[Row], redaction: Redaction) -> Iterator[Entry]:
        """Yield the operations and take note of the rest."""
        for row in log:
            if row.entry is None:
                self.first_wrong = self.first_wrong or f"{row.position} ({row.problem})"
                self.wrong += 1
                continue
            entry = _shown(row.entry, redaction)
            self.programs += entry.python is not None and not entry.ended
            for watched in self._watched if entry.ended else ():
                if watched.pid == entry.pid:
                    watched.take_end_of_code(entry.start_s or 0.0, entry.rss or 0)
            if entry.program not in self._programs and len(self._programs) <= LIMITS.marks_of_recording:
                self._programs.add(entry.program)
                self.begun_s.setdefault(entry.pid, []).append(entry.start_s or 0.0)
                yield Entry(event=EXEC, pid=entry.pid, start_s=entry.start_s, error=UNFINISHED)
            if entry.warning is not None and len(self.warnings) < LIMITS.warnings:
                self.warnings[entry.warning] = None
            if entry.failure is not None and entry.pid is not None and len(self.failures) < _MOST:
                failure = Failure(
                    pid=entry.pid,
                    at_s=entry.start_s or 0.0,
                    error=entry.failure,
                    cause=entry.cause,
                    device=self._device_of(entry),
                    fatal=entry.fatal,
                )
                self.failures.append(failure)
            if entry.rt_info and entry.saved and len(self.models) < _MOST:
                facts = dict(_facts_of(entry.rt_info))
                if facts and entry.start_s is not None:
                    self.models[entry.saved] = SavedModel(path=entry.saved, saved_s=entry.start_s, facts=facts)
            if entry.is_operation:
                yield entry
            elif entry.lost is not None:
                self.missing += entry.lost
                self.wrong -= entry.cut  # these lines came again
                if entry.lost:
                    yield replace(entry, event=LOST)

    def _device_of(self, entry: Entry) -> str | None:
        """Return the device of a failure as torch calls it; None if torch names none of several."""
        if entry.device is None:
            return None
        from nncftools.session.nesting import find_device

        uuids = {name: uuid for name, uuid, *_ in entry.devices or ()}
        device = find_device(entry.device, uuids.get(entry.device, ""), self._devices)
        return None if device.isalpha() else device


def _shown(entry: Entry, redaction: Redaction) -> Entry:
    """Return an entry whose arguments and path have no secrets; arguments are shortened after that, never before."""
    if entry.arguments is None and entry.saved is None:
        return entry
    each = [entry.arguments] if isinstance(entry.arguments, str) else entry.arguments or []
    text = ", ".join(shortened(redaction.text(argument), _ARGUMENT) for argument in each)
    saved = None if entry.saved is None else redaction.text(entry.saved)
    return replace(entry, arguments=shortened(text, _ARGUMENTS) or None, saved=saved)


def _facts_of(xml: str) -> Iterator[tuple[str, str]]:
    """Yield path and value of each leaf of ``rt_info``: ``nncf/weight_compression/mode``, ``int4_sym``."""
    if len(xml) > 1 << 16:  # the hook reads no more of a model's file
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


def take_own(session: Session, log: BinaryIO, name: str, pid: int, profiler: int = 0) -> None:
    """Add the marks of a program that records itself, and of its descendants.

    With ``profiler``, a profiler of the program, those of other profilers are left out.
    """
    members = {pid, None, *(process.pid for process in session.processes)}
    notes = LogNotes(session)
    entries = notes.operations(rows(log, name, session.start), Redaction())
    own = (entry for entry in entries if entry.pid in members and (entry.start_s or 0) >= 0)
    mine = _without_others(own, (pid, profiler)) if profiler else own
    _take_marks(session, mine, notes)


def _without_others(entries: Iterable[Entry], profiler: tuple[int, int]) -> Iterator[Entry]:
    """Yield what a profiler of a process marked, and what none did."""
    around: dict[tuple[int | None, int | None], int | None] = {}
    """By process and number of an operation of another profiler: what is around it."""
    for entry in entries:
        outer = entry.within and around.get((entry.pid, entry.within), entry.within)
        if entry.profiler is None or (entry.pid, entry.profiler) == profiler:
            yield entry if outer == entry.within else replace(entry, within=outer)
        elif entry.event == BEGIN:
            around[entry.pid, entry.op] = outer


def _within(marks: Iterable[Mark], session: Session) -> list[Mark]:
    """Return the marks that overlap the recording; a start before the recording is clipped to 0.

    A line of output was written before the command ended, even when it was read later.
    """
    return [
        replace(mark, start_s=min(max(0.0, mark.start_s), session.duration_s))
        for mark in marks
        if (mark.start_s <= session.duration_s or mark.source == OUTPUT) and (mark.end_s is None or mark.end_s >= 0)
    ]


def read_sidecar(path: Path, session: Session) -> list[Mark]:
    """Return the operations of a sidecar file.

    Raises NncfToolsError, which names the file, the row and what was expected.
    """
    rows_in_order = sorted(_entries_of(path, session.start), key=lambda entry: entry.start_s or 0.0)
    marks = resolve(rows_in_order, session)
    for mark in marks:
        if not 0 <= mark.start_s <= session.duration_s:
            raise NncfToolsError(
                f"{path}: {mark.name!r} begins at {mark.start_s:,.3f} s, which is not within the recording "
                f"({seconds_text(session.duration_s)})"
            )
    return marks


def _entries_of(path: Path, start: Start) -> Iterator[Entry]:
    content = io.BytesIO(intake.whole(path))
    for row in rows(content, path.name, start):
        if row.entry is None:
            raise NncfToolsError(f"{path}: {row.position}: {row.problem}")
        entry = _shown(row.entry, Redaction()) if isinstance(row.entry.arguments, list) else row.entry
        if entry.is_operation:
            yield replace(entry, source=entry.source or "sidecar")


def add_enclosing(session: Session, outer: Sequence[Mark]) -> None:
    """Add operations to a session; existing operations that start within one become nested in it."""
    outer = renumbered(outer, session.marks)
    inner = []
    around: list[tuple[int, float]] = []
    waiting = deque(with_ends(outer, session))
    for mark in in_order(session.marks):
        while waiting and waiting[0][0].start_s <= mark.start_s:
            enclosing, end_s = waiting.popleft()
            heapq.heappush(around, (-enclosing.depth - 1, end_s))
        while around and around[0][1] <= mark.start_s:  # over, and with it all that it hides: later marks begin later
            heapq.heappop(around)
        inner.append(replace(mark, depth=mark.depth + (-around[0][0] if around else 0)))
    session.marks = in_order([*outer, *inner])


def write_sidecar(marks: Iterable[Mark], path: Path) -> None:
    """Write operations as a sidecar, one per line, so that they are easy to edit. Raises OSError."""
    always = ("name", "start_s", "end_s", "depth", "pid")
    plain = msgspec.structs.asdict(Mark(name="", start_s=0.0))
    fields = (msgspec.structs.asdict(mark).items() for mark in marks)
    kept = ({key: value for key, value in of_mark if key in always or value != plain[key]} for of_mark in fields)
    lines = [msgspec.json.encode(mark).decode() for mark in kept]
    write_file(path, ("[\n" + ",\n".join(lines) + "\n]\n" if lines else "[]\n").encode())


_MOST_FILES = 10_000
"""In one folder; of a larger one the size stays unknown."""
_WEIGHTS = {".xml": ("{stem}.bin",), ".onnx": ("{stem}.onnx_data", "{stem}.onnx.data")}
"""Where a model's weights are besides the file that was named, by its ending."""


def take_sizes(marks: Iterable[Mark]) -> None:
    """Set the size of what each mark has saved; it stays None where the file is gone."""
    size = functools.cache(size_of)
    for mark in marks:
        if mark.saved is not None:
            mark.saved_size = size(Path(mark.saved))


def size_of(path: Path) -> int | None:
    """Return the bytes of a file with the weights beside it, or of all files in a folder; None for unknown."""
    try:
        if path.is_dir():
            sizes: list[int] = []
            for folder, _, names in os.walk(path):
                if len(sizes) + len(names) > _MOST_FILES:
                    return None
                sizes += [Path(folder, name).lstat().st_size for name in names]
            return sum(sizes)
        beside = [path.with_name(name.format(stem=path.stem)) for name in _WEIGHTS.get(path.suffix, ())]
        return sum(file.stat().st_size for file in (path, *(file for file in beside if file.exists())))
    except (OSError, ValueError):
        return None
