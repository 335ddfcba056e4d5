"""The build-up of a peak: which code made memory rise to it, byte level by byte level.

Each level up to the peak belongs to the stack that was seen when the RSS of a process last rose through it. So memory
that was freed again before the peak does not count. What programs without Python hold belongs to them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from nncftools.analysis.code_places import reported_frames
from nncftools.analysis.rise_owners import RiseOwners, Stack, rss_at
from nncftools.analysis.rss_levels import IN_NO_DOUBT, Fall, RssBand, levels_at
from nncftools.session.model import Process, SessionData, Snapshots, WatchedProcess
from nncftools.session.operation import Operation
from nncftools.session.peak_place import span_of
from nncftools.session.session import Session

SEEN, PROGRAM, NOT_SEEN, SHARED = "seen", "program", "not_seen", "shared"
_STARTING_S, _OF_PYTHON = 0.5, 12 << 20
"""A Python process that is first seen this soon after its start holds Python itself, which takes about so much."""
_AROUND_S = 0.06
"""The helper reads RSS at other moments than the sampler."""


_INNERMOST = 2
"""What is certain but for so many of the innermost frames counts as certain."""


class Part(NamedTuple):
    """A part of the memory at a peak, in bytes, and whose it is."""

    size: int
    kind: str
    """``seen``: it has a stack; ``program``: a process without Python holds it; ``not_seen``; ``shared``: a forked copy
    shares at most this with its parent, and RSS counts it twice."""
    process: int | None
    """The ``id`` of the process."""
    stack: Stack = ()
    """The likeliest stack, the outermost frame first; of a program, where the Python program stood that runs it."""
    certain: int = 0
    """How many of the outer frames certainly took it."""
    program: str = ""
    """The name of a program without Python."""
    is_start: bool = False
    """Whether a Python process held it when it was first seen, just after its start."""
    file_size: int = 0
    """The bytes of ``size`` that are pages of mapped files or of shared memory; 0 in earlier recordings."""
    still: int = 0
    """How many of the ``certain`` frames stood still: their lines are certain, too."""
    epoch: int = IN_NO_DOUBT
    """How many of the process's ``freed`` came before it: all later ones put it in doubt."""

    @property
    def is_certain(self) -> bool:
        """Whether it is certain to within two frames of the innermost function."""
        likely = sum(place >= self.certain for place, _ in reported_frames(self.stack))
        return self.kind == PROGRAM or (self.certain > 0 and likely <= _INNERMOST)


class Freed(NamedTuple):
    """Memory that a process gave back, and nobody can say which; bytes."""

    size: float
    parts: Sequence[tuple[Part, float]]
    """What came last, and is taken to be gone."""


class BuildUp(NamedTuple):
    """What memory consisted of at a moment: ``parts``, the largest first, sum to ``size`` bytes."""

    at_s: float
    size: int
    parts: Sequence[Part]
    freed: Mapping[int | None, Sequence[Freed]] = {}
    """By the ``id`` of a process: what it gave back, where nobody can say which memory that was."""
    top: Part | None = None
    """Where the program stood: the stack of the last rise before the moment, and all bytes of that stack."""

    def sum_of(self, *kinds: str) -> int:
        """Return the bytes of these kinds."""
        return sum(part.size for part in self.parts if part.kind in kinds)


class Moment(NamedTuple):
    """A level of RSS in bytes, which was reached between two moments in seconds since the start."""

    from_s: float
    to_s: float
    size: int = -1
    """Below 0: what the helper read at ``to_s``."""
    process: int | None = None
    """The ``id`` of the process that rose to it, if that is known."""
    since_s: float | None = None
    """Only what grew since this moment counts: the levels above the RSS that each process had then."""


def of_peak(session: Session) -> BuildUp | None:
    """Return the build-up of the RSS peak; None when no stacks were taken or its moment is unknown."""
    peak = session.peaks.get("rss")
    if peak is None or peak.low is None or peak.low <= 0 or (span_s := span_of(peak)) is None:
        return None
    return build_ups(session, [Moment(*span_s, peak.low, peak.process)])[0]


def of_operation(session: Session, operation: Operation) -> BuildUp | None:
    """Return the build-up of the largest RSS during an operation; None when it is unknown."""
    peak = operation.of("rss").peak
    if peak is None or peak.low <= 0:
        return None
    return build_ups(session, [Moment(peak.from_s, peak.to_s, round(peak.low))])[0]


def at(session: SessionData, time_s: float, since_s: float | None = None) -> BuildUp | None:
    """Return the build-up of what the processes held at a moment, in seconds since the start.

    With ``since_s``, what those that grew since then held more. None where the helper saw no process.
    """
    return build_ups(session, [Moment(time_s, time_s, since_s=since_s)])[0]


