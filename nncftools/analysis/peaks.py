"""Peaks as brackets, in bytes and in time, from samples and the kernel's high-water marks.

Also the place of the RSS peak: its moment and its operation. Every output takes both from here.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from math import inf, isnan
from typing import NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from nncftools.analysis.operation import RSS, Bracket, Operation
from nncftools.metrics import is_memory
from nncftools.session.model import END_UNKNOWN, Mark, Peak, Process, ProcessTable, Rise, SessionData
from nncftools.session.samples import Samples, drift, first_at_least, noise

_Struct = TypeVar("_Struct", bound=Struct)
_MOMENTS = "at_s", "rose_from_s", "rose_to_s"
"""The moments of a peak."""
SAMPLED = "sampled"
HIGH_WATER_MARK = "high_water_mark"
ReadUntil = Mapping[float, float]
"""When samples were read that took long, by their times."""


class PeakCandidate(NamedTuple):
    """A level of memory in bytes that was reached between two moments."""

    level: int
    """This is certain."""
    likely: int
    """This is probable."""
    from_s: float | None
    """None for unknown."""
    to_s: float | None
    process: int | None = None
    """The process whose mark proves it; None for a sample of the whole tree."""


def peaks(session: SessionData) -> dict[str, Peak]:
    """Return the peak of every memory metric that was recorded.

    PSS and USS are never above RSS, and so never above the upper bound of its peak.
    """
    late = session.late.by_time()
    by_name = {name: sampled_peak(name, session.samples, late) for name in session.samples.metrics if is_memory(name)}
    if RSS in by_name:
        by_name[RSS] = rss_peak(session)
        for name in ("pss", "uss"):
            if name in by_name and by_name[name].low is not None:  # counted in some samples only
                by_name[name] = replace(_when_counted(by_name[name], session.samples), high=by_name[RSS].high)
    return by_name


def rss_peak(session: SessionData) -> Peak:
    """Return the peak of RSS by all that a session knows: samples, high-water marks, and what was read at marks.

    It was at least the high-water mark of any one process: a mark also covers what came and went between two samples.
    It was at most the sum of the marks of processes that lived at the same time. The command inherits what the sampler
    itself held in its ``ru_maxrss`` over fork and exec (getrusage(2)). A late sample shows what rose until it was read.
    """
    processes, floor = session.processes, session.sampler.peak_rss or 0
    high = MostHeld(held_at_most(processes)).most()
    if high is not None and unseen_mark(processes, floor):  # it is part of the sum, instead of the command's own
        high += _largest_mark(processes)
    sampled = sampled_peak(RSS, session.samples, session.late.by_time())
    return bracketed(sampled, [*reached_by_marks(processes, floor), *read_at_marks(session.marks)], high or None)


def sampled_peak(name: str, samples: Samples, late: ReadUntil | None = None) -> Peak:
    """Return the peak of a metric as far as samples show it."""
    figures = samples.figures(name)
    if not figures.known:
        return Peak(sampled=None, at_s=None, low=None)
    values, highest = samples[name], figures.highest
    reached_s = samples.time_s[first_at_least(values, highest - noise(highest))]
    return Peak(
        sampled=int(highest),
        at_s=reached_s,
        low=int(highest),
        low_from=SAMPLED,
        rose_from_s=reached_s,
        rose_to_s=(late or {}).get(reached_s, reached_s),
    )


def _when_counted(peak: Peak, samples: Samples) -> Peak:
    """Return a peak with the moment at which it was counted: a sample may show that later."""
    if "pss_age" not in samples or peak.at_s is None:
        return peak
    age_s = samples["pss_age"][bisect_left(samples.time_s, peak.at_s)]
    return peak if isnan(age_s) else moved(peak, -age_s)


def moved(record: _Struct, by_s: float, names: Sequence[str] = _MOMENTS) -> _Struct:
    """Return a peak, or another record with other ``names``, with its moments ``by_s`` seconds later."""
    moments = {name: getattr(record, name) for name in names}
    return replace(record, **{name: None if at_s is None else at_s + by_s for name, at_s in moments.items()})


def bracketed(peak: Peak, reached: Iterable[PeakCandidate], high: int | None) -> Peak:
    """Return a sampled peak that was also at least what was ``reached``, and at most ``high``, None for unknown."""
    by_marks = list(reached)
    if by_marks:
        sampled = PeakCandidate(peak.low or 0, peak.low or 0, peak.rose_from_s, peak.rose_to_s)
        low, likely, first = highest([sampled, *by_marks])
        if low > sampled.level:
            peak = replace(peak, low=low, low_from=HIGH_WATER_MARK)
        peak = replace(
            peak,
            rose_from_s=first.from_s,
            rose_to_s=first.to_s,
            process=first.process,
            likely=likely if likely > low else None,
        )
    return replace(peak, high=None if high is None else max(high, peak.low or 0))


def highest(reached: Sequence[PeakCandidate]) -> tuple[int, int, PeakCandidate]:
    """Return the highest level that is certain, the highest that is likely, and what probably came near that first.

    Near is within ``noise``. What has a known moment comes first.
    """
    low = max(candidate.level for candidate in reached)
    likely = max(candidate.likely for candidate in reached)
    enough = likely - noise(likely)
    first = min(
        (candidate for candidate in reached if candidate.likely >= enough),
        key=lambda candidate: (candidate.to_s is None, candidate.to_s, -(candidate.from_s or 0.0)),
    )
    return low, likely, first


def rise_candidate(rise: Rise, process: int) -> PeakCandidate:
    """Return what the rise of a process's mark says about the whole tree."""
    certain = rise.high_water_mark + rise.others
    return PeakCandidate(
        certain, max(certain, rise.high_water_mark + rise.others_around), rise.from_s, rise.to_s, process
    )


