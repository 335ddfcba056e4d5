"""Measure the memory peak of each test, from the kernel's counters of this process and the samples of a recording.

All tests of a process share a recording, and its samples are read during the recording. The high-water mark of this
process is reset before each test. On systems other than Linux, all peaks are unknown. The peak of a test is stored in
``user_properties``, so that pytest-xdist sends the peak from the worker to the controller.
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
    """A sample of the process tree: this process and its descendants."""

    at_ns: int
    """Time of the sample, on CLOCK_MONOTONIC."""
    rss: int
    """RSS of all processes together, in bytes."""
    processes: int
    each: dict[int, int] = field(default_factory=dict)
    """RSS of each process in bytes, by the process's ``id`` in the recording."""


class LiveReader(Recorder):
    """Records this process and its descendants, and reads the samples during the recording."""

    def __init__(self, interval_s: float) -> None:
        """Prepare to sample every ``interval_s`` seconds.

        Raises ValueError if the interval is less than 1 ms or more than a year.
        """
        super().__init__(["rss"], interval_s)
        self._plan.per_process = True
        self._file: BinaryIO | None = None
        self._recording: Recording | None = None
        self._commands: dict[int, str] = {}
        self.latest: MeterRow | None = None
        """The last sample that was read; None if there is none yet."""

    def start(self) -> None:
        """Start the sampler; return after the first sample. Raises NncfToolsError."""
        super().start()
        self._file = reading.reader(self.journal)
        self._recording = Recording(self._file, str(self.journal))
        for _ in self.rows():  # reads the first lines: the sampler's PID and the start time
            pass

    def drop(self) -> None:
        """End the recording without reading the session, so that the end takes only 0.1 s."""
        if self.is_running:
            self._clear()

    def _clear(self) -> None:
        super()._clear()
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def sampler_pid(self) -> int | None:
        """PID of the sampler; None if unknown."""
        start = None if self._recording is None else self._recording.start
        return None if start is None else start.get("sampler_pid")

    @property
    def is_alive(self) -> bool:
        """Whether the sampler is still recording."""
        if not self.is_running or self._sampler is None:
            return False
        return not self._sampler.has_news(0)

    def begin(self, name: str) -> int:
        """Write the start of an operation to the marks log; return the number of the operation."""
        number = next(line.operations)
        members = line.common_members(name, "pytest")
        self._mark(line.begin(number, members, time.monotonic_ns()))
        return number

    def end(self, number: int, error: str | None) -> None:
        """Write the end of an operation to the marks log; ``error`` is the name of an exception, or None."""
        self._mark(line.end(number, time.monotonic_ns(), error))

    def _mark(self, text: str) -> None:
        if self.marks_log is not None:
            line.append(os.fsencode(self.marks_log), text)

    def rows_to_now(self, within_s: float) -> Iterator[MeterRow]:
        """Yield all samples up to now: request a sample, and wait for this sample up to ``within_s`` seconds."""
        at_ns = time.monotonic_ns()
        until_ns = at_ns + round(within_s * 1e9)
        yield from self.rows()
        while self.is_alive and time.monotonic_ns() < until_ns:
            if self.latest is not None and self.latest.at_ns >= at_ns:
                return
            self._mark("\n")  # triggers a sample; repeated because the sampler pauses after each sample
            time.sleep(0.001)
            yield from self.rows()

    def rows(self) -> Iterator[MeterRow]:
        """Yield the samples that were written since the last call of this method."""
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
    """The memory of this process at one moment, as the kernel reports it: bytes, or None if unknown."""

    rss: int | None = None
    mark: int | None = None
    """VmHWM: the largest RSS since the last reset; without a reset, since the start of the process."""
    children_mark: int | None = None
    """The largest ``ru_maxrss`` of the descendants that have ended and were waited for."""
    has_children: bool = True
    """Whether this process has a child; also True if unknown."""


def read_memory(excluded_child: int | None) -> Memory:
    """Return the current memory of this process, and whether this process has children.

    ``excluded_child`` is the PID of the sampler, or None if unknown. The sampler does not count as a child.
    """
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
    """Set VmHWM and ``ru_maxrss`` of this process to the current RSS; return whether that was possible."""
    try:
        pathlib.Path(_CLEAR_REFS).write_bytes(b"5")  # Linux 4.0 or later, see proc(5)
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
    except OSError:  # a thread has just ended, or the kernel does not list children
        return True
    return children != {excluded_child} and bool(children)


KERNEL = "kernel"
"""Source of a peak: the kernel's maximum of this process or of a child, including peaks between samples."""
SAMPLED = "sampled"
"""Source of a peak: the largest sample of all processes together. The real peak may be higher."""
UNSAMPLED = "unsampled"
"""Source of a peak: only this process, because without a sampler the memory of all processes together is unknown."""
UNKNOWN = "unknown"
_PROPERTIES = ("memory_peak_bytes", "memory_above_start_bytes", "memory_known")
"""Names of the properties for a test's peak, in the order of the fields of ``Peak``."""


@dataclass(frozen=True)
class Peak:
    """The memory peak of a test, in bytes; None if unknown."""

    size: int | None = None
    above_start: int | None = None
    """The peak minus the memory at the start of the test."""
    known: str = UNKNOWN
    """Source of the peak: ``KERNEL``, ``SAMPLED``, ``UNSAMPLED`` or ``UNKNOWN``."""


