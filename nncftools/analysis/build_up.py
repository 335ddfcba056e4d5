"""Finds the build-up of a memory peak: the code that took the memory.

When RSS (resident memory) rises, the new bytes belong to the stack (the Python functions) that was seen at this time.
When RSS falls, the newest bytes count as freed, unless a reading shows the freed addresses. Memory that was freed
before the peak does not count. The memory of a program that does not run Python belongs to the program as a whole.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import compress
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

SEEN = "seen"
PROGRAM = "program"
NOT_SEEN = "not_seen"
SHARED = "shared"
_STARTING_S = 0.5
"""If a Python process is first seen at most this many seconds after the start of the process, the first
``_PYTHON_SIZE`` bytes count as Python itself."""
_PYTHON_SIZE = 12 << 20
"""An estimate of the resident memory of the Python interpreter itself, in bytes."""
_AROUND_S = 0.06
"""The sampler and the helper that reads stacks may see the same memory at times that differ by this many seconds."""
_ENDING_S = 0.1
"""At the exit of a process, the clean-up of memory is assumed to last at most this many seconds. Only needed if the
process did not report when its own code had finished."""
_JUST_BEFORE_S = 1e-6
"""Seconds to subtract from the time of the largest reading near the end of a process, because at this time the memory
may already be gone."""

_INNERMOST = 2
"""A stack counts as known even if up to this number of innermost frames are uncertain."""


Memory = tuple[int | None, str]
"""The ``id`` of a process (None if the session does not list the process), and a kind of memory. The kinds are ``file``
(pages of files, and shared memory), ``block`` (a large block that the allocator mapped by itself) and ``heap`` (all
other memory).
"""


class Part(NamedTuple):
    """A part of the memory at a peak: the bytes that a stack, or a program that does not run Python, took."""

    size: int
    kind: str
    """``seen``: a stack took the memory. ``program``: a program that does not run Python took the memory.
    ``not_seen``: no stack was seen. ``shared``: memory that a forked copy may share with the parent; the size is an
    upper limit. RSS counts shared memory twice.
    """
    process: int | None
    """The ``id`` of the process; None if the session does not list the process."""
    stack: Stack = ()
    """The stack that most likely took the memory, the outermost frame first. If ``kind`` is ``program``, the stack of
    the Python code that started the program. Empty if no stack was seen.
    """
    certain: int = 0
    """The number of frames, counted from the outermost frame, that were running for certain when the memory was taken.
    The other frames of ``stack`` are only likely.
    """
    program: str = ""
    """The name of the program if ``kind`` is ``program``; otherwise empty."""
    is_start: bool = False
    """Whether this is the memory of Python itself, in a process that was first seen just after the start of the
    process."""
    file_size: int = 0
    """The bytes of ``size`` that are pages of mapped files, or shared memory. Always 0 in older recordings."""
    still: int = 0
    """The number of frames, counted from the outermost frame, that stayed at the same instruction while the memory
    rose. The line numbers of these frames are certain.
    """
    memory: str = HEAP
    """The kind of memory: ``file`` (pages of files, and shared memory), ``block`` (large blocks with separate
    addresses) or ``heap`` (all other memory).
    """
    epoch: int = 0
    """The number of times that the process had freed memory of this kind before this part was taken. Each later entry
    in ``BuildUp.freed`` may have freed this part.
    """

    @property
    def is_certain(self) -> bool:
        """Whether the stack or program that took the memory is known. Up to two innermost frames may be uncertain."""
        likely = sum(place >= self.certain for place, _ in reported_frames(self.stack))
        return self.kind == PROGRAM or (self.certain > 0 and likely <= _INNERMOST)


class Freed(NamedTuple):
    """The bytes that a process freed. No reading shows which part of the memory was freed."""

    size: float
    parts: Sequence[tuple[Part, float]]
    """The parts of the memory that are assumed to be freed, each with the number of freed bytes. Memory that was taken
    last is assumed to be freed first.
    """


class BuildUp(NamedTuple):
    """The memory at a moment: the bytes that each stack, or each program that does not run Python, took.

    The sizes of ``parts`` (the largest part first) sum to ``size`` bytes.
    """

    at_s: float
    size: int
    parts: Sequence[Part]
    freed: Mapping[Memory, Sequence[Freed]] = {}
    """Freed memory, the earliest first: ``{(id of the process, kind of memory): [Freed, ...]}``."""
    top: Part | None = None
    """The stack that took the most memory in the last rise before the moment; None if no stack was seen. ``top.size``
    counts all bytes that the stack holds at the moment, also bytes from earlier rises.
    """

    def sum_of(self, *kinds: str) -> int:
        """Return the sum of the bytes of all parts whose ``kind`` is in ``kinds``."""
        return sum(part.size for part in self.parts if part.kind in kinds)


class Moment(NamedTuple):
    """The moment at which RSS reached a size, between ``from_s`` and ``to_s`` (seconds since the start)."""

    from_s: float
    to_s: float
    size: int = -1
    """The RSS of all processes in bytes. If negative, the RSS at ``to_s`` counts, as read by the helper that reads
    stacks.
    """
    process: int | None = None
    """The ``id`` of the process whose growth made RSS reach ``size``; None if unknown."""
    since_s: float | None = None
    """If not None, only memory that was taken after this time (seconds since the start) counts: the bytes of each
    process above the RSS at this time.
    """


def of_peak(session: Session) -> BuildUp | None:
    """Return the build-up (the bytes that each stack or program took) of the RSS peak.

    None if there are no stacks, or if the moment of the peak is unknown.
    """
    return session.once(_build_up_peak)


def _build_up_peak(session: Session) -> BuildUp | None:
    peak = session.rss_peak
    if not peak.low or peak.low < 0 or peak.span_s is None:
        return None
    moment = Moment(*peak.span_s, peak.low, peak.process)
    return build_ups(session, [moment])[0]


def of_operation(session: Session, operation: Operation) -> BuildUp | None:
    """Return the build-up of the largest RSS during an operation; None if unknown.

    A build-up has the bytes that each stack or program took.
    """
    peak = operation.of("rss").peak
    if peak is None or peak.low <= 0:
        return None
    moment = Moment(peak.from_s, peak.to_s, round(peak.low))
    return build_ups(session, [moment])[0]


def at(session: SessionData, time_s: float, since_s: float | None = None) -> BuildUp | None:
    """Return the build-up (the bytes that each stack or program took) at ``time_s`` (seconds since the start).

    None if the helper that reads stacks saw no process. If ``since_s`` is given, only memory that was taken after
    ``since_s`` counts.
    """
    return build_ups(session, [Moment(time_s, time_s, since_s=since_s)])[0]


def at_end(session: Session) -> BuildUp | None:
    """Return the memory that was still in use when the program's code had finished; None if unknown.

    The result has the bytes that each stack or program took. The code has finished when the last Python process reports
    the end of its code. A Python process that was started by Python does not count, because the resource tracker of
    ``multiprocessing`` outlives the program. If there is no Python process, the end of the last process counts.
    """
    return session.once(_build_up_end)


def _build_up_end(session: Session) -> BuildUp | None:
    snapshots = session.snapshots or Snapshots()
    pythons = {watched.process: watched for watched in snapshots.processes if watched.windows}
    begun = [process for process in session.processes if process.parent not in pythons]
    outermost = [pythons[process.id] for process in begun if process.id in pythons]
    return at(session, max(map(_end_of, outermost or snapshots.processes), default=0.0))


def held_at_end(session: Session) -> int | None:
    """Return the bytes that a Python program still used at its end, except the memory of Python itself and of imports.

    Memory that forked copies share counts once. If a signal or ``--max-memory`` ended the program, the result is None.
    The result is also None if no Python process reported the end of its code: the last readings may show memory that
    the code had already freed.
    """
    end = at_end(session)
    snapshots = session.snapshots
    if end is None or snapshots is None or session.exit is None:
        return None
    limit = session.limit_reached
    is_ended_by_us = limit is not None and limit.action == "kill"
    is_reported = any(watched.code_end_s == end.at_s for watched in snapshots.processes)
    if session.exit.signal is not None or is_ended_by_us or not is_reported:
        return None
    unshared = (part for part in end.parts if part.kind != SHARED)
    return sum(part.size for part in unshared if not imported_with(part, snapshots))


def _end_of(watched: WatchedProcess) -> float:
    """Return the time at which the code of a process ended, in seconds since the start.

    If the process did not report this time, return the time of the largest RSS in the last 0.1 s of the process.
    """
    if watched.code_end_s is not None:
        return watched.code_end_s
    gone_s = max(compress(watched.time_s, watched.rss), default=0.0)
    last_s = watched.time_s[bisect_left(watched.time_s, gone_s - _ENDING_S) :]
    return max(last_s, key=lambda time_s: rss_at(watched, time_s), default=0.0) - _JUST_BEFORE_S


def build_ups(session: SessionData, moments: Sequence[Moment]) -> list[BuildUp | None]:
    """Return the build-up (the bytes that each stack or program took) of each moment.

    None if the helper that reads stacks saw no process.
    """
    snapshots = session.snapshots
    if snapshots is None or not any(watched.windows or watched.is_native for watched in snapshots.processes):
        return [None] * len(moments)
    builder = _Builder(snapshots, session.processes)
    return [builder.build_up(moment) for moment in moments]


class _ProcessRise(NamedTuple):
    """The rises of a process's memory: all rises, or only the rises after a moment."""

    watched: WatchedProcess
    rises: list[Rise]
    """Rises of memory, the earliest rise first."""
    falls: Mapping[str, Sequence[Fall]]
    """Memory that the process freed: ``{kind of memory: falls}``."""

    @property
    def size(self) -> float:
        return sum(rise.size for rise in self.rises)

    @property
    def last_s(self) -> float:
        return max(rise.to_s for rise in self.rises)


