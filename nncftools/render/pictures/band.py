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
    from nncftools.render.operations import Listed

    Span = tuple[float, float]

LANE = 0.2
"""How high a lane with names is, in inches."""
_THIN_LANE = 0.06
_MOST_LANES = 4
_TINT = 0.16
_PIXEL = 0.0008
"""The narrowest operation, as part of the run."""
_WIDE = 0.006
"""Narrower, neither hatch nor number can be seen."""
_MARGIN = 0.03
_CUT_NAME = 1.2
"""In inches: less room holds no readable part of a name."""
_SIZE, _SMALL = 8.0, 6.5
_EDGE = 0.7


class Band:
    """Operations in as many lanes as are needed for none to cover another; ``length_s`` is that of the time axis.

    When more go on at once than there are lanes, those that come last are left out.
    """

    def __init__(self, every: Sequence[Listed], length_s: float) -> None:
        self._length_s = length_s
        found = lanes(every, _MOST_LANES)
        self._placed = [(one, lane) for one, lane in zip(every, found, strict=True) if lane is not None]
        self._left_out = found.count(None)
        self._count = 1 + max((lane for _, lane in self._placed), default=-1)

    @property
    def height(self) -> float:
        """How much room it takes above the axes when it has names, in inches."""
        return self._count * LANE

    def tint(self, axes: Axes) -> None:
        """Colour the background of the axes lightly where an operation of the first lane went on."""
        spans: dict[str, list[Span]] = {}
        for one, lane in self._placed:
            if lane == 0:
                spans.setdefault(one.fill.colour, []).extend(self._span(one))
        for colour, of_colour in spans.items():
            _fill(axes, of_colour, (0, 1), {"facecolor": colour, "alpha": _TINT, "zorder": 0, "linewidth": 0})

    def draw(self, axes: Axes) -> None:
        """Draw it thinly above the axes."""
        self._draw(axes, _THIN_LANE)

    def draw_named(self, axes: Axes, ruler: Ruler) -> None:
        """Draw it above the axes with names; one that does not fit is left out for its number, that for nothing."""
        self._draw(axes, LANE)
        high = LANE / (axes.bbox.height / DPI)
        for one, lane in self._placed:
            for span in self._span(one):
                if span[1] > self._length_s * _WIDE:
                    self._name(axes, one, (span[0] + span[1] / 2, 1 + (self._count - lane - 0.5) * high), ruler)
        if self._left_out:
            look: dict[str, Any] = {"transform": axes.transAxes, "va": "center", "color": FAINT, "fontsize": _SIZE}
            axes.text(1.005, 1 + high / 2, f"and {self._left_out:,} more", **look)

    def _draw(self, axes: Axes, lane_height: float) -> None:
        high = lane_height / (axes.bbox.height / DPI)
        spans: dict[tuple[str, str, int, float], list[Span]] = {}
        for one, lane in self._placed:
            for span in self._span(one):
                is_wide = span[1] > self._length_s * _WIDE
                look = one.fill if is_wide else replace(one.fill, hatch="")
                spans.setdefault((look.colour, look.hatch, lane, _EDGE if is_wide else 0.0), []).append(span)
        for (colour, hatch, lane, edge), alike in spans.items():
            look_of = {"facecolor": colour, "hatch": hatch, "edgecolor": "white", "linewidth": edge}
            _fill(axes, alike, (1 + (self._count - lane - 1) * high, high), {**look_of, "clip_on": False})

    def _span(self, one: Listed) -> list[Span]:
        """Return start and width of an operation on the time axis; nothing when it was before or after the run."""
        operation = one.operation
        if operation.start_s > self._length_s or operation.end_s < 0:
            return []
        start_s = max(0.0, operation.start_s)
        width_s = max(min(operation.end_s, self._length_s) - start_s, self._length_s * _PIXEL)
        return [(min(start_s, self._length_s - width_s), width_s)]

    def _name(self, axes: Axes, one: Listed, middle: tuple[float, float], ruler: Ruler) -> None:
        room = self._span(one)[0][1] / self._length_s * axes.bbox.width / DPI - _MARGIN
        title, number, size = f"{one.number} {one.title}", f"{one.number}", _SIZE
        text = ruler.fitted(title, room, _SIZE)
        if text != title and room < _CUT_NAME:
            text, size = number if ruler.width(number, _SMALL) <= room else "", _SMALL
        look = one.fill
        behind = {"boxstyle": "square,pad=0.1", "facecolor": look.colour, "edgecolor": "none"} if look.hatch else None
        how: dict[str, Any] = {"ha": "center", "va": "center", "bbox": behind, "parse_math": False}
        if text:
            axes.text(*middle, text, transform=axes.get_xaxis_transform(), fontsize=size, color=look.ink, **how)


def _fill(axes: Axes, spans: Sequence[Span], y: tuple[float, float], look: dict[str, Any]) -> None:
    axes.broken_barh(spans, y, transform=axes.get_xaxis_transform(), **look)
