"""The picture of a comparison: memory over time of all runs, one colour for each group, and how they differ.

Above it is a band of operations for each side, with the same colour for the same name.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nncftools import drawing
from nncftools.analysis.operation import Operation
from nncftools.analysis.session import Session
from nncftools.analysis.summary import Points as Line
from nncftools.drawing import DPI, FAINT, INK, Ruler
from nncftools.metrics import MEMORY, is_memory
from nncftools.render.listing import NumberedOperation, fills, short_names
from nncftools.render.operation_bars import LANE, Band, inches_above
from nncftools.render.peak_lines import MemoryLine, memory_line
from nncftools.render.plot import draw_line, label_values
from nncftools.render.view import View, label
from nncftools.units import MemoryUnit, printable, seconds_text, shortened

Group = tuple[str, Sequence["Curve"]]
_MOST = 200
"""The longest operations of a run: shorter ones would not be seen."""


def spans(operations: Sequence[Operation]) -> list[Operation]:
    """Return the outermost operations without their figures, which would keep the samples in memory."""
    outer = [operation for operation in operations if operation.depth == 0]
    longest = sorted(outer, key=lambda operation: operation.duration_s, reverse=True)[:_MOST]
    shown = sorted(longest, key=lambda operation: operation.start_s)
    return [Operation(name=of.name, start_s=of.start_s, end_s=of.end_s, kind=of.kind) for of in shown]


_BYTES = View([], MemoryUnit.B)
_NAME = 90
_MOMENTS = 1000
"""Points of a median, and of a difference."""
_MOST_BANDS, _MOST_DIFFERENCES = 4, 4
"""With more sides, neither could be told apart."""
_WIDTH, _MEMORY, _DIFFERENCE, _LEGEND, _BETWEEN, _TITLE = 10.0, 4.0, 1.5, 0.25, 0.05, 0.35
"""In inches."""


class Curve(NamedTuple):
    """Memory over time of one run, in seconds and bytes; the points are as many as can be seen."""

    duration_s: float
    lines: Mapping[str, MemoryLine]
    """By metric."""
    operations: Sequence[Operation]
    """The outermost ones, without figures."""


def curve(session: Session) -> Curve:
    """Return the data that the picture needs from a session."""
    memory = {name: memory_line(session, _BYTES, name) for name in session.samples.metrics if is_memory(name)}
    lines = {name: line for name, line in memory.items() if line is not None}
    duration_s = max([session.duration_s, *session.samples.time_s[-1:]])
    return Curve(duration_s, lines, spans(session.operations))


def common_metric(groups: Sequence[Sequence[Curve]]) -> str | None:
    """Return the first memory metric that every run contains, preferably RSS; None if there is no such metric."""
    runs = [run for group in groups for run in group]
    return next((name for name in MEMORY if all(name in run.lines for run in runs)), None)


@drawing.missing_glyphs_as_boxes()
def draw(groups: Sequence[Group], metric: str, unit: MemoryUnit, path: pathlib.Path) -> None:
    """Write the picture of groups with their names; the suffix of the path is the format. Raises OSError."""
    drawn = [(name, [run.lines[metric] for run in runs]) for name, runs in groups]
    length_s = max(run.duration_s for _, runs in groups for run in runs)
    by_duration = [sorted(runs, key=lambda run: run.duration_s) for _, runs in groups]
    operations = [runs[len(runs) // 2].operations for runs in by_duration]
    differences = _differences([lines for _, lines in drawn])
    heights = [_MEMORY, *([_DIFFERENCE] if differences else [])]
    bands = _bands(operations, length_s) if len(groups) <= _MOST_BANDS else []
    above = sum(band.height + _BETWEEN for band in bands)
    high = sum(heights) + above + _TITLE + _LEGEND * len(groups) + 0.5
    picture = Figure(figsize=(_WIDTH, high), dpi=DPI, layout="constrained")
    axes = picture.subplots(len(heights), sharex=True, squeeze=False, height_ratios=heights)[:, 0].tolist()
    for panel in axes:
        drawing.plain(panel)
        drawing.time_axis(panel, length_s)
    memory = axes[0]
    for number, (name, lines) in enumerate(drawn):
        _draw_group(memory, name, lines, unit, drawing.line_style(number))
    label_values(memory, f"{label(metric)} ({unit})")
    memory.set_ylim(0, (memory.dataLim.ymax or 1) * 1.08)
    if differences:
        memory.set_xlabel("")
        _draw_differences(axes[-1], differences, unit)
    pad = above * 72 + 6
    title = _title(groups, metric, unit)
    memory.set_title(title, loc="left", fontsize=10, color=INK, parse_math=False, pad=pad)
    ruler = Ruler()
    for number, band in enumerate(bands):
        above -= band.height + _BETWEEN
        band.draw(memory, ruler, above + _BETWEEN)
        side = {"color": drawing.line_style(number)[0], "ha": "right", "va": "center"}
        memory.text(-0.005 * length_s, above + _BETWEEN + LANE / 2, "■", transform=inches_above(memory), **side)
    drawing.legend_below(picture, 1)
    drawing.save(picture, path)


def _bands(sides: Sequence[Sequence[Operation]], length_s: float) -> list[Band]:
    """Return the operations of each side, in the same colours; none if no side has any."""
    every = [operation for operations in sides for operation in operations]
    if not every:
        return []
    fill_of, short = fills(every), short_names(every)
    bands = []
    for operations in sides:
        rows = [NumberedOperation("", of, fill_of[of.name], short_name=short.get(of.name, "")) for of in operations]
        bands.append(Band(rows, length_s))
    return bands


def _title(groups: Sequence[Group], metric: str, unit: MemoryUnit) -> str:
    what = f"{label(metric)} over time"
    if len(groups) != 2:  # noqa: PLR2004 — base and new
        return f"{what} of {len(groups)} sides"
    base, new = (float(np.median([run.lines[metric].peak_size for run in runs])) for _, runs in groups)
    base_s, new_s = (float(np.median([run.duration_s for run in runs])) for _, runs in groups)
    peak = _change(base, new, f"{unit.text(abs(new - base))} {unit}")
    return f"{what}: peak {peak}, duration {_change(base_s, new_s, seconds_text(abs(new_s - base_s)))}"


def _change(before: float, after: float, difference: str) -> str:
    """Return a difference with its sign and its share: ``−232 MiB (−17.4 %)``."""
    if before == after:
        return "the same"
    sign = "+" if after > before else "−"
    share = f" ({sign}{abs(after - before) / before * 100:.1f} %)" if before else ""
    return f"{sign}{difference}{share}"


def _draw_group(axes: Axes, name: str, lines: Sequence[MemoryLine], unit: MemoryUnit, look: tuple[str, str]) -> None:
    """Draw a single run with its peak, or the median of several runs in the band from the smallest to the largest."""
    colour = look[0]
    sizes = [line.peak_size for line in lines]
    several = len(lines) > 1
    spread = f" ({unit.text(min(sizes))} to {unit.text(max(sizes))}, {len(sizes)} runs)" if several else ""
    text = f"{'median ' if several else ''}peak {unit.label(float(np.median(sizes)))}{spread}"
    if several:
        moments, every = _together([line[:2] for line in lines])
        low, high = every.min(axis=0) / unit.factor, every.max(axis=0) / unit.factor
        axes.fill_between(moments, low, high, color=colour, alpha=0.2, linewidth=0)
    time, value = _median(lines)
    draw_line(axes, (time, value / unit.factor), look, f"{shortened(printable(name), _NAME)}: {text}")
    if not several:
        span_s = lines[0].span_s
        mark = span_s if span_s is not None and span_s[0] < span_s[1] else None
        drawing.draw_peak(axes, (lines[0].peak[0], sizes[0] / unit.factor), colour, mark)


def _median(lines: Sequence[MemoryLine]) -> Line:
    """Return a single run, or the median over the time during which all runs were running."""
    if len(lines) == 1:
        return lines[0][:2]
    moments, every = _together([line[:2] for line in lines])
    return moments, np.median(every, axis=0)


def _together(lines: Sequence[Line]) -> Line:
    """Return moments during which all runs were running, and the memory of each run at these."""
    known = [(time[~np.isnan(value)], value[~np.isnan(value)]) for time, value in lines]
    moments = np.linspace(max(time[0] for time, _ in known), min(time[-1] for time, _ in known), _MOMENTS)
    return moments, np.array([np.interp(moments, *line) for line in known])


def _differences(groups: Sequence[Sequence[MemoryLine]]) -> list[Line]:
    """Return how much more each further side held than the first one, while both were running."""
    if not 1 < len(groups) <= _MOST_DIFFERENCES:
        return []
    medians = [_median(lines) for lines in groups]
    differences = []
    for other in medians[1:]:
        moments, (before, after) = _together([medians[0], other])
        if moments[0] < moments[-1]:
            differences.append((moments, after - before))
    return differences


def _draw_differences(axes: Axes, differences: Sequence[Line], unit: MemoryUnit) -> None:
    """Draw differences over time; the area of a single one is filled."""
    axes.axhline(0, color=FAINT, linewidth=0.8)
    for number, (time, value) in enumerate(differences, start=1):
        sizes = value / unit.factor
        axes.plot(time, sizes, color=drawing.line_style(number)[0], linewidth=1.1)
        if len(differences) == 1:
            axes.fill_between(time, 0, sizes, color=drawing.line_style(number)[0], alpha=0.2, linewidth=0)
    label_values(axes, f"difference ({unit})")