def reached_by_marks(processes: Iterable[Process], floor: int) -> Iterator[PeakCandidate]:
    """Yield what the processes' marks prove, each with the time between whose ends the mark rose.

    A mark that no rise explains is close to a sample of its process, or rose at an unknown moment of its life.
    """
    for process in processes:
        for rise in process.rises:
            yield rise_candidate(rise, process.id)
        mark = process.high_water_mark or 0
        if mark > max((rise.high_water_mark for rise in process.rises), default=0):
            life = (None, None) if is_mark_explained(process) else (process.start_s, process.end_s)
            yield PeakCandidate(mark, mark, *life, process.id)
        if limit := mark_of_tree(process, floor):
            yield PeakCandidate(limit, limit, process.start_s, process.end_s)


def unseen_mark(processes: Sequence[Process], floor: int) -> int:
    """Return the mark of a process that no sample shows, if the command's ``ru_maxrss`` proves that; otherwise 0."""
    limit = max((mark_of_tree(process, floor) for process in processes), default=0)
    largest = _largest_mark(processes)
    return limit if limit > largest + drift(largest) else 0


def _largest_mark(processes: Iterable[Process]) -> int:
    return max((process.high_water_mark or 0 for process in processes), default=0)


def is_mark_explained(process: Process) -> bool:
    """Return whether a rise or a sample shows when a process reached its high-water mark."""
    mark = process.high_water_mark or 0
    return 0 < mark - drift(mark) <= process.most_shown


def read_at_marks(marks: Iterable[Mark]) -> Iterator[PeakCandidate]:
    """Yield what the whole tree held when operations were marked."""
    for mark in marks:
        for at_s, own in ((mark.start_s, mark.own_start), (mark.end_s, mark.own_end)):
            if own is None or own.tree is None or at_s is None or own.is_estimate:
                continue
            yield PeakCandidate(own.tree if own.tree_low is None else own.tree_low, own.tree, at_s, at_s)


def mark_of_tree(process: Process, floor: int) -> int:
    """Return the largest mark of the command and all descendants that were waited for; 0 if it is unknown.

    This is the ``ru_maxrss`` of the process that the recording started, unless it is what the sampler itself held. It
    is 0 for any other process.
    """
    limit = process.high_water_limit or 0
    started_by_us = process.id == 0 and process.start_s is not None and process.start_s >= 0
    return limit if started_by_us and limit > floor else 0


HeldSpan = tuple[float | None, float | None, int | None]
"""When a size began and ended to be held, and the size in bytes; None for unknown, and for an end that never came."""


class MostHeld:
    """The largest sum of sizes that were held at the same time.

    What ends at the moment at which another begins overlaps with it. An end of None is never. Every sum is None if a
    begin or a size is.
    """

    def __init__(self, sizes: Iterable[HeldSpan]) -> None:
        changes: list[tuple[float, int]] = []
        self._is_known = True
        for begin, end, size in sizes:
            if begin is None or size is None:
                self._is_known = False
                return
            changes += [(begin, -size), (inf if end is None else end, size)]
        changes.sort()
        self._times = [time for time, _ in changes]
        self._sums = list(accumulate((-size for _, size in changes), initial=0))

    def most(self, start_s: float = -inf, end_s: float = inf) -> int | None:
        """Return the largest sum between two moments, which may be given in either order."""
        if not self._is_known:
            return None
        first = bisect_left(self._times, min(start_s, end_s))
        last = bisect_right(self._times, max(start_s, end_s))
        return max(self._sums[first : last + 1])