class _Piece(NamedTuple):
    """A part of the memory before rounding. ``size`` may be a fraction. ``part.size`` is always 0."""

    part: Part
    size: float
    file_size: float = 0.0


def _find_highest(processes: Sequence[WatchedProcess], moment: Moment) -> float:
    """Return the time in or near the span of ``moment`` at which all processes together held the most memory."""
    if moment.size < 0:
        return moment.to_s
    times = {moment.from_s, moment.to_s}
    for watched in processes:
        first = bisect_left(watched.time_s, moment.from_s - _AROUND_S)
        last = bisect_left(watched.time_s, moment.to_s + _AROUND_S)
        times.update(watched.time_s[first:last])

    def sum_at(time_s: float) -> float:
        return sum(rss_at(watched, time_s) for watched in processes)

    return max(sorted(times), key=sum_at)


class _Builder:
    """Makes the build-ups of a session: the bytes that each stack or program took up to a moment.

    The timeline of each process is prepared once for all build-ups.
    """

    def __init__(self, snapshots: Snapshots, processes: Iterable[Process]) -> None:
        self._snapshots = snapshots
        self._owners: dict[int, RiseOwners] = {}
        self._processes: dict[int | None, Process] = {process.id: process for process in processes}
        self._watched = {watched.process: watched for watched in snapshots.processes}

    def build_up(self, moment: Moment) -> BuildUp | None:
        """Return the build-up (the bytes that each stack or program took) of a moment; None if no process was seen."""
        at_s = _find_highest(self._snapshots.processes, moment)
        changes = self._find_changes(moment, at_s)
        if not changes and moment.since_s is None:
            return None
        top = self._find_top(changes[0]) if changes else None
        size = moment.size
        explained = sum(change.size for change in changes)
        pieces: list[_Piece] = []
        if size < 0:
            size = round(explained)
        else:
            pieces += self._add_unwatched(at_s, size - explained)
            explained += sum(piece.size for piece in pieces)
            changes = list(_fit_to_size(changes, size - explained, at_s))
        for change in changes:
            pieces += self._parts_of(change, at_s)
        parts = _sum_pieces(pieces, size)
        if top is not None:
            sizes = [part.size for part in parts if part.stack == top.stack]
            top = top._replace(size=sum(sizes))
        freed: dict[Memory, list[Freed]] = {}
        for change in changes:
            watched = change.watched
            for memory, falls in change.falls.items():
                freed[watched.process, memory] = [self._make_freed(watched, fall) for fall in falls]
        return BuildUp(at_s, size, parts, freed, top=top)

    def _find_changes(self, moment: Moment, at_s: float) -> list[_ProcessRise]:
        """Return the rises of memory of each process.

        If ``moment.since_s`` is given, only the growth of memory since then is returned. The process ``moment.process``
        is first. The other processes are sorted by the time of their last rise, the latest first.
        """
        changes = []
        for watched in self._snapshots.processes:
            rises, falls = levels_at(watched, at_s)
            if moment.since_s is not None:
                shared = shared_at(watched, moment.since_s)
                rises = _cut_first(rises, rss_at(watched, moment.since_s) - shared, shared)
            if rises:
                changes.append(_ProcessRise(watched, rises, falls))

        def order(change: _ProcessRise) -> tuple[bool, float, float]:
            is_of_moment = change.watched.process == moment.process is not None
            return is_of_moment, change.last_s, change.size

        return sorted(changes, key=order, reverse=True)

    def _add_unwatched(self, at_s: float, missing: float) -> Iterator[_Piece]:
        """Yield the memory of processes that the sampler saw, but the helper that reads stacks did not.

        These processes ran only for a short time. ``missing`` is the number of bytes that no other process explains; at
        most this number of bytes is yielded.
        """
        for process in self._processes.values():
            has_begun = process.counted_s is not None and process.counted_s <= at_s + _AROUND_S
            has_ended = process.end_s is not None and process.end_s < at_s - _AROUND_S
            unseen = min(process.first_rss or 0, missing)
            if not has_begun or has_ended or process.id in self._watched or unseen <= 0:
                continue
            shared = 0.0
            if process.forked_copy:
                shared = self._limit_shared(process, unseen, process.counted_s or 0.0)
            yield _Piece(Part(0, SHARED, process.id), shared)
            yield _Piece(Part(0, NOT_SEEN, process.id), unseen - shared)
            missing -= unseen

    def _owners_in(self, watched: WatchedProcess) -> RiseOwners:
        if id(watched) not in self._owners:
            self._owners[id(watched)] = RiseOwners(watched, self._snapshots)
        return self._owners[id(watched)]

    def _parts_of(self, change: _ProcessRise, at_s: float) -> Iterator[_Piece]:
        watched = change.watched
        process = self._processes.get(watched.process)
        first = [rise for rise in change.rises if rise.to_s == watched.time_s[0]]  # there is no earlier reading
        later = change.rises[len(first) :]
        size = sum(rise.size for rise in first)
        file_size = sum(rise.size for rise in first if rise.memory == FILE)
        shared = min(watched.inherited, size - file_size)
        if shared:
            shared = self._limit_shared(process, shared, watched.time_s[0])
            yield _Piece(Part(0, SHARED, watched.process), shared)
        unshared = size - shared
        if watched.is_native and not watched.windows:
            name = "" if process is None else process.name
            program = Part(0, PROGRAM, watched.process, self._find_starter(watched, at_s), program=name)
            yield _Piece(program, unshared, min(unshared, file_size))
            for rise in later:
                yield _Piece(program, rise.size, rise.size if rise.memory == FILE else 0.0)
            return
        file_share = min(1.0, file_size / unshared) if unshared else 0.0
        begun_s = None if process is None or not watched.windows else process.start_s
        if begun_s is None or watched.time_s[0] - begun_s > _STARTING_S:
            yield _Piece(Part(0, NOT_SEEN, watched.process), unshared, unshared * file_share)
        else:
            python = 0.0 if watched.inherited else min(unshared, _PYTHON_SIZE)
            yield _Piece(Part(0, NOT_SEEN, watched.process, is_start=True), python, python * file_share)
            begun_s = min(begun_s, watched.time_s[0])
            rise = Rise(unshared - python, begun_s, watched.time_s[0], is_replaced=True)
            yield from self._divide(watched, rise, file_share)
        for rise in later:
            yield from self._divide(watched, rise, 1.0 if rise.memory == FILE else 0.0)

    def _divide(self, watched: WatchedProcess, rise: Rise, file_share: float = 0.0) -> Iterator[_Piece]:
        owners = self._owners_in(watched)
        for share in owners.shares(rise):
            certain = 0 if rise.is_replaced else share.certain
            still = 0 if rise.is_replaced else share.still
            for from_s, to_s in rise.moved:
                going_on, standing = owners.going_on(share.stack, from_s, to_s)
                certain = min(certain, going_on)
                still = min(still, standing)
            part = Part(
                size=0,
                kind=SEEN if share.stack else NOT_SEEN,
                process=watched.process,
                stack=share.stack,
                certain=certain,
                still=still,
                memory=rise.memory,
                epoch=rise.epoch,
            )
            yield _Piece(part, share.size, share.size * file_share)

    def _make_freed(self, watched: WatchedProcess, fall: Fall) -> Freed:
        parts: list[tuple[Part, float]] = []
        for rise in fall.removed:
            parts += [(piece.part, piece.size) for piece in self._divide(watched, rise)]
        return Freed(fall.size, parts)

    def _find_starter(self, watched: WatchedProcess, at_s: float) -> Stack:
        """Return the stack of a program's nearest Python ancestor, which started the program or waits for its end."""
        process = self._processes.get(watched.process)
        for _ in self._processes:  # in a damaged journal, parents may form a circle
            process = None if process is None else self._processes.get(process.parent)
            above = None if process is None else self._watched.get(process.id)
            if above is not None and above.windows:
                return self._owners_in(above).waits_at(watched.time_s[0], at_s)
        return ()

    def _limit_shared(self, process: Process | None, size: float, seen_s: float) -> float:
        """Return how many bytes a forked copy can share with the parent: at most ``size``, the first RSS of the copy.

        The limit is the parent's largest RSS between the fork and ``seen_s``, when the copy was first seen. Pages of
        files do not count, because fork(2) does not copy these pages. The time of the fork is rounded to ticks of the
        kernel.
        """
        parent = None if process is None else self._processes.get(process.parent)
        if process is None or parent is None:
            return size
        watched = self._watched.get(parent.id)
        if watched is None:
            return min(size, parent.most_memory or size)
        begun_s = process.start_s or 0.0
        first = bisect_left(watched.time_s, begun_s)
        moments = [begun_s, *watched.time_s[first : bisect_left(watched.time_s, seen_s)], seen_s]
        largest = max(rss_at(watched, at_s) - shared_at(watched, at_s) for at_s in moments)
        return min(size, largest or size)

    def _find_top(self, change: _ProcessRise) -> Part | None:
        """Return the stack or program that took the most bytes in the last rise of memory; None if no stack was seen.

        The ``size`` of the result is 0; the caller fills in the size. If the stacks before and after the rise took
        equal shares, return the stack that was seen later.
        """
        last = max(change.rises, key=lambda rise: rise.to_s)
        middle_s = (last.from_s + last.to_s) / 2  # at the end of the rise, the call may already have returned
        rise = replace(last, from_s=middle_s, to_s=middle_s)
        pieces = list(self._parts_of(change._replace(rises=[rise]), middle_s))
        top = max(reversed(pieces), key=lambda piece: piece.size).part
        return top if top.stack or top.kind == PROGRAM else None


