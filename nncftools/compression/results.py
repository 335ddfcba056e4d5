"""Computes the results of rows: error, compression rate, kind and Pareto front, and what rows say of memory and time.

Also the series of the picture, and bounds on figures with the smallest model within all of them. Pure functions;
unknown is None.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nncftools.backports import StrEnum
from nncftools.compression.checking import CheckedRow, Model, number
from nncftools.compression.reading import ERROR, FIGURES, MODEL_SIZE, RATE, Cost, Direction, Metric, ResultsError
from nncftools.errors import UsageError
from nncftools.units import MemoryUnit, nearest, seconds_from, size_from, size_text

Points = Sequence[tuple[float, float]]
"""Error and rate of each row."""
_MOST = 1e9
"""Larger errors and rates are impossible."""
LOW_BITS = re.compile(r"int[234]|nf4|fp4|e2m1|cb4|codebook")
_DATA_AWARE = re.compile(r"scale|awq|data.?aware|calibrat")


class Group(StrEnum):
    """A kind of compression; each is one series in the picture."""

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
    """A row with the values computed from it and the baseline."""

    row: CheckedRow
    error: float
    """Mean of the metrics' relative errors, a fraction; negative when the model got better."""
    error_stderr: float | None
    """Standard error of ``error``; None when the file has none."""
    rate: float
    """How many times smaller than the baseline."""
    group: Group
    is_pareto: bool
    """Whether no other row is at least as small and as accurate, and better in one of the two."""

    @property
    def label(self) -> str:
        """The short name, else the mode."""
        return self.row.plot_name or self.row.mode


@dataclass(frozen=True)
class Comparison:
    """One model's results, the smallest error first."""

    name: str
    """Unique among the models shown together."""
    title: str
    """The model's name and set-up."""
    model: Model
    metrics: Sequence[Metric]
    results: Sequence[Result]


def comparisons(
    models: Sequence[Model], metrics: Sequence[Metric], points: Sequence[Points] | None = None
) -> list[Comparison]:
    """Return the results of every model, in the order given, from errors and rates that are known, or from its figures.

    Raises ResultsError, see ``evaluated``.
    """
    titles = []
    for model in models:
        words = (word.strip() for word in model.setup.split(","))
        titles.append(", ".join([model.name, *(word for word in words if word and word.casefold() != "model")]))
    names = _distinct([model.name for model in models], titles, [f"{m.name}, {m.path.stem}" for m in models])
    known: Sequence[Points | None] = [None] * len(models) if points is None else points
    return [
        Comparison(name, title, model, metrics, evaluated(model, metrics, of_model))
        for name, title, model, of_model in zip(names, titles, models, known, strict=True)
    ]


def evaluated(model: Model, metrics: Sequence[Metric], points: Points | None = None) -> list[Result]:
    """Return a model's rows with error and rate, sorted by error; equal errors keep the file's order.

    Raises ResultsError for impossible figures.
    """
    base = model.baseline

    def point(row: CheckedRow) -> tuple[float, float]:  # improvements count as negative, as in the published tables
        errors = [metric.relative_error(row.values[metric.column], base.values[metric.column]) for metric in metrics]
        return sum(errors) / len(errors), base.size / row.size

    points = [point(row) for row in model.rows] if points is None else points
    for row, (error, rate) in zip(model.rows, points, strict=True):
        if not (abs(error) < _MOST and 1 / _MOST < rate < _MOST):
            where = f"{str(model.path)!r}: row {row.number}"
            raise ResultsError(f"{where}: error {error:.3g}, compression rate {rate:.3g}: check its figures")
    best = pareto(points)
    results = []
    for index, (row, (error, rate)) in enumerate(zip(model.rows, points, strict=True)):
        stderr = None if row is base else error_stderr(row, base, metrics)
        group = Group.BASELINE if row is base or row in model.repeated else group_of(row.mode, row.int4)
        results.append(Result(row, error, stderr, rate, group, index in best))
    return sorted(results, key=lambda result: result.error)


def error_stderr(row: CheckedRow, baseline: CheckedRow, metrics: Sequence[Metric]) -> float | None:
    """Return the standard error of the average relative error, or None when no metric has one.

    First-order error propagation, assuming independent measurements; a metric without standard error counts as exact.
    """
    if not any(metric.column in row.stderrs for metric in metrics):
        return None
    squares = []
    for metric in metrics:
        of_row = row.stderrs.get(metric.column, 0.0)
        if metric.direction is Direction.SIMILARITY:
            squares.append(of_row**2)
            continue
        value, base = row.values[metric.column], baseline.values[metric.column]
        of_base = baseline.stderrs.get(metric.column, 0.0)
        squares.append((of_row / base) ** 2 + (value * of_base / base**2) ** 2)
    return math.sqrt(math.fsum(squares)) / len(metrics)


