"""The picture of a session: memory over time, with its peak."""

from __future__ import annotations

import pathlib
import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from nncftools import drawing
from nncftools.analysis.session import Session
from nncftools.analysis.summary import largest_rank
from nncftools.drawing import FAINT, INK, PALETTE
from nncftools.render.listing import numbered
from nncftools.render.peak_lines import DrawnLimit, drawn_limit, memory_line, peak_label
from nncftools.render.view import View, command_text
from nncftools.session.model import RankRun
from nncftools.units import printable, shortened

_TITLE, _TITLE_LINE, _NAME = 180, 95, 30
"""Lengths of texts, in characters."""
_MOST_OPERATIONS = 60
"""When there are more, the longest are shown."""
_ROOM_PER_CHARACTER, _FEWEST_CHARACTERS = 0.0085, 10
"""As a share of the picture's width; less of a name says nothing."""
_BESIDE_PEAK = 1.12
"""The text of a peak would cross a limit that is nearer."""
_ABOVE_PEAK = 1.24
"""The top of the axis: the text of a peak and names of operations are above the data."""
_SHADES = ("#f2f2f2", "#e4ecf4")


def draw(session: Session, view: View, path: pathlib.Path) -> None:
    """Write the picture; the suffix of the path is the format. Raises OSError."""
    picture, axes = drawing.figure()
    has_data = draw_on(axes, session, view)
    title = printable(view.title) or shortened(command_text(session), _TITLE)
    axes.set_title("\n".join(textwrap.wrap(title, _TITLE_LINE)), loc="left", fontsize=10, parse_math=False)
    if not has_data:
        axes.text(0.5, 0.5, "no samples were recorded", transform=axes.transAxes, ha="center", va="center")
    elif len(view.metrics) > 1:
        drawing.legend_below(picture, min(3, len(view.metrics)))
    drawing.save(picture, path)


def draw_on(axes: Axes, session: Session, view: View) -> bool:
    """Draw memory, operations and the limit, with their axes; return whether any sample contains a metric."""
    if session.ranks and view.metrics[:1] == ["rss"] and not view.from_zero:
        _draw_ranks(axes, session.ranks, view)
    limit = drawn_limit(session, view)
    known = [_draw_metric(axes, session, view, number, limit) for number in range(len(view.metrics))]
    _shade_operations(axes, session)
    drawing.time_axis(axes, session.duration_s)
    axes.set_ylabel(f"Memory{view.above} ({view.unit})")
    axes.yaxis.set_major_formatter("{x:,g}")
    lowest, highest = axes.dataLim.intervaly
    if limit is not None:
        drawing.draw_limit(axes, limit.size)
        beside = {"xycoords": axes.get_yaxis_transform(), "va": "center", "linespacing": 1.3}
        drawing.annotate(axes, limit.label, (1, limit.size), (5, 0), fontsize=9, color=INK, **beside)
        highest = max(highest, limit.size)
    if highest > lowest:
        axes.set_ylim(lowest - (highest - lowest) * 0.04 if lowest < 0 else 0, highest * _ABOVE_PEAK)
    return any(known)


def _shade_operations(axes: Axes, session: Session) -> None:
    """Shade the outermost operations in alternating colours, and write the names that fit above the panel."""
    outer = [operation for operation in session.operations if operation.depth == 0]
    if len(outer) > _MOST_OPERATIONS:
        shortest_s = sorted(operation.duration_s for operation in outer)[-_MOST_OPERATIONS]
        outer = [operation for operation in outer if operation.duration_s > shortest_s]
    named_until_s = 0.0
    for number, row in enumerate(numbered(outer, session)):
        operation = row.operation
        axes.axvspan(operation.start_s, operation.end_s, color=_SHADES[number % len(_SHADES)], zorder=0, linewidth=0)
        room = int(operation.duration_s / (session.duration_s * _ROOM_PER_CHARACTER)) if session.duration_s else 0
        name = row.fitted(min(room, _NAME), _FEWEST_CHARACTERS)
        if name and operation.start_s >= named_until_s:
            named_until_s = operation.start_s + (len(name) + 1) * session.duration_s * _ROOM_PER_CHARACTER
            where = {"xycoords": axes.get_xaxis_transform(), "ha": "left", "va": "top"}
            drawing.annotate(axes, name, (operation.start_s, 1), (3, -3), fontsize=8, color=FAINT, **where)


def _draw_metric(axes: Axes, session: Session, view: View, number: int, limit: DrawnLimit | None = None) -> bool:
    """Draw metric ``number`` of the view and its peak; return False when no sample contains it.

    The peak's text is beside the peak when the metric is the only one, and otherwise in the legend.
    """
    if (line := memory_line(session, view, view.metrics[number])) is None:
        return False
    colour, style = drawing.line_style(number)
    marker = "." if line.is_sparse else drawing.marker_for(line.time_s)
    text = line.peak_text
    axes.plot(line.time_s, line.sizes, style, color=colour, linewidth=1.6, marker=marker, label=text)
    drawing.draw_peak(axes, line.peak, colour, line.mark)
    if len(view.metrics) == 1:
        at_s, size = line.peak
        if limit is not None and size <= limit.size < size * _BESIDE_PEAK:
            size = limit.size
        below = peak_label(session, view.unit) if view.metrics[0] == "rss" else ""
        _write_beside(axes, (at_s, size), text, colour, is_left=at_s < session.duration_s / 2, below=below)
    return True


def _draw_ranks(axes: Axes, runs: Sequence[RankRun], view: View) -> None:
    """Draw the RSS of each rank of a job as a thin line; the largest rank in colour and with its name."""
    largest = largest_rank(runs)
    middle_s = max(run.start_s + run.duration_s for run in runs) / 2
    for run in runs:
        rss = np.array(run.rss, dtype=np.float64) / view.unit.factor
        if np.isnan(rss).all():
            continue
        if run is not largest:
            axes.plot(run.time_s, rss, color=FAINT, linewidth=0.7)
            continue
        axes.plot(run.time_s, rss, color=PALETTE[0], linewidth=1.1)
        top = int(np.nanargmax(rss))
        text = f"the largest: {shortened(printable(run.name), _NAME)}, {view.unit.label(run.peaks['rss'].low)}"
        _write_beside(axes, (run.time_s[top], float(rss[top])), text, PALETTE[0], is_left=run.time_s[top] < middle_s)


def _write_beside(  # noqa: PLR0913 — what, where, and how
    axes: Axes, point: tuple[float, float], text: str, colour: str, *, is_left: bool, below: str = ""
) -> None:
    """Write beside a point, towards the middle of the picture; ``below`` is a second line in small print."""
    aside, side = (8, "left") if is_left else (-8, "right")
    drawing.annotate(
        axes, text, point, (aside, 18 if below else 7), ha=side, fontsize=9, color=colour, fontweight="bold"
    )
    if below:
        drawing.annotate(axes, below, point, (aside, 7), ha=side, fontsize=8, color=INK)
