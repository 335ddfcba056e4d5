"""The table of operations: the same rows, numbers and sentences in text, Markdown, the page and a notebook.

Long times without operations have rows, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from msgspec import structs
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult

from nncftools import metrics
from nncftools.analysis.operation import Operation
from nncftools.analysis.peaks import RSS, Figures
from nncftools.analysis.session import Session, unmarked
from nncftools.analysis.summary import hidden_time
from nncftools.metrics import DEVICE_MEMORY
from nncftools.render.listing import (
    REST,
    NumberedOperation,
    left_out_text,
    numbered,
    operation_notes,
    peak_notes,
    timeline,
    without_small,
)
from nncftools.render.table import Cell, Column, Fitting, Row, Table, Text, change_text, figure_cell, size_cell
from nncftools.render.view import View
from nncftools.units import MemoryUnit, about_text, cores_text, number_text, printable, seconds_text, shortened

_LONG_GAP = 0.05
"""As a share of the run: a longer time without operations has a row."""
_TITLE, _FUNCTION = 60, 140
_NOT_ZERO = set("123456789")
_FIRST = 5
"""The columns that are always there: number, name, peak, change, duration."""
_LEAST_DETAILS, _LONGEST = 12, 300
"""Characters: the fewest for details, and the most for a name with details."""


def operations_table(session: Session, view: View, most: int) -> RenderableType | None:
    """Return the table for a terminal with the ``most`` longest operations; None if there are no operations.

    A brief view has peak, change, duration, and the metrics that the user named.
    """
    table = operations(session, view, most, is_brief=view.brief)
    if not table.rows:
        return None
    lines = [f"… {table.more}" if table.more else "", table.note]
    return Group(_TextTable(table, view), *(Text(line) for line in lines if line))


def operations(session: Session, view: View, most: int, *, is_brief: bool = False) -> Table:
    """Return the table of the view's operations and of long times without any; at most the ``most`` longest."""
    every = numbered(timeline(session.operations, view.depth), session)
    rows, more = longest(every, session, most)
    return table_of(with_gaps(rows, session), more, session, view, is_brief=is_brief)


def longest(every: Sequence[NumberedOperation], session: Session, most: int) -> tuple[list[NumberedOperation], str]:
    """Return the ``most`` longest operations in their order, and a text about those that are left out.

    Small ones are left out first. The operation that holds the peak is always there.
    """
    large = without_small(every, session)
    by_length = sorted(large, key=lambda row: (row.operation.has_peak is not False, row.operation.duration_s))
    numbers = {row.number for row in by_length[-most:]}
    rows = [row for row in every if row.number in numbers]
    return rows, left_out_text(len(every) - len(rows))


def with_gaps(rows: Sequence[NumberedOperation], session: Session) -> list[NumberedOperation]:
    """Return the rows, and between the outermost ones a row for each long time outside all operations."""
    if not rows:
        return []
    gaps = deque(unmarked(session, max(session.duration_s * _LONG_GAP, 1e-9)))
    result: list[NumberedOperation] = []
    for row in rows:
        while gaps and not row.operation.depth and gaps[0].start_s < row.operation.start_s:
            result.append(_gap_row(gaps.popleft(), session))
        result.append(row)
    return [*result, *(_gap_row(gap, session) for gap in gaps)]


def _gap_row(gap: Operation, session: Session) -> NumberedOperation:
    if gap.start_s <= 0:
        is_start = session.attached_to is None
        name = f"before the first operation{' (imports)' if is_start else ''}"
    elif gap.end_s >= session.duration_s:
        name = "after the last operation"
    else:
        name = "between operations"
    return NumberedOperation("", structs.replace(gap, name=name), REST)


def finding_text(session: Session, view: View) -> str:
    """Return which calls inside the listed operations took most of the time; empty if no such calls did."""
    hidden = hidden_time(session, view.depth)
    if hidden is None:
        return ""
    count = f" ×{hidden.calls:,}" if hidden.calls > 1 else ""
    inside = f", inside {shortened(printable(hidden.inside), _TITLE)}" if hidden.inside else ""
    times = f"{about_text(hidden.time_s)} of {about_text(session.duration_s)}"
    return f"Most of the time is in {shortened(printable(hidden.name), _TITLE)}{count}{inside}: {times}"


def table_of(
    rows: Sequence[NumberedOperation], more: str, session: Session, view: View, *, is_brief: bool = False
) -> Table:
    """Return the table of these operations; ``more`` says how many are left out.

    Figures that are 0 or unknown in all rows are left out. A brief table has no other metrics than those that the user
    named.
    """
    notes = _notes_at_peak(rows, session)
    columns = [*_columns(rows, session, view, is_brief=is_brief)]
    groups = {column.group for column, cells in columns if _is_known(cells, view.unit)}
    columns = [part for index, part in enumerate(columns) if index < _FIRST or part[0].group in groups]
    sentences = [finding_text(session, view), *(operation_notes(rows) if not is_brief else ())]
    return Table(
        columns=[column for column, _ in columns],
        rows=[
            Row(
                cells=cells,
                depth=row.operation.depth,
                is_strong=id(row.operation) in notes,
                is_faint=not row.number,
                note=notes.get(id(row.operation), ""),
                function=shortened(printable(row.operation.signature), _FUNCTION),
                details=row.details,
                colour=row.fill.colour,
                span_s=(row.operation.start_s, row.operation.end_s),
            )
            for row, *cells in zip(rows, *(cells for _, cells in columns), strict=True)
        ],
        more=more,
        note=". ".join(filter(None, sentences)),
    )