def pareto(points: Sequence[tuple[float, float]]) -> set[int]:
    """Return the indices of the (error, rate) points that no other point dominates."""
    order = sorted(range(len(points)), key=lambda index: (points[index][0], -points[index][1]))
    best: set[int] = set()
    last = math.nan, -math.inf
    for index in order:
        if points[index][1] > last[1] or points[index] == last:
            best.add(index)
            last = points[index]
    return best


def differing(comparison: Comparison) -> list[str]:
    """Return the computed columns whose values in the file differ from the computed ones by more than a thousandth."""
    columns: dict[str, None] = {}
    for column, computed in ((ERROR, "error"), (RATE, "rate")):
        for result in comparison.results:
            value = getattr(result, computed)
            if not math.isclose(result.row.stored.get(column, value), value, rel_tol=1e-3, abs_tol=1e-3):
                columns[column] = None
    return list(columns)


def group_of(mode: str, int4: float) -> Group:
    """Return the kind of a row other than the baseline; ``int4`` is its share of 4-bit layers, 0 to 1."""
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


def _distinct(*choices: Sequence[str]) -> list[str]:
    """Return, for each index, the first choice that is unique there, or else the last choice."""
    counts = [Counter(choice) for choice in choices]
    return [
        next((name for name, count in zip(names, counts, strict=True) if count[name] == 1), names[-1])
        for names in zip(*choices, strict=True)
    ]


_UNITS = ((7200.0, 3600.0, "h"), (120.0, 60.0, "min"), (1.0, 1.0, "s"), (0.0, 1e-3, "ms"))
"""From how many seconds on, the seconds in the unit, its name."""
_LEAST = 1e-9
"""A smaller figure is impossible."""
_WHOLE_FROM = 999.5
_GIB_FROM = 4 * MemoryUnit.GiB.factor


class Measured(NamedTuple):
    """A figure as a bracket, in bytes or seconds; both ends are equal where the file has one figure."""

    low: float
    high: float
    """The end that counts."""


def measured(row: CheckedRow, figure: Cost) -> Measured | None:
    """Return a row's figure; None when its cell is empty, no number, or not above 0."""
    if figure is MODEL_SIZE:
        return Measured(row.size * figure.factor, row.size * figure.factor)
    ends = []
    for column in (figure.column, figure.high_column):
        value = row.values[column] if column in row.values else number(row.extra.get(column, ""))
        if value is not None and value >= _LEAST:
            ends.append(value * figure.factor)
    return Measured(min(ends), max(ends)) if ends else None


def require(models: Sequence[Model], figures: Iterable[Cost]) -> None:
    """Raise ResultsError for the first figure whose column a file lacks."""
    for model in models:
        first = model.rows[0]
        columns = [*first.extra, *first.values]
        for figure in figures:
            if figure is MODEL_SIZE or figure.column in columns:
                continue
            near = nearest(figure.column, columns)
            needed = f"{figure.name!r} needs the column {figure.column!r}, which the file does not have"
            raise ResultsError(f"{str(model.path)!r}: {needed}{f' (found {near!r})' if near else ''}")


def figure_text(figure: Cost, value: float) -> str:
    """Return bytes or seconds as text in the best-fitting unit: ``"1.7 GiB"``, ``"12.3 ms"``, ``"76.1 s"``."""
    if figure.is_size:
        return size_text(value)
    factor, unit = scale_of(figure, value)
    count = value / factor
    return f"{count:,.0f} {unit}" if count >= _WHOLE_FROM else f"{count:.3g} {unit}"


def scale_of(figure: Cost, value: float) -> tuple[float, str]:
    """Return the unit that suits a figure of this value: the bytes or seconds in it, and its name."""
    if figure.is_size:
        unit = MemoryUnit.GiB if value >= _GIB_FROM else MemoryUnit.MiB
        return unit.factor, unit
    return next((factor, unit) for least, factor, unit in _UNITS if value >= least)


_PRECISION = re.compile(rf"[a-z]*(?:{LOW_BITS.pattern}|int8)")
_LEADING = {Group.LORA: "lora", Group.GPTQ: "gptq", Group.DATA_FREE: "data-free"}
"""The word of the algorithm that makes a kind; its name comes first."""


