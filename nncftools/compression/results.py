"""Computes error, compression rate, kind and Pareto front. Pure functions."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nncftools.backports import StrEnum
from nncftools.compression.columns import ERROR, RATE, Direction
from nncftools.compression.errors import ResultsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.compression.checking import Model, Row
    from nncftools.compression.columns import Metric

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

    row: Row
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
        """The short name, or the mode if there is none."""
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
    titles = [_title(model) for model in models]
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
    points = [_point(base, row, metrics) for row in model.rows] if points is None else points
    for row, (error, rate) in zip(model.rows, points, strict=True):
        if not (abs(error) < _MOST and 1 / _MOST < rate < _MOST):
            where = f"{str(model.path)!r}: row {row.number}"
            raise ResultsError(f"{where}: error {error:.3g}, compression rate {rate:.3g}: check its figures")
    best = pareto(points)
    results = [
        Result(
            row=row,
            error=error,
            error_stderr=None if row is base else error_stderr(row, base, metrics),
            rate=rate,
            group=Group.BASELINE if row is base or row in model.repeated else group_of(row.mode, row.int4),
            is_pareto=place in best,
        )
        for place, (row, (error, rate)) in enumerate(zip(model.rows, points, strict=True))
    ]
    return sorted(results, key=lambda result: result.error)


def _point(base: Row, row: Row, metrics: Sequence[Metric]) -> tuple[float, float]:
    """Return a row's error and rate; improvements count as negative, as in the published tables."""
    errors = [metric.relative_error(row.values[metric.column], base.values[metric.column]) for metric in metrics]
    return sum(errors) / len(errors), base.size / row.size


def error_stderr(row: Row, baseline: Row, metrics: Sequence[Metric]) -> float | None:
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
    order = sorted(range(len(points)), key=lambda place: (points[place][0], -points[place][1]))
    best: set[int] = set()
    top = -math.inf
    last: tuple[float, float] | None = None
    for place in order:
        if points[place][1] > top or points[place] == last:
            best.add(place)
            top, last = points[place][1], points[place]
    return best


def differing(comparison: Comparison) -> list[str]:
    """Return the computed columns whose values in the file differ from the computed ones by more than a thousandth."""
    return [
        column
        for column, computed in ((ERROR, "error"), (RATE, "rate"))
        if any(
            column in result.row.stored
            and not math.isclose(result.row.stored[column], getattr(result, computed), rel_tol=1e-3, abs_tol=1e-3)
            for result in comparison.results
        )
    ]


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


def _title(model: Model) -> str:
    words = [word.strip() for word in model.setup.split(",")]
    return ", ".join([model.name, *(word for word in words if word and word.casefold() != "model")])


def _distinct(*choices: Sequence[str]) -> list[str]:
    """Return, for each index, the first choice that is unique there, or else the last choice."""
    counts = [Counter(choice) for choice in choices]
    return [
        next((name for name, count in zip(names, counts, strict=True) if count[name] == 1), names[-1])
        for names in zip(*choices, strict=True)
    ]
