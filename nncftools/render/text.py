"""The report for a terminal, readable at 80 columns and without colour."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table as Grid
from rich.text import Text

from nncftools.analysis.summary import hints
from nncftools.render import session_tables
from nncftools.render import table as tables
from nncftools.render.listing import REST, NumberedOperation, operation_notes, peak_notes
from nncftools.render.peak_lines import peak_lines, verdict_lines
from nncftools.render.session_tables import few_processes, memory, operations, ranks, shown_operations
from nncftools.render.view import View, command_text
from nncftools.session.operation import Operation
from nncftools.session.operations import unmarked
from nncftools.session.session import Session
from nncftools.units import MemoryUnit, printable, seconds_text, shortened

_TITLE, _NAME, _SIGNATURE = 200, 40, 140
_MOST_OPERATIONS = 60
"""When there are more, the longest are shown."""
_FIGURE = 7
_LONG_GAP = 0.05
"""As a share of the run: a longer time without operations has a row in the timeline."""


def report(session: Session, view: View) -> RenderableType:
    """Return the report for Rich to print."""
    rank_table, process_table = ranks(session, view.unit), few_processes(session, view.unit)
    fact_rows = session_tables.facts(session, view.unit).of(tables.Output.TEXT).rows
    warnings = hints(session, view.unit)
    return Group(
        Text("PERFORMANCE REPORT", style="bold"),
        Text(printable(view.title) or shortened(command_text(session), _TITLE)),
        Text(session_tables.run(session), style="dim"),
        Text(),
        *_headlines(session, view),
        _Memory(memory(session, view)),
        Text(),
        *((tables.painted(rank_table, folds=True), Text()) if rank_table.rows else ()),
        *_operations(session, view),
        tables.pairs(((row.cells[0].text, Text(row.cells[1].text)) for row in fact_rows), tables.FIRST_COLUMN),
        *((Text(), tables.painted(process_table, widths=[tables.FIRST_COLUMN])) if len(process_table.rows) > 1 else ()),
        *((Text(), *tables.warnings(warnings)) if warnings else ()),
    )


def _headlines(session: Session, view: View) -> Iterator[RenderableType]:
    """Yield why something died, if anything did, and the peak with its time and operation, if the view shows it."""
    if verdict := verdict_lines(session, view.unit):
        (heading, conclusion), *details = verdict
        yield Text(f"{heading}  {conclusion}", style="bold red")
        yield tables.pairs(((f"  {heading}", Text(of)) for heading, of in details), tables.FIRST_COLUMN)
        yield Text()
    if peak := session_tables.peak(session, view):
        most, at, during = peak
        text = Text(f"Peak memory  {most}", style="bold")
        text.append(f" {at}" if at else "", style="not bold")
        text.append(f"  {during}" if during else "")
        yield text
        if lines := peak_lines(session, view.unit):
            yield tables.pairs(((f"  {heading}", Text(of)) for heading, of in lines), tables.FIRST_COLUMN)
        yield Text()


class _Memory(NamedTuple):
    """The table of memory: a row for each metric if that fits, otherwise a block of lines for each."""

    table: tables.Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = tables.painted(self.table, widths=[tables.FIRST_COLUMN] + [_FIGURE] * (len(self.table.columns) - 1))
        yield rows if tables.fits(rows, console, options) else self._blocks()

    def _blocks(self) -> Grid:
        name, *headings = self.table.headings("")
        blocks, rows = tables.grid(), self.table.rows
        blocks.add_column(name, min_width=tables.FIRST_COLUMN, no_wrap=True)
        absolute = [index for index, row in enumerate(rows) if not row.is_faint]
        has_both = len(absolute) < len(rows)
        for heading in ("absolute", "from zero") if has_both else ("from zero",):
            blocks.add_column(heading, justify="right", no_wrap=True)
        for index in absolute:
            shown = rows[index : index + 2] if has_both else [rows[index]]
            blocks.add_row(shown[0].cells[0].text)
            for number, heading in enumerate(headings, start=1):
                cells = [row.cells[number] for row in shown]
                blocks.add_row(f"  {heading}", *(Text(of.text, style="bold" if of.is_strong else "") for of in cells))
        return blocks


def _operations(session: Session, view: View) -> Iterator[RenderableType]:
    table = operations(session, view, _MOST_OPERATIONS).of(tables.Output.TEXT)
    if not table.rows:
        return
    yield Text("Operations", style="bold")
    shown, more = shown_operations(session, view, _MOST_OPERATIONS)
    gaps = unmarked(session, max(session.duration_s * _LONG_GAP, 1e-9))
    notes = peak_notes((row.operation for row in shown), session)
    peak = session.peak_place
    if not notes and peak is not None:
        notes = {id(gap): "<- peak" for gap in gaps if gap.start_s <= peak.from_s and peak.to_s <= gap.end_s}
    rows = _with_gaps(shown, gaps)
    yield _timeline(rows, notes, view.unit)
    if more:
        yield Text(f"… {more}", style="dim")
    yield Text()
    numbered = [replace(row, cells=[tables.Cell(f"{row.cells[0].text}."), *row.cells[1:]]) for row in table.rows]
    columns = [tables.Column(f"{view.unit}"), *table.columns[1:]]
    yield tables.Fitting(replace(table, rows=numbered, columns=columns), view.unit)
    for line in operation_notes(rows):
        yield Text(line, style="dim")
    yield Text()


def _with_gaps(shown: Sequence[NumberedOperation], gaps: Sequence[Operation]) -> list[NumberedOperation]:
    """Return the rows of operations, and between the outermost ones a row for each time in which nothing was marked."""
    rows: list[NumberedOperation] = []
    waiting = deque(gaps)
    for row in shown:
        while waiting and not row.operation.depth and waiting[0].start_s < row.operation.start_s:
            rows.append(NumberedOperation(0, waiting.popleft(), REST))
        rows.append(row)
    return [*rows, *(NumberedOperation(0, gap, REST) for gap in waiting)]


def _timeline(rows: Sequence[NumberedOperation], notes: Mapping[int, str], unit: MemoryUnit) -> Grid:
    result = tables.grid(has_header=False)
    figure: dict[str, Any] = {"justify": "right", "no_wrap": True}
    for column in (figure, figure, {"overflow": "fold"}, figure, figure, {"no_wrap": True}):
        result.add_column(**column)
    for row in rows:
        operation = row.operation
        result.add_row(
            f"{row.number}." if row.number else "",
            seconds_text(operation.start_s),
            _name(row),
            f"({seconds_text(operation.known_duration_s)})",
            f"[{tables.change_text(operation.of('rss'), unit, unit.text)} {unit}]",
            Text(notes.get(id(operation), ""), style="bold"),
            style="" if row.number else "dim",
        )
    return result


def _name(row: NumberedOperation) -> Text:
    operation = row.operation
    if not operation.name:
        return Text("(nothing marked)")
    text = Text("  " * operation.depth + shortened(printable(operation.name), _NAME))
    if operation.count > 1:
        text.append(f" ×{operation.count:,}")
    text.append(row.beside)
    if operation.error is not None:
        text.append(f" {printable(operation.error)}", style="red")
    if operation.signature:
        text.append(f"  {shortened(printable(operation.signature), _SIGNATURE)}", style="dim")
    if operation.total_s is not None and operation.longest_s is not None:
        calls = f", {seconds_text(operation.total_s)} in calls, the longest {seconds_text(operation.longest_s)}"
        text.append(calls, style="dim")
    return text