def _notes_at_peak(rows: Sequence[NumberedOperation], session: Session) -> dict[int, str]:
    """Return a note for each row that holds the peak, or may hold it, by the ``id()`` of its operation."""
    notes = peak_notes((row.operation for row in rows if row.number), session)
    peak = session.peak_place
    if notes or peak is None:
        return notes
    gaps = [row.operation for row in rows if not row.number]
    return {id(gap): "<- peak" for gap in gaps if gap.start_s <= peak.from_s and peak.to_s <= gap.end_s}


def _is_known(cells: Sequence[Cell], unit: MemoryUnit) -> bool:
    """Return whether a cell has a figure other than 0."""
    return any(_NOT_ZERO & set(cell.shown(unit)) for cell in cells)


_Column = tuple[Column, Sequence[Cell]]
"""A column with its cell in each row."""


def _columns(rows: Sequence[NumberedOperation], session: Session, view: View, *, is_brief: bool) -> Iterator[_Column]:
    unit = view.unit
    operations = [row.operation for row in rows]
    yield Column("#", is_text=True), [Cell(row.number) for row in rows]
    yield Column("Operation", is_text=True), [Cell(shortened(row.title, _TITLE)) for row in rows]
    rss = [operation.of(RSS) for operation in operations]
    yield Column("Peak", unit=f"{unit}"), [Cell(unit.text(levels.peak_low), value=levels.peak_low) for levels in rss]
    yield Column("Change", unit=f"{unit}"), [_change(levels, unit.text) for levels in rss]
    times = [operation.known_duration_s for operation in operations]
    yield Column("Duration"), [Cell(seconds_text(time_s), value=time_s) for time_s in times]
    devices = [name for name in session.peaks if metrics.name_of(name) == DEVICE_MEMORY and session.peaks[name].low]
    asked = [name for name in dict.fromkeys((*view.asked, *devices)) if name in session.samples.metrics]
    shown = asked if is_brief else [*metrics.of_operations(session.samples.metrics), *asked]
    if not is_brief:
        yield Column("Start"), [Cell(seconds_text(operation.start_s)) for operation in operations]
        averages = [cores_text(operation.cpu_average) for operation in operations]
        yield Column("average", "Cores"), [Cell(text.removesuffix(" cores")) for text in averages]
        peaks = [cores_text(operation.cpu_peak) for operation in operations]
        yield Column("peak", "Cores"), [Cell(text.removesuffix(" cores")) for text in peaks]
    if not is_brief and any(row.process for row in rows):
        yield Column("Own peak", unit=f"{unit}"), [size_cell(operation.own_peak, unit) for operation in operations]
    for name in dict.fromkeys(shown):
        metric = metrics.of(name)
        if name == RSS or metric is None:
            continue
        figures = [operation.of(name) for operation in operations]
        if metric.is_counter:
            yield Column(metric.action, metric.group), [figure_cell(levels.spent, metric.unit) for levels in figures]
            continue
        write = unit.text if metric.is_memory else number_text
        yield (
            Column("peak", metric.label, f"{unit}" if metric.is_memory else ""),
            [Cell(write(levels.peak_low), value=levels.peak_low) for levels in figures],
        )
        yield Column("change", metric.label), [_change(levels, write) for levels in figures]


def _change(of: Figures, write: Callable[[float], str]) -> Cell:
    return Cell(change_text(of, write), value=of.delta)


class _TextTable(NamedTuple):
    """The table in a terminal: number, name and details beside the figures."""

    table: Table
    view: View

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        whole = self._names(_LONGEST)
        rows = [
            replace(row, cells=[Cell(name), *row.cells[2:]]) for name, row in zip(whole, self.table.rows, strict=True)
        ]
        columns = [Column(f"Operations, {self.view.unit}", is_text=True), *self.table.columns[2:]]
        yield Fitting(replace(self.table, rows=rows, columns=columns), self.view.unit, _FIRST - 2, self._names)

    def _names(self, room: int) -> list[str]:
        """Return number, name and details of each operation, in at most ``room`` characters."""
        longest = max(len(row.cells[0].text) for row in self.table.rows)
        names = []
        for row in self.table.rows:
            number, title = row.cells[0].text, row.cells[1].text
            beginning = f"{number:<{longest}} {'  ' * row.depth}"
            name = f"{beginning}{shortened(title, max(1, room - len(beginning)))}"
            left = room - cell_len(name) - 2
            if row.details and left >= _LEAST_DETAILS:
                name += f"  {shortened(row.details, left)}"
            names.append(name if cell_len(name) <= room else set_cell_size(name, room))
        return names
