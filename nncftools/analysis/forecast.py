"""What a model needs with all of its layers, from runs with a few of them.

Each operation's memory is a line in the number of layers; the highest line at the full number is the forecast. An
operation that is the higher of two lines is below the truth until the second one shows, so starts and ends, which are
read at marks, are lines of their own.
"""

from __future__ import annotations

import pathlib
import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from nncftools import intake
from nncftools.analysis.operation import Operation
from nncftools.analysis.peaks import RSS
from nncftools.analysis.session import Session

FORMAT = "nncf-tools-forecast"
VERSION = 1
"""1: first version (2026-11)."""
YES, SLOWLY, NO, UNSURE = "fits", "fits slowly", "does not fit", "may not fit"
LEAST_SLICES = 3
LEVELS, FLOOR = ("start", "peak", "end"), "floor"
"""What is known of an operation."""
_STRAIGHT, _STRAIGHT_LEAST = 0.015, 12 << 20
"""Points that are nearer to a line, as a share of the largest or in bytes, are on it: imports differ by some MiB."""
_UNSURE, _UNSURE_LEAST = 0.03, 16 << 20
"""A peak whose bracket is wider is not used: beside a boundary, samples show the neighbour."""
_LEAST_S = 0.12
"""Of a shorter operation, samples show its neighbours."""
_NOTICEABLE = 1.01
_LEAST_SPREAD, _LEAST_OF_FLOOR = 0.03, 0.07
"""The least that an interval is wide on each side. Floors are sampled, and imports differ: they wander by 50 MiB."""
_BESIDE = 0.1
"""The most of a floor that may be beside its operation: pages of files, and what was held between two samples."""
_TIMES = 0.65, 1.25
"""A time is from this to that much of its line: single runs wander by 20 %, and small ones are mostly imports."""
_FLAT = 0.03
"""With less growth from the smallest slice to all layers, the model does not matter."""


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """What was held in one operation of a slice, in bytes; null for what is not certain."""

    operation: str
    """Its name after those of the operations around it."""
    place: int
    """Which of the operations with this name it was, from 1."""
    start: float | None = None
    peak: float | None = None
    end: float | None = None
    floor: float | None = None
    """The most anonymous and shared memory in its samples."""


class Slice(msgspec.Struct, frozen=True):
    """A run with some of the layers; bytes and seconds, null for unknown."""

    layers: int
    session: str
    duration_s: float
    peak: int
    floor: int
    comfortable: int
    written: int | None = None
    disk: int | None = None
    """By how much the run made its file systems fuller."""
    unused: str = ""
    """Why the run says nothing about the whole model; empty if it does."""
    points: list[Point] = []


class Estimate(msgspec.Struct, frozen=True):
    """A figure at the full number of layers."""

    value: float
    low: float
    high: float
    is_at_least: bool = False
    """Whether it may be more than ``high``: another line may win above the slices."""


class Line(NamedTuple):
    """The memory of an operation over the number of layers."""

    operation: str
    what: str
    """``start``, ``peak`` or ``end``."""
    layers: Sequence[int]
    sizes: Sequence[float]
    slope: float
    """Bytes per layer."""
    base: float
    """Bytes without layers."""
    is_bent: bool = False
    """Whether only its last two points are on it: before, something else was higher."""
    is_off: bool = False
    """The same, but what was higher is not known: no forecast follows from it."""

    def at(self, layers: float) -> float:
        """Return the bytes with so many layers."""
        return self.base + self.slope * layers

    @property
    def off(self) -> float:
        """The most bytes that a point is beside it."""
        return max(abs(self.at(count) - size) for count, size in zip(self.layers, self.sizes, strict=True))


class Forecast(msgspec.Struct, frozen=True):
    """What the whole model needs; bytes and seconds. A figure is null where slices do not say it."""

    peak: Estimate
    floor: Estimate
    comfortable: Estimate
    written: Estimate | None
    disk: Estimate | None
    time: Estimate
    operation: str = ""
    """What holds the peak; empty when operations are unknown."""
    holds_from: int | None = None
    """From how many layers on."""
    before: str = ""
    """What held it with fewer layers."""
    is_small: bool = False
    """Whether almost all of the peak is there without the model."""


class Result(msgspec.Struct, kw_only=True):
    """A forecast, as far as it went: the file ``forecast.json``; bytes, null for unknown."""

    format: str = FORMAT
    version: int = VERSION
    command: list[str]
    model: str
    layers: int
    parameters: int
    weights: int
    from_config: bool = False
    """Whether the slices had random weights."""
    added: list[str] = []
    """Options that slices got because the whole model is larger."""
    slices: list[Slice] = []
    forecast: Forecast | None = None
    """Null where slices do not say it."""
    limit: int | None = None
    """The memory that ``--for`` asks about."""
    fits: str | None = None
    """``fits``, ``fits slowly``, ``may not fit`` or ``does not fit``."""
    notes: list[str] = []

    @property
    def used(self) -> list[Slice]:
        """The slices that count, from small to large."""
        return [part for part in self.slices if not part.unused]

    def finish(self, limit: int | None) -> None:
        """Forecast by the slices, and judge whether that fits into a size."""
        self.forecast, self.limit = forecast(self.slices, self.layers), limit
        self.fits = None if self.forecast is None or limit is None else judged(self.forecast, limit)


