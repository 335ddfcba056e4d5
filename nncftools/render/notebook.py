"""A session in a notebook: chart and tables in the notebook's own colours, and five lines of text as Python prints it.

The chart is SVG in the colour of the text around it, so it is readable on light and on dark backgrounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from nncftools.analysis.series import run_s
from nncftools.analysis.summary import cpu_s, hints, taken
from nncftools.metrics import METRICS, STORAGE
from nncftools.render import answer, session_tables
from nncftools.render.listing import NumberedOperation, in_lanes, numbered, timeline
from nncftools.render.operations_table import operations
from nncftools.render.peak_lines import MemoryLine, memory_line, verdict_lines
from nncftools.render.session_tables import memory
from nncftools.render.table import Output, Row, Table
from nncftools.render.terminal_plot import rounded_up, ticks
from nncftools.render.view import View, command_text, label
from nncftools.session.session import Session
from nncftools.units import MemoryUnit, printable, seconds_text, shortened, size_text, time_unit

_WIDE, _HIGH = 860, 190
"""The picture, and the part with the line; all lengths are in pixels."""
_LEFT, _RIGHT, _BELOW, _ABOVE, _HEAD = 66, 10, 34, 22, 12
_LANE, _MOST_LANES, _MOST_BARS = 19, 4, 300
_CHARACTER = 6.2
"""About the width of a character of the font."""
_POINTS = 700
_ACCENT = "#2f86c9"
"""Has a contrast of more than 3:1 to white and to black."""
_SIZE_TICKS, _TIME_TICKS = 4, 8


class _Scale(NamedTuple):
    """Where seconds and sizes are in the picture."""

    length_s: float
    most: float
    top: float

    def x(self, at_s: float) -> float:
        return _LEFT + at_s / self.length_s * (_WIDE - _LEFT - _RIGHT)

    def y(self, size: float) -> float:
        return self.top + _HIGH * (1 - size / self.most)


def chart(session: Session, view: View) -> str:
    """Return the first metric of ``view`` over time; empty when no sample contains it."""
    line = memory_line(session, view, view.metrics[0], _POINTS) if view.metrics else None
    if line is None:
        return ""
    every = numbered(timeline(session.operations, view.depth), session)
    placed = in_lanes(every, _MOST_LANES)
    top = _ABOVE + _LANE * (1 + max((lane for *_, lane in placed), default=-1))
    most = rounded_up(max(float(line.peak[1]), *(size for size in line.sizes.tolist() if size == size), 0.0) * 1.02)  # noqa: PLR0124 — NaN
    scale = _Scale(run_s(session), most, top)
    peak_x, peak_y = scale.x(line.peak[0]), scale.y(line.peak[1])
    parts = [
        *_axes(scale, f"{label(view.metrics[0])}{view.above}, {view.unit}"),
        *_bars(placed, scale),
        *_line(line, scale),
        f'<circle cx="{peak_x:.1f}" cy="{peak_y:.1f}" r="3.5" fill="{_ACCENT}" stroke="currentColor"/>',
        _text(_WIDE - _RIGHT, _HEAD, line.peak_text, "end", "bold"),
    ]
    style = "max-width:100%;height:auto;font:11px sans-serif;color:inherit;background:transparent"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE} {top + _HIGH + _BELOW:g}"'
    size = f'width="{_WIDE}" role="img" aria-label="{escape(line.peak_text)}" style="{style}" fill="currentColor"'
    return f"{head} {size}>{''.join(parts)}</svg>"


def _axes(scale: _Scale, heading: str) -> Iterator[str]:
    yield _text(2, _HEAD, heading, "start")
    for size in ticks(scale.most, _SIZE_TICKS):
        y = scale.y(size)
        yield f'<path d="M{_LEFT} {y:.1f}H{_WIDE - _RIGHT}" stroke="currentColor" stroke-opacity=".18"/>'
        yield _text(_LEFT - 6, y + 4, f"{size:,g}", "end")
    factor, unit = time_unit(scale.length_s)
    for moment in ticks(scale.length_s / factor, _TIME_TICKS):
        yield _text(scale.x(moment * factor), scale.top + _HIGH + 15, f"{moment:g}", "middle")
    yield _text(_WIDE - _RIGHT, scale.top + _HIGH + 29, f"Time, {unit}", "end")


def _bars(placed: Sequence[tuple[int, NumberedOperation, int]], scale: _Scale) -> Iterator[str]:
    """Yield the longest operations as bars with their names, and a shade below those of the first lane."""
    for _, row, lane in sorted(placed, key=lambda item: item[1].operation.duration_s, reverse=True)[:_MOST_BARS]:
        operation = row.operation
        x, y = scale.x(operation.start_s), scale.top - _LANE * (lane + 1)
        wide = max(1.5, scale.x(operation.end_s) - x)
        hover = escape(f"{row.number} {row.title}: {seconds_text(operation.known_duration_s)}")
        box = f'x="{x:.1f}" width="{wide:.1f}" fill="{row.fill.colour}"'
        if lane == 0:
            yield f'<rect {box} y="{scale.top}" height="{_HIGH}" fill-opacity=".12"/>'
        bar = f'<rect {box} y="{y}" height="{_LANE - 3}" rx="2"><title>{hover}</title></rect>'
        name = shortened(row.title, int((wide - 6) / _CHARACTER)) if wide > 5 * _CHARACTER else ""
        text = f'<text x="{x + 4:.1f}" y="{y + 12}" fill="{row.fill.ink}" pointer-events="none">{escape(name)}</text>'
        yield bar + (text if name else "")


def _line(line: MemoryLine, scale: _Scale) -> Iterator[str]:
    """Yield each part of the line without gaps, filled down to zero."""
    part: list[tuple[float, float]] = []
    for at_s, size in [*zip(line.time_s.tolist(), line.sizes.tolist(), strict=True), (0.0, float("nan"))]:
        if size == size:  # noqa: PLR0124 — NaN
            part.append((scale.x(at_s), scale.y(size)))
        elif part:
            path = "L".join(f"{x:.1f} {y:.1f}" for x, y in part)
            area = f"M{part[0][0]:.1f} {scale.y(0):.1f}L{path}L{part[-1][0]:.1f} {scale.y(0):.1f}Z"
            yield f'<path d="{area}" fill="{_ACCENT}" fill-opacity=".25"/>'
            cap = 'stroke-width="1.6" stroke-linejoin="round" stroke-linecap="round"'
            yield f'<path d="M{path}{"" if len(part) > 1 else "h0"}" fill="none" stroke="{_ACCENT}" {cap}/>'
            part = []


def _text(x: float, y: float, text: str, anchor: str, weight: str = "normal") -> str:
    attributes = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}"'
    return f"<text {attributes}>{escape(text)}</text>"


_TITLE = 200
_MOST_OPERATIONS = 30
_GROUPS = {"", METRICS["rss"].label, "Cores", STORAGE[0]}
"""Of the columns of operations: what fits beside the names."""
_TABLE = "border-collapse:collapse;margin:.5em 0;font-size:.9em;color:inherit"
_CELL = "padding:.1em .7em;background:transparent;color:inherit;border:0;border-bottom:1px solid rgba(128,128,128,.35)"


def cell(session: Session, view: View) -> str:
    """Return HTML without scripts and without addresses of other files."""
    title = shortened(printable(view.title), _TITLE) or shortened(command_text(session), _TITLE)
    table = operations(session, view, _MOST_OPERATIONS)
    rows = answer.rows_of_peak(session, view)
    return "".join(
        (
            "<div>",
            *(f"<div><b>{escape(f'{heading}: {of}')}</b></div>" for heading, of in verdict_lines(session, view.unit)),
            f"<div><b>{escape(answer.headline(session, view))}</b></div>",
            *(f"<div>{escape(f'{row.size} {row.label}')} <code>{escape(row.text)}</code></div>" for row in rows),
            f"<div>{escape(answer.sufficient(session, view.unit))}</div>",
            f"<div>{escape(title)}</div><div>{escape(session_tables.run(session))}</div>",
            chart(session, view),
            *_table(memory(session, view)),
            *_table(table.with_columns([n for n, column in enumerate(table.columns) if column.group in _GROUPS])),
            "<details><summary>CPU, I/O, processes, sampler</summary>",
            *_table(session_tables.facts(session, view.unit)),
            "</details>",
            *(f"<div>⚠ {escape(printable(hint))}</div>" for hint in hints(session, view.unit)),
            "</div>",
        )
    )


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
    name = max((index for index, side in enumerate(sides) if side == "left"), default=0)
    for index, (of, side) in enumerate(zip(row.cells, sides, strict=True)):
        indent = f";padding-left:{0.7 + 1.2 * row.depth}em" if index == name and row.depth else ""
        wrap = "white-space:nowrap;" if side == "right" else ""
        text = f"<b>{escape(of.text)}</b>" if of.is_strong else escape(of.text)
        if index == name and row.function:
            text += f" <code>{escape(row.function)}</code>"
        yield f'<td style="text-align:{side};{wrap}{_CELL}{indent}{weight}">{text}</td>'
    yield "</tr>"


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
