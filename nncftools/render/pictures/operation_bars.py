"""The panels that list operations: how long each took, and what it read and wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.patches import Rectangle

from nncftools import metrics
from nncftools.drawing import FAINT, INK
from nncftools.units import UNKNOWN, seconds_text, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from nncftools.drawing import Ruler
    from nncftools.metrics import Metric
    from nncftools.render.colours import Fill
    from nncftools.render.operations import Row

WIDTH = 12.0
"""Of both panels together. All lengths here are in inches, from the top left corner."""
MOST_ROWS = 24
_HEADER = 0.42
_LOW_ROW, _HIGH_ROW = 0.22, 0.37
"""A high row has room for details below the name."""
_MOST_HIGH_ROWS = 14
_ABOVE, _BELOW = -0.07, 0.085
"""From a high row's middle to its two lines."""
_NUMBER, _NAME, _DURATION, _COUNTERS_NUMBER, _COUNTERS = 0.55, 0.65, 3.1, 6.05, 6.2
"""Where columns begin; numbers end there."""
_INDENT, _DEEPEST = 0.12, 6
_DURATION_BAR, _COUNTER_BAR = 1.4, 0.6
"""The longest bars: their labels stand beside them."""
_COUNTER = 1.42
"""The widest column of a counter."""
_THICKNESS = 0.15
_GAP = 0.06
_SIZE, _SMALL = 8.0, 6.5
_HEADINGS = ("Operation", "Duration and share of the run")
_ZEBRA = "#f5f5f5"
_PALE = 0.35
_NOTICEABLE, _CREDIBLE = 0.01, 9.995
"""Shares of the run; several operations at once come to more than the whole."""
_BROKEN_FROM = 1.001


def height(rows: Sequence[Row]) -> float:
    """Return how high the panels are."""
    return _HEADER + len(rows) * _row_height(rows)


def draw_rows(axes: Axes, rows: Sequence[Row], run_s: float, ruler: Ruler) -> None:
    """Draw both panels on axes of ``WIDTH`` and ``height``, one line across for each row."""
    axes.set(xlim=(0, WIDTH), ylim=(height(rows), 0), xticks=[], yticks=[])
    axes.set_axis_off()
    high = _row_height(rows)
    longest_s = max(row.duration_s for row in rows if row.number is not None)
    counters = {column: found for column in rows[0].spent if (found := metrics.of(column)) is not None}
    largest = _largest(rows, counters)
    _head(axes, counters)
    for place, row in enumerate(rows):
        middle = _HEADER + high * (place + 0.5)
        if place % 2 == 0:
            axes.add_artist(Rectangle((_GAP, middle - high / 2), WIDTH - 2 * _GAP, high, color=_ZEBRA, linewidth=0))
        _draw_name(axes, row, middle, ruler, two_lines=high == _HIGH_ROW)
        _draw_duration(axes, row, middle, longest_s, run_s)
        _draw_counters(axes, row, middle, counters, largest)


def _row_height(rows: Sequence[Row]) -> float:
    has_details = any(row.details for row in rows)
    return _HIGH_ROW if has_details and len(rows) <= _MOST_HIGH_ROWS else _LOW_ROW


def _largest(rows: Sequence[Row], counters: Mapping[str, Metric]) -> dict[str, float]:
    """Return the largest figure of each unit: columns of one unit have one scale."""
    largest: dict[str, float] = {}
    for row in rows:
        for column, metric in counters.items() if row.number is not None else ():
            largest[metric.unit] = max(largest.get(metric.unit, 0.0), row.spent[column] or 0.0)
    return largest


def _wide(counters: Mapping[str, Metric]) -> float:
    """Return how wide a column of a counter is."""
    return min(_COUNTER, (WIDTH - _GAP - _COUNTERS) / max(1, len(counters)))


def _head(axes: Axes, counters: Mapping[str, Metric]) -> None:
    for left, title in zip((_NAME, _DURATION), _HEADINGS, strict=True):
        _write(axes, left, 0.1, title, fontsize=_SIZE + 1, fontweight="bold")
    family = None
    for place, metric in enumerate(counters.values()):
        left = _COUNTERS + place * _wide(counters)
        if metric.family is None or metric.family != family:
            name = metric.label if metric.family is None else f"I/O: {metric.family[0].lower()}"
            _write(axes, left, 0.1, name, fontsize=_SIZE + 1, fontweight="bold")
        family = metric.family
        _write(axes, left, 0.29, metric.action, color=FAINT)


