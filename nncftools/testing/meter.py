"""The memory peak of each test, from the kernel's figures of this process and the samples of a recording.

One recording, whose samples can be read while it runs, is for all tests of the process; the high-water mark is reset
for each test. Linux only: elsewhere all figures are unknown. A test keeps its peak in ``user_properties``, which pytest
sends from worker to controller.
"""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, BinaryIO

from nncftools.api.recorder import Recorder
from nncftools.errors import NncfToolsError
from nncftools.journal import reading
from nncftools.marks import line
from nncftools.marks.line import VARIABLE
from nncftools.session.recording import Recording


@dataclass
class Row:
    """One sample of the process tree."""

    at_ns: int
    """On CLOCK_MONOTONIC."""
    rss: int
    """Of all processes together, in bytes."""
    processes: int
    each: dict[int, int] = field(default_factory=dict)
    """RSS by process ID within the recording."""


class LiveReader(Recorder):
    """Records RSS, in total and per process."""

    def __init__(self, interval_s: float) -> None:
        """Prepare to sample every ``interval_s`` seconds. Raises ValueError unless it is from 1 ms to a year."""
        super().__init__(["rss"], interval_s)
        self._plan.per_process = True
        columns = self._plan.columns
        self._indices = 1 + columns.index("rss"), 1 + columns.index("processes")
        self._file: BinaryIO | None = None
        self._recording: Recording | None = None
        self._commands: dict[int, str] = {}
        self.latest: Row | None = None
        """The last sample read."""

    def start(self) -> None:
        """Start, and return after the first sample. Raises NncfToolsError."""
        super().start()
        self._file = reading.reader(self.journal)
        self._recording = Recording(self._file, str(self.journal))
        for _ in self.rows():  # reads the start line: the sampler's PID and the start time
            pass

    def drop(self) -> None:
        """End the recording without reading the session (0.1 s); does nothing if none is running."""
        if self.is_running:
            self._clear()

    def _clear(self) -> None:
        super()._clear()
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def sampler_pid(self) -> int | None:
        """The sampler's PID; None for unknown."""
        start = None if self._recording is None else self._recording.start
        return None if start is None else start.get("sampler_pid")

    @property
    def is_alive(self) -> bool:
        """Whether the sampler is still recording."""
        return self.is_running and self._sampler is not None and not self._sampler.has_news(0)

    def begin(self, name: str) -> int:
        """Mark the start of an operation; return its number."""
        number = next(line.operations)
        self._mark(line.begin(number, line.common_members(name, "pytest"), time.monotonic_ns()))
        return number

    def end(self, number: int, error: str | None) -> None:
        """Mark the end of an operation; ``error`` names an exception."""
        self._mark(line.end(number, time.monotonic_ns(), error))

    def _mark(self, text: str) -> None:
        if self.marks_log is not None:
            line.append(os.fsencode(self.marks_log), text)

    def rows_to_now(self, within_s: float) -> Iterator[Row]:
        """Yield the samples since the last call, then request a current one and wait up to ``within_s`` for it."""
        at_ns = time.monotonic_ns()
        until_ns = at_ns + round(within_s * 1e9)
        yield from self.rows()
        while (self.latest is None or self.latest.at_ns < at_ns) and time.monotonic_ns() < until_ns and self.is_alive:
            self._mark("\n")  # any write triggers a sample; repeatedly, because the sampler pauses after each
            time.sleep(0.001)
            yield from self.rows()

    def rows(self) -> Iterator[Row]:
        """Yield the samples since the last call."""
        if self._file is None or self._recording is None:
            return
        for chunk in self._recording.read():
            for text in chunk.lines:
                if command := text.get("process", {}).get("command"):
                    self._commands[text["process"]["id"]] = shlex.join(command)
            start_ns = 0 if self._recording.start is None else self._recording.start["monotonic_ns"]
            each = dict(chunk.each)
            for sample in chunk.samples:
                rss, processes = (sample[index] for index in self._indices)
                if rss is not None:
                    time_s = sample[0] or 0.0
                    at_ns = start_ns + round(time_s * 1e9)
                    self.latest = Row(at_ns, int(rss), int(processes or 0), each.get(time_s, {}))
                    yield self.latest

    def largest_process(self, row: Row) -> tuple[str, int] | None:
        """Return command and RSS of the largest process in a sample; None if unknown."""
        number = max(row.each, key=row.each.__getitem__, default=None)
        if number is None:
            return None
        return ("the test's own" if number == 0 else self._commands.get(number, "")), row.each[number]


