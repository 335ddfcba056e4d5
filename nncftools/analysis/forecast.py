"""Forecasts the memory that a model needs with all layers, from slices: runs with only a few of the layers.

For each operation, and for each time between operations, a line describes the memory over the number of layers. The
highest line at the full number of layers is the forecast. An operation has separate lines for the memory at the start,
at the peak and at the end. With more layers, a different line of the three may be the highest.
"""

from __future__ import annotations

import math
import operator
import pathlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from nncftools import intake
from nncftools.analysis.forecast_lines import FLOOR, LEAST_SLICES, Line, Slice, draw_lines, find_tolerance, line_of_runs

FORMAT = "nncf-tools-forecast"
VERSION = 1
"""The version of the file format. Version 1 is the first version (2026-11)."""
YES = "fits"
SLOWLY = "fits slowly"
NO = "does not fit"
UNSURE = "may not fit"
_NOTICEABLE = 1.01
_MATTERS = 1.05
"""A line is the memory of an operation over the number of layers. If a line is too uncertain for a forecast, but may
reach this many times the size of the highest reliable line at the full number of layers, the peak is unknown.
"""
_WIDE = 0.05
_VAGUE = 0.12
_SMALL_ERROR = 24 << 20
"""A forecast error of at most this many bytes is accepted, even if the error is a large share of the peak."""
_LEAST_SPREAD = 0.03
_LEAST_SPREAD_OF_FLOOR = 0.07
"""The smallest distance of the bounds from an estimate, as a share of the estimate. A floor (memory that the kernel
cannot drop) has wider bounds, because measured floors vary by 50 MiB."""
_BESIDE = 0.1
"""The floor of a run (memory that the kernel cannot drop) is larger than the floors of the operations, usually by less
than this share of the run's floor. If the difference is larger, an operation too short for a line has the floor."""
_LEAST_OF_TIME = 0.65
_MOST_OF_TIME = 1.25
"""``_LEAST_OF_TIME`` and ``_MOST_OF_TIME`` are factors for the bounds of a forecast duration. The durations of equal
runs vary by 20 %, and runs with few layers mostly import modules."""
_FLAT = 0.03
"""If the peak grows by less than this share from the smallest slice (run with few layers) to all layers, the peak
hardly depends on the number of layers."""
_BYTES_PER_NUMBER = 4
"""The bytes of a weight in float32. Tools do not convert weights to a larger type."""


class Estimate(msgspec.Struct, frozen=True):
    """The forecast of a value for the model with all layers: the likely value, a lower bound and an upper bound."""

    value: float
    low: float
    high: float
    is_at_least: bool = False
    """If true, the value may be more than ``high``; only ``low`` is certain."""

    def combine(self, other: Estimate, choose: Callable[[float, float], float]) -> Estimate:
        """Return an estimate whose value and bounds are combined from both estimates.

        ``choose`` returns the smaller of two numbers, the larger number, or the sum.
        """
        return Estimate(
            value=choose(self.value, other.value),
            low=choose(self.low, other.low),
            high=choose(self.high, other.high),
            is_at_least=self.is_at_least,
        )


class Forecast(msgspec.Struct, frozen=True):
    """The needs of the whole model in bytes and seconds.

    A value is null if the slices (runs with fewer layers) are not enough to compute the value.
    """

    peak: Estimate
    floor: Estimate
    comfortable: Estimate
    written: Estimate | None
    disk: Estimate | None
    time: Estimate
    operation: str = ""
    """The name of the operation with the peak. If the peak is between operations: ``unmarked time after NAME``."""
    holds_from: int | None = None
    """With at least this number of layers, the peak is in ``operation``. Null if the peak is in ``operation`` with any
    number of layers from the smallest slice on."""
    before: str = ""
    """The operation with the peak if the model has fewer layers than ``holds_from``."""
    is_small: bool = False
    """Whether the peak is hardly higher than the peak of the smallest slice (a run with few layers)."""


