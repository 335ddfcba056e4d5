"""``Session``: a recorded run with operations, the memory and CPU time of each, and the operation with the RSS peak."""

from __future__ import annotations

import heapq
import os
import pathlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING, TypeVar, cast

import msgspec
from msgspec.structs import replace

from nncftools import intake, metrics
from nncftools.analysis.operation import LazyMapping, Operation, PeakPlace, place_of, raise_bracket
from nncftools.analysis.peaks import (
    CPU,
    RSS,
    UNKNOWN,
    Bracket,
    Column,
    Figures,
    HeldSpan,
    MostHeld,
    PeakCandidate,
    Timeline,
    bound_processes,
    find_highest,
    find_unseen_mark,
    is_mark_explained,
    peaks,
    read_tree,
    rise_candidate,
)
from nncftools.metrics import DEVICE_ALLOCATED, DEVICE_MEMORY, is_memory
from nncftools.session.model import END_UNKNOWN, Mark, OwnMemory, Process, ProcessTable, SessionData
from nncftools.session.nesting import TICK_S, add_ends, find_parents
from nncftools.session.samples import are_whole, noise
from nncftools.session.session import load, save

if TYPE_CHECKING:
    import pandas as pd
    from typing_extensions import Self


@dataclass
class _Running:
    """The operations of a process that have not ended yet."""

    parallel_ends: list[float] = field(default_factory=list)
    """The end times of the parallel operations, in seconds, as a heap."""
    nested: list[Operation] = field(default_factory=list)
    """The operations that are not parallel. Each operation is inside the previous operation."""


def _find_parallel(operations: Sequence[Operation]) -> None:
    """Set ``is_parallel`` of operations, which are sorted by start.

    Two operations are parallel if they run in the same process at the same time, and neither encloses the other. If an
    operation combines several calls, the operation is left out, because start and end do not say when the calls ran.
    """
    processes: dict[int, _Running] = {}
    for operation in operations:
        start_s = operation.start_s
        if operation.pid is None or operation.count != 1 or operation.end_s <= start_s:
            continue
        running = processes.setdefault(operation.pid, _Running())
        while running.parallel_ends and running.parallel_ends[0] <= start_s:
            heapq.heappop(running.parallel_ends)
        running.nested = [outer for outer in running.nested if outer.end_s > start_s]
        around = {outer for outer in operation.ancestors if outer.end_s > start_s}
        parallel_around = sum(outer.is_parallel and outer.pid == operation.pid for outer in around)
        beside = [other for other in running.nested if other not in around]
        running.nested.append(operation)
        if beside or len(running.parallel_ends) > parallel_around:
            beside.append(operation)
        for parallel in beside:
            parallel.is_parallel = True
            running.nested.remove(parallel)
            heapq.heappush(running.parallel_ends, parallel.end_s)


def _find_operations(session: SessionData) -> tuple[list[Operation], PeakPlace | None]:
    """Return the operations of a session, sorted by start, and the operations that ran at the RSS peak.

    The second result is None if the moment of the peak is unknown.
    """
    measuring = _Measuring(session)
    ended = add_ends(session.marks, session)
    operations: list[Operation] = []
    for (mark, end_s), parent in zip(ended, find_parents(ended), strict=True):
        operations.append(measuring.operation(mark, end_s, None if parent is None else operations[parent]))
    _find_parallel(operations)
    gaps = _find_gaps(session, measuring, shortest_s=0.0)
    place = place_of(
        session.rss_peak,
        operations,
        processes=session.processes,
        duration_s=session.duration_s,
        gaps=gaps,
    )
    if place is not None:
        for operation in (*place.either, *place.rivals):
            for around in (operation, *operation.ancestors):
                if around.error != END_UNKNOWN:
                    around.has_peak = None
        for operation in place.path:
            operation.has_peak = True
            figures = operation.of(RSS)
            if figures.peak is not None:
                bracket = raise_bracket(figures.peak, session.rss_peak.low or 0)
                operation.figures = _with_rss(operation.figures, figures._replace(peak=bracket))
    return operations, place


def _with_rss(figures: Mapping[str, Figures], rss: Figures) -> Mapping[str, Figures]:
    return LazyMapping(figures, lambda name: rss if name == RSS else figures[name])


def find_unmarked(session: SessionData, shortest_s: float) -> list[Operation]:
    """Return the times without any operation, if at least ``shortest_s`` long, as operations without a name."""
    return list(_find_gaps(session, _Measuring(session), shortest_s))


