"""The build-up of a peak: which code made memory rise to it, byte level by byte level.

Each level up to the peak belongs to the stack that was seen when the RSS of a process last rose through it. So memory
that was freed again before the peak does not count. What programs without Python hold belongs to them.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, compress
from typing import NamedTuple

from nncftools.analysis.code_places import (
    OWN,
    PYTHON,
    Stack,
    brief_label,
    calling_place,
    deepest_own,
    imported_package,
    innermost_frame,
    module_of,
    package_of,
    reported_frames,
    source_of,
)
from nncftools.analysis.operation import Operation
from nncftools.analysis.rise_owners import RiseOwners
from nncftools.analysis.rss_levels import FILE, HEAP, Fall, Rise, levels_at, rss_at, shared_at
from nncftools.analysis.session import Session
from nncftools.session.model import Frame, Process, SessionData, Snapshots, WatchedProcess
from nncftools.units import printable, shortened

SEEN, PROGRAM, NOT_SEEN, SHARED = "seen", "program", "not_seen", "shared"
_STARTING_S, _OF_PYTHON = 0.5, 12 << 20
"""A Python process that is first seen this soon after its start holds Python itself, which takes about so much."""
_AROUND_S = 0.06
"""The helper reads RSS at other moments than the sampler."""
_ENDING_S, _JUST_BEFORE_S = 0.1, 1e-6
"""A process that did not report the end of its code clears its memory in the first time before it is gone. At the last
moment that shows memory, it may have none already."""

_INNERMOST = 2
"""What is certain but for so many of the innermost frames counts as certain."""


Memory = tuple[int | None, str]
"""The ``id`` of a process, and a kind of its memory."""


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
    memory: str = HEAP
    """The kind of memory, as of ``rss_levels``."""
    epoch: int = 0
    """How many of the ``freed`` of its process and of such memory came before it: all later ones put it in doubt."""

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
    freed: Mapping[Memory, Sequence[Freed]] = {}
    """By the ``id`` of a process and the kind of memory: what it gave back, where nobody can say which that was."""
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
    return session.once(_of_peak)


def _of_peak(session: Session) -> BuildUp | None:
    peak = session.rss_peak
    if not peak.low or peak.low < 0 or peak.span_s is None:
        return None
    return build_ups(session, [Moment(*peak.span_s, peak.low, peak.process)])[0]


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


def at_end(session: SessionData) -> BuildUp | None:
    """Return the build-up of what the program still held when its code had finished; None for unknown.

    That is when the last Python finished. Those that another Python began do not count: the resource tracker of
    ``multiprocessing`` outlives the program. Without Python, it is when the last process was gone.
    """
    snapshots = session.snapshots or Snapshots()
    pythons = {watched.process: watched for watched in snapshots.processes if watched.windows}
    outermost = [pythons[of.id] for of in session.processes if of.id in pythons and of.parent not in pythons]
    return at(session, max(map(_end_of, outermost or snapshots.processes), default=0.0))


def _end_of(watched: WatchedProcess) -> float:
    """Return when a process reported the end of its code, else when it held the most shortly before it was gone."""
    if watched.code_end_s is not None:
        return watched.code_end_s
    gone_s = max(compress(watched.time_s, watched.rss), default=0.0)
    last_s = watched.time_s[bisect_left(watched.time_s, gone_s - _ENDING_S) :]
    return max(last_s, key=lambda time_s: rss_at(watched, time_s), default=0.0) - _JUST_BEFORE_S


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
    rises: list[Rise]
    """The earliest first."""
    falls: Mapping[str, Sequence[Fall]]
    """By kind of memory: what it gave back, where nobody can say which that was."""

    @property
    def size(self) -> float:
        return sum(rise.size for rise in self.rises)

    @property
    def last(self) -> Rise:
        return max(self.rises, key=lambda rise: rise.to_s)


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
        top = self._top(rises[0]) if rises else None
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
        freed = dict(chain.from_iterable(map(self._freed, rises)))
        return BuildUp(at_s, size, parts, freed, None if top is None else top._replace(size=same))

    def _rises(self, moment: Moment, at_s: float) -> list[_ProcessRise]:
        """Return what each process held or gained, the one first that rose last: that of the moment, if it is known."""
        changes = []
        for watched in self._snapshots.processes:
            rises, falls = levels_at(watched, at_s)
            if moment.since_s is not None:
                shared = shared_at(watched, moment.since_s)
                rises = _without_first(rises, rss_at(watched, moment.since_s) - shared, shared)
            if rises:
                changes.append(_ProcessRise(watched, rises, falls))

        def when(change: _ProcessRise) -> tuple[bool, float, float]:
            return change.watched.process == moment.process is not None, change.last.to_s, change.size

        return sorted(changes, key=when, reverse=True)

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

    def _parts_of(self, change: _ProcessRise, at_s: float) -> Iterator[tuple[Part, float, float]]:
        """Yield the parts of a process without their sizes, each with its bytes, and with the bytes of files."""
        watched = change.watched
        first = [rise for rise in change.rises if rise.to_s == watched.time_s[0]]  # nobody saw how these came
        size = sum(rise.size for rise in first)
        file_size = sum(rise.size for rise in first if rise.memory == FILE)
        if shared := min(watched.inherited, size - file_size):
            shared = self._shared(self._processes.get(watched.process), shared, watched.time_s[0])
            yield Part(0, SHARED, watched.process), shared, 0.0
        own = size - shared
        if watched.is_native and not watched.windows:
            process = self._processes.get(watched.process)
            name = "" if process is None else process.name
            program = Part(0, PROGRAM, watched.process, self._starter(watched, at_s), program=name)
            yield program, own, min(own, file_size)
            for rise in change.rises[len(first) :]:
                yield program, rise.size, rise.size if rise.memory == FILE else 0.0
            return
        file_share = min(1.0, file_size / own) if own else 0.0
        begun_s = self._begun_s(watched)
        of_start = 0.0 if begun_s is None or watched.inherited else min(own, _OF_PYTHON)
        yield Part(0, NOT_SEEN, watched.process, is_start=True), of_start, of_start * file_share
        if begun_s is None:
            yield Part(0, NOT_SEEN, watched.process), own, own * file_share
        else:
            rise = Rise(own - of_start, begun_s, watched.time_s[0], is_replaced=True)
            yield from self._shares(watched, rise, file_share)
        for rise in change.rises[len(first) :]:
            yield from self._shares(watched, rise, 1.0 if rise.memory == FILE else 0.0)

    def _shares(self, watched: WatchedProcess, rise: Rise, file_share: float) -> Iterator[tuple[Part, float, float]]:
        """Yield the parts of a rise."""
        for share in self._owners_in(watched).shares(rise):
            kind = SEEN if share.stack else NOT_SEEN
            part = Part(0, kind, watched.process, share.stack, memory=rise.memory, epoch=rise.epoch)
            if not rise.is_replaced:
                certain, still = share.certain, share.still
                for from_s, to_s in rise.moved:
                    going, stood = self._owners_in(watched).going_on(share.stack, from_s, to_s)
                    certain, still = min(certain, going), min(still, stood)
                part = part._replace(certain=certain, still=still)
            yield part, share.size, share.size * file_share

    def _freed(self, change: _ProcessRise) -> Iterator[tuple[Memory, list[Freed]]]:
        watched = change.watched
        for memory, falls in change.falls.items():
            freed = []
            for fall in falls:
                shares = [self._shares(watched, rise, 0.0) for rise in fall.removed]
                freed.append(Freed(fall.size, [(part, size) for part, size, _ in chain(*shares)]))
            yield (watched.process, memory), freed

    def _begun_s(self, watched: WatchedProcess) -> float | None:
        """Return when a process began, if it was first seen just after that."""
        process = self._processes.get(watched.process)
        if process is None or process.start_s is None or not watched.windows:
            return None
        begun_s = min(process.start_s, watched.time_s[0])
        return begun_s if watched.time_s[0] - begun_s <= _STARTING_S else None

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

        That is the most that the parent had from the fork, whose time the kernel gives in ticks, to that moment. Pages
        of files are not copied by fork(2).
        """
        parent = None if process is None else self._processes.get(process.parent)
        if process is None or parent is None:
            return size
        watched, begun_s = self._watched.get(parent.id), process.start_s or 0.0
        if watched is None:
            return min(size, parent.most_memory or size)
        between = watched.time_s[bisect_left(watched.time_s, begun_s) : bisect_left(watched.time_s, seen_s)]
        moments = (begun_s, *between, seen_s)
        return min(size, max(rss_at(watched, at_s) - shared_at(watched, at_s) for at_s in moments) or size)

    def _top(self, change: _ProcessRise) -> Part | None:
        """Return the part that most of the last rise belongs to, with a size of 0; None if its stack was not seen.

        Of the stacks before and after it, that is the one after.
        """
        last = change.last
        middle_s = (last.from_s + last.to_s) / 2  # at its end, the code may already be back from what it did
        rise = replace(last, from_s=middle_s, to_s=middle_s)
        parts = list(self._parts_of(change._replace(rises=[rise]), middle_s))
        top, *_ = max(reversed(parts), key=lambda part: part[1])
        return top if top.stack or top.kind == PROGRAM else None


