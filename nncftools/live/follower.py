"""Reads a journal and its marks log while others append to them; nothing is parsed twice.

Where the program stood when memory last grew, from the log of the helper process while it is written.

The helper looks at a process only when it has grown. So the last look is that of the process that grew last.

Replays a recorded session as if it were running.
"""

from __future__ import annotations

import io
import pathlib
import shlex
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from nncftools.analysis.frames import best_frame
from nncftools.errors import SessionFileError
from nncftools.journal import reading
from nncftools.journal.lines import Line, Look, SnapshotLine
from nncftools.journal.reading import Lines, Tail
from nncftools.live.run import LiveOperations, LiveProcess, RecordedOperations, Run, SampledPeak
from nncftools.marks.calls import MARKS_ENDING
from nncftools.marks.entries import rows as entries_of
from nncftools.redaction import Redaction
from nncftools.render.view import command_text
from nncftools.session.model import Exit, Frame, MemoryLimit, Process, Start
from nncftools.session.peak_place import span_of
from nncftools.session.peaks import mark_of_tree
from nncftools.session.recording import host_and_rank
from nncftools.session.session import Session
from nncftools.units import printable

if TYPE_CHECKING:
    from typing_extensions import Self


_FRAME, _STACK, _LOOK = b'{"frame"', b'{"stack"', b'{"look"'
_MOST = 50_000
"""Frames, stacks and processes; with more, the view names no new code: so many take some 30 MiB."""
_WRONG = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, LookupError, TypeError, ValueError)


class Growth(NamedTuple):
    """The frame that tells most about where a process grew."""

    frame: Frame
    at_ns: int
    """When it was seen, in CLOCK_MONOTONIC."""


class GrowthLog:
    """Takes the lines of the log in their order."""

    def __init__(self, redaction: Redaction) -> None:
        """Hide secrets in file names."""
        self._redaction = redaction
        self._frames: list[Frame] = []
        self._stacks: list[list[int]] = []
        self._stood: dict[int, dict[int, int]] = {}
        """By process and thread: the stack at the last look."""
        self._is_lost = False
        self.last: Growth | None = None
        """None until growth was seen."""

    def take(self, data: bytes) -> None:
        """Take complete lines; after a damaged frame or stack, nothing more is taken."""
        for text in data.split(b"\n"):
            if self._is_lost or not text.startswith((_FRAME, _STACK, _LOOK)):
                continue
            try:
                self._take(msgspec.json.decode(text, type=SnapshotLine))
            except _WRONG:
                self._is_lost = not text.startswith(_LOOK)

    def _take(self, line: SnapshotLine) -> None:
        if "frame" in line:
            _, function, file, number = line["frame"]
            self._frames.append(Frame(function, self._redaction.text(file), number))
        elif "stack" in line:
            self._stacks.append(line["stack"][1])
        elif "look" in line:
            self._take_look(line["look"])
        self._is_lost = max(len(self._frames), len(self._stacks), len(self._stood)) > _MOST

    def _take_look(self, line: Look) -> None:
        stood = self._stood.setdefault(line["process"], {})
        before = dict(stood)
        for thread, stack in line["stacks"].items():
            if stack is None:
                stood.pop(thread, None)
            else:
                stood[thread] = stack
        faults = line["faults"]
        busiest = max(stood, key=lambda one: faults.get(one, 0), default=None)
        if busiest is None or (len(stood) > 1 and not faults.get(busiest)):
            return
        stack = stood[busiest]
        if self._has_returned(before.get(busiest), stack):
            stack = before[busiest]
        frame = best_frame([self._frames[place] for place in self._stacks[stack]])
        if frame is not None and (self.last is None or line["t_ns"] >= self.last.at_ns):
            self.last = Growth(frame, line["t_ns"])

    def _has_returned(self, before: int | None, now: int) -> bool:
        """Return whether the functions of a stack had called others in the one before: those made memory grow."""
        if before is None:
            return False
        called, left = ([self._frames[place].code for place in self._stacks[stack]] for stack in (before, now))
        return called[: len(left)] == left


