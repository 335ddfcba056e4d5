"""Operations in the picture of a profiled run: the band above the panels, their tint, and the table of their figures.

The table shows memory, duration, CPU time, what was read and written. Bars that look alike are one artist of
Matplotlib, which costs a fraction of many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from nncftools import metrics
from nncftools.drawing import DPI, FAINT, INK, Ruler
from nncftools.metrics import Metric
from nncftools.render.listing import Fill, NumberedOperation, in_lanes
from nncftools.render.table import change_text, level_text
from nncftools.render.view import label
from nncftools.units import UNKNOWN, MemoryUnit, brief_size, seconds_text, text_of

Corners = list[tuple[float, float]]
Span = tuple[float, float]
"""Start and width on the time axis, in seconds."""

_THICKNESS = 0.15
_PALE = 0.35


class Sheet:
    """Draws on axes whose data is in inches, from the top left corner; bars appear with ``finish``."""

    def __init__(self, axes: Axes, size: float) -> None:
        """Use texts of ``size`` points, unless a call says otherwise."""
        self._axes, self._size = axes, size
        self.stripes: list[Corners] = []
        """The backgrounds of rows."""
        self._bars: dict[tuple[Fill, bool], list[Corners]] = {}

    def write(self, x: float, y: float, text: str, **look: Any) -> None:  # noqa: ANN401 — any property of a text
        """Write a text beside a point."""
        usual = {"fontsize": self._size, "color": INK, "va": "center", "parse_math": False}
        self._axes.text(x, y, text, **{**usual, **look})

    def bar(self, fill: Fill, at: tuple[float, float], lengths: tuple[float, float], most: float) -> None:
        """Draw a bar with these lengths: of all of it, and of its solid part; the rest is pale.

        A bar longer than ``most`` is drawn broken.
        """
        left, middle = at
        whole, solid = lengths
        for length, is_pale in ((whole if solid < whole else 0.0, True), (solid, False)):
            if length:
                corners = _corners(left, middle - _THICKNESS / 2, min(length, most), _THICKNESS)
                self._bars.setdefault((fill, is_pale), []).append(corners)
        for part in (0.80, 0.86) if whole > most * 1.001 else ():
            x = left + most * part
            self._axes.plot([x - 0.02, x + 0.02], [middle + 0.1, middle - 0.1], color="white", linewidth=1.5)

    def finish(self, background: str) -> None:
        """Add all bars, the pale ones below, on stripes of this colour."""
        self._add(self.stripes, facecolor=background, zorder=0.5)
        for (fill, is_pale), bars in sorted(self._bars.items(), key=lambda item: not item[0][1]):
            look: dict[str, Any] = {"alpha": _PALE} if is_pale else {"hatch": fill.hatch, "edgecolor": "white"}
            self._add(bars, facecolor=fill.colour, zorder=1, **look)

    def _add(self, bars: list[Corners], **look: Any) -> None:  # noqa: ANN401 — any property of a collection
        self._axes.add_collection(PolyCollection(bars, linewidth=0, **look), autolim=False)


def _corners(left: float, top: float, wide: float, high: float) -> Corners:
    return [(left, top), (left + wide, top), (left + wide, top + high), (left, top + high)]


WIDTH = 12.0
"""Of the page. All lengths here are in inches, from the top left corner."""
MOST_ROWS = 24
_HEADER = 0.42
_LOW_ROW, _HIGH_ROW = 0.22, 0.37
"""A high row has room for details below the name."""
_MOST_HIGH_ROWS = 14
_ABOVE, _BELOW = -0.07, 0.085
"""From the middle of a high row to its two lines of text."""
_NUMBER, _NAME, _MEMORY, _DURATION, _CPU, _COUNTERS = 0.42, 0.5, 2.95, 5.7, 7.42, 8.25
"""Left edges of columns, and right edges of those with numbers."""
_SIZES = ((4.4, 0.58), (4.85, 0.4), (5.62, 0.72))
"""Right edges of memory at the start, at the peak, and how much it grew, and the room for each."""
_INDENT, _DEEPEST = 0.12, 6
_MEMORY_BAR, _DURATION_BAR, _COUNTER_BAR = 0.78, 0.5, 0.26
"""Lengths of the longest bars: labels need room beside them."""
_DURATION_TEXT = 19
"""Characters beside the longest bar; in a longer text the share is left out."""
_COUNTER = 1.0
"""Width of the widest counter column."""
_GAP = 0.06
_SIZE, _SMALL = 8.0, 6.5
_SHORT_NUMBER = 5
"""Characters of an operation's number: a longer one is small."""
_ZEBRA = "#f5f5f5"


