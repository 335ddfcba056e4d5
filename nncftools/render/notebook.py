"""A session in a notebook: the picture and Markdown tables, and five lines of text as Python prints it."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

from nncftools import drawing
from nncftools.analysis.session import Session
from nncftools.analysis.summary import cpu_s, taken
from nncftools.render import answer, markdown, panels, session_tables
from nncftools.render.view import View, command_text, label
from nncftools.units import MemoryUnit, seconds_text, shortened, size_text


def cell(session: Session, view: View) -> str:
    """Return Markdown: the picture, as PNG in the text itself, and the report's tables."""
    picture = io.BytesIO()
    with drawing.missing_glyphs_as_boxes():
        panels.page(session, view).savefig(picture, format="png")
    content = base64.b64encode(picture.getvalue()).decode()
    return f"![Memory over time](data:image/png;base64,{content})\n\n{markdown.report(session, view)}"


_WIDE_TABLE = 100
_MOST_METRICS = 3


def five_lines(session: Session, metrics: Sequence[str]) -> str:
    """Return the command, the run, the peak of the first of ``metrics``, the cost and the content; bytes in MiB."""
    spent_s = cpu_s(session)
    used = [] if spent_s is None else [f"{seconds_text(spent_s)} of CPU"]
    for column, action in (("read_bytes", "read from storage"), ("write_bytes", "written")):
        size = session.totals.get(column)
        used += [] if size is None else [f"{size_text(size)} {action}"]
    lines = {
        "Session": command_text(session),
        "  run": session_tables.run(session),
        "  peak": _peak_line(session, metrics),
        "  used": ", ".join(used) or "unknown",
        "  holds": _content(session),
    }
    return "\n".join(f"{heading:<9}{shortened(text, _WIDE_TABLE - 9)}" for heading, text in lines.items())


def _peak_line(session: Session, metrics: Sequence[str]) -> str:
    if "rss" in metrics:
        return answer.peak_text(session, View(metrics)).removeprefix("Peak memory ")
    name = next(iter(metrics), "rss")
    peak = session.peaks.get(name)
    return f"{label(name)} {MemoryUnit.MiB.label(None if peak is None else peak.low)}"


def _content(session: Session) -> str:
    names = session.samples.metrics
    more = f" and {len(names) - _MOST_METRICS} more" if len(names) > _MOST_METRICS else ""
    counts = (("process", "processes", session.processes), ("operation", "operations", session.marks))
    others = [f"{len(of):,} {singular if len(of) == 1 else plural}" for singular, plural, of in counts]
    stacks = ["stacks"] if session.snapshots is not None and session.snapshots.processes else []
    return ", ".join([f"{taken(session):,} samples of {', '.join(names[:_MOST_METRICS])}{more}", *others, *stacks])