_OF_MARK = ("start_s", "end_s", "high_water_limit")


class Follower:
    """The state of a run according to its journal, up to where it was last read."""

    def __init__(self, journal: pathlib.Path, descriptor: int | None = None) -> None:
        """Read the first line; with ``descriptor``, from the very file that it has open.

        Raises SessionFileError when it is not the header of a journal, OSError.
        """
        self._journal = reading.reader(journal, descriptor)
        self._marks_path = journal.with_name(journal.name.removesuffix(reading.ENDING) + MARKS_ENDING)
        self._marks: Lines | None = None
        self._snapshots_path = reading.snapshots_beside(journal)
        self._snapshots: Lines | None = None
        self._start: Start | None = None
        self._operations = LiveOperations()
        self._command = Process(id=0)
        self.error: str | None = None
        """Why the command was never started."""
        try:
            self._tail = Tail(self._journal, str(journal))
            self._redaction = Redaction(self._tail.plan.redact)
            self._growth = GrowthLog(self._redaction)
            self.run = _run(self._tail, self._redaction, str(journal), self._operations)
        except SessionFileError:
            self.__exit__()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._journal.close()
        for log in (self._marks, self._snapshots):
            if log is not None:
                log.file.close()

    def read(self) -> None:
        """Read what was appended since the last time."""
        for chunk in self._tail.read():
            if self.run.columns != self._tail.plan.columns:
                self.run.take_columns(self._tail.plan.columns)
            self._take_limits(chunk.lines)
            if chunk.samples:
                values = np.array(chunk.samples, dtype=np.float64)
                self.run.take_rows(values[:, 0], values[:, 1:])
            for line in chunk.lines:
                self._take(line)
            for _, each in chunk.each[-1:]:
                for number, rss in each.items():
                    if number in self.run.processes:
                        self.run.processes[number].rss = rss
        self._read_marks()
        self._read_snapshots()

    def recorder_lives(self) -> bool:
        """Return whether the sampler still holds its lock on the journal."""
        return reading.is_held(self._journal.fileno())

    def _take_limits(self, lines: Iterable[Line]) -> None:
        """Take limits, which decide about the samples beside them: what will be exhausted first."""
        for line in lines:
            if "memory_limit" in line:
                self.run.limits.append(msgspec.convert(line["memory_limit"], MemoryLimit))

    def _take(self, line: Line) -> None:
        if "start" in line:
            self._start = msgspec.convert(line["start"], Start)
        if "process" in line:
            fields = line["process"]
            if "command" in fields:
                fields["command"] = self._redaction.words(fields["command"])
            self.run.take_process(fields)
            if fields["id"] == 0:
                self._command = replace(
                    self._command, **{name: value for name, value in fields.items() if name in _OF_MARK}
                )
        if "rise" in line:
            rise = line["rise"]
            self.run.take_rise(rise["high_water_mark"] + rise["others"], rise["from_s"], rise["to_s"])
        if "end" in line:
            self._take_command_mark(line["end"].get("sampler", {}).get("peak_rss") or 0)
            self.run.ended = True
            self.run.exit = msgspec.convert(line["end"].get("exit"), Exit | None)
            self.error = line["end"].get("error")

    def _take_command_mark(self, floor: int) -> None:
        """Take what the command's reaping proves: the largest mark of it and of all descendants that it waited for."""
        size = mark_of_tree(self._command, floor)
        if size and "rss" in self.run.columns:
            self.run.take_rise(size, self._command.start_s or 0.0, self._command.end_s or self.run.latest_s)

    def _read_marks(self) -> None:
        if self._start is None:
            return
        self._marks = self._marks or _log(self._marks_path)
        while self._marks is not None and (data := self._marks.next()):
            self._take_marks(data, self._start)

    def _take_marks(self, data: bytes, start: Start) -> None:
        for row in entries_of(io.BytesIO(data), MARKS_ENDING, start):
            if row.entry is not None and row.entry.is_operation:
                self._operations.take(row.entry)

    def _read_snapshots(self) -> None:
        """Read where memory grew; the helper's log may be absent, and names nothing of a run that is over."""
        if self._start is None or self._start.monotonic_ns is None:
            return
        self._snapshots = self._snapshots or _log(self._snapshots_path)
        while self._snapshots is not None and (data := self._snapshots.next()):
            self._growth.take(data)
        last = self._growth.last
        if last is not None:
            self.run.grown = last.frame, (last.at_ns - self._start.monotonic_ns) / 1e9


