"""The picture of a session: memory over time, with its peak, its limit and the operations above it."""

from __future__ import annotations

import pathlib
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from nncftools import drawing
from nncftools.analysis.session import Session
from nncftools.analysis.summary import largest_rank, run_s
from nncftools.drawing import FAINT, INK, PALETTE, Ruler
from nncftools.render.listing import numbered, timeline
from nncftools.render.operation_bars import Band
from nncftools.render.peak_lines import drawn_limit, memory_line, peak_label
from nncftools.render.view import View, command_text, label
from nncftools.session.model import RankRun
from nncftools.units import printable, shortened

_TITLE, _TITLE_LINE, _NAME = 180, 95, 30
"""Lengths of texts, in characters."""
_BESIDE_PEAK = 1.2
"""A limit is moved past by the text of a peak that is nearer than this."""
_ABOVE_PEAK = 1.24
"""The top of the axis: the text of the peak is above the data."""
_ABOVE_BAND, _POINTS = 6, 72
"""Points between the band and the title, and in an inch."""


@drawing.missing_glyphs_as_boxes()
def draw(session: Session, view: View, path: pathlib.Path) -> None:
    """Write the picture; the suffix of the path is the format. Raises OSError."""
    picture, axes = drawing.figure()
    draw_memory(axes, session, view)
    drawing.time_axis(axes, run_s(session))
    band = Band(numbered(timeline(session.operations, view.depth), session), run_s(session))
    band.tint(axes)
    band.draw(axes, Ruler())
    title = "\n".join(textwrap.wrap(printable(view.title) or shortened(command_text(session), _TITLE), _TITLE_LINE))
    pad = band.height * _POINTS + _ABOVE_BAND
    axes.set_title(title, loc="left", fontsize=10, parse_math=False, pad=pad)
    names = axes.get_legend_handles_labels()[1]
    if len(names) > 1 or (names and len(view.metrics) > 1):
        drawing.legend_below(picture, 3)
    drawing.save(picture, path)


def draw_memory(axes: Axes, session: Session, view: View) -> None:
    """Draw the metrics of the view, their peaks, and the limit.

    The peak's text is beside the peak when the metric is the only one, and otherwise in the legend. Ranks of a job have
    thin lines.
    """
    is_single = len(view.metrics) == 1
    name = label(view.metrics[0]) if is_single else "Memory"
    label_values(axes, f"{name}{view.above} ({view.unit})")
    if session.ranks and view.metrics[:1] == ["rss"] and not view.from_zero:
        _draw_ranks(axes, session.ranks, view)
    limit = drawn_limit(session, view)
    has_data = False
    for number, metric in enumerate(view.metrics):
        if (line := memory_line(session, view, metric)) is None:
            continue
        has_data = True
        colour, style = (INK, "-") if is_single else drawing.line_style(number)
        text = name if is_single else line.peak_text
        draw_line(axes, (line.time_s, line.sizes), (colour, style), text, is_sparse=line.is_sparse)
        drawing.draw_peak(axes, line.peak, colour, line.mark)
        if is_single:
            at_s, size = line.peak
            if limit is not None and size <= limit.size < size * _BESIDE_PEAK:
                size = limit.size
            below = peak_label(session, view.unit) if metric == "rss" else ""
            _write_beside(axes, (at_s, size), line.peak_text, below, is_left=at_s < run_s(session) / 2)
    if not has_data:
        draw_note(axes, "no samples were recorded")
        return
    lowest, highest = axes.dataLim.intervaly
    if limit is not None:
        drawing.draw_limit(axes, limit.size, limit.label)
        highest = max(highest, limit.size)
    if highest > lowest:
        axes.set_ylim(lowest - (highest - lowest) * 0.04 if lowest < 0 else 0, highest * _ABOVE_PEAK)


def label_values(axes: Axes, text: str) -> None:
    """Label the y axis, and write its numbers with thousands separators."""
    axes.set_ylabel(text, fontsize=9, parse_math=False)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.12g}")


def draw_line(
    axes: Axes, points: tuple[Any, Any], look: tuple[str, str], label: str, *, is_sparse: bool = False
) -> None:
    """Draw a line in a colour and style; where it has few points, each is marked."""
    colour, style = look
    marker = "." if is_sparse else drawing.marker_for(points[0])
    axes.plot(*points, style, color=colour, linewidth=1.6, marker=marker, label=label)


def draw_note(axes: Axes, text: str) -> None:
    """Write why a panel has no data."""
    axes.set(yticks=[], ylim=(0, 1))
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=FAINT, fontsize=9)


def _draw_ranks(axes: Axes, runs: Sequence[RankRun], view: View) -> None:
    """Draw the RSS of each rank of a job as a thin line; the largest rank in colour and with its name."""
    largest = largest_rank(runs)
    middle_s = max(run.start_s + run.duration_s for run in runs) / 2
    for run in runs:
        rss = np.array(run.rss, dtype=np.float64) / view.unit.factor
        if np.isnan(rss).all():
            continue
        axes.plot(run.time_s, rss, color=PALETTE[0] if run is largest else FAINT, linewidth=0.9)
        if run is largest:
            top = int(np.nanargmax(rss))
            text = f"the largest: {shortened(printable(run.name), _NAME)}, {view.unit.label(run.peaks['rss'].low)}"
            _write_beside(axes, (run.time_s[top], float(rss[top])), text, is_left=run.time_s[top] < middle_s)


def _write_beside(axes: Axes, point: tuple[float, float], text: str, below: str = "", *, is_left: bool) -> None:
    """Write beside a point, towards the middle of the picture; ``below`` is a second line in small print."""
    aside, side = (8, "left") if is_left else (-8, "right")
    drawing.annotate(axes, text, point, (aside, 18 if below else 7), ha=side, fontsize=9, color=INK)
    drawing.annotate(axes, below, point, (aside, 7), ha=side, fontsize=8, color=INK)
