"""The memory peak of each test, from the kernel's figures of this process and the samples of a recording.

All tests of the process share a recording, whose samples can be read while it runs; the high-water mark is reset for
each test. Linux only: elsewhere all figures are unknown. The peak of a test is in ``user_properties``, which pytest
sends from worker to controller.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shlex
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, field
from typing import Any, BinaryIO

from nncftools.api.recorder import Recorder
from nncftools.errors import NncfToolsError
from nncftools.journal import reading
from nncftools.marks import line
from nncftools.marks.line import VARIABLE
from nncftools.session.recording import Recording


@dataclass
class MeterRow:
    """A sample of the process tree."""

    at_ns: int
    """On CLOCK_MONOTONIC."""
    rss: int
    """The sum of all processes, in bytes."""
    processes: int
    each: dict[int, int] = field(default_factory=dict)
    """RSS by process ID within the recording."""


class LiveReader(Recorder):
    """Records RSS, in total and per process."""

    def __init__(self, interval_s: float) -> None:
        """Prepare to sample every ``interval_s`` seconds. Raises ValueError for less than 1 ms or more than a year."""
        super().__init__(["rss"], interval_s)
        self._plan.per_process = True
        self._file: BinaryIO | None = None
        self._recording: Recording | None = None
        self._commands: dict[int, str] = {}
        self.latest: MeterRow | None = None
        """The last sample read."""

    def start(self) -> None:
        """Start, and return after the first sample. Raises NncfToolsError."""
        super().start()
        self._file = reading.reader(self.journal)
        self._recording = Recording(self._file, str(self.journal))
        for _ in self.rows():  # reads the start line: the sampler's PID and the start time
            pass

    def drop(self) -> None:
        """End a running recording without reading the session (0.1 s)."""
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
        if not self.is_running or self._sampler is None:
            return False
        return not self._sampler.has_news(0)

    def begin(self, name: str) -> int:
        """Mark the start of an operation; return the operation's number."""
        number = next(line.operations)
        members = line.common_members(name, "pytest")
        self._mark(line.begin(number, members, time.monotonic_ns()))
        return number

    def end(self, number: int, error: str | None) -> None:
        """Mark the end of an operation; ``error`` names an exception."""
        self._mark(line.end(number, time.monotonic_ns(), error))

    def _mark(self, text: str) -> None:
        if self.marks_log is not None:
            line.append(os.fsencode(self.marks_log), text)

    def rows_to_now(self, within_s: float) -> Iterator[MeterRow]:
        """Yield the samples since the last call, then request a sample and wait up to ``within_s`` for this sample."""
        at_ns = time.monotonic_ns()
        until_ns = at_ns + round(within_s * 1e9)
        yield from self.rows()
        while self.is_alive and time.monotonic_ns() < until_ns:
            if self.latest is not None and self.latest.at_ns >= at_ns:
                return
            self._mark("\n")  # any write triggers a sample; the sampler pauses after each sample, so write repeatedly
            time.sleep(0.001)
            yield from self.rows()

    def rows(self) -> Iterator[MeterRow]:
        """Yield the samples since the last call."""
        if self._file is None or self._recording is None:
            return
        for chunk in self._recording.read():
            for text in chunk.lines:
                command = text.get("process", {}).get("command")
                if command:
                    self._commands[text["process"]["id"]] = shlex.join(command)
            start_ns = 0 if self._recording.start is None else self._recording.start["monotonic_ns"]
            each = dict(chunk.each)
            names = ("time", *self._recording.plan.columns)
            for sample in chunk.samples:
                figures = dict(zip(names, sample, strict=True))
                rss = figures["rss"]
                if rss is not None:
                    time_s = figures["time"] or 0.0
                    self.latest = MeterRow(
                        at_ns=start_ns + round(time_s * 1e9),
                        rss=int(rss),
                        processes=int(figures["processes"] or 0),
                        each=each.get(time_s, {}),
                    )
                    yield self.latest

    def largest_process(self, row: MeterRow | None) -> tuple[str, int] | None:
        """Return command and RSS of the largest process in a sample; None if unknown."""
        if row is None or not row.each:
            return None
        number = max(row.each, key=row.each.__getitem__)
        command = "the test's own" if number == 0 else self._commands.get(number, "")
        return command, row.each[number]


