"""The report for a terminal, readable at 80 columns and without colour."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text as RichText

from nncftools.analysis.session import Session
from nncftools.render import answer, session_tables
from nncftools.render import table as tables
from nncftools.render.operations_table import operations_table
from nncftools.render.peak_lines import peak_lines, verdict_lines
from nncftools.render.sentences import brief_hints, hints
from nncftools.render.session_tables import few_processes, memory, ranks
from nncftools.render.table import Text
from nncftools.render.view import SEPARATOR, View, command_text
from nncftools.units import printable, shortened

_TITLE = 200
_MOST_OPERATIONS, _MOST_BRIEF_OPERATIONS = 60, 12
"""When there are more, the longest are shown."""
_DEVICES = "Devices"
_MOST_LINES = 8
"""Of the default report without operations, with the line of the files."""
_OF_CLOSING = 1
_CERTAIN = " (certain)"
_FEWEST_HOLDERS, _MOST_HOLDERS, _MOST_WARNINGS = 2, 4, 3
_SHORTEST_LABEL, _LONGEST_LABEL = 20, 32


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
        *((table, Text()) if (table := operations_table(session, view, _MOST_OPERATIONS)) else ()),
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
    below = [_sufficient(session, view, has_verdict=bool(verdict)), *_further(session, view)]
    missing = _missing(session)
    room = _MOST_LINES - len(above) - 1 - len(below) - len(missing) - _OF_CLOSING
    rows = answer.rows_of_peak(session, view, max(_FEWEST_HOLDERS, min(_MOST_HOLDERS, room - 1)))
    operations = operations_table(session, view, _MOST_BRIEF_OPERATIONS)
    return Group(
        *above,
        headline,
        *((_Rows(rows),) if rows else ()),
        *missing,
        *((Text(), tables.painted(rank_table, folds=True)) if rank_table.rows else ()),
        *((Text(), operations) if operations else ()),
        *([Text()] if rank_table.rows or operations else ()),
        *below,
    )


def _missing(session: Session) -> list[RenderableType]:
    if session.snapshots is None and not session.warnings:
        return []
    from nncftools.render.sentences import missing_line  # most runs without stacks do without it

    text = missing_line(session)
    return [Text(printable(text), style="yellow")] if text else []


def _sufficient(session: Session, view: View, *, has_verdict: bool) -> RenderableType:
    """Return how little memory is enough and how long the run took, and how it ended if no verdict says so."""
    text = Text(answer.sufficient(session, view.unit))
    ending = session_tables.failure(session)
    if ending and not (has_verdict and session.exit is not None and session.exit.signal is not None):
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
    if more > 1:
        warnings[_MOST_WARNINGS:] = [f"{more} more warnings are among the details"]
    yield from tables.warnings(warnings)


class _Rows(NamedTuple):
    """Rows about who held the peak; each is one line, which is cut where it does not fit."""

    rows: Sequence[answer.HolderRow]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(len(row.size) for row in self.rows)
        most = max(_SHORTEST_LABEL, (options.max_width - width) // 2)
        labels = [shortened(row.label, most) if row.text else row.label for row in self.rows]
        longest = max((len(label) for label, row in zip(labels, self.rows, strict=True) if row.text), default=0)
        for label, row in zip(labels, self.rows, strict=True):
            line = RichText(f"  {row.size:>{width}}  ")
            line.append(f"{label:<{min(longest, _LONGEST_LABEL)}}" if row.text else label)
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
    yield _sufficient(session, view, has_verdict=False)
    if peak := session_tables.peak(session, view):
        lines = [("peak", " ".join(filter(None, peak))), *peak_lines(session, view.unit)]
        yield tables.pairs(((f"  {heading}", Text(of)) for heading, of in lines), tables.FIRST_COLUMN)
    yield Text()
