"""The two sources of a live view: a recording that is still running, and the replay of a session.

A ``Follower`` reads three files while other processes append to them: the journal (samples), the marks log (operations)
and the log of the helper process that reads stacks. Every line is parsed only once. The helper reads stacks only of
growing processes, so the newest stacks belong to the process that grew last.
"""

from __future__ import annotations

import io
import pathlib
import shlex
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np

from nncftools.analysis.code_places import best_frame
from nncftools.analysis.peaks import PeakCandidate, PeakSoFar, mark_of_tree, rise_candidate
from nncftools.analysis.session import Session
from nncftools.errors import SessionFileError
from nncftools.intake import Redaction
from nncftools.journal import reading
from nncftools.journal.reading import Lines
from nncftools.live.run import LiveOperations, LiveProcess, Run
from nncftools.metrics import DEVICE_MEMORY, name_of
from nncftools.reading_marks.entries import read_rows as entries_of
from nncftools.render.terminal_plot import Span
from nncftools.render.view import command_text
from nncftools.session.model import Exit, Frame, Process, Start
from nncftools.session.nesting import add_ends
from nncftools.session.recording import JournalLine, Recording
from nncftools.session.snapshots import WRONG, LostError, SnapshotLine, Stacks, Window, decode_line
from nncftools.units import printable

_MOST = 50_000
"""Largest number of frames to keep from the log of the helper (the process that reads stacks). The same number limits
the stacks and the processes. The log after the limit is ignored, so that the reader needs at most about 30 MiB."""


_MOVES = 20
"""The keys ``<`` and ``>`` move by the duration of the replay divided by this number."""


class Growth(NamedTuple):
    """The code that ran while a process grew: the most informative frame of the stack."""

    frame: Frame
    at_ns: int
    """Time of the stack in nanoseconds on CLOCK_MONOTONIC."""


_NUMBERED = (b'{"table"', b'{"frame"', b'{"stack"')
"""Beginnings of the lines that give a number to a table, frame or stack. If such a line is damaged, the numbers in the
following lines may refer to wrong frames.
"""
_LINES = (*_NUMBERED, b'{"faults"', b'{"window"')


class GrowthLog:
    """Reads the lines of the helper's log, to find the code that ran when memory last grew."""

    def __init__(self, redaction: Redaction) -> None:
        self._stacks = Stacks(redaction)
        self._faults: dict[int, dict[int, int]] = {}
        """Page faults in the latest log line for each process: ``{process id: {thread ID: number of page faults}}``."""
        self._is_lost = False
        self.last: Growth | None = None
        """The code that ran when memory last grew; None if no growth was seen."""

    def take(self, data: bytes) -> None:
        """Read complete lines. If a line with a frame or stack is damaged, ignore all further lines."""
        for text in data.split(b"\n"):
            if self._is_lost or not text.startswith(_LINES):
                continue
            try:
                self._take(decode_line(text))
            except (LostError, *WRONG):
                self._is_lost = text.startswith(_NUMBERED)

    def _take(self, line: SnapshotLine) -> None:
        stacks = self._stacks
        stacks.take(line)
        if "faults" in line:
            faults = line["faults"]
            self._faults[faults["process"]] = faults["threads"]
        if "window" in line:
            self._take_window(line["window"])
        size = max(len(stacks.frames), len(stacks.stacks), len(self._faults))
        self._is_lost = size > _MOST

    def _take_window(self, line: Window) -> None:
        """Read the last stack of the thread with the most page faults.

        If there are several threads and none had page faults, read nothing.
        """
        threads = dict[int, int]()
        for thread, changes in line["threads"].items():
            for change in changes:
                if change.stack is not None:
                    threads[thread] = change.stack
        faults = self._faults.get(line["process"], {})
        busiest = max(threads, key=lambda thread: faults.get(thread, 0), default=None)
        if busiest is None or (len(threads) > 1 and not faults.get(busiest)):
            return
        numbers = self._stacks.stacks[threads[busiest]]
        frame = best_frame([self._stacks.frames[number] for number in numbers])
        at_ns = line["t_ns"][-1]
        if frame is not None and (self.last is None or at_ns >= self.last.at_ns):
            self.last = Growth(frame, at_ns)