_STATUS = "/proc/self/status"
_CLEAR_REFS = "/proc/self/clear_refs"
_TASKS = "/proc/self/task"
_FIGURES = re.compile(rb"^VmHWM:\s*(\d+) kB\nVmRSS:\s*(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Memory of this process at a moment; in bytes, None for unknown."""

    rss: int | None = None
    mark: int | None = None
    """VmHWM: the largest RSS since the last reset, or since the start."""
    children_mark: int | None = None
    """The largest ``ru_maxrss`` of all descendants that were ever waited for."""
    has_children: bool = True
    """Whether the process has a child; also true if unknown."""


def read_memory(excluded_child: int | None) -> Memory:
    """Return the current figures; the process ``excluded_child`` does not count as a child."""
    if sys.platform != "linux":
        return Memory()
    import resource

    figures = None
    with contextlib.suppress(OSError):
        figures = _FIGURES.search(pathlib.Path(_STATUS).read_bytes())
    return Memory(
        rss=None if figures is None else int(figures[2]) * 1024,
        mark=None if figures is None else int(figures[1]) * 1024,
        children_mark=resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
        has_children=_has_children(excluded_child),
    )


def reset_mark() -> bool:
    """Set VmHWM and getrusage's ``ru_maxrss`` to the current RSS; return whether that worked."""
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
    children = set[int]()
    try:
        for task in pathlib.Path(_TASKS).iterdir():
            children.update(map(int, (task / "children").read_bytes().split()))
    except OSError:  # a thread has just ended, or this kernel has no such lists
        return True
    return children != {excluded_child} and bool(children)


KERNEL = "kernel"
"""The kernel's maximum of a process, the test's or a child's; peaks between samples are included."""
SAMPLED = "sampled"
"""The largest sampled sum over the processes; a lower bound of the peak."""
UNSAMPLED = "unsampled"
"""The test's process only: without a sampler, the sum over the processes is unknown."""
UNKNOWN = "unknown"
_PROPERTIES = ("memory_peak_bytes", "memory_above_start_bytes", "memory_known")
"""The names of a test's properties, in the order of the fields of ``Peak``."""


@dataclass(frozen=True)
class Peak:
    """The memory peak of a test; in bytes, None for unknown."""

    size: int | None = None
    above_start: int | None = None
    """The peak minus the memory held at the start of the test."""
    known: str = UNKNOWN
    """The source of the peak: ``KERNEL``, ``SAMPLED``, ``UNSAMPLED`` or ``UNKNOWN``."""


@dataclass(kw_only=True)
class Measurement:
    """The figures of a test that is running."""

    before: Memory
    """The kernel's figures at the start."""
    was_reset: bool
    """Whether the high-water mark was reset at the start."""
    at_ns: int = 0
    """The start, on CLOCK_MONOTONIC."""
    operation: int | None = None
    """The test's number in the marks log."""
    sample_before: MeterRow | None = None
    """The last sample before the test."""
    largest: MeterRow | None = None
    """The largest sample during the test."""


def peak_of(measurement: Measurement, after: Memory, *, is_sampled: bool) -> Peak:
    """Return the peak of a test; ``after`` has the kernel's figures at its end."""
    before = measurement.before
    largest = measurement.largest
    own = _find_own_mark(measurement, after)
    by_kernel = max(own or 0, _find_mark_of_child(before, after) or 0)
    sampled = 0
    if own is None:
        sampled = max(before.rss or 0, after.rss or 0)
    if largest is not None and (own is None or largest.processes > 1):
        sampled = max(sampled, largest.rss)
    size = max(by_kernel, sampled)
    if not size:
        return Peak()
    known = KERNEL if by_kernel == size else SAMPLED
    start = before.rss
    if measurement.sample_before is not None and before.has_children:
        start = measurement.sample_before.rss
    above_start = None if start is None else max(0, size - start)
    return Peak(size, above_start, known if is_sampled else UNSAMPLED)


def _find_own_mark(measurement: Measurement, after: Memory) -> int | None:
    """Return this process's largest RSS during the test; without a reset, only a new maximum is certain."""
    before = measurement.before.mark
    if before is None or after.mark is None:
        return None
    return after.mark if measurement.was_reset or after.mark > before else None


def _find_mark_of_child(before: Memory, after: Memory) -> int | None:
    """Return the largest RSS of a child that started and was waited for during the test; None if uncertain.

    A child's ``ru_maxrss`` includes its parent's RSS at the fork, and exec keeps it (getrusage(2)): only a larger value
    is the child's own. A child from before the test may have had its peak before the test.
    """
    if before.has_children or before.children_mark is None or after.mark is None:
        return None
    mark = after.children_mark or 0
    return mark if mark > max(before.children_mark, after.mark) else None


def store_peak(peak: Peak, properties: list[tuple[str, object]]) -> None:
    """Store a peak in a test's properties, replacing a peak of an earlier run; unknown figures are left out."""
    properties[:] = [(name, value) for name, value in properties if name not in _PROPERTIES]
    for name, figure in zip(_PROPERTIES, astuple(peak), strict=True):
        if figure is not None:
            properties.append((name, figure))


def load_peak(properties: Iterable[tuple[str, object]]) -> Peak | None:
    """Return the peak in a test's properties; None if the test was not measured."""
    values: dict[str, Any] = dict(properties)
    figures: list[Any] = [values.get(name) for name in _PROPERTIES]
    return Peak(*figures) if figures[-1] else None


_ANSWER_WITHIN_S = 10.0
"""The longest wait for a requested sample: usually 3 ms, more on a busy machine. Without this sample, the figure is too
low.
"""


class Meter:
    """Measures tests in the process that created the meter: started once, then dropped or saved."""

    _begun: Measurement
    """The test that has begun last."""

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

    @property
    def is_own_process(self) -> bool:
        """Whether this is the process that created the meter, and not a forked copy."""
        return self._pid == os.getpid()

    def start(self) -> None:
        """Start the sampler. Raises NncfToolsError; then only the peaks of this process are known."""
        self.is_started = True
        self._resets = VARIABLE not in os.environ and reset_mark()  # no reset for an outer recorder
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
        begun = Measurement(
            before=before,
            was_reset=was_reset,
            at_ns=time.monotonic_ns(),
            operation=operation,
        )
        self._begun = begun
        if before.has_children:  # only a sample has the memory of all processes at the start
            self._take(begun, self.reader.rows_to_now(_ANSWER_WITHIN_S))
        begun.sample_before = self.reader.latest if self.reader.is_alive else None

    def end(self, error: str | None) -> Peak:
        """End the test and return its peak; ``error`` names the exception that failed it."""
        after = self._memory()
        if self._begun.operation is not None:
            self.reader.end(self._begun.operation, error)
        return self.peak(after)

    def peak(self, after: Memory | None = None) -> Peak:
        """Return the peak since the test began; ``after`` has the kernel's figures at the end, by default now."""
        begun = self._begun
        after = after or self._memory()
        self._note_mark(after)
        rows = self.reader.rows()
        if after.has_children or not begun.was_reset:
            rows = self.reader.rows_to_now(_ANSWER_WITHIN_S)
        self._take(begun, rows)
        return peak_of(begun, after, is_sampled=self.reader.is_alive)

    @staticmethod
    def _take(begun: Measurement, rows: Iterable[MeterRow]) -> None:
        for row in rows:
            largest = begun.largest
            if row.at_ns >= begun.at_ns and (largest is None or row.rss > largest.rss):
                begun.largest = row

    def largest_process(self) -> tuple[str, int] | None:
        """Return command and RSS of the largest process in the test's largest sample."""
        return self.reader.largest_process(self._begun.largest)

    def save(self, path: pathlib.Path) -> list[str]:
        """End and write the recording; return the warnings. Raises OSError."""
        self._note_mark(self._memory())
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.reader.stop()
        session = self.reader.session
        if session is not None:
            from nncftools.analysis.peaks import peaks

            if self._resets:  # the sampler reads marks once a second, and misses marks that are reset before
                for process in session.processes[:1]:
                    mark = max(process.high_water_mark or 0, self._own_mark)
                    process.high_water_mark = mark or None
                session.peaks |= peaks(session)
            session.save(path)
        return [str(warning.message) for warning in caught]

    def _memory(self) -> Memory:
        return read_memory(excluded_child=self.reader.sampler_pid)

    def _note_mark(self, memory: Memory) -> None:
        self._own_mark = max(self._own_mark, memory.mark or 0)
