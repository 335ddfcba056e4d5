"""Parts of all pictures: the palette, the figure, the time axis, the legend, text that fits, the file."""

from __future__ import annotations

import io
import pathlib
import shlex
import warnings
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import contextmanager
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from nncftools.files import ending_in, write_file
from nncftools.units import printable, shortened, time_unit

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""The palette of Okabe and Ito, which colour-blind readers can distinguish. Yellow, too light on white, is left out."""
FAINT = "#5f6368"
INK = "#202124"
"""Colour of lines and text in pictures where other colours mark operations."""
DPI = 120
LAYOUT = ConstrainedLayoutEngine(h_pad=0.1, w_pad=0.1)
"""Of all pictures; keeps this distance, in inches, from the edges."""
_TITLE = 90
_LINES = ("-", "--")
_FEW_POINTS = 40


def figure() -> tuple[Figure, Axes]:
    """Return a figure with one empty panel."""
    drawing = Figure(figsize=(10.0, 4.8), dpi=DPI, layout=LAYOUT)
    axes = drawing.add_subplot()
    plain(axes)
    return drawing, axes


def figure_of_command(words: Sequence[str]) -> tuple[Figure, Axes]:
    """Return a figure whose title is a command."""
    drawing, axes = figure()
    title = shortened(printable(shlex.join(words)), _TITLE)
    axes.set_title(title, loc="left", fontsize=10, fontweight="bold", parse_math=False)
    return drawing, axes


@contextmanager
def missing_glyphs_as_boxes() -> Iterator[None]:
    """Suppress the warnings about characters that the font lacks: Matplotlib draws them as boxes."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        yield


def save(drawing: Figure, path: pathlib.Path, kind: str = "") -> None:
    """Write a figure in the format ``kind``, by default the ending of the path. Raises OSError."""
    content = io.BytesIO()
    with missing_glyphs_as_boxes():
        drawing.savefig(content, format=kind or ending_in(path.name)[1:])
    write_file(path, content.getvalue())


def plain(axes: Axes) -> None:
    """Give a panel a light grid behind its data, and no frame above and on the right."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#e3e3e3")
    axes.set_axisbelow(True)


def time_axis(axes: Axes, duration_s: float) -> None:
    """Label the x axis, whose data is in seconds, in the unit that suits the duration."""
    factor, unit = time_unit(duration_s)
    end_s = max(duration_s, 1e-3)
    axes.set_xlabel(f"Time ({unit})")
    axes.set_xlim(0, end_s)
    locator = MaxNLocator(9, steps=[1, 2, 5, 10])
    ticks = locator.tick_values(0, end_s / factor)
    axes.set_xticks([tick * factor for tick in ticks if tick * factor <= duration_s * 1.0001])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / factor:g}")


def line_style(number: int) -> tuple[str, str]:
    """Return the colour and the style of line ``number``; 14 lines look different."""
    return PALETTE[number % len(PALETTE)], _LINES[number // len(PALETTE) % len(_LINES)]


def marker_for(points: Sized) -> str:
    """Return the marker for the points of a line: a line of few points shows each point."""
    return "." if len(points) <= _FEW_POINTS else ""


def draw_peak(axes: Axes, point: tuple[float, float], colour: str, mark: tuple[float, float] | None = None) -> None:
    """Draw a dot at a peak; for a high-water mark above the line, also a bar over the time of the rise."""
    if mark is None:
        axes.plot(*point, marker="o", color=colour, markersize=6, markeredgecolor="white")
        return
    axes.vlines(
        point[0],
        0,
        point[1],
        color=colour,
        linewidth=0.9,
        linestyle=":",
        zorder=2.5,
    )
    axes.plot(
        mark,
        (point[1], point[1]),
        color=colour,
        linewidth=1.6,
        solid_capstyle="butt",
    )
    axes.plot(*point, marker="o", color="white", markersize=6, markeredgecolor=colour)


def draw_limit(axes: Axes, size: float, label: str) -> None:
    """Draw a memory limit over the whole width; ``label`` is its text in a legend."""
    axes.axhline(
        size,
        color=INK,
        linewidth=1,
        linestyle=(0, (5, 3)),
        zorder=1.8,
        label=label,
    )


def annotate(axes: Axes, text: str, point: tuple[float, float], offset: tuple[float, float], **properties: Any) -> None:  # noqa: ANN401 — any property of a text
    """Write a text at a distance of ``offset`` points from a point; dollar signs do not start mathematics."""
    axes.annotate(text, point, offset, textcoords="offset points", parse_math=False, **properties)


def legend_below(drawing: Figure, columns: int) -> None:
    """Write the legend below the panel, in fewer columns if there is no room; dollar signs do not start mathematics."""
    legend = drawing.legend(loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
    for text in legend.get_texts():
        text.set_parse_math(False)
    if columns > 1 and legend.get_window_extent().width > drawing.bbox.width:
        legend.remove()
        legend_below(drawing, columns - 1)


class Ruler:
    """Measures drawn text: widths in inches, font sizes in points."""

    def __init__(self) -> None:
        self._renderer: RendererBase = RendererAgg(1, 1, DPI)  # type: ignore[no-untyped-call]

    def width(self, text: str, size: float) -> float:
        """Return the width of one line."""
        font = FontProperties(size=size)
        return self._renderer.get_text_width_height_descent(text, font, ismath=False)[0] / DPI

    def fitted(self, text: str, room: float, size: float) -> str:
        """Return a line that fits into ``room``, shortened in the middle if necessary; empty when no part fits."""
        if self.width(text, size) <= room:
            return text
        fits = _largest(
            len(text),
            lambda length: self.width(shortened(text, length), size) <= room,
        )
        return shortened(text, fits) if fits > 1 else ""

    def lines(self, text: str, room: float, size: float, most: int) -> list[str]:
        """Return ``text`` wrapped into at most ``most`` lines; the last line is shortened in the middle to fit."""
        if most == 1 or self.width(text, size) <= room:
            return [self.fitted(text, room, size)]
        fits = _largest(
            len(text),
            lambda length: self.width(text[:length], size) <= room,
        )
        line = text[:fits].rpartition(" ")[0] or text[:fits]
        return [
            line,
            *self.lines(text[len(line) :].lstrip(), room, size, most - 1),
        ]


def _largest(limit: int, fits: Callable[[int], bool]) -> int:
    """Search 1 to ``limit - 1`` for the largest number that fits; all smaller numbers fit, too."""
    return bisect_left(range(1, limit), 1, key=lambda number: not fits(number))
