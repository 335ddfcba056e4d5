"""Repeated runs of one command as one table: the median of each figure, and how far the runs are apart."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from nncftools.analysis.comparison import matched, unique_names
from nncftools.analysis.figures import CPU_TIME, DURATION, MODEL_SIZE, figure_of
from nncftools.render.tables.comparison import writer
from nncftools.render.tables.table import Cell, Column, Row, Table
from nncftools.units import UNKNOWN, printable, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nncftools.analysis.comparison import Run
    from nncftools.analysis.figures import Values
    from nncftools.units import MemoryUnit

_OF_RUN = (DURATION, CPU_TIME, "read_bytes", "write_bytes", MODEL_SIZE)
_MOST_OPERATIONS = 6
_NAME = 30


def repeats(runs: Sequence[Run], metrics: Sequence[str], unit: MemoryUnit) -> Table:
    """Return the figures of runs: peaks of ``metrics``, time, storage, and the time of the longest operations."""
    columns = [Column("", is_text=True), *map(Column, ("Median", "Smallest", "Largest", "Spread"))]
    names = [*(f"peak_{name}" for name in metrics), *_OF_RUN]
    figures = [run.figures for run in runs]
    rows = [row for name in names for row in _row(name, "", figures, unit)]
    return Table(columns=columns, rows=[*rows, *_of_operations(runs, unit)])


def _of_operations(runs: Sequence[Run], unit: MemoryUnit) -> Iterator[Row]:
    functions = [dict(run.functions) for run in runs]
    everywhere = [names for names in matched(functions) if len(names) == len(runs)]
    titles = unique_names(functions[0][names[0]] for names in everywhere)
    found = []
    for title, names in zip(titles, everywhere, strict=True):
        values = [runs[place].operations[name] for place, name in names.items()]
        if all(DURATION in of for of in values):
            found.append((median(of[DURATION].low for of in values), title, values))
    kept = {title for _, title, _ in sorted(found, key=lambda of: of[0], reverse=True)[:_MOST_OPERATIONS]}
    for _, title, values in found:
        if title in kept:
            yield from _row(DURATION, f"{shortened(printable(title), _NAME)}: duration", values, unit)


def _row(name: str, label: str, runs: Sequence[Values], unit: MemoryUnit) -> Iterator[Row]:
    """Yield the row of a figure, unless no run knows it, or it is I/O of which there was none."""
    figure = figure_of(name)
    values = [of[name].low for of in runs if name in of]
    if figure is None or not values or not (max(values) or figure.is_peak or name in {DURATION, CPU_TIME}):
        return
    in_unit, write = writer(figure, max(values), unit)
    middle = median(values)
    spread = f"{(max(values) - min(values)) / middle:.1%}" if middle else UNKNOWN
    sizes = [Cell(write(middle), is_strong=True), Cell(write(min(values))), Cell(write(max(values)))]
    yield Row(cells=[Cell(f"{label or figure.label}, {in_unit}"), *sizes, Cell(spread)])
