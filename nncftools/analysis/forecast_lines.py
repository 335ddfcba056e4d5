"""Measures the memory of operations in slices, and fits lines to the memory over the number of layers.

A slice is a run with only some of the layers.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise, product
from typing import Any, NamedTuple

import msgspec

from nncftools.analysis.operation import Operation
from nncftools.analysis.peaks import RSS
from nncftools.analysis.session import Session, find_unmarked

LEAST_SLICES = 3
LEVELS = ("start", "peak", "end")
FLOOR = "floor"
_STRAIGHT = 0.015
_STRAIGHT_OF_MANY = 0.025
_STRAIGHT_LEAST = 12 << 20
"""A point is on a line if the distance is at most ``_STRAIGHT_LEAST`` bytes (imports alone differ by some MiB between
runs), or at most a share of the largest point. The share is ``_STRAIGHT`` for three points, and ``_STRAIGHT_OF_MANY``
for more points."""
_FACTORS = {1: 4.0, 2: 2.5}
"""Factors for the standard error: ``{number of points - 2: factor}``. Few points say little about the error, so the
factor is larger."""
_UNSURE = 0.03
_UNSURE_LEAST = 16 << 20
"""A peak is not used if the bounds are farther apart than this size, and farther apart than the share ``_UNSURE`` of
the peak. Near the start and the end of an operation, samples may show the neighbouring operation instead."""
_LEAST_S = 0.12
"""If an operation is shorter than this, samples may show the memory of neighbouring operations."""
_LEAST_S_OF_FLOOR = 0.5
"""A time between operations has too few samples for a floor (memory that the kernel cannot drop) if the time is shorter
than this."""


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of an operation in a slice (a run with only some of the layers), in bytes.

    A size is null if the size is not certain.
    """

    operation: str
    """The name of the operation after the names of the enclosing operations: ``Outer › Inner``."""
    place: int
    """The number of the operation among the operations with this name, from 1."""
    start: float | None = None
    peak: float | None = None
    end: float | None = None
    floor: float | None = None
    """The most memory during the operation that the kernel cannot drop (anonymous and shared memory). Null if unknown.
    """


class Slice(msgspec.Struct, frozen=True):
    """A run of the model with only some of the layers. Sizes are bytes, times are seconds, and null means unknown."""

    layers: int
    session: str
    duration_s: float
    peak: int
    floor: int
    comfortable: int
    written: int | None = None
    disk: int | None = None
    """The bytes that the run occupied on file systems."""
    unused: str = ""
    """The reason why the forecast ignores the run; empty if the run is used."""
    points: list[Point] = []
    refaults: int = 0
    """Bytes of files that were dropped and read again while memory was short; 0 if the run was not disturbed."""


