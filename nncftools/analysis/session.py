"""The session as an object: one recorded run with its operations, what each of them cost, and the place of its peak."""

from __future__ import annotations

import heapq
import os
import pathlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING, TypeVar, cast

import msgspec
from msgspec.structs import replace

from nncftools import intake, metrics
from nncftools.analysis.operation import CPU, RSS, Bracket, Column, Figures, LazyMapping, Operation, figures_of
from nncftools.analysis.peaks import (
    HeldSpan,
    MostHeld,
    PeakCandidate,
    PeakPlace,
    held_at_most,
    highest,
    is_mark_explained,
    peaks,
    place_of,
    raised_to,
    read_at_marks,
    rise_candidate,
    unseen_mark,
)
from nncftools.metrics import is_memory
from nncftools.session.model import END_UNKNOWN, Mark, OwnMemory, Process, ProcessTable, SessionData
from nncftools.session.nesting import TICK_S, parents, with_ends
from nncftools.session.samples import are_whole, noise
from nncftools.session.session import load, save

if TYPE_CHECKING:
    import pandas as pd
    from typing_extensions import Self


@dataclass
class _Running:
    """The operations of one process that go on."""

    parallel_ends: list[float] = field(default_factory=list)
    """When those that are parallel end, as a heap."""
    nested: list[Operation] = field(default_factory=list)
    """The others, each inside of the one before."""


