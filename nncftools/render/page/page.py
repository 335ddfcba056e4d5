"""The report as one self-contained page with charts to point at and zoom into; it needs plotly, and no network."""

from __future__ import annotations

import base64
import hashlib
import json
import pathlib
import re
from typing import TYPE_CHECKING, Any

from nncftools.analysis.hints import hints
from nncftools.analysis.summary import level
from nncftools.errors import NncfToolsError
from nncftools.render.page import charts as page_charts
from nncftools.render.page import tables as page_tables
from nncftools.render.tables import facts
from nncftools.render.tables.cells import signed
from nncftools.render.tables.ranks import ranks
from nncftools.render.view import View, command_text, label
from nncftools.text import printable, shortened
from nncftools.units import seconds_text

if TYPE_CHECKING:
    from nncftools.session.model import Session
    from nncftools.units import MemoryUnit

_TITLE = 400
_WARNING = 1000
_HERE = pathlib.Path(__file__)


def report(session: Session, view: View) -> bytes:
    """Return the page, in UTF-8. Raises NncfToolsError when plotly is not installed."""
    plotly = _plotly()
    program = _HERE.with_suffix(".js").read_text(encoding="utf-8")
    parts = {
        "HASHES": f"{_hash(plotly)} {_hash(program)}",
        "DATA": _embedded(_data(session, view)),
        "PLOTLY": plotly,
        "PROGRAM": program,
    }
    template = _HERE.with_suffix(".html").read_text(encoding="utf-8")
    return re.sub("@([A-Z]+)@", lambda match: parts[match[1]], template).encode()


def _plotly() -> str:
    """Return plotly's program, as the package brings it."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        message = "html needs plotly; install it with: pip install 'nncf-tools[html]'"
        raise NncfToolsError(message) from error
    text: str = get_plotlyjs()
    return text


def _hash(program: str) -> str:
    """Return what allows this program, and no other, in a Content-Security-Policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(program.encode()).digest()).decode()}'"


def _embedded(data: dict[str, Any]) -> str:
    """Return JSON that cannot end the script element it stands in."""
    return json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _data(session: Session, view: View) -> dict[str, Any]:
    peak = facts.peak(session, view)
    return {
        "title": shortened(printable(view.title), _TITLE) or shortened(command_text(session), _TITLE),
        "run": shortened(facts.run(session), _TITLE),
        "peak": "" if peak is None else " ".join(("Peak memory:", *filter(None, peak))),
        "warnings": [shortened(printable(hint), _WARNING) for hint in hints(session, view.unit)],
        "memory": _memory(session, view),
        "ranks": _ranks(session, view.unit),
        "facts": [{"cells": pair} for pair in facts.facts(session, view.unit)],
        "phases": page_tables.phases(session, view),
        "processes": page_tables.processes(session, view.unit),
        "chart": page_charts.charts(session, view),
    }


def _ranks(session: Session, unit: MemoryUnit) -> dict[str, Any]:
    found = ranks(session, unit)
    if found is None:
        return {"headings": [], "rows": [], "texts": 0}
    rows = [{"cells": cells, "worst": place == found.worst} for place, cells in enumerate(found.rows)]
    return {"headings": found.headings, "rows": rows, "texts": found.texts}


def _memory(session: Session, view: View) -> dict[str, Any]:
    rows = []
    for name in view.metrics:
        of, unit = level(session.samples, name, session.peaks), view.unit
        of = of.from_zero() if view.from_zero else of
        heading = f"{label(name)} from zero" if view.from_zero else label(name)
        figures = (unit.text(of.final), signed(of.delta, unit), unit.text(of.average), unit.text(of.lowest))
        rows.append({"cells": [heading, unit.text(of.peak), seconds_text(of.at_s), *figures]})
    return {"headings": [f"{view.unit}", "Peak", "at", "Final", "Delta", "Average", "Min"], "rows": rows}