def points(session: Session) -> list[Point]:
    """Return what the operations of a slice held, where that is certain."""
    around: list[str] = []
    places: Counter[str] = Counter()
    found = []
    for operation in session.operations:
        around[operation.depth :] = [operation.name]
        name = " › ".join(around)
        places[name] += 1
        rss = operation.of(RSS)
        start = None if rss.start_is_estimate else rss.start
        end = None if rss.end_is_estimate else rss.end
        peak = _certain_peak(operation)
        floor = _floor(operation, peak)
        found.append(Point(operation=name, place=places[name], start=start, peak=peak, end=end, floor=floor))
    return found


def _floor(operation: Operation, peak: float | None) -> float | None:
    """Return the most that an operation held of what cannot be dropped; None if that was sampled too seldom.

    Between two samples it held at least the high-water mark less all its files: these hardly come and go.
    """
    anon, shared, file = (operation.of(name).peak_low for name in ("anon", "shmem", "file"))
    if anon is None or operation.duration_s < _LEAST_S:
        return None
    return max(anon + (shared or 0.0), 0.0 if peak is None or file is None else peak - file)


def _certain_peak(operation: Operation) -> float | None:
    """Return the peak of an operation; None if memory between two samples may have been much higher.

    Below an earlier peak of its process, only samples show it.
    """
    peak, start, end = operation.of(RSS).peak, operation.own_start, operation.own_end
    if peak is None or peak.high is None:
        return None
    is_below = start is not None and end is not None and end.high_water_mark == start.high_water_mark is not None
    if is_below and operation.duration_s >= _LEAST_S:
        return peak.low
    return peak.low if peak.high - peak.low <= max(peak.low * _UNSURE, _UNSURE_LEAST) else None


def line(layers: Sequence[int], sizes: Sequence[float], operation: str = "", what: str = "peak") -> Line:
    """Return the line through points, or through the last two if they are on none."""
    straight = Line(operation, what, layers, sizes, *statistics.linear_regression(layers, sizes))
    if straight.off <= max(max(sizes) * _STRAIGHT, _STRAIGHT_LEAST):
        return straight
    slopes = [(right[1] - left[1]) / (right[0] - left[0]) for left, right in pairwise(zip(layers, sizes, strict=True))]
    base, is_bent = sizes[-1] - slopes[-1] * layers[-1], slopes[-1] > max(0.0, *slopes[:-1])
    return Line(operation, what, layers, sizes, slopes[-1], base, is_bent=is_bent, is_off=not is_bent)


def lines(slices: Sequence[Slice], of: Collection[str] = LEVELS) -> list[Line]:
    """Return the lines of starts, peaks and ends, or of others, of the operations that all slices have."""
    layers = [part.layers for part in slices]
    counts = [Counter(point.operation for point in part.points) for part in slices]
    varying = {name for count in counts for name in count if any(other[name] != count[name] for other in counts)}
    parts = [_merged(part.points, varying) for part in slices]
    keys = [key for key in parts[0] if key[1] in of and all(key in part for part in parts)]
    return [line(layers, [part[key] for part in parts], *key) for key in keys]


def _merged(found: Iterable[Point], varying: set[str]) -> Mapping[tuple[str, str], float]:
    """Return sizes by operation and what they are; of operations that are not equally often performed, the largest."""
    sizes: dict[tuple[str, str], list[float]] = defaultdict(list)
    for point in found:
        for what in (*LEVELS, FLOOR):
            is_one = point.place == 1 or (point.operation in varying and what != FLOOR)
            name = point.operation if is_one else f"{point.operation} ({point.place})"
            sizes[name, what].append(getattr(point, what))
    return {key: max(all_) for key, all_ in sizes.items() if None not in all_}


def estimate(layers: Sequence[int], sizes: Sequence[float], full: int, least: float = _LEAST_SPREAD) -> Estimate:
    """Return a figure at the full number of layers, with what its line missed, carried that far."""
    known = line(layers, sizes)
    is_sure = not (known.is_bent or known.is_off)
    value = max(known.at(full), *sizes)
    spread = value * least
    if is_sure and len(layers) >= LEAST_SLICES:
        missed = abs(line(layers[:-1], sizes[:-1]).at(layers[-1]) - sizes[-1])
        reach = (full - layers[-2]) / (layers[-1] - layers[-2])
        spread = max(spread, min(missed, 2 * known.off) * reach)
    return Estimate(value, max(sizes[-1], value - spread), value + spread, not is_sure)


