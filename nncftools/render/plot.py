"""The picture of a session: memory over time with the peak and the limit, below a band of operations.

Other pictures of sessions use the same functions.
"""

from __future__ import annotations

import pathlib
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.transforms import ScaledTranslation, Transform, blended_transform_factory

from nncftools import drawing
from nncftools.analysis.session import Session
from nncftools.analysis.summary import largest_rank, run_s
from nncftools.drawing import DPI, FAINT, INK, PALETTE, Ruler
from nncftools.render.listing import Fill, NumberedOperation, number_operations, place_in_lanes
from nncftools.render.peak_lines import MemoryLine, choose_drawn_limit, label_peak, memory_line
from nncftools.render.view import View, clip, label, write_title
from nncftools.session.model import RankRun

_TITLE = 180
"""Longest title, in characters; the next two constants limit a line of the title and the name of a rank."""
_TITLE_LINE = 95
_NAME = 30
_BESIDE_PEAK = 1.2
"""The text about the peak is normally just above the peak. If the limit is less than this multiple of the peak, the
text is above the line of the limit instead.
"""
_ABOVE_PEAK = 1.24
"""Upper end of the axis as a multiple of the largest value, so that the text about the peak has room."""
_ABOVE_BAND = 6
"""Distance between the band of operations and the title, in points."""
_POINTS = 72
"""Points per inch."""


@drawing.missing_glyphs_as_boxes()
def draw(session: Session, view: View, path: pathlib.Path) -> None:
    """Write the picture; the suffix of ``path`` is the format. Raises OSError."""
    picture, axes = drawing.figure()
    draw_memory(axes, session, view)
    drawing.time_axis(axes, run_s(session))
    band = Band(number_operations(session, view.depth), run_s(session))
    band.tint(axes)
    band.draw(axes, Ruler())
    axes.set_title(
        textwrap.fill(write_title(session, view, _TITLE), _TITLE_LINE),
        loc="left",
        fontsize=10,
        parse_math=False,
        pad=band.height * _POINTS + _ABOVE_BAND,
    )
    names = axes.get_legend_handles_labels()[1]
    if len(names) > 1 or (names and len(view.metrics) > 1):
        drawing.legend_below(picture, 3)
    drawing.save(picture, path)


def draw_memory(axes: Axes, session: Session, view: View) -> None:
    """Draw the metrics of the view, their peaks, and the limit.

    For a single metric, the text about the peak is beside the peak; for several metrics, these texts are in the legend.
    The ranks of a job are thin lines.
    """
    is_single = len(view.metrics) == 1
    name = label(view.metrics[0]) if is_single else "Memory"
    label_values(axes, f"{name}{view.above} ({view.unit})")
    if session.ranks and view.metrics[:1] == ["rss"] and not view.from_zero:
        _draw_ranks(axes, session.ranks, view)
    has_data = False
    for number, metric in enumerate(view.metrics):
        line = memory_line(session, view, metric)
        if line is None:
            continue
        has_data = True
        look = (INK, "-") if is_single else drawing.line_style(number)
        text = name if is_single else line.peak_text
        draw_line(axes, (line.time_s, line.sizes), look, text, is_sparse=line.is_sparse)
        drawing.draw_peak(axes, line.peak, look[0], line.mark)
        if is_single:
            _write_peak(axes, session, view, line)
    if not has_data:
        draw_note(axes, "no samples were recorded")
        return
    lowest, highest = axes.dataLim.intervaly
    limit = choose_drawn_limit(session, view)
    if limit is not None:
        drawing.draw_limit(axes, limit.size, f"{limit.name}\n{limit.size_text}")
        highest = max(highest, limit.size)
    if highest > lowest:
        bottom = lowest - (highest - lowest) * 0.04 if lowest < 0 else 0
        axes.set_ylim(bottom, highest * _ABOVE_PEAK)