@dataclass(kw_only=True)
class Measurement:
    """The memory readings of a test that is running or has just ended."""

    before: Memory
    """The memory of this process at the start of the test."""
    was_reset: bool
    """Whether the high-water mark was reset at the start of the test."""
    at_ns: int = 0
    """Time of the start, on CLOCK_MONOTONIC."""
    operation: int | None = None
    """Number of the test's operation in the marks log; None if tests are not marked."""
    sample_before: MeterRow | None = None
    """The last sample before the test."""
    largest: MeterRow | None = None
    """The largest sample during the test."""


def peak_of(measurement: Measurement, after: Memory, *, is_sampled: bool) -> Peak:
    """Return the peak of a test; ``after`` is the memory of this process at the end of the test."""
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
    """Return this process's largest RSS during the test; None if unknown.

    Without a reset of the high-water mark, the largest RSS is known only if the mark has risen.
    """
    before = measurement.before.mark
    if before is None or after.mark is None:
        return None
    return after.mark if measurement.was_reset or after.mark > before else None


def _find_mark_of_child(before: Memory, after: Memory) -> int | None:
    """Return the largest RSS of a child that started and ended during the test; None if unknown.

    At a fork, a child's ``ru_maxrss`` starts with the parent's RSS, and exec does not reset the value (getrusage(2)).
    So only a larger value is the child's own. If a child had started before the test, its peak may have been before the
    test.
    """
    if before.has_children or before.children_mark is None or after.mark is None:
        return None
    mark = after.children_mark or 0
    return mark if mark > max(before.children_mark, after.mark) else None


def store_peak(peak: Peak, properties: list[tuple[str, object]]) -> None:
    """Store a peak in a test's properties; leave out unknown values.

    If the test is repeated, the new peak replaces the old peak.
    """
    properties[:] = [(name, value) for name, value in properties if name not in _PROPERTIES]
    for name, figure in zip(_PROPERTIES, astuple(peak), strict=True):
        if figure is not None:
            properties.append((name, figure))


def load_peak(properties: Iterable[tuple[str, object]]) -> Peak | None:
    """Return the peak that is stored in a test's properties; None if the test was not measured."""
    values: dict[str, Any] = dict(properties)
    figures: list[Any] = [values.get(name) for name in _PROPERTIES]
    return Peak(*figures) if figures[-1] else None


_ANSWER_WITHIN_S = 10.0
"""Longest wait for a requested sample, in seconds. A sample usually takes 3 ms, but more on a busy machine. Without the
sample, the test's peak would be too low."""


class Meter:
    """Measures the tests of the process that created the meter.

    Start the meter once; at the end, drop or save the recording.
    """

    _begun: Measurement

    def __init__(self, interval_s: float, *, is_kept: bool) -> None:
        """Prepare to sample every ``interval_s`` seconds. If ``is_kept`` is true, the recording can be saved.

        Raises ValueError if the interval is less than 1 ms or more than a year.
        """
        self._names_tests = is_kept or VARIABLE in os.environ
        self.reader = LiveReader(interval_s)
        self._pid = os.getpid()
        self.is_started = False
        self._resets = False
        self._own_mark = 0

    @property
    def is_own_process(self) -> bool:
        """Whether this process created the meter, and is not a forked copy of that process."""
        return self._pid == os.getpid()

    def start(self) -> None:
        """Start the sampler.

        Raises NncfToolsError if the sampler cannot be started. In that case, only the peaks of this process are known.
        """
        self.is_started = True
        self._resets = VARIABLE not in os.environ and reset_mark()  # keep the marks of an outer recorder
        try:
            self.reader.start()
        except OSError as error:
            raise NncfToolsError(f"the recording could not be started: {error}") from error

    def begin(self, name: str) -> None:
        """Start measuring a test."""
        for _ in self.reader.rows():  # before the high-water mark is reset, because reading takes memory
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
        if before.has_children:  # only a sample includes the memory of the children at the start
            self._take(begun, self.reader.rows_to_now(_ANSWER_WITHIN_S))
        begun.sample_before = self.reader.latest if self.reader.is_alive else None

    def end(self, error: str | None) -> Peak:
        """End the test and return the peak; ``error`` is the name of the exception if the test failed."""
        after = self._memory()
        if self._begun.operation is not None:
            self.reader.end(self._begun.operation, error)
        return self.peak(after)

    def peak(self, after: Memory | None = None) -> Peak:
        """Return the peak since the test began.

        ``after`` is the memory of this process at the end of the test, by default the current memory.
        """
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
        """Return command and RSS of the largest process in the largest sample of the test; None if unknown."""
        return self.reader.largest_process(self._begun.largest)

    def save(self, path: pathlib.Path) -> list[str]:
        """End the recording and save the session; return the warnings. Raises OSError."""
        self._note_mark(self._memory())
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.reader.stop()
        session = self.reader.session
        if session is not None:
            from nncftools.analysis.peaks import peaks

            if self._resets:  # the sampler reads high-water marks only once a second, and resets come between
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
