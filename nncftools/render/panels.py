"""The picture of a profiled run, one page: memory and CPU over time, and a table of what each operation took.

Where no operations were marked, I/O over time stands in place of the table.
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from itertools import cycle, product
from math import ceil
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nncftools import drawing, metrics
from nncftools.analysis.series import decimated_with_gaps, rates_of, run_s
from nncftools.analysis.session import Session
from nncftools.analysis.summary import cores_average, cpu_s, unit_for
from nncftools.drawing import DPI, FAINT, INK, Ruler
from nncftools.metrics import cpu_counters
from nncftools.render.listing import counters_of, numbered, rows, timeline
from nncftools.render.operation_bars import MOST_ROWS, WIDTH, Band, Shown, draw_rows, height
from nncftools.render.peak_lines import MemoryLine, drawn_limit, memory_line, peak_label
from nncftools.render.view import View, command_text, label
from nncftools.session.samples import known
from nncftools.units import MemoryUnit, cores_text, printable, seconds_text, shortened, size_text

_GREYS = ("#8a8f94", "#b9bdc1", "#dfe1e3")
"""Of the parts of RSS from the bottom up: colours mark operations."""
_ZONES = ((0, 0.5, "#fafafa"), (0.5, 0.8, "#f3f3f3"), (0.8, 1, "#eaeaea"))
_CPU_TOPS = (0.05, 0.1, 0.25, 1)
"""Parts of all cores."""
_CPU_WINDOWS = 1500
"""The most that can be distinguished."""
_SIZE = 8.0
_TIMELINE_MARGIN = 0.04
"""In inches."""
_PEAK_TEXT, _PEAK_LINE, _POINTS = 0.34, 0.15, 72
"""Room above the data for the text of the peak, and for a second line, in inches; and an inch in points."""
_MOST_IN_A_COLUMN = 3
"""Of the names of devices."""
IO_COUNTERS = {"Storage": ("read_bytes", "write_bytes"), "System calls": ("read_chars", "write_chars")}


def shown_metric(session: Session, view: View) -> str:
    """Return the column of memory that is drawn: RSS, or what the view has first where RSS was not recorded."""
    samples = session.samples
    return "rss" if "rss" in samples and samples.figures("rss").known else next(iter(view.metrics), "rss")


def draw_memory(axes: Axes, session: Session, view: View, ruler: Ruler) -> None:
    """Draw RSS with its peak, and the parts of RSS that were recorded.

    Without RSS, draw the first metric of ``view``. With ``from_zero``, parts are not drawn: each would have a zero of
    its own.
    """
    name = shown_metric(session, view)
    _label_values(axes, f"{label(name)}{view.above} ({view.unit})")
    if (line := memory_line(session, view, name)) is None:
        _note(axes, "no samples were recorded")
        return
    if name == "rss" and not view.from_zero:
        _draw_parts(axes, session, view, line)
    marker = "." if line.is_sparse else drawing.marker_for(line.time_s)
    axes.plot(line.time_s, line.sizes, color=INK, linewidth=1.5, marker=marker, label=label(name))
    drawing.draw_peak(axes, line.peak, INK, line.mark)
    limit = drawn_limit(session, view)
    limits = [] if limit is None else [limit.size]
    if limit is not None:
        drawing.draw_limit(axes, limit.size, limit.label)
    at_s, size = line.peak
    top, bottom = max([size, *limits]), min(0.0, float(np.nanmin(line.sizes))) * 1.05
    height = axes.bbox.height / DPI
    texts = [text for text in (line.peak_text, peak_label(session, view.unit) if name == "rss" else "") if text]
    room = _PEAK_TEXT + _PEAK_LINE * (len(texts) - 1)
    per_inch = (top - bottom or 1.0) / (height - room)
    axes.set_ylim(bottom, bottom + per_inch * height)
    text_at = max([size, *(limit_size for limit_size in limits if limit_size < size + per_inch * room)])
    _write_above(axes, (at_s, text_at), texts, run_s(session), ruler)
    if len(axes.get_legend_handles_labels()[1]) > 1:
        _legend(axes, loc="upper left", reverse=True, handlelength=1.4, borderaxespad=0.3)


def draw_devices(axes: Axes, session: Session, view: View) -> None:
    """Draw what the run held of each GPU and NPU."""
    _label_values(axes, f"Devices{view.above} ({view.unit})")
    highest = 0.0
    names = _devices(session)
    for name, (colour, style) in zip(names, cycle(product((INK, _GREYS[0]), ("-", "--", ":", "-."))), strict=False):
        if (line := memory_line(session, view, name)) is not None:
            marker = drawing.marker_for(line.time_s)
            axes.plot(line.time_s, line.sizes, style, color=colour, linewidth=1.4, marker=marker, label=line.peak_text)
            highest = max(highest, line.peak_size)
    columns = 1 + (len(names) > _MOST_IN_A_COLUMN)
    axes.set_ylim(0, highest * (1 + 0.26 * ceil(len(names) / columns)) or 1)
    _legend(axes, loc="upper right", ncols=columns, borderaxespad=0.2)


def _devices(session: Session) -> list[str]:
    samples = session.samples
    return [
        name for name in metrics.columns_of([metrics.DEVICE_MEMORY], samples.metrics) if samples.figures(name).known
    ]


def draw_cpu(axes: Axes, session: Session) -> None:
    """Draw the number of busy cores, and its average."""
    cpus = session.host.cpus
    axes.set_ylabel(f"CPU (cores of {cpus})" if cpus else "CPU (cores)", fontsize=_SIZE + 1)
    counters = cpu_counters(session.samples)
    moments, busy = rates_of(session, counters, _CPU_WINDOWS)
    if not len(busy):
        spent = cpu_s(session)
        is_recorded = spent is not None and counters and len(session.samples)
        too_short = f"{seconds_text(spent)} of CPU time; the run is too short to tell when"
        _note(axes, too_short if is_recorded else "CPU time was not recorded")
        return
    average = cores_average(session)
    highest = float(max(busy[~np.isnan(busy)].max(initial=0), average or 0))
    tops = [part * cpus for part in _CPU_TOPS] if cpus else []
    axes.set_ylim(0, next((top for top in tops if highest <= top), highest or 1) * 1.04)
    for low, high, colour in _ZONES if cpus else ():
        axes.axhspan(low * (cpus or 1), high * (cpus or 1), color=colour, zorder=0, linewidth=0)
    axes.stairs(busy, moments, baseline=None, color=INK, linewidth=1.1)
    if average is not None:
        axes.axhline(average, color=INK, linestyle="--", linewidth=1)
        beside = {"xycoords": axes.get_yaxis_transform(), "va": "center"}
        drawing.annotate(
            axes, f"average\n{cores_text(average)}", (1, average), (5, 0), fontsize=_SIZE, color=INK, **beside
        )


def draw_io(axes: Axes, session: Session, family: str) -> None:
    """Draw the bytes read and written up to each moment; ``family`` is a key of ``IO_COUNTERS``."""
    samples = session.samples
    counters = [name for name in IO_COUNTERS[family] if name in samples and samples.figures(name).known]
    highest = max((samples.figures(name).highest for name in counters), default=0.0)
    unit = unit_for(highest)
    axes.set_title(family, loc="left", fontsize=_SIZE + 1, color=INK)
    _label_values(axes, f"{unit}")
    axes.set_ylim(0, highest / unit.factor * 1.08 or 1)
    if not highest:
        axes.set_yticks([0] if counters else [])
    if not counters:
        _note(axes, "I/O was not recorded")
        return
    for name in counters:
        time, value = decimated_with_gaps(samples.time_s, samples[name], session.sampler.spacing_s)
        is_read = name.startswith("read")
        total = session.totals.get(name)
        text = f"{'read' if is_read else 'written'} {size_text(known(samples[name])[-1] if total is None else total)}"
        style, marker = "-" if is_read else "--", drawing.marker_for(time)
        axes.plot(time, value / unit.factor, style, color=INK, linewidth=1.4, marker=marker, label=text)
    _legend(axes, loc="lower right", ncols=2, borderaxespad=0.2)


def _legend(axes: Axes, **look: Any) -> None:  # noqa: ANN401 — any property of a legend
    axes.legend(bbox_to_anchor=(1, 1), frameon=False, fontsize=_SIZE, **look)


def _label_values(axes: Axes, text: str) -> None:
    """Write what the y axis shows, and its numbers with thousands separators."""
    axes.set_ylabel(text, fontsize=_SIZE + 1, parse_math=False)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.12g}")


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


def _write_above(axes: Axes, point: tuple[float, float], lines: Sequence[str], length_s: float, ruler: Ruler) -> None:
    """Write lines centred above a point, moved sideways if they would leave the axes; the first one is larger."""
    wide = axes.bbox.width / DPI
    for number, line in enumerate(lines):
        size = _SIZE if number else _SIZE + 1
        text = ruler.fitted(line, wide - _TIMELINE_MARGIN, size)
        half_s = (ruler.width(text, size) + _TIMELINE_MARGIN) / 2 / wide * length_s
        at = (min(max(point[0], half_s), length_s - half_s), point[1])
        above = 6 + (len(lines) - 1 - number) * _PEAK_LINE * _POINTS
        drawing.annotate(axes, text, at, (0, above), ha="center", va="bottom", fontsize=size, color=INK)


def _note(axes: Axes, text: str) -> None:
    axes.set(yticks=[], ylim=(0, 1))
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=FAINT, fontsize=_SIZE + 1)


_LEFT, _RIGHT = 1.0, 1.05
"""Margins beside the panels over time; all lengths here are in inches."""
_LEFT_OF_LONG_FIGURES = 1.5
_TITLE, _TITLE_SIZE, _TITLE_LINE = 400, 10, 0.19
_MEMORY, _DEVICES, _CPU, _IO = 2.8, 1.5, 1.5, 1.6
_MARGIN, _BETWEEN, _TIME_LABELS, _IO_HEAD = 0.15, 0.3, 0.6, 0.55


def draw(session: Session, view: View, path: pathlib.Path, kind: str = "") -> None:
    """Write the picture in the format ``kind``, by default the suffix of the path. Raises OSError."""
    with drawing.missing_glyphs_as_boxes():
        figure = page(session, view)
    drawing.save(figure, path, kind)


def page(session: Session, view: View) -> Figure:
    """Return the picture."""
    every = numbered(timeline(session.operations, view.depth), session)
    counters = counters_of(session.samples.metrics)
    shown = rows(every, counters, MOST_ROWS, session)
    band, ruler = Band(every, run_s(session)), Ruler()
    text = shortened(printable(view.title) or command_text(session), _TITLE)
    title = ruler.lines(text, WIDTH - 4 * _MARGIN, _TITLE_SIZE, 2)
    memory_top = 2 * _MARGIN + len(title) * _TITLE_LINE + band.height
    devices_top = memory_top + _MEMORY + _BETWEEN
    cpu_top = devices_top + (_DEVICES + _BETWEEN if _devices(session) else 0)
    lower_top = cpu_top + _CPU + _TIME_LABELS
    lower = height(shown) if shown else _IO_HEAD + _IO + _TIME_LABELS
    figure = Figure(figsize=(WIDTH, lower_top + lower + _MARGIN), dpi=DPI)
    _write(figure, (2 * _MARGIN, _MARGIN), "\n".join(title), INK)
    left = _LEFT if view.unit.factor >= MemoryUnit.MB.factor else _LEFT_OF_LONG_FIGURES
    memory = _panel(figure, (left, memory_top, WIDTH - left - _RIGHT, _MEMORY))
    draw_memory(memory, session, view, ruler)
    band.tint(memory)
    band.draw(memory, ruler)
    above = [memory]
    if _devices(session):
        above.append(_panel(figure, (left, devices_top, WIDTH - left - _RIGHT, _DEVICES)))
        draw_devices(above[1], session, view)
        band.draw(above[1])
    cpu = _panel(figure, (left, cpu_top, WIDTH - left - _RIGHT, _CPU))
    draw_cpu(cpu, session)
    band.draw(cpu)
    for axes in (*above, cpu):
        drawing.time_axis(axes, run_s(session))
    for axes in above:
        axes.set_xlabel("")
        axes.tick_params(labelbottom=False)
    if shown:
        unit = view.unit if view.unit.factor >= MemoryUnit.MB.factor else MemoryUnit.MiB
        beside = Shown(shown_metric(session, view), unit, counters, session.duration_s)
        draw_rows(_axes(figure, (0, lower_top, WIDTH, lower)), shown, beside, ruler)
        return figure
    _write(figure, (_LEFT, lower_top), "no operations were marked; I/O of the run:", FAINT)
    wide = (WIDTH - 2 * _LEFT - _RIGHT) / len(IO_COUNTERS)
    for number, family in enumerate(IO_COUNTERS):
        axes = _panel(figure, (_LEFT + number * (wide + _LEFT), lower_top + _IO_HEAD, wide, _IO))
        draw_io(axes, session, family)
        drawing.time_axis(axes, run_s(session))
    return figure


def _write(figure: Figure, at: tuple[float, float], text: str, colour: str) -> None:
    left, top = at
    look: dict[str, Any] = {"size": _TITLE_SIZE, "color": colour, "va": "top", "linespacing": 1.3, "parse_math": False}
    figure.text(left / WIDTH, 1 - top / figure.get_figheight(), text, **look)


def _panel(figure: Figure, box: tuple[float, float, float, float]) -> Axes:
    axes = _axes(figure, box)
    drawing.plain(axes)
    axes.tick_params(labelsize=8)
    axes.xaxis.label.set_fontsize(9)
    return axes


def _axes(figure: Figure, box: tuple[float, float, float, float]) -> Axes:
    """Add axes; ``box`` is left, top, width and height, from the page's top left corner."""
    left, top, wide, high = box
    page_high = figure.get_figheight()
    return figure.add_axes((left / WIDTH, 1 - (top + high) / page_high, wide / WIDTH, high / page_high))
