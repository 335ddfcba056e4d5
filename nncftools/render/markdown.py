"""The report as Markdown tables, for a pull request."""

from __future__ import annotations

from collections.abc import Iterator

from nncftools.analysis.session import Session
from nncftools.markdown import code, draw_table, text
from nncftools.render import answer, session_tables
from nncftools.render.operations_table import operations
from nncftools.render.peak_lines import as_sentences, peak_lines, verdict_lines
from nncftools.render.sentences import hints
from nncftools.render.session_tables import memory, ranks
from nncftools.render.table import Output, Row, Table
from nncftools.render.view import View, command_text
from nncftools.units import shortened

_TITLE = 200
_MOST_OPERATIONS = 60
"""When there are more, the longest are shown: a comment on GitHub holds 65,536 characters."""


def report(session: Session, view: View) -> str:
    """Return the report; it ends with a line break."""
    title = text(shortened(view.title, _TITLE)) or code(shortened(command_text(session), _TITLE))
    of_run = memory(session, view), ranks(session, view.unit), operations(session, view, _MOST_OPERATIONS)
    tables = (*of_run, session_tables.facts(session, view.unit))
    blocks = [
        *_headlines(session, view),
        [title],
        *(block for table in tables for block in render_table(table)),
        *([f"> **Note:** {text(hint)}"] for hint in hints(session, view.unit)),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _headlines(session: Session, view: View) -> Iterator[list[str]]:
    """Yield why something died, if anything did, and the peak, if the view shows it."""
    if verdict := verdict_lines(session, view.unit):
        (heading, conclusion), *details = verdict
        yield [f"**{heading}: {text(conclusion)}**"]
        yield [f"- {text(line)}" for line in as_sentences(details)]
    elif ending := session_tables.failure(session):
        yield [f"**Failed: {text(ending)}**"]
    yield [f"### {text(answer.headline(session, view))}"]
    rows = answer.rows_of_peak(session, view)
    yield [f"- {text(row.size)} {text(row.label)} {_source(row)}".rstrip() for row in rows]
    yield [text(line) for line in (answer.sufficient(session, view.unit), answer.other_peaks(session, view)) if line]
    if session_tables.peak(session, view):
        yield [f"- {text(line)}" for line in as_sentences(peak_lines(session, view.unit))]


def _source(row: answer.HolderRow) -> str:
    return code(row.text) if row.is_source else text(row.text)


def render_table(table: Table, *, code_in: int | None = None) -> Iterator[list[str]]:
    """Yield the lines of a table and a note about what it leaves out; nothing for a table without rows.

    ``code_in`` is the place of a column of code.
    """
    of = table.of(Output.MARKDOWN)
    if not of.rows:
        return
    alignments = ["left" if column.is_text else "right" for column in of.columns]
    yield [draw_table(of.headings(" "), [_cells(of, row, code_in) for row in of.rows], alignments)]
    if of.more:
        yield [f"… {of.more}"]
    if of.note:
        yield [text(of.note)]


def _cells(table: Table, row: Row, code_in: int | None) -> list[str]:
    """Return cells with their emphasis; the last column of text, which has the names, is indented."""
    shown = []
    for cell in row.cells:
        escaped = text(cell.text)
        if escaped and (cell.is_strong or row.note):
            escaped = f"**{escaped}**"
        shown.append(f"{escaped} ({text(cell.below)})" if cell.below else escaped)
    if code_in is not None:
        shown[code_in] = code(row.cells[code_in].text)
    name = max((index for index, column in enumerate(table.columns) if column.is_text), default=0)
    shown[name] = "&nbsp;&nbsp;" * row.depth + " ".join(filter(None, (shown[name], code(row.function))))
    return shown
