"""The parts of a chart in a terminal: memory over time with its axes, a row of operations, bars of CPU and I/O.

Of memory, the first metric is an area, the others are curves.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from rich.cells import cell_len, set_cell_size
from rich.segment import Segment

from nncftools import metrics
from nncftools.metrics import cpu_counters
from nncftools.render.canvas import AREA, CURVES, Canvas, Floats, Levels, Row, TerminalStyle, Window, levels, plain
from nncftools.render.listing import fills
from nncftools.session.operation import Operation
from nncftools.units import brief_size, fixed, printable, shortened, text_of

_BLOCKS, _PLAIN_BLOCKS = "▁▂▃▄▅▆▇█", ".:-=+*#@"
_NAME = 5
LABEL = 2
_OF_STORAGE = {"read_bytes": ("Read", "read"), "write_bytes": ("Write", "write")}


class Rate(NamedTuple):
    """What rises at a rate: the counters whose sum it shows, and the unit of that sum."""

    name: str
    counters: tuple[str, ...]
    unit: str
    """``cores``, ``B``, ``s`` or empty."""
    role: str

    def figure(self, value: float) -> str:
        """Return a rate as text with its unit, which is the name of busy cores: ``0.98``, ``1.2 MiB/s``."""
        if self.unit == "cores":
            return fixed(value, 2)
        if not value or self.unit:
            return f"{text_of(value, self.unit) if value else f'0 {self.unit}'}/s"
        factor, letter = next((pair for pair in ((1e6, "M"), (1e3, "k")) if value >= pair[0]), (1, ""))
        return f"{value / factor:.0f}{letter}/s"


def rates_shown(columns: Collection[str]) -> Sequence[Rate]:
    """Return the rates to show of a run with these columns: busy cores, storage, and counters of no family."""
    rates = [Rate("Cores", cpu_counters(columns), "cores", "cpu")]
    for column, metric in metrics.of_operations(columns).items():
        if metric.is_counter and metric.family != metrics.SYSTEM_CALLS:
            name, role = _OF_STORAGE.get(column, (metric.label, "rate"))
            rates.append(Rate(shortened(name, _NAME), (column,), metric.unit, role))
    return [rate for rate in rates if rate.counters and all(name in columns for name in rate.counters)]


def rate_rows(rate: Rate, rates: Floats, figure: float | None, medium: TerminalStyle, height: int = 1) -> Iterator[Row]:
    """Yield ``height`` rows: bars, or an area if there are several; ``figure`` is the rate beside them, or nothing."""
    full = float(np.nanmax(rates, initial=0.0))
    if rate.unit == "cores":
        full = max(full, 1.0)
    if height == 1:
        drawn = [_bars(rates, full, unicode=medium.unicode)]
    else:
        canvas = Canvas(len(rates), height, unicode=medium.unicode)
        parts = np.repeat(rates / (full or 1.0), canvas.dots // len(rates))
        canvas.area(Levels(parts, parts), "")
        canvas.curve(Levels(parts, parts), "", "" if medium.unicode else "*")
        drawn = ["".join(part for part, _ in row) for row in canvas.rows()]
    for number, bars in enumerate(drawn):
        label = rate_label(rate, figure, medium) if number == height - 1 else [Segment(" " * (medium.gutter + 1))]
        yield [*label, Segment(bars, medium.style(rate.role))]


def rate_label(rate: Rate, figure: float | None, medium: TerminalStyle) -> Row:
    """Return the name of a rate and a figure, as ``LABEL`` parts of a row."""
    room = medium.gutter - _NAME
    value = f"{'' if figure is None else _fitted(rate.figure(figure), room):>{room}} "
    return [Segment(f"{rate.name:<{_NAME}}"), Segment(value, medium.style("axis"))]


def _bars(rates: Floats, full: float, *, unicode: bool) -> str:
    """Return rates as one row of bars; ``full`` is the highest rate. 0 and unknown are blank."""
    blocks = _BLOCKS if unicode else _PLAIN_BLOCKS
    if full <= 0:
        return " " * len(rates)
    levels = np.minimum(np.ceil(np.nan_to_num(rates) / full * len(blocks) - 1e-9), len(blocks)).astype(int)
    return "".join(" " if level <= 0 else blocks[level - 1] for level in levels.tolist())


def _fitted(figure: str, room: int) -> str:
    """Return a rate that fits: if necessary without decimals, or with one letter for its unit."""
    number, _, unit = figure.partition(" ")
    if len(figure) < room or not unit:
        return figure[:room]
    whole = f"{float(number.replace(',', '')):.0f}"
    shorter = (f"{whole} {unit}", f"{whole}{unit[:1]}/s", f"{whole}{unit[:1]}")
    return next((short for short in shorter if len(short) < room), whole)[:room]


_SHORTEST_NAME, _WITH_END = 3, 14
"""Columns from which on a name is shown, and from which on its end, too, if it is too long."""
_LABEL = "Operations"


@dataclass(frozen=True)
class Span:
    """An operation; ``end_s`` is None while it is running."""

    name: str
    start_s: float
    end_s: float | None = None
    kind: str | None = None


def operations_row(spans: Sequence[Span], shown: Window, medium: TerminalStyle) -> Row:
    """Return one row with the names of the operations, each at the time of its operation."""
    label = _LABEL if len(_LABEL) < medium.gutter else ""
    row = [Segment(f"{label:<{medium.gutter + 1}}", medium.style("axis"))]
    colours = fills([Operation(name=span.name, start_s=0, end_s=0, kind=span.kind) for span in spans])
    last = shown.column(shown.now_s)
    column = 0
    for number, span in enumerate(spans):
        begin = max(column, shown.column(span.start_s))
        end = last if span.end_s is None else shown.column(min(span.end_s, shown.end_s))
        if number + 1 < len(spans):  # the next one must keep a column of its own
            end = min(end, shown.column(spans[number + 1].start_s) - 1)
        room = min(end + 1, shown.columns) - begin
        if room <= 0:
            continue
        row.append(Segment(" " * (begin - column)))
        name = plain(_fitting(span.name, room), medium)
        if medium.colours is None:
            row.append(Segment(_bracketed(name, room, unicode=medium.unicode)))
        else:
            fill = colours[span.name]
            before = max(0, room - cell_len(name)) // 2
            centred = set_cell_size(" " * before + name, room)
            row.append(Segment(centred, medium.filled(fill.ink, fill.colour)))
        column = begin + room
    return row


def _fitting(name: str, room: int) -> str:
    """Return a name that fits, with a blank on either side if there is room."""
    if room < _SHORTEST_NAME:
        return ""
    name = printable(name)
    if room < _WITH_END:
        return name if len(name) <= room else f"{name[: room - 2]}…"
    return shortened(name, room - 2)


def _bracketed(name: str, room: int, *, unicode: bool) -> str:
    left, flat, right = ("├", "─", "┤") if unicode else ("|", "-", "|")
    if room <= 2:  # noqa: PLR2004 — both ends
        return left[:room] + right[: room - 1]
    name = set_cell_size(name, min(cell_len(name), room - 2))
    before = (room - 2 - cell_len(name)) // 2
    return f"{left}{flat * before}{name}{flat * (room - 2 - cell_len(name) - before)}{right}"


_STEPS = (1, 2, 2.5, 5, 10)
_FEWEST = 3
_TIME_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


class Axis(NamedTuple):
    """An axis from 0 to ``top``, with a tick every ``rows`` rows, which is ``step`` more."""

    top: float
    step: float
    rows: int


def axis_for(largest: float, rows: int, least: int) -> Axis:
    """Return an axis of ``rows`` rows for values up to ``largest``, with a round step every ``least`` rows or more.

    A larger step is taken when less of the height is left then, as long as there are three ticks or more.
    """
    if largest <= 0:
        return Axis(1.0, 1.0, rows)
    power = 10.0 ** math.floor(math.log10(largest * least / rows))
    steps = [factor * ten * power for ten in (1, 10) for factor in _STEPS]
    possible = [(step, math.floor(step * rows / largest + 1e-9)) for step in steps]
    first, *others = [(step, min(between, rows)) for step, between in possible if between >= least]
    fitting = [first, *(option for option in others if option[1] <= rows // _FEWEST)]
    step, between = min(fitting, key=lambda option: option[0] / option[1])
    return Axis(step * rows / between, step, between)


def rounded_up(value: float) -> float:
    """Return a round number of at least ``value``: 12, 25, 300."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if step * power >= value * 0.999999)


