"""The bands of operations above a comparison: one for each side, with the same colour for the same name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from matplotlib.patches import Rectangle

from nncftools.analysis.peak_text import told_apart
from nncftools.drawing import Ruler
from nncftools.render.colours import fills
from nncftools.session.operation import Operation
from nncftools.units import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from nncftools.render.colours import Fill

_MOST = 200
"""The longest operations of a run: shorter ones would not be seen."""
_LONG = 20
_SIZE, _WIDTH, _MARGIN, _CUT = 8.0, 8.8, 0.06, 0.9
"""Of texts in points; of the panel at least, beside a name, and for a part of a name in inches."""


def spans(operations: Sequence[Operation]) -> list[Operation]:
    """Return the outermost operations without their figures, which would keep the samples in memory."""
    outer = [one for one in operations if one.depth == 0]
    longest = sorted(outer, key=lambda one: one.duration_s, reverse=True)[:_MOST]
    return [
        Operation(name=one.name, start_s=one.start_s, end_s=one.end_s, kind=one.kind)
        for one in sorted(longest, key=lambda one: one.start_s)
    ]


class _Look(NamedTuple):
    """How the operations of one name are drawn."""

    fill: Fill
    names: tuple[str, str]
    """The name, and what tells it apart."""


def draw_bands(axes: Sequence[Axes], sides: Sequence[Sequence[Operation]], colours: Sequence[str]) -> None:
    """Draw the operations of each side on axes of its own, with a bar in the side's colour in front."""
    every = [one for operations in sides for one in operations]
    names = sorted({printable(one.name) for one in every})
    short = told_apart(names) if any(len(name) > _LONG for name in names) else {}
    looks = {
        name: _Look(fill, (printable(name), short.get(printable(name), printable(name))))
        for name, fill in fills(every).items()
    }
    ruler = Ruler()
    for one, operations, colour in zip(axes, sides, colours, strict=True):
        one.set_axis_off()
        one.set_ylim(0, 1)
        one.add_patch(Rectangle((-0.012, 0.1), 0.008, 0.8, transform=one.transAxes, color=colour, clip_on=False))
        for operation in operations:
            _draw(one, operation, looks[operation.name], ruler)


def _draw(axes: Axes, operation: Operation, of: _Look, ruler: Ruler) -> None:
    """Draw one operation, with its name or its short name as far as it fits."""
    fill, (name, short) = of
    look: dict[str, Any] = {"facecolor": fill.colour, "hatch": fill.hatch, "edgecolor": "white", "linewidth": 0.7}
    axes.broken_barh([(operation.start_s, operation.duration_s)], (0.1, 0.8), **look)
    length_s = axes.get_xlim()[1]
    room = operation.duration_s / length_s * _WIDTH - _MARGIN if length_s else 0.0
    whole = name if ruler.width(name, _SIZE) <= room else short
    text = ruler.fitted(whole, room, _SIZE)
    if text and (text == whole or room > _CUT):
        behind = {"boxstyle": "square,pad=0.1", "facecolor": fill.colour, "edgecolor": "none"} if fill.hatch else None
        where: dict[str, Any] = {"ha": "center", "va": "center", "bbox": behind, "parse_math": False, "clip_on": True}
        middle = operation.start_s + operation.duration_s / 2
        axes.text(middle, 0.48, text, fontsize=_SIZE, color=fill.ink, **where)
