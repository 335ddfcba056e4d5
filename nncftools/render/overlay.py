"""The picture of a comparison: the memory of all runs over time, and the differences between the groups of runs.

Each group has a colour. Above the picture, each group has a band with its operations. An operation's name has the same
colour in all bands.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from itertools import chain
from statistics import median
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
from nncftools.render.listing import NumberedOperation, fills, keep_largest, short_names
from nncftools.render.peak_lines import MemoryLine, memory_line
from nncftools.render.plot import LANE, Band, draw_line, inches_above, label_values
from nncftools.render.view import View, clip, label
from nncftools.units import MemoryUnit, seconds_text

Group = tuple[str, Sequence["Curve"]]
"""The name of a group of runs, and the curve of each run."""
_MOST = 200
"""Largest number of drawn operations of a run; the longest are drawn."""
_BYTES = View([], MemoryUnit.B)
_NAME = 90
_MOMENTS = 1000
"""Number of points of a median curve or a difference curve."""
_MOST_BANDS = 4
"""The picture has a band (lanes with the operations as bars) for each compared group of runs. If there are more groups
than this, there are no bands, because a reader could not distinguish the groups."""
_MOST_DIFFERENCES = 4
_WIDTH = 10.0
"""Width of the picture in inches; the sizes below are in inches, too."""
_MEMORY = 4.0
_DIFFERENCE = 1.5
_LEGEND = 0.25
_BETWEEN = 0.05
_TITLE = 0.35
_TIME_AXIS = 0.5
_POINTS = 72
"""Points per inch."""


class Curve(NamedTuple):
    """Memory over time of a run, in seconds and bytes, with no more points than a reader can see."""

    duration_s: float
    lines: Mapping[str, MemoryLine]
    """The line of each metric: ``{name of the metric: line}``."""
    operations: Sequence[Operation]
    """The outermost operations, with only name, times and kind."""


def curve(session: Session) -> Curve:
    """Return the memory of a session over time, for all memory metrics."""
    lines = {}
    for name in session.samples.metrics:
        line = memory_line(session, _BYTES, name) if is_memory(name) else None
        if line is not None:
            lines[name] = line
    duration_s = max([session.duration_s, *session.samples.time_s[-1:]])
    return Curve(duration_s, lines, _select_operations(session.operations))


def _select_operations(operations: Sequence[Operation]) -> list[Operation]:
    """Return the longest outermost operations with only name, times and kind.

    The measured values of the operations would keep all samples in memory.
    """
    outer = [operation for operation in operations if operation.depth == 0]
    return [
        Operation(
            name=operation.name,
            start_s=operation.start_s,
            end_s=operation.end_s,
            kind=operation.kind,
        )
        for operation in keep_largest(outer, _MOST, lambda operation: operation.duration_s)
    ]


def common_metric(groups: Sequence[Sequence[Curve]]) -> str | None:
    """Return the first memory metric that all runs have, in the order of ``MEMORY``; None if there is none."""
    runs = list(chain.from_iterable(groups))
    for name in MEMORY:
        if all(name in run.lines for run in runs):
            return name
    return None


@drawing.missing_glyphs_as_boxes()
def draw(groups: Sequence[Group], metric: str, unit: MemoryUnit, path: pathlib.Path) -> None:
    """Write the picture of several groups; the suffix of ``path`` is the format. Raises OSError."""
    lines = [[run.lines[metric] for run in runs] for _, runs in groups]
    length_s = max(max(run.duration_s for run in runs) for _, runs in groups)
    differences = _subtract_first(lines)
    heights = [_MEMORY, _DIFFERENCE] if differences else [_MEMORY]
    bands = _make_bands([runs for _, runs in groups], length_s)
    above = sum(band.height + _BETWEEN for band in bands)
    height = sum(heights) + above + _TITLE + _LEGEND * len(groups) + _TIME_AXIS
    picture = Figure(figsize=(_WIDTH, height), dpi=DPI, layout=drawing.LAYOUT)
    axes = picture.subplots(
        len(heights),
        sharex=True,
        squeeze=False,
        height_ratios=heights,
    )[:, 0].tolist()
    for panel in axes:
        drawing.plain(panel)
        drawing.time_axis(panel, length_s)
    memory = axes[0]
    for number, (name, _) in enumerate(groups):
        _draw_group(memory, name, lines[number], unit, look=drawing.line_style(number))
    label_values(memory, f"{label(metric)} ({unit})")
    memory.set_ylim(0, (memory.dataLim.ymax or 1) * 1.08)
    if differences:
        memory.set_xlabel("")
        _draw_differences(axes[-1], differences, unit)
    title = _write_title(groups, metric, unit)
    pad = above * _POINTS + 6
    memory.set_title(
        title,
        loc="left",
        fontsize=10,
        color=INK,
        parse_math=False,
        pad=pad,
    )
    ruler = Ruler()
    for number, band in enumerate(bands):
        if not band.height:
            continue
        above -= band.height
        band.draw(memory, ruler, above)
        memory.text(
            -0.005 * length_s,
            above + LANE / 2,
            "■",
            transform=inches_above(memory),
            color=drawing.line_style(number)[0],
            ha="right",
            va="center",
        )
        above -= _BETWEEN
    drawing.legend_below(picture, 1)
    drawing.save(picture, path)


def _make_bands(groups: Sequence[Sequence[Curve]], length_s: float) -> list[Band]:
    """Return a band for each group, with the operations of the group's run of median duration.

    There are no bands if these runs have no operations, or if there are too many groups.
    """
    sides = []
    for runs in groups:
        by_duration = sorted(runs, key=lambda run: run.duration_s)
        sides.append(by_duration[len(runs) // 2].operations)
    operations = list(chain.from_iterable(sides))
    if not operations or len(groups) > _MOST_BANDS:
        return []
    fill_of = fills(operations)
    short = short_names(operations)
    bands = []
    for side in sides:
        rows = []
        for operation in side:
            short_name = short.get(operation.name, "")
            rows.append(NumberedOperation("", operation, fill_of[operation.name], short_name=short_name))
        bands.append(Band(rows, length_s))
    return bands


def _write_title(groups: Sequence[Group], metric: str, unit: MemoryUnit) -> str:
    title = f"{label(metric)} over time"
    if len(groups) != 2:  # noqa: PLR2004 — base and new
        return f"{title} of {len(groups)} sides"
    sizes = []
    durations_s = []
    for _, runs in groups:
        sizes.append(median(run.lines[metric].peak_size for run in runs))
        durations_s.append(median(run.duration_s for run in runs))
    base, new = sizes
    base_s, new_s = durations_s
    peak = _write_change(base, new, unit.label(abs(new - base)))
    duration = _write_change(base_s, new_s, seconds_text(abs(new_s - base_s)))
    return f"{title}: peak {peak}, duration {duration}"


def _write_change(base: float, new: float, difference: str) -> str:
    """Return a difference with sign and percentage: ``−232 MiB (−17.4 %)``."""
    if base == new:
        return "the same"
    sign = "+" if new > base else "−"
    percent = f" ({sign}{abs(new - base) / base * 100:.1f} %)" if base else ""
    return f"{sign}{difference}{percent}"


def _draw_group(axes: Axes, name: str, lines: Sequence[MemoryLine], unit: MemoryUnit, *, look: tuple[str, str]) -> None:
    """Draw the curve of a group of runs.

    For a single run, draw the run and its peak. For several runs, draw the median, and the area from the smallest to
    the largest memory.
    """
    colour = look[0]
    sizes = [line.peak_size for line in lines]
    text = f"peak {unit.label(median(sizes))}"
    if len(lines) > 1:
        text = f"median {text} ({unit.text(min(sizes))} to {unit.text(max(sizes))}, {len(sizes)} runs)"
        moments, together = _align(lines)
        low = together.min(axis=0) / unit.factor
        high = together.max(axis=0) / unit.factor
        axes.fill_between(moments, low, high, color=colour, alpha=0.2, linewidth=0)
    time, value = _find_median(lines)
    draw_line(axes, (time, value / unit.factor), look, f"{clip(name, _NAME)}: {text}")
    if len(lines) == 1:
        line = lines[0]
        span_s = line.span_s
        mark = span_s if span_s is not None and span_s[0] < span_s[1] else None
        point = (line.peak[0], line.peak_size / unit.factor)
        drawing.draw_peak(axes, point, colour, mark)


def _find_median(lines: Sequence[MemoryLine]) -> Line:
    """Return the line of a single run; for several runs, return the median of the runs at each moment.

    The line of the median covers only the time in which all runs were running.
    """
    if len(lines) == 1:
        return lines[0][:2]
    moments, together = _align(lines)
    return moments, np.median(together, axis=0)


def _align(lines: Sequence[Line | MemoryLine]) -> Line:
    """Return moments at which all runs were running, and an array with the memory of each run at these moments."""
    known = []
    for time, value, *_ in lines:
        is_known = ~np.isnan(value)
        known.append((time[is_known], value[is_known]))
    start_s = max(time[0] for time, _ in known)
    end_s = min(time[-1] for time, _ in known)
    moments = np.linspace(start_s, end_s, _MOMENTS)
    return moments, np.array([np.interp(moments, *line) for line in known])


def _subtract_first(groups: Sequence[Sequence[MemoryLine]]) -> list[Line]:
    """Return the memory of each other group minus the memory of the first group, while both were running."""
    if not 1 < len(groups) <= _MOST_DIFFERENCES:
        return []
    first, *others = map(_find_median, groups)
    differences = []
    for other in others:
        moments, (base, new) = _align([first, other])
        if moments[0] < moments[-1]:
            differences.append((moments, new - base))
    return differences


def _draw_differences(axes: Axes, differences: Sequence[Line], unit: MemoryUnit) -> None:
    axes.axhline(0, color=FAINT, linewidth=0.8)
    for number, (time, value) in enumerate(differences, start=1):
        sizes = value / unit.factor
        colour = drawing.line_style(number)[0]
        axes.plot(time, sizes, color=colour, linewidth=1.1)
        if len(differences) == 1:
            axes.fill_between(time, 0, sizes, color=colour, alpha=0.2, linewidth=0)
    label_values(axes, f"difference ({unit})")
