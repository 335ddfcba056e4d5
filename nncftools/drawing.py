"""The parts that all pictures share: colours, an empty matplotlib figure, time axis, legend, fitted text, saving."""

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
"""The colours of Okabe and Ito, which colour-blind readers can tell apart. Yellow is left out, because yellow is too
light on white."""
FAINT = "#5f6368"
INK = "#202124"
"""Colour of lines and text in pictures where the other colours stand for operations."""
DPI = 120
LAYOUT = ConstrainedLayoutEngine(h_pad=0.1, w_pad=0.1)
"""The layout of all pictures, with this distance from the edges in inches."""
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
    """Return a figure with an empty panel; the title is a command line."""
    drawing, axes = figure()
    title = shortened(printable(shlex.join(words)), _TITLE)
    axes.set_title(title, loc="left", fontsize=10, fontweight="bold", parse_math=False)
    return drawing, axes


@contextmanager
def missing_glyphs_as_boxes() -> Iterator[None]:
    """Suppress Matplotlib's warnings about characters that the font lacks; Matplotlib draws boxes instead."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        yield


def save(drawing: Figure, path: pathlib.Path, kind: str = "") -> None:
    """Write a figure to a file in the format ``kind``, by default the ending of ``path``. Raises OSError."""
    content = io.BytesIO()
    with missing_glyphs_as_boxes():
        drawing.savefig(content, format=kind or ending_in(path.name)[1:])
    write_file(path, content.getvalue())


def plain(axes: Axes) -> None:
    """Draw a light grid behind the data of a panel, and remove the frame at the top and at the right."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#e3e3e3")
    axes.set_axisbelow(True)


def time_axis(axes: Axes, duration_s: float) -> None:
    """Label the x axis in a unit that suits the duration; the data of the axis is in seconds."""
    factor, unit = time_unit(duration_s)
    end_s = max(duration_s, 1e-3)
    axes.set_xlabel(f"Time ({unit})")
    axes.set_xlim(0, end_s)
    locator = MaxNLocator(9, steps=[1, 2, 5, 10])
    ticks = locator.tick_values(0, end_s / factor)
    axes.set_xticks([tick * factor for tick in ticks if tick * factor <= duration_s * 1.0001])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / factor:g}")


def line_style(number: int) -> tuple[str, str]:
    """Return the colour and the style of line ``number``. Up to 14 lines look different."""
    return PALETTE[number % len(PALETTE)], _LINES[number // len(PALETTE) % len(_LINES)]


def marker_for(points: Sized) -> str:
    """Return the marker for the points of a line: a dot if the line has few points, otherwise nothing."""
    return "." if len(points) <= _FEW_POINTS else ""


def draw_peak(axes: Axes, point: tuple[float, float], colour: str, mark: tuple[float, float] | None = None) -> None:
    """Draw a dot at a peak.

    If the peak is above all samples and is known only from a high-water mark, ``mark`` is the time span in which memory
    rose to the peak: ``(begin, end)``. The span is drawn as a bar.
    """
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
    """Draw a memory limit as a line across the panel; ``label`` is the line's text in the legend."""
    axes.axhline(
        size,
        color=INK,
        linewidth=1,
        linestyle=(0, (5, 3)),
        zorder=1.8,
        label=label,
    )


def annotate(axes: Axes, text: str, point: tuple[float, float], offset: tuple[float, float], **properties: Any) -> None:  # noqa: ANN401 — any property of a text
    """Write a text next to ``point``, at a distance of ``offset`` (in typographic points).

    A dollar sign in the text does not start mathematics.
    """
    axes.annotate(text, point, offset, textcoords="offset points", parse_math=False, **properties)


def legend_below(drawing: Figure, columns: int) -> None:
    """Draw the legend below the panel, in at most ``columns`` columns.

    A dollar sign in the legend does not start mathematics.
    """
    legend = drawing.legend(loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
    for text in legend.get_texts():
        text.set_parse_math(False)
    if columns > 1 and legend.get_window_extent().width > drawing.bbox.width:
        legend.remove()
        legend_below(drawing, columns - 1)


class Ruler:
    """Measures how wide a text is when drawn. Widths are in inches, font sizes in points."""

    def __init__(self) -> None:
        self._renderer: RendererBase = RendererAgg(1, 1, DPI)  # type: ignore[no-untyped-call]

    def width(self, text: str, size: float) -> float:
        """Return the width of a line of text in inches. ``size`` is the size of the font in points."""
        font = FontProperties(size=size)
        return self._renderer.get_text_width_height_descent(text, font, ismath=False)[0] / DPI

    def fitted(self, text: str, room: float, size: float) -> str:
        """Return a text that fits into ``room`` inches: if necessary, cut out the middle. Empty if nothing fits."""
        if self.width(text, size) <= room:
            return text
        fits = _largest(
            len(text),
            lambda length: self.width(shortened(text, length), size) <= room,
        )
        return shortened(text, fits) if fits > 1 else ""

    def lines(self, text: str, room: float, size: float, most: int) -> list[str]:
        """Wrap a text into lines of at most ``room`` inches; ``size`` is the size of the font in points.

        ``most`` is the largest number of lines. If necessary, the last line is shortened.
        """
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
    """Return the largest number from 1 to ``limit - 1`` that fits. If a number fits, all smaller numbers must fit."""
    return bisect_left(range(1, limit), 1, key=lambda number: not fits(number))
