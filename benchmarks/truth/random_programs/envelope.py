"""What processes held at any time, as a lower and an upper bound.

Between two readings of a process, its RSS is between both: every process reads itself before and after each change, and
nothing else changes by much. Before its first reading it may have held less, back to the moment before it was
started; after its last one it holds that until it ends.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


class Interval(NamedTuple):
    """The least and the most that a figure can be, in bytes."""

    low: float
    high: float

    def __sub__(self, other: Interval) -> Interval:
        return Interval(self.low - other.high, self.high - other.low)

    def distance(self, figure: float) -> float:
        """Return by how much a figure is too low (negative) or too high; 0 inside."""
        return min(figure - self.low, 0.0) or max(figure - self.high, 0.0)


class Reading(NamedTuple):
    """What a process held at some moment between two times, as one or several readings say."""

    from_ns: int
    to_ns: int
    low: int
    high: int


class Envelope:
    """The bounds of a sum over time: each pair holds from its time to the next one."""

    def __init__(self, changes: Iterable[tuple[int, int, int]]) -> None:
        """Sum up changes of both bounds: time, change of the lower one, change of the upper one."""
        ordered = sorted(changes)
        self.times = [at_ns for at_ns, _, _ in ordered]
        self.lows = list(accumulate(low for _, low, _ in ordered))
        self.highs = list(accumulate(high for _, _, high in ordered))

    def until(self, end_ns: int) -> Envelope:
        """Return the part up to a time."""
        part = Envelope(())
        length = bisect_right(self.times, end_ns)
        part.times, part.lows, part.highs = self.times[:length], self.lows[:length], self.highs[:length]
        return part

    def around(self, from_ns: float, to_ns: float) -> range:
        """Return the places of the pairs that hold somewhere between two times."""
        first = bisect_left(self.times, from_ns)
        while first and self.times[first - 1] == from_ns:
            first -= 1
        return range(max(0, first - 1), max(bisect_right(self.times, to_ns), 1))

    def between(self, from_ns: float, to_ns: float) -> Interval:
        """Return what was held at some moment between two times."""
        places = self.around(from_ns, to_ns)
        lows, highs = self.lows[places.start : places.stop], self.highs[places.start : places.stop]
        return Interval(min(lows, default=0), max(highs, default=0))

    def most(self, certain: tuple[float, float], possible: tuple[float, float]) -> Interval:
        """Return the peak in a time that lasted certainly, and possibly, from the one to the other moment."""
        inside, outside = self.around(*certain), self.around(*possible)
        lows, highs = self.lows[inside.start : inside.stop], self.highs[outside.start : outside.stop]
        low = max(lows, default=0) if certain[0] <= certain[1] else 0
        return Interval(low, max(max(highs, default=0), low))


def changes(readings: Sequence[Reading]) -> Iterator[tuple[int, int, int]]:
    """Yield the changes of the bounds of one process from its readings."""
    pairs = list(_bounds(_clustered(readings)))
    before = (0, 0)
    for at_ns, low, high in pairs:
        yield at_ns, low - before[0], high - before[1]
        before = low, high


def _clustered(readings: Sequence[Reading]) -> list[Reading]:
    """Merge readings that overlap in time: their order is unknown."""
    merged: list[Reading] = []
    for reading in sorted(readings):
        if merged and reading.from_ns <= merged[-1].to_ns:
            last = merged[-1]
            merged[-1] = Reading(
                last.from_ns, max(last.to_ns, reading.to_ns), min(last.low, reading.low), max(last.high, reading.high)
            )
        else:
            merged.append(reading)
    return merged


def _bounds(readings: Sequence[Reading]) -> Iterator[tuple[int, int, int]]:
    """Yield from when on which bounds hold."""
    around = [readings[0], *readings, readings[-1]]
    for (before, reading), after in zip(pairwise(around), around[2:], strict=False):
        three = (before, reading, after)
        yield reading.from_ns, min(one.low for one in three), max(one.high for one in three)
        yield reading.to_ns, min(reading.low, after.low), max(reading.high, after.high)