def find_parallel(operations: Sequence[Operation]) -> None:
    """Set ``is_parallel`` of operations, which are in the order of their starts.

    Two are parallel if they share some time and their process, and neither is around the other. Calls that are counted
    together are left out: their span does not say when they ran.
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


def operations(session: SessionData) -> tuple[list[Operation], PeakPlace | None]:
    """Return the operations of a session in the order of their starts, and where its RSS peak belongs."""
    figures = _FiguresOf(session)
    ended = with_ends(session.marks, session)
    listed: list[Operation] = []
    for (mark, end_s), parent in zip(ended, parents(ended), strict=True):
        listed.append(figures.operation(mark, end_s, None if parent is None else listed[parent]))
    find_parallel(listed)
    peak = session.rss_peak
    gaps = _gaps(ended, session, figures, shortest_s=0.0)
    at_peak = place_of(peak, listed, session.processes, session.duration_s, gaps)
    if at_peak is not None:
        for operation in (*at_peak.either, *at_peak.rivals):
            for around in (operation, *operation.ancestors):
                if around.error != END_UNKNOWN:
                    around.has_peak = None
        for operation in at_peak.path:
            operation.has_peak = True
            operation.figures = _with_peak(operation.figures, peak.low or 0)
    return listed, at_peak


def _with_peak(figures: Mapping[str, Figures], low: int) -> Mapping[str, Figures]:
    """Return the figures of an operation that holds the peak of the run, which is its own, without their drift."""

    def raised(name: str) -> Figures:
        known = figures[name]
        return known if name != RSS or known.peak is None else known._replace(peak=raised_to(known.peak, low))

    return LazyMapping(figures, raised)


def unmarked(session: SessionData, shortest_s: float) -> list[Operation]:
    """Return the times of at least ``shortest_s`` that no operation covers, as operations without a name."""
    return list(_gaps(with_ends(session.marks, session), session, _FiguresOf(session), shortest_s))


def _gaps(
    ended: Sequence[tuple[Mark, float]], session: SessionData, figures: _FiguresOf, shortest_s: float
) -> Iterator[Operation]:
    free_from_s, before = 0.0, None
    last = Mark(name="", start_s=session.duration_s)
    for mark, end_s in [*ended, (last, session.duration_s)]:
        if 0 < mark.start_s - free_from_s >= shortest_s:
            gap = Mark(name="", start_s=free_from_s, own_start=before, own_end=_of_tree(mark.own_start))
            yield figures.operation(gap, mark.start_s)
        if end_s >= free_from_s:
            free_from_s, before = end_s, _of_tree(mark.own_end)


def _of_tree(own: OwnMemory | None) -> OwnMemory | None:
    """Return what was read of the whole tree, without what a process read of itself."""
    return None if own is None else replace(own, rss=None, high_water_mark=None)


_FASTEST = 2 << 30
"""Bytes per second: a process seldom takes memory faster."""


def _marks(session: SessionData) -> Iterator[HeldSpan]:
    """Yield begin and end of each process, and its high-water mark.

    To that of a process that ended, add the memory that it can have taken after its last sample.
    """
    times, table = session.samples.time_s, ProcessTable(session.processes)
    for process, (start_s, end_s, limit) in zip(session.processes, held_at_most(session.processes), strict=True):
        if limit is None or end_s is None:
            yield start_s, end_s, limit
            continue
        mark = process.most_memory
        above = table.by_id.get(process.parent)
        if not process.samples and process.forked_copy and above is not None:
            mark = above.high_water_mark or 0  # it began with the memory of its parent
        sampled = bisect_left(times, end_s) if process.samples else 0
        unseen_s = end_s - max(start_s or 0.0, times[sampled - 1] if sampled else 0.0)
        yield start_s, end_s, min(limit, mark + int(_FASTEST * unseen_s))


_BLOCK = 1024
"""Samples in a block. One maximum for each of 2,000,000 samples would take 16 MiB and more."""


def _end_of(reached: PeakCandidate) -> float:
    return reached.to_s or 0.0


def _is_end_read(mark: Mark) -> bool:
    return mark.own_end is not None and mark.own_end.tree is not None


class _FiguresOf:
    """Computes the figures of a session's operations."""

    def __init__(self, session: SessionData) -> None:
        self._columns = _columns(session)
        self._rss = self._columns[RSS] if RSS in self._columns else Column((), ())  # a wrong figure is found here
        self._unknown = {device.device for device in session.devices if device.missing is not None}
        self._duration_s = session.duration_s
        self._held = MostHeld(_marks(session))
        self._unseen = unseen_mark(session.processes, session.sampler.peak_rss or 0)
        self._table = ProcessTable(session.processes)
        explained = filter(is_mark_explained, session.processes)
        self._largest = max(explained, key=lambda process: process.high_water_mark or 0, default=None)
        self._rises = sorted(
            (rise_candidate(rise, process.id) for process in session.processes for rise in process.rises),
            key=_end_of,
        )
        self._read = sorted(read_at_marks(session.marks), key=_end_of)
        self._read_s = [*map(_end_of, self._read)]
        self._rise_ends = [*map(_end_of, self._rises)]
        self._computing = LazyMapping(self._columns, self._computing_of)

    @cached_property
    def _highest(self) -> list[float]:
        """For each block of samples, the largest value before it."""
        values = self._rss.readings
        blocks = (max(values[first : first + _BLOCK]) for first in range(0, len(values), _BLOCK))
        return [0.0, *accumulate(blocks, max)]

    def operation(self, mark: Mark, end_s: float, parent: Operation | None = None) -> Operation:
        process = self._table.at(mark.pid, mark.start_s + TICK_S)
        operation = Operation(
            **{**msgspec.structs.asdict(mark), "end_s": end_s},
            parent=parent,
            process=None if process is None else process.id,
        )

        def figures(name: str) -> Figures:
            known = self._computing[name](operation)
            if mark.error == END_UNKNOWN:
                return Figures(known.start, start_is_estimate=known.start_is_estimate)
            return known

        def rate(name: str) -> float | None:
            is_known = mark.error != END_UNKNOWN and metrics.is_counter(name)
            return self._columns[name].highest_rate(mark.start_s, end_s) if is_known else None

        operation.figures = LazyMapping(self._columns, figures)
        operation.rates = LazyMapping(self._columns, rate)
        return operation

    def _computing_of(self, name: str) -> Callable[[Operation], Figures]:
        """Return the function that computes the figures of a column."""
        column = self._columns[name]
        if metrics.is_counter(name):
            return lambda of: column.counted(of.start_s, of.end_s)
        if name == RSS:
            return self._of_rss
        if metrics.name_of(name) not in metrics.OF_DEVICES:
            return lambda of: column.held(of.start_s, of.end_s)
        return lambda of: figures_of(name, of, of.end_s, column, self._unknown)

    def _of_rss(self, mark: Operation) -> Figures:
        """Return the samples, at both ends what was read there, and in the peak what marks prove."""
        end_s, process = mark.end_s, self._table.by_id.get(mark.process)
        sampled = self._rss.held(mark.start_s, end_s, until_triggered=not _is_end_read(mark))
        start, start_is_estimate = self._level(mark.own_start, mark.start_s)
        end, end_is_estimate = self._level(mark.own_end, end_s)
        reached = list(self._reached(mark, end_s, process))
        reached += self._read[bisect_left(self._read_s, mark.start_s) : bisect_right(self._read_s, end_s)]
        if sampled.peak is not None:
            low = int(sampled.peak.low)
            reached.append(PeakCandidate(low, low, sampled.peak.from_s, sampled.peak.to_s))
        is_known = bool(reached)
        for level, is_estimate, at_s in [(start, start_is_estimate, mark.start_s), (end, end_is_estimate, end_s)]:
            if level is not None:
                certain = 0 if is_estimate and is_known else int(level)
                reached.append(PeakCandidate(certain, int(level), at_s, at_s))
        figures = Figures(start, end, start_is_estimate=start_is_estimate, end_is_estimate=end_is_estimate)
        if not reached:
            return figures
        low, likely, first = highest(reached)
        high = self._at_most(mark, end_s, process)
        most = None if high is None else max(high, low)
        return figures._replace(peak=Bracket(low, most, first.from_s or 0.0, first.to_s or 0.0, likely))

    def _level(self, own: OwnMemory | None, at_s: float) -> tuple[float | None, bool]:
        """Return the memory of the tree at a mark, and whether it is an estimate: without a reading, from samples."""
        if own is not None and own.tree is not None:
            return own.tree, own.is_estimate or own.tree_low is not None
        size, is_estimate = self._rss.around(at_s)
        if size is not None and own is not None and own.rss is not None and own.rss > size:
            return own.rss, True
        return size, is_estimate

    def _at_most(self, mark: Mark, end_s: float, process: Process | None) -> int | None:
        """Return the sum of the high-water marks of all processes that lived during an operation; None for unknown.

        Of its own process, or else of the largest one, the mark at its end counts.
        """
        high = self._held.most(mark.start_s, end_s)
        if high is None:
            return None
        high += self._unseen
        own = None if mark.own_end is None else mark.own_end.high_water_mark
        if own is None:
            process, own = self._largest, self._mark_of_largest(mark.start_s, end_s)
        if own is None or process is None or process.high_water_mark is None:
            return high
        return high - max(0, process.high_water_mark - own)

    def _mark_of_largest(self, start_s: float, end_s: float) -> int | None:
        """Return the high-water mark of the largest process at ``end_s``; None if it did not live all the time.

        It is that of a rise, or no larger than the samples of the whole tree.
        """
        largest, column = self._largest, self._rss
        if largest is None or (largest.start_s or 0.0) > start_s or (largest.end_s or inf) < end_s or not column.times:
            return None
        after = bisect_right(column.times, end_s) + 1
        block = after // _BLOCK
        sampled = max([self._highest[block], *column.readings[block * _BLOCK : after]])
        rises = [rise.high_water_mark for rise in largest.rises if rise.from_s <= end_s]
        return max([int(sampled + noise(sampled)), *rises])

    def _reached(self, mark: Mark, end_s: float, process: Process | None) -> Iterator[PeakCandidate]:
        """Yield what the rises of marks prove that lie within an operation."""
        until_s = end_s if _is_end_read(mark) else self._rss.read_until(end_s)
        for rise in self._rises[bisect_left(self._rise_ends, mark.start_s) : bisect_right(self._rise_ends, until_s)]:
            if rise.from_s is not None and rise.from_s >= mark.start_s:
                yield rise
        own = mark.own_peak
        if own is not None and process is not None and end_s <= self._duration_s:
            yield PeakCandidate(own, own, mark.start_s, end_s, process.id)


