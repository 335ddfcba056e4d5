"""Computes the results of rows in a results file: error, compression rate, kind and Pareto front, memory and time.

The module also finds the lines to draw in the picture, parses bounds (the user's limits, such as ``peak<=8GiB``), and
finds the smallest model within all bounds. The functions are pure. Unknown values are None.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import NamedTuple

from nncftools.backports import StrEnum
from nncftools.compression.checking import CheckedRow, Model, parse_number
from nncftools.compression.reading import ERROR, FIGURES, MODEL_SIZE, RATE, Cost, Direction, Metric, ResultsError
from nncftools.errors import UsageError
from nncftools.units import MemoryUnit, count_text, nearest, not_one_of, seconds_from, size_from, size_text

Points = Sequence[tuple[float, float]]
"""Error and compression rate of each row."""
_MOST = 1e9
"""Larger errors and compression rates are impossible."""
LOW_BITS = re.compile(r"int[234]|nf4|fp4|e2m1|cb4|codebook")
_DATA_AWARE = re.compile(r"scale|awq|data.?aware|calibrat")


class Group(StrEnum):
    """A kind of compression. In the picture, each kind has a different marker."""

    BASELINE = "baseline"
    LORA = "LoRA correction"
    GPTQ = "GPTQ"
    MIXED = "mixed precision"
    DATA_AWARE = "data-aware"
    DATA_FREE = "data-free"
    INT8 = "int8"
    OTHER = "other"


@dataclass(frozen=True)
class Result:
    """A row of the results file, and values that are computed from the row and the baseline."""

    row: CheckedRow
    error: float
    """Mean of the relative errors of all metrics, as a fraction. The mean is negative if the model got better."""
    error_stderr: float | None
    """Standard error of ``error``; None if the file has no standard errors."""
    rate: float
    """How many times smaller the model is than the baseline."""
    group: Group
    is_pareto: bool
    """Whether the row is on the Pareto front: no other row is better in size or error and at least equal in the other.
    """

    @property
    def label(self) -> str:
        """The result's short name (``plot name``), or the mode if there is no short name."""
        return self.row.plot_name or self.row.mode


@dataclass(frozen=True)
class Comparison:
    """The results of a model. The smallest error (loss of quality) comes first."""

    name: str
    """A name that is unique among the models shown together."""
    title: str
    """The model's name and the set-up: ``phi3, CPU`` if the header of the file's first column is ``Model, CPU``."""
    model: Model
    metrics: Sequence[Metric]
    results: Sequence[Result]


def comparisons(
    models: Sequence[Model], metrics: Sequence[Metric], points: Sequence[Points] | None = None
) -> list[Comparison]:
    """Return the results of every model, in the order of ``models``.

    ``points`` has ``(error, compression rate)`` for each row of each model; by default, both are computed. Raises
    ResultsError if an error or a compression rate is above 1e9, or a rate is below 1e-9.
    """
    titles = []
    for model in models:
        words = [word.strip() for word in model.setup.split(",")]
        setup = [word for word in words if word and word.casefold() != "model"]
        titles.append(", ".join([model.name, *setup]))
    short_names = Counter(model.name for model in models)
    comparisons = []
    for index, model in enumerate(models):
        title = titles[index]
        name = model.name
        if short_names[name] > 1:
            name = title if titles.count(title) == 1 else f"{name}, {model.path.stem}"
        results = evaluate(model, metrics, None if points is None else points[index])
        comparisons.append(Comparison(name, title, model, metrics=metrics, results=results))
    return comparisons


def evaluate(model: Model, metrics: Sequence[Metric], points: Points | None = None) -> list[Result]:
    """Return a model's rows with error (loss of quality) and compression rate. The smallest error comes first.

    Rows of equal error keep the order of the file. Raises ResultsError if an error or a compression rate is impossible:
    above 1e9, or a rate below 1e-9.
    """
    base = model.baseline
    if points is None:
        points = [_compute_point(row, base, metrics) for row in model.rows]
    for row, (error, rate) in zip(model.rows, points, strict=True):
        if not (abs(error) < _MOST and 1 / _MOST < rate < _MOST):
            place = f"{str(model.path)!r}: row {row.number}"
            raise ResultsError(f"{place}: error {error:.3g}, compression rate {rate:.3g}: check the numbers in the row")
    best = pareto(points)
    results = []
    for index, row in enumerate(model.rows):
        error, rate = points[index]
        is_baseline = row is base or row in model.repeated
        result = Result(
            row=row,
            error=error,
            error_stderr=None if row is base else error_stderr(row, base, metrics),
            rate=rate,
            group=Group.BASELINE if is_baseline else group_of(row.mode, row.int4),
            is_pareto=index in best,
        )
        results.append(result)
    return sorted(results, key=lambda result: result.error)