def _log(path: pathlib.Path) -> Lines | None:
    """Return a log beside the journal; None when it is not there yet."""
    try:
        return Lines(reading.reader(path))
    except OSError:
        return None


def _run(tail: Tail, redaction: Redaction, origin: str, operations: LiveOperations) -> Run:
    """Return the run that a journal's first line describes. Raises SessionFileError."""
    header, plan = tail.header, tail.plan
    command = redaction.words(header.get("command", []))
    text = printable(shlex.join(command)) or printable(header.get("name", ""))
    return Run(
        command=text or f"process {plan.pid}",
        columns=list(plan.columns),
        interval_s=plan.interval_s,
        host=host_and_rank(header, origin)[0],
        attached_to=plan.pid,
        operations=operations,
        max_memory=None if plan.limit is None else plan.limit["rss"],
    )


class Replay:
    """A session up to a moment that only moves forward."""

    def __init__(self, session: Session) -> None:
        """Begin at the session's start."""
        self._session = session
        samples, sampler = session.samples, session.sampler
        self._time_s = np.asarray(samples.time_s)
        self._columns = [np.asarray(samples[name]) for name in samples.metrics]
        self._place = 0
        rises = (rise for process in session.processes for rise in process.rises)
        self._rises = sorted(rises, key=lambda rise: rise.to_s, reverse=True)
        self._peaks = sorted(_peaks(session), key=lambda reached: reached[0], reverse=True)
        intervals = filter(None, (sampler.achieved_interval_s, sampler.interval_s, sampler.merged_s))
        self.run = Run(
            command=command_text(session),
            columns=samples.metrics,
            interval_s=max(intervals, default=0.1),
            host=session.host,
            attached_to=session.attached_to,
            operations=RecordedOperations(session),
            limits=session.memory_limits,
            max_memory=None if session.limit_reached is None else session.limit_reached.limit,
        )

    def advance(self, now_s: float) -> None:
        """Take what happened up to ``now_s`` seconds from the start."""
        place = max(self._place, int(np.searchsorted(self._time_s, now_s, side="right")))
        new = slice(self._place, place)
        self.run.take_rows(self._time_s[new], np.stack([column[new] for column in self._columns], axis=1))
        self._place = place
        while self._rises and self._rises[-1].to_s <= now_s:
            rise = self._rises.pop()
            self.run.take_rise(rise.high_water_mark + rise.others, rise.from_s, rise.to_s)
        while self._peaks and self._peaks[-1][0] <= now_s:
            self.run.take_peak(*self._peaks.pop()[1:])
        self.run.processes = {
            process.id: LiveProcess(process.pid, process.name, _rss(process, now_s), process.command)
            for process in self._session.processes
            if (process.start_s or 0.0) <= now_s < (process.end_s if process.end_s is not None else np.inf)
        }
        if now_s >= self._session.duration_s:
            self.run.ended = True
            self.run.exit = self._session.exit


def _peaks(session: Session) -> Iterator[tuple[float, str, SampledPeak]]:
    """Yield when the peak of each metric was reached, and the peak as every report names it."""
    place = session.peak_place
    for name, peak in session.peaks.items():
        from_s, to_s = span_of(peak) or (session.duration_s, session.duration_s)
        if peak.low is not None:
            path = None if name != "rss" or place is None else place.path
            operation = None if path is None else path[0].name if path else ""
            yield to_s, name, SampledPeak(peak.low, (from_s + to_s) / 2, peak.low, operation)


def _rss(process: Process, now_s: float) -> int | None:
    """Return what a process held, if its RSS over time was kept."""
    if process.series is None:
        return None
    place = bisect_right(process.series.time_s, now_s) - 1
    return process.series.rss[place] if place >= 0 else None