class Result(msgspec.Struct, kw_only=True):
    """The file ``forecast.json``: a forecast, which may be unfinished. Sizes are bytes, and null is unknown."""

    format: str = FORMAT
    version: int = VERSION
    command: list[str]
    model: str
    layers: int
    parameters: int
    layer_parameters: int = 0
    """The number of weights of an average layer; 0 if unknown."""
    weights: int
    from_config: bool = False
    """Whether the slices (runs with fewer layers) had random weights."""
    added: list[str] = []
    """Options that were added to the command of the slices (runs with fewer layers). The exporter uses these options by
    default, but only for large models, so the slices need the options explicitly.
    """
    slices: list[Slice] = []
    forecast: Forecast | None = None
    """The needs of the whole model. Null if the slices are not enough for a forecast."""
    limit: int | None = None
    """The memory limit in bytes that the option ``--for`` gives; null if there is no limit."""
    fits: str | None = None
    """The verdict on ``limit``: ``fits``, ``fits slowly``, ``may not fit`` or ``does not fit``; null if there is no
    verdict."""
    notes: list[str] = []

    @property
    def used(self) -> list[Slice]:
        """The slices that the forecast uses, from small to large."""
        return [part for part in self.slices if not part.unused]

    @property
    def doubt(self) -> Line | None:
        """The line (memory over the number of layers) that makes the peak unknown.

        None if there is no such line, or if there are fewer than three slices.
        """
        if not has_enough(self.used):
            return None
        return compare_lines(self.used, self.layers, self.layer_parameters).doubt

    def find_hidden(self, known: Forecast) -> float:
        """Return how many bytes the peak may be above the forecast because the slices hide the weights.

        A command that loads the model holds the weights, and the memory that the command held before the first
        operation. With all layers, this memory may be above the forecast peak. If each slice held more than its
        weights, the slices do not show how memory grows with the weights. Then the result assumes that all memory that
        was taken after the first start of an operation grows with the weights. Otherwise, the result is 0.
        """
        largest = self.used[-1]
        starts = [point.start for point in largest.points if point.start is not None]
        start = min(starts, default=0.0)
        layer = self.weights * self.layer_parameters / max(1, self.parameters)
        weights = self.weights - layer * (self.layers - largest.layers)
        held = largest.peak - start
        if known.peak.value * _MATTERS >= start + self.weights or weights > held:
            return 0.0
        return start + held * self.weights / weights - known.peak.value

    def finish(self, limit: int | None) -> None:
        """Make the forecast from the slices, and judge whether the model fits into a limit."""
        known = forecast(self.used, self.layers, self.layer_parameters)
        if known is not None:
            hidden = self.find_hidden(known)
            for name in ("peak", "floor", "comfortable"):
                figure = getattr(known, name)
                known = replace(known, **{name: replace(figure, high=figure.high + hidden)})
        self.forecast = known
        self.limit = limit
        self.fits = None if known is None or limit is None else judged(known, limit)


def has_enough(used: Sequence[Slice]) -> bool:
    """Return whether there are runs with at least three different numbers of layers."""
    return len({part.layers for part in used}) >= LEAST_SLICES


def find_doubtful(used: Sequence[Slice], full: int, layer_parameters: int) -> int | None:
    """Return the number of layers of the run to repeat.

    None if the peak is known well enough, or if no repetition helps.
    """
    if not any(part.points for part in used):
        return None
    compared = compare_lines(used, full, layer_parameters)
    line = compared.doubt
    if line is not None:
        return line.layers[line.sizes.index(max(line.sizes))]
    return max(part.layers for part in used) if _has_error(compared.winner, full, _WIDE) else None


def _has_error(winner: Line, full: int, share: float) -> bool:
    """Return whether the error of a line at the full number of layers is larger than ``share`` of the forecast size."""
    return winner.error_at(full) > max(winner.at(full) * share, _SMALL_ERROR)


class Comparison(NamedTuple):
    """The lines of all operations (memory over the number of layers), compared at the full number of layers."""

    lines: list[Line]
    """The lines that are not above ``winner`` at the full number of layers. Lines that do not go through the last two
    points are left out.
    """
    winner: Line
    """The highest line at the full number of layers, of all lines that are reliable enough for a forecast."""
    doubt: Line | None
    """The line that makes the peak unknown; None if the peak is known. There are three possible lines: an unreliable
    line that may be above ``winner``; the line of the whole run, if no operation explains the peak; ``winner`` itself,
    if the error of ``winner`` is large or no line is reliable.
    """
    is_at_least: bool
    """Whether the peak of the whole model may be higher than ``winner`` at the full number of layers."""


