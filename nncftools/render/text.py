"""The report as text for a terminal (80 columns, no colour needed), as Markdown, and for a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text as RichText

from nncftools.analysis.session import Session
from nncftools.analysis.summary import count_samples, cpu_s
from nncftools.markdown import code, text
from nncftools.render import peak_lines, session_tables
from nncftools.render import table as tables
from nncftools.render.operations_table import operations, operations_table
from nncftools.render.sentences import brief_hints, hints, missing_line, write_held_at_end
from nncftools.render.session_tables import few_processes, memory, ranks
from nncftools.render.table import Text
from nncftools.render.view import SEPARATOR, View, command_text, label, write_title
from nncftools.units import MemoryUnit, count_text, printable, seconds_text, shortened, size_text

_TITLE = 200
_MOST_OPERATIONS = 60
"""Largest number of operations in a report, because a comment on GitHub has at most 65,536 characters."""
_MOST_BRIEF_OPERATIONS = 12
_DEVICES = "Devices"
_MOST_LINES = 7
"""Largest number of lines in the default report, not counting operations and the line that names the files."""
_CERTAIN = " (certain)"
_FEWEST_HOLDERS = 2
_MOST_HOLDERS = 4
_MOST_WARNINGS = 3
_SHORTEST_LABEL = 20
_LONGEST_LABEL = 32


def report(session: Session, view: View) -> RenderableType:
    """Return the report for Rich to print: the short default report, or the report with all figures."""
    return Group(*(_render_brief(session, view) if view.brief else _render_details(session, view)))


def _render_details(session: Session, view: View) -> Iterator[RenderableType]:
    yield from _render_headlines(session, view)
    yield Text(write_title(session, view, _TITLE))
    yield Text(session_tables.run(session), style="dim")
    yield Text()
    yield tables.Fitting(memory(session, view))
    yield Text()
    rank_table = ranks(session, view.unit)
    if rank_table.rows:
        yield tables.render_table(rank_table)
        yield Text()
    table = operations_table(session, view, _MOST_OPERATIONS)
    if table is not None:
        yield table
        yield Text()
    yield _render_pairs(session_tables.list_facts(session, view.unit))
    process_table = few_processes(session, view.unit)
    if len(process_table.rows) > 1:
        yield Text()
        yield tables.Fitting(process_table)
    warnings = hints(session, view.unit)
    if warnings:
        yield Text()
    yield from tables.render_warnings(warnings)


def _render_pairs(lines: Iterable[tuple[str, str]]) -> RenderableType:
    rows = [(heading, Text(line)) for heading, line in lines]
    return tables.pairs(rows, tables.FIRST_COLUMN)


def _render_brief(session: Session, view: View) -> Iterator[RenderableType]:
    """Yield the short report: peak, code that held the memory, needed memory, and operations."""
    verdict = peak_lines.explain_verdict(session, view.unit)[:1]
    for _, conclusion in verdict:
        yield Text(conclusion.removesuffix(_CERTAIN), style="bold red")
    yield Text(peak_lines.write_headline(session, view), style="bold")
    missing = _render_missing(session)
    below = [_render_need(session, view, has_verdict=bool(verdict)), *_render_further(session, view)]
    room = _MOST_LINES - len(verdict) - len(missing) - len(below) - 2
    holders = peak_lines.list_holders(session, view, max(_FEWEST_HOLDERS, min(_MOST_HOLDERS, room)))
    if holders:
        yield _Holders(holders)
    yield from missing
    rank_table = ranks(session, view.unit)
    if rank_table.rows:
        yield Text()
        yield tables.render_table(rank_table)
    table = operations_table(session, view, _MOST_BRIEF_OPERATIONS)
    if table is not None:
        yield Text()
        yield table
    if rank_table.rows or table is not None:
        yield Text()
    yield from below


def _render_missing(session: Session) -> list[RenderableType]:
    if session.snapshots is None and not session.warnings:
        return []
    line = missing_line(session)
    return [Text(printable(line), style="yellow")] if line else []


def _render_need(session: Session, view: View, *, has_verdict: bool) -> RenderableType:
    """Return the needed memory, the duration, and how the run failed.

    If the report explains why a signal killed the process, the failure is left out.
    """
    line = Text(peak_lines.write_need(session, view.unit))
    ending = session_tables.failure(session)
    was_killed = session.exit is not None and session.exit.signal is not None
    if ending and not (has_verdict and was_killed):
        line.append(SEPARATOR)
        line.append(ending, style="bold")
    return line


def _render_further(session: Session, view: View) -> Iterator[RenderableType]:
    """Yield the last lines: memory held at the end, peaks of metrics that the user named, devices, and warnings."""
    lines = (write_held_at_end(session, view.unit), peak_lines.write_other_peaks(session, view))
    yield from map(Text, filter(None, lines))
    for heading, fact in session_tables.list_facts(session, view.unit):
        if heading == _DEVICES:
            yield Text(f"{heading} {fact}")
    warnings = brief_hints(session)
    more = len(warnings) - _MOST_WARNINGS
    if more > 1:
        warnings[_MOST_WARNINGS:] = [f"{more} more warnings are in the detailed report"]
    yield from tables.render_warnings(warnings)


class _Holders(NamedTuple):
    """Rows about the code that held the peak, cut at the edge of the console."""

    rows: Sequence[peak_lines.HolderRow]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(len(row.size) for row in self.rows)
        room = max(_SHORTEST_LABEL, (options.max_width - width) // 2)
        labels = [shortened(row.label, room) for row in self.rows if row.text]
        longest = max(map(len, labels), default=0)
        for row in self.rows:
            line = RichText(f"  {row.size:>{width}}  ")
            if row.text:
                line.append(f"{shortened(row.label, room):<{min(longest, _LONGEST_LABEL)}}")
                line.append(f"  {row.text}", style="dim")
            else:
                line.append(row.label)
            line.truncate(options.max_width, overflow="ellipsis")
            yield line


def _render_headlines(session: Session, view: View) -> Iterator[RenderableType]:
    """Yield the first lines: the reason if a process died, and the peak with time, operation and code."""
    verdict = peak_lines.explain_verdict(session, view.unit)
    if verdict:
        (heading, conclusion), *details = verdict
        yield Text(f"{heading}  {conclusion}", style="bold red")
        yield _render_pairs([(f"  {heading}", line) for heading, line in details])
        yield Text()
    yield Text(peak_lines.write_headline(session, view), style="bold")
    holders = peak_lines.list_holders(session, view)
    if holders:
        yield _Holders(holders)
    yield _render_need(session, view, has_verdict=False)
    peak = session_tables.peak(session, view)
    if peak:
        lines = [("peak", peak), *peak_lines.explain_peak(session, view.unit)]
        yield _render_pairs([(f"  {heading}", line) for heading, line in lines])
    yield Text()


def markdown_report(session: Session, view: View) -> str:
    """Return the report as Markdown for a pull request; the text ends with a line break."""
    title = write_title(session, view, _TITLE)
    blocks = list(_write_headlines(session, view))
    blocks.append([text(title) if view.title else code(title)])
    for table in (
        memory(session, view),
        ranks(session, view.unit),
        operations(session, view, _MOST_OPERATIONS),
        session_tables.facts(session, view.unit),
    ):
        blocks += tables.render_markdown(table)
    blocks += [[f"> **Note:** {text(hint)}"] for hint in hints(session, view.unit)]
    return tables.join_blocks(blocks)


def _write_headlines(session: Session, view: View) -> Iterator[list[str]]:
    """Yield the first blocks of Markdown: the reason if a process died, and the peak with its code."""
    verdict = peak_lines.explain_verdict(session, view.unit)
    ending = session_tables.failure(session)
    if verdict:
        (heading, conclusion), *details = verdict
        yield [f"**{heading}: {text(conclusion)}**"]
        yield [f"- {text(line)}" for line in peak_lines.join_lines(details)]
    elif ending:
        yield [f"**Failed: {text(ending)}**"]
    yield [f"### {text(peak_lines.write_headline(session, view))}"]
    holders = []
    for row in peak_lines.list_holders(session, view):
        source = code(row.text) if row.is_source else text(row.text)
        holders.append(f"- {text(row.size)} {text(row.label)} {source}".rstrip())
    yield holders
    lines = (peak_lines.write_need(session, view.unit), peak_lines.write_other_peaks(session, view))
    yield [text(line) for line in lines if line]
    if session_tables.peak(session, view):
        yield [f"- {text(line)}" for line in peak_lines.join_lines(peak_lines.explain_peak(session, view.unit))]


def notebook_cell(session: Session, view: View) -> str:
    """Return Markdown for a notebook: the picture, embedded as PNG, and the report."""
    import base64
    import io

    from nncftools.drawing import missing_glyphs_as_boxes
    from nncftools.render import panels

    picture = io.BytesIO()
    with missing_glyphs_as_boxes():
        panels.page(session, view).savefig(picture, format="png")
    content = base64.b64encode(picture.getvalue()).decode()
    return f"![Memory over time](data:image/png;base64,{content})\n\n{markdown_report(session, view)}"


_WIDTH = 100
_HEADING = 9
_MOST_METRICS = 3


def five_lines(session: Session, metrics: Sequence[str]) -> str:
    """Return a summary of a session in five lines.

    The lines are: the command; time, machine and end of the run; the peak of the first metric in MiB; the CPU time and
    the bytes read and written by the command; and the metrics and other data in the session.
    """
    cost = []
    spent_s = cpu_s(session)
    if spent_s is not None:
        cost.append(f"{seconds_text(spent_s)} of CPU")
    for column, action in (("read_bytes", "read from storage"), ("write_bytes", "written")):
        size = session.totals.get(column)
        if size is not None:
            cost.append(f"{size_text(size)} {action}")
    if "rss" in metrics:
        peak = peak_lines.write_peak(session, View(metrics)).removeprefix("Peak memory ")
    else:
        name = next(iter(metrics), "rss")
        size = session.peaks[name].low if name in session.peaks else None
        peak = f"{label(name)} {MemoryUnit.MiB.label(size)}"
    lines = {
        "Session": command_text(session),
        "  run": session_tables.run(session),
        "  peak": peak,
        "  used": ", ".join(cost) or "unknown",
        "  holds": _describe_content(session),
    }
    return "\n".join(f"{heading:<{_HEADING}}{shortened(line, _WIDTH - _HEADING)}" for heading, line in lines.items())


def _describe_content(session: Session) -> str:
    names = session.samples.metrics
    more = f" and {len(names) - _MOST_METRICS} more" if len(names) > _MOST_METRICS else ""
    texts = [
        f"{count_text(count_samples(session), 'sample')} of {', '.join(names[:_MOST_METRICS])}{more}",
        count_text(len(session.processes), "process"),
        count_text(len(session.marks), "operation"),
    ]
    if session.snapshots is not None and session.snapshots.processes:
        texts.append("stacks")
    return ", ".join(texts)
