"""The picture of a comparison: memory over time of all runs, one colour for each group, and how they differ.

Above it is a band of operations for each side, with the same colour for the same name.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from nncftools import drawing
from nncftools.analysis.operation import Operation
from nncftools.analysis.series import Points as Line
from nncftools.analysis.session import Session
from nncftools.drawing import DPI, FAINT, INK, Ruler
from nncftools.metrics import MEMORY, is_memory
from nncftools.render.listing import Fill, fills
from nncftools.render.operation_bars import write_on
from nncftools.render.peak_lines import MemoryLine, memory_line
from nncftools.render.sentences import without_shared_start
from nncftools.render.view import View, label
from nncftools.units import MemoryUnit, printable, seconds_text, shortened

Group = tuple[str, Sequence["Curve"]]
_MOST = 200
"""The longest operations of a run: shorter ones would not be seen."""
_LONG = 20
_SIZE, _BAND_WIDTH, _MARGIN, _CUT = 8.0, 8.8, 0.06, 0.9
"""Of texts in points; of the panel at least, beside a name, and for a part of a name in inches."""


def spans(operations: Sequence[Operation]) -> list[Operation]:
    """Return the outermost operations without their figures, which would keep the samples in memory."""
    outer = [operation for operation in operations if operation.depth == 0]
    longest = sorted(outer, key=lambda operation: operation.duration_s, reverse=True)[:_MOST]
    shown = sorted(longest, key=lambda operation: operation.start_s)
    return [Operation(name=of.name, start_s=of.start_s, end_s=of.end_s, kind=of.kind) for of in shown]


def draw_bands(axes: Sequence[Axes], sides: Sequence[Sequence[Operation]], colours: Sequence[str]) -> None:
    """Draw the operations of each side on axes of its own, with a bar in the side's colour in front."""
    every = [operation for operations in sides for operation in operations]
    names = sorted({printable(operation.name) for operation in every})
    short = without_shared_start(names) if any(len(name) > _LONG for name in names) else {}
    fill_of, ruler = fills(every), Ruler()
    for panel, operations, colour in zip(axes, sides, colours, strict=True):
        panel.set_axis_off()
        panel.set_ylim(0, 1)
        panel.add_patch(Rectangle((-0.012, 0.1), 0.008, 0.8, transform=panel.transAxes, color=colour, clip_on=False))
        for operation in operations:
            name = printable(operation.name)
            _draw_operation(panel, operation, fill_of[operation.name], (name, short.get(name, name)), ruler)


def _draw_operation(axes: Axes, operation: Operation, fill: Fill, names: tuple[str, str], ruler: Ruler) -> None:
    look: dict[str, Any] = {"facecolor": fill.colour, "hatch": fill.hatch, "edgecolor": "white", "linewidth": 0.7}
    axes.broken_barh([(operation.start_s, operation.duration_s)], (0.1, 0.8), **look)
    length_s = axes.get_xlim()[1]
    room = operation.duration_s / length_s * _BAND_WIDTH - _MARGIN if length_s else 0.0
    whole = names[0] if ruler.width(names[0], _SIZE) <= room else names[1]
    text = ruler.fitted(whole, room, _SIZE)
    if text and (text == whole or room > _CUT):
        middle = operation.start_s + operation.duration_s / 2
        write_on(axes, fill, (middle, 0.48), text, fontsize=_SIZE, clip_on=True)


_BYTES = View([], MemoryUnit.B)
_NAME = 90
_MOMENTS = 1000
"""Points of a median, and of a difference."""
_MOST_BANDS, _MOST_DIFFERENCES = 4, 4
"""With more sides, neither could be told apart."""
_WIDTH, _MEMORY, _DIFFERENCE, _LEGEND, _BAND, _TITLE = 10.0, 4.0, 1.5, 0.25, 0.24, 0.35
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


def draw(groups: Sequence[Group], metric: str, unit: MemoryUnit, path: pathlib.Path) -> None:
    """Write the picture of groups with their names; the suffix of the path is the format. Raises OSError."""
    drawn = [(name, [run.lines[metric] for run in runs]) for name, runs in groups]
    length_s = max(run.duration_s for _, runs in groups for run in runs)
    by_duration = [sorted(runs, key=lambda run: run.duration_s) for _, runs in groups]
    operations = [runs[len(runs) // 2].operations for runs in by_duration]
    bands = operations if len(groups) <= _MOST_BANDS and any(operations) else []
    differences = _differences([lines for _, lines in drawn])
    heights = [*[_BAND] * len(bands), _MEMORY, *([_DIFFERENCE] if differences else [])]
    high = sum(heights) + _TITLE + _LEGEND * len(groups) + 0.5
    picture = Figure(figsize=(_WIDTH, high), dpi=DPI, layout="constrained")
    axes = picture.subplots(len(heights), sharex=True, squeeze=False, height_ratios=heights)[:, 0].tolist()
    memory = axes[len(bands)]
    for number, (name, lines) in enumerate(drawn):
        _draw_group(memory, name, lines, unit, drawing.line_style(number))
    _finish(memory, f"{label(metric)} ({unit})")
    memory.set_ylim(0, (memory.dataLim.ymax or 1) * 1.08)
    if differences:
        _draw_differences(axes[-1], differences, unit)
    for panel in axes[len(bands) :]:
        drawing.time_axis(panel, length_s)
    for panel in axes[len(bands) : -1]:
        panel.set_xlabel("")
    draw_bands(axes[: len(bands)], bands, [drawing.line_style(number)[0] for number in range(len(bands))])
    axes[0].set_title(_title(groups, metric, unit), loc="left", fontsize=10, color=INK, parse_math=False)
    drawing.legend_below(picture, 1)
    drawing.save(picture, path)


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


def _finish(axes: Axes, text: str) -> None:
    drawing.plain(axes)
    axes.set_ylabel(text)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.12g}")


def _draw_group(axes: Axes, name: str, lines: Sequence[MemoryLine], unit: MemoryUnit, look: tuple[str, str]) -> None:
    """Draw a single run with its peak, or the median of several runs in the band from the smallest to the largest."""
    colour, style = look
    sizes = [line.peak_size for line in lines]
    several = len(lines) > 1
    spread = f" ({unit.text(min(sizes))} to {unit.text(max(sizes))}, {len(sizes)} runs)" if several else ""
    text = f"{'median ' if several else ''}peak {unit.label(float(np.median(sizes)))}{spread}"
    if several:
        moments, every = _together([line[:2] for line in lines])
        low, high = every.min(axis=0) / unit.factor, every.max(axis=0) / unit.factor
        axes.fill_between(moments, low, high, color=colour, alpha=0.2, linewidth=0)
    time, value = _median(lines)
    width, marker = (2.0, "") if several else (1.6, drawing.marker_for(time))
    in_legend = f"{shortened(printable(name), _NAME)}: {text}"
    axes.plot(time, value / unit.factor, style, color=colour, linewidth=width, marker=marker, label=in_legend)
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
    _finish(axes, f"difference ({unit})")
