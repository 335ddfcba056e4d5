"""The stack that made the memory of a process rise at a moment, by the looks before and after."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from nncftools.session.model import Look, Snapshots, ThreadLook, WatchedProcess

Weights = dict[tuple[int | None, bool], float]
"""By thread, None for an unknown one, and by whether it still lives."""

_CERTAIN_WITHIN_S = 0.6
"""Between looks farther apart than this, other code may have run, even if both show the same stack."""
_STEADY_WITHIN_S = 5.0
"""The same limit where the looks before and after show this stack, too."""
_NEAR_S = 1.0
"""A stack that was seen earlier before a rise, or later after it, does not explain the rise."""
_BESIDE_S = 0.02
_GROWTH = 256 * 1024
"""Memory still rises if it gains this much in ``_BESIDE_S``."""
_GOES_ON_S = 0.03
_GOES_ON = 0.25
"""Memory still rises at a look if in both such steps beside it, it rises by this part of the mean rise or more."""
_AROUND = 4
_RESTLESS = 3
"""With this many changes in the looks around, two equal stacks may be equal by chance."""
_BUSY = 0.5
_WAITING = ("threading.py", "queue.py", "selectors.py", "socket.py", "subprocess.py", "_base.py", "connection.py")
"""A thread whose innermost frame is in one of these files of the standard library waits."""


class RiseStack(NamedTuple):
    """The stack that a rise belongs to; None for not seen."""

    stack: int | None
    other: int | None = None
    """The other possible one; None for an unknown one."""
    shared: int = 0
    """How many outer frames both share."""
    depth: int = 0
    """How many outer frames of ``stack`` count."""
    is_certain: bool = False


UNSEEN = RiseStack(None)


class RiseAttribution:
    """The looks of one process."""

    def __init__(self, watched: WatchedProcess, snapshots: Snapshots) -> None:
        self._watched = watched
        self._looks = watched.looks
        self._times = [look.time_s for look in watched.looks]
        self._snapshots = snapshots
        self._grows = [
            rss_at(watched, time_s + _BESIDE_S) - rss_at(watched, time_s) >= _GROWTH for time_s in self._times
        ]
        """Whether RSS still rises right after each look: a look always comes after a rise."""
        self._threads: list[dict[int, ThreadLook]] = [
            {thread.thread: thread for thread in look.threads} for look in watched.looks
        ]
        self._known: dict[tuple[int, bool], list[tuple[RiseStack, float]]] = {}
        self._codes: dict[int, tuple[tuple[str, str], ...]] = {}

    def shares(self, from_s: float, to_s: float, size: float) -> Iterator[tuple[RiseStack, float]]:
        """Yield the owners of ``size`` bytes that came evenly between two moments, and the bytes of each."""
        for start_s, end_s in self._pieces(from_s, to_s):
            part = size if to_s <= from_s else size * (end_s - start_s) / (to_s - from_s)
            middle_s = (start_s + end_s) / 2
            number = bisect_right(self._times, middle_s)
            for owner, share in self._shares(number, middle_s):
                yield owner, part * share

    def _pieces(self, from_s: float, to_s: float) -> Iterator[tuple[float, float]]:
        """Split a time at the looks, halfway between two looks, and where the next look is too far away."""
        first, last = bisect_left(self._times, from_s), bisect_right(self._times, to_s)
        around = self._times[max(0, first - 1) : last + 1]
        cuts = [*around, *((look_s + next_s) / 2 for look_s, next_s in pairwise(around))]
        cuts += [time_s + sign * _NEAR_S for time_s in around for sign in (-1, 1)]
        inside = sorted({cut for cut in cuts if from_s < cut < to_s})
        yield from pairwise([from_s, *inside, to_s])

    def _shares(self, number: int, at_s: float) -> list[tuple[RiseStack, float]]:
        """Return the stacks and their shares at a moment before look ``number``."""
        before_s = self._times[number - 1] if number else None
        after_s = self._times[number] if number < len(self._times) else None
        is_later = before_s is None or (after_s is not None and after_s - at_s < at_s - before_s)
        nearest_s = after_s if is_later else before_s
        is_near = nearest_s is not None and abs(nearest_s - at_s) <= _NEAR_S
        if 0 < number < len(self._grows) and self._grows[number - 1] != self._grows[number]:
            is_later = self._grows[number]  # the other look shows what ran while memory did not rise
        key = number, is_later
        if key not in self._known:
            self._known[key] = self._counted(number, is_later=is_later)
        shares = self._known[key]
        return shares if is_near else [(self._far(owner), share) for owner, share in shares]

    def _far(self, owner: RiseStack) -> RiseStack:
        """Return what is known of a stack when no look is near: the frames that both stacks share."""
        if owner.stack is None or owner.other is None:
            return UNSEEN
        depth = self._shared(owner.stack, owner.other)
        return owner._replace(depth=depth, shared=min(owner.shared, depth), is_certain=False) if depth else UNSEEN

    def _counted(self, number: int, *, is_later: bool) -> list[tuple[RiseStack, float]]:
        """Return the stacks and their shares of what came between two looks, by the page faults of the threads."""
        before = self._threads[number - 1] if number else {}
        after = self._threads[number] if number < len(self._threads) else {}
        weights = self._weights(number, before, after)
        if not (whole := sum(weights.values())):
            return [(UNSEEN, 1.0)]
        goes_on = self._goes_on(number)
        shares: dict[RiseStack, float] = {}
        for (thread, lives), weight in weights.items():
            owner = (
                UNSEEN if thread is None else self._owner(number, thread, is_later=is_later, proven=goes_on and lives)
            )
            shares[owner] = shares.get(owner, 0.0) + weight / whole
        return list(shares.items())

    def _goes_on(self, number: int) -> bool:
        """Return whether memory rises about evenly: as fast right after the look before as right before the look after.

        If not, the rise between them was a burst of other code: a look comes some 20 ms after a rise, and shows what
        runs then.
        """
        if not 0 < number < len(self._times):
            return False
        before_s, after_s = self._times[number - 1], self._times[number]
        step_s = min(_GOES_ON_S, (after_s - before_s) / 2)
        if step_s <= 0:
            return False
        moments = [before_s, before_s + step_s, before_s + 2 * step_s, after_s - 2 * step_s, after_s - step_s, after_s]
        sizes = [rss_at(self._watched, time_s) for time_s in moments]
        rises = [sizes[1] - sizes[0], sizes[2] - sizes[1], sizes[4] - sizes[3], sizes[5] - sizes[4]]
        least = _GOES_ON * (sizes[5] - sizes[0]) * step_s / (after_s - before_s)
        return least > 0 and min(rises) >= least

    def _weights(self, number: int, before: dict[int, ThreadLook], after: dict[int, ThreadLook]) -> Weights:
        """Return the page faults between two looks by the thread whose Python code they belong to."""
        python = [thread for thread in {**before, **after} if _stack(thread, before, after)]
        if number >= len(self._looks):  # after the last look, faults are not counted: the threads may go on as before
            return self._weights(number - 1, {}, before) if number else {(None, True): 1.0}
        look = self._looks[number]
        weights: Weights = {}
        native = 0
        for thread in look.threads:
            if _stack(thread.thread, before, after):
                if thread.faults:
                    weights[thread.thread, True] = float(thread.faults)
            else:
                native += thread.faults
        gone = [thread for thread in before if thread not in after and before[thread].stack is not None]
        if look.lost:
            owner = gone[0] if len(gone) == 1 else None if gone else self._caller(look, before, after, number)
            weights[owner, False] = float(look.lost)
        if native:
            caller = self._caller(look, before, after, number), True
            weights[caller] = weights.get(caller, 0.0) + native
        if not weights:
            weights[python[0] if len(python) == 1 else None, True] = 1.0
        return weights

    def _caller(
        self, look: Look, before: dict[int, ThreadLook], after: dict[int, ThreadLook], number: int
    ) -> int | None:
        """Return the Python thread that started the work of native threads; None when that is not known.

        Native threads run no Python code. The Python thread is the only one that does not wait. If it computes without
        touching memory, it may do something else.
        """
        candidates = [
            thread
            for thread in {**before, **after}
            if (stack := _stack(thread, before, after)) and not self._waits(stack[0])
        ]
        if len(candidates) != 1:
            return None
        caller = after.get(candidates[0])
        begun_s = self._times[number - 1] if number else look.time_s
        if caller is None:
            return candidates[0]
        every = [thread.faults for thread in look.threads if thread.faults]
        has_part = caller.faults * 2 * len(every) >= sum(every)
        is_busy = caller.cpu_s > (look.time_s - begun_s) * _BUSY
        return candidates[0] if has_part or not is_busy else None

    def _waits(self, stack: int) -> bool:
        frames = self._snapshots.stacks[stack]
        innermost = self._snapshots.frames[frames[-1]].file if frames else ""
        return innermost.endswith(_WAITING) and "site-packages" not in innermost

    def _owner(self, number: int, thread: int, *, is_later: bool, proven: bool) -> RiseStack:
        """Return the stack that took memory of a thread between two looks. Only a ``proven`` one can be certain."""
        before = self._stack_at(number - 1, thread)
        after = self._stack_at(number, thread)
        best, other = (after, before) if is_later else (before, after)
        if best is None:
            best, other = other, None
        if best is None:
            return UNSEEN
        depth = len(self._code(best))
        shared = 0 if other is None else self._shared(best, other)
        if other is None or shared < max(depth, len(self._code(other))):
            return RiseStack(best, other, shared if proven else 0, depth)
        return self._of_equal(number, thread, best) if proven else RiseStack(best, None, 0, depth)

    def _of_equal(self, number: int, thread: int, stack: int) -> RiseStack:
        """Return the stack that both looks show: it is certain, unless they may be equal by chance."""
        depth = len(self._code(stack))
        around = self._around(number, thread)
        changes = sum(self._code(before) != self._code(after) for before, after in pairwise(around))
        limit_s = _CERTAIN_WITHIN_S if changes or len(around) <= _AROUND else _STEADY_WITHIN_S
        if self._times[number] - self._times[number - 1] > limit_s:
            return RiseStack(stack, None, 0, depth)
        if changes < _RESTLESS:
            return RiseStack(stack, stack, depth, depth, is_certain=True)
        others = [another_stack for another_stack in around if self._code(another_stack) != self._code(stack)]
        another = min(others, key=lambda another_stack: self._shared(another_stack, stack))
        return RiseStack(stack, another, self._shared(stack, another), depth)

    def _around(self, number: int, thread: int) -> list[int]:
        looks = range(max(0, number - _AROUND), min(len(self._looks), number + _AROUND))
        return [stack for look in looks if (stack := self._stack_at(look, thread)) is not None]

    def _stack_at(self, number: int, thread: int) -> int | None:
        if not 0 <= number < len(self._threads):
            return None
        look = self._threads[number].get(thread)
        return None if look is None else look.stack

    def _code(self, stack: int) -> tuple[tuple[str, str], ...]:
        if stack not in self._codes:
            frames = self._snapshots.frames
            self._codes[stack] = tuple(frames[number].code for number in self._snapshots.stacks[stack])
        return self._codes[stack]

    def _shared(self, stack: int, other: int) -> int:
        return shared_depth(self._code(stack), self._code(other))


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


def _stack(thread: int, *looks: dict[int, ThreadLook]) -> Sequence[int]:
    return [stack for look in looks if thread in look and (stack := look[thread].stack) is not None]
