"""A chart of a session for the terminal: memory over time, with operations and rates below it on the same time axis.

The live view is made of the same parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich.segment import SegmentLines

from nncftools.analysis import series
from nncftools.analysis.peak_text import span_text
from nncftools.analysis.summary import level
from nncftools.limits.needs import MACHINE, effective_limit
from nncftools.render.canvas import GUTTER, Medium, Window, colours_of, fitted, text
from nncftools.render.listing import timeline
from nncftools.render.terminal_plot import (
    MOST_LINES,
    Line,
    Marked,
    Rate,
    Span,
    key,
    operations_row,
    plot,
    rate_rows,
    rates_shown,
)
from nncftools.render.view import View, label
from nncftools.session.operation import RATE_WINDOW_S
from nncftools.session.session import Session

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.console import Console, ConsoleOptions, RenderResult

    from nncftools.render.canvas import Row


_LOWEST, _HIGHEST, _NOT_ON_A_TERMINAL = 12, 40, 24
"""Heights of a report's chart, in lines."""
_CAPTION = f"beside the bars: the highest over {RATE_WINDOW_S:g} s"


class _Chart:
    """The chart of a session as wide and high as the terminal, with the characters and colours that it supports."""

    def __init__(self, session: Session, view: View) -> None:
        self._session = session
        self._view = view

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        with_prompt = min(max(console.size.height - 2, _LOWEST), _HIGHEST)
        height = with_prompt if console.is_terminal else _NOT_ON_A_TERMINAL
        medium = Medium(self._view.unit, not options.ascii_only, colours_of(console))
        rows = chart(self._session, self._view, options.max_width, height, medium)
        yield SegmentLines(rows, new_lines=True)


def report(session: Session, view: View) -> _Chart:
    """Return the chart of a session for Rich to print."""
    return _Chart(session, view)


def chart(session: Session, view: View, width: int, height: int, medium: Medium) -> list[Row]:
    """Return the chart of a session: ``height`` rows of ``width`` columns."""
    run_s = max(session.duration_s, 1e-3)
    shown = Window(0.0, run_s, max(10, width - GUTTER - 1), run_s)
    names = _names(session, view)
    lines = [_line_of(session, name, shown.columns, from_zero=view.from_zero) for name in names]
    of = level(session.samples, names[0], session.peaks) if names and not view.from_zero else None
    peak = None if of is None or of.peak is None or of.span_s is None else (of.peak, sum(of.span_s) / 2)
    peak_at = "" if of is None else span_text(of.span_s)
    limit = None if view.from_zero or names[:1] != ["rss"] else effective_limit(session)
    marked = Marked(peak, None if limit is None or limit.kind == MACHINE else limit.size)
    outermost = [operation for operation in timeline(session.operations, 1) if operation.depth == 0]
    spans = [Span(operation.name, operation.start_s, operation.end_s, operation.kind) for operation in outermost]
    below = [operations_row(spans, shown, medium)] if spans else []
    for rate, found in _rates(session, shown):
        below += rate_rows(rate, found, series.highest_rate(session, rate.counters), medium)
    if len(below) > bool(spans):
        below.append([text(f"{' ' * (medium.gutter + 1)}{_CAPTION}", medium.style("axis"))])
    rows = [_legend(lines, peak, peak_at, medium), *plot(lines, marked, shown, height - len(below) - 1, medium), *below]
    return [fitted(row, width) for row in rows]


def _names(session: Session, view: View) -> list[str]:
    """Return the metrics to draw: the first, and those that are ever more than what is written as 0."""
    nothing, figures = view.unit.text(0), session.samples.figures
    known = [name for name in view.metrics if name in session.samples]
    return [name for name in known if name == known[0] or view.unit.text(figures(name).highest) != nothing][:MOST_LINES]


def _legend(lines: Sequence[Line], peak: tuple[float, float] | None, peak_at: str, medium: Medium) -> Row:
    row = [text(" " * (medium.gutter + 1))]
    for place, line in enumerate(lines):
        row += [*key(place, medium), text(f"{line.label} {medium.unit.label(line.last)}  ")]
        if place == 0 and peak is not None:
            row.append(text("◆" if medium.unicode else "^", medium.style("peak")))
            row.append(text(f" peak {medium.unit.label(peak[0])} at {peak_at}  "))
    return row


def _line_of(session: Session, name: str, columns: int, *, from_zero: bool) -> Line:
    time_s, values = series.decimated_with_gaps(session.samples.time_s, session.samples[name], None, 4 * columns)
    known = ~np.isnan(values)
    time_s, values = time_s[known], values[known]
    if from_zero and len(values):
        values = np.maximum(values - values[0], 0.0)
    return Line(label(name), time_s, values, float(values[-1]) if len(values) else None)


def _rates(session: Session, shown: Window) -> Iterator[tuple[Rate, NDArray[np.float64]]]:
    """Yield rates with one value for each column of the chart."""
    width_s = (shown.end_s - shown.begin_s) / shown.columns
    middles = shown.begin_s + width_s * (np.arange(shown.columns) + 0.5)
    for rate in rates_shown(session.samples):
        moments, speed = series.rates_of(session, rate.counters, shown.columns)
        if len(speed):
            places = np.searchsorted(moments, middles, side="right") - 1
            within = (places >= 0) & (places < len(speed))
            yield rate, np.where(within, speed[np.clip(places, 0, len(speed) - 1)], np.nan)
