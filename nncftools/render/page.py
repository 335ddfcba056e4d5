"""The report as one self-contained page: tables, and charts and a flame graph that plotly draws.

It needs no network: plotly's program is packed, and the browser unpacks it. ``page.js`` draws what ``chart.py`` makes,
in the look of ``look.json``, lets rows be sorted and searched, and links them with the chart.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import pathlib
import re
import zlib
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from typing import Any

from nncftools.analysis.session import Session
from nncftools.errors import NncfToolsError
from nncftools.render import chart, peak_lines, session_tables, stacks
from nncftools.render.listing import NumberedOperation, place_in_lanes, with_inner_levels
from nncftools.render.operations_table import add_gaps, make_table, select_longest
from nncftools.render.sentences import hints
from nncftools.render.session_tables import memory, processes, ranks
from nncftools.render.table import Cell, Output, Table
from nncftools.render.view import View, command_text
from nncftools.units import printable, shortened

_FILE = "package_data/plotly.min.js"
_LEVEL = 6
"""Takes 0.12 s; a higher one makes the page smaller by 0.2 %."""


def source_of(program: bytes) -> str:
    """Return the source expression that allows exactly this program in a Content-Security-Policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(program).digest()).decode()}'"


def _plotly() -> bytes:
    """Return plotly's program, without importing plotly, which takes as long as packing.

    Raises NncfToolsError when plotly is not installed.
    """
    package = importlib.util.find_spec("plotly")
    file = None if package is None or package.origin is None else pathlib.Path(package.origin).parent / _FILE
    if file is None or not file.is_file():
        raise NncfToolsError("html needs plotly; install it with: pip install 'nncf-tools[html]'")
    return file.read_bytes()


_TITLE, _NAME = 400, 90
_WARNING = 1000
_MOST_OPERATIONS = 1000
_ALL_LEVELS = 99
_HERE = pathlib.Path(__file__)


