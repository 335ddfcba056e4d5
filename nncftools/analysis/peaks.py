"""Computes peaks, and values of a metric between two moments, from samples and the kernel's high-water marks.

A high-water mark is the largest RSS of a process so far. ``peaks`` computes the peaks of a session for reports, gates
and merged ranks. A view of a running recording calls ``raise_peak`` for each new sample and each new high-water mark.
Times are seconds since the start, sizes are bytes, None is unknown.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from math import inf, isnan, nextafter
from typing import NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from nncftools.metrics import ONCE_PER_MACHINE, is_memory
from nncftools.metrics import of as metric_of
from nncftools.session.model import (
    LateReadings,
    Mark,
    OwnMemory,
    Peak,
    Process,
    ProcessTable,
    RankRun,
    Rise,
    SessionData,
)
from nncftools.session.samples import Samples, drift, first_at_least, noise

_Struct = TypeVar("_Struct", bound=Struct)
_MOMENTS = ("at_s", "rose_from_s", "rose_to_s")
"""The fields of a peak that are moments."""
SAMPLED = "sampled"
HIGH_WATER_MARK = "high_water_mark"
READING = "reading"
CPU = "cpu"
"""The column of CPU time. If this column was not recorded, it is the sum of the counters of CPU time."""
RSS = "rss"
RATE_WINDOW_S = 0.2
"""The least time over which a rate is measured. CPU time has ticks of 10 ms: over a shorter time, the ticks dominate.
"""


class PeakCandidate(NamedTuple):
    """A size of memory that was reached between two moments."""

    level: int
    """The size in bytes that memory certainly reached."""
    likely: int
    """The size in bytes that memory probably reached. Never below ``level``, the size that memory certainly reached."""
    from_s: float | None
    to_s: float | None
    process: int | None = None
    """The ``id`` of the process whose high-water mark proves the size. None for any other proof, such as a sample of
    the whole process tree."""


class PeakSoFar(NamedTuple):
    """The highest value of a metric so far in a running recording."""

    highest: PeakCandidate
    first: PeakCandidate
    """The first size within noise (1 %, at least 1 MiB) of the highest value. The time of this size is the time of the
    peak."""
    operation: str | None = None
    """The outermost operation with the peak; empty if the peak is outside all operations. None if the operation is not
    known yet, and must be found by the moment of the peak."""

    @property
    def value(self) -> int:
        """The highest size in bytes that memory certainly reached."""
        return self.highest.level

    @property
    def at_s(self) -> float | None:
        """The middle of the time in which memory first came near the peak. None if the time is unknown."""
        first = self.first
        return None if first.to_s is None else ((first.from_s or 0.0) + first.to_s) / 2


def raise_peak(peak: PeakSoFar | None, candidate: PeakCandidate) -> PeakSoFar:
    """Return the peak, raised to ``candidate`` if the candidate is higher."""
    if peak is None:
        return PeakSoFar(candidate, candidate)
    highest = candidate if candidate.level > peak.value else peak.highest
    return PeakSoFar(highest, find_highest([peak.first, peak.highest, candidate])[2])


def peaks(session: SessionData) -> dict[str, Peak]:
    """Return the peak of every memory metric that was recorded.

    PSS and USS are never above RSS, so the upper bound of the RSS peak is also their upper bound.
    """
    names = [name for name in session.samples.metrics if is_memory(name)]
    if session.ranks:
        return {name: _merge_peaks(name, session.samples, session.ranks) for name in names}
    late = session.late.by_time()
    by_name = {name: sampled_peak(name, session.samples, late) for name in names}
    if RSS in by_name:
        by_name[RSS] = rss_peak(session)
        for name in ("pss", "uss"):
            if name in by_name and by_name[name].low is not None:
                peak = _shift_to_count(by_name[name], session.samples)
                by_name[name] = replace(peak, high=by_name[RSS].high)
    return by_name


def rss_peak(session: SessionData) -> Peak:
    """Return the peak of RSS, by samples, high-water marks, and readings for the floor and for operations.

    A high-water mark also covers memory between two samples. The peak was at least the high-water mark of any process.
    The peak was at most the sum of the high-water marks of processes that lived at the same time. The command inherits
    the sampler's own ``ru_maxrss`` over fork and exec (getrusage(2)). If a sample was read late, memory may have risen
    at any time until the end of the reading.
    """
    processes = session.processes
    floor = session.sampler.peak_rss or 0
    high = MostHeld(bound_processes(processes)).find_most()
    if high is not None and find_unseen_mark(processes, floor):
        # In the sum, the mark of an unseen process has replaced the command's own mark.
        high += _largest_mark(processes)
    sampled = sampled_peak(RSS, session.samples, session.late.by_time())
    candidates = [*_prove_by_marks(processes, floor), *read_tree(session.marks)]
    peak = _bracket_peak(sampled, candidates, high or None)
    reading = session.floor
    low = peak.low or 0
    if reading is None or reading.rss is None or reading.rss <= low + noise(low):
        return peak
    later = PeakCandidate(reading.rss, reading.rss, reading.at_s, reading.at_s)
    peak = _bracket_peak(peak, [later], peak.high)
    return replace(peak, low_from=READING)


def _merge_peaks(name: str, samples: Samples, ranks: Sequence[RankRun]) -> Peak:
    """Return the peak of the sum of all ranks.

    The peak is at least the peak of any rank, and at most the sum of the upper bounds of all ranks.
    """
    peak = sampled_peak(name, samples)
    if peak.sampled is None or is_once_per_machine(name):
        return peak
    candidates = []
    spans: list[HeldSpan] = []
    for rank in ranks:
        high = None
        if name in rank.peaks:
            rank_peak = rank.peaks[name]
            low = rank_peak.low or 0
            candidates.append(PeakCandidate(low, low, rank_peak.rose_from_s, rank_peak.rose_to_s))
            high = None if rank.finished is False else rank_peak.high
        spans.append((rank.start_s, rank.start_s + rank.duration_s, high))
    return _bracket_peak(peak, candidates, MostHeld(spans).find_most())


def is_once_per_machine(name: str) -> bool:
    """Return whether a metric belongs to the machine, so that the value is equal for all ranks of the machine."""
    metric = metric_of(name)
    return metric is not None and metric.merging == ONCE_PER_MACHINE


def sampled_peak(name: str, samples: Samples, late: Mapping[float, float] | None = None) -> Peak:
    """Return the peak of a metric by samples alone.

    ``late`` has the start and the end of each sample that was read late: ``{start_s: end_s}``.
    """
    figures = samples.figures(name)
    if not figures.known:
        return Peak(sampled=None, at_s=None, low=None)
    reached_s = samples.time_s[find_near_peak(samples[name], figures.highest)]
    return Peak(
        sampled=int(figures.highest),
        at_s=reached_s,
        low=int(figures.highest),
        low_from=SAMPLED,
        rose_from_s=reached_s,
        rose_to_s=(late or {}).get(reached_s, reached_s),
    )


def find_near_peak(values: Sequence[float], highest: float) -> int:
    """Return the index of the first value within ``noise(highest)`` (1 %, at least 1 MiB) of the highest value."""
    return first_at_least(values, highest - noise(highest))


def _shift_to_count(peak: Peak, samples: Samples) -> Peak:
    """Move a peak of PSS or USS to the moment at which PSS was counted. This may be earlier than the sample."""
    if "pss_age" not in samples or peak.at_s is None:
        return peak
    age_s = samples["pss_age"][bisect_left(samples.time_s, peak.at_s)]
    return peak if isnan(age_s) else shift_moments(peak, -age_s)


def shift_moments(record: _Struct, by_s: float, names: Sequence[str] = _MOMENTS) -> _Struct:
    """Return a copy of a record. The fields in ``names``, which are times, are increased by ``by_s`` seconds.

    The default fields are the times of a ``Peak``. None stays None.
    """
    moments = {}
    for name in names:
        at_s = getattr(record, name)
        moments[name] = None if at_s is None else at_s + by_s
    return replace(record, **moments)


def _bracket_peak(peak: Peak, candidates: Sequence[PeakCandidate], high: int | None) -> Peak:
    """Return a sampled peak, raised to the highest of ``candidates``, with the upper bound ``high``."""
    sampled = PeakCandidate(peak.low or 0, peak.low or 0, peak.rose_from_s, peak.rose_to_s)
    low, likely, first = find_highest([sampled, *candidates])
    if low > sampled.level:
        peak = replace(peak, low=low, low_from=HIGH_WATER_MARK)
    return replace(
        peak,
        rose_from_s=first.from_s,
        rose_to_s=first.to_s,
        process=first.process,
        likely=likely if likely > low else None,
        high=None if high is None else max(high, low),
    )


def find_highest(candidates: Sequence[PeakCandidate]) -> tuple[int, int, PeakCandidate]:
    """Return the largest ``level`` and the largest ``likely`` of all candidates (both in bytes), and a candidate.

    The returned candidate is the earliest candidate whose ``likely`` is almost the largest (within 1 %, at least
    1 MiB). A candidate without a time is only returned if no candidate with a time is so large.
    """
    low = max(candidate.level for candidate in candidates)
    likely = max(candidate.likely for candidate in candidates)
    enough = likely - noise(likely)

    def order(candidate: PeakCandidate) -> tuple[bool, float, float]:
        return candidate.to_s is None, candidate.to_s or 0.0, -(candidate.from_s or 0.0)

    first = min((candidate for candidate in candidates if candidate.likely >= enough), key=order)
    return low, likely, first


def rise_candidate(rise: Rise, process: int) -> PeakCandidate:
    """Return the memory that the whole process tree must have held, because a process's high-water mark rose."""
    certain = rise.high_water_mark + rise.others
    likely = max(certain, rise.high_water_mark + rise.others_around)
    return PeakCandidate(certain, likely, rise.from_s, rise.to_s, process=process)


