"""The report as a single HTML page: tables, and charts and a flame graph that plotly draws.

The page contains plotly's program, compressed, so no network is needed. ``page.js`` draws the charts that ``chart.py``
describes, with the look in ``look.json``. It also sorts and searches the rows of tables, and links rows with the chart.
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
from nncftools.render.table import Cell, Output, Row, Table
from nncftools.render.view import View, clip, write_title
from nncftools.units import shortened

_FILE = "package_data/plotly.min.js"
_LEVEL = 6
"""Compression level of zlib: takes 0.12 s, and a higher level makes the page only 0.2 % smaller."""


def source_of(program: bytes) -> str:
    """Return the entry of a Content-Security-Policy that allows exactly this program to run."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(program).digest()).decode()}'"


def _read_plotly() -> bytes:
    """Return the JavaScript program of plotly.

    The file is read without an import of plotly, because the import takes long. Raises NncfToolsError if plotly is not
    installed.
    """
    package = importlib.util.find_spec("plotly")
    if package is not None and package.origin is not None:
        file = pathlib.Path(package.origin).parent / _FILE
        if file.is_file():
            return file.read_bytes()
    raise NncfToolsError("html needs plotly; install it with: pip install 'nncf-tools[html]'")


_TITLE = 400
"""Longest title, in characters; the next two constants limit names and warnings."""
_NAME = 90
_WARNING = 1000
_MOST_OPERATIONS = 1000
_ALL_LEVELS = 99
_HERE = pathlib.Path(__file__)