def height(rows: Sequence[NumberedOperation]) -> float:
    """Return the height of the panels."""
    return _HEADER + len(rows) * _row_height(rows)


class Shown(NamedTuple):
    """What the table shows beside names and times."""

    gauge: str
    """The column of memory."""
    unit: MemoryUnit
    counters: Sequence[str]
    run_s: float


def draw_rows(axes: Axes, rows: Sequence[NumberedOperation], shown: Shown, ruler: Ruler) -> None:
    """Draw the table on axes of ``WIDTH`` and ``height``, one line for each row."""
    axes.set(xlim=(0, WIDTH), ylim=(height(rows), 0), xticks=[], yticks=[])
    axes.set_axis_off()
    high = _row_height(rows)
    longest_s = max(row.operation.duration_s for row in rows if row.number)
    counters = {column: metric for column in shown.counters if (metric := metrics.of(column)) is not None}
    largest: dict[str, float] = {}
    """Of each unit: columns with the same unit have the same scale."""
    for column, metric in counters.items():
        spent = [row.operation.of(column).spent or 0.0 for row in rows if row.number]
        largest[metric.unit] = max(largest.get(metric.unit, 0.0), *spent)
    most = max((row.operation.of(shown.gauge).peak_low or 0.0 for row in rows), default=0.0)
    sheet = Sheet(axes, _SIZE)
    _write_headings(sheet, shown, counters)
    for number, row in enumerate(rows):
        middle = _HEADER + high * (number + 0.5)
        if number % 2 == 0:
            sheet.stripes.append(_corners(_GAP, middle - high / 2, WIDTH - 2 * _GAP, high))
        _draw_name(sheet, row, middle, ruler, two_lines=high == _HIGH_ROW)
        _draw_memory(sheet, row, middle, shown, most, ruler=ruler)
        _draw_duration(sheet, row, middle, longest_s, shown.run_s)
        cpu_s = row.operation.cpu_s
        sheet.write(_CPU, middle, seconds_text(cpu_s), color=FAINT if cpu_s is None else INK)
        _draw_counters(sheet, row, middle, counters, largest)
    sheet.finish(_ZEBRA)


def _row_height(rows: Sequence[NumberedOperation]) -> float:
    has_details = any(row.details for row in rows)
    return _HIGH_ROW if has_details and len(rows) <= _MOST_HIGH_ROWS else _LOW_ROW


def _counter_width(counters: Mapping[str, Metric]) -> float:
    return min(_COUNTER, (WIDTH - _GAP - _COUNTERS) / max(1, len(counters)))


def _write_headings(sheet: Sheet, shown: Shown, counters: Mapping[str, Metric]) -> None:
    headings = [(_NAME, "Operation"), (_MEMORY, f"{label(shown.gauge)}, {shown.unit}")]
    headings += [(_DURATION, "Duration, of the run"), (_CPU, "CPU time")]
    for (right, _), text in zip(_SIZES, ("start", "peak", "delta"), strict=True):
        sheet.write(right, 0.29, text, ha="right", color=FAINT)
    family = None
    for number, metric in enumerate(counters.values()):
        left = _COUNTERS + number * _counter_width(counters)
        if metric.family is None or metric.family != family:
            headings.append((left, metric.label if metric.family is None else f"I/O: {metric.family[0].lower()}"))
        family = metric.family
        sheet.write(left, 0.29, metric.action, color=FAINT)
    for left, heading in headings:
        sheet.write(left, 0.1, heading, fontsize=_SIZE + 1, fontweight="bold")


def _draw_name(sheet: Sheet, row: NumberedOperation, middle: float, ruler: Ruler, *, two_lines: bool) -> None:
    """Write number, name and details; the details are below the name, or beside it if they fit there."""
    if row.number:
        size = _SIZE if len(row.number) <= _SHORT_NUMBER else _SMALL
        sheet.write(_NUMBER, middle, row.number, ha="right", color=FAINT, fontsize=size)
    left = _NAME + _INDENT * min(row.operation.depth, _DEEPEST)
    room = _MEMORY - 2 * _GAP - left
    name = row.title if ruler.width(row.title, _SIZE) <= room else ruler.fitted(row.short_title, room, _SIZE)
    details = row.details
    below = two_lines and details != ""
    sheet.write(left, middle + _ABOVE if below else middle, name)
    beside = left + ruler.width(name, _SIZE) + _GAP
    if below:
        sheet.write(left, middle + _BELOW, ruler.fitted(details, room, _SMALL), fontsize=_SMALL, color=FAINT)
    elif details and beside + ruler.width(details, _SMALL) <= left + room:
        sheet.write(beside, middle, details, fontsize=_SMALL, color=FAINT)