def ticks(end: float, most: int) -> list[float]:
    """Return about ``most`` round numbers from 0 to ``end``."""
    rough = max(end, 1e-9) / max(most, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(step * power for step in _STEPS if step * power >= rough * 0.999999)
    return [number * step for number in range(int(end / step + 1e-6) + 1)]


def time_ticks(end_s: float, most: int) -> list[float]:
    """Return about ``most`` round moments from 0 to ``end_s``."""
    step: float = next((step for step in _TIME_STEPS if end_s / step <= max(most, 1)), _TIME_STEPS[-1])
    if end_s / step > max(most, 1):
        step *= math.ceil(end_s / step / max(most, 1))
    if end_s < 2:  # noqa: PLR2004 — below two seconds, whole ones are too few
        step = ticks(end_s, most)[1] if len(ticks(end_s, most)) > 1 else end_s
    return [number * step for number in range(int(end_s / step + 1e-9) + 1)]


def clock(seconds: float) -> str:
    """Return a time as ``0.5 s``, ``0:07``, ``12:30`` or ``1:02:03``."""
    if seconds != int(seconds):
        return f"{seconds:g} s"
    minutes, left = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{left:02d}" if hours else f"{minutes}:{left:02d}"


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


def key(number: int, medium: TerminalStyle) -> Row:
    """Return the sign of the curve with this place, for a legend."""
    sign = "●" if medium.unicode and (number == 0 or medium.colours is not None) else _PLAIN[number]
    return [Segment(f"{sign} ", medium.style(CURVES[number]))]


def plot(lines: Sequence[Line], marked: Marked, shown: Window, height: int, medium: TerminalStyle) -> list[Row]:
    """Return ``height`` rows: the canvas with the axis of memory on its left, and the axis of time."""
    rows = max(_FEWEST_ROWS, height - 1)
    peak = marked.peak if marked.peak is not None and marked.peak[1] <= shown.end_s else None
    largest = max((float(line.values.max(initial=0.0)) for line in lines), default=0.0)
    largest = max(largest, 0.0 if peak is None else peak[0])
    limit = marked.limit if marked.limit is not None and largest > marked.limit / 2 else None
    axis = axis_for(medium.unit.of(max(largest, limit or 0.0)), rows, min(_ROWS_PER_TICK, rows))
    top = axis.top * medium.unit.factor
    canvas = Canvas(shown.columns, rows, unicode=medium.unicode)
    drawn = []
    for line in lines[:MOST_LINES]:
        low, high = levels(line.time_s, line.values, shown.end_s, canvas.dots)
        drawn.append(Levels(low / top, high / top))
    for first in drawn[:1]:
        canvas.area(first, AREA)
    is_plain = medium.colours is None or not medium.unicode
    for number in reversed(range(1, len(drawn))):
        canvas.curve(drawn[number], CURVES[number], _PLAIN[number] if is_plain else "")
    for first in drawn[:1]:  # above the others: where they are the same, this one is seen
        canvas.curve(first, CURVES[0], "" if medium.unicode else _PLAIN[0])
    if limit is not None:
        canvas.line(limit / top, "limit")
        canvas.write(canvas.row_of(limit / top), 1, f" limit {brief_size(limit)} ", "limit")
    if peak is not None:
        canvas.write(canvas.row_of(peak[0] / top), shown.column(peak[1]), "◆" if medium.unicode else "^", "peak")
    return [*_with_labels(canvas, axis, rows, medium), _times(shown, medium)]


def _with_labels(canvas: Canvas, axis: Axis, rows: int, medium: TerminalStyle) -> Iterator[Row]:
    """Yield the rows of a canvas, each behind the label of its height or the bar of the axis."""
    bar, tick = ("│", "┤") if medium.unicode else ("|", "+")
    ticks = range(1, rows // axis.rows + 1)
    marks = {rows - number * axis.rows: number * axis.step * medium.unit.factor for number in ticks}
    style = medium.style("axis")
    for row_number, parts in enumerate(canvas.rows()):
        label = ""
        if row_number in marks:
            label = f"{medium.unit.of(marks[row_number]):,.10g} {medium.unit}"
            label = label if len(label) < medium.gutter else brief_size(marks[row_number])
        row = [Segment(f"{label:>{medium.gutter - 1}} {tick if row_number in marks else bar}", style)]
        height = (rows - row_number) / rows
        row += [Segment(content, medium.style(role, height) if role else None) for content, role in parts]
        yield row


def _times(shown: Window, medium: TerminalStyle) -> Row:
    """Return the axis of time, with its labels to the right of their ticks."""
    corner, flat, tick = ("└", "─", "┬") if medium.unicode else ("+", "-", "+")
    axis = [flat] * shown.columns
    free_from = 0
    for at_s in time_ticks(shown.end_s, shown.columns // _COLUMNS_PER_TICK):
        column = int(at_s / shown.end_s * shown.columns + 1e-6)
        label = f"{tick if column else ''}{clock(round(at_s, 6))} "
        if free_from <= column <= shown.columns - len(label):
            axis[column : column + len(label)] = label
            free_from = column + len(label) + 1
    zero = f"0 {medium.unit}"
    return [Segment(f"{zero:>{medium.gutter - 1}} {corner}{''.join(axis)}", medium.style("axis"))]