def _cut_first(rises: Sequence[Rise], size: float, file_size: float) -> list[Rise]:
    """Remove the earliest bytes from the rises, and return the remaining rises.

    ``file_size`` bytes of files and ``size`` bytes of other memory are removed.
    """
    remaining = {True: file_size, False: size}
    later = []
    for rise in rises:
        is_file = rise.memory == FILE
        part = replace(rise).cut_last(max(0.0, rise.size - remaining[is_file]))
        remaining[is_file] = max(0.0, remaining[is_file] - rise.size)
        if part.size > 0:
            later.append(part)
    return later


def _fit_to_size(changes: Iterable[_ProcessRise], missing: float, at_s: float) -> Iterator[_ProcessRise]:
    """Yield the processes, with rises that sum to the peak. ``missing`` is the peak minus the present sum.

    Missing bytes are added to the first process. If the sum is too large, the newest rises become smaller.
    """
    for change in changes:
        unexplained = Rise(max(0.0, missing), at_s, at_s, _AROUND_S, is_replaced=True)
        rises = [*change.rises, unexplained]
        too_much = max(0.0, -missing)
        for rise in sorted(rises, key=lambda rise: -rise.to_s):
            too_much -= rise.cut_last(too_much).size
        missing = -too_much
        yield change._replace(rises=[rise for rise in rises if rise.size > 0])


