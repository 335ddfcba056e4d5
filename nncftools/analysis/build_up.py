"""The build-up of a peak: which code made memory rise to it, byte level by byte level.

Each level up to the peak belongs to the stack that was seen when the RSS of a process last rose through it. So memory
that was freed again before the peak does not count. Stacks are seen only at moments, the looks. If both looks around a
rise show the same stack, the rise certainly belongs to it, else to one of the two.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from nncftools.analysis.rise_owners import UNSEEN, RiseAttribution, RiseStack, rss_at
from nncftools.session.model import Frame, Process, SessionData, Snapshots, WatchedProcess
from nncftools.session.operation import Operation
from nncftools.session.peak_place import span_of
from nncftools.session.session import Session

CERTAIN, EITHER, NOT_SEEN, INHERITED = "certain", "either", "not_seen", "inherited"
_AROUND_S = 0.06
"""The helper reads RSS at other moments than the sampler."""


class Part(NamedTuple):
    """A part of the memory at a peak, in bytes, and whose it is."""

    size: int
    kind: str
    """``certain``; ``either``: it belongs to ``stack`` or to ``other``; ``not_seen``; ``inherited``: a forked process
    shares at most this with its parent, and RSS counts it twice."""
    process: int | None
    """The ``id`` of the process."""
    stack: tuple[Frame, ...] = ()
    """The outermost frame first; of two possible stacks, the one that was seen nearer to the rise."""
    other: tuple[Frame, ...] = ()
    """The other stack that it may belong to; empty for an unknown one."""
    shared: int = 0
    """How many outer frames both stacks share: the part certainly belongs to these."""


class BuildUp(NamedTuple):
    """What memory consisted of at a moment: ``parts``, the largest first, sum to ``size`` bytes."""

    at_s: float
    size: int
    parts: Sequence[Part]
    top: Part | None = None
    """Where the program stood: the stack of the last rise before the moment, and all bytes of that stack."""

    def sum_of(self, *kinds: str) -> int:
        """Return the bytes of these kinds."""
        return sum(part.size for part in self.parts if part.kind in kinds)


class Moment(NamedTuple):
    """A level of RSS in bytes, which was reached between two moments in seconds since the start."""

    from_s: float
    to_s: float
    size: int
    process: int | None = None
    """The ``id`` of the process that rose to it, if that is known."""


def of_peak(session: Session) -> BuildUp | None:
    """Return the build-up of the RSS peak; None when no stacks were taken or its moment is unknown."""
    peak = session.peaks.get("rss")
    span_s = None if peak is None else span_of(peak)
    if peak is None or span_s is None or (peak.low or 0) <= 0:
        return None
    return build_ups(session, [Moment(*span_s, peak.low or 0, peak.process)])[0]


def of_operation(session: Session, operation: Operation) -> BuildUp | None:
    """Return the build-up of the largest RSS during an operation; None when it is unknown."""
    peak = operation.of("rss").peak
    if peak is None or peak.low <= 0:
        return None
    return build_ups(session, [Moment(peak.from_s, peak.to_s, round(peak.low))])[0]


def at(session: Session, time_s: float) -> BuildUp | None:
    """Return the build-up of what the processes held at a moment, in seconds since the start."""
    return build_ups(session, [Moment(time_s, time_s, -1)])[0]


def build_ups(session: SessionData, moments: Sequence[Moment]) -> list[BuildUp | None]:
    """Return the build-up of each moment; None where the helper saw no process."""
    snapshots = session.snapshots
    if snapshots is None or not any(watched.looks for watched in snapshots.processes):
        return [None] * len(moments)
    builder = _Builder(snapshots, session.processes)
    built: list[BuildUp | None] = []
    for moment in moments:
        at_s = _highest(snapshots.processes, moment)
        levels = [(watched, _levels_at(watched, at_s)) for watched in snapshots.processes]
        rises = [_ProcessRise(watched, bands) for watched, bands in levels if bands]
        others = _others(session.processes, snapshots, at_s) if moment.size >= 0 else []
        built.append(builder.build_up(moment, at_s, rises, others) if rises else None)
    return built


class _RssBand(NamedTuple):
    """Bytes from ``low`` to ``high`` of a process, through which its RSS rose evenly between two moments."""

    low: float
    high: float
    from_s: float
    to_s: float

    def below(self, high: float) -> _RssBand:
        to_s = self.from_s + (self.to_s - self.from_s) * (high - self.low) / (self.high - self.low)
        return self._replace(high=high, to_s=to_s)


class _ProcessRise(NamedTuple):
    """What one process held."""

    watched: WatchedProcess
    levels: list[_RssBand]

    @property
    def rss(self) -> float:
        return self.levels[-1].high


def _highest(processes: Sequence[WatchedProcess], moment: Moment) -> float:
    """Return the time near a moment at which all processes together held the most."""
    if moment.size < 0:
        return moment.to_s
    from_s, to_s = moment.from_s - _AROUND_S, moment.to_s + _AROUND_S
    times = {moment.from_s, moment.to_s}
    for watched in processes:
        first, last = bisect_left(watched.time_s, from_s), bisect_left(watched.time_s, to_s)
        times.update(watched.time_s[first:last])
    return max(sorted(times), key=lambda time_s: sum(rss_at(watched, time_s) for watched in processes))


def _levels_at(watched: WatchedProcess, at_s: float) -> list[_RssBand]:
    """Return the levels of a process at a moment, the lowest first, each with the time of its last rise."""
    levels: list[_RssBand] = []
    before_s, before = watched.time_s[0] if watched.time_s else 0.0, 0
    for time_s, rss in zip(watched.time_s, watched.rss, strict=True):
        if time_s > at_s >= before_s:
            risen = before + (rss - before) * (at_s - before_s) / (time_s - before_s)
            _change(levels, before, risen, before_s, at_s)
        if time_s > at_s:
            break
        _change(levels, before, rss, before_s, time_s)
        before_s, before = time_s, rss
    return levels


def _change(levels: list[_RssBand], before: float, rss: float, from_s: float, to_s: float) -> None:
    """Add a level for a rise between two moments, or remove what is above the new RSS."""
    if rss > before:
        levels.append(_RssBand(before, rss, from_s, to_s))
    while levels and levels[-1].low >= rss:
        levels.pop()
    if levels and levels[-1].high > rss:
        levels[-1] = levels[-1].below(rss)


def _others(processes: Iterable[Process], snapshots: Snapshots, at_s: float) -> list[Process]:
    """Return the processes that the sampler counted at a moment, and the helper never saw: they lived too short."""
    known = {watched.process for watched in snapshots.processes}
    return [
        process
        for process in processes
        if process.id not in known
        and process.counted_s is not None
        and process.counted_s <= at_s + _AROUND_S
        and (process.end_s is None or at_s - _AROUND_S <= process.end_s)
    ]


class _Builder:
    """Makes the build-ups of a session; the looks of each process are prepared once for all of them."""

    def __init__(self, snapshots: Snapshots, processes: Iterable[Process]) -> None:
        self._snapshots = snapshots
        self._attributions: dict[int, RiseAttribution] = {}
        self._processes: dict[int | None, Process] = {process.id: process for process in processes}
        self._watched = {watched.process: watched for watched in snapshots.processes}

    def build_up(self, moment: Moment, at_s: float, rises: list[_ProcessRise], others: list[Process]) -> BuildUp:
        """Return the build-up of these processes at a moment, and of ``others``, whose stacks nobody saw."""
        whole = sum(rise.rss for rise in rises)
        size = round(whole) if moment.size < 0 else moment.size
        sums: dict[tuple[int | None, RiseStack | None], float] = {}
        for process in others:
            if (unseen := min(process.first_rss or 0, size - whole)) > 0:
                inherited = self._inherited(process, unseen, process.counted_s or 0.0) if process.forked_copy else 0.0
                sums[process.id, None], sums[process.id, UNSEEN] = inherited, unseen - inherited
                whole += unseen
        for rise in _adjusted(rises, size - whole, at_s, moment.process):
            for owner, amount in self._owners_of(rise):
                sums[rise.watched.process, owner] = sums.get((rise.watched.process, owner), 0.0) + amount
        top = self._top(_last(rises, moment.process))
        parts = _parts(sums, size, self._snapshots)
        same = sum(part.size for part in parts if top is not None and part[1:5] == top[1:5])
        return BuildUp(at_s, size, parts, None if top is None else top._replace(size=same))

    def _attribution(self, watched: WatchedProcess) -> RiseAttribution:
        if id(watched) not in self._attributions:
            self._attributions[id(watched)] = RiseAttribution(watched, self._snapshots)
        return self._attributions[id(watched)]

    def _owners_of(self, rise: _ProcessRise) -> Iterator[tuple[RiseStack | None, float]]:
        """Yield the bytes of a process by the stack that they belong to; None for what it shares with its parent."""
        watched, lowest = rise.watched, rise.levels[0]
        at_first = lowest.high if lowest.to_s == watched.time_s[0] else 0.0  # nobody saw how it came to that
        if inherited := min(watched.inherited, at_first):
            inherited = self._inherited(self._processes.get(watched.process), inherited, watched.time_s[0])
        yield None, inherited
        yield UNSEEN, at_first - inherited
        attribution = self._attribution(rise.watched)
        for level in rise.levels:
            if level.high > at_first:
                yield from attribution.shares(level.from_s, level.to_s, level.high - max(level.low, at_first))

    def _inherited(self, process: Process | None, size: float, seen_s: float) -> float:
        """Return how much of its first seen RSS, ``size``, a forked copy can share: what its parent had at the fork.

        That is the largest RSS of the parent from the fork, whose time the kernel gives in ticks, to that moment.
        """
        parent = None if process is None or process.parent is None else self._processes.get(process.parent)
        if process is None or parent is None:
            return size
        watched, begun_s = self._watched.get(parent.id), process.start_s or 0.0
        if watched is None:
            return min(size, max(parent.peak_rss or 0, parent.high_water_mark or 0) or size)
        between = watched.time_s[bisect_left(watched.time_s, begun_s) : bisect_left(watched.time_s, seen_s)]
        return min(size, max(rss_at(watched, at_s) for at_s in (begun_s, *between, seen_s)) or size)

    def _top(self, last: _ProcessRise) -> Part | None:
        """Return the part that the last byte belongs to, with a size of 0; None if its stack was not seen."""
        highest = last.levels[-1]
        at_s = (highest.from_s + highest.to_s) / 2  # at its end, the code may already be back from what it did
        shares: dict[RiseStack, float] = {}
        for owner, share in self._attribution(last.watched).shares(at_s, at_s, 1.0):
            shares[owner] = shares.get(owner, 0.0) + share
        owner = max(shares, key=shares.__getitem__)
        return None if owner.stack is None else _part(0, owner, last.watched.process, self._snapshots)


def _last(rises: Iterable[_ProcessRise], process: int | None) -> _ProcessRise:
    """Return the process that rose last: the one with this ``id``, if that is known."""
    return max(rises, key=lambda rise: (rise.watched.process == process is not None, rise.levels[-1].to_s, rise.rss))


def _adjusted(rises: Sequence[_ProcessRise], missing: float, at_s: float, process: int | None) -> list[_ProcessRise]:
    """Return the processes with levels that sum to the peak: what is missing belongs to the one that rose last."""
    others = list(rises)
    while others:
        last = _last(others, process)
        others = [rise for rise in others if rise is not last]
        top = last.rss + missing
        levels = list(last.levels)
        if missing >= 0:
            levels.append(_RssBand(last.rss, top, at_s, at_s))
        elif top > 0:
            _change(levels, last.rss, top, at_s, at_s)
        else:
            missing = top
            continue
        return [*others, last._replace(levels=levels)]
    return []


def _parts(sums: Mapping[tuple[int | None, RiseStack | None], float], size: int, snapshots: Snapshots) -> list[Part]:
    """Return the parts, the largest first, in whole bytes that sum to ``size``."""
    parts = []
    for (process, owner), amount in sums.items():
        if owner is None:
            parts.append(Part(round(amount), INHERITED, process))
        elif owner.stack is None:
            parts.append(Part(round(amount), NOT_SEEN, process))
        else:
            parts.append(_part(round(amount), owner, process, snapshots))
    parts.sort(key=lambda part: -part.size)
    if parts:
        parts[0] = parts[0]._replace(size=parts[0].size + size - sum(part.size for part in parts))
    return [part for part in parts if part.size > 0]


def _part(size: int, owner: RiseStack, process: int | None, snapshots: Snapshots) -> Part:
    stack, other = (_frames(number, snapshots) for number in (owner.stack, owner.other))
    stack = stack[: owner.depth]
    if owner.is_certain:
        return Part(size, CERTAIN, process, stack, other, len(stack))
    return Part(size, EITHER, process, stack, other, owner.shared)


def _frames(number: int | None, snapshots: Snapshots) -> tuple[Frame, ...]:
    return () if number is None else tuple(snapshots.frames[index] for index in snapshots.stacks[number])