def report(session: Session, view: View) -> bytes:
    """Return the page, in UTF-8. Raises NncfToolsError when plotly is not installed."""
    plotly = _plotly()
    program = _HERE.with_suffix(".js").read_text(encoding="utf-8")
    every = with_inner_levels(session, view.depth)
    figures = {
        "chart": chart.chart(session, view, every),
        "flame": stacks.flame(session, view),
        "look": json.loads(_HERE.with_name("look.json").read_text(encoding="utf-8")),
    }
    data = json.dumps(figures, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    parts = {
        **_texts(session, view),
        **_flame_texts(figures["flame"]),
        **_tables(session, view, every, figures["chart"]["factor"]),
        "NOTHING": figures["chart"]["nothing"],
        "HASHES": f"{source_of(plotly)} {source_of(program.encode())}",
        "DATA": data.replace("<", "\\u003c"),  # it must not end the script element around it
        "PLOTLY": base64.b64encode(zlib.compress(plotly, _LEVEL)).decode(),
        "PROGRAM": program,
    }
    template = _HERE.with_suffix(".html").read_text(encoding="utf-8")
    return re.sub("@([A-Z]+)@", lambda match: parts[match[1]], template).encode()


def _texts(session: Session, view: View) -> dict[str, str]:
    """Return the parts above the chart, as HTML."""
    title = shortened(printable(view.title) or command_text(session), _TITLE)
    failure = session_tables.failure(session)
    verdict = peak_lines.explain_verdict(session, view.unit) or ([("Failed", failure)] if failure else [])
    rows = [(f"{row.size} {row.label}", row.text) for row in peak_lines.list_holders(session, view)]
    of_peak = peak_lines.explain_peak(session, view.unit) if session_tables.peak(session, view) else []
    lines = [*rows, ("", peak_lines.write_need(session, view.unit)), *of_peak]
    return {
        "TITLE": escape(title),
        "HEADING": " ".join(f"<span>{escape(word)}</span>" for word in title.split(" ")),
        "RUN": escape(shortened(session_tables.run(session), _TITLE)),
        "VERDICT": "".join(f"<p>{escape(f'{heading}: {text}')}</p>" for heading, text in verdict),
        "PEAK": escape(peak_lines.write_headline(session, view)),
        "LINES": "".join(f"<dt>{escape(heading)}</dt><dd>{escape(text)}</dd>" for heading, text in lines),
        "WARNINGS": "".join(
            f"<li>{escape(shortened(printable(hint), _WARNING))}</li>" for hint in hints(session, view.unit)
        ),
    }


def _flame_texts(flame: dict[str, Any] | None) -> dict[str, str]:
    """Return the parts above the flame graph, as HTML; its section is hidden without stacks."""
    if flame is None:
        return {"HIDDEN": "hidden", "BUILDUP": "", "PACKAGES": ""}
    packages = "".join(f"<span>{_swatch(colour)}{escape(name)}</span>" for name, colour in flame["legend"].items())
    return {"HIDDEN": "", "BUILDUP": escape(flame["text"]), "PACKAGES": packages}


def _swatch(colour: str) -> str:
    return f'<span class="swatch" style="background:{colour}"></span>'


def _tables(session: Session, view: View, every: Sequence[NumberedOperation], factor: float) -> dict[str, str]:
    """Return the tables as HTML; ``factor`` is the unit of the chart's time, in seconds."""
    return {
        "OPERATIONS": _operations(every, session, view, factor),
        "MEMORY": _table("memory", memory(session, view), factor),
        "RANKS": _table("ranks", ranks(session, view.unit), factor),
        "FACTS": _table("facts", session_tables.facts(session, view.unit), factor),
        "PROCESSES": _table("processes", processes(session, view.unit), factor, levels=_ALL_LEVELS),
    }


def _operations(every: Sequence[NumberedOperation], session: Session, view: View, factor: float) -> str:
    """Return the table of operations; a row has its lane in the chart, and its whole name if that is shortened.

    The operations that a list of the view's levels shows are there, with all inside them.
    """
    outer = [row for row in every if row.operation.depth < view.depth]
    listed, more = select_longest(outer, session, _MOST_OPERATIONS)
    numbers = {row.number for row in listed}
    shown = [row for row in every if ".".join(row.number.split(".")[: view.depth]) in numbers]
    rows = add_gaps(shown, session)
    lane_of = {id(operation): lane for _, operation, lane in place_in_lanes(every, chart.LANES)}
    table = make_table(rows, more, session, view)
    made, attributes = [], []
    for operation, row in zip(rows, table.rows, strict=True):
        name = shortened(operation.short_title, _NAME)
        whole = "" if name == operation.title else operation.title
        made.append(replace(row, cells=[row.cells[0], Cell(name), *row.cells[2:]]))
        attributes.append(f'data-lane="{lane_of.get(id(operation), "")}" title="{escape(whole)}"')
    return _table("operations", replace(table, rows=made), factor, attributes, levels=view.depth)


_FOLD = '<button type="button" class="fold" aria-label="what is inside"></button>'
_MOST_INDENTS = 12


def _table(name: str, table: Table, factor: float, attributes: Sequence[str] = (), *, levels: int = 0) -> str:
    """Return a table as HTML, with what ``page.js`` must know.

    With ``levels``, rows are sorted, searched and folded there; so many levels are open at first.
    """
    of = table.of(Output.PAGE)
    kinds = ["text" if column.is_text else "" for column in of.columns]
    units = {column.group or column.heading: f", {column.unit}" for column in of.columns if column.unit}
    heads = []
    for column, heading in zip(of.columns, of.headings("\n"), strict=True):
        whole = f"{column.group} {column.heading}".strip() + units.get(column.group or column.heading, "")
        shown = f'<button type="button">{escape(heading)}</button>' if levels else escape(heading)
        heads.append(f'<th scope="col" class="{"text" if column.is_text else ""}" title="{escape(whole)}">{shown}</th>')
    depths = [*(row.depth for row in of.rows[1:]), 0]
    rows = []
    for place, row in enumerate(of.rows):
        cells = [f'<td class="{kind}">{escape(cell.text)}</td>' for kind, cell in zip(kinds, row.cells, strict=True)]
        if levels:
            named = kinds[1] == "text"
            fold = _FOLD if depths[place] > row.depth else ""
            look = f"{_swatch(row.colour)}" if row.colour else ""
            details = f"<small>{escape(row.details)}</small>" if row.colour and row.details else ""
            cells[named] = f'<td class="name text">{fold}{look}{escape(row.cells[named].text)}{details}</td>'
        more = attributes[place] if attributes else f'title="{escape(row.details)}"'
        if row.span_s is not None:
            start, end = (moment_s / factor for moment_s in row.span_s)
            chosen = escape(" ".join(cell.text for cell in row.cells[:2]))
            more += f' tabindex="0" data-span="{start} {end}" data-name="{chosen}"'
        kind = f'class="{"peak" if row.is_strong else ""}" data-depth="{row.depth}"'
        rows.append(f'<tr {kind} style="--inset:{min(row.depth, _MOST_INDENTS)}" {more}>{"".join(cells)}</tr>')
    note = escape(". ".join(filter(None, (of.more, of.note))))
    return (
        f'<div class="scroll"><table id="{name}" data-levels="{levels}"><thead><tr>{"".join(heads)}</tr></thead>'
        f'<tbody>{"".join(rows)}</tbody></table></div><p class="more">{note}</p>'
    )