def _prove_by_marks(processes: Iterable[Process], floor: int) -> Iterator[PeakCandidate]:
    """Yield the sizes that memory certainly reached, because high-water marks of processes prove these sizes.

    The times of a candidate are the start and the end of the rise that reached the high-water mark. If no such rise was
    recorded, the times are the start and the end of the process. If a sample shows almost the same size, the times are
    None, because the sample has a more exact time.

    ``floor`` is the high-water mark of the sampler: the command inherits this mark, so a mark up to ``floor`` proves
    nothing about the command.
    """
    for process in processes:
        for rise in process.rises:
            yield rise_candidate(rise, process.id)
        mark = process.high_water_mark or 0
        if mark > max((rise.high_water_mark for rise in process.rises), default=0):
            life = (None, None) if is_mark_explained(process) else (process.start_s, process.end_s)
            yield PeakCandidate(mark, mark, *life, process=process.id)
        limit = mark_of_tree(process, floor)
        if limit:
            yield PeakCandidate(limit, limit, process.start_s, process.end_s)


def find_unseen_mark(processes: Sequence[Process], floor: int) -> int:
    """Return the high-water mark of an unseen process (in no sample); 0 if there is no proof of such a process.

    The proof is that the command's ``ru_maxrss`` exceeds the high-water marks of all known processes.
    """
    limit = max((mark_of_tree(process, floor) for process in processes), default=0)
    largest = _largest_mark(processes)
    return limit if limit > largest + drift(largest) else 0