def series_name(results: Sequence[Result]) -> str:
    """Describe results of one kind: their precision, and the algorithms that all of their modes name.

    For example ``100% int4, gptq + scale estimation`` or ``mixed precision, scale estimation``.
    """
    group = results[0].group
    if group in (Group.INT8, Group.OTHER):
        return str(group)
    everywhere = set.intersection(*({*_parts(result.row.mode.casefold())} for result in results))
    first, *others = _parts(results[0].row.mode)
    algorithms = others if _PRECISION.search(first.casefold()) else [first, *others]
    shared = [name for name in algorithms if name and name.casefold() in everywhere]
    if group is Group.MIXED:
        return ", ".join([group, *([" + ".join(shared)] if shared else [])])
    word = _LEADING.get(group, "")
    shared.sort(key=lambda name: word not in name.casefold())
    if not shared or word not in shared[0].casefold():
        shared.insert(0, group)
    name = " + ".join(shared)
    if any(result.row.int4 < 1 for result in results):
        return name
    matches = [_PRECISION.search(result.row.mode.casefold()) for result in results]
    precisions = {match[0] if match else "int4" for match in matches}
    return f"100% {precisions.pop() if len(precisions) == 1 else '4-bit'}, {name}"


def joined(results: Sequence[Result]) -> list[list[Result]]:
    """Return the results that a line joins, by growing share of int4: same algorithms, several shares.

    There is no line when two results have the same share: they differ in something else, and nothing says which of them
    belongs to it.
    """
    by_algorithms: dict[object, list[Result]] = {}
    for result in results:
        if result.row.int4 > 0:
            key = frozenset(_parts(result.row.mode.casefold())), result.row.lora_rank
            by_algorithms.setdefault(key, []).append(result)
    lines = [sorted(series, key=lambda result: result.row.int4) for series in by_algorithms.values()]
    return [line for line in lines if 1 < len({result.row.int4 for result in line}) == len(line)]


def _parts(mode: str) -> list[str]:
    """Return what ``+`` separates: usually a precision, then algorithms."""
    return [" ".join(part.split()) for part in mode.split("+")]


ERROR_NAME = "error"
_BY_NAME = {figure.name: figure for figure in (MODEL_SIZE, *FIGURES)}
_SHAPE = re.compile(r"\s*([^<>=≤≥]*[^<>=≤≥\s])\s*(<=?|≤)\s*([^<>=≤≥\s][^<>=≤≥]*)")
_FRACTION = re.compile(r"([0-9]*\.?[0-9]+)\s*(%?)", re.ASCII)
_OWN_UNIT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*Gb", re.ASCII)
"""The unit in the name of the column of sizes, which counts GiB; ``GB`` is decimal."""
_TOLERANCE = 1e-9
"""A computed 0.05 is rarely exactly 0.05."""


@dataclass(frozen=True)
class Bound:
    """The largest accepted figure of a row."""

    figure: Cost | None
    """None for the average relative error."""
    limit: float
    """A fraction, bytes or seconds."""
    is_inside: bool
    """Whether the limit itself is accepted."""
    text: str
    """The limit with its unit."""

    @property
    def name(self) -> str:
        """The word before the limit."""
        return self.figure.name if self.figure else ERROR_NAME

    def holds(self, result: Result) -> bool | None:
        """Return whether a result is accepted; None when its figure is unknown."""
        if self.figure is None:
            value = result.error
        elif (figure := measured(result.row, self.figure)) is None:
            return None
        else:
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
    """Bounds that must all hold, one for each figure."""

    each: Sequence[Bound]

    def __iter__(self) -> Iterator[Bound]:
        return iter(self.each)

    def hold(self, result: Result) -> bool | None:
        """Return whether a result is within all bounds; None when only figures that are unknown decide."""
        verdicts = [bound.holds(result) for bound in self.each]
        return False if False in verdicts else None if None in verdicts else True

    @property
    def figures(self) -> list[Cost]:
        """The bounded figures beside the error."""
        return [bound.figure for bound in self.each if bound.figure]

    @property
    def words(self) -> str:
        """The bounds in a sentence: ``error below 5% and peak up to 8 GiB``."""
        return " and ".join(bound.words for bound in self.each)

    def __str__(self) -> str:
        return ", ".join(map(str, self.each))


