"""The report as Markdown tables, to be pasted into a pull request."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from nncftools.analysis.hints import hints
from nncftools.render.tables import facts
from nncftools.render.tables.memory import memory
from nncftools.render.tables.operations import operations
from nncftools.render.tables.ranks import ranks
from nncftools.render.tables.table import Output, Words
from nncftools.render.view import command_text
from nncftools.text import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nncftools.render.tables.table import Cell, Row, Table
    from nncftools.render.view import View
    from nncftools.session.session import Session

_TITLE = 200
_MANY = 60
"""Rows; of more operations the longest are shown: a comment on GitHub holds 65,536 characters."""
_MEANT = re.compile(r"([\\`*_\[\]<|~$&])")
"""What Markdown, HTML or mathematics in it would read as more than text."""
_PINGS = re.compile(r"[@#]|\bGH-|://|www\.")
"""What GitHub makes a mention, a reference or a link of, unless it is code."""


def report(session: Session, view: View) -> str:
    """Return the report; it ends with a line break."""
    title = text(shortened(printable(view.title), _TITLE)) or code(shortened(command_text(session), _TITLE))
    tables = (
        memory(session, view),
        ranks(session, view.unit),
        operations(session, view, _MANY),
        facts.facts(session, view.unit),
    )
    blocks = [
        [f"### {title}"],
        _peak(session, view),
        *(block for table in tables for block in painted(table)),
        *([f"> **Note:** {text(printable(hint))}"] for hint in hints(session, view.unit)),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def text(plain: str) -> str:
    """Return what shows as ``plain`` in a paragraph or a cell: of one line, nothing in it taken for Markdown."""
    line = " ".join(plain.split())
    return code(line) if _PINGS.search(line) else _MEANT.sub(r"\\\1", line)


def code(plain: str) -> str:
    """Return a code span that shows ``plain``, also in a cell."""
    line = " ".join(plain.split())
    longest = max(map(len, re.findall("`+", line)), default=0)
    fence = "`" * (longest + 1)
    padding = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{padding}{line}{padding}{fence}".replace("|", r"\|") if line else ""


def _peak(session: Session, view: View) -> list[str]:
    peak = facts.peak(session, view)
    if peak is None:
        return []
    most, *rest = peak
    return [" ".join([f"**Peak memory: {text(most)}**", *(text(part) for part in rest if part)])]


def painted(table: Table, *, code_in: int | None = None) -> Iterator[list[str]]:
    """Yield the lines of a table, and what it does not show; nothing for one without rows.

    The column at the place ``code_in`` is set as code.
    """
    of = table.of(Output.MARKDOWN)
    if not of.rows:
        return
    rules = ["---" if column.is_text else "---:" for column in of.columns]
    rows = [_cells(of, row, code_in) for row in of.rows]
    yield [f"| {' | '.join(cells)} |" for cells in (of.headings(" "), rules, *rows)]
    if of.more:
        yield [f"… {of.more}"]


def _cells(table: Table, row: Row, code_in: int | None) -> list[str]:
    """Return cells with their emphasis; the last text of the first ones, a name, is indented."""
    shown = [_cell(cell, is_strong=cell.is_strong or row.note != "") for cell in row.cells]
    if code_in is not None:
        shown[code_in] = code(row.cells[code_in].shown())
    name = max((place for place, column in enumerate(table.columns) if column.is_text), default=0)
    shown[name] = "&nbsp;&nbsp;" * row.depth + shown[name]
    return shown


def _cell(cell: Cell, *, is_strong: bool) -> str:
    shown = f"**{text(cell.shown())}**" if is_strong else text(cell.shown())
    return f"{shown} ({text(cell.below)})" if isinstance(cell, Words) and cell.below else shown