def _write_peak(axes: Axes, session: Session, view: View, line: MemoryLine) -> None:
    at_s, size = line.peak
    limit = choose_drawn_limit(session, view)
    if limit is not None and size <= limit.size < size * _BESIDE_PEAK:
        size = limit.size
    below = label_peak(session, view.unit) if view.metrics[0] == "rss" else ""
    is_left = at_s < run_s(session) / 2
    _write_beside(axes, (at_s, size), line.peak_text, below, is_left=is_left)


def label_values(axes: Axes, text: str) -> None:
    """Label the y axis; write numbers with thousands separators."""
    axes.set_ylabel(text, fontsize=9, parse_math=False)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.12g}")


def draw_line(
    axes: Axes, points: tuple[Any, Any], look: tuple[str, str], label: str, *, is_sparse: bool = False
) -> None:
    """Draw a line with colour and style ``look``; if there are few points, mark each point."""
    colour, style = look
    marker = "." if is_sparse else drawing.marker_for(points[0])
    axes.plot(*points, style, color=colour, linewidth=1.6, marker=marker, label=label)


def draw_note(axes: Axes, text: str) -> None:
    """Write into an empty panel why it has no data."""
    axes.set(yticks=[], ylim=(0, 1))
    axes.text(
        0.5,
        0.5,
        text,
        transform=axes.transAxes,
        ha="center",
        va="center",
        color=FAINT,
        fontsize=9,
    )


def _draw_ranks(axes: Axes, runs: Sequence[RankRun], view: View) -> None:
    """Draw the RSS of each rank of a job as a thin line; only the largest rank has a colour and a label."""
    largest = largest_rank(runs)
    middle_s = max(run.start_s + run.duration_s for run in runs) / 2
    for run in runs:
        rss = np.array(run.rss, dtype=np.float64) / view.unit.factor
        if np.isnan(rss).all():
            continue
        colour = PALETTE[0] if run is largest else FAINT
        axes.plot(run.time_s, rss, color=colour, linewidth=0.9)
        if run is largest:
            top = int(np.nanargmax(rss))
            point = (run.time_s[top], float(rss[top]))
            text = f"the largest: {clip(run.name, _NAME)}, {view.unit.label(run.peaks['rss'].low)}"
            _write_beside(axes, point, text, is_left=point[0] < middle_s)


def _write_beside(axes: Axes, point: tuple[float, float], text: str, below: str = "", *, is_left: bool) -> None:
    """Write a text beside a point, towards the middle of the picture; ``below`` is a second line in smaller letters."""
    distance, side = (8, "left") if is_left else (-8, "right")
    height = 18 if below else 7
    for line, above, size in ((text, height, 9), (below, 7, 8)):
        drawing.annotate(
            axes,
            line,
            point,
            (distance, above),
            ha=side,
            fontsize=size,
            color=INK,
        )


_Span = tuple[float, float]
"""Start and width on the time axis, in seconds."""
_SIZE = 7.5
"""Font size of the names in a band, in points."""
LANE = 0.2
"""Height of a lane with names, in inches."""
_THIN_LANE = 0.06
_MOST_LANES = 4
_NARROWEST = 0.0008
"""Least width of an operation as a share of the run."""
_WIDE = 0.006
"""An operation that is narrower than this share of the run has neither hatch nor number."""
_MARGIN = 0.03
_CUT_NAME = 0.9
"""Least room for a shortened name, in inches. With less room, the name is left out."""


