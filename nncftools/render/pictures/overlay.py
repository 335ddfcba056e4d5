"""The picture of a comparison: memory over time of all runs, one colour for each side."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nncftools.analysis.series import decimated_with_gaps
from nncftools.drawing import LINES, PALETTE, figure, time_axis
from nncftools.files import replacing
from nncftools.metrics import MEMORY, is_memory
from nncftools.render.view import label
from nncftools.session.samples import known
from nncftools.text import printable, shortened

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from nncftools.session.session import Session
    from nncftools.units import MemoryUnit

    Line = tuple[NDArray[np.float64], NDArray[np.float64]]

_TITLE = 90
_FEW = 40
"""Points up to this number are drawn as such, too."""
_MOMENTS = 1000
_ROOM_ABOVE = 1.08


@dataclass(frozen=True)
class Curve:
    """Memory over time of one run: no more points than can be seen, in seconds and bytes."""

    title: str
    duration_s: float
    lines: Mapping[str, Line]
    """By metric."""


def curve(session: Session, title: str) -> Curve:
    """Return what the picture needs of a session."""
    samples = session.samples
    lines = {
        name: decimated_with_gaps(samples.time_s, samples[name], session.sampler.spacing_s)
        for name in samples.metrics
        if is_memory(name) and known(samples[name])
    }
    return Curve(title, max(session.duration_s, samples.time_s[-1]), lines)


def common_metric(groups: Sequence[Sequence[Curve]]) -> str | None:
    """Return the first memory metric that every run holds, RSS before all others; None when there is none."""
    held = [set(of.lines) for group in groups for of in group]
    return next((name for name in MEMORY if all(name in lines for lines in held)), None)


def draw(groups: Sequence[tuple[str, Sequence[Curve]]], metric: str, unit: MemoryUnit, path: pathlib.Path) -> None:
    """Write the picture of groups with their names; the format is the path's ending. Raises OSError."""
    drawing, axes = figure()
    for place, (name, curves) in enumerate(groups):
        look = {"color": PALETTE[place % len(PALETTE)], "linestyle": LINES[place // len(PALETTE) % len(LINES)]}
        _draw(axes, name, [of.lines[metric] for of in curves], unit, look)
    time_axis(axes, max(of.duration_s for _, curves in groups for of in curves))
    axes.set_ylabel(f"{label(metric)} ({unit})")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.12g}")
    axes.set_ylim(0, (axes.dataLim.ymax or 1) * _ROOM_ABOVE)
    legend = drawing.legend(loc="outside lower center", ncols=1, frameon=False, fontsize=9)
    for text in legend.get_texts():
        text.set_parse_math(False)
    with replacing(path) as beside, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)  # drawn as boxes
        drawing.savefig(beside, format=path.suffix[1:].lower())


def _draw(axes: Axes, name: str, lines: Sequence[Line], unit: MemoryUnit, look: dict[str, Any]) -> None:
    """Draw one run with its peak, or several thinly with their median."""
    peaks = [float(np.nanmax(value)) for _, value in lines]
    several = len(lines) > 1
    told = f"median peak {unit.label(float(np.median(peaks)))}" if several else f"peak {unit.label(peaks[0])}"
    said = f"{shortened(printable(name), _TITLE)}: {told}"
    if not several:
        time, value = lines[0]
        top = np.nanargmax(value)
        marker = "." if len(time) <= _FEW else ""
        axes.plot(time, value / unit.factor, linewidth=1.6, marker=marker, label=said, **look)
        axes.plot(time[top], value[top] / unit.factor, "o", color=look["color"], markersize=6, markeredgecolor="white")
        return
    for time, value in lines:
        axes.plot(time, value / unit.factor, linewidth=0.7, alpha=0.45, **look)
    time, value = _median(lines)
    axes.plot(time, value / unit.factor, linewidth=2, label=said, **look)


def _median(lines: Sequence[Line]) -> Line:
    """Return the median over time, for as long as all runs went on."""
    known = [(time[~np.isnan(value)], value[~np.isnan(value)]) for time, value in lines]
    moments = np.linspace(max(time[0] for time, _ in known), min(time[-1] for time, _ in known), _MOMENTS)
    return moments, np.median([np.interp(moments, *line) for line in known], axis=0)
