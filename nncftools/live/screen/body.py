"""The middle of the view: the chart of memory, operations and rates, on one time axis."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nncftools.live.screen.figures import charted
from nncftools.render.canvas import Window
from nncftools.render.terminal_plot import LABEL, Line, Marked, operations_row, plot, rate_label, rate_rows, rates_shown
from nncftools.render.view import label

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nncftools.live.screen.look import Look
    from nncftools.live.state.run import Run
    from nncftools.render.canvas import Medium, Row
    from nncftools.render.terminal_plot import Rate

_SHORTEST_S, _GROWTH = 5.0, 1.25
"""The time axis of a run that goes on has room for this much, then always for a quarter more."""
_STEPS = 8
"""Zoomed in, the axis moves on in parts of its length."""
_SMALLEST_CHART = 3
_FINE = 256
"""The latest value is drawn when it has changed by this part of the peak: no chart has so many dots in its height."""
_RATES = ((44, (4, 2, 2)), (26, (3, 1, 1)), (11, (1, 1, 1)), (8, (1,)))
"""From which height on, the heights of CPU and of the other rates."""


class Body:
    """Draws what happened over time; a chart that would look the same is not drawn again."""

    def __init__(self) -> None:
        """Begin with nothing drawn."""
        self._state: object = None
        self._drawn: list[Row] = []
        self._state_of_rates: object = None
        self._rate_rows: list[tuple[Rate, list[Row]]] = []

    def rows(self, run: Run, look: Look, medium: Medium, width: int, height: int) -> list[Row]:
        """Return ``height`` rows: chart, operations and rates; without the chart if there is little room."""
        if not height:
            return []
        shown = _window(run.latest_s, look.zoom, max(10, width - medium.gutter - 1), has_ended=run.ended)
        spans = run.operations.outermost(run.latest_s)
        below = [operations_row(spans, shown, medium)] if spans else []
        below += self._rates(run, medium, shown, height)
        room = height - len(below)
        chart = self._chart(run, look, medium, shown, room) if room >= _SMALLEST_CHART else [[] for _ in range(room)]
        return [*chart, *below][:height]

    def _chart(self, run: Run, look: Look, medium: Medium, shown: Window, height: int) -> list[Row]:
        names = charted(run, look)
        peaks = [run.peaks.get(name) for name in names]
        heights = [
            None if peak is None or name not in run.latest else round(run.latest[name] / (peak.value or 1.0) * _FINE)
            for name, peak in zip(names, peaks, strict=True)
        ]
        dot_s = (shown.end_s - shown.begin_s) / shown.columns / 2
        limit = run.limit.size if run.limit is not None and names[:1] == ["rss"] else None
        state = names, medium, height, shown._replace(now_s=shown.now_s // dot_s), peaks, heights, limit
        if self._state != state:
            self._state = state
            marked = Marked(None if not peaks or peaks[0] is None else (peaks[0].value, peaks[0].at_s), limit)
            self._drawn = plot([_line(run, name, shown) for name in names], marked, shown, height, medium)
        return self._drawn

    def _rates(self, run: Run, medium: Medium, shown: Window, height: int) -> Iterator[Row]:
        """Yield CPU and I/O as bars, which move on with each column, and the rate of now, which is always new."""
        heights = next((heights for least, heights in _RATES if height >= least), ())
        state = medium, heights, shown._replace(now_s=shown.column(shown.now_s)), tuple(run.columns)
        if self._state_of_rates != state:
            self._state_of_rates = state
            self._rate_rows = list(_drawn_rates(run, shown, medium, heights)) if heights else []
        for rate, rows in self._rate_rows:
            yield from rows[:-1]
            now = None if run.ended else run.rate(rate.counters) or 0.0
            yield [*rate_label(rate, now, medium), *rows[-1][LABEL:]]


def _line(run: Run, name: str, shown: Window) -> Line:
    return Line(label(name), *run.history.points(name, shown.begin_s, shown.end_s, 2 * shown.columns))


def _drawn_rates(run: Run, shown: Window, medium: Medium, heights: Sequence[int]) -> Iterator[tuple[Rate, list[Row]]]:
    """Yield CPU and I/O as bars."""
    for place, rate in enumerate(rates_shown(run.columns)):
        found = [run.history.rates(name, shown.begin_s, shown.end_s, shown.columns) for name in rate.counters]
        if all(len(rates) for rates in found):
            rates = np.sum(found, axis=0)
            rates[shown.column(shown.now_s) + 1 :] = np.nan
            yield rate, list(rate_rows(rate, rates, 0.0, medium, heights[min(place, len(heights) - 1)]))
        if len(heights) == 1:
            return


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
