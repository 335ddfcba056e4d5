"""The frames that made the memory of a process rise at a moment, by the timeline of its stacks.

While memory rises, RSS and stacks are read together. What rose between two readings belongs to the calls that went on
from one to the other: they are certain. Below them stands the likeliest stack.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise, takewhile
from math import inf

from nncftools.session.model import MOST_FRAMES, Frame, Snapshots, WatchedProcess

Stack = tuple[Frame, ...]
"""The outermost frame first."""

_NEAR_S = 1.0
"""A stack that was seen earlier before a rise, or later after it, does not explain the rise."""
_ROUNDED_S = 2e-6
_ONE_STEP = 1.01
"""What rose between two readings of RSS stays whole; times are rounded."""
_WAITING = ("threading.py", "/thread.py", "queue.py", "selectors.py", "socket.py", "subprocess.py", "connection.py")
"""A thread whose innermost frame is in one of these files of the standard library waits, and takes no memory there."""
_STARTING = ("/subprocess.py", "/os.py", "/popen_spawn_posix.py")
"""Files of the standard library that start another program, or wait for it."""


class RiseOwners:
    """The timeline of one process: the stack of each thread at each reading."""

    def __init__(self, watched: WatchedProcess, snapshots: Snapshots) -> None:
        self._snapshots = snapshots
        self._loops = set(snapshots.loops)
        self._times = times = sorted({time_s for window in watched.windows for time_s in window.time_s})
        self._faults = watched.faults
        self._fault_times = [reading.time_s for reading in watched.faults]
        self._cuts = sorted({*self._times, *self._fault_times})
        self._depths: dict[int | None, int] = {None: 0}
        self._threads: dict[int, list[tuple[int | None, int]]] = {}
        """Of each thread, its stack at each reading, and how many of its outer frames were in the same call before."""
        before_s = -inf
        for window in watched.windows:
            first, last = bisect_right(times, before_s), bisect_right(times, window.to_s)
            for thread in window.threads:
                readings = self._threads.setdefault(thread.thread, [(None, 0)] * len(times))
                unchanged = MOST_FRAMES if thread.same else 0  # earlier recordings have no calls
                calls = thread.same or [0] * len(thread.stacks)
                begins = [bisect_left(times, time_s, first, last) for time_s in thread.time_s]
                spans = pairwise([*begins, last])
                for stack, same, time_s, (begin, end) in zip(thread.stacks, calls, thread.time_s, spans, strict=True):
                    readings[begin:end] = [(stack, unchanged)] * (end - begin)
                    if begin < end and time_s > before_s:  # the first reading may be the last of the window before
                        readings[begin] = stack, same
            before_s = window.to_s

    def shares(self, from_s: float, to_s: float, apart_s: float, size: float) -> Iterator[tuple[Stack, int, float]]:
        """Yield the likeliest stacks in which ``size`` bytes came evenly between two moments; empty for not seen.

        With each come the number of its outer frames that certainly took the memory, themselves or in what they called,
        and the bytes. A moment between them is known to ``apart_s``: RSS was read so often.
        """
        if to_s - from_s <= apart_s * _ONE_STEP:
            unknown_s = max(0.0, apart_s - (to_s - from_s))
            yield from self._owners(from_s - unknown_s, to_s + unknown_s, size)
            return
        cuts = self._cuts[bisect_right(self._cuts, from_s) : bisect_left(self._cuts, to_s)]
        for begin_s, end_s in pairwise([from_s, *cuts, to_s]):
            yield from self._owners(begin_s, end_s, size * (end_s - begin_s) / (to_s - from_s))

    def _owners(self, from_s: float, to_s: float, size: float) -> Iterator[tuple[Stack, int, float]]:
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
                yield (), 0, part
                continue
            certain = self._certain(thread, readings) if is_sure else 0
            for stack in seen[0], seen[-1]:
                yield self._frames(stack), certain, part / 2

    def _seen(self, thread: int, readings: range) -> list[int]:
        return [stack for stack, _ in self._threads[thread][readings.start : readings.stop] if stack is not None]

    def _weights(self, readings: range, near: range, to_s: float) -> Counter[tuple[int | None, bool]]:
        """Return the shares of the threads, and whether each is sure; None for an unknown one.

        The kernel counts page faults per thread. What threads without Python code touch belongs to the only Python
        thread of the process, or likely to the only one that does not wait.
        """
        python = self._python(readings) or self._python(near)
        number = bisect_left(self._fault_times, to_s)
        if number == len(self._faults):
            return Counter({(python[0] if len(python) == 1 else None, True): 1})
        reading = self._faults[number]
        of_threads = {(thread, True): faults for thread, faults in reading.threads if faults and thread in python}
        weights = Counter[tuple[int | None, bool]](of_threads)
        native = sum(faults for thread, faults in reading.threads if thread not in python)
        at = min(bisect_left(self._times, reading.time_s), len(self._times) - 1)
        ended = [thread for thread in python if self._threads[thread][at][0] is None] if reading.lost else []
        if len(ended) == 1:
            weights[ended[0], True] += reading.lost
        else:
            native += reading.lost
        if native or not weights:
            weights[self._caller(python, readings, near)] += native or 1
        return weights

    def _python(self, readings: range) -> list[int]:
        return [thread for thread in self._threads if self._seen(thread, readings)]

    def _caller(self, python: Sequence[int], *around: range) -> tuple[int | None, bool]:
        """Return the only thread that worked in the longest time around, and whether that is sure."""
        for readings in reversed(around):
            busy = [thread for thread in python if not all(map(self._waits, self._seen(thread, readings)))]
            if len(busy) == 1:
                return busy[0], readings is around[-1]
        return (python[0], True) if len(python) == 1 else (None, False)

    def _certain(self, thread: int, readings: range) -> int:
        """Return how many frames took what came between readings: their calls went on all the time."""
        first, *others = self._threads[thread][readings.start : readings.stop]
        going_on = (min(same, self._single(stack)) for stack, same in others)
        return min(self._single(first[0]), min(going_on, default=0))

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
        return innermost.endswith(_WAITING) and "site-packages" not in innermost

    def waits_at(self, from_s: float, to_s: float) -> Stack:
        """Return the stack that was there most often of the threads that ran another program, or of the first one."""
        around = range(max(0, bisect_right(self._times, from_s) - 1), bisect_right(self._times, to_s) + 1)
        seen = [self._frames(stack) for thread in sorted(self._threads) for stack in self._seen(thread, around)]
        running = [stack for stack in seen if any(frame.file.endswith(_STARTING) for frame in stack)]
        return max(running or seen, key=(running or seen).count, default=())

    def _frames(self, stack: int) -> Stack:
        return tuple(self._snapshots.frames[number] for number in self._snapshots.stacks[stack])


def shared_depth(*stacks: Sequence[Hashable]) -> int:
    """Return how many outer frames stacks share; without lines, they are given by the codes of their frames."""
    return sum(1 for _ in takewhile(lambda codes: len(set(codes)) == 1, zip(*stacks, strict=False)))


def rss_at(watched: WatchedProcess, time_s: float) -> float:
    """Return the RSS of a process at a moment; 0 before and after its life, as its last point is 0 when it ends."""
    times, rss = watched.time_s, watched.rss
    first, last = bisect_left(times, time_s), bisect_right(times, time_s)
    if first < last:
        return max(rss[first:last])
    if not 0 < first < len(times):  # the helper ended before it, or the process was not there yet
        return float(rss[-1]) if first else 0.0
    before_s, after_s = times[first - 1], times[first]
    return rss[first - 1] + (rss[first] - rss[first - 1]) * (time_s - before_s) / (after_s - before_s)
