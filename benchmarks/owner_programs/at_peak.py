"""What each allocation of a random program really had at the peak.

The peak is the moment, near the recorded one, at which RSS in the program's own log is nearest to the recorded peak.
An allocation that is under way then has a part of its bytes, by time. If RSS has grown by more, it has all of that: a
call into a library may take temporary memory.

What rose for an allocation is still there until RSS falls. A fall takes away what was freed, the latest first. If more
falls, it was temporary memory of the allocations that began last. Freed memory that glibc keeps for later stays with
the allocation it rose for; later allocations that reuse it have no rise.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from benchmarks.owner_programs.generator import MIB
from benchmarks.owner_programs.recording import Place, Reading, Taken, Truth

Window = tuple[int, int]
"""Two moments of the monotonic clock in nanoseconds; the peak was between them."""

_STEP_NS = 1_000_000
_NOISE = 2 * MIB
"""At the same moment, the RSS in the program's log and that of the sampler differ by so much."""


class Holding(NamedTuple):
    """What an allocation has at the peak, in bytes."""

    stack: Sequence[Place]
    held: float
    most: float
    """It may hold so much: the moment of the peak is not known exactly."""
    rose: float
    """What rose for it and is still there, even if it was freed."""


def holdings_at(truth: Truth, window: Window, peak: int) -> Iterator[Holding]:
    """Yield what the allocations of a program have at a peak of so many bytes."""
    at_ns = moment_of(truth, window, peak)
    growing = _growing(truth, at_ns, peak)
    risen = _risen(truth, at_ns)
    for token, taken in truth.taken.items():
        held = max(_held(taken, at_ns), growing.get(token, 0.0))
        rose = risen.get(token, 0.0) + growing.get(token, 0.0)
        most = held
        if _is_near(taken, window):
            most = max(held, taken.size if taken.until_ns <= window[0] else max(taken.size, peak - taken.rss))
        if most or rose:
            yield Holding(taken.stack, held, most, rose)


def moment_of(truth: Truth, window: Window, peak: int) -> int:
    """Return the moment at which RSS is nearest to the peak; of several such moments, the one at which most is held."""
    near = [taken for taken in truth.taken.values() if _is_near(taken, window)]
    changes = chain.from_iterable((taken.until_ns, taken.ends_ns - 1) for taken in near)
    moments = {*range(*window, _STEP_NS), window[1]}
    moments.update(int(at_ns) for at_ns in changes if window[0] < at_ns < window[1])
    processes = truth.by_process().values()
    apart = {at_ns: abs(sum(_rss_at(readings, at_ns) for readings in processes) - peak) for at_ns in moments}
    nearest = min(apart.values()) + _NOISE
    held: dict[int, float] = {}
    for at_ns in sorted(moments):
        if apart[at_ns] <= nearest:
            held[at_ns] = sum(_held(taken, at_ns) for taken in near)
    return max(held, key=held.__getitem__)


def _is_near(taken: Taken, window: Window) -> bool:
    return taken.from_ns <= window[1] and taken.ends_ns >= window[0]


def _when(reading: Reading) -> int:
    return reading.at_ns


def _rss_at(readings: Sequence[Reading], at_ns: int) -> float:
    """Return the RSS of a process: it rises evenly from one reading to the next, and falls right after a reading."""
    number = bisect_right(readings, at_ns, key=_when)
    if number in {0, len(readings)}:
        return 0.0
    before, after = readings[number - 1], readings[number]
    if before.at_ns in {at_ns, after.at_ns}:
        return before.rss
    part = (at_ns - before.at_ns) / (after.at_ns - before.at_ns)
    return after.rss if after.rss < before.rss else before.rss + (after.rss - before.rss) * part


def _held(taken: Taken, at_ns: int) -> float:
    """Return the bytes that an allocation has at a moment; while it begins, a part of them."""
    if not taken.from_ns < at_ns < taken.ends_ns:
        return 0.0
    return taken.size * min(1.0, (at_ns - taken.from_ns) / (taken.until_ns - taken.from_ns))


def _growing(truth: Truth, at_ns: int, peak: int) -> Mapping[str, float]:
    """Return what the allocations under way at the peak have taken since the last reading of their process."""
    under_way: list[str] = []
    rss = 0
    for readings in truth.by_process().values():
        number = bisect_right(readings, at_ns, key=_when)
        if 0 < number < len(readings):
            rss += _until(readings, at_ns)[-1].rss
            under_way += readings[number].taking
    return _by_speed(truth, under_way, max(0, peak - rss))


def _until(readings: Sequence[Reading], at_ns: int) -> Sequence[Reading]:
    """Return the readings of a process up to a moment, and one more if RSS fell after the last one."""
    number = bisect_right(readings, at_ns, key=_when)
    if 0 < number < len(readings) and readings[number - 1].at_ns < at_ns:
        number += readings[number].rss < readings[number - 1].rss
    return readings[:number]


def _risen(truth: Truth, at_ns: int) -> Mapping[str, float]:
    """Return what rose for each allocation until the last reading before a moment, and is still there."""
    risen: dict[str, float] = {}
    for readings in truth.by_process().values():
        if readings[-1].at_ns >= at_ns:
            risen.update(_left(truth, _until(readings, at_ns)))
    return risen


def _left(truth: Truth, readings: Sequence[Reading]) -> Mapping[str, float]:
    """Return what is left of the rises of a process after its falls, by allocation."""
    left: dict[str, float] = {}
    rss = readings[0].rss if readings else 0
    for reading in readings:
        change = reading.rss - rss
        rss = reading.rss
        for token, size in _shares(truth, reading, max(0, change), left).items():
            left[token] = left.get(token, 0.0) + size
        _lower(truth, left, max(0, -change), reading.at_ns)
    return left


def _shares(truth: Truth, reading: Reading, size: float, left: Mapping[str, float]) -> Mapping[str, float]:
    """Return whose a rise is: first that of the allocation that is complete, then of the others under way, by speed."""
    complete = next((token for token in reading.taking if truth.taken[token].until_ns == reading.at_ns), None)
    others = [token for token in reading.taking if token != complete]
    if complete is None:
        return _by_speed(truth, others, size)
    own = min(size, max(0.0, truth.taken[complete].size - left.get(complete, 0.0))) if others else size
    return {complete: own, **_by_speed(truth, others, size - own)}


def _by_speed(truth: Truth, tokens: Sequence[str], size: float) -> Mapping[str, float]:
    speeds = {}
    for token in tokens:
        taken = truth.taken[token]
        speeds[token] = 1 + taken.size / (taken.until_ns - taken.from_ns)
    return {token: size * speed / sum(speeds.values()) for token, speed in speeds.items()}


def _lower(truth: Truth, left: dict[str, float], size: float, at_ns: int) -> None:
    """Take a fall from what rose."""

    def order(token: str) -> tuple[bool, float]:
        taken = truth.taken[token]
        is_there = taken.ends_ns >= at_ns
        return is_there, -taken.from_ns if is_there else -taken.ends_ns

    for token in sorted(left, key=order):
        part = min(size, left[token])
        left[token] -= part
        size -= part