class Line(NamedTuple):
    """The memory of an operation as a line over the number of layers: ``base + slope * layers`` bytes."""

    layers: Sequence[int]
    sizes: Sequence[float]
    slope: float
    """The rise of the line in bytes per layer."""
    base: float
    """The bytes of the line at 0 layers."""
    operation: str = ""
    """The name of the operation; empty for the whole run."""
    what: str = "peak"
    """The memory that the line describes: ``start``, ``peak``, ``end`` or ``floor``."""
    steepest: float = 0.0
    """The largest slope between two neighbouring points in bytes per layer. Only computed if ``is_straight`` is false;
    otherwise 0.
    """
    is_straight: bool = True
    """Whether all points, or at least the last three points, are on the line."""
    skipped: Sequence[tuple[int, float]] = ()
    """Earlier points that are not on the line: ``(number of layers, bytes)``. Empty if all points are in ``layers`` and
    ``sizes``.
    """
    is_bent: bool = False
    """Whether only the last two points are on the line, because memory grew faster between these two. A line that is
    neither straight nor bent gives no forecast."""
    apart: float = 0.0
    """The largest difference in bytes between runs with the same number of layers; 0 if these runs agree."""
    is_confirmed: bool = False
    """Whether at least two runs with the largest number of layers held the same memory."""

    def at(self, layers: float) -> float:
        """Return the bytes at a number of layers."""
        return self.base + self.slope * layers

    @property
    def off(self) -> float:
        """Return the largest distance of a point from the line, in bytes."""
        return max(map(abs, self._misses()))

    def _misses(self) -> list[float]:
        """Return how many bytes the line is above each point; negative if the line is below the point."""
        points = zip(self.layers, self.sizes, strict=True)
        return [self.at(count) - size for count, size in points]

    def error_at(self, layers: int) -> float:
        """Return the error at a number of layers.

        The error is a few standard errors, plus the difference between runs with the same number of layers.
        """
        spare = len(self.layers) - 2
        if not self.is_straight or not spare:
            return self.apart
        deviation = math.hypot(*self._misses()) / math.sqrt(spare)
        distance = statistics.pstdev(self.layers) * math.sqrt(len(self.layers))
        carried = (layers - statistics.fmean(self.layers)) / distance
        return _FACTORS.get(spare, 2.2) * deviation * carried + self.apart

    def highest_at(self, layers: int) -> float:
        """Return the larger of two sizes: the line at a number of layers, and the largest point."""
        return max(self.at(layers), *self.sizes)

    def limit_at(self, layers: int) -> float:
        """Return an upper bound for the memory of the operation in bytes, at a number of layers.

        If the points are not on a line, memory is assumed to rise after the last point with the slope ``steepest``. The
        difference between runs with the same number of layers is added.
        """
        rise = self.steepest * (layers - self.layers[-1])
        return max(self.highest_at(layers), self.sizes[-1] + rise) + self.apart


def measure_points(session: Session) -> list[Point]:
    """Return the memory of the operations of a slice, and of the times between operations.

    A size that is not certain is None.
    """
    outer: list[str] = []
    places: Counter[str] = Counter()
    found = []
    operations = session.operations
    for operation in operations:
        outer[operation.depth :] = [operation.name]
        name = " › ".join(outer)
        places[name] += 1
        rss = operation.of(RSS)
        peak = _find_certain_peak(operation)
        point = Point(
            operation=name,
            place=places[name],
            start=None if rss.start_is_estimate else rss.start,
            peak=peak,
            end=None if rss.end_is_estimate else rss.end,
            floor=_find_floor(operation, peak),
        )
        found.append(point)
    if not operations:
        return []
    ends = {operation.end_s: operation.name for operation in operations if operation.parent is None}
    for gap in find_unmarked(session, _LEAST_S):
        ended = [end_s for end_s in ends if end_s <= gap.start_s]
        name = f"unmarked time after {ends[max(ended)]}" if ended else "unmarked time at the beginning"
        places[name] += 1
        peak = gap.of(RSS).peak_low
        floor = _find_floor(gap, peak) if gap.duration_s >= _LEAST_S_OF_FLOOR else None
        point = Point(operation=name, place=places[name], peak=peak, floor=floor)
        found.append(point)
    return found


def _find_floor(operation: Operation, peak: float | None) -> float | None:
    """Return the largest amount of memory that the kernel could not drop during an operation, in bytes.

    None if there were too few samples. ``peak`` is the RSS peak of the operation in bytes; None if unknown. Between two
    samples, the peak minus all pages of files is a lower bound, because the amount of these pages hardly changes.
    """
    anon = operation.of("anon").peak_low
    if anon is None or operation.duration_s < _LEAST_S:
        return None
    sampled = anon + (operation.of("shmem").peak_low or 0.0)
    files = operation.of("file").peak_low
    return sampled if peak is None or files is None else max(sampled, peak - files)


def _find_certain_peak(operation: Operation) -> float | None:
    """Return the peak of an operation; None if memory between two samples may have been much higher.

    If the process had a higher peak before the operation, only samples show the peak of the operation.
    """
    peak = operation.of(RSS).peak
    start = operation.own_start
    end = operation.own_end
    if peak is None or peak.high is None:
        return None
    is_below = start is not None and end is not None and end.high_water_mark == start.high_water_mark is not None
    if is_below and operation.duration_s >= _LEAST_S:
        return peak.low
    return peak.low if peak.high - peak.low <= max(peak.low * _UNSURE, _UNSURE_LEAST) else None