def _largest_mark(processes: Iterable[Process]) -> int:
    return max((process.high_water_mark or 0 for process in processes), default=0)


def is_mark_explained(process: Process) -> bool:
    """Return whether a rise or a sample shows when a process reached the high-water mark."""
    mark = process.high_water_mark or 0
    return 0 < mark - drift(mark) <= process.most_shown


def read_tree(marks: Iterable[Mark]) -> Iterator[PeakCandidate]:
    """Yield the memory of the whole tree, as read at the starts and ends of operations."""
    for mark in marks:
        for at_s, reading in _readings_of(mark):
            if reading.tree is None or reading.is_estimate:
                continue
            yield PeakCandidate(
                reading.tree if reading.tree_low is None else reading.tree_low, reading.tree, at_s, at_s
            )


def _readings_of(mark: Mark) -> Iterator[tuple[float, OwnMemory]]:
    """Yield time and memory of the readings at the start and the end of an operation."""
    if mark.own_start is not None:
        yield mark.start_s, mark.own_start
    if mark.own_end is not None and mark.end_s is not None:
        yield mark.end_s, mark.own_end


def mark_of_tree(process: Process, floor: int) -> int:
    """Return the largest high-water mark of the command and all descendants that were waited for; 0 if unknown.

    This is the ``ru_maxrss`` of the process that the recording started. For any other process, the result is 0. The
    result is also 0 if the sampler itself held as much (``floor``), because the command inherits the ``ru_maxrss`` of
    the sampler.
    """
    limit = process.high_water_limit or 0
    started_by_us = process.id == 0 and process.start_s is not None and process.start_s >= 0
    return limit if started_by_us and limit > floor else 0