def _compute_point(row: CheckedRow, base: CheckedRow, metrics: Sequence[Metric]) -> tuple[float, float]:
    """Return error and rate. As in the published tables, improvements count as negative errors."""
    error = 0.0
    for metric in metrics:
        error += metric.relative_error(row.values[metric.column], base.values[metric.column])
    return error / len(metrics), base.size / row.size


def error_stderr(row: CheckedRow, baseline: CheckedRow, metrics: Sequence[Metric]) -> float | None:
    """Return the standard error of the average relative error; None if no metric has a standard error.

    Errors are propagated to first order, as for independent measurements. A metric without a standard error counts as
    exact.
    """
    if not any(metric.column in row.stderrs for metric in metrics):
        return None
    squares = []
    for metric in metrics:
        stderr = row.stderrs.get(metric.column, 0.0)
        if metric.direction is Direction.SIMILARITY:
            squares.append(stderr**2)
            continue
        base = baseline.values[metric.column]
        base_stderr = baseline.stderrs.get(metric.column, 0.0)
        ratio = row.values[metric.column] / base
        squares += [(stderr / base) ** 2, (ratio * base_stderr / base) ** 2]
    return math.sqrt(math.fsum(squares)) / len(metrics)


def pareto(points: Sequence[tuple[float, float]]) -> set[int]:
    """Return the indices of the (error, rate) points that no other point dominates."""
    best: set[tuple[float, float]] = set()
    highest = -math.inf
    in_order = sorted(points, key=lambda point: (point[0], -point[1]))
    for error, rate in in_order:
        if rate > highest:
            highest = rate
            best.add((error, rate))
    return {index for index, point in enumerate(points) if point in best}


def find_wrong_columns(comparison: Comparison) -> list[str]:
    """Return the computed columns whose values in the file are wrong.

    A difference is allowed up to 0.001, or up to a thousandth of the value if this is more.
    """
    columns = set()
    for result in comparison.results:
        for column, value in ((ERROR, result.error), (RATE, result.rate)):
            stored = result.row.stored.get(column, value)
            if not math.isclose(stored, value, rel_tol=1e-3, abs_tol=1e-3):
                columns.add(column)
    return sorted(columns)


def group_of(mode: str, int4: float) -> Group:
    """Return the kind of a row other than the baseline. ``int4`` is the share of 4-bit layers, from 0 to 1."""
    text = mode.casefold()
    rules = (
        (Group.LORA, "lora" in text),
        (Group.GPTQ, "gptq" in text),
        (Group.MIXED, 0 < int4 < 1),
        (Group.INT8, "int8" in text and int4 == 0),
        (Group.DATA_AWARE, _DATA_AWARE.search(text) is not None),
        (Group.DATA_FREE, "data-free" in text or LOW_BITS.search(text) is not None),
    )
    return next((group for group, applies in rules if applies), Group.OTHER)


_UNITS = (
    (7200.0, 3600.0, "h"),
    (120.0, 60.0, "min"),
    (1.0, 1.0, "s"),
    (0.0, 1e-3, "ms"),
)
"""Units of time: ``(least time in seconds to show in the unit, seconds in the unit, name of the unit)``."""
_LEAST = 1e-9
"""A value below this number, in the unit of the column, is impossible and counts as unknown."""
_WHOLE_FROM = 999.5
_GIB_FROM = 4 * MemoryUnit.GiB.factor


class Measured(NamedTuple):
    """A size in bytes or a duration in seconds, as a range between a lower and an upper bound.

    If the file has a single value, both bounds are equal.
    """

    low: float
    high: float
    """The upper bound of the value. This bound is compared with the user's limits, and is the height of the point in
    the picture."""


def get_figure(row: CheckedRow, figure: Cost) -> Measured | None:
    """Return a row's size in bytes or duration in seconds; None if the cell is empty, not a number, or not above 0."""
    ends = []
    for column in (figure.column, figure.high_column):
        value = row.size
        if figure is not MODEL_SIZE:
            cell = row.extra.get(column, "")
            value = row.values.get(column) or parse_number(cell) or 0.0
        if value >= _LEAST:
            ends.append(value * figure.factor)
    return Measured(min(ends), max(ends)) if ends else None


