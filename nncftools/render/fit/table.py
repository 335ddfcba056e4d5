"""The runs of a search as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nncftools.limits.trial import WORKED
from nncftools.render.table import Cell, Column, Row, Table, figure_cell, size_cell

if TYPE_CHECKING:
    from nncftools.limits.trial import Fit, Trial
    from nncftools.units import MemoryUnit


def runs(fit: Fit, unit: MemoryUnit) -> Table:
    """Return a row for each run, the largest limit first; the limits that were found are strong."""
    columns = [
        Column(f"Limit, {unit}"),
        Column("Ended", is_text=True),
        Column("Time"),
        Column("× free time"),
        Column("Refaults"),
        Column("Stall"),
    ]
    rows = [] if fit.free is None else [Row(cells=[Cell("none"), Cell(WORKED), figure_cell(fit.free.duration_s, "s")])]
    rows = [Row(cells=[*row.cells, Cell("1.0"), figure_cell(None, "B"), figure_cell(None, "s")]) for row in rows]
    rows += [_row(trial, fit, unit) for trial in sorted(fit.trials, key=lambda trial: -trial.limit)]
    return Table(columns=columns, rows=rows)


def _row(trial: Trial, fit: Fit, unit: MemoryUnit) -> Row:
    is_found = trial.worked and trial.limit in {fit.works_from, fit.fast_from}
    return Row(
        cells=[
            size_cell(trial.limit, unit, is_strong=is_found),
            Cell(f"{trial.ended}{', warm cache' if trial.is_warm else ''}"),
            figure_cell(trial.duration_s, "s"),
            Cell(f"{trial.slower:.1f}"),
            figure_cell(trial.refaults, "B"),
            figure_cell(trial.stall_s, "s"),
        ]
    )