class Follower:
    """Reads the journal of a recording that is still running. ``run`` is the state of the run at the last line read."""

    def __init__(self, journal: pathlib.Path, descriptor: int | None = None) -> None:
        """Read the first line of a journal. If ``descriptor`` is given, the journal is already open as this descriptor.

        Raises OSError if the journal cannot be read, and SessionFileError if the first line is not the header of a
        journal.
        """
        self._journal = reading.reader(journal, descriptor)
        stem = journal.name.removesuffix(reading.ENDING)
        self._paths = {
            reading.MARKS_ENDING: journal.with_name(stem + reading.MARKS_ENDING),
            reading.SNAPSHOTS_ENDING: reading.snapshots_beside(journal),
        }
        self._logs: dict[str, Lines] = {}
        self._command = Process(id=0)
        try:
            self._recording = Recording(self._journal, str(journal))
        except SessionFileError:
            self.__exit__()
            raise
        recording = self._recording
        self._growth = GrowthLog(recording.redaction)
        self._operations = LiveOperations()
        self._readings: dict[str, float | None] = {}
        """The latest values of devices since the previous sample: ``{column: value}``."""
        plan = recording.plan
        command = shlex.join(recording.command) or recording.header.get("name", "")
        self.run = Run(
            command=printable(command) or f"process {plan.pid}",
            columns=list(plan.columns),
            interval_s=plan.interval_s,
            host=recording.host,
            attached_to=plan.pid,
            limits=recording.limits,
            max_memory=None if plan.limit is None else plan.limit["rss"],
        )

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *_: object) -> None:
        self._journal.close()
        for log in self._logs.values():
            log.file.close()

    @property
    def error(self) -> str | None:
        """Why the command was not started; None if the command was started, or if nothing is known yet."""
        return None if self._recording.end is None else self._recording.end.get("error")

    def read(self) -> None:
        """Read the lines that were appended since the last call, and update ``run``."""
        run = self.run
        for chunk in self._recording.read():
            columns = self._recording.plan.columns
            width = len(columns)
            if run.columns[:width] != columns:
                run.take_columns(list(columns))
            for line in chunk.lines:
                self._take(line)
            if chunk.samples:
                samples = np.array(chunk.samples, dtype=np.float64)
                of_devices = run.columns[width:]
                further = np.full((len(samples), len(of_devices)), np.nan)
                further[-1] = [self._readings.pop(name, None) for name in of_devices]
                run.take_samples(np.hstack([samples, further]))
            for _, each in chunk.each[-1:]:
                for number, rss in each.items():
                    if number in run.processes:
                        run.processes[number].rss = rss
        if self._recording.start is not None:
            self._read_logs(msgspec.convert(self._recording.start, Start))
        self.run.operations = self._operations.spans()

    def recorder_lives(self) -> bool:
        """Return whether the sampler is still running. A running sampler keeps the journal locked."""
        return reading.is_locked(self._journal.fileno())

    def step(self, _passed_s: float) -> bool:
        """Read new lines; return whether there may be more lines later."""
        lives = self.recorder_lives()
        self.read()
        return lives and not self.run.ended

    def _take(self, line: JournalLine) -> None:
        run = self.run
        if "process" in line:
            self._take_process(line["process"])
        if "exec" in line:
            self._end_operations(line["exec"]["id"], line["exec"]["to_s"])
        if "rise" in line:
            run.reach("rss", rise_candidate(line["rise"], line["rise"].id))
        if "devices" in line:
            self._readings |= line["devices"]["values"]
            known = filter(self._readings.get, self._readings)
            new = [name for name in known if name not in run.columns]
            if new and DEVICE_MEMORY in map(name_of, (*new, *run.columns)):
                run.add_columns(new)
        if "end" in line:
            # the end shows the largest high-water mark of the command and of descendants that were waited for
            end = line["end"]
            peak_rss = end.get("sampler", {}).get("peak_rss") or 0
            size = mark_of_tree(self._command, peak_rss)
            if size and "rss" in run.columns:
                run.reach("rss", PeakCandidate(size, size, self._command.start_s, self._command.end_s))
            run.ended = True
            run.exit = msgspec.convert(end.get("exit"), Exit | None)

    def _take_process(self, fields: Mapping[str, Any]) -> None:
        """Store facts of a process; drop the process if it has ended.

        A line with a high-water mark does not say when memory rose. A rise or a sample shows the time of almost every
        mark, and then counts as the peak, because the peak has the earliest known time.
        """
        run = self.run
        number = fields["id"]
        end_s = fields.get("end_s")
        process = run.processes.setdefault(number, LiveProcess())
        for name in fields.keys() & {"pid", "name", "command", "start_s"}:
            setattr(process, name, fields[name])
        mark = fields.get("high_water_mark")
        if number == 0:
            for name in fields.keys() & {"start_s", "end_s", "high_water_limit"}:
                setattr(self._command, name, fields[name])
        if mark and "rss" in run.columns and not fields.get("left_out"):
            run.reach("rss", PeakCandidate(mark, mark, process.start_s, end_s))
        if end_s is not None or fields.get("left_out"):
            self._end_operations(number, run.latest_s if end_s is None else end_s)
            del run.processes[number]
            return
        if number == 0 and run.attached_to is not None and process.command:
            run.command = printable(shlex.join(process.command))

    def _end_operations(self, number: int, at_s: float) -> None:
        """End the operations of a process that has ended, or that has started another program."""
        process = self.run.processes.get(number)
        if process is not None and process.pid is not None:
            self._operations.end_process(process.pid, at_s)

    def _read_logs(self, start: Start) -> None:
        for data in self._read_new(reading.MARKS_ENDING):
            for row in entries_of(io.BytesIO(data), reading.MARKS_ENDING, start):
                if row.entry is not None:
                    self._operations.take(row.entry)
        if start.monotonic_ns is not None:
            for data in self._read_new(reading.SNAPSHOTS_ENDING):
                self._growth.take(data)
            last = self._growth.last
            if last is not None:
                self.run.grown = last.frame, (last.at_ns - start.monotonic_ns) / 1e9

    def _read_new(self, ending: str) -> Iterator[bytes]:
        """Yield the new lines of a log since the last call. ``ending`` is the end of the log's file name."""
        if ending not in self._logs:
            try:
                self._logs[ending] = Lines(reading.reader(self._paths[ending]))
            except OSError:
                return
        yield from iter(self._logs[ending].next, b"")