def _find_gaps(session: SessionData, measuring: _Measuring, shortest_s: float) -> Iterator[Operation]:
    free_from_s = 0.0
    memory = None
    last = Mark(name="", start_s=session.duration_s)
    for mark, end_s in [*add_ends(session.marks, session), (last, session.duration_s)]:
        if 0 < mark.start_s - free_from_s >= shortest_s:
            gap = Mark(name="", start_s=free_from_s, own_start=memory, own_end=_tree_only(mark.own_start))
            yield measuring.operation(gap, mark.start_s)
        if end_s >= free_from_s:
            free_from_s = end_s
            memory = _tree_only(mark.own_end)


def _tree_only(reading: OwnMemory | None) -> OwnMemory | None:
    """Return a reading with the memory of the whole tree, but without the memory of the process itself."""
    return None if reading is None else replace(reading, rss=None, high_water_mark=None)


def select_near_peak(session: Session) -> Session:
    """Return the session with only the marks (operations) near the RSS peak.

    In this session, the operation of the peak is found much faster.
    """
    from_s, to_s = session.rss_peak.span_s or (0.0, 0.0)
    near_s = 1.0 + 0.01 * session.duration_s + (session.sampler.longest_gap_s or 0.0)
    marks = [
        replace(mark, end_s=end_s)
        for mark, end_s in add_ends(session.marks, session)
        if mark.start_s - near_s <= to_s and end_s + near_s >= from_s
    ]
    return replace(session, marks=marks)


_FASTEST = 2 << 30
"""Bytes per second. A process seldom takes memory faster than this."""


def _bound_by_marks(session: SessionData, *, is_likely: bool = False) -> Iterator[HeldSpan]:
    """Yield start, end and high-water mark of each process.

    If a process ended, the high-water mark is raised by the memory that the process may have taken after the last
    sample. With ``is_likely``, a process whose memory had stopped growing ends at the last sample, with the known mark.
    """
    times = session.samples.time_s
    table = ProcessTable(session.processes)
    bounds = bound_processes(session.processes)
    for process, (start_s, end_s, limit) in zip(session.processes, bounds, strict=True):
        if limit is None or end_s is None:
            yield start_s, end_s, limit
            continue
        mark = process.most_memory
        parent = table.by_id.get(process.parent)
        if not process.samples and process.forked_copy and parent is not None:
            mark = parent.high_water_mark or 0  # a forked copy starts with the memory of the parent
        count = bisect_left(times, end_s) if process.samples else 0
        seen_s = times[count - 1] if count else 0.0
        has_stopped = seen_s > (process.peak_s or seen_s) or limit < mark + noise(mark)
        if is_likely and count and has_stopped:
            yield start_s, seen_s, mark
            continue
        unseen_s = end_s - max(start_s or 0.0, seen_s)
        yield start_s, end_s, min(limit, mark + int(_FASTEST * unseen_s))


_BLOCK = 1024
"""The number of samples in a block. The maximum is stored for each block only: for each of 2,000,000 samples, maxima
would take 16 MiB and more."""


def _end_of(candidate: PeakCandidate) -> float:
    return candidate.to_s or 0.0


def _is_end_read(mark: Mark) -> bool:
    return mark.own_end is not None and mark.own_end.tree is not None


