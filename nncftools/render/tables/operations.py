"""The table of operations: when each ran, and what it cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nncftools import metrics
from nncftools.analysis.timeline import timeline
from nncftools.render.operations import listed
from nncftools.render.tables.table import Column, Number, Output, Row, Seconds, Size, Table, Words, cell_of
from nncftools.text import shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nncftools.render.operations import Listed
    from nncftools.render.tables.table import Cell
    from nncftools.render.view import View
    from nncftools.session.session import Session
    from nncftools.units import MemoryUnit

_NAME, _DETAILS = 60, 120
_BESIDE_TEXT = Output.MARKDOWN | Output.PAGE
"""What the timeline of the text says already."""


def shown_operations(session: Session, view: View, most: int) -> tuple[list[Listed], str]:
    """Return the operations of a view, of very many the longest, and how many others there are, in words."""
    every = listed(timeline(session.operations, view.depth))
    longest = sorted(every, key=lambda one: one.operation.duration_s, reverse=True)[:most]
    more = f"and {len(every) - len(longest):,} shorter ones" if len(every) > len(longest) else ""
    return sorted(longest, key=lambda one: one.number), more


def operations(session: Session, view: View, most: int) -> Table:
    """Return the operations of a view; of more than ``most``, the longest."""
    shown, more = shown_operations(session, view, most)
    columns = metrics.of_operations(session.samples.metrics)
    return Table(
        columns=list(_columns(columns, view.unit)),
        rows=[_row(one, columns, view.unit) for one in shown],
        more=more,
    )


def _columns(columns: Sequence[str], unit: MemoryUnit) -> Iterator[Column]:
    yield Column("#", is_text=True)
    yield Column("Operation", is_text=True, output=_BESIDE_TEXT)
    yield Column("Start", output=_BESIDE_TEXT)
    yield Column("Duration", output=_BESIDE_TEXT)
    for column in columns:
        metric = metrics.of(column)
        if metric is not None and not metric.is_counter:
            yield Column("start", metric.label, f"{unit}" if metric.is_memory else "")
            yield Column("end", metric.label)
            yield Column("delta", metric.label, output=_BESIDE_TEXT if column == "rss" else Output.ALL)
            yield Column("peak", metric.label)
    yield Column("mean", "Cores")
    yield Column("peak", "Cores", output=Output.TEXT | Output.PAGE)
    for column in columns:
        metric = metrics.of(column)
        if metric is not None and metric.is_counter:
            yield Column(metric.action, metric.label if metric.family is None else metric.family[1])


def _row(one: Listed, columns: Sequence[str], unit: MemoryUnit) -> Row:
    operation = one.operation
    cells: list[Cell] = [Words(f"{one.number}"), Words(shortened(one.title, _NAME))]
    cells += [Seconds(operation.start_s), Seconds(operation.duration_s)]
    for column in columns:
        if not metrics.is_counter(column):
            of = operation.of(column)
            if metrics.is_memory(column):
                is_peak = column == "rss" and operation.has_peak
                cells += [Size(of.start, unit), Size(of.end, unit), Size(of.delta, unit, is_signed=True)]
                cells.append(Size(of.peak, unit, is_strong=is_peak))
            else:
                cells += map(Number, (of.start, of.end, of.delta, of.peak))
    cells += [Number(operation.cpu_average, 2), Number(operation.cpu_peak, 2)]
    cells += [
        cell_of(operation.of(column).spent, metrics.unit_of(column) or "")
        for column in columns
        if metrics.is_counter(column)
    ]
    return Row(
        cells=cells,
        depth=operation.depth,
        is_strong=operation.has_peak,
        details=shortened(one.details, _DETAILS),
        colour=one.fill.colour,
        span_s=(operation.start_s, operation.end_s),
    )