def compare_lines(used: Sequence[Slice], full: int, layer_parameters: int = 0) -> Comparison:
    """Draw a line through the peaks of each operation, and find the highest line at the full number of layers."""
    found = draw_lines(used)
    of_run = line_of_runs(used, [part.peak for part in used])
    explained = max((line.sizes[-1] for line in found), default=-math.inf)
    if of_run.sizes[-1] - explained > find_tolerance(of_run.sizes):
        found.append(of_run)
    certain = _choose_certain(found, layer_parameters)
    winner = max(certain or found or [of_run], key=lambda line: line.at(full))
    size = winner.at(full)
    doubts = []
    for line in found:
        is_open = line not in certain or line.apart
        may_be_higher = line.limit_at(full) > size * _MATTERS
        if line is of_run or (is_open and may_be_higher):
            doubts.append(line)
    doubt = max(doubts, key=lambda line: line.highest_at(full), default=None)
    if doubt is None and (not certain or _has_error(winner, full, _VAGUE)):
        doubt = winner
    is_at_least = winner.is_bent
    for line in certain:
        if line.operation == winner.operation and line.what == "peak":
            is_at_least |= size > line.at(full) * _NOTICEABLE
    usable = [line for line in found if line.is_straight or line.is_bent]
    lower = [line for line in usable if line.at(full) <= size]
    return Comparison(lower, winner, doubt, is_at_least)


def _choose_certain(found: Sequence[Line], layer_parameters: int) -> list[Line]:
    """Return the lines that are reliable enough for a forecast.

    A line through all points is reliable. A line through only the last two or three points is reliable if the slope
    (bytes per layer) is not above a limit. The limit is the steepest slope of the lines through all points, rounded up
    to whole copies of a layer in float32, plus another copy. If ``layer_parameters`` (the number of weights of a layer)
    is 0, there is no limit.

    A line through only the last two points has another condition: two runs had the largest number of layers, and both
    runs held the same memory.
    """
    certain = [line for line in found if line.is_straight and not line.skipped]
    steepest = max((line.slope for line in certain), default=0.0)
    copy = layer_parameters * _BYTES_PER_NUMBER or math.inf
    most = copy * (math.ceil(steepest / copy) + 1)
    for line in found:
        is_seen = line.skipped or (line.is_bent and line.is_confirmed)
        if is_seen and line.slope <= most:
            certain.append(line)
    return certain


def estimate(known: Line, full: int, least: float = _LEAST_SPREAD) -> Estimate:
    """Return the estimate of a measured value for the model with all layers.

    The more layers the model has beyond the measured points, the larger is the error. A line through only the last two
    points gives no higher lower bound than the last point, unless two runs held the same memory.
    """
    value = known.highest_at(full)
    spread = max(value * least, known.error_at(full))
    low = known.sizes[-1]
    if known.is_straight or known.is_confirmed:
        low = max(low, value - spread)
    return Estimate(value, low, high=value + spread, is_at_least=not known.is_straight)


def forecast(used: Sequence[Slice], full: int, layer_parameters: int = 0) -> Forecast | None:
    """Return the needs of the whole model; None if there are too few slices, or if the peak remains unknown.

    The slices (runs with fewer layers) must be sorted by the number of layers. The upper bounds of the peak and of the
    comfortable amount include bytes of files that the kernel dropped during the runs because memory was short.
    """
    if not has_enough(used):
        return None
    compared = compare_lines(used, full, layer_parameters)
    if compared.doubt is not None:
        return None
    dropped = max(part.refaults * full / part.layers for part in used)
    peak = estimate(compared.winner, full)
    high = max(peak.high + dropped, *(part.peak for part in used))
    peak = replace(peak, high=high, is_at_least=compared.is_at_least)
    floor = _floor_of(used, full, layer_parameters).combine(peak, min)
    files = estimate(line_of_runs(used, [part.comfortable - part.floor for part in used]), full)
    unseen = Estimate(dropped, 0.0, dropped)  # the slices held these files only for a part of the time
    comfortable = floor.combine(files, operator.add).combine(unseen, operator.add)
    if all(part.comfortable * _NOTICEABLE >= part.peak for part in used):  # in this case, processes share no memory
        comfortable = peak.combine(comfortable, max)
    written = _estimate_known(used, [part.written for part in used], full)
    disk = _estimate_known(used, [part.disk for part in used], full)
    if disk is not None and written is not None:  # other programs may write to the disk at the same time
        disk = min(disk, written, key=lambda figure: figure.value)
    time_s = estimate(line_of_runs(used, [part.duration_s for part in used]), full).value
    holds_from, before = _held_from(compared, full, used[0].layers)
    return Forecast(
        peak=peak,
        floor=floor,
        comfortable=comfortable,
        written=written,
        disk=disk,
        time=Estimate(time_s, low=time_s * _LEAST_OF_TIME, high=time_s * _MOST_OF_TIME),
        operation=compared.winner.operation,
        holds_from=holds_from,
        before=before,
        is_small=peak.value < used[0].peak * (1 + _FLAT),
    )