def held_at_most(processes: Sequence[Process]) -> Iterator[HeldSpan]:
    """Yield begin and end of each process, and the most that it can have held."""
    table = ProcessTable(processes)
    for process in processes:
        yield process.start_s, process.end_s, most_held_by(process, table)


def most_held_by(process: Process, table: ProcessTable) -> int | None:
    """Return the most that a process can have held in bytes; None for unknown.

    This is its mark, if the process was still running at the end of the recording. Otherwise it is the ``ru_maxrss`` of
    the process or of the nearest ancestor that has one, since that is the largest of all descendants that were waited
    for.
    """
    if process.end_s is None and process.high_water_mark is not None:
        return process.high_water_mark
    limits = (above.high_water_limit for above in table.upwards(process))
    return next((limit for limit in limits if limit is not None), None)


Readings = Sequence[tuple[float, int]]
"""Seconds since the start and bytes, in order."""


def narrow(session: SessionData) -> None:
    """Narrow the times between which high-water marks rose, and with them the moment of the peak."""
    if RSS not in session.peaks:
        return
    by_pid: dict[int | None, list[tuple[float, int]]] = {}
    for mark in session.marks:
        for at_s, memory in ((mark.start_s, mark.own_start), (mark.end_s, mark.own_end)):
            if at_s is not None and memory is not None and memory.high_water_mark is not None:
                by_pid.setdefault(mark.pid, []).append((at_s, memory.high_water_mark))
    for process in session.processes:
        readings = sorted(by_pid.get(process.pid, ()))
        until_s = session.duration_s if process.end_s is None else min(process.end_s, session.duration_s)
        own = [reading for reading in readings if (process.start_s or 0.0) <= reading[0] <= until_s]  # PIDs are reused
        if own:
            process.rises = [*(_narrowed(rise, own) for rise in process.rises), *_unrecorded(process, own)]
    session.peaks[RSS] = rss_peak(session)


def _unrecorded(process: Process, readings: Readings) -> Iterator[Rise]:
    """Yield the rise to the highest mark that the process read of itself, if neither sample nor rise shows it."""
    highest = max(mark for _, mark in readings)
    risen = highest - drift(highest)
    if process.most_shown < risen:
        to_s = min(at_s for at_s, mark in readings if mark >= risen)
        from_s = max((at_s for at_s, mark in readings if at_s < to_s and mark < risen), default=None)
        if from_s is not None:
            yield Rise(from_s=from_s, to_s=to_s, high_water_mark=highest)


def _narrowed(rise: Rise, readings: Readings) -> Rise:
    risen = rise.high_water_mark - drift(rise.high_water_mark)
    most = rise.high_water_mark + drift(rise.high_water_mark)  # a higher one is that of a program before exec
    inside = [(at_s, mark) for at_s, mark in readings if rise.from_s <= at_s <= rise.to_s and mark <= most]
    from_s = max((at_s for at_s, mark in inside if mark < risen), default=rise.from_s)
    to_s = min((at_s for at_s, mark in inside if mark >= risen), default=rise.to_s)
    return replace(rise, from_s=from_s, to_s=to_s) if from_s <= to_s else rise


Path = Sequence[Operation]
"""Operations from the outermost to the innermost one; each encloses the next."""
Inside = dict[Operation | None, list[Operation]]
"""By operation: those directly inside of it; by None, those inside of none."""

_TRIGGERED_S = 0.005
"""A sample that a mark triggers follows it within this time."""


class PeakPlace(NamedTuple):
    """The moment of the RSS peak, and the operations around it."""

    from_s: float
    """The peak was reached between this moment and ``to_s``, in seconds since the start."""
    to_s: float
    path: Path = ()
    """The operations that certainly hold the peak, the outermost first."""
    either: Sequence[Operation] = ()
    """If it is not known which one holds it: the operations in question, all inside the last one of ``path``."""
    nearest: Operation | None = None
    """If the peak was just outside of all operations: the nearest one."""
    rivals: Sequence[Operation] = ()
    """Operations that may hold the peak, too. Most ran at other times: by their brackets, memory may have been higher
    then, or as high before. One of ``path`` stands for its time outside of the operations inside of it. Others ran in
    other processes at this time, and nothing says whose memory grew."""
    may_be_outside: bool = False
    """Whether memory outside of all operations may have been higher than what is proven in ``path``."""