def build_ups(session: SessionData, moments: Sequence[Moment]) -> list[BuildUp | None]:
    """Return the build-up of each moment; None where the helper saw no process."""
    snapshots = session.snapshots
    if snapshots is None or not any(watched.windows or watched.is_native for watched in snapshots.processes):
        return [None] * len(moments)
    builder = _Builder(snapshots, session.processes)
    return [builder.build_up(moment) for moment in moments]


class _ProcessRise(NamedTuple):
    """What one process held, or gained."""

    watched: WatchedProcess
    levels: list[RssBand]
    """One above the other, the lowest first."""
    falls: Sequence[Fall] = ()
    """What it gave back, where nobody can say which memory that was."""

    @property
    def size(self) -> float:
        return self.levels[-1].high - self.levels[0].low

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


def _change(levels: list[RssBand], band: RssBand) -> None:
    """Add a level for a rise, or remove what is above the new RSS."""
    if band.high > band.low:
        levels.append(band)
    while levels and levels[-1].low >= band.high:
        levels.pop()
    if levels and levels[-1].high > band.high:
        levels[-1] = levels[-1].below(band.high)


class _Builder:
    """Makes the build-ups of a session; the timeline of each process is prepared once for all of them."""

    def __init__(self, snapshots: Snapshots, processes: Iterable[Process]) -> None:
        self._snapshots = snapshots
        self._owners: dict[int, RiseOwners] = {}
        self._processes: dict[int | None, Process] = {process.id: process for process in processes}
        self._watched = {watched.process: watched for watched in snapshots.processes}

    def build_up(self, moment: Moment) -> BuildUp | None:
        """Return the build-up of a moment; None where no process was seen."""
        at_s = _highest(self._snapshots.processes, moment)
        rises = self._rises(moment, at_s)
        if not rises and moment.since_s is None:
            return None
        top = self._top(rises[0], at_s) if rises else None
        size, whole = moment.size, sum(rise.size for rise in rises)
        sums = defaultdict[Part, float](float)
        file_sums = defaultdict[Part, float](float)
        if size < 0:
            size = round(whole)
        else:
            for process in self._others(at_s):
                if (unseen := min(process.first_rss or 0, size - whole)) > 0:
                    shared = self._shared(process, unseen, process.counted_s or 0.0) if process.forked_copy else 0.0
                    sums[Part(0, SHARED, process.id)], sums[Part(0, NOT_SEEN, process.id)] = shared, unseen - shared
                    whole += unseen
            rises = list(_adjusted(rises, size - whole, at_s))
        for part, amount, file_amount in chain.from_iterable(self._parts_of(rise, at_s) for rise in rises):
            sums[part] += amount
            file_sums[part] += file_amount
        parts = _whole_bytes(sums, file_sums, size)
        same = sum(part.size for part in parts if top is not None and part.stack == top.stack)
        freed = {rise.watched.process: self._freed(rise) for rise in rises if rise.falls}
        return BuildUp(at_s, size, parts, freed, None if top is None else top._replace(size=same))

    def _rises(self, moment: Moment, at_s: float) -> list[_ProcessRise]:
        """Return what each process held or gained, the one first that rose last: that of the moment, if it is known."""
        rises = []
        for watched in self._snapshots.processes:
            held = 0.0 if moment.since_s is None else rss_at(watched, moment.since_s)
            bands, falls = levels_at(watched, at_s)
            if levels := [level.above(held) for level in bands if level.high > held]:
                rises.append(_ProcessRise(watched, levels, falls))

        def when(rise: _ProcessRise) -> tuple[bool, float, float]:
            return rise.watched.process == moment.process is not None, rise.levels[-1].to_s, rise.rss

        return sorted(rises, key=when, reverse=True)

    def _others(self, at_s: float) -> Iterator[Process]:
        """Yield the processes that the sampler counted at a moment, and the helper never saw: they lived too short."""
        for process in self._processes.values():
            is_begun = process.counted_s is not None and process.counted_s <= at_s + _AROUND_S
            has_ended = process.end_s is not None and process.end_s < at_s - _AROUND_S
            if is_begun and not has_ended and process.id not in self._watched:
                yield process

    def _owners_in(self, watched: WatchedProcess) -> RiseOwners:
        if id(watched) not in self._owners:
            self._owners[id(watched)] = RiseOwners(watched, self._snapshots)
        return self._owners[id(watched)]

    def _parts_of(self, rise: _ProcessRise, at_s: float) -> Iterator[tuple[Part, float, float]]:
        """Yield the parts of a process without their sizes, each with its bytes, and with the bytes of files."""
        watched, lowest = rise.watched, rise.levels[0]
        at_first = lowest.high if lowest.to_s == watched.time_s[0] else 0.0  # nobody saw how it came to that
        if shared := min(watched.inherited, at_first):
            shared = self._shared(self._processes.get(watched.process), shared, watched.time_s[0])
            yield Part(0, SHARED, watched.process), shared, shared * lowest.file_share
        if watched.is_native and not watched.windows:
            process = self._processes.get(watched.process)
            name = "" if process is None else process.name
            program = Part(0, PROGRAM, watched.process, self._starter(watched, at_s), program=name)
            for level in rise.levels:
                size = level.high - max(level.low, shared)
                yield program, size, size * level.file_share
            return
        unseen = at_first - shared
        of_start = min(unseen, _OF_PYTHON) if self._was_starting(watched) else 0.0
        for is_start, size in ((True, of_start), (False, unseen - of_start)):
            part = Part(0, NOT_SEEN, watched.process, is_start=is_start)
            yield part, size, size * lowest.file_share
        for level in rise.levels:
            if level.high > at_first:
                size = level.high - max(level.low, at_first)
                shares = self._owners_in(watched).shares(level.from_s, level.to_s, level.apart_s, size)
                for share in shares:
                    kind = SEEN if share.stack else NOT_SEEN
                    part = Part(0, kind, watched.process, share.stack, share.certain)
                    part = part._replace(still=share.still, epoch=level.epoch)
                    yield part, share.size, share.size * level.file_share

    def _freed(self, rise: _ProcessRise) -> list[Freed]:
        owners = self._owners_in(rise.watched)
        freed = []
        for fall in rise.falls:
            parts: list[tuple[Part, float]] = []
            for band in fall.removed:
                shares = owners.shares(band.from_s, band.to_s, band.apart_s, band.high - band.low)
                parts += ((Part(0, SEEN, rise.watched.process, share.stack), share.size) for share in shares)
            freed.append(Freed(fall.size, parts))
        return freed

    def _was_starting(self, watched: WatchedProcess) -> bool:
        process = self._processes.get(watched.process)
        if process is None or process.start_s is None or process.forked_copy or not watched.windows:
            return False
        return watched.time_s[0] - process.start_s <= _STARTING_S

    def _starter(self, watched: WatchedProcess, at_s: float) -> Stack:
        """Return where the nearest Python program above stood that started a program, or waits for it."""
        process = self._processes.get(watched.process)
        for _ in self._processes:  # those of a damaged journal may be a circle
            process = None if process is None else self._processes.get(process.parent)
            above = None if process is None else self._watched.get(process.id)
            if above is not None and above.windows:
                return self._owners_in(above).waits_at(watched.time_s[0], at_s)
        return ()

    def _shared(self, process: Process | None, size: float, seen_s: float) -> float:
        """Return how much of its first seen RSS, ``size``, a forked copy can share: what its parent had at the fork.

        That is the largest RSS of the parent from the fork, whose time the kernel gives in ticks, to that moment.
        """
        parent = None if process is None else self._processes.get(process.parent)
        if process is None or parent is None:
            return size
        watched, begun_s = self._watched.get(parent.id), process.start_s or 0.0
        if watched is None:
            return min(size, max(parent.peak_rss or 0, parent.high_water_mark or 0) or size)
        between = watched.time_s[bisect_left(watched.time_s, begun_s) : bisect_left(watched.time_s, seen_s)]
        return min(size, max(rss_at(watched, at_s) for at_s in (begun_s, *between, seen_s)) or size)

    def _top(self, last: _ProcessRise, at_s: float) -> Part | None:
        """Return the part that most of the last rise belongs to, with a size of 0; None if its stack was not seen.

        Of the stacks before and after it, that is the one after.
        """
        highest = last.levels[-1]
        middle_s = (highest.from_s + highest.to_s) / 2  # at its end, the code may already be back from what it did
        band = highest._replace(from_s=middle_s, to_s=middle_s)
        parts = list(self._parts_of(last._replace(levels=[band]), at_s))
        top, *_ = max(reversed(parts), key=lambda part: part[1])
        return top if top.stack or top.kind == PROGRAM else None


def _adjusted(rises: Iterable[_ProcessRise], missing: float, at_s: float) -> Iterator[_ProcessRise]:
    """Yield the processes with levels that sum to the peak: what is missing belongs to the first one."""
    for rise in rises:
        levels, top = list(rise.levels), max(0.0, rise.rss + missing)
        _change(levels, RssBand(rise.rss, top, at_s, at_s, _AROUND_S))
        missing += rise.rss - top
        if levels:
            yield rise._replace(levels=levels)


def _whole_bytes(sums: Mapping[Part, float], file_sums: Mapping[Part, float], size: int) -> list[Part]:
    """Return the parts, the largest first, in whole bytes that sum to ``size``."""
    parts = [part._replace(size=round(sums[part]), file_size=round(file_sums[part])) for part in sums]
    parts.sort(key=lambda part: -part.size)
    if parts:
        largest = parts[0].size + size - sum(part.size for part in parts)
        parts[0] = parts[0]._replace(size=largest, file_size=min(largest, parts[0].file_size))
    return [part for part in parts if part.size > 0]
