"""A session as the output of a notebook's cell: chart and tables, without a colour of text or ground of its own."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from nncftools.analysis.hints import hints
from nncftools.metrics import METRICS, STORAGE
from nncftools.render.notebook.chart import chart
from nncftools.render.tables import facts
from nncftools.render.tables.of_session import memory, operations
from nncftools.render.tables.table import Output
from nncftools.render.tables.verdict_lines import verdict_lines
from nncftools.render.view import command_text
from nncftools.units import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nncftools.render.tables.table import Row, Table
    from nncftools.render.view import View
    from nncftools.session.session import Session

_TITLE = 200
_MOST_OPERATIONS = 30
_GROUPS = {"", METRICS["rss"].label, "Cores", STORAGE[0]}
"""Of the columns of operations: what fits beside the names."""
_TABLE = "border-collapse:collapse;margin:.5em 0;font-size:.9em;color:inherit"
_CELL = "padding:.1em .7em;background:transparent;color:inherit;border:0;border-bottom:1px solid rgba(128,128,128,.35)"


def cell(session: Session, view: View) -> str:
    """Return HTML without scripts and without addresses of other files."""
    title = shortened(printable(view.title), _TITLE) or shortened(command_text(session), _TITLE)
    return "".join(
        (
            f"<div><div><b>{escape(title)}</b></div><div>{escape(facts.run(session))}</div>",
            *(f"<div><b>{escape(f'{heading}: {of}')}</b></div>" for heading, of in verdict_lines(session, view.unit)),
            chart(session, view),
            *_table(memory(session, view)),
            *_table(_narrow(operations(session, view, _MOST_OPERATIONS))),
            "<details><summary>CPU, I/O, processes, sampler</summary>",
            *_table(facts.facts(session, view.unit)),
            "</details>",
            *(f"<div>⚠ {escape(printable(hint))}</div>" for hint in hints(session, view.unit)),
            "</div>",
        )
    )


def _narrow(table: Table) -> Table:
    return table.with_columns([place for place, column in enumerate(table.columns) if column.group in _GROUPS])


def _table(table: Table) -> Iterator[str]:
    of = table.of(Output.PAGE)
    if not of.rows:
        return
    sides = ["left" if column.is_text else "right" for column in of.columns]
    headings = zip(of.headings(" "), sides, strict=True)
    yield f'<table style="{_TABLE}"><thead><tr>'
    yield from (f'<th style="text-align:{side};{_CELL}">{escape(heading)}</th>' for heading, side in headings)
    yield "</tr></thead><tbody>"
    for row in of.rows:
        yield from _row(row, sides)
    yield "</tbody></table>"
    if of.more:
        yield f"<div>… {escape(of.more)}</div>"
    if of.note:
        yield f"<div>{escape(of.note)}</div>"


def _row(row: Row, sides: list[str]) -> Iterator[str]:
    weight = ";font-weight:bold" if row.is_strong else ""
    yield f'<tr style="background:transparent" title="{escape(row.details)}">'
    name = max((place for place, side in enumerate(sides) if side == "left"), default=0)
    for place, (of, side) in enumerate(zip(row.cells, sides, strict=True)):
        indent = f";padding-left:{0.7 + 1.2 * row.depth}em" if place == name and row.depth else ""
        wrap = "white-space:nowrap;" if side == "right" else ""
        text = f"<b>{escape(of.text)}</b>" if of.is_strong else escape(of.text)
        if place == name and row.function:
            text += f" <code>{escape(row.function)}</code>"
        yield f'<td style="text-align:{side};{wrap}{_CELL}{indent}{weight}">{text}</td>'
    yield "</tr>"