def _draw_memory(  # noqa: PLR0913 — what it draws, where, and its scales
    sheet: Sheet, row: NumberedOperation, middle: float, shown: Shown, most: float, *, ruler: Ruler
) -> None:
    """Draw memory from nothing to the peak, pale up to the size at the start, and write start, peak and delta.

    Long texts are smaller.
    """
    of, unit = row.operation.of(shown.gauge), shown.unit
    if not row.number:
        return
    start, peak = level_text(of.start, unit.brief, is_estimate=of.start_is_estimate), of.peak_low
    texts = [start, UNKNOWN if peak is None else unit.brief(peak), change_text(of, unit.brief)]
    for number, ((right, room), text) in enumerate(zip(_SIZES, texts, strict=True)):
        weight = "bold" if number == 1 and row.operation.has_peak else "normal"
        size, colour = _SIZE * min(1.0, room / ruler.width(text, _SIZE)), FAINT if text == UNKNOWN else INK
        sheet.write(right, middle, text, ha="right", fontweight=weight, color=colour, fontsize=size)
    if of.peak_low is None or not most:
        return
    length = of.peak_low / most * _MEMORY_BAR
    below = 0.0 if of.start is None else min(of.start, of.peak_low) / most * _MEMORY_BAR
    sheet.bar(row.fill, (_MEMORY, middle), (below, 0.0), _MEMORY_BAR)
    sheet.bar(row.fill, (_MEMORY + below, middle), (length - below, length - below), _MEMORY_BAR)


def _draw_duration(sheet: Sheet, row: NumberedOperation, middle: float, longest_s: float, run_s: float) -> None:
    """Draw a duration; the time between repeated calls is pale."""
    duration_s = row.operation.duration_s
    scale = _DURATION_BAR / longest_s if longest_s else 0.0
    share = f" · {_percent(duration_s / run_s)}" if run_s and row.operation.known_duration_s is not None else ""
    in_calls_s = min(row.operation.in_calls_s, duration_s)
    sheet.bar(row.fill, (_DURATION, middle), (duration_s * scale, in_calls_s * scale), _DURATION_BAR)
    right = _DURATION + min(duration_s * scale, _DURATION_BAR) + _GAP
    text = seconds_text(row.operation.known_duration_s)
    sheet.write(right, middle, f"{text}{share}" if len(f"{text}{share}") <= _DURATION_TEXT else text)


def _draw_counters(
    sheet: Sheet, row: NumberedOperation, middle: float, counters: Mapping[str, Metric], largest: Mapping[str, float]
) -> None:
    wide = _counter_width(counters)
    longest = _COUNTER_BAR * wide / _COUNTER
    for number, (column, metric) in enumerate(counters.items()):
        left, value = _COUNTERS + number * wide, row.operation.of(column).spent
        if value is None:
            sheet.write(left, middle, UNKNOWN, color=FAINT)
            continue
        length = value * longest / largest[metric.unit] if largest[metric.unit] else 0.0
        sheet.bar(row.fill, (left, middle), (length, length), longest)
        right = left + min(length, longest) + (_GAP if length else 0)
        figure = brief_size(value) if metric.unit == "B" else text_of(value, metric.unit)
        sheet.write(right, middle, figure if value else "0", color=INK if value else FAINT)


def _percent(share: float) -> str:
    """Return a share of the run; simultaneous operations can have more than 100 %."""
    if 0 < share < 0.01:  # noqa: PLR2004 — one per cent
        return "<1 %"
    return f"{share * 100:.0f} %" if share < 9.995 else ">999 %"  # noqa: PLR2004 — rounds to 1000 %


_LANE, _THIN_LANE = 0.2, 0.06
"""Heights of a lane with and without names, in inches."""
_MOST_LANES = 4
_NARROWEST = 0.0008
"""The narrowest operation, as a share of the run."""
_WIDE = 0.006
"""Neither hatch nor number is visible in a narrower operation."""
_MARGIN = 0.03
_CUT_NAME = 1.2
"""In inches: less room holds no readable part of a name."""


