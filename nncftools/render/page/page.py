"""The report as one self-contained page with interactive charts; it needs plotly, but no network."""

from __future__ import annotations

import base64
import hashlib
import json
import pathlib
import re
from typing import TYPE_CHECKING, Any

from nncftools.analysis.hints import hints
from nncftools.errors import NncfToolsError
from nncftools.render.limit import limit_text
from nncftools.render.page import charts, flame
from nncftools.render.tables import facts
from nncftools.render.tables.of_session import memory, operations, processes, ranks
from nncftools.render.tables.table import Output
from nncftools.render.tables.verdict_lines import verdict_lines
from nncftools.render.view import command_text
from nncftools.text import printable, shortened

if TYPE_CHECKING:
    from nncftools.render.tables.table import Table
    from nncftools.render.view import View
    from nncftools.session.session import Session
_TITLE = 400
_WARNING = 1000
_MOST_OPERATIONS = 1000
_HERE = pathlib.Path(__file__)


def report(session: Session, view: View) -> bytes:
    """Return the page, in UTF-8. Raises NncfToolsError when plotly is not installed."""
    plotly = _plotly()
    program = _HERE.with_suffix(".js").read_text(encoding="utf-8")
    data = json.dumps(_data(session, view), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    parts = {
        "HASHES": f"{_hash(plotly)} {_hash(program)}",
        "DATA": data.replace("<", "\\u003c"),  # it must not end the script element around it
        "PLOTLY": plotly,
        "PROGRAM": program,
    }
    template = _HERE.with_suffix(".html").read_text(encoding="utf-8")
    return re.sub("@([A-Z]+)@", lambda match: parts[match[1]], template).encode()


def _plotly() -> str:
    """Return the JavaScript of the plotly package."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        message = "html needs plotly; install it with: pip install 'nncf-tools[html]'"
        raise NncfToolsError(message) from error
    return str(get_plotlyjs())


def _hash(program: str) -> str:
    """Return the source expression that allows exactly this program in a Content-Security-Policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(program.encode()).digest()).decode()}'"


def _data(session: Session, view: View) -> dict[str, Any]:
    peak, limit = facts.peak(session, view), limit_text(session)
    return {
        "title": shortened(printable(view.title), _TITLE) or shortened(command_text(session), _TITLE),
        "run": shortened(facts.run(session), _TITLE),
        "verdict": [f"{heading}: {of}" for heading, of in verdict_lines(session, view.unit)],
        "peak": "" if peak is None else " ".join(("Peak memory:", *filter(None, peak))),
        "limit": "" if peak is None or limit is None else f"Limit: {limit}",
        "warnings": [shortened(printable(hint), _WARNING) for hint in hints(session, view.unit)],
        "tables": {
            "memory": _table(memory(session, view)),
            "ranks": _table(ranks(session, view.unit)),
            "operations": _table(operations(session, view, _MOST_OPERATIONS)),
            "facts": _table(facts.facts(session, view.unit)),
            "processes": _table(processes(session, view.unit)),
        },
        "chart": charts.charts(session, view),
        "flame": flame.flame(session, view),
    }


def _table(table: Table) -> dict[str, Any]:
    """Return a table in the format of ``page.js``."""
    of = table.of(Output.PAGE)
    return {
        "headings": of.headings("\n"),
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
        "more": of.more,
    }
