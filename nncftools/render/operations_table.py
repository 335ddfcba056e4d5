"""The table of operations, with the same rows, numbers and sentences in text, Markdown, the HTML report and a notebook.

A long time outside all operations has a row, too.
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
from nncftools.analysis.session import Session, find_unmarked
from nncftools.analysis.summary import hidden_time
from nncftools.metrics import DEVICE_MEMORY
from nncftools.render.listing import (
    REST,
    NumberedOperation,
    drop_small,
    explain_rows,
    keep_largest,
    left_out_text,
    note_peak,
    number_operations,
)
from nncftools.render.table import Cell, Column, Fitting, Row, Table, Text, change_text, figure_cell, size_cell
from nncftools.render.view import View, clip
from nncftools.units import MemoryUnit, about_text, cores_text, number_text, seconds_text, shortened

_LONG_GAP = 0.05
"""A time outside all operations has a row if the time is at least this share of the run."""
_TITLE = 60
"""Longest name of an operation, in characters; the next two constants limit the function and the whole text."""
_FUNCTION = 140
_LONGEST = 300
_MOST_SPREADS = 6
"""Largest number of text lines below the table. Each line gives the durations and peaks of repeated calls."""
_LEAST_DETAILS = 12
"""The details of an operation are left out if there is room for fewer characters than these."""
_NOT_ZERO = set("123456789")
_FIRST = 5
"""Number of columns that every table has: number, name, peak, change, duration."""


def operations_table(session: Session, view: View, most: int) -> RenderableType | None:
    """Return the table for a terminal; None if there are no operations.

    The table has at most ``most`` operations, the longest ones. If the view is brief, the columns are peak, change,
    duration, and the metrics that the user named.
    """
    table = operations(session, view, most, is_brief=view.brief)
    if not table.rows:
        return None
    lines = [f"… {table.more}" if table.more else "", *table.lines, table.note]
    return Group(_TextTable(table, view), *(Text(line) for line in lines if line))


def operations(session: Session, view: View, most: int, *, is_brief: bool = False) -> Table:
    """Return the table of the longest operations, at most ``most``.

    A long time outside all operations has a row, too.
    """
    rows = number_operations(session, view.depth)
    longest, more = select_longest(rows, session, most)
    return make_table(add_gaps(longest, session), more, session, view, is_brief=is_brief)


def select_longest(
    rows: Sequence[NumberedOperation], session: Session, most: int
) -> tuple[list[NumberedOperation], str]:
    """Return the longest operations, at most ``most``, in the order of the run, and a text about the other operations.

    Small operations are left out first. The operation during which the RSS peak was reached always stays.
    """

    def rank(row: NumberedOperation) -> tuple[bool, float]:
        return row.operation.has_peak is not False, row.operation.duration_s

    longest = keep_largest(drop_small(rows, session), most, rank)
    return longest, left_out_text(len(rows) - len(longest))


def add_gaps(rows: Sequence[NumberedOperation], session: Session) -> list[NumberedOperation]:
    """Return the rows, and a row for each long time outside all operations, in the order of time."""
    if not rows:
        return []
    gaps = deque(find_unmarked(session, max(session.duration_s * _LONG_GAP, 1e-9)))
    result: list[NumberedOperation] = []
    for row in rows:
        while gaps and not row.operation.depth and gaps[0].start_s < row.operation.start_s:
            result.append(_make_gap_row(gaps.popleft(), session))
        result.append(row)
    return [*result, *(_make_gap_row(gap, session) for gap in gaps)]


def _make_gap_row(gap: Operation, session: Session) -> NumberedOperation:
    starts_s = [mark.start_s for mark in session.marks]
    if min(starts_s) >= gap.end_s:
        name = "before the first operation"
        if session.attached_to is None:
            name += " (imports)"
    elif max(starts_s) < gap.end_s:
        name = "after the last operation"
    else:
        name = "between operations"
    return NumberedOperation("", structs.replace(gap, name=name), REST)


def _write_finding(session: Session, view: View) -> str:
    """Return a sentence about calls in nesting levels that the table does not list.

    The text is empty if these calls did not take most of the time.
    """
    hidden = hidden_time(session, view.depth)
    if hidden is None:
        return ""
    name = clip(hidden.name, _TITLE)
    if hidden.calls > 1:
        name += f" ×{hidden.calls:,}"
    if hidden.inside:
        name += f", inside {clip(hidden.inside, _TITLE)}"
    return f"Most of the time is in {name}: {about_text(hidden.time_s)} of {about_text(session.duration_s)}"


def make_table(
    rows: Sequence[NumberedOperation], more: str, session: Session, view: View, *, is_brief: bool = False
) -> Table:
    """Return the table of these operations; ``more`` is a text about operations that are left out.

    A brief table has only the metrics that the user named. Groups of columns are left out if all their numbers are 0.
    """
    notes = _note_rows(rows, session)
    columns = list(_make_columns(rows, session, view, is_brief=is_brief))
    groups = {column.group for column, cells in columns if _has_figures(cells, view.unit)}
    others = columns[_FIRST:]
    columns[_FIRST:] = [(column, cells) for column, cells in others if column.group in groups]
    table_rows = []
    for index, row in enumerate(rows):
        operation = row.operation
        note = notes.get(id(operation), "")
        table_rows.append(
            Row(
                cells=[cells[index] for _, cells in columns],
                depth=operation.depth,
                is_strong=bool(note),
                is_faint=not row.number,
                note=note,
                function=clip(operation.signature, _FUNCTION),
                details=row.details,
                colour=row.fill.colour,
                span_s=(operation.start_s, operation.end_s),
            )
        )
    repeated = [row for row in rows if row.operation.count > 1][:_MOST_SPREADS]
    sentences = [_write_finding(session, view)]
    if not is_brief:
        sentences += explain_rows(rows)
    return Table(
        columns=[column for column, _ in columns],
        rows=table_rows,
        more=more,
        notes=sentences,
        lines=[_write_spreads(row, view.unit) for row in repeated],
    )


def _write_spreads(row: NumberedOperation, unit: MemoryUnit) -> str:
    """Return the smallest, largest and median duration and peak of the repeated calls that a row combines.

    If the calls were not recorded separately, return only the duration of the longest call.
    """
    texts = []
    for name, spread in row.operation.spreads.items():
        if spread is not None:
            write = unit.label if name == "peak" else seconds_text
            text = f"{name} {write(spread.least)} to {write(spread.largest)} (call {spread.call:,})"
            texts.append(f"{text}, median {write(spread.median)}")
    text = "; ".join(texts) or f"longest call {seconds_text(row.operation.longest_s)}"
    return f"{row.number} {shortened(row.title, _TITLE)}: {text}"


def _note_rows(rows: Sequence[NumberedOperation], session: Session) -> dict[int, str]:
    """Return the notes about the peak, such as ``<- peak``: ``{id(operation): note}``."""
    notes = note_peak((row.operation for row in rows if row.number), session)
    peak = session.peak_place
    if peak is not None and not peak.path and (peak.rivals or not notes):
        note = "<- peak?" if peak.rivals else "<- peak"
        for row in rows:
            gap = row.operation
            if not row.number and gap.start_s <= peak.from_s and peak.to_s <= gap.end_s:
                notes[id(gap)] = note
    return notes


def _has_figures(cells: Sequence[Cell], unit: MemoryUnit) -> bool:
    return any(_NOT_ZERO & set(cell.shown(unit)) for cell in cells)


_Column = tuple[Column, Sequence[Cell]]
"""A column, and the cell of each row."""


def _make_columns(
    rows: Sequence[NumberedOperation], session: Session, view: View, *, is_brief: bool
) -> Iterator[_Column]:
    unit = view.unit
    operations = [row.operation for row in rows]
    yield Column("#", is_text=True), [Cell(row.number) for row in rows]
    titles = [shortened(row.title, _TITLE) for row in rows]
    yield Column("Operation", is_text=True), list(map(Cell, titles))
    rss = [operation.of(RSS) for operation in operations]
    yield Column("Peak", unit=f"{unit}"), _make_peaks(rss, unit.text)
    yield Column("Change", unit=f"{unit}"), _make_changes(rss, unit.text)
    times = [operation.known_duration_s for operation in operations]
    yield Column("Duration"), [Cell(seconds_text(time_s), value=time_s) for time_s in times]
    if not is_brief:
        yield Column("Start"), [Cell(seconds_text(operation.start_s)) for operation in operations]
        averages = [operation.cpu_average for operation in operations]
        yield Column("average", "Cores"), _make_cores(averages)
        peaks = [operation.cpu_peak for operation in operations]
        yield Column("peak", "Cores"), _make_cores(peaks)
        if any(row.process for row in rows):
            yield Column("Own peak", unit=f"{unit}"), [size_cell(operation.own_peak, unit) for operation in operations]
    for name in _select_metrics(session, view, is_brief=is_brief):
        metric = metrics.of(name)
        if name == RSS or metric is None:
            continue
        figures = [operation.of(name) for operation in operations]
        if metric.is_counter:
            cells = [figure_cell(levels.spent, metric.unit) for levels in figures]
            yield Column(metric.action, metric.group), cells
        else:
            write = unit.text if metric.is_memory else number_text
            heading = f"{unit}" if metric.is_memory else ""
            yield Column("peak", metric.label, heading), _make_peaks(figures, write)
            yield Column("change", metric.label), _make_changes(figures, write)


def _select_metrics(session: Session, view: View, *, is_brief: bool) -> list[str]:
    """Return the metrics for the columns after CPU.

    A brief table has the metrics that the user named, and the memory of devices, such as GPUs.
    """
    names = [] if is_brief else list(metrics.of_operations(session.samples.metrics))
    names += view.asked
    for name, peak in session.peaks.items():
        if metrics.name_of(name) == DEVICE_MEMORY and peak.low:
            names.append(name)
    return [name for name in dict.fromkeys(names) if name in session.samples.metrics]


def _make_cores(figures: Sequence[float | None]) -> list[Cell]:
    return [Cell(cores_text(cores).removesuffix(" cores")) for cores in figures]


def _make_peaks(figures: Sequence[Figures], write: Callable[[float | None], str]) -> list[Cell]:
    return [Cell(write(levels.peak_low), value=levels.peak_low) for levels in figures]


def _make_changes(figures: Sequence[Figures], write: Callable[[float], str]) -> list[Cell]:
    return [Cell(change_text(levels, write), value=levels.delta) for levels in figures]


class _TextTable(NamedTuple):
    """The table for a terminal: number, name and details of an operation are joined into the first column."""

    table: Table
    view: View

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = []
        for name, row in zip(self._write_names(_LONGEST), self.table.rows, strict=True):
            cells = [Cell(name), *row.cells[2:]]
            rows.append(replace(row, cells=cells))
        columns = [Column(f"Operations, {self.view.unit}", is_text=True), *self.table.columns[2:]]
        table = replace(self.table, rows=rows, columns=columns)
        yield Fitting(table, self.view.unit, _FIRST - 2, self._write_names)

    def _write_names(self, room: int) -> list[str]:
        """Return number, name and details of each operation, joined to a text of at most ``room`` characters."""
        longest = max(len(row.cells[0].text) for row in self.table.rows)
        names = []
        for row in self.table.rows:
            name = f"{row.cells[0].text:<{longest}} {'  ' * row.depth}"
            name += shortened(row.cells[1].text, max(1, room - len(name)))
            free = room - cell_len(name) - 2
            if row.details and free >= _LEAST_DETAILS:
                name += f"  {shortened(row.details, free)}"
            names.append(name if cell_len(name) <= room else set_cell_size(name, room))
        return names