USUAL_BOUNDS = Bounds([Bound(None, 0.05, is_inside=True, text="5%")])
"""The bounds of the answer when the user gives none."""
_UNCOMPRESSED = {"none", "original", "uncompressed", "fp16", "bf16"}
"""Modes of rows beside the baseline that are not compressed either."""


def name_in_sentence(result: Result) -> str:
    """Return what a sentence calls a model: ``int4 with awq and scale estimation (60% int4)``."""
    mode, label = result.row.mode, result.label
    if result.group is Group.BASELINE or mode.casefold() in _UNCOMPRESSED:
        return f"The uncompressed model ({label})"
    precision, *algorithms = _parts(mode)
    name = f"{precision} with {' and '.join(algorithms)}" if algorithms else precision
    return name if label.casefold() in mode.casefold() else f"{name} ({label})"


class Choice(NamedTuple):
    """The smallest model within bounds, and what could not be judged."""

    best: Result | None
    """None when no row is within the bounds."""
    left_out: int
    """Rows within all bounds whose figure is known, and with a bounded figure that is unknown."""
    unknown: Sequence[str]
    """Which figures these rows lack."""


def bounds_of(text: str) -> Bounds:
    """Parse bounds joined by commas, like ``error<=5%, peak<=8GiB``. Raises UsageError."""
    each = [_bound(part) for part in text.split(",")]
    names = [bound.name for bound in each]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise UsageError(f"{text!r} bounds {twice!r} twice")
    return Bounds(each)


def _bound(text: str) -> Bound:
    match = _SHAPE.fullmatch(text)
    if match is None:
        raise UsageError(f"'error<=5%' or 'error<=5%, peak<=8GiB' expected, found {text.strip()!r}")
    name, value = " ".join(re.split(r"[\s_-]+", match[1].casefold())), match[3].strip()
    is_inside = match[2] != "<"
    if name == ERROR_NAME:
        limit = _fraction(text, value)
        return Bound(None, limit, is_inside, f"{limit * 100:.10g}%")
    if name not in _BY_NAME:
        known = (ERROR_NAME, *_BY_NAME)
        near = nearest(name, known)
        what = f"did you mean {near!r}?" if near else f"one of {', '.join(known)} expected"
        raise UsageError(f"no bound is called {match[1]!r}; {what}")
    figure = _BY_NAME[name]
    try:
        limit, shown = _limit(figure, value)
    except ValueError as error:
        raise UsageError(f"{text.strip()!r}: {error}") from error
    return Bound(figure, limit, is_inside, shown)


def _fraction(text: str, value: str) -> float:
    match = _FRACTION.fullmatch(value)
    if match is None:
        raise UsageError(f"'error<=5%' or 'error<0.05' expected, found {text.strip()!r}")
    limit = float(match[1]) / (100 if match[2] else 1)
    if limit > 1 and not match[2]:
        raise UsageError(f"{text.strip()!r} means {limit * 100:g}%; write 'error<={limit:g}%'")
    return limit


def _limit(figure: Cost, value: str) -> tuple[float, str]:
    """Return bytes or seconds, and the text of it. Raises ValueError."""
    if not figure.is_size:
        seconds = seconds_from(value)
        if not 0 < seconds < math.inf or value[-1].isdigit():
            raise ValueError(f"a time above 0 with its unit expected, such as 100ms, found {value!r}")
        return seconds, re.sub(r"(?<=[0-9])\s*(?=[a-z])", " ", value.casefold())
    own = _OWN_UNIT.fullmatch(value) if figure is MODEL_SIZE else None
    if own:
        return float(own[1]) * figure.factor, f"{float(own[1]):g} Gb"
    size, unit = size_from(value)
    return size, f"{unit.of(size):.10g} {unit}"


def chosen(comparison: Comparison, bounds: Bounds) -> Choice:
    """Return the smallest model within all bounds, among equals the one with the least error."""
    within = [result for result in comparison.results if bounds.hold(result)]
    unjudged = [result for result in comparison.results if bounds.hold(result) is None]
    lacking = [bound.name for bound in bounds if any(bound.holds(result) is None for result in unjudged)]
    best = min(within, key=lambda result: (result.row.size, result.error), default=None)
    return Choice(best, len(unjudged), lacking)


def left_out_text(choice: Choice) -> str:
    """Return how many rows were left out for want of a figure: ``"2 rows left out, peak unknown"``, or nothing."""
    if not choice.left_out:
        return ""
    rows = "1 row" if choice.left_out == 1 else f"{choice.left_out:,} rows"
    return f"{rows} left out, {' or '.join(choice.unknown)} unknown"