def place_of(
    peak: Peak,
    operations: Sequence[Operation],
    processes: Sequence[Process],
    duration_s: float,
    gaps: Iterable[Operation] | None = None,
) -> PeakPlace | None:
    """Return where the RSS peak belongs; None when its moment is unknown.

    It belongs to the operation in which memory first came within noise of it. If operations of several processes ran
    then, that process has it which, with its descendants, held most at its own peak at this moment. ``gaps`` are the
    times outside of all operations; with None, the brackets are too wide to say where else the peak may have been.
    """
    if (span_s := peak.span_s) is None:
        return None
    peak_place = PeakPlace(*span_s)
    inside = _inside(operations, processes, peak_place)
    share = _at_their_peak(processes, peak, peak_place)
    path: list[Operation] = []
    while True:
        candidates = inside.get(path[-1] if path else None, [])
        holders = [operation for operation in candidates if _holds(operation, peak, peak_place)]
        if path:  # of an inner operation of another process, that process held most
            outer, least = path[-1].process, share.get(path[-1].process, 0)
            holders = [
                operation
                for operation in holders
                if operation.process == outer or share.get(operation.process, 0) * 2 >= least
            ]
        if not holders:
            break
        path.append(min(holders, key=lambda operation: _order(operation, peak, share)))
    if gaps is not None:
        bracket = _bracket(path[-1]) if path else None
        proven = peak.low or 0 if bracket is None else raised_to(bracket, peak.low or 0).low
        peak_place = peak_place._replace(
            rivals=list(_rivals(operations, path, inside, peak_place, proven)),
            may_be_outside=bool(path) and any(_may_exceed(gap, proven) for gap in gaps),
        )
    if (shared := _shared(path, inside, peak_place)) is not None:
        return shared
    either = [operation for operation in candidates if operation.overlaps(peak_place.from_s, peak_place.to_s)]
    if path and (len(either) == 1 or not _cover(either, peak_place)):
        either = []
    nearest = None if path or either else _nearest(peak_place, candidates, duration_s)
    either = [
        inner
        for operation in either
        for inner in (_innermost(operation, inside, peak_place) if operation.is_parallel else [operation])
    ]
    return peak_place._replace(path=path, either=either, nearest=nearest)


def raised_to(bracket: Bracket, low: int) -> Bracket:
    """Return the peak of the operation that holds the peak of the run: without the drift between both.

    It is unchanged if it is lower by more than noise: then only an estimate says that the peak was there.
    """
    if bracket.low < low - noise(low):
        return bracket
    least = max(low, bracket.low)
    return bracket._replace(low=least, high=None if bracket.high is None else max(bracket.high, least))


def _inside(operations: Sequence[Operation], processes: Sequence[Process], moment: PeakPlace) -> Inside:
    """Return the operations directly inside of each; a child that outlives its parent is inside of the grandparent."""
    pids = {process.pid for process in processes}
    inside: Inside = {}
    for operation in operations:
        if operation.end_s <= operation.start_s:  # the last mark of a run: what it triggers shows what came before
            continue
        if operation.error == END_UNKNOWN:
            continue
        if pids and operation.pid is not None and operation.pid not in pids:  # its process was not recorded
            continue
        going_on = (of for of in operation.ancestors if of.end_s >= moment.from_s and of.error != END_UNKNOWN)
        inside.setdefault(next(going_on, None), []).append(operation)
    return inside


def _rivals(
    operations: Sequence[Operation], path: Path, inside: Inside, moment: PeakPlace, level: float
) -> Iterator[Operation]:
    """Yield operations whose brackets allow that the peak was at another time; of nested ones, the inner ones.

    ``level`` is what was certainly reached at the moment of the peak. An operation around others is a rival if these
    leave some of its time free.
    """
    for operation in operations:
        bracket = _bracket(operation)
        if bracket is None or bracket.high is None or operation in path[-1:]:
            continue
        is_before = operation.end_s <= moment.from_s and bracket.high >= level - noise(level)
        if is_before or _may_exceed(operation, level):
            inner = inside.get(operation, [])
            if not _cover(inner, moment._replace(from_s=operation.start_s, to_s=operation.end_s)):
                yield operation


