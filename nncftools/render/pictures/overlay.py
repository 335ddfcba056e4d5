"""The picture of a comparison: memory over time of all runs, one colour for each group."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nncftools.analysis.series import decimated_with_gaps
from nncftools.analysis.summary import level
from nncftools.drawing import draw_peak, figure, legend_below, look, marker_for, save, time_axis
from nncftools.metrics import MEMORY, is_memory
from nncftools.render.view import label
from nncftools.text import printable, shortened

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from nncftools.analysis.summary import Level
    from nncftools.session.session import Session
    from nncftools.units import MemoryUnit

    Line = tuple[NDArray[np.float64], NDArray[np.float64]]
    Drawn = tuple[Line, Level]

_TITLE = 90
_MOMENTS = 1000
"""Points of a median."""


class Curve(NamedTuple):
    """Memory over time of one run, in seconds and bytes; the points are as many as can be seen."""

    duration_s: float
    lines: Mapping[str, Line]
    """By metric."""
    peaks: Mapping[str, Level]
    """By metric, too."""


def curve(session: Session) -> Curve:
    """Return the data that the picture needs from a session."""
    samples = session.samples
    lines = {
        name: decimated_with_gaps(samples.time_s, samples[name], session.sampler.spacing_s)
        for name in samples.metrics
        if is_memory(name) and samples.figures(name).known
    }
    peaks = {name: level(samples, name, session.peaks) for name in lines}
    return Curve(max([session.duration_s, *samples.time_s[-1:]]), lines, peaks)


def common_metric(groups: Sequence[Sequence[Curve]]) -> str | None:
    """Return the first memory metric that every run contains, preferably RSS; None when there is none."""
    runs = [run for group in groups for run in group]
    return next((name for name in MEMORY if all(name in run.lines for run in runs)), None)


def draw(groups: Sequence[tuple[str, Sequence[Curve]]], metric: str, unit: MemoryUnit, path: pathlib.Path) -> None:
    """Write the picture of groups with their names; the suffix of the path is the format. Raises OSError."""
    drawing, axes = figure()
    for place, (name, runs) in enumerate(groups):
        _draw_group(axes, name, [(run.lines[metric], run.peaks[metric]) for run in runs], unit, look(place))
    time_axis(axes, max(run.duration_s for _, runs in groups for run in runs))
    axes.set_ylabel(f"{label(metric)} ({unit})")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.12g}")
    axes.set_ylim(0, (axes.dataLim.ymax or 1) * 1.08)
    legend_below(drawing, 1)
    save(drawing, path)


def _draw_group(axes: Axes, label_of: str, drawn: Sequence[Drawn], unit: MemoryUnit, look_of: tuple[str, str]) -> None:
    """Draw a single run with its peak, or several runs as thin lines with their median."""
    colour, style = look_of
    lines = [line for line, _ in drawn]
    sizes = [float(np.nanmax(line[1])) if of.peak is None else of.peak for line, of in drawn]
    several = len(lines) > 1
    text = f"{'median ' if several else ''}peak {unit.label(float(np.median(sizes)))}"
    for time, value in lines if several else ():
        axes.plot(time, value / unit.factor, style, color=colour, linewidth=0.7, alpha=0.45)
    time, value = _median(lines) if several else lines[0]
    axes.plot(
        time,
        value / unit.factor,
        style,
        color=colour,
        linewidth=2 if several else 1.6,
        marker="" if several else marker_for(time),
        label=f"{shortened(printable(label_of), _TITLE)}: {text}",
    )
    if not several:
        span_s = drawn[0][1].span_s
        at_s = float(time[np.nanargmax(value)]) if span_s is None else sum(span_s) / 2
        is_mark = span_s is not None and span_s[0] < span_s[1]
        draw_peak(axes, (at_s, sizes[0] / unit.factor), colour, span_s if is_mark else None)


def _median(lines: Sequence[Line]) -> Line:
    """Return the median over the time during which all runs were running."""
    known = [(time[~np.isnan(value)], value[~np.isnan(value)]) for time, value in lines]
    moments = np.linspace(max(time[0] for time, _ in known), min(time[-1] for time, _ in known), _MOMENTS)
    return moments, np.median([np.interp(moments, *line) for line in known], axis=0)
