"""A run as a chart: what it knows, handed to the renderer for terminals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nncftools.render.terminal import chart
from nncftools.render.view import label

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.text import Text

    from nncftools.live.screen.look import Look
    from nncftools.live.state.run import Run

_SHORTEST_S = 1.0
_RATES_FROM = 11
_SMALLEST_CHART = 5


def window(run: Run, look: Look, width: int) -> chart.Window:
    """Return what is shown on ``width`` columns, the labels of the axis included."""
    end_s = max(run.latest_s, _SHORTEST_S)
    return chart.Window(end_s - end_s / 2**look.zoom, end_s, max(10, width - chart.LEFT - 1))


def body(run: Run, look: Look, shown: chart.Window, height: int) -> list[Text]:
    """Return chart, operations and rates as at most ``height`` lines; where there is little room, without the chart."""
    style = chart.Style(look.unit, look.unicode, look.colour)
    spans = run.operations.outermost(run.latest_s)
    rates = list(_rates(run, shown, style)) if height >= _RATES_FROM else []
    below = [chart.operations_line(spans, shown, style)] if spans else []
    chart_height = height - len(below) - len(rates)
    if chart_height < _SMALLEST_CHART:
        return [*below, *rates][:height]
    return [*_chart(run, look.chart(run.facts.columns), shown, chart_height, style), *below, *rates]


def _chart(run: Run, metrics: Sequence[str], shown: chart.Window, height: int, style: chart.Style) -> list[Text]:
    lines = []
    for name in metrics:
        time_s, values = run.history.points(name, shown.begin_s, shown.end_s, shown.columns)
        lines.append(chart.Line(label(name), time_s.tolist(), values.tolist(), run.latest.get(name)))
    top = run.tops.get(metrics[0]) if metrics else None
    return chart.chart_lines(lines, None if top is None else (top.value, top.at_s), shown, height, style)


def _rates(run: Run, shown: chart.Window, style: chart.Style) -> Iterator[Text]:
    """Yield CPU and I/O as lines of bars."""
    for rate in chart.rates_shown(run.facts.columns):
        found = [run.history.rates(counter, shown.begin_s, shown.end_s, shown.columns) for counter in rate.counters]
        if all(len(rates) for rates in found):
            yield chart.rate_line(rate, np.sum(found, axis=0), style)