def _may_exceed(operation: Operation, level: float) -> bool:
    bracket = _bracket(operation)
    return bracket is not None and bracket.high is not None and bracket.high > level + noise(level)


def _holds(operation: Operation, peak: Peak, moment: PeakPlace) -> bool:
    """Return whether memory reached the peak in the operation at this moment, as its own bracket proves."""
    of, level = _bracket(operation), peak.likely or peak.low
    if of is None or level is None or operation.start_s > moment.to_s:
        return False
    until_s = max(operation.end_s + _TRIGGERED_S, of.to_s)
    read = operation.own_start is not None and operation.own_start.tree is not None
    was_there_before = read and of.to_s <= operation.start_s
    return until_s >= moment.from_s and (of.likely or of.low) >= level - noise(level) and not was_there_before


def _shared(path: Path, inside: Inside, moment: PeakPlace) -> PeakPlace | None:
    """Return the place of a peak in whose process several operations ran at the same time; None if only one did.

    The innermost ones are named.
    """
    for level, holder in enumerate(path):
        siblings = inside[path[level - 1] if level else None]
        beside = [operation for operation in siblings if operation is holder or _is_beside(operation, holder, moment)]
        if len(beside) > 1:
            either = [inner for operation in beside for inner in _innermost(operation, inside, moment)]
            return moment._replace(path=path[:level], either=either)
    return None


def _innermost(operation: Operation, inside: Inside, moment: PeakPlace) -> list[Operation]:
    """Return the innermost operations at the moment of the peak; an outer one, too, if they do not fill the moment."""
    inner = [inner for inner in inside.get(operation, ()) if inner.overlaps(moment.from_s, moment.to_s)]
    innermost = [] if inner and _cover(inner, moment) else [operation]
    return innermost + [deeper for operation in inner for deeper in _innermost(operation, inside, moment)]


def _is_beside(operation: Operation, holder: Operation, moment: PeakPlace) -> bool:
    both = operation.is_parallel and holder.is_parallel and operation.pid == holder.pid
    return both and operation.overlaps(holder.start_s, holder.end_s) and operation.overlaps(moment.from_s, moment.to_s)


def _bracket(operation: Operation) -> Bracket | None:
    return operation.of(RSS).peak


def _at_their_peak(processes: Sequence[Process], peak: Peak, moment: PeakPlace) -> Mapping[int | None, int]:
    """Return what each process and its descendants held, of those whose own peak was at the run's peak."""
    table = ProcessTable(processes)
    sizes: dict[int | None, int] = {}
    for process in processes:
        rises = [(rise.from_s, rise.to_s) for rise in process.rises]
        if process.peak_s is not None:
            rises.append((process.peak_s, process.peak_s))
        is_there = any(from_s <= moment.to_s and to_s >= moment.from_s for from_s, to_s in rises)
        if is_there or process.id == peak.process:
            for above in table.upwards(process):
                sizes[above.id] = sizes.get(above.id, 0) + process.most_memory
    return sizes


def _order(
    operation: Operation, peak: Peak, share: Mapping[int | None, int]
) -> tuple[bool, float, bool, bool, int, float]:
    """Return what orders the operations that may hold the peak; the smallest is the most probable.

    First come those with a proven peak, then those that reached it earlier, that were still running, whose process has
    the mark that proves it, and whose process held more. The sample that the end of an operation triggered counts as
    one of the operation.
    """
    of = _bracket(operation)
    assert of is not None
    ended = operation.end_s + _TRIGGERED_S < of.to_s
    is_other = peak.process is not None and operation.process != peak.process
    is_estimate = of.low < (peak.low or 0) - noise(peak.low or 0)
    return is_estimate, of.to_s, ended, is_other, -share.get(operation.process, 0), operation.start_s


def _cover(operations: Sequence[Operation], moment: PeakPlace) -> bool:
    """Return whether operations leave no time between the two moments of the peak."""
    until_s = moment.from_s
    for operation in operations:
        if operation.start_s > until_s:
            return False
        until_s = max(until_s, operation.end_s)
    return until_s >= moment.to_s


def _nearest(moment: PeakPlace, operations: Sequence[Operation], duration_s: float) -> Operation | None:
    """Return the nearest operation that is no further away than 1 % of the run, or 0.1 s."""
    near_s = max(0.1, duration_s * 0.01)

    def distance_s(operation: Operation) -> float:
        return max(moment.from_s - operation.end_s, operation.start_s - moment.to_s)

    return min((operation for operation in operations if distance_s(operation) <= near_s), key=distance_s, default=None)