def line_of_runs(slices: Sequence[Slice], sizes: Sequence[float]) -> Line:
    """Return the line of a measured value over the number of layers.

    ``sizes`` has the value of each slice (a run with only some of the layers). If runs with the same number of layers
    agree, their mean counts. If they differ, the run that makes the line straightest counts.
    """
    runs: dict[int, list[float]] = defaultdict(list)
    counts = [part.layers for part in slices]
    for count, size in sorted(zip(counts, sizes, strict=True)):
        runs[count].append(size)
    options = []
    for same in runs.values():
        is_agreed = max(same) - min(same) <= find_tolerance(same)
        options.append([statistics.fmean(same)] if is_agreed else same)
    choices = [_line_through([*runs], chosen) for chosen in product(*options)]
    best = min(choices, key=lambda line: (not line.is_straight, line.off))
    apart = max(max(some) - min(some) for some in options)
    is_confirmed = len(runs[max(runs)]) > len(options[-1])
    return best._replace(apart=apart, is_confirmed=is_confirmed)


def find_tolerance(sizes: Sequence[float]) -> float:
    """Return how many bytes a point may be away from a line through points of these sizes."""
    share = _STRAIGHT_OF_MANY if len(sizes) > LEAST_SLICES else _STRAIGHT
    return max(max(sizes) * share, _STRAIGHT_LEAST)


def _line_through(layers: Sequence[int], sizes: Sequence[float]) -> Line:
    """Return a line through all points.

    If the points are not on a line, the last three points are tried, and then the last two.
    """
    points = [*zip(layers, sizes, strict=True)]
    for first in range(max(1, len(layers) - LEAST_SLICES + 1)):
        last = (layers[first:], sizes[first:])
        slope, base = statistics.linear_regression(*last)
        fitted = Line(*last, slope=slope, base=base, skipped=points[:first])
        if fitted.off <= find_tolerance(fitted.sizes):
            return fitted
    slopes = []
    for (left, before), (right, after) in pairwise(points):
        slopes.append((after - before) / (right - left))
    *earlier, slope = slopes
    return Line(
        layers=layers,
        sizes=sizes,
        slope=slope,
        base=sizes[-1] - slope * layers[-1],
        steepest=max(slopes),
        is_straight=False,
        is_bent=slope > max(0.0, *earlier),
    )


def draw_lines(slices: Sequence[Slice], levels: Collection[str] = LEVELS) -> list[Line]:
    """Return the lines of the operations that all slices (runs with only some of the layers) have.

    ``levels`` are the kinds of memory that get a line: ``start``, ``peak`` and ``end`` (RSS at the start, peak and end
    of the operation), or ``floor`` (memory that the kernel cannot drop).
    """
    first, *others = [Counter(point.operation for point in part.points) for part in slices]
    varying: set[str] = set()
    for calls in others:
        varying.update(name for name in first if calls[name] != first[name])
    runs = [_sizes(part, varying) for part in slices]
    found = []
    for key in runs[0]:
        operation, what = key
        if what in levels and all(key in run for run in runs):
            line = line_of_runs(slices, [run[key] for run in runs])
            found.append(line._replace(operation=operation, what=what))
    return found


def _sizes(part: Slice, varying: set[str]) -> Mapping[tuple[str, str], float]:
    """Return the memory in a slice (a run with only some of the layers): ``{(operation, kind): bytes}``.

    The kind is ``start``, ``peak``, ``end`` or ``floor``.

    Usually, each call of an operation has a separate entry, such as ``NAME (2)`` for the second call. ``varying`` lists
    the operations whose number of calls differs between the slices. All calls of a varying operation share an entry
    with the largest size, except for the kind ``floor``.
    """
    sizes: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for point in part.points:
        for what in (*LEVELS, FLOOR):
            name = point.operation
            if point.place > 1 and (point.operation not in varying or what == FLOOR):
                name = f"{point.operation} ({point.place})"
            sizes[name, what].append(getattr(point, what))
    return {key: max(some) for key, some in sizes.items() if None not in some}