def _sum_pieces(pieces: Iterable[_Piece], size: int) -> list[Part]:
    """Return parts in whole bytes that sum to ``size``, the largest part first."""
    sizes = defaultdict[Part, float](float)
    file_sizes = defaultdict[Part, float](float)
    for piece in pieces:
        sizes[piece.part] += piece.size
        file_sizes[piece.part] += piece.file_size
    parts = []
    for part, part_size in sizes.items():
        file_size = round(file_sizes[part])
        parts.append(part._replace(size=round(part_size), file_size=file_size))
    parts.sort(key=lambda part: -part.size)
    if parts:
        largest = parts[0].size + size - sum(part.size for part in parts)
        file_size = min(largest, parts[0].file_size)
        parts[0] = parts[0]._replace(size=largest, file_size=file_size)
    return [part for part in parts if part.size > 0]


_PROGRAM_NAME = 40


def running_text(top: Part) -> str:
    """Return the code that was running: ``torch/jit/_trace.py:455 _check_trace, called by openvino/…/ts_decoder.py:9``.

    If code of a library was running, the frame after ``called by`` is the caller of the library. If the user's own
    function was running, the frame is the caller of this function. For a program that does not run Python, return the
    name of the program and the frame that started the program. The text is empty if there are no frames.
    """
    if top.kind == PROGRAM:
        name = shortened(printable(top.program), _PROGRAM_NAME) or "a program without Python"
        return ", ".join(filter(None, (name, _starter_text(top.stack))))
    stack = [frame for _, frame in reported_frames(top.stack)]
    frame = innermost_frame(stack)
    if frame is None:
        return ""
    caller = calling_place(stack[: stack.index(frame) + 1])
    text = brief_label(frame)
    return text if caller is None else f"{text}, called by {brief_label(stack[caller], has_function=False)}"


