"""The report for a terminal, readable at 80 columns and without colour."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult

from nncftools.analysis.summary import UNMARKED, hints
from nncftools.render import session_tables
from nncftools.render import table as tables
from nncftools.render.listing import REST, NumberedOperation, operation_notes, peak_notes
from nncftools.render.peak_lines import peak_lines, verdict_lines
from nncftools.render.session_tables import few_processes, memory, operations, ranks, shown_operations
from nncftools.render.table import Text
from nncftools.render.view import View, command_text
from nncftools.session.operation import Operation
from nncftools.session.operations import unmarked
from nncftools.session.session import Session
from nncftools.units import UNKNOWN, MemoryUnit, printable, seconds_text, shortened

_TITLE, _NAME, _SIGNATURE = 200, 40, 140
_MOST_OPERATIONS = 60
"""When there are more, the longest are shown."""
_BRIEF_FACTS = ("RSS peak", "Devices", "Needs")
_HOLDER = "held by"
_ROOM_FOR_NAMES = 60
"""Columns from which on an operation and its figures fit into one line."""
_LONG_GAP = 0.05
"""As a share of the run: a longer time without operations has a row in the timeline."""


def report(session: Session, view: View) -> RenderableType:
    """Return the report for Rich to print."""
    if view.brief:
        return _brief(session, view)
    rank_table, process_table = ranks(session, view.unit), few_processes(session, view.unit)
    fact_rows = session_tables.facts(session, view.unit).of(tables.Output.TEXT).rows
    warnings = hints(session, view.unit)
    return Group(
        Text("PERFORMANCE REPORT", style="bold"),
        Text(printable(view.title) or shortened(command_text(session), _TITLE)),
        _run(session),
        Text(),
        *_headlines(session, view),
        tables.Fitting(memory(session, view)),
        Text(),
        *((tables.painted(rank_table, folds=True), Text()) if rank_table.rows else ()),
        *_operations(session, view),
        tables.pairs(((row.cells[0].text, Text(row.cells[1].text)) for row in fact_rows), tables.FIRST_COLUMN),
        *((Text(), tables.Fitting(process_table)) if len(process_table.rows) > 1 else ()),
        *((Text(), *tables.warnings(warnings)) if warnings else ()),
    )


def _brief(session: Session, view: View) -> RenderableType:
    """Return headline, memory, needs and operations, and the warnings on these."""
    rank_table, memory_table = ranks(session, view.unit), memory(session, view)
    facts = [row.cells for row in session_tables.facts(session, view.unit).rows]
    rows = [(heading.text, Text(of.text)) for heading, of in facts if heading.text in _BRIEF_FACTS]
    if (peak := session_tables.peak(session, view)) is None or len(session.samples):
        rows.insert(0, ("Memory", Text(_levels(memory_table, view.unit, without_first=peak is not None))))
    warnings = [text for text in hints(session, view.unit) if not text.startswith(UNMARKED)]
    return Group(
        Text(printable(view.title) or shortened(command_text(session), _TITLE), style="bold"),
        _run(session),
        *(part for part in _headlines(session, view, of_holder=True) if part != Text()),
        tables.pairs(rows, tables.FIRST_COLUMN),
        *((Text(), tables.painted(rank_table, folds=True)) if rank_table.rows else ()),
        *(Text() for _ in session.operations[:1]),
        *list(_operations(session, view))[:-1],
        *((Text(), *tables.warnings(warnings)) if warnings else ()),
    )


def _levels(of: tables.Table, unit: MemoryUnit, *, without_first: bool) -> str:
    """Return the average and the end of the first metric, and the peaks of all, or of the others."""
    rows = [[cell.text for cell in row.cells] for row in of.rows if not row.is_faint]
    if not rows:
        return UNKNOWN
    name, _, _, final, _, average, _ = rows[0]
    peaks = [f"{cells[0]} {cells[1]}" for cells in rows[without_first:]]
    peaked = f"; peaks {', '.join(peaks)} {unit}" if peaks else ""
    return f"{name} {average} on average, {final} {unit} at the end{peaked}"


def _run(session: Session) -> RenderableType:
    """Return when, where and how the run was; a failure comes first."""
    text = session_tables.run(session)
    if not (ending := session_tables.failure(session)):
        return Text(text, style="dim")
    return Text.assemble((f"Failed: {ending}", "bold red"), (f"  {text.removesuffix(f', {ending}')}", "dim"))


def _headlines(session: Session, view: View, *, of_holder: bool = False) -> Iterator[RenderableType]:
    """Yield why something died, if anything did, and the peak with its time and operation, if the view shows it.

    With ``of_holder``, of the code at the peak only what held the most.
    """
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
        lines = peak_lines(session, view.unit)
        if lines := [line for line in lines if line[0] == _HOLDER or not of_holder]:
            yield tables.pairs(((f"  {heading}", Text(of)) for heading, of in lines), tables.FIRST_COLUMN)
        yield Text()


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
    yield _Timeline(rows, notes, view.unit)
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


class _Timeline(NamedTuple):
    """The operations in the order of their starts: a line for each, or two where there is little room."""

    rows: Sequence[NumberedOperation]
    notes: Mapping[int, str]
    """What is said of some operations, by their ``id()``."""
    unit: MemoryUnit

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        result = tables.grid(has_header=False)
        has_room = options.max_width >= _ROOM_FOR_NAMES
        figure: dict[str, Any] = {"justify": "right", "no_wrap": True}
        for column in (figure, figure, {"overflow": "fold"}, figure, figure, {"no_wrap": True}) if has_room else ():
            result.add_column(**column)
        for row in self.rows:
            start, duration, change, note = self._figures(row)
            number, style = (f"{row.number}.", "") if row.number else ("", "dim")
            if has_room:
                result.add_row(number, start, _name(row), duration, change, note, style=style)
                continue
            result.add_row(number, _name(row), style=style)
            result.add_row("", Text.assemble(f"{start} {duration} {change} ", note), style=style)
        yield result

    def _figures(self, row: NumberedOperation) -> tuple[str, str, str, Text]:
        """Return start, duration, change and note."""
        operation = row.operation
        change = f"[{tables.change_text(operation.of('rss'), self.unit, self.unit.text)} {self.unit}]"
        duration = f"({seconds_text(operation.known_duration_s)})"
        return seconds_text(operation.start_s), duration, change, Text(self.notes.get(id(operation), ""), style="bold")


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
