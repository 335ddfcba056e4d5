"""A chart of a session for a terminal: memory over time, with operations and rates below on the same time axis.

The live view uses the same functions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.segment import SegmentLines
from rich.text import Text

from nncftools import metrics
from nncftools.analysis import summary
from nncftools.analysis.peaks import RATE_WINDOW_S
from nncftools.analysis.session import Session
from nncftools.limits.needs import MACHINE, effective_limit
from nncftools.metrics import cpu_counters
from nncftools.render.listing import list_operations
from nncftools.render.peak_lines import memory_line
from nncftools.render.sentences import span_text
from nncftools.render.terminal_plot import (
    AXIS,
    CURVES,
    GOOD,
    GUTTER,
    MOST_LINES,
    PEAK,
    SIGNS,
    WARNING,
    Floats,
    Line,
    Marked,
    Span,
    TerminalStyle,
    Window,
    chart_problem,
    colours_of,
    fitting,
    operations_row,
    plot,
    render_rows,
)
from nncftools.render.view import View, label
from nncftools.units import MemoryUnit, fixed, shortened, text_of

_LOWEST = 12
"""Least height of a report's chart, in lines; the next two constants are the largest height and the height for a
file."""
_HIGHEST = 40
_NOT_ON_A_TERMINAL = 24
_CAPTION = f"beside the bars: the highest rate, averaged over {RATE_WINDOW_S:g} s"


class _Chart(NamedTuple):
    """The chart of a session. Size, characters and colours depend on the console that prints it."""

    session: Session
    view: View

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        height = _NOT_ON_A_TERMINAL
        if console.is_terminal:
            height = min(max(console.size.height - 2, _LOWEST), _HIGHEST)
        colours = colours_of(console)
        style = TerminalStyle(self.view.unit, unicode=not options.ascii_only, colours=colours)
        content = chart(self.session, self.view, options.max_width, height, style=style)
        yield SegmentLines(render_rows(content, options.max_width, None, style), new_lines=True)


def report(session: Session, view: View) -> _Chart:
    """Return the chart of a session for Rich to print."""
    return _Chart(session, view)


def chart(session: Session, view: View, width: int, height: int, *, style: TerminalStyle) -> Group:
    """Return the chart of a session, ``width`` columns wide and ``height`` rows high."""
    run_s = max(session.duration_s, 1e-3)
    shown = Window(run_s, max(10, width - GUTTER - 1), run_s)
    names = _select_metrics(session, view)
    lines = []
    peak = None
    peak_at = ""
    for name in names:
        line = memory_line(session, replace(view, unit=MemoryUnit.B), name, 8 * shown.columns)
        if line is None:
            nothing = np.empty(0)
            lines.append(Line(label(name), nothing, nothing))
            continue
        sizes = np.maximum(line.sizes, 0.0) if view.from_zero else line.sizes
        last = float(sizes[~np.isnan(sizes)][-1])
        lines.append(Line(label(name), line.time_s, sizes, last))
        is_first = name == names[0] and name in session.peaks
        if is_first and not view.from_zero and line.span_s is not None:
            peak = (line.peak_size, line.peak[0])
            peak_at = span_text(line.span_s)
    limit = None if view.from_zero or names[:1] != ["rss"] else effective_limit(session)
    marked = Marked(peak, None if limit is None or limit.kind == MACHINE else limit.size)
    below = _make_rows_below(session, shown, style)
    problem = chart_problem()
    plotted = Text(problem)
    if not problem:
        plotted = plot(lines, marked, shown, height - len(below) - 1, style=style)
    legend = fitting(_make_legend(lines, peak, peak_at, style), width)
    legend.pad_left(min(style.gutter + 1, width - legend.cell_len))
    return Group(legend, plotted, *below)


def _select_metrics(session: Session, view: View) -> list[str]:
    """Return the metrics to draw: the first metric, and all others that are not always written as 0."""
    zero = view.unit.text(0)
    names: list[str] = []
    for name in view.metrics:
        if name not in session.samples:
            continue
        if not names or view.unit.text(session.samples.figures(name).highest) != zero:
            names.append(name)
    return names[:MOST_LINES]


def _make_rows_below(session: Session, shown: Window, style: TerminalStyle) -> list[RenderableType]:
    operations = list_operations(session.operations, 1)
    spans = [
        Span(
            operation.name,
            operation.start_s,
            operation.end_s,
            operation.kind,
        )
        for operation in operations
    ]
    below: list[RenderableType] = [operations_row(spans, shown, style)] if spans else []
    has_rates = False
    for rate in choose_rates(session.samples):
        moments, rates = summary.rates_of(session, rate.counters, shown.columns)
        in_columns = rates_in_columns(moments, rates, shown)
        if not np.isnan(in_columns).all():
            has_rates = True
            below += rate_rows(rate, in_columns, summary.highest_rate(session, rate.counters), style.gutter)
    if has_rates:
        below.append(Text(f"{' ' * (style.gutter + 1)}{_CAPTION}", AXIS, no_wrap=True))
    return below


def _make_legend(
    lines: Sequence[Line], peak: tuple[float, float] | None, peak_at: str, style: TerminalStyle
) -> list[Text]:
    parts = []
    for number, line in enumerate(lines):
        value = f"{line.label} {style.unit.label(line.last)}  "
        parts.append(Text.assemble((f"{SIGNS[number]} ", CURVES[number]), value))
    if lines and peak is not None:
        size = Text.assemble(("◆", PEAK), f" peak {style.unit.label(peak[0])} ")
        parts[1:1] = [size, Text(f"at {peak_at}  ")]
    return parts


_BLOCKS = " ▁▂▃▄▅▆▇█"
_FULL = len(_BLOCKS) - 1
_NAME = 5
_OF_STORAGE = {"read_bytes": ("Read", "#4a90e0"), "write_bytes": ("Write", WARNING)}


class Rate(NamedTuple):
    """A rate that is drawn as a row of bars: the sum of the rates of some counters."""

    name: str
    counters: tuple[str, ...]
    unit: str
    """Unit of the amount that is counted: ``B`` (bytes), ``s`` (seconds), or empty for a count of events. The rate is
    this amount per second. CPU seconds per second are ``cores``."""
    colour: str

    def figure(self, value: float, room: int) -> str:
        """Return a rate in at most ``room`` characters: ``0.98`` (cores), ``1.2 MiB/s``, ``1M/s``."""
        if self.unit == "cores":
            return fixed(value, 2)
        number, _, unit = text_of(value, self.unit).partition(" ")
        if not unit and value >= 1e4:  # noqa: PLR2004 — a count with five digits or more
            number = f"{value / 1e3:.0f}"
            unit = "k"
        whole = f"{float(number.replace(',', '')):.0f}"
        texts = (f"{number} {unit}/s", f"{whole} {unit}/s", f"{whole}{unit[:1]}/s", f"{whole}{unit[:1]}")
        return next((text for text in texts if len(text) < room), whole)[:room]


def choose_rates(columns: Collection[str]) -> Sequence[Rate]:
    """Return the rates to show for samples with these ``columns``. Rates of system calls are not shown."""
    cores = cpu_counters(columns)
    rates = [Rate("Cores", cores, "cores", GOOD)] if cores else []
    for column, metric in metrics.of_operations(columns).items():
        if metric.is_counter and metric.family != metrics.SYSTEM_CALLS and column in columns:
            name, colour = _OF_STORAGE.get(column, (metric.label, CURVES[1]))
            rates.append(Rate(shortened(name, _NAME), (column,), metric.unit, colour))
    return rates


def rates_in_columns(moments: Floats, rates: Floats, shown: Window) -> Floats:
    """Return the rate in the middle of each column of the chart.

    The first rate is valid from the first of ``moments`` to the second, and so on.
    """
    if not len(rates):
        return np.full(shown.columns, np.nan)
    middles = (np.arange(shown.columns) + 0.5) * shown.end_s / shown.columns
    indexes = np.searchsorted(moments, middles, side="right") - 1
    is_within = (indexes >= 0) & (indexes < len(rates))
    known = rates[np.clip(indexes, 0, len(rates) - 1)]
    return np.where(is_within, known, np.nan)


def rate_rows(rate: Rate, rates: Floats, figure: float | None, gutter: int, height: int = 1) -> Iterator[Text]:
    """Yield ``height`` rows of bars. Full height is the highest rate; 0 and unknown rates are blank.

    ``figure`` is a rate to write beside the bars; None for nothing.
    """
    highest = float(np.nanmax(rates, initial=1.0 if rate.unit == "cores" else 0.0)) or 1.0
    heights = np.nan_to_num(rates) / highest * height
    for below in reversed(range(height)):
        name = Text(" " * (gutter + 1))
        if not below:
            room = gutter - _NAME
            value = "" if figure is None else rate.figure(figure, room)
            name = Text.assemble(f"{rate.name:<{_NAME}}", (f"{value:>{room}} ", AXIS))
        yield name.append(draw_bars(heights - below), rate.colour)


def draw_bars(heights: ArrayLike) -> str:
    """Return a character for each height: blank for 0 or less, a full block for 1 or more."""
    levels = np.ceil(np.multiply(heights, _FULL) - 1e-9).astype(int)
    return "".join(_BLOCKS[level] for level in np.clip(levels, 0, _FULL))