def _without_first(rises: Sequence[Rise], size: float, file_size: float) -> list[Rise]:
    """Return rises without the bytes that came first, so many of files and of all other memory."""
    left = {True: file_size, False: size}
    later = []
    for rise in rises:
        is_file = rise.memory == FILE
        part = replace(rise)
        part = part.cut_last(max(0.0, rise.size - left[is_file]))
        left[is_file] = max(0.0, left[is_file] - rise.size)
        if part.size > 0:
            later.append(part)
    return later


def _adjusted(changes: Iterable[_ProcessRise], missing: float, at_s: float) -> Iterator[_ProcessRise]:
    """Yield the processes with rises that sum to the peak: what is missing belongs to the first one."""
    for change in changes:
        rises = [*change.rises, Rise(max(0.0, missing), at_s, at_s, _AROUND_S, is_replaced=True)]
        too_much = max(0.0, -missing)
        for rise in sorted(rises, key=lambda rise: -rise.to_s):
            too_much -= rise.cut_last(too_much).size
        missing = -too_much
        yield change._replace(rises=[rise for rise in rises if rise.size > 0])


def _whole_bytes(sums: Mapping[Part, float], file_sums: Mapping[Part, float], size: int) -> list[Part]:
    """Return the parts, the largest first, in whole bytes that sum to ``size``."""
    parts = [part._replace(size=round(sums[part]), file_size=round(file_sums[part])) for part in sums]
    parts.sort(key=lambda part: -part.size)
    if parts:
        largest = parts[0].size + size - sum(part.size for part in parts)
        parts[0] = parts[0]._replace(size=largest, file_size=min(largest, parts[0].file_size))
    return [part for part in parts if part.size > 0]


