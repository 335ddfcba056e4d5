"""The picture of a profiled run: code whose memory made up the peak, memory and CPU over time, table of operations."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import cycle
from math import ceil
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nncftools import drawing, metrics
from nncftools.analysis.session import Session
from nncftools.analysis.summary import cores_average, cpu_s, rates_of, run_s
from nncftools.drawing import DPI, FAINT, INK, Ruler
from nncftools.metrics import cpu_counters
from nncftools.render.listing import number_operations
from nncftools.render.operations_table import operations
from nncftools.render.peak_lines import MemoryLine, list_holders, memory_line
from nncftools.render.plot import Band, draw_memory, draw_note, write
from nncftools.render.table import Table, column_groups
from nncftools.render.view import View, label, write_title
from nncftools.units import MemoryUnit, cores_text, seconds_text

_GREYS = ("#8a8f94", "#b9bdc1", "#dfe1e3")
"""Colours of the parts of RSS, from the bottom up: greys, because other colours mark operations."""
_CPU_TOPS = (0.05, 0.1, 0.25, 1)
"""Possible upper ends of the CPU axis, as shares of all cores."""
_CPU_WINDOWS = 1500
"""Largest number of steps in the CPU curve that a reader can distinguish."""
_SIZE = 8.0
_MOST_IN_A_COLUMN = 3
"""Largest number of devices in a column of the legend."""


def _draw_run(axes: Axes, session: Session, view: View) -> None:
    """Draw RSS and its recorded parts, such as ``anon`` and ``file``; without RSS, draw the first metric of ``view``.

    With ``--from-zero``, no parts are drawn: the first sample would have to be subtracted from each part.
    """
    samples = session.samples
    has_rss = "rss" in samples and samples.figures("rss").known
    name = "rss" if has_rss else next(iter(view.metrics), "rss")
    line = memory_line(session, view, name)
    if has_rss and not view.from_zero and line is not None:
        _draw_parts(axes, session, view, line)
    draw_memory(axes, session, replace(view, metrics=[name]))
    if len(axes.get_legend_handles_labels()[1]) > 1:
        _draw_legend(axes, loc="upper left", reverse=True, handlelength=1.4, borderaxespad=0.3)


def _draw_parts(axes: Axes, session: Session, view: View, line: MemoryLine) -> None:
    """Draw the parts of RSS as stacked areas, at the moments of the RSS line."""
    samples = session.samples
    indexes = np.searchsorted(np.asarray(samples.time_s), line.time_s)
    bottom = np.zeros(len(line.time_s))
    colours = cycle(_GREYS)
    for name in samples.metrics:
        metric = metrics.of(name)
        figures = samples.figures(name)
        if metric is None or metric.part_of != "rss" or not figures.known:
            continue
        if view.unit.text(figures.highest) == view.unit.text(0):
            continue
        part = np.asarray(samples[name])[indexes] / view.unit.factor
        both = ~np.isnan(line.sizes) & ~np.isnan(part)
        top = bottom + np.where(both, part, 0)
        look: dict[str, Any] = {"color": next(colours), "linewidth": 0, "zorder": 1.5}
        axes.fill_between(
            line.time_s,
            bottom,
            top,
            where=both,
            label=label(name),
            **look,
        )
        bottom = top


def _draw_devices(axes: Axes, session: Session, view: View) -> None:
    names = _list_devices(session)
    draw_memory(axes, session, replace(view, metrics=names))
    axes.set_ylabel(f"Devices{view.above} ({view.unit})")
    columns = 1 + (len(names) > _MOST_IN_A_COLUMN)
    room = 1 + 0.26 * ceil(len(names) / columns)
    axes.set_ylim(0, axes.dataLim.ymax * room or 1)
    if len(names) > 1:
        _draw_legend(axes, loc="upper right", ncols=columns, borderaxespad=0.2)


def _list_devices(session: Session) -> list[str]:
    samples = session.samples
    columns = metrics.columns_of([metrics.DEVICE_MEMORY], samples.metrics)
    return [name for name in columns if samples.figures(name).known]


def _draw_cpu(axes: Axes, session: Session, _view: View) -> None:
    cpus = session.host.cpus
    axes.set_ylabel(f"CPU (cores of {cpus})" if cpus else "CPU (cores)", fontsize=_SIZE + 1)
    counters = cpu_counters(session.samples)
    moments, busy = rates_of(session, counters, _CPU_WINDOWS)
    if not len(busy):
        spent = cpu_s(session)
        note = "CPU time was not recorded"
        if spent is not None and counters and len(session.samples):
            note = f"{seconds_text(spent)} of CPU time; the run is too short to show when"
        draw_note(axes, note)
        return
    average = cores_average(session)
    known_busy = busy[~np.isnan(busy)]
    highest = float(max(known_busy.max(initial=0), average or 0))
    tops = [part * cpus for part in _CPU_TOPS] if cpus else []
    top = next((top for top in tops if highest <= top), highest or 1)
    axes.set_ylim(0, top * 1.04)
    axes.stairs(busy, moments, baseline=None, color=INK, linewidth=1.1)
    if average is not None:
        axes.axhline(average, color=INK, linestyle="--", linewidth=1)
        beside = {"xycoords": axes.get_yaxis_transform(), "va": "center"}
        text = f"average\n{cores_text(average)}"
        drawing.annotate(
            axes,
            text,
            (1, average),
            (5, 0),
            fontsize=_SIZE,
            color=INK,
            **beside,
        )


def _draw_legend(axes: Axes, **look: Any) -> None:  # noqa: ANN401 — any property of a legend
    axes.legend(bbox_to_anchor=(1, 1), frameon=False, fontsize=_SIZE, **look)


_WIDTH = 12.0
"""Width of the page in inches; the sizes below are in inches, too."""
_MOST_ROWS = 24
_HEADER = 0.42
_ROW = 0.24
_GAP = 0.1
_BOLD = 1.15
"""Width of bold letters relative to normal letters."""
_NUMBER = 0.42
_NAME = 0.52
_INDENT = 0.12
_DEEPEST = 6
_LEAST_NAME = 2.6
_LEAST_DETAILS = 0.8
_LEAST_COLUMN = 0.6
_ZEBRA = "#f5f5f5"
_PALE = 0.4


def _measure_table(table: Table) -> float:
    """Return the height of a table and the notes below it, in inches; 0 if the table has no rows."""
    lines = len(table.rows) + len(_list_notes(table))
    return _HEADER + _ROW * lines if table.rows else 0.0


def _list_notes(table: Table) -> list[str]:
    more = f"… {table.more}" if table.more else ""
    return list(filter(None, [more, *table.notes]))


def _draw_table(axes: Axes, table: Table, ruler: Ruler) -> None:
    """Draw the table of operations with as many columns as fit. Each number has a bar in the colour of its row."""
    axes.set(
        xlim=(0, _WIDTH),
        ylim=(_measure_table(table), 0),
        xticks=[],
        yticks=[],
    )
    axes.set_axis_off()
    middles = [_HEADER + _ROW * (number + 0.5) for number in range(len(table.rows))]
    axes.barh(
        middles[::2],
        _WIDTH - 2 * _GAP,
        left=_GAP,
        height=_ROW,
        color=_ZEBRA,
        zorder=0,
    )
    colours = [row.colour for row in table.rows]
    axes.barh(middles, 0.05, left=_NUMBER + 0.02, height=_ROW * 0.7, color=colours)
    right = _draw_numbers(axes, table, middles, ruler)
    write(axes, (_NAME, _HEADER - _GAP), "Operation", va="bottom", color=FAINT)
    for row, middle in zip(table.rows, middles, strict=True):
        write(
            axes,
            (_NUMBER, middle),
            row.cells[0].text,
            ha="right",
            color=FAINT,
        )
        left = _NAME + _INDENT * min(row.depth, _DEEPEST)
        name = ruler.fitted(row.cells[1].text, right - left, _SIZE)
        write(axes, (left, middle), name, color=FAINT if row.is_faint else INK)
        left += ruler.width(name, _SIZE) + _GAP
        if row.details and right - left > _LEAST_DETAILS:
            details = ruler.fitted(row.details, right - left, _SIZE)
            write(axes, (left, middle), details, color=FAINT)
    for number, note in enumerate(_list_notes(table), len(table.rows)):
        text = ruler.fitted(note, _WIDTH - _NAME - _GAP, _SIZE)
        write(axes, (_NAME, _HEADER + _ROW * (number + 0.5)), text, color=FAINT)


def _draw_numbers(axes: Axes, table: Table, middles: Sequence[float], ruler: Ruler) -> float:
    """Draw the columns of numbers at the right; return the x position, in inches, where the names must end."""
    headings = table.headings("\n")
    widths = []
    for index, heading in enumerate(headings):
        texts = [
            *heading.split("\n"),
            *(row.cells[index].text for row in table.rows),
        ]
        width = max(ruler.width(text, _SIZE) for text in texts)
        widths.append(max(width * _BOLD, _LEAST_COLUMN) + _GAP)
    room = _WIDTH - _NAME - _LEAST_NAME
    indexes: list[int] = []
    for group in column_groups(table)[1:]:
        width = sum(widths[index] for index in group)
        if width <= room:
            indexes += group
            room -= width
    edge = _WIDTH - 2 * _GAP - sum(widths[index] for index in indexes)
    left = edge
    colours = [row.colour for row in table.rows]
    for index in indexes:
        right = left + widths[index]
        write(
            axes,
            (right, _HEADER - _GAP),
            headings[index],
            ha="right",
            va="bottom",
            color=FAINT,
        )
        cells = [row.cells[index] for row in table.rows]
        values = [max(cell.value or 0.0, 0.0) for cell in cells]
        scale = (widths[index] - _GAP / 2) / (max(values) or 1.0)
        lengths = [value * scale for value in values]
        axes.barh(
            middles,
            lengths,
            left=left + _GAP,
            height=_ROW * 0.7,
            color=colours,
            alpha=_PALE,
        )
        for row, cell, middle in zip(table.rows, cells, middles, strict=True):
            weight = "bold" if row.is_strong else "normal"
            write(axes, (right, middle), cell.text, ha="right", fontweight=weight)
        left = right
    return edge - _GAP


_LEFT = 1.0
_LEFT_OF_LONG_FIGURES = 1.5
_RIGHT = 1.05
_TITLE = 400
_TITLE_SIZE = 10
_TITLE_LINE = 0.19
_MEMORY = 2.8
_OTHERS = 1.5
_MARGIN = 0.15
_BETWEEN = 0.3
_TIME_LABELS = 0.6


@drawing.missing_glyphs_as_boxes()
def draw(session: Session, view: View, path: pathlib.Path, kind: str = "") -> None:
    """Write the picture in the format ``kind``; if ``kind`` is empty, the suffix of ``path`` is the format.

    Raises OSError.
    """
    drawing.save(page(session, view), path, kind)


def page(session: Session, view: View) -> Figure:
    """Return the picture as a Matplotlib figure."""
    table = operations(session, view, _MOST_ROWS)
    band = Band(number_operations(session, view.depth), run_s(session))
    ruler = Ruler()
    text = write_title(session, view, _TITLE)
    room = _WIDTH - 4 * _MARGIN
    title = ruler.lines(text, room, _TITLE_SIZE, 2)
    for row in list_holders(session, view):
        title.append(ruler.fitted(f"{row.size} {row.label} {row.text}", room, _TITLE_SIZE))
    panels: list[
        tuple[
            Callable[
                [
                    Axes,
                    Session,
                    View,
                ],
                None,
            ],
            float,
        ]
    ] = [(_draw_run, _MEMORY)]
    if _list_devices(session):
        panels.append((_draw_devices, _OTHERS))
    panels.append((_draw_cpu, _OTHERS))
    top = 2 * _MARGIN + len(title) * _TITLE_LINE + band.height
    bottom = top + sum(height + _BETWEEN for _, height in panels) - _BETWEEN + _TIME_LABELS
    table_height = _measure_table(table)
    figure = Figure(figsize=(_WIDTH, bottom + table_height + _MARGIN), dpi=DPI)
    look: dict[str, Any] = {
        "size": _TITLE_SIZE,
        "color": INK,
        "va": "top",
        "linespacing": 1.3,
        "parse_math": False,
    }
    figure.text(
        2 * _MARGIN / _WIDTH,
        1 - _MARGIN / figure.get_figheight(),
        "\n".join(title),
        **look,
    )
    left = _LEFT if view.unit.factor >= MemoryUnit.MB.factor else _LEFT_OF_LONG_FIGURES
    for number, (draw_panel, height) in enumerate(panels):
        axes = _add_axes(figure, (left, top, _WIDTH - left - _RIGHT, height))
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
        _draw_table(_add_axes(figure, (0, bottom, _WIDTH, table_height)), table, ruler)
    return figure


def _add_axes(figure: Figure, box: tuple[float, float, float, float]) -> Axes:
    """Add axes at ``box``: left, top, width and height, measured from the top left corner of the page."""
    left, top, width, height = box
    page_height = figure.get_figheight()
    bottom = 1 - (top + height) / page_height
    return figure.add_axes((left / _WIDTH, bottom, width / _WIDTH, height / page_height))