class Replay:
    """Replays a session. ``run`` is the state of the run at the shown time."""

    def __init__(self, session: Session, speed: float = 1.0) -> None:
        """Start at the beginning of the session. Each second, the replay shows ``speed`` seconds of the session."""
        self._session = session
        self._speed = speed
        samples = session.samples
        self._time_s = np.asarray(samples.time_s)
        columns = [samples[name] for name in samples.metrics]
        self._samples = np.column_stack([self._time_s, *columns])
        self._spans = [
            Span(mark.name, mark.start_s, end_s, mark.kind, depth=mark.depth)
            for mark, end_s in add_ends(session.marks, session)
        ]
        self._rises: list[PeakCandidate] = []
        for process in session.processes:
            self._rises += [rise_candidate(rise, process.id) for rise in process.rises]
        self._peaks = list(_peaks(session))
        self._begin()

    def _begin(self) -> None:
        session = self._session
        self._now_s = 0.0
        self._taken = 0
        sampler = session.sampler
        intervals = filter(None, (sampler.achieved_interval_s, sampler.interval_s, sampler.merged_s))
        self.run = Run(
            command=command_text(session),
            columns=session.samples.metrics,
            interval_s=max(intervals, default=0.1),
            host=session.host,
            attached_to=session.attached_to,
            limits=session.memory_limits,
            max_memory=None if session.limit_reached is None else session.limit_reached.limit,
        )

    def step(self, passed_s: float) -> bool:
        """Move on in the replay, ``passed_s`` seconds after the last step; return whether the replay goes on."""
        self._now_s += passed_s * self._speed
        self.advance(self._now_s)
        return not self.run.ended

    def move(self, key: str) -> bool:
        """Move by a twentieth of the run (``<``, ``>``) or to the peak (``g``). For any other key, return False."""
        duration_s = self._session.duration_s
        now_s = min(self._now_s, duration_s)
        moments = {
            "<": max(0.0, now_s - duration_s / _MOVES),
            ">": min(duration_s, now_s + duration_s / _MOVES),
            "g": self._peaks[0][0] if self._peaks else now_s,
        }
        if key not in moments:
            return False
        self._begin()
        self._now_s = moments[key]
        self.advance(self._now_s)
        return True

    def advance(self, now_s: float) -> None:
        """Show the run up to ``now_s`` seconds from the start.

        At the end, show all processes of the run, also ended ones.
        """
        until = int(np.searchsorted(self._time_s, now_s, side="right"))
        self.run.take_samples(self._samples[self._taken : until])
        self._taken = max(self._taken, until)
        for rise in self._rises:
            if rise.to_s is not None and rise.to_s <= now_s:
                self.run.reach("rss", rise)
        for to_s, name, peak in self._peaks:
            if to_s <= now_s:
                self.run.peaks[name] = peak
        spans = [span for span in self._spans if span.start_s <= now_s]
        self.run.operations = [span.up_to(now_s) for span in spans]
        if now_s >= self._session.duration_s:
            self.run.ended = True
            self.run.exit = self._session.exit
        self.run.processes = {}
        for process in self._session.processes:
            end_s = np.inf if process.end_s is None else process.end_s
            is_alive = (process.start_s or 0.0) <= now_s < end_s
            if is_alive or self.run.ended:
                self.run.processes[process.id] = LiveProcess(
                    process.pid,
                    process.name,
                    rss=_find_rss(process, now_s) if is_alive else None,
                    command=process.command,
                    most=process.most_memory or None,
                )


def _find_rss(process: Process, now_s: float) -> int | None:
    series = process.series
    if series is None or not series.time_s or now_s < series.time_s[0]:
        return None
    return series.rss[bisect_right(series.time_s, now_s) - 1]


def _peaks(session: Session) -> Iterator[tuple[float, str, PeakSoFar]]:
    """Yield (time, metric, peak) for each metric, RSS first. These are the same peaks as in reports."""
    peak_place = session.peak_place
    for name, peak in session.peaks.items():
        from_s, to_s = peak.span_s or (session.duration_s, session.duration_s)
        if peak.low is not None:
            operation = None
            if name == "rss" and peak_place is not None:
                path = peak_place.path
                operation = path[0].name if path else ""
            first = PeakCandidate(peak.low, peak.low, from_s, to_s)
            yield to_s, name, PeakSoFar(first, first, operation)