def missed(slices: Sequence[Slice]) -> float:
    """Return by what share the peak of the largest slice is not what the others forecast, operation by operation."""
    *before, last = slices
    by_others = [one.at(last.layers) for one in lines(before) or [_of_run(before)]]
    return abs(max(*by_others, *(float(part.peak) for part in before)) - last.peak) / last.peak


def forecast(slices: Sequence[Slice], full: int) -> Forecast | None:
    """Return what the whole model needs; None with fewer than three slices that can be used."""
    used = sorted((part for part in slices if not part.unused), key=lambda part: part.layers)[-LEAST_SLICES:]
    if len(used) < LEAST_SLICES:
        return None
    layers = [part.layers for part in used]

    def of(sizes: Sequence[float | None]) -> Estimate | None:
        known = [size for size in sizes if size is not None]
        return estimate(layers, known, full) if len(known) == len(layers) else None

    every = lines(used)
    candidates = [one for one in every if not one.is_off] or [_of_run(used)]
    winner = max(candidates, key=lambda one: (one.at(full), not one.is_bent))
    peak = estimate(layers, winner.sizes, full)
    seen = max(part.peak for part in used)
    if seen > peak.value * _NOTICEABLE or _may_be_more(every, winner, full):
        peak = Estimate(max(seen, peak.value), max(seen, peak.low), max(seen, peak.high), is_at_least=True)
    time_s = estimate(layers, [part.duration_s for part in used], full).value
    time = Estimate(time_s, max(time_s * _TIMES[0], used[-1].duration_s), time_s * _TIMES[1])
    holds_from, before = _held_from(candidates, winner, full, layers[0])
    floor = _floor_of(used, full)
    files = estimate(layers, [part.comfortable - part.floor for part in used], full)
    comfortable = Estimate(floor.value + files.value, floor.low + files.low, floor.high + files.high)
    written, disk = of([part.written for part in used]), of([part.disk for part in used])
    if disk is not None and written is not None:  # what others wrote meanwhile is in it, too
        disk = min(disk, written, key=lambda one: one.value)
    small = peak.value < used[0].peak * (1 + _FLAT)
    return Forecast(peak, floor, comfortable, written, disk, time, winner.operation, holds_from, before, small)


def _floor_of(used: Sequence[Slice], full: int) -> Estimate:
    """Return the floor: of the operation whose line is the highest, and what the whole run had beside it."""
    layers, sizes = [part.layers for part in used], [float(part.floor) for part in used]
    candidates = [one for one in lines(used, (FLOOR,)) if not one.is_off]
    if candidates:
        highest = max(candidates, key=lambda one: one.at(full))
        beside = min(sizes[-1] - max(one.sizes[-1] for one in candidates), sizes[-1] * _BESIDE)
        sizes = [size + max(0.0, beside) for size in highest.sizes]
    return estimate(layers, sizes, full, least=_LEAST_OF_FLOOR)


def _of_run(used: Sequence[Slice]) -> Line:
    return line([part.layers for part in used], [part.peak for part in used])


def _may_be_more(candidates: Iterable[Line], winner: Line, full: int) -> bool:
    """Return whether one that is on no line could win, or the winner's operation ends above its own peak's line."""
    is_off_and_higher = any(one.is_off and one.at(full) > winner.at(full) * _NOTICEABLE for one in candidates)
    own = {one.what: one.at(full) for one in candidates if one.operation == winner.operation}
    return is_off_and_higher or max(own.values(), default=0.0) > own.get("peak", float("inf")) * _NOTICEABLE


def _held_from(candidates: Sequence[Line], winner: Line, full: int, least: int) -> tuple[int | None, str]:
    """Return from how many layers on an operation holds the peak, and which one held it before."""
    for count in range(full, least - 1, -1):
        highest = max(candidates, key=lambda one: one.at(count))
        if highest.at(count) > winner.at(count) * _NOTICEABLE and highest.operation != winner.operation:
            return count + 1, highest.operation
    return None, ""


def judged(known: Forecast, limit: int) -> str:
    """Return whether a run fits into a limit: slowly between floor and comfortable amount."""
    if limit < known.floor.low:
        return NO
    if limit < known.floor.high or (known.floor.is_at_least and limit < known.peak.high):
        return UNSURE
    return YES if limit >= known.comfortable.value else SLOWLY


def loaded(file: pathlib.Path) -> Result | None:
    """Return a forecast from a file; None for a file of another kind."""
    try:
        found = msgspec.json.decode(intake.whole(file), type=Result)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return found if found.format == FORMAT else None