HeldSpan = tuple[float | None, float | None, int | None]
"""``(begin, end, size)``: times in seconds, and the bytes that are held between the times. A begin or a size of None is
unknown. If the end is None, the memory is held until the end of the recording."""


class MostHeld:
    """The largest sum of sizes that are held at the same time.

    If a size ends at the moment at which another size begins, both count at this moment. If any begin or size is None,
    all sums are None.
    """

    def __init__(self, spans: Iterable[HeldSpan]) -> None:
        changes: list[tuple[float, int]] = []
        self._is_known = True
        for begin, end, size in spans:
            if begin is None or size is None:
                self._is_known = False
                return
            changes.append((begin, -size))
            changes.append((inf if end is None else end, size))
        changes.sort()
        self._times = [time for time, _ in changes]
        self._sums = list(accumulate((-size for _, size in changes), initial=0))

    def find_most(self, start_s: float = -inf, end_s: float = inf) -> int | None:
        """Return the largest sum of sizes held at a moment from ``start_s`` to ``end_s``, in bytes; None if unknown.

        The later time may also be given first.
        """
        if not self._is_known:
            return None
        first = bisect_left(self._times, min(start_s, end_s))
        last = bisect_right(self._times, max(start_s, end_s))
        return max(self._sums[first : last + 1])


def bound_processes(processes: Sequence[Process]) -> Iterator[HeldSpan]:
    """Yield begin and end of each process, and the most memory that the process may have held."""
    table = ProcessTable(processes)
    for process in processes:
        yield process.start_s, process.end_s, _bound_memory(process, table)


def _bound_memory(process: Process, table: ProcessTable) -> int | None:
    """Return the most memory in bytes that a process may have held; None if unknown.

    For a process that was still running at the end of the recording, the result is the high-water mark. Otherwise, the
    result is the ``ru_maxrss`` of the process. If this ``ru_maxrss`` is unknown, the result is the ``ru_maxrss`` of the
    nearest ancestor. This value is an upper bound, because ``ru_maxrss`` also covers all descendants that were waited
    for.
    """
    if process.end_s is None and process.high_water_mark is not None:
        return process.high_water_mark
    limits = (above.high_water_limit for above in table.upwards(process))
    return next((limit for limit in limits if limit is not None), None)


Readings = Sequence[tuple[float, int]]
"""High-water marks of a process, sorted by time: ``[(seconds since the start, bytes), …]``."""


def narrow(session: SessionData) -> None:
    """Narrow the times in which high-water marks rose, and then the time of the RSS peak.

    Processes read their high-water marks at starts and ends of operations. A reading shows whether a mark had
    already risen.
    """
    if RSS not in session.peaks:
        return
    by_pid: dict[int | None, list[tuple[float, int]]] = {}
    for mark in session.marks:
        for at_s, reading in _readings_of(mark):
            if reading.high_water_mark is not None:
                by_pid.setdefault(mark.pid, []).append((at_s, reading.high_water_mark))
    for process in session.processes:
        until_s = session.duration_s if process.end_s is None else min(process.end_s, session.duration_s)
        readings = []
        for at_s, size in sorted(by_pid.get(process.pid, ())):
            if (process.start_s or 0.0) <= at_s <= until_s:  # the kernel may have given the PID to another process
                readings.append((at_s, size))
        if readings:
            process.rises = [_narrow_rise(rise, readings) for rise in process.rises]
            process.rises += _find_unrecorded(process, readings)
    session.peaks[RSS] = rss_peak(session)


def _find_unrecorded(process: Process, readings: Readings) -> Iterator[Rise]:
    """Yield the rise to the highest high-water mark that a process read of itself.

    Nothing is yielded if a sample or another rise shows this mark.
    """
    highest = max(mark for _, mark in readings)
    risen = highest - drift(highest)
    if process.most_shown < risen:
        to_s = min(at_s for at_s, mark in readings if mark >= risen)
        lower_s = [at_s for at_s, mark in readings if mark < risen]
        from_s = max((at_s for at_s in lower_s if at_s < to_s), default=None)
        if from_s is not None:
            yield Rise(from_s=from_s, to_s=to_s, high_water_mark=highest)