def report(session: Session, view: View) -> bytes:
    """Return the page in UTF-8; a page without charts contains no plotly.

    Raises NncfToolsError if the page needs plotly and plotly is not installed.
    """
    program = _HERE.with_suffix(".js").read_text(encoding="utf-8")
    rows = with_inner_levels(session, view.depth)
    figures = {
        "chart": chart.chart(session, view, rows),
        "flame": stacks.flame(session, view),
        "look": json.loads(_HERE.with_name("look.json").read_text(encoding="utf-8")),
    }
    has_charts = figures["chart"]["traces"] or figures["flame"]
    plotly = _read_plotly() if has_charts else b""
    data = json.dumps(figures, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    parts = {
        **_write_texts(session, view),
        **_write_flame_texts(figures["flame"]),
        **_write_tables(session, view, rows, figures["chart"]["factor"]),
        "NOTHING": figures["chart"]["nothing"],
        "HASHES": f"{source_of(plotly)} {source_of(program.encode())}",
        "DATA": data.replace("<", "\\u003c"),  # otherwise a name could end the script element
        "PLOTLY": base64.b64encode(zlib.compress(plotly, _LEVEL)).decode(),
        "PROGRAM": program,
    }
    template = _HERE.with_suffix(".html").read_text(encoding="utf-8")
    return re.sub("@([A-Z]+)@", lambda match: parts[match[1]], template).encode()


def _write_texts(session: Session, view: View) -> dict[str, str]:
    """Return the HTML above the chart: ``{placeholder in page.html: HTML}``."""
    title = write_title(session, view, _TITLE)
    verdict = peak_lines.explain_verdict(session, view.unit)
    failure = session_tables.failure(session)
    if failure and not verdict:
        verdict = [("Failed", failure)]
    holders = peak_lines.list_holders(session, view)
    lines = [(row.size, f"{row.label} {row.text}".strip()) for row in holders]
    lines.append(("", peak_lines.write_need(session, view.unit)))
    if session_tables.peak(session, view):
        lines += peak_lines.explain_peak(session, view.unit)
    warnings = [clip(hint, _WARNING) for hint in hints(session, view.unit)]
    return {
        "TITLE": escape(title),
        "HEADING": " ".join(f"<span>{escape(word)}</span>" for word in title.split(" ")),
        "RUN": escape(shortened(session_tables.run(session), _TITLE)),
        "VERDICT": "".join(f"<p>{escape(line)}</p>" for line in peak_lines.join_lines(verdict)),
        "PEAK": escape(peak_lines.write_headline(session, view)),
        "LINES": "".join(f"<dt>{escape(heading)}</dt><dd>{escape(text)}</dd>" for heading, text in lines),
        "WARNINGS": "".join(f"<li>{escape(warning)}</li>" for warning in warnings),
    }


def _write_flame_texts(flame: dict[str, Any] | None) -> dict[str, str]:
    """Return the HTML above the flame graph: ``{placeholder in page.html: HTML}``.

    Without stacks, the section is hidden.
    """
    if flame is None:
        return {"HIDDEN": "hidden", "BUILDUP": "", "PACKAGES": ""}
    packages = [f"<span>{_draw_swatch(colour)}{escape(name)}</span>" for name, colour in flame["legend"].items()]
    return {"HIDDEN": "", "BUILDUP": escape(flame["text"]), "PACKAGES": "".join(packages)}


def _draw_swatch(colour: str) -> str:
    return f'<span class="swatch" style="background:{colour}"></span>'


def _write_tables(session: Session, view: View, rows: Sequence[NumberedOperation], factor: float) -> dict[str, str]:
    """Return the HTML of the tables: ``{placeholder in page.html: HTML}``.

    ``factor`` is the chart's time unit in seconds.
    """
    unit = view.unit
    return {
        "OPERATIONS": _write_operations(rows, session, view, factor),
        "MEMORY": _write_table("memory", memory(session, view), factor),
        "RANKS": _write_table("ranks", ranks(session, unit), factor),
        "FACTS": _write_table("facts", session_tables.facts(session, unit), factor),
        "PROCESSES": _write_table("processes", processes(session, unit), factor, levels=_ALL_LEVELS),
    }


def _write_operations(every: Sequence[NumberedOperation], session: Session, view: View, factor: float) -> str:
    """Return the table of operations as HTML.

    Each row has two attributes: the operation's lane in the chart, and the full name if the row has a shortened name.
    The table has the longest operations of the outer levels, and all operations inside these.
    """
    outer = [row for row in every if row.operation.depth < view.depth]
    longest, more = select_longest(outer, session, _MOST_OPERATIONS)
    numbers = {row.number for row in longest}

    def is_listed(row: NumberedOperation) -> bool:
        path = row.number.split(".")
        return ".".join(path[: view.depth]) in numbers

    operations = add_gaps(list(filter(is_listed, every)), session)
    lanes = {id(operation): lane for _, operation, lane in place_in_lanes(every, chart.LANES)}
    table = make_table(operations, more, session, view)
    rows = []
    attributes = []
    for operation, row in zip(operations, table.rows, strict=True):
        name = shortened(operation.short_title, _NAME)
        title = "" if name == operation.title else operation.title
        cells = [row.cells[0], Cell(name), *row.cells[2:]]
        rows.append(replace(row, cells=cells))
        attributes.append(f'data-lane="{lanes.get(id(operation), "")}" title="{escape(title)}"')
    return _write_table("operations", replace(table, rows=rows), factor, attributes, levels=view.depth)


_FOLD = '<button type="button" class="fold" aria-label="inner rows"></button>'
_MOST_INDENTS = 12


def _write_table(name: str, table: Table, factor: float, attributes: Sequence[str] = (), *, levels: int = 0) -> str:
    """Return a table as HTML, with the attributes that ``page.js`` reads.

    If ``levels`` is not 0, ``page.js`` can sort, search and fold the rows; at first, this number of levels is open.
    """
    table = table.of(Output.PAGE)
    units = {column.group or column.heading: f", {column.unit}" for column in table.columns if column.unit}
    heads = []
    for column, heading in zip(table.columns, table.headings("\n"), strict=True):
        title = f"{column.group} {column.heading}".strip() + units.get(column.group or column.heading, "")
        text = escape(heading)
        if levels:
            text = f'<button type="button">{text}</button>'
        heads.append(f'<th scope="col" class="{_choose_class(column.is_text)}" title="{escape(title)}">{text}</th>')
    depths = [*(row.depth for row in table.rows[1:]), 0]
    rows = []
    for index, row in enumerate(table.rows):
        more = attributes[index] if attributes else f'title="{escape(row.details)}"'
        fold = _FOLD if depths[index] > row.depth else ""
        rows.append(_write_row(table, row, more, factor, fold=fold if levels else None))
    notes = [table.more, *table.lines, table.note]
    note = escape(". ".join(filter(None, notes)))
    return (
        f'<div class="scroll"><table id="{name}" data-levels="{levels}"><thead><tr>{"".join(heads)}</tr></thead>'
        f'<tbody>{"".join(rows)}</tbody></table></div><p class="more">{note}</p>'
    )


def _choose_class(is_text: bool) -> str:  # noqa: FBT001 — the only argument
    return "text" if is_text else ""


def _write_row(table: Table, row: Row, more: str, factor: float, *, fold: str | None) -> str:
    """Return a row as HTML; ``fold`` is the HTML of the button before the name, None in an unsortable table."""
    cells = []
    for column, cell in zip(table.columns, row.cells, strict=True):
        cells.append(f'<td class="{_choose_class(column.is_text)}">{escape(cell.text)}</td>')
    if fold is not None:
        index = int(table.columns[1].is_text)
        name = escape(row.cells[index].text)
        if row.colour:
            name = f"{_draw_swatch(row.colour)}{name}"
            name += f"<small>{escape(row.details)}</small>" if row.details else ""
        cells[index] = f'<td class="name text">{fold}{name}</td>'
    if row.span_s is not None:
        start, end = [moment_s / factor for moment_s in row.span_s]
        chosen = escape(" ".join(cell.text for cell in row.cells[:2]))
        more += f' tabindex="0" data-span="{start} {end}" data-name="{chosen}"'
    look = f'class="{"peak" if row.is_strong else ""}" data-depth="{row.depth}"'
    return f'<tr {look} style="--inset:{min(row.depth, _MOST_INDENTS)}" {more}>{"".join(cells)}</tr>'
