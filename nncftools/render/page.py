"""The report as one self-contained page with interactive charts; it needs plotly, but no network.

The program of the plotly package is packed: the browser unpacks it.
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
from typing import Any, NamedTuple

from nncftools.analysis.hints import hints
from nncftools.errors import NncfToolsError
from nncftools.render import charts, session_tables
from nncftools.render.listing import NumberedOperation, with_inner_levels
from nncftools.render.memory_line import limit_text
from nncftools.render.peak_lines import verdict_lines
from nncftools.render.session_tables import memory, processes, ranks, shown_of, table_of
from nncftools.render.table import Output, Table
from nncftools.render.view import View, command_text
from nncftools.session.session import Session
from nncftools.units import printable, shortened

_FILE = "package_data/plotly.min.js"
_LEVEL = 6
"""Takes 0.12 s; a higher one makes the page smaller by 0.2 %."""


class Bundle(NamedTuple):
    """A program for a page."""

    packed: str
    """In zlib's format, in base64."""
    source: str
    """The source expression that allows exactly this program in a Content-Security-Policy."""


def bundle() -> Bundle:
    """Return plotly's program. Raises NncfToolsError when plotly is not installed."""
    program = _program()
    return Bundle(base64.b64encode(zlib.compress(program, _LEVEL)).decode(), source_of(program))


def source_of(program: bytes) -> str:
    """Return the source expression that allows exactly this program in a Content-Security-Policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(program).digest()).decode()}'"


def _program() -> bytes:
    """Return the file itself if it is where plotly has it: to import plotly takes as long as to pack it."""
    found = importlib.util.find_spec("plotly")
    file = None if found is None or found.origin is None else pathlib.Path(found.origin).parent / _FILE
    if file is not None and file.is_file():
        return file.read_bytes()
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        message = "html needs plotly; install it with: pip install 'nncf-tools[html]'"
        raise NncfToolsError(message) from error
    return str(get_plotlyjs()).encode()


_TITLE, _NAME = 400, 90
_WARNING = 1000
_MOST_OPERATIONS = 1000
_HERE = pathlib.Path(__file__)
_PROGRAMS = ("tables", "chart", "linked", "flame", "start")
"""In the order in which they need one another; together they are one program."""


def report(session: Session, view: View) -> bytes:
    """Return the page, in UTF-8. Raises NncfToolsError when plotly is not installed."""
    plotly = bundle()
    parts_of = (_HERE.with_name("program") / f"{name}.js" for name in _PROGRAMS)
    program = "".join(part.read_text(encoding="utf-8") for part in parts_of)
    data = json.dumps(_data(session, view), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    parts = {
        "HASHES": f"{plotly.source} {source_of(program.encode())}",
        "DATA": data.replace("<", "\\u003c"),  # it must not end the script element around it
        "PLOTLY": plotly.packed,
        "PROGRAM": program,
    }
    template = _HERE.with_suffix(".html").read_text(encoding="utf-8")
    return re.sub("@([A-Z]+)@", lambda match: parts[match[1]], template).encode()


def _data(session: Session, view: View) -> dict[str, Any]:
    peak, limit = session_tables.peak(session, view), limit_text(session)
    every = with_inner_levels(session, view.depth)
    return {
        "title": shortened(printable(view.title) or command_text(session), _TITLE),
        "run": shortened(session_tables.run(session), _TITLE),
        "verdict": [f"{heading}: {of}" for heading, of in verdict_lines(session, view.unit)],
        "peak": "" if peak is None else " ".join(("Peak memory:", *filter(None, peak))),
        "limit": "" if peak is None or limit is None else f"Limit: {limit}",
        "warnings": [shortened(printable(hint), _WARNING) for hint in hints(session, view.unit)],
        "levels": view.depth,
        "tables": {
            "memory": _table(memory(session, view)),
            "ranks": _table(ranks(session, view.unit)),
            "operations": _operations(every, session, view),
            "facts": _table(session_tables.facts(session, view.unit)),
            "processes": _table(processes(session, view.unit)),
        },
        "chart": charts.charts(session, view, every),
        "flame": _flame(session, view),
    }


def _flame(session: Session, view: View) -> dict[str, Any] | None:
    if session.snapshots is None:
        return None
    from nncftools.render.stacks import flame

    return flame(session, view)


def _operations(every: Sequence[NumberedOperation], session: Session, view: View) -> dict[str, Any]:
    """Return the table of operations; a row has its place in ``every``, and the whole name if it is shortened."""
    shown, more = shown_of(every, session, _MOST_OPERATIONS)
    table = _table(table_of(shown, more, session, view))
    places = {id(one): place for place, one in enumerate(every)}
    for one, row in zip(shown, table["rows"], strict=True):
        row["place"] = places[id(one)]
        row["cells"][1] = shortened(one.short_title, _NAME)
        row["whole"] = "" if row["cells"][1] == one.title else one.title
    return table


def _table(table: Table) -> dict[str, Any]:
    """Return a table in the format of ``program/tables.js``."""
    of = table.of(Output.PAGE)
    return {
        "headings": of.headings("\n"),
        "labels": [f"{column.group} {column.heading}".strip() for column in of.columns],
        "texts": [column.is_text for column in of.columns],
        "rows": [
            {
                "cells": [cell.text for cell in row.cells],
                "strong": row.is_strong,
                "depth": row.depth,
                "details": row.details,
                "colour": row.colour,
                "span": row.span_s,
            }
            for row in of.rows
        ],
        "more": ". ".join(filter(None, (of.more, of.note))),
    }
