"""The layout of the view, for any size of the screen."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console, Group
from rich.segment import Segment, SegmentLines
from rich.table import Table
from rich.text import Text

from nncftools.live.screen import figures
from nncftools.live.screen.look import KEYS
from nncftools.render.terminal import chart
from nncftools.render.view import label
from nncftools.text import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from nncftools.live.screen.figures import Machine
    from nncftools.live.screen.look import Look
    from nncftools.live.state.run import LiveProcess, Run

    Lines = list[list[Segment]]

_SHARE = 0.012
"""The part of one core that drawing charts may cost."""
_OLDEST_S = 5.0
_BESIDE_FROM = 110
_BESIDE = 34
_BELOW_FROM = 20
_PROCESSES = 5
_IN_A_LINE = 3
_SMALLEST_BODY = 5
_SHORTEST_S = 1.0
_RATES_FROM = 11
_SMALLEST_CHART = 5
_ASCII = str.maketrans({"›": ">", "–": "-", "…": "~", "●": "*", "×": "x"})


class Drawing:
    """Draws a run repeatedly; a chart that looks the same, or was drawn just now, is not drawn again."""

    def __init__(self, here: Machine) -> None:
        """Ask ``here`` for what the recording does not hold."""
        self._here = here
        self._drawn: Lines = []
        self._form: object = None
        self._state: object = None
        self._after_s = 0.0
        import plotext  # noqa: F401 — takes a third of a second, which must not count as the cost of a chart

    def frame(self, run: Run, look: Look, width: int, height: int) -> list[str]:
        """Return ``height`` lines of ``width`` columns at most, with colours as escape sequences."""
        console = Console(
            force_terminal=True,
            color_system="256",
            no_color=not look.colour,
            width=width,
            highlight=False,
            legacy_windows=False,
            _environ={},
        )
        with console.capture() as captured:
            console.print(SegmentLines(self._lines(console, run, look, width, height), new_lines=True), end="")
        text = captured.get()
        return (text if look.unicode else text.translate(_ASCII)).split("\n")[:height]

    def _lines(self, console: Console, run: Run, look: Look, width: int, height: int) -> Lines:
        available, largest = self._here.available(run), self._here.largest(run)
        summary = filter(None, (figures.memory(run, look), figures.activity(run)))
        head = [_title(run, look, width), Text("   ".join(summary))]
        head += _now(run, width)
        near = figures.time_left(run, available) is not None
        name, left = figures.memory_left(run, available)
        foot = [Text(f"{name.capitalize()}  {left}", style="bold red" if near else "")]
        beside = width >= _BESIDE_FROM and height > len(head) + len(foot) + _PROCESSES
        if look.keys:
            foot.append(Text(KEYS, style="dim"))
        room = max(0, height - len(head) - len(foot))
        if look.listing:
            middle = _rendered(console, _processes(largest, look, room), width, room)
        elif beside:
            body = self._body(console, run, look, width - _BESIDE, room)
            table = _rendered(console, _processes(largest, look, room), _BESIDE, room)
            middle = [left + right for left, right in zip(body, table, strict=True)]
        else:
            below: RenderableType = Text(f"Largest  {figures.processes(largest, look, _IN_A_LINE)}")
            rows = 1 if largest else 0
            if height >= _BELOW_FROM and len(largest) > _IN_A_LINE:
                below, rows = _processes(largest, look, _PROCESSES + 1), _PROCESSES + 1
            if room - rows < _SMALLEST_BODY:
                rows = 0
            body = self._body(console, run, look, width, room - rows)
            middle = [*body, *_rendered(console, below, width, rows)]
        return [*_rendered(console, Group(*head), width), *middle, *_rendered(console, Group(*foot), width)]

    def _body(self, console: Console, run: Run, look: Look, width: int, height: int) -> Lines:
        """Return chart, operations and rates, drawn again if they have changed and drawing is within its share."""
        end_s = max(run.latest_s, _SHORTEST_S)
        shown = chart.Window(end_s - end_s / 2**look.zoom, end_s, max(10, width - chart.LEFT - 1))
        spans = run.operations.outermost(run.latest_s)
        form = look, width, height, bool(spans), run.ended
        half_s = (shown.end_s - shown.begin_s) / shown.columns / 2
        peaks = [peak.value for peak in run.peaks.values()]
        state = int(shown.end_s / half_s), len(spans), spans[-1:], peaks
        if self._form != form or (self._state != state and time.monotonic() >= self._after_s):
            begin_cpu_s = time.thread_time()
            self._drawn = _rendered(console, Group(*_picture(run, look, spans, shown, height)), width, height)
            self._form, self._state = form, state
            self._after_s = time.monotonic() + min(_OLDEST_S, (time.thread_time() - begin_cpu_s) / _SHARE)
        return self._drawn


def _rendered(console: Console, shown: RenderableType, width: int, height: int | None = None) -> Lines:
    """Return lines of ``width`` columns, cut or padded; ``height`` of them if it is given."""
    options = console.options.update(width=width, height=height, no_wrap=True, overflow="ellipsis")
    return console.render_lines(shown, options)


def _picture(run: Run, look: Look, spans: Sequence[chart.Span], shown: chart.Window, height: int) -> list[Text]:
    """Return chart, operations and rates as at most ``height`` lines; without the chart if there is little room."""
    style = chart.Style(look.unit, look.unicode, look.colour)
    rates = list(_rates(run, shown, style)) if height >= _RATES_FROM else []
    below = [chart.operations_line(spans, shown, style)] if spans else []
    chart_height = height - len(below) - len(rates)
    if chart_height < _SMALLEST_CHART:
        return [*below, *rates]
    metrics = look.chart(run.columns)
    lines = []
    for name in metrics:
        time_s, values = run.history.points(name, shown.begin_s, shown.end_s, shown.columns)
        lines.append(chart.Line(label(name), time_s.tolist(), values.tolist(), run.latest.get(name)))
    peak = run.peaks.get(metrics[0]) if metrics else None
    marked = None if peak is None else (peak.value, peak.at_s)
    return [*chart.chart_lines(lines, marked, shown, chart_height, style), *below, *rates]


def _rates(run: Run, shown: chart.Window, style: chart.Style) -> Iterator[Text]:
    """Yield CPU and I/O as lines of bars."""
    for rate in chart.rates_shown(run.columns):
        found = [run.history.rates(counter, shown.begin_s, shown.end_s, shown.columns) for counter in rate.counters]
        if all(len(rates) for rates in found):
            yield chart.rate_line(rate, np.sum(found, axis=0), style)


def _title(run: Run, look: Look, width: int) -> Text:
    state = figures.ending(run) if run.ended else "paused" if look.paused else look.state
    right = "  ".join(filter(None, (state, figures.at(run.latest_s))))
    room = max(10, width - len(right) - 2)
    text = Text(shortened(printable(run.command), room), style="bold")
    text.append(" " * max(2, width - text.cell_len - len(right)))
    colour = "yellow" if look.paused else "green"
    return text.append(right, style=f"not bold {colour}" if look.colour else "not bold")


def _now(run: Run, width: int) -> Iterator[Text]:
    """Yield the current operation, and beside it which code made memory grow, if that is known."""
    current = figures.operation(run)
    text = Text(f"Now {current}" if current else "", style="bold")
    between = "   " if current else ""
    grown = figures.growth(run, width - text.cell_len - len(between))
    if grown:
        text.append(f"{between}{grown if current else grown[0].upper() + grown[1:]}", style="not bold")
    if text:
        yield text


def _processes(largest: Sequence[tuple[LiveProcess, int]], look: Look, height: int) -> Table:
    """Return the largest processes as a table of at most ``height`` lines."""
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True, min_width=_BESIDE - 21, max_width=40 if look.listing else _BESIDE - 21)
    table.add_column(justify="right", no_wrap=True)
    table.add_row(Text(" PID", style="dim"), Text("Process", style="dim"), Text(f"RSS {look.unit}", style="dim"))
    most = height - 1 if look.listing else min(_PROCESSES, height - 1)
    for process, rss in largest[: max(0, most)]:
        table.add_row(str(process.pid or ""), printable(process.name or "?"), look.unit.text(rss))
    return table
