"""Memory over time: the first metric as an area, the others as curves, with their axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from nncftools.render.terminal import scales
from nncftools.render.terminal.canvas import Canvas, Levels, levels
from nncftools.render.terminal.palette import AREA, CURVES
from nncftools.render.terminal.rows import text
from nncftools.units import brief_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nncftools.render.terminal.canvas import Floats
    from nncftools.render.terminal.palette import Medium
    from nncftools.render.terminal.rows import Row
    from nncftools.render.terminal.window import Window

MOST_LINES = len(CURVES)
_PLAIN = "*o+x"
_ROWS_PER_TICK, _COLUMNS_PER_TICK = 3, 14
_FEWEST_ROWS = 2


class Line(NamedTuple):
    """A metric over time, in seconds and bytes, without unknown values."""

    label: str
    time_s: Floats
    values: Floats
    last: float | None = None
    """The latest value."""


class Marked(NamedTuple):
    """What is marked in the chart; None for nothing."""

    peak: tuple[float, float] | None = None
    """Bytes, and when."""
    limit: float | None = None
    """In bytes: drawn when memory has come to half of it, as in pictures."""


def key(place: int, medium: Medium) -> Row:
    """Return the sign of the curve with this place, for a legend."""
    sign = "●" if medium.unicode and (place == 0 or medium.colours is not None) else _PLAIN[place]
    return [text(f"{sign} ", medium.style(CURVES[place]))]


def plot(lines: Sequence[Line], marked: Marked, shown: Window, height: int, medium: Medium) -> list[Row]:
    """Return ``height`` rows: the canvas with the axis of memory on its left, and the axis of time."""
    rows = max(_FEWEST_ROWS, height - 1)
    peak = marked.peak if marked.peak is not None and shown.begin_s <= marked.peak[1] <= shown.end_s else None
    largest = max((float(line.values.max(initial=0.0)) for line in lines), default=0.0)
    largest = max(largest, 0.0 if peak is None else peak[0])
    limit = marked.limit if marked.limit is not None and largest > marked.limit / 2 else None
    axis = scales.axis(medium.unit.of(max(largest, limit or 0.0)), rows, min(_ROWS_PER_TICK, rows))
    top = axis.top * medium.unit.factor
    canvas = Canvas(shown.columns, rows, unicode=medium.unicode)
    found = [_levels(line, shown, canvas.dots, top) for line in lines[:MOST_LINES]]
    for first in found[:1]:
        canvas.area(first, AREA)
    is_plain = medium.colours is None or not medium.unicode
    for place in reversed(range(1, len(found))):
        canvas.curve(found[place], CURVES[place], _PLAIN[place] if is_plain else "")
    for first in found[:1]:  # above the others: where they are the same, this one is seen
        canvas.curve(first, CURVES[0], "" if medium.unicode else _PLAIN[0])
    if limit is not None:
        _draw_limit(canvas, limit, top)
    if peak is not None:
        canvas.write(canvas.row_of(peak[0] / top), shown.column(peak[1]), "◆" if medium.unicode else "^", "peak")
    return [*_with_labels(canvas, axis, rows, medium), _times(shown, medium)]


def _levels(line: Line, shown: Window, cells: int, top: float) -> Levels:
    low, high = levels(line.time_s, line.values, shown.begin_s, shown.end_s, cells)
    return Levels(low / top, high / top)


def _draw_limit(canvas: Canvas, limit: float, top: float) -> None:
    canvas.line(limit / top, "limit")
    canvas.write(canvas.row_of(limit / top), 1, f" limit {brief_size(limit)} ", "limit")


def _with_labels(canvas: Canvas, axis: scales.Axis, rows: int, medium: Medium) -> Iterator[Row]:
    """Yield the rows of a canvas, each behind the label of its height or the bar of the axis."""
    bar, tick = ("│", "┤") if medium.unicode else ("|", "+")
    ticks = range(1, rows // axis.rows + 1)
    marks = {rows - number * axis.rows: number * axis.step * medium.unit.factor for number in ticks}
    style = medium.style("axis")
    for place, parts in enumerate(canvas.rows()):
        label = _label(marks[place], medium) if place in marks else ""
        row = [text(f"{label:>{medium.gutter - 1}} {tick if place in marks else bar}", style)]
        height = (rows - place) / rows
        row += [text(content, medium.style(role, height) if role else None) for content, role in parts]
        yield row


def _label(value: float, medium: Medium) -> str:
    """Return a value of the axis with its unit; in another unit if it would be too long."""
    label = f"{medium.unit.of(value):,.10g} {medium.unit}"
    return label if len(label) < medium.gutter else brief_size(value)


def _times(shown: Window, medium: Medium) -> Row:
    """Return the axis of time, with its labels to the right of their ticks."""
    corner, flat, tick = ("└", "─", "┬") if medium.unicode else ("+", "-", "+")
    axis = [flat] * shown.columns
    free_from = 0
    for at_s in scales.time_ticks(shown.begin_s, shown.end_s, shown.columns // _COLUMNS_PER_TICK):
        column = int((at_s - shown.begin_s) / (shown.end_s - shown.begin_s) * shown.columns + 1e-6)
        label = f"{tick if column else ''}{scales.clock(round(at_s, 6))} "
        if free_from <= column <= shown.columns - len(label):
            axis[column : column + len(label)] = label
            free_from = column + len(label) + 1
    zero = f"0 {medium.unit}"
    return [text(f"{zero:>{medium.gutter - 1}} {corner}{''.join(axis)}", medium.style("axis"))]
