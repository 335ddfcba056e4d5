"""Operations in pictures: the band above a panel, the tint behind its data, and the table of their figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.transforms import ScaledTranslation, Transform, blended_transform_factory

from nncftools.drawing import DPI, FAINT, INK, Ruler
from nncftools.render.listing import Fill, NumberedOperation, in_lanes
from nncftools.render.table import Table, column_groups

Span = tuple[float, float]
"""Start and width on the time axis, in seconds."""

WIDTH = 12.0
"""Of the page. All lengths here are in inches."""
MOST_ROWS = 24
_SIZE = 8.0
_HEADER, _ROW = 0.42, 0.24
_GAP = 0.1
_BOLD = 1.15
"""How much wider bold letters are."""
_NUMBER, _NAME = 0.42, 0.52
_INDENT, _DEEPEST = 0.12, 6
_LEAST_NAME, _LEAST_DETAILS = 2.6, 0.8
"""Room for names, and for details beside a name."""
_LEAST_COLUMN = 0.6
_ZEBRA, _PALE = "#f5f5f5", 0.4


def table_height(table: Table) -> float:
    """Return the height that a table needs with the lines below it."""
    return _HEADER + _ROW * (len(table.rows) + len(_lines_below(table)))


def _lines_below(table: Table) -> list[str]:
    more = f"… {table.more}" if table.more else ""
    return [line for line in (more, table.note) if line]


def draw_table(axes: Axes, table: Table, ruler: Ruler) -> None:
    """Draw the table of operations: as many columns as fit; the figures have bars in the colours of their rows."""
    axes.set(xlim=(0, WIDTH), ylim=(table_height(table), 0), xticks=[], yticks=[])
    axes.set_axis_off()
    middles = [_HEADER + _ROW * (number + 0.5) for number in range(len(table.rows))]
    axes.barh(middles[::2], WIDTH - 2 * _GAP, left=_GAP, height=_ROW, color=_ZEBRA, zorder=0)
    colours = [row.colour for row in table.rows]
    axes.barh(middles, 0.05, left=_NUMBER + 0.02, height=_ROW * 0.7, color=colours)
    left = _draw_figures(axes, table, middles, ruler)
    _write(axes, (_NAME, _HEADER - _GAP), "Operation", va="bottom", color=FAINT)
    for row, middle in zip(table.rows, middles, strict=True):
        number, title = row.cells[0].text, row.cells[1].text
        _write(axes, (_NUMBER, middle), number, ha="right", color=FAINT)
        begin = _NAME + _INDENT * min(row.depth, _DEEPEST)
        name = ruler.fitted(title, left - begin, _SIZE)
        _write(axes, (begin, middle), name, color=FAINT if row.is_faint else INK)
        beside = begin + ruler.width(name, _SIZE) + _GAP
        if row.details and left - beside > _LEAST_DETAILS:
            _write(axes, (beside, middle), ruler.fitted(row.details, left - beside, _SIZE), color=FAINT)
    for place, line in enumerate(_lines_below(table), len(table.rows)):
        below = _HEADER + _ROW * (place + 0.5)
        _write(axes, (_NAME, below), ruler.fitted(line, WIDTH - _NAME - _GAP, _SIZE), color=FAINT)


def _draw_figures(axes: Axes, table: Table, middles: Sequence[float], ruler: Ruler) -> float:
    """Draw the columns of figures on the right; return where the room for names ends."""
    headings = table.headings("\n")
    widths = [
        max(ruler.width(line, _SIZE) for line in (*heading.split("\n"), *(row.cells[index].text for row in table.rows)))
        for index, heading in enumerate(headings)
    ]
    widths = [max(width * _BOLD, _LEAST_COLUMN) + _GAP for width in widths]
    room = WIDTH - _NAME - _LEAST_NAME
    shown: list[int] = []
    for group in column_groups(table)[1:]:
        width = sum(widths[index] for index in group)
        if width <= room:
            shown += group
            room -= width
    left = begin = WIDTH - 2 * _GAP - sum(widths[index] for index in shown)
    for index in shown:
        right = begin + widths[index]
        _write(axes, (right, _HEADER - _GAP), headings[index], ha="right", va="bottom", color=FAINT)
        cells = [row.cells[index] for row in table.rows]
        values = [max(cell.value or 0.0, 0.0) for cell in cells]
        scale = (widths[index] - _GAP / 2) / (max(values) or 1.0)
        lengths = [value * scale for value in values]
        colours = [row.colour for row in table.rows]
        axes.barh(middles, lengths, left=begin + _GAP, height=_ROW * 0.7, color=colours, alpha=_PALE)
        for row, cell, middle in zip(table.rows, cells, middles, strict=True):
            weight = "bold" if row.is_strong else "normal"
            _write(axes, (right, middle), cell.text, ha="right", fontweight=weight)
        begin = right
    return left - _GAP


def _write(axes: Axes, at: tuple[float, float], text: str, **look: Any) -> None:  # noqa: ANN401 — any property of a text
    axes.text(*at, text, **{"fontsize": _SIZE, "color": INK, "va": "center", "parse_math": False, **look})


_BAND_SIZE = 7.5
LANE, _THIN_LANE = 0.2, 0.06
"""Heights of a lane with and without names, in inches."""
_MOST_LANES = 4
_NARROWEST = 0.0008
"""The narrowest operation, as a share of the run."""
_WIDE = 0.006
"""Neither hatch nor number is visible in a narrower operation."""
_MARGIN = 0.03
_CUT_NAME = 0.9
"""In inches: less room holds no readable part of a name."""


class Band:
    """Operations in as many lanes as keep them from covering each other; ``length_s`` is that of the time axis.

    When more operations run at once than there are lanes, the last ones to start are left out.
    """

    def __init__(self, every: Sequence[NumberedOperation], length_s: float) -> None:
        self._length_s = length_s
        inside = [row for row in every if row.operation.start_s <= length_s and row.operation.end_s >= 0]
        self._placed = in_lanes(inside, _MOST_LANES)
        self._left_out = len(inside) - len(self._placed)
        self._lanes = 1 + max((lane for *_, lane in self._placed), default=-1)

    @property
    def height(self) -> float:
        """The room it takes above the axes when it has names, in inches."""
        return self._lanes * LANE

    def tint(self, axes: Axes) -> None:
        """Tint the background of the axes during the operations of the first lane."""
        spans: dict[str, list[Span]] = {}
        for _, row, lane in self._placed:
            if lane == 0:
                spans.setdefault(row.fill.colour, []).append(self._span(row))
        for colour, alike in spans.items():
            whole: dict[str, Any] = {
                "transform": axes.get_xaxis_transform(),
                "alpha": 0.16,
                "zorder": 0,
                "linewidth": 0,
            }
            axes.broken_barh(alike, (0, 1), facecolor=colour, **whole)

    def draw(self, axes: Axes, ruler: Ruler | None = None, above: float = 0.0) -> None:
        """Draw it ``above`` the axes, in inches: with a ruler with names, otherwise thin.

        Where a name does not fit there is the number, or nothing. Bars that look alike are one artist of Matplotlib,
        which costs a fraction of many.
        """
        high = _THIN_LANE if ruler is None else LANE
        place = inches_above(axes)
        spans: dict[tuple[Fill, float, bool], list[Span]] = {}
        for _, row, lane in self._placed:
            start_s, width_s = span = self._span(row)
            bottom = above + (self._lanes - lane - 1) * high
            is_wide = width_s > self._length_s * _WIDE
            fill = row.fill if is_wide else Fill(row.fill.colour)
            spans.setdefault((fill, bottom, is_wide), []).append(span)
            room = width_s / self._length_s * axes.bbox.width / DPI - _MARGIN
            if ruler is not None and is_wide and (text := _fitted(row, room, ruler)):
                _write_on(axes, fill, (start_s + width_s / 2, bottom + high / 2), text, transform=place)
        for (fill, bottom, is_wide), alike in spans.items():
            look: dict[str, Any] = {"facecolor": fill.colour, "hatch": fill.hatch, "edgecolor": "white"}
            axes.broken_barh(alike, (bottom, high), transform=place, clip_on=False, linewidth=0.7 * is_wide, **look)
        if ruler is not None and self._left_out:
            where = 1.005 * self._length_s, above + high / 2
            _write(axes, where, f"and {self._left_out:,} more", transform=place, color=FAINT)

    def _span(self, row: NumberedOperation) -> Span:
        """Return start and width of an operation on the time axis."""
        operation = row.operation
        start_s = max(0.0, operation.start_s)
        width_s = max(min(operation.end_s, self._length_s) - start_s, self._length_s * _NARROWEST)
        return min(start_s, self._length_s - width_s), width_s


def inches_above(axes: Axes) -> Transform:
    """Return the transform of points whose x is data, and whose y is the height above the axes in inches."""
    top = ScaledTranslation(0, 1, axes.transAxes)  # type: ignore[arg-type]  # it is affine
    return blended_transform_factory(axes.transData, axes.figure.dpi_scale_trans + top)


def _fitted(row: NumberedOperation, room: float, ruler: Ruler) -> str:
    """Return the number and as much of the title as fits; a part of a name only where it can be read."""
    for title in (row.title, row.short_title, ""):
        text = f"{row.number} {title}".strip()
        if ruler.width(text, _BAND_SIZE) <= room:
            return text
        if title == row.short_title and room >= _CUT_NAME:
            return ruler.fitted(text, room, _BAND_SIZE)
    return ""


def _write_on(axes: Axes, fill: Fill, middle: tuple[float, float], text: str, **look: Any) -> None:  # noqa: ANN401 — any property of a text
    """Write a text in the middle of an operation, on a ground without its hatch."""
    behind = {"boxstyle": "square,pad=0.1", "facecolor": fill.colour, "edgecolor": "none"} if fill.hatch else None
    _write(axes, middle, text, color=fill.ink, ha="center", bbox=behind, fontsize=_BAND_SIZE, **look)
