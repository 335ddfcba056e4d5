"""The frames that made the memory of a process rise at a moment, by the timeline of its stacks.

While memory rises, RSS and stacks are read together. What rose between two readings belongs to the calls that went on
from one to the other: they are certain. Below them stands the likeliest stack.
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
"""A stack that was seen earlier before a rise, or later after it, does not explain the rise."""
_ROUNDED_S = 2e-6
_SPEED_S, _SHORTEST_S = 0.5, 0.001
"""The speed of a rise is measured over at most, and at least, this time."""
_LONG_S = 0.05
"""Between stacks that are farther apart, many calls may have come and gone."""
_MOMENT_S = 0.005
"""A line that takes memory goes on taking it for longer."""
_STANDING = 4e6
"""Bytes a second: memory that rises more slowly stands."""
_MOST_IMPORTED = 16 << 20
"""Between two readings in different stacks, an import takes no more."""
_PAGE, _HUGE_PAGE = 4096, 2 << 20
_HALF = 0.5
_SMALL = 0.05
"""A thread took nothing if all its page faults together touched a smaller part of a rise."""
_ONE_STEP = 1.01
"""What rose between two readings of RSS stays whole; times are rounded."""
_STARTING = ("/subprocess.py", "/os.py", "/popen_spawn_posix.py")
"""Files of the standard library that start another program, or wait for it."""


class Reading(NamedTuple):
    """A stack of a thread at a reading, and what of it had not changed since the reading before."""

    stack: int | None = None
    same: int = 0
    """How many outer frames were in the same call."""
    still: int = 0
    """How many outer frames stood at the same instruction with the same variables."""


class Share(NamedTuple):
    """A part of a rise."""

    stack: Stack
    """The likeliest stack; empty for not seen."""
    certain: int
    """How many outer frames certainly took the memory, themselves or in what they called."""
    still: int
    """How many of these stood still, so that their lines are certain, too."""
    size: float
    """In bytes."""


class RiseOwners:
    """The timeline of one process: the stack of each thread at each reading."""

    def __init__(self, watched: WatchedProcess, snapshots: Snapshots) -> None:
        self._watched = watched
        self._snapshots = snapshots
        self._loops = set(snapshots.loops)
        self._times = sorted({time_s for window in watched.windows for time_s in window.time_s})
        self._fault_times = [reading.time_s for reading in watched.faults]
        self._cuts = sorted({*self._times, *self._fault_times})
        self._depths: dict[int | None, int] = {None: 0}
        self._has_still = any(thread.still for window in watched.windows for thread in window.threads)
        self._threads: dict[int, list[Reading]] = {}
        before_s = -inf
        for window in watched.windows:
            self._take_window(window, before_s)
            before_s = window.to_s

    def _take_window(self, window: StackWindow, before_s: float) -> None:
        times = self._times
        first, last = bisect_right(times, before_s), bisect_right(times, window.to_s)
        for thread in window.threads:
            readings = self._threads.setdefault(thread.thread, [Reading()] * len(times))
            nothing = [0] * len(thread.stacks)
            calls, still = thread.same or nothing, thread.still or nothing  # earlier recordings have none
            unchanged = Reading(None, MOST_FRAMES if thread.same else 0, MOST_FRAMES if thread.still else 0)
            begins = [bisect_left(times, time_s, first, last) for time_s in thread.time_s]
            for number, (begin, end) in enumerate(pairwise([*begins, last])):
                stack = thread.stacks[number]
                readings[begin:end] = [unchanged._replace(stack=stack)] * (end - begin)
                if begin < end and thread.time_s[number] > before_s:  # the first may be the last of the window before
                    readings[begin] = Reading(stack, calls[number], still[number])

    def shares(self, rise: Rise) -> Iterator[Share]:
        """Yield who took the bytes of a rise.

        A moment of it is known to ``apart_s``: RSS was read so often.
        """
        from_s, to_s, apart_s = rise.from_s, rise.to_s, rise.apart_s
        if to_s - from_s <= apart_s * _ONE_STEP:
            unknown_s = max(0.0, apart_s - (to_s - from_s))
            yield from self._owners(from_s - unknown_s, to_s + unknown_s, rise.size)
            return
        cuts = self._cuts[bisect_right(self._cuts, from_s) : bisect_left(self._cuts, to_s)]
        for begin_s, end_s in pairwise([from_s, *cuts, to_s]):
            part = rise.size * (end_s - begin_s) / (to_s - from_s)
            yield from self._owners(begin_s, end_s, part)

    def _owners(self, from_s: float, to_s: float, size: float) -> Iterator[Share]:
        times = self._times
        first = max(0, bisect_right(times, from_s) - 1)
        last = min(max(first, bisect_left(times, to_s - _ROUNDED_S)), len(times) - 1)
        near = range(bisect_left(times, from_s - _NEAR_S, 0, last + 1), bisect_right(times, to_s + _NEAR_S, first))
        readings = range(max(first, near.start), min(last + 1, near.stop))
        weights = self._weights(readings, near, to_s)
        whole = sum(weights.values())
        for (thread, is_sure), weight in weights.items():
            part = size * weight / whole
            seen = [] if thread is None else self._seen(thread, readings) or self._seen(thread, near)
            if thread is None or not seen:
                yield Share((), 0, 0, part)
            else:
                certain, still = self._certain(thread, readings)
                share = Share((), certain if is_sure else 0, still if is_sure else 0, part)
                yield from self._divided(thread, readings, (seen[0], seen[-1]), share, still)

    def _divided(
        self, thread: int, readings: range, seen: tuple[int, int], share: Share, still: int
    ) -> Iterator[Share]:
        """Divide a rise between the stack before and the one after by the speed at which memory rose in each.

        A stack that stood for a while without growth took nothing. If both stood, a line took it that nobody saw, in
        the function that was entered in between, or else in the frames that both have in common. ``still`` is how many
        outer frames of one stack stood still.
        """
        before, after = map(self._frames, seen)
        is_loop = seen[0] == seen[1] and still < len(before) and self._has_still
        if before == after and not is_loop:  # it stood still, or went on in the same line
            yield share._replace(stack=before)
            return
        speed_before = self._speed(thread, readings.start, -1)
        speed_after = self._speed(thread, readings.stop - 1, 1)
        depth = still if before == after else shared_depth(before, after)
        is_large = share.size > _MOST_IMPORTED
        stood_before = _stood(speed_before, before[depth:], is_large=is_large)
        stood_after = _stood(speed_after, after[depth:], is_large=is_large)
        part_before = _HALF
        if stood_before and stood_after:
            is_long = self._times[readings.stop - 1] - self._times[readings.start] > _LONG_S
            stack = _common(before, after, depth) if is_long else _between(before, after, depth)
            yield Share(stack, min(share.certain, len(stack)), min(share.still, len(stack) - 1), share.size)
            return
        if stood_before != stood_after:
            part_before = 0.0 if stood_before else 1.0
        elif speed_before and speed_after:
            part_before = speed_before / (speed_before + speed_after)
        if part_before > 0:
            yield share._replace(stack=before, size=share.size * part_before)
        if part_before < 1:
            yield share._replace(stack=after, size=share.size * (1 - part_before))

    def _speed(self, thread: int, number: int, step: int) -> float | None:
        """Return the bytes a second by which memory rose beside a reading, while the stack stood still.

        ``step`` is -1 for the time before it, 1 for the time after it. None if that time is too short to tell.
        """
        readings, times = self._threads[thread], self._times
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
        has_stood = is_known and self._risen(first_s, last_s) < _STANDING * _MOMENT_S
        return 0.0 if has_stood else None  # what rose may be of another stack

    def _risen(self, from_s: float, to_s: float) -> float:
        return max(0.0, rss_at(self._watched, to_s) - rss_at(self._watched, from_s))

    def _seen(self, thread: int, readings: range) -> list[int]:
        every = self._threads[thread][readings.start : readings.stop]
        return [reading.stack for reading in every if reading.stack is not None]

    def _weights(self, readings: range, near: range, to_s: float) -> Mapping[tuple[int | None, bool], float]:
        """Return the shares of the threads, and whether each is sure; None for an unknown one.

        A thread that waits took nothing. If one thread works, it took all, also what native threads touched for it. The
        kernel counts page faults per thread: a thread that had too few took nothing. Where huge pages came, several
        threads cannot be told apart: each is taken to have the same share.
        """
        python = self._python(readings) or self._python(near)
        working = [thread for thread in python if not self._waits_through(thread, readings)]
        if not working:
            return {(python[0] if len(python) == 1 else None, False): 1}
        counts: Mapping[int, int] = dict.fromkeys(working, 1)
        number = bisect_left(self._fault_times, to_s)
        if len(working) > 1 and number < len(self._fault_times):
            counts = self._faults(number, working)
        if not counts:
            return {(None, False): 1}
        return {(thread, len(counts) == 1): count for thread, count in counts.items()}

    def _faults(self, number: int, working: Sequence[int]) -> Mapping[int, int]:
        """Return the shares of working threads by their page faults at a reading of faults; empty if they had none.

        The faults of threads that ended are shared by the threads that ended since.
        """
        every = self._watched.faults
        reading = every[number]
        counts = {thread: count for thread, count in reading.threads if thread in working}
        at = min(bisect_left(self._times, reading.time_s), len(self._times) - 1)
        ended = [thread for thread in working if self._threads[thread][at].stack is None]
        for thread in ended if reading.lost else ():
            counts[thread] = counts.get(thread, 0) + max(1, reading.lost // len(ended))
        since_s = every[number - 1].time_s if number else 0.0
        rise = rss_at(self._watched, reading.time_s) - rss_at(self._watched, since_s)
        if sum(counts.values()) * _PAGE >= rise * _HALF:
            return {thread: count for thread, count in counts.items() if count}
        return {thread: 1 for thread, count in counts.items() if count * _HUGE_PAGE >= rise * _SMALL}

    def _python(self, readings: range) -> list[int]:
        return [thread for thread in self._threads if self._seen(thread, readings)]

    def _waits_through(self, thread: int, readings: range) -> bool:
        """Return whether a thread stood in a call that waits, at all readings."""
        every = self._threads[thread][readings.start : readings.stop]
        return all(reading.stack is not None and self._waits(reading.stack) for reading in every)

    def _certain(self, thread: int, readings: range) -> tuple[int, int]:
        """Return how many frames took what came between readings, and how many of these stood still all the time."""
        every = self._threads[thread][readings.start : readings.stop]
        later = every[1:]
        if not later:
            return 0, 0
        depths = [self._single(reading.stack) for reading in every]
        certain = min(*depths, *(reading.same for reading in later))
        return certain, min(certain, *(reading.still for reading in later))

    def _single(self, stack: int | None) -> int:
        """Return how many outer frames are in a call that can be told from the next one, and do not wait."""
        if stack is not None and stack not in self._depths:
            numbers, files = self._snapshots.stacks[stack], [frame.file for frame in self._frames(stack)]
            depth = next((depth for depth, frame in enumerate(numbers, 1) if frame in self._loops), len(numbers))
            while self._waits(stack) and depth and files[depth - 1] == files[-1]:
                depth -= 1  # a function that waits takes no memory
            self._depths[stack] = depth
        return self._depths[stack]

    def _waits(self, stack: int) -> bool:
        innermost = "".join(self._snapshots.frames[number].file for number in self._snapshots.stacks[stack][-1:])
        return is_waiting(innermost)

    def going_on(self, stack: Stack, from_s: float, to_s: float) -> tuple[int, int]:
        """Return how many outer functions of a stack went on between two moments, and how many of these stood still.

        0 if that is unknown, or if several threads ran Python.
        """
        readings = range(max(0, bisect_right(self._times, from_s) - 1), bisect_left(self._times, to_s) + 1)
        python = self._python(readings)
        if len(python) != 1 or self._times[readings.start] < from_s - _NEAR_S:
            return 0, 0
        certain, still = self._certain(python[0], readings)
        last = self._seen(python[0], readings)[-1]
        then = self._frames(last)
        functions = shared_depth([frame.code for frame in stack], [frame.code for frame in then])
        return min(certain, functions), min(still, shared_depth(stack, then))

    def waits_at(self, from_s: float, to_s: float) -> Stack:
        """Return the stack that was there most often of the threads that ran another program, or of the first one."""
        around = range(max(0, bisect_right(self._times, from_s) - 1), bisect_right(self._times, to_s) + 1)
        seen = [self._frames(stack) for thread in sorted(self._threads) for stack in self._seen(thread, around)]
        running = [stack for stack in seen if any(frame.file.endswith(_STARTING) for frame in stack)]
        return max(running or seen, key=(running or seen).count, default=())

    def _frames(self, stack: int) -> Stack:
        return tuple(self._snapshots.frames[number] for number in self._snapshots.stacks[stack])


def _stood(speed: float | None, stack: Stack, *, is_large: bool) -> bool:
    """Return whether a stack took nothing of a rise: memory stood in it, or it imports and the rise ``is_large``."""
    if is_large and any(map(is_importing, stack)):
        return True
    return speed is not None and speed < _STANDING


def _between(before: Stack, after: Stack, depth: int) -> Stack:
    """Return the stack that took memory between two stacks whose first ``depth`` frames are the same.

    If the later stack has calls that the earlier one has not, the innermost of these took it, at an unknown line.
    """
    moved = before[depth : depth + 1]
    if len(after) > depth + 1 or (len(after) > depth and (not moved or moved[0].code != after[depth].code)):
        return *after[:-1], Frame(*after[-1].code, 0)
    return _common(before, after, depth)


def _common(before: Stack, after: Stack, depth: int) -> Stack:
    """Return the first ``depth`` frames of two stacks, and the function that moved from a line to another one.

    That has the range of the lines in between, as far as these are known; of one line, that line.
    """
    common = before[:depth]
    if depth >= min(len(before), len(after)) or before[depth].code != after[depth].code:
        return common
    code, first, last = before[depth].code, before[depth].line, after[depth].line
    if last - first > 1:
        first, last = first + 1, last - 1
    elif first == last:
        return *common, Frame(*code, 0)
    first, last = sorted((first, last))
    return *common, Frame(*code, first) if first == last else FrameRange(*code, first, last)
