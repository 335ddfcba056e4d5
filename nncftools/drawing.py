"""The look of all pictures: one palette, one figure, text that fits."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.ticker import FuncFormatter, MaxNLocator

from nncftools.text import shortened

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes
    from matplotlib.backend_bases import RendererBase

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""Okabe and Ito: tells apart also for the colour-blind. Yellow is left out: too light on white."""
SHADES = ("#f2f2f2", "#e4ecf4")
"""Behind operations, in turn."""
FAINT = "#5f6368"
INK = "#202124"
"""Lines and text where colours belong to operations."""
LINES = ("-", "--")
"""For more metrics than there are colours."""
DPI = 120
_SIZE = (10.0, 4.8)
_MINUTE = 60
_HOUR = 3600


def figure() -> tuple[Figure, Axes]:
    """Return a figure with one empty panel."""
    drawing = Figure(figsize=_SIZE, dpi=DPI, layout="constrained")
    axes = drawing.add_subplot()
    plain(axes)
    return drawing, axes


def plain(axes: Axes) -> None:
    """Give a panel a light grid behind its data, and no frame above and on the right."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, color="#e3e3e3", linewidth=0.8)
    axes.set_axisbelow(True)


def time_axis(axes: Axes, duration_s: float) -> None:
    """Label the x axis, whose data is in seconds, in the unit that fits the duration."""
    factor, unit = next(
        (factor, unit)
        for factor, unit in ((_HOUR, "h"), (_MINUTE, "min"), (1, "s"))
        if duration_s >= 3 * factor or factor == 1
    )
    axes.set_xlabel(f"Time ({unit})")
    locator = MaxNLocator(9, steps=[1, 2, 5, 10])
    axes.set_xlim(0, max(duration_s, 1e-3))
    ticks = [tick * factor for tick in locator.tick_values(0, max(duration_s, 1e-3) / factor)]
    axes.set_xticks([tick for tick in ticks if 0 <= tick <= duration_s * 1.0001])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / factor:g}"))


class Ruler:
    """Measures text as it will be drawn; widths in inches, sizes in points."""

    def __init__(self) -> None:
        self._renderer: RendererBase = RendererAgg(1, 1, DPI)  # type: ignore[no-untyped-call] # of theirs

    def width(self, text: str, size: float) -> float:
        """Return how wide one line is."""
        font = FontProperties(size=size)
        return self._renderer.get_text_width_height_descent(text, font, ismath=False)[0] / DPI

    def fitted(self, text: str, room: float, size: float) -> str:
        """Return one line, cut in the middle to what fits; empty when nothing of it does."""
        if self.width(text, size) <= room:
            return text
        fits = _largest(len(text), lambda length: self.width(shortened(text, length), size) <= room)
        return shortened(text, fits) if fits > 1 else ""

    def lines(self, text: str, room: float, size: float, most: int) -> list[str]:
        """Return ``text`` broken into at most ``most`` lines, the last one cut in the middle to what fits."""
        if most == 1 or self.width(text, size) <= room:
            return [self.fitted(text, room, size)]
        fits = _largest(len(text), lambda length: self.width(text[:length], size) <= room)
        line = text[:fits].rpartition(" ")[0] or text[:fits]
        return [line, *self.lines(text[len(line) :].lstrip(), room, size, most - 1)]


def _largest(limit: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number from 1, below ``limit``, that fits, when all smaller ones do."""
    return bisect_left(range(1, limit), 1, key=lambda number: not fits(number))
