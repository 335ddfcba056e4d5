"""The table of memory: a row for each metric."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nncftools.analysis.summary import level
from nncftools.render.tables.table import Column, Output, Row, Seconds, Size, Table, Words
from nncftools.render.view import label

if TYPE_CHECKING:
    from nncftools.analysis.summary import Level
    from nncftools.render.view import View
    from nncftools.session.session import Session
    from nncftools.units import MemoryUnit

_HEADINGS = ("Peak", "at", "Final", "Delta", "Average", "Min")


def memory(session: Session, view: View) -> Table:
    """Return peak, final value, growth, average and minimum of the metrics of a view.

    Text has a second row for each, above the first sample.
    """
    heading = Column(f"Memory, {view.unit}", is_text=True)
    rows = []
    for name in view.metrics:
        absolute = level(session.samples, name, session.peaks)
        if not view.from_zero:
            rows.append(_row(label(name), absolute, view.unit))
        heads = f"{label(name)} from zero" if view.from_zero else "  from zero"
        output = Output.ALL if view.from_zero else Output.TEXT
        rows.append(_row(heads, absolute.from_zero(), view.unit, is_faint=not view.from_zero, output=output))
    return Table(columns=[heading, *map(Column, _HEADINGS)], rows=rows)


def _row(name: str, of: Level, unit: MemoryUnit, *, is_faint: bool = False, output: Output = Output.ALL) -> Row:
    cells = (
        Words(name),
        Size(of.peak, unit, is_strong=True),
        Seconds(of.at_s),
        Size(of.final, unit),
        Size(of.delta, unit, is_signed=True),
        Size(of.average, unit),
        Size(of.lowest, unit),
    )
    return Row(cells=cells, is_faint=is_faint, output=output)