class Band:
    """Operations in as many lanes as keep them from covering each other; ``length_s`` is that of the time axis.

    When more operations run at once than there are lanes, the last ones to start are left out.
    """

    def __init__(self, every: Sequence[NumberedOperation], length_s: float) -> None:
        self._length_s = length_s
        placed = in_lanes(every, _MOST_LANES)
        self._left_out = len(every) - len(placed)
        self._count = 1 + max((lane for *_, lane in placed), default=-1)
        self._placed = [(row, lane, span) for _, row, lane in placed if (span := self._span(row)) is not None]

    @property
    def height(self) -> float:
        """The room it takes above the axes when it has names, in inches."""
        return self._count * _LANE

    def tint(self, axes: Axes) -> None:
        """Tint the background of the axes during the operations of the first lane."""
        spans: dict[str, list[Span]] = {}
        for row, lane, span in self._placed:
            if lane == 0:
                spans.setdefault(row.fill.colour, []).append(span)
        for colour, of_colour in spans.items():
            _fill(axes, of_colour, (0, 1), facecolor=colour, alpha=0.16, zorder=0, linewidth=0)

    def draw(self, axes: Axes, ruler: Ruler | None = None) -> None:
        """Draw it above the axes: with a ruler with names, otherwise thin.

        Where a name does not fit there is the number, or nothing.
        """
        height = (_THIN_LANE if ruler is None else _LANE) / (axes.bbox.height / DPI)
        spans: dict[tuple[Fill, int, bool], list[Span]] = {}
        for row, lane, span in self._placed:
            is_wide = span[1] > self._length_s * _WIDE
            spans.setdefault((row.fill if is_wide else replace(row.fill, hatch=""), lane, is_wide), []).append(span)
        for (fill, lane, is_wide), alike in spans.items():
            look = {"facecolor": fill.colour, "hatch": fill.hatch, "edgecolor": "white", "clip_on": False}
            _fill(axes, alike, (1 + (self._count - lane - 1) * height, height), linewidth=0.7 * is_wide, **look)
        if ruler is None:
            return
        for row, lane, (start_s, width_s) in self._placed:
            if width_s > self._length_s * _WIDE:
                room = width_s / self._length_s * axes.bbox.width / DPI - _MARGIN
                middle = (start_s + width_s / 2, 1 + (self._count - lane - 0.5) * height)
                _write_name(axes, row, middle, room, ruler)
        if self._left_out:
            text, where = f"and {self._left_out:,} more", axes.transAxes
            axes.text(1.005, 1 + height / 2, text, transform=where, va="center", color=FAINT, fontsize=_SIZE)

    def _span(self, row: NumberedOperation) -> Span | None:
        """Return start and width of an operation on the time axis; None if it was before or after the run."""
        operation = row.operation
        if operation.start_s > self._length_s or operation.end_s < 0:
            return None
        start_s = max(0.0, operation.start_s)
        width_s = max(min(operation.end_s, self._length_s) - start_s, self._length_s * _NARROWEST)
        return min(start_s, self._length_s - width_s), width_s


def _write_name(axes: Axes, row: NumberedOperation, middle: Span, room: float, ruler: Ruler) -> None:
    number, size = row.number, _SIZE
    titles = (f"{number} {title}" for title in dict.fromkeys((row.title, row.short_title)))
    text = next((title for title in titles if ruler.width(title, _SIZE) <= room), None)
    if text is None and room >= _CUT_NAME:
        text = ruler.fitted(f"{number} {row.short_title}", room, _SIZE)
    elif text is None:
        text, size = number if ruler.width(number, _SMALL) <= room else "", _SMALL
    if text:
        write_on(axes, row.fill, middle, text, transform=axes.get_xaxis_transform(), fontsize=size)


def write_on(axes: Axes, fill: Fill, middle: Span, text: str, **look: Any) -> None:  # noqa: ANN401 — any property of a text
    """Write a text in the middle of an operation, on a ground without its hatch."""
    behind = {"boxstyle": "square,pad=0.1", "facecolor": fill.colour, "edgecolor": "none"} if fill.hatch else None
    axes.text(*middle, text, color=fill.ink, ha="center", va="center", bbox=behind, parse_math=False, **look)


def _fill(axes: Axes, spans: Sequence[Span], y: tuple[float, float], **look: Any) -> None:  # noqa: ANN401 — any property of a patch
    axes.broken_barh(spans, y, transform=axes.get_xaxis_transform(), **look)
