"""The frames that made the memory of a process rise at a moment, by the timeline of its stacks.

RSS is read every few milliseconds, stacks at a steady rate. What rose between two readings belongs to the frames that
all stacks of its thread share from just before to just after: they are certain. Below them stands the likeliest stack.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import inf
from typing import NamedTuple

from nncftools.session.model import Snapshots, WatchedProcess

Code = tuple[tuple[str, str], ...]
"""The functions of a stack with their files, the outermost first."""

_NEAR_S = 1.0
"""A stack that was seen earlier before a rise, or later after it, does not explain the rise."""
_ONE_STEP = 1.01
"""What rose between two readings of RSS stays whole; times are rounded."""
_BESIDE_S = 1.0
"""Rises are judged together with others at most so long before and after them."""
_HITS = 7
"""So many readings should have fallen into rises that are judged together. py-spy's readings come at random, so a call
that took half of these rises was missed by all of them in 3 % (e^-3.5)."""
_AFTER = 2
"""The first reading after a rise comes within so many intervals in 86 %, at random."""
_CLOCKS_S = 0.005
"""py-spy's times and the helper's agree to this (measured, docs/stacks.md)."""
_INSIDE = 0.999
"""A piece that ends where another stack comes near does not touch it."""
_UNCHANGED_S = 1.0
"""A stack that seems to go on for longer may not have been read meanwhile."""
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


class _Span(NamedTuple):
    """A time in which a thread had one stack, or none."""

    from_s: float
    """It was first seen then."""
    to_s: float
    stack: int | None
    every_s: float
    """It may have begun so much earlier."""
    is_doubtful: bool
    """Whether readings failed for so long that it may have ended much earlier."""


class RiseOwners:
    """The timeline of one process."""

    def __init__(self, watched: WatchedProcess, snapshots: Snapshots) -> None:
        self._snapshots = snapshots
        self._codes: dict[int, Code] = {}
        self._threads: dict[int, list[_Span]] = {}
        windows = sorted(watched.windows, key=lambda window: window.from_s)
        for window in windows:
            is_doubtful = window.lost * window.every_s > _UNCHANGED_S
            for thread in window.threads:
                spans = self._threads.setdefault(thread.thread, [])
                for stack, (from_s, to_s) in zip(thread.stacks, pairwise([*thread.time_s, window.to_s]), strict=True):
                    doubtful = is_doubtful and to_s - from_s > _UNCHANGED_S
                    spans.append(_Span(from_s, to_s, stack, window.every_s, doubtful))
        for spans in self._threads.values():
            spans.sort(key=lambda span: span.from_s)  # windows overlap
        self._starts = {thread: [span.from_s for span in spans] for thread, spans in self._threads.items()}
        self._longest = {thread: max(span.to_s - span.from_s for span in of) for thread, of in self._threads.items()}
        self._covered = list(_joined((window.from_s, window.to_s, window.every_s) for window in windows))
        self._rises = list(_rises(watched))
        self._rise_ends = [to_s for _, to_s, _ in self._rises]
        self._faults = watched.faults
        self._fault_times = [reading.time_s for reading in watched.faults]

    def shares(self, from_s: float, to_s: float, apart_s: float, size: float) -> Iterator[tuple[Owner, float]]:
        """Yield the owners of ``size`` bytes that came evenly between two moments, and the bytes of each.

        A moment between them is known to ``apart_s``: RSS was read so often.
        """
        is_one_step = to_s - from_s <= apart_s * _ONE_STEP
        unknown_s = max(0.0, apart_s - (to_s - from_s)) if is_one_step else apart_s
        for start_s, end_s in [(from_s, to_s)] if is_one_step else self._pieces(from_s, to_s, unknown_s):
            part = size if to_s <= from_s else size * (end_s - start_s) / (to_s - from_s)
            weights = self._weights(start_s, end_s)
            whole = sum(weights.values())
            for (thread, is_sure), weight in weights.items():
                yield self._owner(thread, start_s, end_s, unknown_s, is_sure=is_sure), part * weight / whole

    def _pieces(self, from_s: float, to_s: float, unknown_s: float) -> Iterator[tuple[float, float]]:
        """Split a time where the owner may change."""
        cuts = set(self._fault_times[bisect_right(self._fault_times, from_s) : bisect_left(self._fault_times, to_s)])
        for covered in self._covered:
            cuts.update(covered)
        margin_s = unknown_s + _CLOCKS_S
        for thread in self._threads:
            for span in self._around(thread, from_s - margin_s, to_s + _NEAR_S):
                cuts.update((span.from_s - margin_s - _AFTER * span.every_s, span.from_s, span.from_s + margin_s))
        yield from pairwise([from_s, *sorted(cut for cut in cuts if from_s < cut < to_s), to_s])

    def _weights(self, from_s: float, to_s: float) -> dict[tuple[int | None, bool], float]:
        """Return the shares of the threads, and whether each is sure; None for an unknown one.

        The kernel counts page faults per thread. What threads without Python code touch belongs to the only Python
        thread of the process, or likely to the only one that does not wait.
        """
        python = self._python(from_s, to_s) or self._python(from_s - _NEAR_S, to_s + _NEAR_S)
        number = bisect_left(self._fault_times, to_s)
        if number == len(self._faults):
            return {(next(iter(python)) if len(python) == 1 else None, True): 1.0}
        reading = self._faults[number]
        weights: dict[tuple[int | None, bool], float] = {
            (thread, True): float(faults) for thread, faults in reading.threads if thread in python
        }
        native = sum(faults for thread, faults in reading.threads if thread not in python)
        ended = [thread for thread in python if not any(self._seen(thread, reading.time_s))] if reading.lost else []
        if len(ended) == 1:
            weights[ended[0], True] = weights.get((ended[0], True), 0.0) + reading.lost
        else:
            native += reading.lost
        if native or not weights:
            caller = self._caller(python, from_s, to_s)
            weights[caller] = weights.get(caller, 0.0) + (native or 1)
        return weights

    def _python(self, from_s: float, to_s: float) -> set[int]:
        return {thread for thread in self._threads if next(self._around(thread, from_s, to_s), None) is not None}

    def _caller(self, python: set[int], from_s: float, to_s: float) -> tuple[int | None, bool]:
        for around_s in (_NEAR_S, 0.0):
            near = {thread: self._around(thread, from_s - around_s, to_s + around_s) for thread in python}
            busy = [thread for thread, spans in near.items() if not all(map(self._rests, spans))]
            if len(busy) == 1:
                return busy[0], around_s > 0
        return (next(iter(python)), True) if len(python) == 1 else (None, False)

    def _rests(self, span: _Span) -> bool:
        return span.stack is None or self._waits(span.stack)

    def _seen(self, thread: int, at_s: float) -> Iterator[bool]:
        return (span.stack is not None for span in self._around(thread, at_s, at_s))

    def _around(self, thread: int, from_s: float, to_s: float) -> Iterator[_Span]:
        """Yield the spans of a thread that may overlap with a time."""
        spans, starts = self._threads[thread], self._starts[thread]
        for span in spans[bisect_left(starts, from_s - self._longest[thread]) :]:
            if span.from_s > to_s:
                return
            if span.to_s >= from_s:
                yield span

    def _owner(self, thread: int | None, from_s: float, to_s: float, unknown_s: float, *, is_sure: bool) -> Owner:
        """Return the owner in a thread of what came between two moments, which are known to ``unknown_s``."""
        if thread is None:
            return UNSEEN
        near = list(self._around(thread, from_s - _NEAR_S, to_s + _NEAR_S))
        seen = [span for span in near if span.stack is not None]
        if not seen:
            return UNSEEN
        best = max(seen, key=lambda span: (min(span.to_s, to_s) - max(span.from_s, from_s), span.from_s))
        assert best.stack is not None
        number = bisect_right(self._covered, (from_s, inf)) - 1
        if not is_sure or number < 0 or to_s > self._covered[number][1]:
            return Owner(best.stack)
        margin_s = (unknown_s + _CLOCKS_S) * _INSIDE
        rises = self._rises_around(from_s - margin_s, to_s + margin_s, best.every_s)
        return Owner(best.stack, self._shared(thread, rises, _AFTER * best.every_s * _INSIDE))

    def _rises_around(self, from_s: float, to_s: float, every_s: float) -> list[tuple[float, float]]:
        """Return the times near a rise in which memory rose, so many that enough readings fell into them; else none."""
        more_s = 0.0
        while more_s <= _BESIDE_S:
            begin_s, end_s = from_s - more_s, to_s + more_s
            first = bisect_left(self._rise_ends, begin_s)
            last = bisect_left(self._rise_ends, end_s, first) + 1
            rises = [
                (max(rise[0], begin_s), min(rise[1], end_s)) for rise in self._rises[first:last] if rise[0] < end_s
            ]
            if sum(end_s - begin_s for begin_s, end_s in rises) >= _HITS * every_s:
                return [(from_s, to_s), *rises]
            more_s = max(2 * more_s, every_s)
        return []

    def _shared(self, thread: int, times: list[tuple[float, float]], every_s: float) -> int:
        """Return how many frames all stacks of a thread share from before to after each time; 0 for unknown."""
        around = {span for from_s, to_s in times for span in self._around(thread, from_s, to_s + every_s)}
        stacks = [self._active(span.stack) for span in around if span.stack is not None and not span.is_doubtful]
        return shared_depth(*stacks) if len(stacks) == len(around) else 0

    def _active(self, stack: int) -> Code:
        """Return the functions of a stack that may take memory: one that waits does not."""
        code = self.code(stack)
        depth = len(code)
        while self._waits(stack) and depth and code[depth - 1][1] == code[-1][1]:
            depth -= 1
        return code[:depth]

    def _waits(self, stack: int) -> bool:
        code = self.code(stack)
        innermost = code[-1][1] if code else ""
        return innermost.endswith(_WAITING) and "site-packages" not in innermost

    def waits_at(self, from_s: float, to_s: float) -> int | None:
        """Return the stack that was longest there of the threads that ran another program, or of the first one."""
        spans = [span for thread in sorted(self._threads) for span in self._around(thread, from_s, to_s)]
        running = [span for span in spans if span.stack is not None and self._runs_program(span.stack)]
        longest = max(running or spans, key=lambda span: min(span.to_s, to_s) - max(span.from_s, from_s), default=None)
        return None if longest is None else longest.stack

    def _runs_program(self, stack: int) -> bool:
        return any(file.endswith(_STARTING) for _, file in self.code(stack))

    def code(self, stack: int) -> Code:
        """Return the functions of a stack."""
        if stack not in self._codes:
            frames = self._snapshots.frames
            self._codes[stack] = tuple(frames[number].code for number in self._snapshots.stacks[stack])
        return self._codes[stack]


def _rises(watched: WatchedProcess) -> Iterator[tuple[float, float, float]]:
    """Yield the times in which memory rose without a pause, and the longest time between two readings in each."""
    begin_s, end_s, longest_s = -inf, -inf, 0.0
    points = zip(watched.time_s, watched.rss, watched.apart_s, strict=True)
    for (before_s, before, _), (time_s, rss, apart_s) in pairwise(points):
        if rss <= before:
            continue
        if before_s > end_s:
            if end_s > begin_s:
                yield begin_s, end_s, longest_s
            begin_s, longest_s = before_s, 0.0
        end_s, longest_s = time_s, max(longest_s, apart_s)
    if end_s > begin_s:
        yield begin_s, end_s, longest_s


def _joined(windows: Iterator[tuple[float, float, float]]) -> Iterator[tuple[float, float]]:
    """Yield the times that windows cover together; two are one if no reading is missing between them."""
    begin_s = end_s = -inf
    for from_s, to_s, every_s in windows:
        if from_s > end_s + every_s:
            if end_s > begin_s:
                yield begin_s, end_s
            begin_s, end_s = from_s, to_s
        end_s = max(end_s, to_s)
    if end_s > begin_s:
        yield begin_s, end_s


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
