"""The look of all pictures: one palette, one figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""Okabe and Ito: tells apart also for the colour-blind. Yellow is left out: too light on white."""
SHADES = ("#f2f2f2", "#e4ecf4")
"""Behind operations, in turn."""
FAINT = "#5f6368"
LINES = ("-", "--")
"""For more metrics than there are colours."""
_SIZE = (10.0, 4.8)
_DPI = 120
_MINUTE = 60
_HOUR = 3600


def figure() -> tuple[Figure, Axes]:
    """Return a figure with one empty panel."""
    drawing = Figure(figsize=_SIZE, dpi=_DPI, layout="constrained")
    axes = drawing.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, color="#e3e3e3", linewidth=0.8)
    axes.set_axisbelow(True)
    return drawing, axes


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