def _starter_text(stack: Sequence[Frame]) -> str:
    """Return ``started by FRAME, for CALL``, or an empty text if there are no frames.

    FRAME is the frame that started a program. CALL is the library call that led to this frame.
    """
    frame = innermost_frame(stack)
    if frame is None:
        return ""
    libraries = (outer for outer in stack if package_of(outer.file) not in {OWN, PYTHON})
    entry = next(libraries, frame)
    package = package_of(entry.file)
    text = f"started by {brief_label(frame)}"
    if package == package_of(frame.file):
        return text
    function = f"{package}/…/{shortened(printable(entry.function), _PROGRAM_NAME)}"
    return f"{text}, for {brief_label(entry) if module_of(entry) else function}"


_IMPORT = re.compile(r"(?:import|from)\s+(\w+)")


def imported_with(part: Part, snapshots: Snapshots) -> str:
    """Return the package whose import took a part of the memory; empty if the memory is not from an import."""
    if part.is_start:
        return PYTHON
    if part.kind != SEEN:
        return ""
    package = imported_package(part.stack)
    frame = deepest_own(part.stack)
    if package or frame is None:
        return package
    for statement in source_of(snapshots, frame).split(";"):
        match = _IMPORT.match(statement.strip())
        if match is None:
            return ""
        package = match[1]
    return package