class _Measuring:
    """Computes the values of metrics, such as memory and CPU time, during a session's operations."""

    def __init__(self, session: SessionData) -> None:
        self._columns = _make_columns(session)
        self._names = list(self._columns)
        self._rss = Column(Timeline(()), ())
        if RSS in self._names:
            self._rss = self._columns[RSS]  # reads the column: an invalid figure is found here
        self._incomplete = {device.device for device in session.devices if device.missing is not None}
        self._duration_s = session.duration_s
        self._held = MostHeld(_bound_by_marks(session))
        self._likely_held = MostHeld(_bound_by_marks(session, is_likely=True))
        self._unseen = find_unseen_mark(session.processes, session.sampler.peak_rss or 0)
        self._table = ProcessTable(session.processes)
        explained = filter(is_mark_explained, session.processes)
        self._largest = max(explained, key=lambda process: process.high_water_mark or 0, default=None)
        self._rises = []
        for process in session.processes:
            self._rises += [rise_candidate(rise, process.id) for rise in process.rises]
        self._rises.sort(key=_end_of)
        self._rise_ends = [*map(_end_of, self._rises)]
        self._readings = sorted(read_tree(session.marks), key=_end_of)
        self._reading_ends = [*map(_end_of, self._readings)]

    @cached_property
    def _highest(self) -> list[float]:
        """The largest value before each block of samples. A block has ``_BLOCK`` samples."""
        values = self._rss.readings
        begins = range(0, len(values), _BLOCK)
        blocks = (max(values[begin : begin + _BLOCK]) for begin in begins)
        return [0.0, *accumulate(blocks, max)]

    def operation(self, mark: Mark, end_s: float, parent: Operation | None = None) -> Operation:
        process = self._table.at(mark.pid, mark.start_s + TICK_S)
        operation = Operation(
            **{**msgspec.structs.asdict(mark), "end_s": end_s},
            parent=parent,
            process=None if process is None else process.id,
        )

        def measure(name: str) -> Figures:
            figures = self._measure(name, operation)
            if mark.error == END_UNKNOWN:
                return Figures(figures.start, start_is_estimate=figures.start_is_estimate)
            return figures

        def rate(name: str) -> float | None:
            is_known = mark.error != END_UNKNOWN and metrics.is_counter(name)
            return self._columns[name].highest_rate(mark.start_s, end_s) if is_known else None

        operation.figures = LazyMapping(self._names, measure)
        operation.rates = LazyMapping(self._names, rate)
        return operation

    def _measure(self, name: str, operation: Operation) -> Figures:
        if name == RSS:
            return self._measure_rss(operation)
        column = self._columns[name]
        if metrics.is_counter(name):
            return column.measure_growth(operation.start_s, operation.end_s)
        if metrics.name_of(name) not in metrics.OF_DEVICES:
            return column.measure_level(operation.start_s, operation.end_s)
        return measure_device(name, operation, operation.end_s, column=column, incomplete=self._incomplete)

    def _measure_rss(self, mark: Operation) -> Figures:
        """Return RSS at the start and the end of an operation, and the bounds of the peak.

        RSS at the start and the end was read by the process, or is from a sample. The lower bound of the peak is the
        highest of all samples, certain readings, and high-water marks that rose during the operation.
        """
        end_s = mark.end_s
        process = self._table.by_id.get(mark.process)
        sampled = self._rss.measure_level(mark.start_s, end_s, until_triggered=not _is_end_read(mark))
        start, start_is_estimate = self._level_at(mark.own_start, mark.start_s)
        end, end_is_estimate = self._level_at(mark.own_end, end_s)
        if mark.own_end is None and sampled.peak is None:  # all samples are older than the start
            end = start
            end_is_estimate |= mark.own_start is not None
        figures = Figures(start, end, start_is_estimate=start_is_estimate, end_is_estimate=end_is_estimate)
        candidates = list(self._prove(mark, process))
        first = bisect_left(self._reading_ends, mark.start_s)
        candidates += self._readings[first : bisect_right(self._reading_ends, end_s)]
        if sampled.peak is not None:
            low = int(sampled.peak.low)
            candidates.append(PeakCandidate(low, low, sampled.peak.from_s, sampled.peak.to_s))
        is_known = bool(candidates)
        ends = ((start, start_is_estimate, mark.start_s), (end, end_is_estimate, end_s))
        for level, is_estimate, at_s in ends:
            if level is not None:
                certain = 0 if is_estimate and is_known else int(level)
                candidates.append(PeakCandidate(certain, int(level), at_s, at_s))
        if not candidates:
            return figures
        low, likely, nearest = find_highest(candidates)
        high = self._bound(mark, process, self._held)
        peak = Bracket(
            low,
            None if high is None else max(high, low),
            from_s=nearest.from_s or 0.0,
            to_s=nearest.to_s or 0.0,
            likely=likely,
            likely_high=self._bound(mark, process, self._likely_held),
        )
        return figures._replace(peak=peak)

    def _level_at(self, reading: OwnMemory | None, at_s: float) -> tuple[float | None, bool]:
        """Return the memory of the process tree at a start or end of an operation, and whether this is an estimate.

        If the memory was not read at this moment, the memory is from samples. If all processes ended before their
        memory was read, the memory is unknown.
        """
        if reading is not None and (reading.tree is not None or reading.is_estimate):
            return reading.tree, reading.is_estimate or reading.tree_low is not None
        size, is_estimate = self._rss.level_at(at_s)
        if size is not None and reading is not None and reading.rss is not None and reading.rss > size:
            return reading.rss, True
        return size, is_estimate

    def _bound(self, operation: Operation, process: Process | None, held: MostHeld) -> int | None:
        """Return an upper bound of RSS during an operation, in bytes; None if unknown.

        The bound is the sum of the high-water marks of all processes that lived at the same time. For the process of
        the operation, the high-water mark at the end of the operation counts, not a later mark. If the process did not
        read this mark, the bound uses the mark of the largest process at the end of the operation instead.
        """
        high = held.find_most(operation.start_s, operation.end_s)
        if high is None:
            return None
        high += self._unseen
        mark = None if operation.own_end is None else operation.own_end.high_water_mark
        if mark is None:
            process = self._largest
            mark = self._mark_of_largest(operation.start_s, operation.end_s)
        if mark is None or process is None or process.high_water_mark is None:
            return high
        return high - max(0, process.high_water_mark - mark)

    def _mark_of_largest(self, start_s: float, end_s: float) -> int | None:
        """Return an upper bound of the largest process's high-water mark at ``end_s``.

        The bound is the highest recorded value of the high-water mark (largest RSS of the process so far), or the
        largest sample of the whole process tree if this sample is larger. None if there is no sample, or if the process
        began or ended between ``start_s`` and ``end_s``.
        """
        largest = self._largest
        times = self._rss.times
        if largest is None or not times:
            return None
        if (largest.start_s or 0.0) > start_s or (largest.end_s or inf) < end_s:
            return None
        after = bisect_right(times, end_s) + 1
        block = after // _BLOCK
        readings = self._rss.readings[block * _BLOCK : after]
        sampled = max([self._highest[block], *readings])
        rises = [rise.high_water_mark for rise in largest.rises if rise.from_s <= end_s]
        return max([int(sampled + noise(sampled)), *rises])

    def _prove(self, operation: Operation, process: Process | None) -> Iterator[PeakCandidate]:
        """Yield the sizes that RSS certainly reached during an operation, because high-water marks rose."""
        end_s = operation.end_s
        until_s = end_s if _is_end_read(operation) else self._rss.timeline.read_until(end_s)
        first = bisect_left(self._rise_ends, operation.start_s)
        for rise in self._rises[first : bisect_right(self._rise_ends, until_s)]:
            if rise.from_s is not None and rise.from_s >= operation.start_s:
                yield rise
        own_peak = operation.own_peak
        if own_peak is not None and process is not None and end_s <= self._duration_s:
            yield PeakCandidate(own_peak, own_peak, operation.start_s, end_s, process=process.id)


