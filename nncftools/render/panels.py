"""The picture of a profiled run, one page: memory and CPU over time, and a table of what each operation took.

Where no operations were marked, I/O over time stands in place of the table.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from math import ceil
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nncftools import drawing, metrics
from nncftools.analysis.session import Session
from nncftools.analysis.summary import cores_average, cpu_s, decimated_with_gaps, rates_of, run_s, unit_for
from nncftools.drawing import DPI, INK, Ruler
from nncftools.metrics import cpu_counters
from nncftools.render.listing import counters_of, numbered, timeline
from nncftools.render.operation_bars import MOST_ROWS, WIDTH, Band, draw_table, table_height
from nncftools.render.operations_table import longest, table_of, with_gaps
from nncftools.render.peak_lines import MemoryLine, memory_line
from nncftools.render.plot import draw_line, draw_memory, draw_note, label_values
from nncftools.render.view import View, command_text, label
from nncftools.session.samples import known
from nncftools.units import MemoryUnit, cores_text, printable, seconds_text, shortened, size_text

_GREYS = ("#8a8f94", "#b9bdc1", "#dfe1e3")
"""Of the parts of RSS from the bottom up: colours mark operations."""
_CPU_TOPS = (0.05, 0.1, 0.25, 1)
"""Parts of all cores."""
_CPU_WINDOWS = 1500
"""The most that can be distinguished."""
_SIZE = 8.0
_MOST_IN_A_COLUMN = 3
"""Of the names of devices."""


def _draw_run(axes: Axes, session: Session, view: View) -> None:
    """Draw RSS with the parts that were recorded; without RSS, the first metric of ``view``.

    With ``from_zero``, parts are not drawn: each would have a zero of its own.
    """
    samples = session.samples
    has_rss = "rss" in samples and samples.figures("rss").known
    name = "rss" if has_rss else next(iter(view.metrics), "rss")
    if has_rss and not view.from_zero and (line := memory_line(session, view, name)) is not None:
        _draw_parts(axes, session, view, line)
    draw_memory(axes, session, replace(view, metrics=[name]))
    if len(axes.get_legend_handles_labels()[1]) > 1:
        _legend(axes, loc="upper left", reverse=True, handlelength=1.4, borderaxespad=0.3)


def _draw_parts(axes: Axes, session: Session, view: View, line: MemoryLine) -> None:
    """Draw the parts of RSS stacked on each other, at the moments of the line of RSS."""
    places = np.searchsorted(np.asarray(session.samples.time_s), line.time_s)
    below = np.zeros(len(line.time_s))
    parts = [name for name in session.samples.metrics if (of := metrics.of(name)) is not None and of.part_of == "rss"]
    highest = {name: figures.highest for name in parts if (figures := session.samples.figures(name)).known}
    shown = [name for name, size in highest.items() if view.unit.text(size) != view.unit.text(0)]
    for name, colour in zip(shown, cycle(_GREYS), strict=False):
        part = np.asarray(session.samples[name])[places] / view.unit.factor
        both = ~np.isnan(line.sizes) & ~np.isnan(part)
        top = below + np.where(both, part, 0)
        axes.fill_between(line.time_s, below, top, where=both, color=colour, linewidth=0, label=label(name), zorder=1.5)
        below = top


def _draw_devices(axes: Axes, session: Session, view: View) -> None:
    """Draw what the run held of each GPU and NPU."""
    names = _devices(session)
    draw_memory(axes, session, replace(view, metrics=names))
    axes.set_ylabel(f"Devices{view.above} ({view.unit})")
    columns = 1 + (len(names) > _MOST_IN_A_COLUMN)
    axes.set_ylim(0, axes.dataLim.ymax * (1 + 0.26 * ceil(len(names) / columns)) or 1)
    if len(names) > 1:
        _legend(axes, loc="upper right", ncols=columns, borderaxespad=0.2)


def _devices(session: Session) -> list[str]:
    samples = session.samples
    columns = metrics.columns_of([metrics.DEVICE_MEMORY], samples.metrics)
    return [name for name in columns if samples.figures(name).known]


def _draw_cpu(axes: Axes, session: Session, _view: View) -> None:
    """Draw the number of busy cores, and its average."""
    cpus = session.host.cpus
    axes.set_ylabel(f"CPU (cores of {cpus})" if cpus else "CPU (cores)", fontsize=_SIZE + 1)
    counters = cpu_counters(session.samples)
    moments, busy = rates_of(session, counters, _CPU_WINDOWS)
    if not len(busy):
        spent = cpu_s(session)
        is_recorded = spent is not None and counters and len(session.samples)
        too_short = f"{seconds_text(spent)} of CPU time; the run is too short to tell when"
        draw_note(axes, too_short if is_recorded else "CPU time was not recorded")
        return
    average = cores_average(session)
    highest = float(max(busy[~np.isnan(busy)].max(initial=0), average or 0))
    tops = [part * cpus for part in _CPU_TOPS] if cpus else []
    axes.set_ylim(0, next((top for top in tops if highest <= top), highest or 1) * 1.04)
    axes.stairs(busy, moments, baseline=None, color=INK, linewidth=1.1)
    if average is not None:
        axes.axhline(average, color=INK, linestyle="--", linewidth=1)
        beside = {"xycoords": axes.get_yaxis_transform(), "va": "center"}
        text = f"average\n{cores_text(average)}"
        drawing.annotate(axes, text, (1, average), (5, 0), fontsize=_SIZE, color=INK, **beside)


def _draw_io(axes: Axes, session: Session, _view: View) -> None:
    """Draw the bytes read and written up to each moment."""
    samples = session.samples
    counters = {name: metric for name in counters_of(samples.metrics) if (metric := metrics.of(name)) is not None}
    sizes = {name: metric for name, metric in counters.items() if metric.unit == "B" and name in samples}
    shown = {name: metric.short_label for name, metric in sizes.items() if samples.figures(name).known}
    highest = max((samples.figures(name).highest for name in shown), default=0.0)
    unit = unit_for(highest)
    label_values(axes, f"I/O ({unit})")
    axes.set_ylim(0, highest / unit.factor * 1.08 or 1)
    if not shown:
        draw_note(axes, "I/O was not recorded")
        return
    for number, (name, text) in enumerate(shown.items()):
        time, value = decimated_with_gaps(samples.time_s, samples[name], session.sampler.spacing_s)
        total = session.totals.get(name)
        size = size_text(known(samples[name])[-1] if total is None else total)
        draw_line(axes, (time, value / unit.factor), drawing.line_style(number), f"{text} {size}")
    _legend(axes, loc="lower right", ncols=len(shown), borderaxespad=0.2)


def _legend(axes: Axes, **look: Any) -> None:  # noqa: ANN401 — any property of a legend
    axes.legend(bbox_to_anchor=(1, 1), frameon=False, fontsize=_SIZE, **look)


_LEFT, _RIGHT = 1.0, 1.05
"""Margins beside the panels over time; all lengths here are in inches."""
_LEFT_OF_LONG_FIGURES = 1.5
_TITLE, _TITLE_SIZE, _TITLE_LINE = 400, 10, 0.19
_MEMORY, _OTHERS = 2.8, 1.5
_MARGIN, _BETWEEN, _TIME_LABELS = 0.15, 0.3, 0.6


@drawing.missing_glyphs_as_boxes()
def draw(session: Session, view: View, path: pathlib.Path, kind: str = "") -> None:
    """Write the picture in the format ``kind``, by default the suffix of the path. Raises OSError."""
    drawing.save(page(session, view), path, kind)


def page(session: Session, view: View) -> Figure:
    """Return the picture."""
    every = numbered(timeline(session.operations, view.depth), session)
    rows, more = longest(every, session, MOST_ROWS)
    table = table_of(with_gaps(rows, session), more, session, view)
    band, ruler = Band(every, run_s(session)), Ruler()
    text = shortened(printable(view.title) or command_text(session), _TITLE)
    title = ruler.lines(text, WIDTH - 4 * _MARGIN, _TITLE_SIZE, 2)
    panels: list[tuple[Callable[[Axes, Session, View], None], float]] = [(_draw_run, _MEMORY)]
    if _devices(session):
        panels.append((_draw_devices, _OTHERS))
    panels.append((_draw_cpu, _OTHERS))
    if not table.rows:
        panels.append((_draw_io, _OTHERS))
    top = 2 * _MARGIN + len(title) * _TITLE_LINE + band.height
    bottom = top + sum(height + _BETWEEN for _, height in panels) - _BETWEEN + _TIME_LABELS
    table_high = table_height(table) if table.rows else 0.0
    figure = Figure(figsize=(WIDTH, bottom + table_high + _MARGIN), dpi=DPI)
    at = 2 * _MARGIN / WIDTH, 1 - _MARGIN / figure.get_figheight()
    look: dict[str, Any] = {"size": _TITLE_SIZE, "color": INK, "va": "top", "linespacing": 1.3, "parse_math": False}
    figure.text(*at, "\n".join(title), **look)
    left = _LEFT if view.unit.factor >= MemoryUnit.MB.factor else _LEFT_OF_LONG_FIGURES
    for number, (draw_panel, height) in enumerate(panels):
        axes = _axes(figure, (left, top, WIDTH - left - _RIGHT, height))
        drawing.plain(axes)
        draw_panel(axes, session, view)
        drawing.time_axis(axes, run_s(session))
        is_last = number == len(panels) - 1
        axes.set_xlabel(axes.get_xlabel() if is_last else "", fontsize=_SIZE + 1)
        axes.tick_params(labelsize=_SIZE, labelbottom=is_last)
        if number == 0:
            band.tint(axes)
        band.draw(axes, ruler if number == 0 else None)
        top += height + _BETWEEN
    if table.rows:
        draw_table(_axes(figure, (0, bottom, WIDTH, table_high)), table, ruler)
    return figure


def _axes(figure: Figure, box: tuple[float, float, float, float]) -> Axes:
    """Add axes; ``box`` is left, top, width and height, from the page's top left corner."""
    left, top, wide, high = box
    page_high = figure.get_figheight()
    return figure.add_axes((left / WIDTH, 1 - (top + high) / page_high, wide / WIDTH, high / page_high))
