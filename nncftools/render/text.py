"""The report for a terminal, readable at 80 columns and without colour."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text as RichText

from nncftools.analysis.summary import brief_hints, hints
from nncftools.render import answer, session_tables
from nncftools.render import table as tables
from nncftools.render.listing import REST, NumberedOperation, operation_notes, peak_notes
from nncftools.render.peak_lines import peak_lines, verdict_lines
from nncftools.render.session_tables import few_processes, memory, operations, ranks, shown_operations
from nncftools.render.table import Text
from nncftools.render.view import SEPARATOR, View, command_text
from nncftools.session.operation import Operation
from nncftools.session.operations import unmarked
from nncftools.session.session import Session
from nncftools.units import MemoryUnit, printable, seconds_text, shortened

_TITLE, _NAME, _SIGNATURE = 200, 40, 140
_MOST_OPERATIONS = 60
"""When there are more, the longest are shown."""
_DEVICES = "Devices"
_MOST_LINES = 8
"""Of the default report without operations, with the line of the files."""
_OF_CLOSING = 1
_CERTAIN = " (certain)"
_MOST_HOLDERS, _MOST_WARNINGS = 4, 3
_LONGEST_LABEL = 32
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
        *_headlines(session, view),
        Text(printable(view.title) or shortened(command_text(session), _TITLE)),
        Text(session_tables.run(session), style="dim"),
        Text(),
        tables.Fitting(memory(session, view)),
        Text(),
        *((tables.painted(rank_table, folds=True), Text()) if rank_table.rows else ()),
        *_operations(session, view),
        tables.pairs(((row.cells[0].text, Text(row.cells[1].text)) for row in fact_rows), tables.FIRST_COLUMN),
        *((Text(), tables.Fitting(process_table)) if len(process_table.rows) > 1 else ()),
        *((Text(), *tables.warnings(warnings)) if warnings else ()),
    )


def _brief(session: Session, view: View) -> RenderableType:
    """Return the answer: the peak, who held it, how little is enough, and the operations that matter."""
    verdict = verdict_lines(session, view.unit)[:1]
    above = [Text(text.removesuffix(_CERTAIN), style="bold red") for _, text in verdict]
    headline = Text(answer.headline(session, view), style="bold")
    rank_table = ranks(session, view.unit)
    below = [_sufficient(session, view), *_further(session, view)]
    missing = _missing(session)
    room = _MOST_LINES - len(above) - 1 - len(below) - len(missing) - _OF_CLOSING
    rows = answer.rows_of_peak(session, view, max(1, min(_MOST_HOLDERS, room - 1)))
    operations = list(_operations(session, view))
    return Group(
        *above,
        headline,
        *((_Rows(rows),) if rows else ()),
        *missing,
        *((Text(), tables.painted(rank_table, folds=True), Text()) if rank_table.rows else ()),
        *((Text(), *operations) if operations else ()),
        *below,
    )


def _missing(session: Session) -> list[RenderableType]:
    return []


def _sufficient(session: Session, view: View) -> RenderableType:
    """Return how little memory is enough and how long the run took, and how it ended if it failed."""
    text = Text(answer.sufficient(session, view.unit))
    if ending := session_tables.failure(session):
        text.append(SEPARATOR)
        text.append(ending, style="bold")
    return text


def _further(session: Session, view: View) -> Iterator[RenderableType]:
    """Yield the peaks of metrics that the user named, the devices, and the warnings."""
    if peaks := answer.other_peaks(session, view):
        yield Text(peaks)
    facts = [row.cells for row in session_tables.facts(session, view.unit).rows]
    for heading, fact in facts:
        if heading.text == _DEVICES:
            yield Text(f"{heading.text} {fact.text}")
    warnings = brief_hints(session)
    more = len(warnings) - _MOST_WARNINGS
    if more > 0:
        warnings[_MOST_WARNINGS:] = [f"{more} more warnings are among the details"]
    yield from tables.warnings(warnings)


class _Rows(NamedTuple):
    """Rows about who held the peak; each is one line, which is cut where it does not fit."""

    rows: Sequence[answer.HolderRow]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(len(row.size) for row in self.rows)
        labels = [len(row.label) for row in self.rows if row.text]
        longest = min(max(labels, default=0), _LONGEST_LABEL)
        for row in self.rows:
            line = RichText(f"  {row.size:>{width}}  ")
            line.append(f"{row.label:<{longest}}" if row.text else row.label)
            line.append(f"  {row.text}" if row.text else "", style="dim")
            line.truncate(options.max_width, overflow="ellipsis")
            yield line


def _headlines(session: Session, view: View) -> Iterator[RenderableType]:
    """Yield why something died, if anything did, and the peak with its time, its operation and its owners."""
    if verdict := verdict_lines(session, view.unit):
        (heading, conclusion), *details = verdict
        yield Text(f"{heading}  {conclusion}", style="bold red")
        yield tables.pairs(((f"  {heading}", Text(of)) for heading, of in details), tables.FIRST_COLUMN)
        yield Text()
    yield Text(answer.headline(session, view), style="bold")
    if rows := answer.rows_of_peak(session, view):
        yield _Rows(rows)
    yield _sufficient(session, view)
    if peak := session_tables.peak(session, view):
        lines = [("peak", " ".join(filter(None, peak))), *peak_lines(session, view.unit)]
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
