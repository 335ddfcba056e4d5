"""The frames that made the memory of a process rise at a moment, by the timeline of its stacks.

While memory rises, RSS and stacks are read together. What rose between two readings belongs to the calls that went on
from one to the other: they are certain. Below them stands the likeliest stack.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import inf
from typing import NamedTuple

from nncftools.session.model import MOST_FRAMES, Snapshots, WatchedProcess

Code = tuple[tuple[str, str], ...]
"""The functions of a stack with their files, the outermost first."""

_NEAR_S = 1.0
"""A stack that was seen earlier before a rise, or later after it, does not explain the rise."""
_ROUNDED_S = 2e-6
_ONE_STEP = 1.01
"""What rose between two readings of RSS stays whole; times are rounded."""
_WAITING = ("threading.py", "/thread.py", "queue.py", "selectors.py", "socket.py", "subprocess.py", "connection.py")
"""A thread whose innermost frame is in one of these files of the standard library waits, and takes no memory there."""
_STARTING = ("/subprocess.py", "/os.py", "/popen_spawn_posix.py")
"""Files of the standard library that start another program, or wait for it."""


class Owner(NamedTuple):
    """Whose a rise is."""

    stack: int | None
    """The likeliest stack, as an index of ``Snapshots.stacks``; None for not seen."""
    certain: int = 0
    """How many of its outer frames certainly took the memory, themselves or in what they called."""


UNSEEN = Owner(None)


class RiseOwners:
    """The timeline of one process: the stack of each thread at each reading."""

    def __init__(self, watched: WatchedProcess, snapshots: Snapshots) -> None:
        self._snapshots = snapshots
        self._loops = set(snapshots.loops)
        self._codes: dict[int, Code] = {}
        self._times = times = sorted({time_s for window in watched.windows for time_s in window.time_s})
        self._threads: dict[int, list[int | None]] = {}
        self._same: dict[int, list[int]] = {}
        """Of each thread, how many outer frames were in the same call at the reading before."""
        before_s = -inf
        for window in watched.windows:
            first, last = bisect_left(times, window.from_s), bisect_left(times, window.to_s)
            for thread in window.threads:
                stacks = self._threads.setdefault(thread.thread, [None] * len(times))
                same = self._same.setdefault(thread.thread, [0] * len(times))
                unchanged = MOST_FRAMES if thread.same else 0  # earlier recordings have no calls
                calls = thread.same or [0] * len(thread.stacks)
                changes = zip(thread.stacks, calls, pairwise([*thread.time_s, inf]), strict=True)
                for stack, same_at_change, (from_s, to_s) in changes:
                    begin, end = max(first, bisect_left(times, from_s)), min(last + 1, bisect_left(times, to_s))
                    stacks[begin:end] = [stack] * (end - begin)
                    same[begin + 1 : end] = [unchanged] * (end - begin - 1)
                    if times[begin] > before_s:  # the first reading may be the last of the window before
                        same[begin] = same_at_change
            before_s = window.to_s
        self._depths: dict[int, int] = {}
        self._faults = watched.faults
        self._fault_times = [reading.time_s for reading in watched.faults]

    def shares(self, from_s: float, to_s: float, apart_s: float, size: float) -> Iterator[tuple[Owner, float]]:
        """Yield the owners of ``size`` bytes that came evenly between two moments, and the bytes of each.

        A moment between them is known to ``apart_s``: RSS was read so often.
        """
        if to_s - from_s <= apart_s * _ONE_STEP:
            unknown_s = max(0.0, apart_s - (to_s - from_s))
            yield from self._owners(from_s - unknown_s, to_s + unknown_s, size)
            return
        cuts = sorted(
            cut
            for of in (self._fault_times, self._times)
            for cut in of[bisect_right(of, from_s) : bisect_left(of, to_s)]
        )
        for begin_s, end_s in pairwise([from_s, *cuts, to_s]):
            yield from self._owners(begin_s, end_s, size * (end_s - begin_s) / (to_s - from_s))

    def _owners(self, from_s: float, to_s: float, size: float) -> Iterator[tuple[Owner, float]]:
        """Yield the owners of what came between two moments, and the bytes of each."""
        first = max(0, bisect_right(self._times, from_s) - 1)
        last = min(max(first, bisect_left(self._times, to_s - _ROUNDED_S)), len(self._times) - 1)
        near = range(
            bisect_left(self._times, from_s - _NEAR_S, 0, last + 1), bisect_right(self._times, to_s + _NEAR_S, first)
        )
        readings = range(max(first, near.start), min(last + 1, near.stop))
        weights = self._weights(readings, near, to_s)
        whole = sum(weights.values())
        for (thread, is_sure), weight in weights.items():
            part = size * weight / whole
            seen = [] if thread is None else self._seen(thread, readings) or self._seen(thread, near)
            if thread is None or not seen:
                yield UNSEEN, part
                continue
            certain = self._certain(thread, readings) if is_sure else 0
            for stack in seen[0], seen[-1]:
                yield Owner(stack, certain), part / 2

    def _seen(self, thread: int, readings: range) -> list[int]:
        return [stack for stack in self._threads[thread][readings.start : readings.stop] if stack is not None]

    def _weights(self, readings: range, near: range, to_s: float) -> dict[tuple[int | None, bool], float]:
        """Return the shares of the threads, and whether each is sure; None for an unknown one.

        The kernel counts page faults per thread. What threads without Python code touch belongs to the only Python
        thread of the process, or likely to the only one that does not wait.
        """
        python = self._python(readings) or self._python(near)
        number = bisect_left(self._fault_times, to_s)
        if number == len(self._faults):
            return {(python[0] if len(python) == 1 else None, True): 1.0}
        reading = self._faults[number]
        weights: dict[tuple[int | None, bool], float] = {
            (thread, True): float(faults) for thread, faults in reading.threads if faults and thread in python
        }
        native = sum(faults for thread, faults in reading.threads if thread not in python)
        at = min(bisect_left(self._times, reading.time_s), len(self._times) - 1)
        ended = [thread for thread in python if self._threads[thread][at] is None] if reading.lost else []
        if len(ended) == 1:
            weights[ended[0], True] = weights.get((ended[0], True), 0.0) + reading.lost
        else:
            native += reading.lost
        if native or not weights:
            caller = self._caller(python, readings, near)
            weights[caller] = weights.get(caller, 0.0) + (native or 1)
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
        if len(readings) == 1:
            return 0
        stacks = self._threads[thread][readings.start : readings.stop]
        same = self._same[thread][readings.start + 1 : readings.stop]
        return min(*same, *(0 if stack is None else self._single(stack) for stack in stacks))

    def _single(self, stack: int) -> int:
        """Return how many outer frames are in a call that can be told from the next one, and do not wait."""
        if stack not in self._depths:
            code, frames = self.code(stack), self._snapshots.stacks[stack]
            depth = next((depth for depth, frame in enumerate(frames, 1) if frame in self._loops), len(code))
            while self._waits(stack) and depth and code[depth - 1][1] == code[-1][1]:
                depth -= 1  # a function that waits takes no memory
            self._depths[stack] = depth
        return self._depths[stack]

    def _waits(self, stack: int) -> bool:
        code = self.code(stack)
        innermost = code[-1][1] if code else ""
        return innermost.endswith(_WAITING) and "site-packages" not in innermost

    def waits_at(self, from_s: float, to_s: float) -> int | None:
        """Return the stack that was there most often of the threads that ran another program, or of the first one."""
        around = range(max(0, bisect_right(self._times, from_s) - 1), bisect_right(self._times, to_s) + 1)
        seen = [stack for thread in sorted(self._threads) for stack in self._seen(thread, around)]
        running = [stack for stack in seen if self._runs_program(stack)]
        return max(running or seen, key=(running or seen).count, default=None)

    def _runs_program(self, stack: int) -> bool:
        return any(file.endswith(_STARTING) for _, file in self.code(stack))

    def code(self, stack: int) -> Code:
        """Return the functions of a stack."""
        if stack not in self._codes:
            frames = self._snapshots.frames
            self._codes[stack] = tuple(frames[number].code for number in self._snapshots.stacks[stack])
        return self._codes[stack]


def shared_depth(*stacks: Sequence[tuple[str, str]]) -> int:
    """Return how many outer frames stacks share, given by the codes of their frames."""
    depth = 0
    for codes in zip(*stacks, strict=False):
        if codes.count(codes[0]) != len(codes):
            break
        depth += 1
    return depth


def rss_at(watched: WatchedProcess, time_s: float) -> float:
    """Return the RSS of a process at a moment; 0 before and after its life, as its last point is 0 when it ends."""
    times = watched.time_s
    point = bisect_left(times, time_s)
    if point == len(times):  # the helper ended before it
        return float(watched.rss[-1]) if times else 0.0
    if not point or times[point] == time_s:
        same = zip(times[point : point + 3], watched.rss[point : point + 3], strict=True)
        return max((rss for t, rss in same if t == time_s), default=0)
    before_s, after_s = times[point - 1], times[point]
    before, after = watched.rss[point - 1], watched.rss[point]
    return before + (after - before) * (time_s - before_s) / (after_s - before_s)
