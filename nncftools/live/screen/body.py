"""The middle of the view: the chart of memory, operations and rates, on one time axis."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nncftools.render.terminal.bands import operations_row
from nncftools.render.terminal.plot import MOST_LINES, Line, Marked, plot
from nncftools.render.terminal.rates import rate_rows, rates_shown
from nncftools.render.terminal.window import Window
from nncftools.render.view import label

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nncftools.live.screen.look import Look
    from nncftools.live.state.run import Run
    from nncftools.render.terminal.palette import Medium
    from nncftools.render.terminal.rows import Row

_SHORTEST_S, _GROWTH = 5.0, 1.25
"""The time axis of a run that goes on has room for this much, then always for a quarter more."""
_STEPS = 8
"""Zoomed in, the axis moves on in parts of its length."""
_SMALLEST_CHART = 3
_RATES = ((44, (4, 2, 2)), (26, (3, 1, 1)), (11, (1, 1, 1)), (8, (1,)))
"""From which height on, the heights of CPU and of the other rates."""


class Body:
    """Draws what happened over time."""

    def __init__(self, run: Run, look: Look, medium: Medium, width: int) -> None:
        """Draw a run in ``width`` columns."""
        self._run, self._look, self._medium = run, look, medium
        self._window = _window(run.latest_s, look.zoom, max(10, width - medium.gutter - 1), has_ended=run.ended)

    def rows(self, height: int) -> list[Row]:
        """Return ``height`` rows: chart, operations and rates; without the chart if there is little room."""
        if not height:
            return []
        spans = self._run.operations.outermost(self._run.latest_s)
        below = [operations_row(spans, self._window, self._medium)] if spans else []
        below += self._rates(height)
        room = height - len(below)
        chart = self._chart(room) if room >= _SMALLEST_CHART else [[] for _ in range(room)]
        return [*chart, *below][:height]

    def _chart(self, height: int) -> list[Row]:
        run, shown = self._run, self._window
        names = self._look.chart(run.columns)[:MOST_LINES]
        lines: list[Line] = []
        for name in names:
            points = run.history.points(name, shown.begin_s, shown.end_s, 2 * shown.columns)
            is_nothing = bool(lines) and not points[1].any()
            lines.append(Line(label(name), *((points[0][:0], points[1][:0]) if is_nothing else points)))
        peak = run.peaks.get(names[0]) if names else None
        limit = run.limit.size if run.limit is not None and names[:1] == ["rss"] else None
        marked = Marked(None if peak is None else (peak.value, peak.at_s), limit)
        return plot(lines, marked, shown, height, self._medium)

    def _rates(self, height: int) -> Iterator[Row]:
        """Yield CPU and I/O as bars, with the rate of now."""
        heights = next((heights for least, heights in _RATES if height >= least), ())
        shown, run = self._window, self._run
        for place, rate in enumerate(rates_shown(run.columns)):
            rows = heights[min(place, len(heights) - 1)] if heights else 0
            if not rows or (place and len(heights) == 1):
                return
            found = [run.history.rates(name, shown.begin_s, shown.end_s, shown.columns) for name in rate.counters]
            if all(len(rates) for rates in found):
                rates = np.sum(found, axis=0)
                rates[shown.column(shown.now_s) + 1 :] = np.nan
                yield from rate_rows(rate, rates, run.rate(rate.counters) or 0.0, self._medium, rows)


def _window(now_s: float, zoom: int, columns: int, *, has_ended: bool) -> Window:
    """Return what is visible: all of a run that has ended, else room for what comes."""
    if has_ended:
        end_s = max(now_s, 1e-3)
        return Window(end_s - end_s / 2**zoom, end_s, columns, now_s)
    doublings = math.ceil(math.log(max(now_s / _SHORTEST_S, 1.0), _GROWTH) - 1e-9)
    length_s = _SHORTEST_S * _GROWTH**doublings / 2**zoom
    end_s = length_s
    if zoom:
        step_s = length_s / _STEPS
        end_s = max(length_s, math.ceil(now_s / step_s) * step_s)
    return Window(end_s - length_s, end_s, columns, now_s)