def _narrow_rise(rise: Rise, readings: Readings) -> Rise:
    risen = rise.high_water_mark - drift(rise.high_water_mark)
    limit = rise.high_water_mark + drift(rise.high_water_mark)  # a program before exec may have had a higher mark
    from_s = rise.from_s
    to_s = rise.to_s
    for at_s, mark in reversed(readings):
        if rise.from_s <= at_s <= rise.to_s and risen <= mark <= limit:
            to_s = at_s
    for at_s, mark in readings:
        if rise.from_s <= at_s <= rise.to_s and mark < risen:
            from_s = at_s
    return replace(rise, from_s=from_s, to_s=to_s) if from_s <= to_s else rise


class Bracket(NamedTuple):
    """The bounds of a peak, and of the moment of the peak. ``high`` is None if the upper bound is unknown."""

    low: float
    high: float | None
    from_s: float
    to_s: float
    likely: float | None = None
    """The best estimate of the peak, at least ``low``; None if equal to ``low``."""
    likely_high: float | None = None
    """As ``high``, but a process that had stopped growing before its end counts with the known high-water mark."""


class Figures(NamedTuple):
    """The values of a metric during an operation, in the unit of the metric. None is unknown."""

    start: float | None = None
    """The value at the start of the operation. For RSS, the value is a reading at the start, if there is a reading.
    Otherwise, the value is from the sample that the start triggered, or else from the last sample before."""
    end: float | None = None
    """The value at the end of the operation, from a reading at the end or from a sample."""
    peak: Bracket | None = None
    """The bounds of the largest value during the operation. The lower bound is the largest sample. For RSS, the lower
    bound is higher if a high-water mark proves more memory."""
    spent: float | None = None
    """The growth of a counter (such as CPU time) during the operation. None if the metric is not a counter, or if the
    growth is unknown."""
    start_is_estimate: bool = False
    """Whether memory changed around the start, and ``start`` is from a sample, not from a reading at the start
    itself."""
    end_is_estimate: bool = False

    @property
    def peak_low(self) -> float | None:
        """The lower bound of the largest value during the operation; None if unknown."""
        return None if self.peak is None else self.peak.low

    @property
    def delta(self) -> float | None:
        """``end`` minus ``start``; None if ``start`` or ``end`` is unknown."""
        return None if self.start is None or self.end is None else self.end - self.start

    @property
    def delta_is_estimate(self) -> bool:
        """Whether ``start`` or ``end`` is an estimate."""
        return self.start_is_estimate or self.end_is_estimate


UNKNOWN = Figures()
_TRIGGERED = 0.2
"""A mark (start or end of an operation) has triggered the next sample if the sample came quickly: after at most this
share of the time between the two samples around the mark."""
_KEPT = 4
"""The number of results that the caches of ``Timeline`` keep: for the start and the end of an operation, and of the
parent."""


class Timeline:
    """The times of samples. The last results are kept, because each column asks for the same moments."""

    def __init__(self, times: Sequence[float]) -> None:
        self.times = times
        self.find_after = lru_cache(_KEPT)(self._find_after)
        self.locate = lru_cache(_KEPT)(self._locate)

    def _find_after(self, at_s: float) -> int:
        """Return the index after the last sample up to a moment.

        If the start or the end of an operation at this moment triggered a sample, this sample is included.
        """
        after = bisect_right(self.times, at_s)
        return after + self.is_triggered(at_s, after)

    def _locate(self, at_s: float) -> tuple[int, int, float]:
        """Return the indexes of two samples around a moment, and the moment's share of the time between the samples.

        If the start or the end of an operation at this moment triggered a sample, both indexes are of this sample.
        """
        after = bisect_left(self.times, at_s)
        if after in {0, len(self.times)}:
            edge = min(after, len(self.times) - 1)
            return edge, edge, 0.0
        if self.is_triggered(at_s, after):
            return after, after, 0.0
        passed_s = at_s - self.times[after - 1]
        return after - 1, after, passed_s / self._distance_to(after)

    def is_triggered(self, at_s: float, after: int) -> bool:
        """Return whether a mark (start or end of an operation) at ``at_s`` triggered the next sample.

        ``after`` is the index of this sample.
        """
        if not 0 < after < len(self.times):
            return False
        return self.times[after] - at_s <= _TRIGGERED * self._distance_to(after)

    def read_until(self, at_s: float) -> float:
        """Return the time by which the sample that a mark at ``at_s`` triggered was certainly complete.

        A mark is the start or the end of an operation. If the mark triggered no sample, because the next sample came
        too late, return ``at_s``.
        """
        after = bisect_right(self.times, at_s)
        if not self.is_triggered(at_s, after):
            return at_s
        return self.times[after] + _TRIGGERED * self._distance_to(after)

    def _distance_to(self, index: int) -> float:
        return self.times[index] - self.times[index - 1]


