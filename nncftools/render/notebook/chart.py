"""Memory over time with the operations above it, as SVG in the text's own colour: readable on light and on dark."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, NamedTuple

from nncftools.analysis.series import run_s
from nncftools.analysis.timeline import timeline
from nncftools.render.memory_line import memory_line
from nncftools.render.operations import lanes, listed
from nncftools.render.terminal.scales import rounded_up, ticks
from nncftools.render.view import label
from nncftools.units import seconds_text, shortened, time_unit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nncftools.render.memory_line import MemoryLine
    from nncftools.render.operations import Listed
    from nncftools.render.view import View
    from nncftools.session.session import Session

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
    every = listed(timeline(session.operations, view.depth), session)
    placed = [(one, lane) for one, lane in zip(every, lanes(every, _MOST_LANES), strict=True) if lane is not None]
    top = _ABOVE + _LANE * (1 + max((lane for _, lane in placed), default=-1))
    most = rounded_up(max(float(line.peak[1]), *(size for size in line.sizes.tolist() if size == size), 0.0) * 1.02)  # noqa: PLR0124 — NaN
    scale = _Scale(run_s(session), most, top)
    parts = [
        *_axes(scale, f"{label(view.metrics[0])}{view.above}, {view.unit}"),
        *_bars(placed, scale),
        *_line(line, scale),
        *_peak(line, scale),
    ]
    style = "max-width:100%;height:auto;font:11px sans-serif;color:inherit;background:transparent"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE} {top + _HIGH + _BELOW:g}"'
    size = f'width="{_WIDE}" role="img" aria-label="{escape(line.peak_text)}" style="{style}" fill="currentColor"'
    return f"{head} {size}>{''.join(parts)}</svg>"


def _axes(scale: _Scale, heading: str) -> Iterator[str]:
    """Yield the grid with its figures, and what they mean."""
    yield _text(2, _HEAD, heading, "start")
    for size in ticks(scale.most, _SIZE_TICKS):
        y = scale.y(size)
        yield f'<path d="M{_LEFT} {y:.1f}H{_WIDE - _RIGHT}" stroke="currentColor" stroke-opacity=".18"/>'
        yield _text(_LEFT - 6, y + 4, f"{size:,g}", "end")
    factor, unit = time_unit(scale.length_s)
    for moment in ticks(scale.length_s / factor, _TIME_TICKS):
        yield _text(scale.x(moment * factor), scale.top + _HIGH + 15, f"{moment:g}", "middle")
    yield _text(_WIDE - _RIGHT, scale.top + _HIGH + 29, f"Time, {unit}", "end")


def _bars(placed: Sequence[tuple[Listed, int]], scale: _Scale) -> Iterator[str]:
    """Yield the longest operations as bars with their names, and a shade below those of the first lane."""
    longest = sorted(placed, key=lambda place: place[0].operation.duration_s, reverse=True)[:_MOST_BARS]
    for one, lane in longest:
        operation = one.operation
        x, y = scale.x(operation.start_s), scale.top - _LANE * (lane + 1)
        wide = max(1.5, scale.x(operation.end_s) - x)
        hover = escape(f"{one.number} {one.title}: {seconds_text(operation.duration_s)}")
        box = f'x="{x:.1f}" width="{wide:.1f}" fill="{one.fill.colour}"'
        if lane == 0:
            yield f'<rect {box} y="{scale.top}" height="{_HIGH}" fill-opacity=".12"/>'
        bar = f'<rect {box} y="{y}" height="{_LANE - 3}" rx="2"><title>{hover}</title></rect>'
        name = shortened(one.title, int((wide - 6) / _CHARACTER)) if wide > 5 * _CHARACTER else ""
        text = f'<text x="{x + 4:.1f}" y="{y + 12}" fill="{one.fill.ink}" pointer-events="none">{escape(name)}</text>'
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


def _peak(line: MemoryLine, scale: _Scale) -> Iterator[str]:
    x, y = scale.x(line.peak[0]), scale.y(line.peak[1])
    yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{_ACCENT}" stroke="currentColor"/>'
    yield _text(_WIDE - _RIGHT, _HEAD, line.peak_text, "end", "bold")


def _text(x: float, y: float, text: str, anchor: str, weight: str = "normal") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}"'
    return f"<text {place}>{escape(text)}</text>"