_STATUS, _CLEAR_REFS, _TASKS = "/proc/self/status", "/proc/self/clear_refs", "/proc/self/task"
_FIGURES = re.compile(rb"^VmHWM:\s*(\d+) kB\nVmRSS:\s*(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Memory of this process at one moment; in bytes, None for unknown."""

    rss: int | None = None
    mark: int | None = None
    """VmHWM: the largest RSS since the last reset, or since the start."""
    children_mark: int | None = None
    """The largest ``ru_maxrss`` of all descendants that were ever waited for."""
    has_children: bool = True
    """Whether it has a child; also true if that is unknown."""


def memory(excluded_child: int | None) -> Memory:
    """Return the current figures; the process ``excluded_child`` does not count as a child."""
    if sys.platform != "linux":
        return Memory()
    import resource

    try:
        figures = _FIGURES.search(pathlib.Path(_STATUS).read_bytes())
    except OSError:
        figures = None
    mark, rss = (None, None) if figures is None else (int(figure) * 1024 for figure in figures.groups())
    children_mark = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return Memory(rss=rss, mark=mark, children_mark=children_mark, has_children=_has_children(excluded_child))


def reset_mark() -> bool:
    """Set VmHWM, and with it getrusage's ``ru_maxrss``, to the current RSS; return whether that worked."""
    try:
        pathlib.Path(_CLEAR_REFS).write_bytes(b"5")  # since Linux 4.0, proc(5)
    except OSError:
        return False
    return True


def _has_children(excluded_child: int | None) -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    try:
        lists = [(task / "children").read_bytes() for task in pathlib.Path(_TASKS).iterdir()]
    except OSError:  # a thread has just ended, or this kernel has no such lists
        return True
    return bool({int(child) for children in lists for child in children.split()} - {excluded_child})


KERNEL = "kernel"
"""The kernel's maximum of one process, the test's or a child's; it includes peaks between samples."""
SAMPLED = "sampled"
"""The largest sampled sum over the processes; a lower bound of the peak."""
UNSAMPLED = "unsampled"
"""The test's process only: without a sampler, the sum over the processes is unknown."""
UNKNOWN = "unknown"
_SIZE, _ABOVE_START, _KNOWN = _OURS = ("memory_peak_bytes", "memory_above_start_bytes", "memory_known")


@dataclass(frozen=True)
class Peak:
    """The memory peak of one test; in bytes, None for unknown."""

    size: int | None = None
    above_start: int | None = None
    """The peak minus the memory held at the start of the test."""
    known: str = UNKNOWN
    """How the peak is known: one of the constants above."""


@dataclass(kw_only=True)
class Measurement:
    """What is known about a test, from its start."""

    before: Memory
    """The kernel's figures at its start."""
    was_reset: bool
    """Whether the high-water mark was reset at its start."""
    at_ns: int = 0
    """Its start, on CLOCK_MONOTONIC."""
    operation: int | None = None
    """Its number in the marks log."""
    sample_before: Row | None = None
    """The last sample before it."""
    largest: Row | None = None
    """The largest sample during it."""


def peak_of(measurement: Measurement, after: Memory, *, is_sampled: bool) -> Peak:
    """Return the peak of a test; ``after`` has the kernel's figures at its end."""
    before, largest, sample_before = measurement.before, measurement.largest, measurement.sample_before
    own = _own_mark(measurement, after)
    peaks = [(own, KERNEL), (_mark_of_child(before, after), KERNEL)]
    if own is None:
        peaks += [(before.rss, SAMPLED), (after.rss, SAMPLED)]
    if largest is not None and (own is None or largest.processes > 1):
        peaks.append((largest.rss, SAMPLED))
    size, known = max(((size, known) for size, known in peaks if size), default=(None, UNKNOWN), key=itemgetter(0))
    if size is None:
        return Peak()
    start = sample_before.rss if sample_before is not None and before.has_children else before.rss
    above_start = None if start is None else max(0, size - start)
    return Peak(size, above_start, known if is_sampled else UNSAMPLED)


def _own_mark(measurement: Measurement, after: Memory) -> int | None:
    """Return this process's largest RSS during the test; without a reset it is known only if it is a new maximum."""
    before = measurement.before.mark
    if before is None or after.mark is None:
        return None
    return after.mark if measurement.was_reset or after.mark > before else None


def _mark_of_child(before: Memory, after: Memory) -> int | None:
    """Return the largest RSS of a child that started and was waited for during the test; None if uncertain.

    A child's ``ru_maxrss`` includes its parent's RSS at the fork, and exec keeps it (getrusage(2)): only a larger value
    is the child's own. A child from before the test may have had its peak before the test.
    """
    if before.has_children or before.children_mark is None or after.children_mark is None or after.mark is None:
        return None
    return after.children_mark if after.children_mark > max(before.children_mark, after.mark) else None


def put(peak: Peak, properties: list[tuple[str, object]]) -> None:
    """Store a peak in a test's properties and replace that of an earlier run; unknown figures are left out."""
    figures = zip(_OURS, (peak.size, peak.above_start, peak.known), strict=True)
    others = [(name, value) for name, value in properties if name not in _OURS]
    properties[:] = [*others, *((name, figure) for name, figure in figures if figure is not None)]


def taken(properties: Iterable[tuple[str, object]]) -> Peak | None:
    """Return the peak in a test's properties; None if it was not measured."""
    ours: dict[str, Any] = {name: value for name, value in properties if name in _OURS}
    return Peak(ours.get(_SIZE), ours.get(_ABOVE_START), ours[_KNOWN]) if _KNOWN in ours else None


_ANSWER_WITHIN_S = 10.0
"""A requested sample comes within 3 ms, later on a busy machine; without it the figure is too low."""


class Meter:
    """Is started, measures tests, and is dropped or saved, all in the process that created it."""

    def __init__(self, interval_s: float, *, is_kept: bool) -> None:
        """Prepare to sample every ``interval_s`` seconds; only with ``is_kept`` can the recording be saved.

        Raises ValueError for an interval that is not from 1 ms to a year.
        """
        self._names_tests = is_kept or VARIABLE in os.environ
        self.reader = LiveReader(interval_s)
        self._pid = os.getpid()
        self.is_started = False
        self._resets = False
        self._own_mark = 0
        self._begun: Measurement | None = None

    @property
    def is_own_process(self) -> bool:
        """Whether this is the process that created the meter, and not a forked copy."""
        return self._pid == os.getpid()

    def start(self) -> None:
        """Start the sampler. Raises NncfToolsError; then only the peaks of this process are known."""
        self.is_started = True
        self._resets = VARIABLE not in os.environ and reset_mark()  # an outer recorder reads the mark, too
        try:
            self.reader.start()
        except OSError as error:
            raise NncfToolsError(f"the recording could not be started: {error}") from error

    def begin(self, name: str) -> None:
        """Start a test."""
        for _ in self.reader.rows():  # before the mark is reset, because reading takes memory
            pass
        self._note_mark(self._memory())
        was_reset = self._resets and reset_mark()
        operation = self.reader.begin(name) if self._names_tests else None
        before = self._memory()
        begun = Measurement(before=before, was_reset=was_reset, at_ns=time.monotonic_ns(), operation=operation)
        self._begun = begun
        if before.has_children:  # only a sample shows what is held at the start
            self._take(begun, self.reader.rows_to_now(_ANSWER_WITHIN_S))
        begun.sample_before = self.reader.latest if self.reader.is_alive else None

    def end(self, error: str | None) -> Peak:
        """End the test and return its peak; ``error`` names the exception that failed it."""
        assert self._begun is not None
        after = self._memory()
        if self._begun.operation is not None:
            self.reader.end(self._begun.operation, error)
        return self.peak(after)

    def peak(self, after: Memory | None = None) -> Peak:
        """Return the peak since the test began; ``after`` has the kernel's figures at its end, else those of now."""
        begun, after = self._begun, after or self._memory()
        assert begun is not None
        self._note_mark(after)
        asks = after.has_children or not begun.was_reset
        self._take(begun, self.reader.rows_to_now(_ANSWER_WITHIN_S) if asks else self.reader.rows())
        return peak_of(begun, after, is_sampled=self.reader.is_alive)

    @staticmethod
    def _take(begun: Measurement, rows: Iterable[Row]) -> None:
        for row in rows:
            if row.at_ns >= begun.at_ns and (begun.largest is None or row.rss > begun.largest.rss):
                begun.largest = row

    def largest_process(self) -> tuple[str, int] | None:
        """Return command and RSS of the largest process in the test's largest sample."""
        largest = None if self._begun is None else self._begun.largest
        return None if largest is None else self.reader.largest_process(largest)

    def drop(self) -> None:
        """End the recording."""
        self.reader.drop()

    def save(self, path: pathlib.Path) -> list[str]:
        """End the recording and write it; return its warnings. Raises OSError."""
        self._note_mark(self._memory())
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.reader.stop()
        session = self.reader.session
        if session is not None:
            from nncftools.analysis.peaks import peaks

            if self._resets:  # the sampler reads marks once a second and misses some before they are reset
                for process in session.processes[:1]:
                    process.high_water_mark = max(process.high_water_mark or 0, self._own_mark) or None
                session.peaks |= peaks(session)
            session.save(path)
        return [str(warning.message) for warning in caught]

    def _memory(self) -> Memory:
        return memory(excluded_child=self.reader.sampler_pid)

    def _note_mark(self, memory: Memory) -> None:
        self._own_mark = max(self._own_mark, memory.mark or 0)