_PROGRAM_NAME = 40


def running_text(top: Part) -> str:
    """Return where the program stood: ``torch/jit/_trace.py:455 _check_trace, called by openvino/…/ts_decoder.py:9``.

    The caller is the frame that called the library; in the program itself the frame above. Empty without frames.
    """
    if top.kind == PROGRAM:
        name = shortened(printable(top.program), _PROGRAM_NAME) or "a program without Python"
        return ", ".join(filter(None, (name, _starter(top.stack))))
    stack = [frame for _, frame in reported_frames(top.stack)]
    if (frame := innermost_frame(stack)) is None:
        return ""
    caller = calling_place(stack[: stack.index(frame) + 1])
    text = brief_label(frame)
    return text if caller is None else f"{text}, called by {brief_label(stack[caller], has_function=False)}"


def _starter(stack: Sequence[Frame]) -> str:
    """Return who started a program, and for which call into another library."""
    if (frame := innermost_frame(stack)) is None:
        return ""
    entry = next((of for of in stack if package_of(of.file) not in {OWN, PYTHON}), frame)
    package, text = package_of(entry.file), f"started by {brief_label(frame)}"
    if package == package_of(frame.file):
        return text
    function = f"{package}/…/{shortened(printable(entry.function), _PROGRAM_NAME)}"
    return f"{text}, for {brief_label(entry) if module_of(entry) else function}"


_IMPORT = re.compile(r"(?:import|from)\s+(\w+)")


def imported_with(part: Part, snapshots: Snapshots) -> str:
    """Return the package that a part of the memory was imported with; empty if it was not imported."""
    if part.is_start:
        return PYTHON
    if part.kind != SEEN:
        return ""
    if package := imported_package(part.stack):
        return package
    own = deepest_own(part.stack)
    statements = [] if own is None else source_of(snapshots, own).split(";")
    matches = [_IMPORT.match(statement.strip()) for statement in statements]
    last = matches[-1] if matches and all(matches) else None
    return "" if last is None else last[1]