def _draw_name(axes: Axes, row: Row, middle: float, ruler: Ruler, *, two_lines: bool) -> None:
    """Write number, name and details; the latter below the name, or beside it when they fit there."""
    if row.number is not None:
        for right in (_NUMBER, _COUNTERS_NUMBER):
            _write(axes, right, middle, f"{row.number}", ha="right", color=FAINT)
    left = _NAME + _INDENT * min(row.depth, _DEEPEST)
    room = _DURATION - 2 * _GAP - left
    name = ruler.fitted(row.title, room, _SIZE)
    below = two_lines and row.details != ""
    _write(axes, left, middle + _ABOVE if below else middle, name)
    beside = left + ruler.width(name, _SIZE) + _GAP
    if below:
        details = ruler.fitted(row.details, room, _SMALL)
        _write(axes, left, middle + _BELOW, details, fontsize=_SMALL, color=FAINT)
    elif row.details and beside + ruler.width(row.details, _SMALL) <= left + room:
        _write(axes, beside, middle, row.details, fontsize=_SMALL, color=FAINT)


def _draw_duration(axes: Axes, row: Row, middle: float, longest_s: float, run_s: float) -> None:
    """Draw a duration; of repeated calls the time between them is pale."""
    scale = _DURATION_BAR / longest_s if longest_s else 0.0
    share = f" · {_percent(row.duration_s / run_s)}" if run_s else ""
    in_calls_s = row.duration_s if row.in_calls_s is None else min(row.in_calls_s, row.duration_s)
    lengths = (row.duration_s * scale, in_calls_s * scale)
    _draw_bar(axes, row.fill, (_DURATION, middle), lengths, _DURATION_BAR)
    right = _DURATION + min(row.duration_s * scale, _DURATION_BAR) + _GAP
    _write(axes, right, middle, f"{seconds_text(row.duration_s)}{share}")


def _draw_counters(
    axes: Axes, row: Row, middle: float, counters: Mapping[str, Metric], largest: Mapping[str, float]
) -> None:
    wide = _wide(counters)
    longest = _COUNTER_BAR * wide / _COUNTER
    for place, (column, metric) in enumerate(counters.items()):
        left, value = _COUNTERS + place * wide, row.spent[column]
        if value is None:
            _write(axes, left, middle, UNKNOWN, color=FAINT)
            continue
        length = value * longest / largest[metric.unit] if largest[metric.unit] else 0.0
        _draw_bar(axes, row.fill, (left, middle), (length, length), longest)
        right = left + min(length, longest) + (_GAP if length else 0)
        _write(axes, right, middle, text_of(value, metric.unit) if value else "0", color=INK if value else FAINT)


def _draw_bar(axes: Axes, look: Fill, at: tuple[float, float], lengths: tuple[float, float], most: float) -> None:
    """Draw a bar whose whole length is pale beyond its solid one; where it would be too long, it is broken."""
    left, middle = at
    whole, solid = lengths
    corner = (left, middle - _THICKNESS / 2)
    fill: dict[str, Any] = {"facecolor": look.colour, "hatch": look.hatch, "edgecolor": "white", "linewidth": 0}
    if solid < whole:
        axes.add_artist(Rectangle(corner, min(whole, most), _THICKNESS, alpha=_PALE, **fill))
    if solid:
        axes.add_artist(Rectangle(corner, min(solid, most), _THICKNESS, **fill))
    if whole > most * _BROKEN_FROM:
        for place in (0.80, 0.86):
            x = left + most * place
            axes.plot([x - 0.02, x + 0.02], [middle + 0.1, middle - 0.1], color="white", linewidth=1.5)


def _percent(share: float) -> str:
    if 0 < share < _NOTICEABLE:
        return "<1 %"
    return f"{share * 100:.0f} %" if share < _CREDIBLE else ">999 %"


def _write(axes: Axes, x: float, y: float, text: str, **look: Any) -> None:  # noqa: ANN401 — any property of a text
    given: dict[str, Any] = {"fontsize": _SIZE, "color": INK, "va": "center", "parse_math": False}
    axes.text(x, y, text, **{**given, **look})