def require(models: Sequence[Model], figures: Iterable[Cost]) -> None:
    """Raise ResultsError if a file lacks the column of a cost (memory or time)."""
    for model in models:
        first = model.rows[0]
        columns = [*first.extra, *first.values]
        for figure in figures:
            if figure is MODEL_SIZE or figure.column in columns:
                continue
            near = nearest(figure.column, columns)
            hint = f" (found {near!r})" if near else ""
            needed = f"{figure.name!r} needs the column {figure.column!r}, which the file does not have"
            raise ResultsError(f"{str(model.path)!r}: {needed}{hint}")


def figure_text(figure: Cost, value: float) -> str:
    """Return bytes or seconds as text in the best-fitting unit: ``"1.7 GiB"``, ``"12.3 ms"``, ``"76.1 s"``."""
    if figure.is_size:
        return size_text(value)
    factor, unit = scale_of(figure, value)
    count = value / factor
    return f"{count:,.0f} {unit}" if count >= _WHOLE_FROM else f"{count:.3g} {unit}"


def error_text(error: float) -> str:
    """Return a relative error in percent; errors below 1,000 % have one decimal."""
    return f"{round(error * 100, 1) + 0.0:,.{int(error < 10)}f}%"  # noqa: PLR2004 — 1,000 %


def scale_of(figure: Cost, value: float) -> tuple[float, str]:
    """Return the best unit for a value, as ``(bytes or seconds in the unit, name of the unit)``."""
    if figure.is_size:
        unit = MemoryUnit.GiB if value >= _GIB_FROM else MemoryUnit.MiB
        return unit.factor, unit
    return next((factor, unit) for least, factor, unit in _UNITS if value >= least)


_PRECISION = re.compile(rf"[a-z]*(?:{LOW_BITS.pattern}|int8)")
_LEADING = {Group.LORA: "lora", Group.GPTQ: "gptq", Group.DATA_FREE: "data-free"}
"""The algorithm by which a kind of compression is recognised. In the name of results of this kind, this algorithm comes
before other algorithms."""


def series_name(results: Sequence[Result]) -> str:
    """Return a name for results of the same kind: the precision, and the algorithms that are in every result's mode.

    For example ``100% int4, gptq + scale estimation`` or ``mixed precision, scale estimation``.
    """
    group = results[0].group
    if group in (Group.INT8, Group.OTHER):
        return str(group)
    modes = [result.row.mode.casefold() for result in results]
    everywhere = set.intersection(*(set(_split_mode(mode)) for mode in modes))
    algorithms = _split_mode(results[0].row.mode)
    if _PRECISION.search(algorithms[0].casefold()):
        del algorithms[0]
    shared = [name for name in algorithms if name and name.casefold() in everywhere]
    if group is Group.MIXED:
        return ", ".join(filter(None, (group, " + ".join(shared))))
    word = _LEADING.get(group, "")
    shared.sort(key=lambda name: word not in name.casefold())
    if not shared or word not in shared[0].casefold():
        shared.insert(0, group)
    name = " + ".join(shared)
    if any(result.row.int4 < 1 for result in results):
        return name
    precisions = set()
    for mode in modes:
        match = _PRECISION.search(mode)
        precisions.add(match[0] if match else "int4")
    precision = precisions.pop() if len(precisions) == 1 else "4-bit"
    return f"100% {precision}, {name}"


def find_lines(results: Sequence[Result]) -> list[list[Result]]:
    """Return the lines of the picture: the results that each line joins, by growing share of int4.

    A line joins all results with the same algorithms. But if two of these results have the same share of int4, they
    differ in an unknown setting; then these algorithms get no line.
    """
    by_algorithms: dict[object, list[Result]] = {}
    for result in sorted(results, key=lambda result: result.row.int4):
        if result.row.int4 > 0:
            key = frozenset(_split_mode(result.row.mode.casefold())), result.row.lora_rank
            by_algorithms.setdefault(key, []).append(result)
    lines = []
    for line in by_algorithms.values():
        shares = {result.row.int4 for result in line}
        if len(line) == len(shares) > 1:
            lines.append(line)
    return lines


def _split_mode(mode: str) -> list[str]:
    """Split a mode at ``+``. Usually, the first part is a precision, and the other parts are algorithms."""
    return [" ".join(part.split()) for part in mode.split("+")]


