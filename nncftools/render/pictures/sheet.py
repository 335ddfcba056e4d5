"""Bars and texts of a table that is drawn: bars that look alike are one artist, which costs a fraction of many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.collections import PolyCollection

from nncftools.drawing import INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from nncftools.render.colours import Fill

    Corners = list[tuple[float, float]]

_THICKNESS = 0.15
_PALE = 0.35


class Sheet:
    """Draws on axes whose data is in inches, from the top left corner; bars appear with ``finish``."""

    def __init__(self, axes: Axes, size: float) -> None:
        """Have texts that say nothing else in ``size`` points."""
        self._axes, self._size = axes, size
        self._stripes: list[Corners] = []
        self._bars: dict[tuple[Fill, bool], list[Corners]] = {}

    def write(self, x: float, y: float, text: str, **look: Any) -> None:  # noqa: ANN401 — any property of a text
        """Write a text beside a point."""
        usual = {"fontsize": self._size, "color": INK, "va": "center", "parse_math": False}
        self._axes.text(x, y, text, **{**usual, **look})

    def stripe(self, left: float, top: float, wide: float, high: float) -> None:
        """Draw the background of a row."""
        self._stripes.append(_corners(left, top, wide, high))

    def bar(self, fill: Fill, at: tuple[float, float], lengths: tuple[float, float], most: float) -> None:
        """Draw a bar; ``lengths`` are its length and that of its solid part, the rest is pale.

        A bar longer than ``most`` is drawn broken.
        """
        left, middle = at
        whole, solid = lengths
        top = middle - _THICKNESS / 2
        if solid < whole:
            pale = _corners(left, top, min(whole, most), _THICKNESS)
            self._bars.setdefault((fill, True), []).append(pale)
        if solid:
            self._bars.setdefault((fill, False), []).append(_corners(left, top, min(solid, most), _THICKNESS))
        for place in (0.80, 0.86) if whole > most * 1.001 else ():
            x = left + most * place
            self._axes.plot([x - 0.02, x + 0.02], [middle + 0.1, middle - 0.1], color="white", linewidth=1.5)

    def finish(self, background: str) -> None:
        """Add all bars, the pale ones below, on stripes of this colour."""
        self._add(self._stripes, facecolor=background, zorder=0.5)
        for (fill, is_pale), bars in sorted(self._bars.items(), key=lambda found: not found[0][1]):
            look: dict[str, Any] = {"alpha": _PALE} if is_pale else {"hatch": fill.hatch, "edgecolor": "white"}
            self._add(bars, facecolor=fill.colour, zorder=1, **look)

    def _add(self, bars: list[Corners], **look: Any) -> None:  # noqa: ANN401 — any property of a collection
        self._axes.add_collection(PolyCollection(bars, linewidth=0, **look), autolim=False)


def _corners(left: float, top: float, wide: float, high: float) -> Corners:
    return [(left, top), (left + wide, top), (left + wide, top + high), (left, top + high)]
