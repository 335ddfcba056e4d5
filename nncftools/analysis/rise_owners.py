"""Finds the frames that made the memory of a process rise, from the stacks that were read over time.

While memory rises, RSS and stacks are read together. Memory that rose between two readings certainly belongs to the
calls that lasted from one reading to the other. The frames inside these calls are from the likeliest stack.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf
from typing import NamedTuple

from nncftools.analysis.code_places import FrameRange, Stack, is_importing, shared_depth
from nncftools.analysis.rss_levels import Rise, rss_at
from nncftools.session.model import MOST_FRAMES, Frame, Snapshots, StackWindow, WatchedProcess
from nncftools.snapshot_rules import is_waiting

_NEAR_S = 1.0
"""A stack explains a rise only if the stack was seen at most this many seconds before or after the rise."""
_ROUNDED_S = 2e-6
_SPEED_S = 0.5
"""The speed of a rise is measured over at most this many seconds."""
_SHORTEST_S = 0.001
"""The speed of a rise is measured over at least this many seconds."""
_LONG_S = 0.05
"""If two stacks were read more than this many seconds apart, many calls may have begun and ended in between."""
_MOMENT_S = 0.005
"""If memory did not rise during this many seconds before or after a reading, the stack of the reading took no memory.
Code that takes memory is assumed to run longer."""
_STANDING = 4e6
"""Bytes per second. A slower rise counts as no rise."""
_MOST_IMPORTED = 16 << 20
"""If memory rose by more bytes between two readings with different stacks, the memory is not from an import."""
_PAGE = 4096
_HUGE_PAGE = 2 << 20
_HALF = 0.5
_SMALL = 0.05
"""If the page faults of a thread explain a smaller share of a rise than this, the thread took no memory. Of the page
faults of all threads, a smaller share shows that the thread did nothing."""
_ONE_STEP = 1.01
"""A rise is not divided if the rise lasts at most the time between two readings, multiplied by this factor. The factor
is above 1, because recorded times are rounded to microseconds."""
_STARTING = ("/subprocess.py", "/os.py", "/popen_spawn_posix.py")
"""Files of the standard library that start another program, or wait for another program."""


class Reading(NamedTuple):
    """The stack of a thread at a reading, and how many frames are unchanged since the previous reading."""

    stack: int | None = None
    same: int = 0
    """The number of outer frames in the same call as at the previous reading."""
    still: int = 0
    """The number of outer frames at the same instruction, with the same variables, as at the previous reading."""


class Share(NamedTuple):
    """A part of a rise, and the code that took this memory."""

    stack: Stack
    """The likeliest stack; empty if no stack was seen."""
    certain: int
    """The number of outer frames that certainly took the memory, themselves or in a call."""
    still: int
    """The number of outer frames that certainly took the memory, and stayed at the same instruction during the whole
    rise. The lines of these frames are certain, too."""
    size: float


class RiseOwners:
    """Finds the code that took the memory of a process's rises, by the stack of each thread at each reading."""

    def __init__(self, watched: WatchedProcess, snapshots: Snapshots) -> None:
        self._watched = watched
        self._snapshots = snapshots
        self._loops = set(snapshots.loops)
        times = set[float]()
        self._has_still = False
        for window in watched.windows:
            times.update(window.time_s)
            self._has_still = self._has_still or any(thread.still for thread in window.threads)
        self._times = sorted(times)
        self._fault_times = [reading.time_s for reading in watched.faults]
        self._cuts = sorted({*self._times, *self._fault_times})
        self._depths: dict[int | None, int] = {None: 0}
        self._threads: dict[int, list[Reading]] = {}
        last_s = -inf
        for window in watched.windows:
            self._take_window(window, last_s)
            last_s = window.to_s

    def _take_window(self, window: StackWindow, last_s: float) -> None:
        """Store the readings of all threads in a window of time; ``last_s`` is the end of the previous window."""
        first = bisect_right(self._times, last_s)
        last = bisect_right(self._times, window.to_s)
        for thread in window.threads:
            readings = self._threads.setdefault(thread.thread, [Reading()] * len(self._times))
            unknown = [0] * len(thread.stacks)  # earlier recordings do not have these lists
            same = thread.same or unknown
            still = thread.still or unknown
            unchanged = Reading(None, MOST_FRAMES if thread.same else 0, MOST_FRAMES if thread.still else 0)
            begins = [bisect_left(self._times, time_s, first, last) for time_s in thread.time_s]
            for number, (begin, end) in enumerate(pairwise([*begins, last])):
                stack = thread.stacks[number]
                readings[begin:end] = [unchanged._replace(stack=stack)] * (end - begin)
                # the first reading may be the previous window's last
                if begin < end and thread.time_s[number] > last_s:
                    readings[begin] = Reading(stack, same[number], still[number])

    def shares(self, rise: Rise) -> Iterator[Share]:
        """Yield the parts of a rise, each with the code that took the memory.

        Start and end of a rise may be wrong by up to ``apart_s`` seconds, the time between two readings of RSS.
        """
        length_s = rise.to_s - rise.from_s
        if length_s <= rise.apart_s * _ONE_STEP:
            unknown_s = max(0.0, rise.apart_s - length_s)
            yield from self._share_out(rise.from_s - unknown_s, rise.to_s + unknown_s, rise.size)
            return
        first = bisect_right(self._cuts, rise.from_s)
        cuts = self._cuts[first : bisect_left(self._cuts, rise.to_s)]
        for begin_s, end_s in pairwise([rise.from_s, *cuts, rise.to_s]):
            yield from self._share_out(begin_s, end_s, rise.size * (end_s - begin_s) / length_s)

    def _share_out(self, from_s: float, to_s: float, size: float) -> Iterator[Share]:
        times = self._times
        first = max(0, bisect_right(times, from_s) - 1)
        last = max(first, bisect_left(times, to_s - _ROUNDED_S))
        last = min(last, len(times) - 1)
        near_first = bisect_left(times, from_s - _NEAR_S, 0, last + 1)
        near = range(near_first, bisect_right(times, to_s + _NEAR_S, first))
        readings = range(max(first, near.start), min(last + 1, near.stop))
        weights = self._weigh_threads(readings, near, to_s)
        total = sum(weights.values())
        for (thread, is_sure), weight in weights.items():
            part = size * weight / total
            share = Share((), 0, 0, part)
            if thread is None:
                yield share
                continue
            stacks = self._stacks_of(thread, readings) or self._stacks_of(thread, near)
            certain, still = self._find_certain(thread, readings)
            if is_sure:
                share = share._replace(certain=certain, still=still)
            ends = (stacks[0], stacks[-1])
            yield from self._divide(thread, readings, ends, share=share, still=still)

    def _divide(
        self, thread: int, readings: range, stacks: tuple[int, int], *, share: Share, still: int
    ) -> Iterator[Share]:
        """Divide a rise between the earlier stack and the later stack, by the speed of the rise during each stack.

        If memory did not rise while a stack was unchanged, this stack took nothing. If neither stack took memory, the
        memory belongs to code between the two readings: to the function that was called in between. If there is no such
        function, the memory belongs to the frames that both stacks have in common. ``still`` is the number of outer
        frames that stayed at the same instruction.
        """
        earlier = self._frames(stacks[0])
        later = self._frames(stacks[1])
        is_loop = stacks[0] == stacks[1] and still < len(earlier) and self._has_still
        if earlier == later and not is_loop:  # the stack did not move, or went on in the same line
            yield share._replace(stack=earlier)
            return
        speed_before = self._measure_speed(thread, readings.start, -1)
        speed_after = self._measure_speed(thread, readings.stop - 1, 1)
        depth = still if earlier == later else shared_depth(earlier, later)
        is_large = share.size > _MOST_IMPORTED
        none_before = _took_nothing(speed_before, earlier[depth:], is_large=is_large)
        none_after = _took_nothing(speed_after, later[depth:], is_large=is_large)
        if none_before and none_after:
            is_long = self._times[readings.stop - 1] - self._times[readings.start] > _LONG_S
            stack = _join_common(earlier, later, depth) if is_long else _join_between(earlier, later, depth)
            certain = min(share.certain, len(stack))
            yield Share(stack, certain, min(share.still, len(stack) - 1), share.size)
            return
        part_before = _HALF
        if none_before != none_after:
            part_before = 0.0 if none_before else 1.0
        elif speed_before and speed_after:
            part_before = speed_before / (speed_before + speed_after)
        if part_before > 0:
            yield share._replace(stack=earlier, size=share.size * part_before)
        if part_before < 1:
            yield share._replace(stack=later, size=share.size * (1 - part_before))

    def _measure_speed(self, thread: int, number: int, step: int) -> float | None:
        """Return the speed of a rise just before or after a reading, in bytes per second.

        ``step`` is -1 for the time before the reading, and 1 for the time after. Only the time with an unchanged stack
        counts. None if this time is too short.
        """
        readings = self._threads[thread]
        times = self._times
        stack = readings[number].stack
        end = number
        while 0 <= end + step < len(times) and readings[end + step].stack == stack:
            later = readings[max(end, end + step)]
            has_moved = self._has_still and later.still < MOST_FRAMES
            if has_moved or abs(times[end + step] - times[number]) > _SPEED_S:
                break
            end += step
        first_s, last_s = sorted((times[number], times[end]))
        if last_s - first_s >= _SHORTEST_S:
            return self._risen(first_s, last_s) / (last_s - first_s)
        first_s, last_s = sorted((times[number], times[number] + step * _MOMENT_S))
        is_known = self._watched.time_s[0] <= first_s and last_s <= self._watched.time_s[-1]
        is_level = is_known and self._risen(first_s, last_s) < _STANDING * _MOMENT_S
        return 0.0 if is_level else None  # otherwise, the rise may belong to another stack

    def _risen(self, from_s: float, to_s: float) -> float:
        return max(0.0, rss_at(self._watched, to_s) - rss_at(self._watched, from_s))

    def _stacks_of(self, thread: int, indexes: range) -> list[int]:
        readings = self._threads[thread][indexes.start : indexes.stop]
        return [reading.stack for reading in readings if reading.stack is not None]

    def _weigh_threads(self, readings: range, near: range, to_s: float) -> Mapping[tuple[int | None, bool], float]:
        """Return the weights of threads: ``{(thread, is_certain): weight}``. ``thread`` is None for an unknown thread.

        A waiting thread took nothing. A single working thread took all memory, also memory that native threads touched
        for this thread. The kernel counts page faults per thread: a thread with too few page faults took nothing. If
        the memory came in huge pages, page faults do not tell threads apart, and each thread gets the same share. A
        single thread is not certain if other threads had nearly all page faults.
        """
        python = self._python_threads(readings) or self._python_threads(near)
        working = [thread for thread in python if not self._waits_through(thread, readings)]
        if not working:
            return {(python[0] if len(python) == 1 else None, False): 1}
        counts: Mapping[int, int] = dict.fromkeys(working, 1)
        number = bisect_left(self._fault_times, to_s)
        is_counted = number < len(self._fault_times)
        if is_counted and len(working) > 1:
            counts = self._weigh_by_faults(number, working)
        if not counts:
            return {(None, False): 1}
        is_sure = len(counts) == 1 and not (is_counted and self._was_idle(number, *counts))
        return {(thread, is_sure): count for thread, count in counts.items()}

    def _was_idle(self, number: int, thread: int) -> bool:
        """Return whether other threads had nearly all page faults of a reading. False if the thread's ID is unknown."""
        reading = self._watched.faults[number]
        counts = dict(reading.threads)
        total = sum(counts.values()) + reading.lost
        return thread > 0 and counts.get(thread, 0) < total * _SMALL

    def _weigh_by_faults(self, number: int, working: Sequence[int]) -> Mapping[int, int]:
        """Return the weights of working threads by their page faults; empty if there were no page faults.

        The page faults of ended threads are only known as a sum. The threads that ended since the previous reading get
        equal shares of this sum.
        """
        reading = self._watched.faults[number]
        counts = {thread: count for thread, count in reading.threads if thread in working}
        if reading.lost:
            index = min(bisect_left(self._times, reading.time_s), len(self._times) - 1)
            ended = [thread for thread in working if self._threads[thread][index].stack is None]
            for thread in ended:
                share = max(1, reading.lost // len(ended))
                counts[thread] = counts.get(thread, 0) + share
        since_s = self._fault_times[number - 1] if number else 0.0
        rise = rss_at(self._watched, reading.time_s) - rss_at(self._watched, since_s)
        if sum(counts.values()) * _PAGE >= rise * _HALF:
            return {thread: count for thread, count in counts.items() if count}
        return {thread: 1 for thread, count in counts.items() if count * _HUGE_PAGE >= rise * _SMALL}

    def _python_threads(self, readings: range) -> list[int]:
        return [thread for thread in self._threads if self._stacks_of(thread, readings)]

    def _waits_through(self, thread: int, indexes: range) -> bool:
        """Return whether a thread was waiting at each reading in ``indexes``. False if a stack is unknown."""
        readings = self._threads[thread][indexes.start : indexes.stop]
        return all(reading.stack is not None and self._waits(reading.stack) for reading in readings)

    def _find_certain(self, thread: int, indexes: range) -> tuple[int, int]:
        """Return how many outer frames took the memory between readings, and how many of these never moved.

        A frame has not moved if it stayed at the same instruction.
        """
        readings = self._threads[thread][indexes.start : indexes.stop]
        later = readings[1:]
        if not later:
            return 0, 0
        depths = [self._count_single(reading.stack) for reading in readings]
        certain = min(*depths, *(reading.same for reading in later))
        return certain, min(certain, *(reading.still for reading in later))

    def _count_single(self, stack: int | None) -> int:
        """Return the number of outer frames that certainly stayed in the same call if two readings show ``stack``.

        A loop in a frame may repeat a call with equal variables. The repeated calls look like a single call, so frames
        inside a frame with a loop do not count. A function that only waits (such as for a lock) takes no memory. If the
        innermost frame waits, this frame and the frames around it in the same file do not count.
        """
        if stack is not None and stack not in self._depths:
            numbers = self._snapshots.stacks[stack]
            depth = 0
            for number in numbers:
                depth += 1
                if number in self._loops:
                    break
            files = [frame.file for frame in self._frames(stack)]
            while self._waits(stack) and depth and files[depth - 1] == files[-1]:
                depth -= 1  # a waiting function takes no memory
            self._depths[stack] = depth
        return self._depths[stack]

    def _waits(self, stack: int) -> bool:
        numbers = self._snapshots.stacks[stack]
        return bool(numbers) and is_waiting(self._snapshots.frames[numbers[-1]].file)

    def going_on(self, stack: Stack, from_s: float, to_s: float) -> tuple[int, int]:
        """Return how many outer frames of a stack stayed in a call between two moments, and how many never moved.

        A frame has not moved if it stayed at the same instruction. Both numbers are 0 if unknown, or if several threads
        ran Python.
        """
        first = max(0, bisect_right(self._times, from_s) - 1)
        readings = range(first, bisect_left(self._times, to_s) + 1)
        python = self._python_threads(readings)
        if len(python) != 1 or self._times[first] < from_s - _NEAR_S:
            return 0, 0
        certain, still = self._find_certain(python[0], readings)
        last = self._frames(self._stacks_of(python[0], readings)[-1])
        functions = shared_depth([frame.code for frame in stack], [frame.code for frame in last])
        return min(certain, functions), min(still, shared_depth(stack, last))

    def waits_at(self, from_s: float, to_s: float) -> Stack:
        """Return the most frequent stack of the threads that started another program, or waited for the program.

        If there are no such threads, use all threads.
        """
        first = max(0, bisect_right(self._times, from_s) - 1)
        readings = range(first, bisect_right(self._times, to_s) + 1)
        stacks: list[Stack] = []
        for thread in sorted(self._threads):
            stacks += map(self._frames, self._stacks_of(thread, readings))
        running = [stack for stack in stacks if any(frame.file.endswith(_STARTING) for frame in stack)]
        stacks = running or stacks
        return max(stacks, key=stacks.count, default=())

    def _frames(self, stack: int) -> Stack:
        return tuple(self._snapshots.frames[number] for number in self._snapshots.stacks[stack])


def _took_nothing(speed: float | None, stack: Stack, *, is_large: bool) -> bool:
    """Return whether the code of a stack took no memory.

    ``speed`` is the rise of memory in bytes per second while the stack was seen; None if unknown. Without a rise, the
    code took nothing. With ``is_large`` (a rise above 16 MiB), code that imports a module is also assumed to have taken
    nothing.
    """
    if is_large and any(map(is_importing, stack)):
        return True
    return speed is not None and speed < _STANDING


def _join_between(earlier: Stack, later: Stack, depth: int) -> Stack:
    """Return the stack that took memory between the readings of two stacks. Their first ``depth`` frames are the same.

    If the later stack has new calls, the innermost new call took the memory, at an unknown line.
    """
    entered = later[depth:]
    codes = [frame.code for frame in earlier[depth : depth + 1]]
    has_moved = [frame.code for frame in entered] == codes  # moved to another line of the same function
    if entered and not has_moved:
        return *later[:-1], Frame(*later[-1].code, 0)
    return _join_common(earlier, later, depth)


def _join_common(earlier: Stack, later: Stack, depth: int) -> Stack:
    """Return the first ``depth`` frames of two stacks, and the next function if only the line differs.

    The next function gets the range of the lines in between, if known.
    """
    common = earlier[:depth]
    if depth >= min(len(earlier), len(later)):
        return common
    if earlier[depth].code != later[depth].code:
        return common
    code = earlier[depth].code
    first = earlier[depth].line
    last = later[depth].line
    if last - first > 1:
        first += 1
        last -= 1
    elif first == last:
        return *common, Frame(*code, 0)
    first, last = sorted((first, last))
    return *common, Frame(*code, first) if first == last else FrameRange(*code, first, last)