class Column:
    """The samples in which a metric is known."""

    def __init__(self, timeline: Timeline, values: Sequence[float], late: LateReadings | None = None) -> None:
        """Keep the samples with a known value; ``late`` lists the samples that were read late."""
        self._read_s = {} if late is None else late.by_time()
        if isnan(sum(values)):
            known = [index for index, value in enumerate(values) if not isnan(value)]
            timeline = Timeline([timeline.times[index] for index in known])
            values = [values[index] for index in known]
        self.timeline = timeline
        self.times = timeline.times
        self.readings = values

    def measure_level(self, start_s: float, end_s: float, *, until_triggered: bool = True) -> Figures:
        """Return the values (start, end, peak) of a gauge (a metric that can fall, such as RSS) between two moments.

        By default, a sample that was triggered by the end of an operation at ``end_s`` counts.
        """
        if not self.times:
            return UNKNOWN
        timeline = self.timeline
        first = bisect_left(self.times, start_s)
        after = timeline.find_after(end_s) if until_triggered else bisect_right(self.times, end_s)
        start = self.readings[max(0, timeline.find_after(start_s) - 1)]
        end = self.readings[max(0, after - 1)]
        if self._read_s and after > first:
            read_s = self._read_s.get(self.times[after - 1], end_s)
            after -= read_s > end_s  # a late sample shows memory after the end
        values = self.readings[first:after]
        if not values:
            return Figures(start, end)
        highest = max(values)
        at_s = self.times[first + find_near_peak(values, highest)]
        return Figures(start, end, Bracket(highest, None, at_s, at_s))

    def level_at(self, at_s: float) -> tuple[float | None, bool]:
        """Return the value of the metric at a moment, and whether the samples around the moment differ.

        If a mark (start or end of an operation) at this moment triggered a sample, the value is from this sample.
        Otherwise, the value is from the last sample before.
        """
        if not self.times:
            return None, False
        after = bisect_right(self.times, at_s)
        values = self.readings[max(0, after - 1) : after + 1]
        value = self.readings[max(0, self.timeline.find_after(at_s) - 1)]
        return value, max(values) - min(values) > noise(value)

    def measure_growth(self, start_s: float, end_s: float) -> Figures:
        """Return the growth of a counter between two moments, in ``Figures.spent``."""
        return Figures(spent=self._interpolate(end_s) - self._interpolate(start_s)) if self.times else UNKNOWN

    def highest_rate(self, start_s: float, end_s: float) -> float | None:
        """Return the highest rate per second of a counter between two moments, measured over at least 0.2 s.

        None if no two samples between the moments are at least 0.2 s apart.
        """
        rates = []
        for begin, end in pairwise(pick_spaced(self.times, RATE_WINDOW_S, start_s, end_s)):
            rise = self.readings[end] - self.readings[begin]
            rates.append(rise / (self.times[end] - self.times[begin]))
        if not rates:
            return None
        average = (self._interpolate(end_s) - self._interpolate(start_s)) / (end_s - start_s)
        return max([*rates, average])

    def _interpolate(self, at_s: float) -> float:
        first, second, share = self.timeline.locate(at_s)
        value = self.readings[first]
        return value + share * (self.readings[second] - value)


def pick_spaced(times: Sequence[float], distance_s: float, start_s: float = -inf, end_s: float = inf) -> Iterator[int]:
    """Yield indexes of samples between two moments, with at least ``distance_s`` between two samples."""
    row = bisect_left(times, start_s)
    stop = bisect_right(times, end_s)
    while row < stop:
        yield row
        next_s = max(times[row] + distance_s, nextafter(times[row], inf))
        row += 1
        if row < stop and times[row] < next_s:  # most samples are far enough apart, and need no search
            row = bisect_left(times, next_s, row)
