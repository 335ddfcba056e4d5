"""The picture of a session: memory over time, with its peak."""

from __future__ import annotations

import textwrap
import warnings
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import StrMethodFormatter

from nncftools.analysis.series import decimated_with_gaps
from nncftools.analysis.summary import largest_rank, level
from nncftools.drawing import FAINT, LINES, PALETTE, SHADES, figure, time_axis
from nncftools.files import replacing
from nncftools.render.view import View, command_text, label
from nncftools.text import printable, shortened
from nncftools.units import seconds_text

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from nncftools.session.model import RankRun
    from nncftools.session.session import Session

_TITLE = 180
_TITLE_LINE = 95
_FEW = 40
"""Samples up to this number are drawn as points as well."""
_ROOM_ABOVE = 1.14
_OPERATION = 30
_MOST_OPERATIONS = 60
"""Of more, the longest are shown."""
_ROOM_PER_CHARACTER = 0.009
"""Of the picture's width."""
_LEGEND_COLUMNS = 3
_ROOM_BELOW = 0.04


def draw(session: Session, view: View, path: pathlib.Path) -> None:
    """Write the picture; the format is the path's ending. Raises OSError."""
    drawing, axes = figure()
    if session.ranks and view.metrics[0] == "rss" and not view.from_zero:
        _draw_ranks(axes, session.ranks, view)
    for place in range(len(view.metrics)):
        _draw_metric(axes, session, view, place)
    _shade_operations(axes, session)
    time_axis(axes, session.duration_s)
    zero = " above the first sample" if view.from_zero else ""
    axes.set_ylabel(f"Memory{zero} ({view.unit})")
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    lowest, highest = axes.dataLim.intervaly
    if highest > lowest:
        axes.set_ylim(lowest - (highest - lowest) * _ROOM_BELOW if lowest < 0 else 0, highest * _ROOM_ABOVE)
    title = printable(view.title) or shortened(command_text(session), _TITLE)
    axes.set_title("\n".join(textwrap.wrap(title, _TITLE_LINE)), loc="left", fontsize=10, parse_math=False)
    if not any(session.samples.figures(name).known for name in view.metrics):
        axes.text(0.5, 0.5, "no samples were recorded", transform=axes.transAxes, ha="center", va="center")
    elif len(view.metrics) > 1:
        columns = min(_LEGEND_COLUMNS, len(view.metrics))
        legend = drawing.legend(loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
        for text in legend.get_texts():
            text.set_parse_math(False)
    with replacing(path) as beside, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)  # drawn as boxes
        drawing.savefig(beside, format=path.suffix[1:].lower())


def _shade_operations(axes: Axes, session: Session) -> None:
    """Shade the outermost operations in turn, and write their names at the top, upright where there is no room."""
    outer = [operation for operation in session.operations if operation.depth == 0]
    if len(outer) > _MOST_OPERATIONS:
        shortest_s = sorted(operation.duration_s for operation in outer)[-_MOST_OPERATIONS]
        outer = [operation for operation in outer if operation.duration_s > shortest_s]
    for place, operation in enumerate(outer):
        axes.axvspan(operation.start_s, operation.end_s, color=SHADES[place % len(SHADES)], zorder=0, linewidth=0)
        wide = operation.duration_s > session.duration_s * _ROOM_PER_CHARACTER * len(operation.name)
        axes.annotate(
            shortened(printable(operation.name), _OPERATION),
            (operation.start_s, 1),
            xytext=(3, -3),
            xycoords=axes.get_xaxis_transform(),
            textcoords="offset points",
            rotation=0 if wide else 90,
            ha="left",
            va="top",
            fontsize=8,
            color=FAINT,
            parse_math=False,
        )


def _draw_metric(axes: Axes, session: Session, view: View, place: int) -> None:
    """Draw one metric with its peak, which is named at the point when it is the only one, else in the legend."""
    name = view.metrics[place]
    values, figures = np.asarray(session.samples[name]), session.samples.figures(name)
    if not figures.known:
        return
    time, value = decimated_with_gaps(session.samples.time_s, values, session.sampler.spacing_s)
    zero = values[~np.isnan(values)][0] if view.from_zero else 0.0
    marker = "." if len(time) <= _FEW or figures.known < len(values) / 2 else ""
    colour, line = PALETTE[place % len(PALETTE)], LINES[place // len(PALETTE) % len(LINES)]
    sampled = figures.highest - zero
    at_s = session.samples.time_s[int(np.nanargmax(values))]
    said = f"{label(name)} peak {view.unit.label(sampled)} at {seconds_text(at_s)}"
    peak = level(session.samples, name, session.peaks)
    if peak.at_s is None and peak.peak is not None:
        said += f" (kernel: {view.unit.label(peak.peak - zero)})"
    scaled = (value - zero) / view.unit.factor
    axes.plot(time, scaled, line, color=colour, linewidth=1.6, marker=marker, label=said)
    top = (at_s, sampled / view.unit.factor)
    axes.plot(*top, marker="o", color=colour, markersize=6, markeredgecolor="white")
    if len(view.metrics) == 1:
        _name_point(axes, top, said, colour, left=at_s < session.duration_s / 2)


def _draw_ranks(axes: Axes, runs: Sequence[RankRun], view: View) -> None:
    """Draw the RSS of each part of a job thinly below their sum, that of the largest in its colour, with its name."""
    worst = largest_rank(runs)
    for run in runs:
        rss = np.array(run.rss, dtype=np.float64) / view.unit.factor
        if np.isnan(rss).all():
            continue
        is_worst = run is worst
        axes.plot(run.time_s, rss, color=PALETTE[0] if is_worst else FAINT, linewidth=1.1 if is_worst else 0.7)
        if is_worst:
            top = int(np.nanargmax(rss))
            held = None if (peak := run.peaks.get("rss")) is None else peak.low
            said = f"the largest: {shortened(printable(run.name), _OPERATION)}, {view.unit.label(held)}"
            _name_point(
                axes, (run.time_s[top], float(rss[top])), said, PALETTE[0], left=run.time_s[top] < _middle(runs)
            )


def _middle(runs: Sequence[RankRun]) -> float:
    return max(run.start_s + run.duration_s for run in runs) / 2


def _name_point(axes: Axes, point: tuple[float, float], text: str, colour: str, *, left: bool) -> None:
    """Write beside a point in the left or right half of the picture, towards the middle."""
    axes.annotate(
        text,
        point,
        xytext=(8 if left else -8, 7),
        textcoords="offset points",
        ha="left" if left else "right",
        fontsize=9,
        color=colour,
        fontweight="bold",
        parse_math=False,
    )