def _make_columns(session: SessionData) -> Mapping[str, Column]:
    """Return the columns of a session, and ``cpu`` if CPU time is known."""
    samples = session.samples
    cpu_counters = metrics.cpu_counters(samples)

    timeline = Timeline(samples.time_s)

    def compute(name: str) -> Column:
        if name != CPU:
            return Column(timeline, samples[name], session.late if name == RSS else None)
        parts = [samples[part] for part in cpu_counters]
        sums = map(sum, zip(*parts, strict=True))
        return Column(timeline, array("d", sums))

    return LazyMapping([*samples.metrics, *([CPU] if cpu_counters else [])], compute)


_USUAL_S = 0.5
"""Readings of a device are usually at least this many seconds apart."""
_LATE = 2
"""The time to the next reading of a device is seldom longer than this many times the time between the previous two
readings."""


def read_allocator(mark: Mark, end_s: float, device: str) -> Figures | None:
    """Return the memory in use by torch's allocator during an operation of the process; None if not read.

    The allocator keeps a high-water mark. If the mark rose during the operation, the peak is exact. If the mark fell,
    the program has reset the mark, and the peak after the reset is a lower bound.
    """
    if mark.own_start is None or mark.own_end is None or mark.own_end.rss is None:
        return None
    # If the readings have only other devices, torch has not used this device yet.
    end, mark_at_end = (mark.own_end.devices or {}).get(device, (0, 0))
    start, mark_at_start = (mark.own_start.devices or {}).get(device, (0, 0))
    low = max(end if mark_at_end == mark_at_start else mark_at_end, start)
    high = None if mark_at_end < mark_at_start else mark_at_end
    return Figures(start, end, Bracket(low, high, mark.start_s, end_s))


