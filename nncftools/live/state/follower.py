"""Reads a journal and its marks log while others append to them; nothing is parsed twice."""

from __future__ import annotations

import io
import shlex
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from msgspec.structs import replace

from nncftools.errors import SessionFileError
from nncftools.journal import reading
from nncftools.journal.reading import Lines, Tail
from nncftools.live.state.growth import GrowthLog
from nncftools.live.state.operations import LiveOperations
from nncftools.live.state.run import Run
from nncftools.marks.calls import MARKS_ENDING
from nncftools.marks.entries import rows as entries_of
from nncftools.redaction import Redaction
from nncftools.session.model import Exit, MemoryLimit, Process, Start
from nncftools.session.peaks import mark_of_tree
from nncftools.session.recording import host_and_rank
from nncftools.units import printable

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterable

    from typing_extensions import Self

    from nncftools.journal.lines import Line


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