def _estimate_known(used: Sequence[Slice], sizes: Sequence[float | None], full: int) -> Estimate | None:
    known = [size for size in sizes if size is not None]
    return estimate(line_of_runs(used, known), full) if len(known) == len(used) else None


def _floor_of(used: Sequence[Slice], full: int, layer_parameters: int) -> Estimate:
    """Return the floor of the whole model: the memory that the kernel cannot drop.

    The floor is the highest line at ``full`` layers: of the floors of the operations, and of the floor of the whole
    run. The floor is at least the floor of each slice. ``full`` is the number of layers of the whole model.
    ``layer_parameters`` is the number of weights of a layer; 0 if unknown.

    Short operations have no line. If the line of the run is much higher than the lines of all operations, a short
    operation has the floor. Then the result is a lower bound, because yet another operation may have the floor with
    more layers.
    """
    of_run = line_of_runs(used, [part.floor for part in used])
    found = draw_lines(used, (FLOOR,))
    certain = _choose_certain(found, layer_parameters)
    highest = max((line.at(full) for line in certain), default=0.0)
    is_explained = highest >= of_run.highest_at(full) * (1 - _BESIDE)
    if of_run.is_straight or not certain:
        certain.append(of_run)
    winner = max(certain, key=lambda line: line.at(full))
    most_seen = max(part.floor for part in used)
    seen = Estimate(most_seen, most_seen, most_seen * (1 + _LEAST_SPREAD_OF_FLOOR))
    floor = estimate(winner, full, least=_LEAST_SPREAD_OF_FLOOR).combine(seen, max)
    most = floor.high * _NOTICEABLE
    is_open = any(line.limit_at(full) > most for line in found if line not in certain)
    return replace(floor, is_at_least=floor.is_at_least or is_open or not is_explained)


def _held_from(compared: Comparison, full: int, least: int) -> tuple[int | None, str]:
    """Return ``(count, name)``: a model with at least ``count`` layers has the peak in the winner's operation.

    The winner is ``compared.winner``. ``count`` is as small as possible: with ``count - 1`` layers, the peak is in
    another operation, called ``name``. The result is ``(None, "")`` if the peak is in the winner's operation for every
    number of layers from ``least`` to ``full``.
    """
    winner = compared.winner
    for count in range(full, least - 1, -1):
        highest = max(compared.lines, key=lambda line: line.at(count))
        if highest.at(count) > winner.at(count) * _NOTICEABLE and highest.operation != winner.operation:
            return count + 1, highest.operation
    return None, ""


def judged(known: Forecast, limit: int) -> str:
    """Return the verdict on a memory limit.

    The floor is memory that the kernel cannot drop. The comfortable amount is enough to read no file twice. If the
    limit is between these two amounts, the run fits slowly.
    """
    if limit < known.floor.low:
        return NO
    if known.comfortable.is_at_least or limit < most_of_floor(known):
        return UNSURE
    return YES if limit >= known.comfortable.high else SLOWLY


def most_of_floor(known: Forecast) -> float:
    """Return the upper bound of the floor (the memory that the kernel cannot drop).

    The result is never above the upper bound of the peak.
    """
    return known.peak.high if known.floor.is_at_least else known.floor.high


def loaded(file: pathlib.Path) -> Result | None:
    """Read a forecast from a file; return None if the file is of another kind."""
    try:
        found = msgspec.json.decode(intake.read_file(file), type=Result)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return found if found.format == FORMAT else None
