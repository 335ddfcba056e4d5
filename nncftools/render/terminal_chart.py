"""A chart of a session for the terminal: memory over time, with operations and rates below it on the same time axis.

The live view is made of the same parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.segment import SegmentLines
from rich.text import Text

from nncftools.analysis import summary
from nncftools.analysis.peaks import RATE_WINDOW_S
from nncftools.analysis.session import Session
from nncftools.limits.needs import MACHINE, effective_limit
from nncftools.render import terminal_plot
from nncftools.render.listing import timeline
from nncftools.render.peak_lines import memory_line
from nncftools.render.sentences import span_text
from nncftools.render.terminal_plot import SIGNS, Line, Span, Window
from nncftools.render.terminal_style import AXIS, CURVES, GUTTER, PEAK, TerminalStyle, colours_of, fitting, render_rows
from nncftools.render.view import View, label
from nncftools.units import MemoryUnit

_LOWEST, _HIGHEST, _NOT_ON_A_TERMINAL = 12, 40, 24
"""Heights of a report's chart, in lines."""
_CAPTION = f"beside the bars: the highest over {RATE_WINDOW_S:g} s"


class _Chart(NamedTuple):
    """The chart of a session as wide and high as the terminal, with the characters and colours that it supports."""

    session: Session
    view: View

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        with_prompt = min(max(console.size.height - 2, _LOWEST), _HIGHEST)
        height = with_prompt if console.is_terminal else _NOT_ON_A_TERMINAL
        colours = colours_of(console)
        style = TerminalStyle(self.view.unit, unicode=not options.ascii_only, colours=colours)
        content = chart(self.session, self.view, options.max_width, height, style)
        yield SegmentLines(render_rows(content, options.max_width, None, style), new_lines=True)


def report(session: Session, view: View) -> _Chart:
    """Return the chart of a session for Rich to print."""
    return _Chart(session, view)


def chart(session: Session, view: View, width: int, height: int, style: TerminalStyle) -> Group:
    """Return the chart of a session: ``height`` rows of ``width`` columns."""
    run_s = max(session.duration_s, 1e-3)
    shown = Window(run_s, max(10, width - GUTTER - 1), run_s)
    names = _names(session, view)
    lines, peak, peak_at = [], None, ""
    for name in names:
        line = memory_line(session, replace(view, unit=MemoryUnit.B), name, 8 * shown.columns)
        if line is None:
            lines.append(Line(label(name), np.empty(0), np.empty(0)))
            continue
        sizes = np.maximum(line.sizes, 0.0) if view.from_zero else line.sizes
        lines.append(Line(label(name), line.time_s, sizes, float(sizes[~np.isnan(sizes)][-1])))
        if name == names[0] and name in session.peaks and not view.from_zero and line.span_s is not None:
            peak, peak_at = (line.peak_size, line.peak[0]), span_text(line.span_s)
    limit = None if view.from_zero or names[:1] != ["rss"] else effective_limit(session)
    marked = terminal_plot.Marked(peak, None if limit is None or limit.kind == MACHINE else limit.size)
    spans = [Span(of.name, of.start_s, of.end_s, of.kind) for of in timeline(session.operations, 1)]
    below = [terminal_plot.operations_row(spans, shown, style)] if spans else []
    for rate in terminal_plot.rates_shown(session.samples):
        rates = terminal_plot.rates_in_columns(*summary.rates_of(session, rate.counters, shown.columns), shown)
        if not np.isnan(rates).all():
            below += terminal_plot.rate_rows(rate, rates, summary.highest_rate(session, rate.counters), style.gutter)
    if len(below) > bool(spans):
        below.append(Text(f"{' ' * (style.gutter + 1)}{_CAPTION}", AXIS, no_wrap=True))
    problem = terminal_plot.chart_problem()
    plotted = Text(problem) if problem else terminal_plot.plot(lines, marked, shown, height - len(below) - 1, style)
    legend = fitting(_legend(lines, peak, peak_at, style), width)
    legend.pad_left(min(style.gutter + 1, width - legend.cell_len))
    return Group(legend, plotted, *below)


def _names(session: Session, view: View) -> list[str]:
    """Return the metrics to draw: the first one, and those that are not written as 0 all the time."""
    nothing, figures = view.unit.text(0), session.samples.figures
    known = [name for name in view.metrics if name in session.samples]
    shown = [name for name in known if name == known[0] or view.unit.text(figures(name).highest) != nothing]
    return shown[: terminal_plot.MOST_LINES]


def _legend(lines: Sequence[Line], peak: tuple[float, float] | None, peak_at: str, style: TerminalStyle) -> list[Text]:
    """Return each metric with its sign and its latest value, and the peak."""
    parts = []
    for number, line in enumerate(lines):
        value = f"{line.label} {style.unit.label(line.last)}  "
        parts.append(Text.assemble((f"{SIGNS[number]} ", CURVES[number]), value))
        if number == 0 and peak is not None:
            parts.append(Text.assemble(("◆", PEAK), f" peak {style.unit.label(peak[0])} "))
            parts.append(Text(f"at {peak_at}  "))
    return parts