def _columns(session: SessionData) -> Mapping[str, Column]:
    """Return the columns of a session, and ``cpu`` if CPU time is known."""
    samples = session.samples
    cpu_counters = metrics.cpu_counters(samples)

    def column(name: str) -> Column:
        if name != CPU:
            return Column(samples.time_s, samples[name], session.late if name == RSS else None)
        return Column(samples.time_s, array("d", map(sum, zip(*(samples[part] for part in cpu_counters), strict=True))))

    return LazyMapping([*samples.metrics, *([CPU] if cpu_counters else [])], column)


_Value = TypeVar("_Value")


class Session(SessionData):
    """One recorded run. Inside, everything is bytes and seconds; null is unknown, never 0.

    Load with ``Session.load(path)``, write with ``session.save(path)``.
    """

    @classmethod
    def of(cls, data: SessionData) -> Self:
        """Return the session with this content, and with the peaks that it does not know yet."""
        session = cls(**{name: getattr(data, name) for name in data.__struct_fields__})
        if any(is_memory(name) and name not in session.peaks for name in session.samples):
            session.peaks = peaks(session) | session.peaks
        return session

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a session or a journal, either also gzipped.

        Raises SessionFileError, which names the file, the place and what was expected.
        """
        return cls.of(load(path))

    def once(self, compute: Callable[[Self], _Value]) -> _Value:
        """Return what a function makes of this session; it is called again when one of these parts was replaced."""
        parts = [self.marks, self.samples, self.processes, self.snapshots, self.rss_peak]
        key = compute, len(self.marks), *map(id, [self, *parts])
        if key not in self.unsaved.figures:
            self.unsaved.figures[key] = parts, compute(self)
        return cast("_Value", self.unsaved.figures[key][1])

    @property
    def operations(self) -> list[Operation]:
        """The marked operations with their figures, in the order of their starts."""
        return list(self.once(operations)[0])

    @property
    def peak_place(self) -> PeakPlace | None:
        """The moment of the RSS peak and its operation; None when the moment is unknown."""
        return self.once(operations)[1]

    @property
    def phases(self) -> list[Operation]:
        """The same as ``operations``, by its former name."""
        return self.operations

    def to_pandas(self) -> pd.DataFrame:
        """Return the samples as a table: a column per metric, indexed by the seconds since the start (``time_s``).

        Bytes and counts are nullable integers (``Int64``, with ``<NA>`` for unknown), seconds are floats (NaN).
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
        """Write the session, gzipped when the name ends in ``.gz``, and return the path.

        The file appears whole or not at all. Keys of the loaded file that this version does not know are kept.
        Raises OSError.
        """
        return save(self, path)