def add_allocator(figures: Figures, allocator: Figures | None) -> Figures:
    """Return a device's values, raised to the values of torch's allocator: the process used at least as much."""
    if allocator is None or allocator.peak is None or not allocator.peak.low:
        return figures
    least = allocator.peak
    if figures.peak is None or figures.peak.low < least.low:
        figures = figures._replace(peak=least._replace(high=None))
    if (allocator.start or 0) > (figures.start or 0):
        figures = figures._replace(start=allocator.start, start_is_estimate=True)
    if (allocator.end or 0) > (figures.end or 0):
        figures = figures._replace(end=allocator.end, end_is_estimate=True)
    return figures


def measure_device(name: str, mark: Mark, end_s: float, *, column: Column, incomplete: Collection[str]) -> Figures:
    """Return the values of a device's metric during an operation.

    If there is no reading during the operation, the last reading before the operation counts. In two cases, the values
    are unknown instead: the device is in ``incomplete`` (devices whose memory is partly unknown), or the reading is
    old, because the driver or the reader has stopped.
    """
    metric, _, device = name.partition("@")
    allocator = read_allocator(mark, end_s, device)
    if metric == DEVICE_ALLOCATED:
        return allocator or UNKNOWN
    figures = column.measure_level(mark.start_s, end_s, until_triggered=False)
    count = bisect_right(column.times, mark.start_s)
    figures = figures._replace(start=column.readings[count - 1] if count else None)
    if figures.peak is None and count:
        last_s = column.times[count - 1]
        usual_s = max(_USUAL_S, last_s - column.times[max(0, count - 2)])
        if device in incomplete or end_s - last_s > _LATE * usual_s:
            figures = UNKNOWN
    return add_allocator(figures, allocator if metric == DEVICE_MEMORY else None)


_Value = TypeVar("_Value")


class Session(SessionData):
    """A recorded run. Sizes are bytes and times are seconds; null is unknown, never 0.

    ``Session.load(path)`` reads a session, and ``session.save(path)`` writes a session.
    """

    @classmethod
    def of(cls, data: SessionData) -> Self:
        """Return a session with the content of ``data``, and compute missing peaks."""
        session = cls(**{name: getattr(data, name) for name in data.__struct_fields__})
        if any(is_memory(name) and name not in session.peaks for name in session.samples):
            session.peaks = peaks(session) | session.peaks
        return session

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a session, or a journal (the file that is written during a recording). Both may be gzipped.

        Raises SessionFileError, which names the file, the place and the expected value.
        """
        return cls.of(load(path))

    def once(self, compute: Callable[[Self], _Value]) -> _Value:
        """Return the result of ``compute`` for this session.

        Compute again only after a part of the session was replaced.
        """
        parts = [self.marks, self.samples, self.processes, self.snapshots, self.rss_peak]
        key = compute, len(self.marks), *map(id, [self, *parts])
        if key not in self.unsaved.figures:
            self.unsaved.figures[key] = parts, compute(self)
        return cast("_Value", self.unsaved.figures[key][1])

    @property
    def operations(self) -> list[Operation]:
        """The marked operations with the memory and CPU time of each, in the order of their starts."""
        return list(self.once(_find_operations)[0])

    @property
    def peak_place(self) -> PeakPlace | None:
        """The moment and the operation of the RSS peak; None if the moment is unknown."""
        return self.once(_find_operations)[1]

    @property
    def phases(self) -> list[Operation]:
        """The former name of ``operations``."""
        return self.operations

    def to_pandas(self) -> pd.DataFrame:
        """Return the samples as a table with a column per metric.

        The index is the seconds since the start (``time_s``).

        Bytes and counts are nullable integers (``Int64``, with ``<NA>`` for unknown); seconds are floats (NaN).
        """
        import pandas as pd

        index = pd.Index(self.samples.time_s, name="time_s", dtype=float)
        columns = {name: self.samples[name] for name in self.samples.metrics}
        table: pd.DataFrame = pd.DataFrame(columns, index=index, dtype=float)
        for name, values in columns.items():
            if are_whole(name, values) and self.samples.figures(name).highest < intake.LARGEST:
                table[name] = table[name].round().astype("Int64")
        return table

    def save(self, path: str | os.PathLike[str]) -> pathlib.Path:
        """Write the session, gzipped if the name ends in ``.gz``, and return the path.

        The file appears complete or not at all. If the loaded file had keys that this version does not know, the keys
        are kept. Raises OSError.
        """
        return save(self, path)