class Band:
    """A band of operations in lanes, above a time axis of ``length_s`` seconds.

    Operations in the same lane do not overlap. If more operations run at once than there are lanes, the operations that
    start last are left out.
    """

    def __init__(self, operations: Sequence[NumberedOperation], length_s: float) -> None:
        self._length_s = length_s
        rows = [row for row in operations if row.operation.overlaps(0, length_s)]
        self._placed = place_in_lanes(rows, _MOST_LANES)
        self._left_out = len(rows) - len(self._placed)
        self._lanes = max((lane + 1 for *_, lane in self._placed), default=0)

    @property
    def height(self) -> float:
        """Height of the band if names are drawn, in inches."""
        return self._lanes * LANE

    def tint(self, axes: Axes) -> None:
        """Tint the background of the axes while operations of the first lane run."""
        spans: dict[str, list[_Span]] = {}
        for _, row, lane in self._placed:
            if lane == 0:
                spans.setdefault(row.fill.colour, []).append(self._place(row))
        for colour, equal in spans.items():
            look: dict[str, Any] = {
                "transform": axes.get_xaxis_transform(),
                "alpha": 0.16,
                "zorder": 0,
            }
            axes.broken_barh(equal, (0, 1), facecolor=colour, linewidth=0, **look)

    def draw(self, axes: Axes, ruler: Ruler | None = None, above: float = 0.0) -> None:
        """Draw the band; the distance to the axes below is ``above`` inches.

        ``ruler`` measures the width of names. Without a ruler, draw thin lanes without names. If a name does not fit,
        only the number is drawn, or nothing. All bars with the same look are a single artist of Matplotlib, because
        many artists are slow.
        """
        height = _THIN_LANE if ruler is None else LANE
        transform = inches_above(axes)
        spans: dict[tuple[Fill, float, bool], list[_Span]] = {}
        for _, row, lane in self._placed:
            start_s, width_s = self._place(row)
            bottom = above + (self._lanes - lane - 1) * height
            is_wide = width_s > self._length_s * _WIDE
            fill = row.fill if is_wide else Fill(row.fill.colour)
            spans.setdefault((fill, bottom, is_wide), []).append((start_s, width_s))
            if ruler is not None and is_wide:
                room = width_s / self._length_s * axes.bbox.width / DPI - _MARGIN
                middle = (start_s + width_s / 2, bottom + height / 2)
                _write_on(axes, fill, middle, _fit_name(row, room, ruler))
        for (fill, bottom, is_wide), equal in spans.items():
            look: dict[str, Any] = {
                "facecolor": fill.colour,
                "hatch": fill.hatch,
                "edgecolor": "white",
            }
            width = 0.7 * is_wide
            axes.broken_barh(
                equal,
                (bottom, height),
                transform=transform,
                clip_on=False,
                linewidth=width,
                **look,
            )
        if ruler is not None and self._left_out:
            beside = (1.005 * self._length_s, above + height / 2)
            write(axes, beside, f"and {self._left_out:,} more", transform=transform, color=FAINT)

    def _place(self, row: NumberedOperation) -> _Span:
        start_s = max(0.0, row.operation.start_s)
        end_s = min(row.operation.end_s, self._length_s)
        width_s = max(end_s - start_s, self._length_s * _NARROWEST)
        return min(start_s, self._length_s - width_s), width_s


def inches_above(axes: Axes) -> Transform:
    """Return a transform for points: x in data units, y in inches above the axes."""
    top = ScaledTranslation(0, 1, axes.transAxes)  # type: ignore[arg-type]  # it is affine
    return blended_transform_factory(axes.transData, axes.figure.dpi_scale_trans + top)


def _fit_name(row: NumberedOperation, room: float, ruler: Ruler) -> str:
    """Return the number and as much of the title as fits; empty if nothing readable fits."""
    for title in (row.title, row.short_title, ""):
        text = f"{row.number} {title}".strip()
        if ruler.width(text, _SIZE) <= room:
            return text
        if title == row.short_title and room >= _CUT_NAME:
            return ruler.fitted(text, room, _SIZE)
    return ""


def _write_on(axes: Axes, fill: Fill, middle: tuple[float, float], text: str) -> None:
    look: dict[str, Any] = {"color": fill.ink, "ha": "center", "fontsize": _SIZE}
    if fill.hatch:
        look["bbox"] = {"boxstyle": "square,pad=0.1", "facecolor": fill.colour, "edgecolor": "none"}
    if text:
        write(axes, middle, text, transform=inches_above(axes), **look)


def write(axes: Axes, point: tuple[float, float], text: str, **look: Any) -> None:  # noqa: ANN401 — any property of a text
    """Write a small text, dark by default; dollar signs in the text do not begin a formula."""
    axes.text(
        *point,
        text,
        **{"fontsize": 8.0, "color": INK, "va": "center", "parse_math": False, **look},
    )