ERROR_NAME = "error"
_BY_NAME = {figure.name: figure for figure in (MODEL_SIZE, *FIGURES)}
_SHAPE = re.compile(r"\s*([^<>=≤≥]*[^<>=≤≥\s])\s*(<=?|≤)\s*([^<>=≤≥\s][^<>=≤≥]*)")
_FRACTION = re.compile(r"([0-9]*\.?[0-9]+)\s*(%?)", re.ASCII)
_OWN_UNIT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*Gb", re.ASCII)
"""Matches a model size such as ``3.5 Gb``. Upstream's tables and the user's bounds may have Gb in place of GiB."""
_TOLERANCE = 1e-9
"""The tolerance for computed values: a computed 0.05 is rarely exactly 0.05."""


@dataclass(frozen=True)
class Bound:
    """The largest value that the user accepts, such as ``peak<=8GiB``."""

    figure: Cost | None
    """The bounded size or duration; None for the average relative error."""
    limit: float
    """The limit: a fraction if the error is bounded, otherwise bytes or seconds."""
    is_inside: bool
    """Whether a value equal to the limit is accepted."""
    text: str
    """The limit as text with its unit, such as ``8 GiB``."""

    @property
    def name(self) -> str:
        """The name of the bounded value: ``peak``."""
        return self.figure.name if self.figure else ERROR_NAME

    def holds(self, result: Result) -> bool | None:
        """Return whether a result is accepted; None if the value is unknown."""
        value = result.error
        if self.figure is not None:
            figure = get_figure(result.row, self.figure)
            if figure is None:
                return None
            value = figure.high
        if math.isclose(value, self.limit, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE / 2):
            return self.is_inside
        return value < self.limit

    def __str__(self) -> str:
        return f"{self.name} {'≤' if self.is_inside else '<'} {self.text}"

    @property
    def words(self) -> str:
        """The bound in a sentence: ``error below 5%``."""
        return f"{self.name} {'up to' if self.is_inside else 'below'} {self.text}"


@dataclass(frozen=True)
class Bounds:
    """The user's limits for results. All bounds must hold. Each bound is for a different column."""

    each: Sequence[Bound]

    def __iter__(self) -> Iterator[Bound]:
        return iter(self.each)

    def hold(self, result: Result) -> bool | None:
        """Return whether a result is within all bounds; None if the answer depends on unknown values."""
        verdicts = [bound.holds(result) for bound in self.each]
        if False in verdicts:
            return False
        return None if None in verdicts else True

    @property
    def figures(self) -> list[Cost]:
        """The sizes and durations that have a bound."""
        return [bound.figure for bound in self.each if bound.figure]

    @property
    def words(self) -> str:
        """The bounds in a sentence: ``error below 5% and peak up to 8 GiB``."""
        return " and ".join(bound.words for bound in self.each)

    def __str__(self) -> str:
        return ", ".join(map(str, self.each))


USUAL_BOUNDS = Bounds([Bound(None, 0.05, is_inside=True, text="5%")])
"""The only bound if the user sets no limits: an average relative error of at most 5 %."""
_UNCOMPRESSED = {"none", "original", "uncompressed", "fp16", "bf16"}
"""Modes of uncompressed rows that are not the baseline."""


def name_in_sentence(result: Result) -> str:
    """Return a model's name for a sentence: ``int4 with awq and scale estimation (60% int4)``."""
    mode = result.row.mode
    label = result.label
    if result.group is Group.BASELINE or mode.casefold() in _UNCOMPRESSED:
        return f"The uncompressed model ({label})"
    precision, *algorithms = _split_mode(mode)
    name = f"{precision} with {' and '.join(algorithms)}" if algorithms else precision
    return name if label.casefold() in mode.casefold() else f"{name} ({label})"


class Choice(NamedTuple):
    """The smallest model within the bounds, and the number of rows in which a value with a bound is unknown."""

    best: Result | None
    """The result with the smallest model size; None if no result is within the bounds."""
    left_out: int
    """The number of results that may be within the bounds: at least one value with a bound is unknown, and all known
    values are within the bounds."""
    unknown: Sequence[str]
    """The names of the values with a bound that are unknown in at least one of the results counted in ``left_out``."""


def parse_bounds(text: str) -> Bounds:
    """Parse bounds joined by commas, like ``error<=5%, peak<=8GiB``. Raises UsageError."""
    bounds: dict[str, Bound] = {}
    for part in text.split(","):
        bound = _parse_bound(part)
        if bound.name in bounds:
            raise UsageError(f"{text!r} bounds {bound.name!r} twice")
        bounds[bound.name] = bound
    return Bounds(list(bounds.values()))


