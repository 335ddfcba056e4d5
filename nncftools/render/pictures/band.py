"""The band of operations above a panel over time, and their tint in it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nncftools.drawing import DPI, FAINT
from nncftools.render.operations import lanes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from nncftools.drawing import Ruler
    from nncftools.render.colours import Fill
    from nncftools.render.operations import Listed

    Span = tuple[float, float]
    """Start and width on the time axis, in seconds."""

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
_SIZE, _SMALL = 8.0, 6.5


class Band:
    """Operations in as many lanes as keep them from covering each other; ``length_s`` is that of the time axis.

    When more operations run at once than there are lanes, the last ones to start are left out.
    """

    def __init__(self, every: Sequence[Listed], length_s: float) -> None:
        self._length_s = length_s
        found = lanes(every, _MOST_LANES)
        self._left_out = found.count(None)
        self._count = 1 + max((lane for lane in found if lane is not None), default=-1)
        self._placed = [
            (one, lane, span)
            for one, lane in zip(every, found, strict=True)
            if lane is not None and (span := self._span(one)) is not None
        ]

    @property
    def height(self) -> float:
        """The room it takes above the axes when it has names, in inches."""
        return self._count * _LANE

    def tint(self, axes: Axes) -> None:
        """Tint the background of the axes during the operations of the first lane."""
        spans: dict[str, list[Span]] = {}
        for one, lane, span in self._placed:
            if lane == 0:
                spans.setdefault(one.fill.colour, []).append(span)
        for colour, of_colour in spans.items():
            _fill(axes, of_colour, (0, 1), facecolor=colour, alpha=0.16, zorder=0, linewidth=0)

    def draw(self, axes: Axes, ruler: Ruler | None = None) -> None:
        """Draw it above the axes: with a ruler with names, otherwise thin.

        Where a name does not fit there is the number, or nothing.
        """
        height = (_THIN_LANE if ruler is None else _LANE) / (axes.bbox.height / DPI)
        spans: dict[tuple[Fill, int, bool], list[Span]] = {}
        for one, lane, span in self._placed:
            is_wide = self._is_wide(span[1])
            spans.setdefault((one.fill if is_wide else replace(one.fill, hatch=""), lane, is_wide), []).append(span)
        for (fill, lane, is_wide), alike in spans.items():
            look = {"facecolor": fill.colour, "hatch": fill.hatch, "edgecolor": "white", "clip_on": False}
            _fill(axes, alike, (1 + (self._count - lane - 1) * height, height), linewidth=0.7 * is_wide, **look)
        if ruler is not None:
            self._write_names(axes, height, ruler)

    def _write_names(self, axes: Axes, height: float, ruler: Ruler) -> None:
        for one, lane, (start_s, width_s) in self._placed:
            if self._is_wide(width_s):
                room = width_s / self._length_s * axes.bbox.width / DPI - _MARGIN
                middle = (start_s + width_s / 2, 1 + (self._count - lane - 0.5) * height)
                _write_name(axes, one, middle, room, ruler)
        if self._left_out:
            look: dict[str, Any] = {"transform": axes.transAxes, "va": "center", "color": FAINT, "fontsize": _SIZE}
            axes.text(1.005, 1 + height / 2, f"and {self._left_out:,} more", **look)

    def _is_wide(self, width_s: float) -> bool:
        return width_s > self._length_s * _WIDE

    def _span(self, one: Listed) -> Span | None:
        """Return the place of an operation on the time axis; None when it was before or after the run."""
        operation = one.operation
        if operation.start_s > self._length_s or operation.end_s < 0:
            return None
        start_s = max(0.0, operation.start_s)
        width_s = max(min(operation.end_s, self._length_s) - start_s, self._length_s * _NARROWEST)
        return min(start_s, self._length_s - width_s), width_s


def _write_name(axes: Axes, one: Listed, middle: Span, room: float, ruler: Ruler) -> None:
    """Write number and title, or what of them fits."""
    number, size = f"{one.number}", _SIZE
    titles = (f"{number} {title}" for title in dict.fromkeys((one.title, one.short_title)))
    text = next((title for title in titles if ruler.width(title, _SIZE) <= room), None)
    if text is None and room >= _CUT_NAME:
        text = ruler.fitted(f"{number} {one.short_title}", room, _SIZE)
    elif text is None:
        text, size = number if ruler.width(number, _SMALL) <= room else "", _SMALL
    fill = one.fill
    behind = {"boxstyle": "square,pad=0.1", "facecolor": fill.colour, "edgecolor": "none"} if fill.hatch else None
    look: dict[str, Any] = {"ha": "center", "va": "center", "bbox": behind, "parse_math": False}
    if text:
        axes.text(*middle, text, transform=axes.get_xaxis_transform(), fontsize=size, color=fill.ink, **look)


def _fill(axes: Axes, spans: Sequence[Span], y: tuple[float, float], **look: Any) -> None:  # noqa: ANN401 — any property of a patch
    axes.broken_barh(spans, y, transform=axes.get_xaxis_transform(), **look)
