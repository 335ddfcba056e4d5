"""Where the RSS peak of a run belongs: its moment and its operation. Every output takes both from here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from nncftools.analysis.operation import Bracket, Operation
from nncftools.session.model import END_UNKNOWN, Peak, Process, ProcessTable
from nncftools.session.samples import noise

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
    return operation.of("rss").peak


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
