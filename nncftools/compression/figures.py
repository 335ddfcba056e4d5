"""What rows say of memory, time and latency: read from their columns, and as text. Unknown is None."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from nncftools.compression.checking import number
from nncftools.compression.columns import MODEL_SIZE
from nncftools.compression.errors import ResultsError
from nncftools.intake import are_within
from nncftools.units import MemoryUnit, nearest, size_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nncftools.compression.checking import Model, Row
    from nncftools.compression.columns import Figure

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


def measured(row: Row, figure: Figure) -> Measured | None:
    """Return a row's figure; None when its cell is empty, no number, or not above 0."""
    if figure is MODEL_SIZE:
        return Measured(row.size * figure.factor, row.size * figure.factor)
    low, high = (_of_cell(row, column) for column in (figure.column, figure.high_column))
    ends = [end * figure.factor for end in (low, high) if end is not None]
    return Measured(min(ends), max(ends)) if ends else None


def _of_cell(row: Row, column: str) -> float | None:
    value = row.values[column] if column in row.values else number(row.extra.get(column, ""))
    return value if value is not None and are_within([value], low=_LEAST) else None


def require(models: Sequence[Model], figures: Iterable[Figure]) -> None:
    """Raise ResultsError for the first figure whose column a file lacks."""
    for model in models:
        first = model.rows[0]
        columns = [*first.extra, *first.values]
        for figure in figures:
            if figure is MODEL_SIZE or figure.column in columns:
                continue
            near = nearest(figure.column, columns, 0.75)
            found = f" (found {near!r})" if near else ""
            needed = f"{figure.name!r} needs the column {figure.column!r}"
            raise ResultsError(f"{str(model.path)!r}: {needed}, which the file does not have{found}")


def figure_text(figure: Figure, value: float) -> str:
    """Return bytes or seconds as text in the best-fitting unit: ``"1.7 GiB"``, ``"12.3 ms"``, ``"76.1 s"``."""
    if figure.is_size:
        return size_text(value)
    factor, unit = scale_of(figure, value)
    count = value / factor
    return f"{count:,.0f} {unit}" if count >= _WHOLE_FROM else f"{count:.3g} {unit}"


def scale_of(figure: Figure, value: float) -> tuple[float, str]:
    """Return the unit that suits a figure of this value: the bytes or seconds in it, and its name."""
    if figure.is_size:
        unit = MemoryUnit.GiB if value >= _GIB_FROM else MemoryUnit.MiB
        return unit.factor, unit
    return next((factor, unit) for least, factor, unit in _UNITS if value >= least)