def _parse_bound(text: str) -> Bound:
    match = _SHAPE.fullmatch(text)
    if match is None:
        raise UsageError(f"'error<=5%' or 'error<=5%, peak<=8GiB' expected, found {text.strip()!r}")
    name = " ".join(re.split(r"[\s_-]+", match[1].casefold()))
    value = match[3].strip()
    is_inside = match[2] != "<"
    if name == ERROR_NAME:
        limit = _parse_fraction(text, value)
        return Bound(None, limit, is_inside, f"{limit * 100:.10g}%")
    if name not in _BY_NAME:
        raise UsageError(f"bound {not_one_of(name, (ERROR_NAME, *_BY_NAME))}")
    figure = _BY_NAME[name]
    try:
        limit, shown = _parse_limit(figure, value)
    except ValueError as error:
        raise UsageError(f"{text.strip()!r}: {error}") from error
    return Bound(figure, limit, is_inside, shown)


def _parse_fraction(text: str, value: str) -> float:
    match = _FRACTION.fullmatch(value)
    if match is None:
        raise UsageError(f"'error<=5%' or 'error<0.05' expected, found {text.strip()!r}")
    limit = float(match[1]) / (100 if match[2] else 1)
    if limit > 1 and not match[2]:
        raise UsageError(f"{text.strip()!r} means {limit * 100:g}%; write 'error<={limit:g}%'")
    return limit


def _parse_limit(figure: Cost, value: str) -> tuple[float, str]:
    """Return the limit in bytes or seconds, and the limit as text. Raises ValueError."""
    if not figure.is_size:
        seconds = seconds_from(value)
        if not 0 < seconds < math.inf or value[-1].isdigit():
            raise ValueError(f"a time above 0 with its unit expected, such as 100ms, found {value!r}")
        return seconds, re.sub(r"(?<=[0-9])\s*(?=[a-z])", " ", value.casefold())
    match = _OWN_UNIT.fullmatch(value)
    if match and figure is MODEL_SIZE:
        size = float(match[1])
        return size * figure.factor, f"{size:g} Gb"
    size, unit = size_from(value)
    return size, f"{unit.of(size):.10g} {unit}"


_GAP = 10
"""An error is an outlier, which is not drawn, if it is more than this many times the next smaller error."""
_SMALL_ERROR = 0.02
"""When errors are compared, an error below this value counts as this value."""
_FEWEST_ERRORS = 4


def find_far(comparisons: Sequence[Comparison], bounds: Bounds, max_error: float | None = None) -> set[int]:
    """Return the ``id`` of each result that is not to be drawn, because the error is above ``max_error``.

    Without ``max_error``, these are the results whose error is far beyond most others. Baselines, which are never
    drawn, do not count, and the smallest result within the bounds is always drawn.
    """
    every = list(chain.from_iterable(comparison.results for comparison in comparisons))
    chosen = set[int]()
    if max_error is None:
        max_error = _find_limit([result.error for result in every if result.group is not Group.BASELINE])
        chosen.update(id(choose(comparison, bounds).best) for comparison in comparisons)
    return {id(result) for result in every if result.error > max_error} - chosen


def _find_limit(errors: Sequence[float]) -> float:
    """Return the largest error to draw; infinity if all errors are to be drawn.

    If an error in the larger half is more than ten times the next smaller error, return that smaller error.
    """
    if len(errors) >= _FEWEST_ERRORS:
        larger_half = sorted(errors)[len(errors) // 2 :]
        for error, larger in pairwise(larger_half):
            if larger > _GAP * max(error, _SMALL_ERROR):
                return error
    return math.inf


def choose(comparison: Comparison, bounds: Bounds) -> Choice:
    """Find the smallest model within all bounds. If several models have the same size, the least error decides."""
    within = [result for result in comparison.results if bounds.hold(result)]
    unjudged = [result for result in comparison.results if bounds.hold(result) is None]
    unknown = [bound.name for bound in bounds if None in map(bound.holds, unjudged)]
    within.sort(key=lambda result: (result.row.size, result.error))
    best = within[0] if within else None
    return Choice(best, len(unjudged), unknown)


def left_out_text(choice: Choice) -> str:
    """Return a text like ``"2 rows left out, peak unknown"``; empty if no row was left out."""
    if not choice.left_out:
        return ""
    return f"{count_text(choice.left_out, 'row')} left out, {' or '.join(choice.unknown)} unknown"
