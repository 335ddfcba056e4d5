"""A chart for the terminal: memory over time by plotext, with operations and rates below it on the same time axis.

The live view draws its chart with the same functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from rich.console import Group
from rich.text import Text

from nncftools import metrics
from nncftools.analysis import series
from nncftools.analysis.summary import level
from nncftools.analysis.timeline import timeline
from nncftools.metrics import cpu_counters
from nncftools.render.colours import fills
from nncftools.render.terminal import scales
from nncftools.render.view import label
from nncftools.session.operation import Operation
from nncftools.text import printable, shortened
from nncftools.units import MemoryUnit, text_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from numpy.typing import NDArray
    from rich.console import Console, ConsoleOptions, RenderResult

    from nncftools.render.view import View
    from nncftools.session.session import Session


LEFT = 11
"""Columns to the left of the canvas, for the labels of the axis."""
_LINES = ("cyan", "magenta", "green", "yellow")
_PLOTEXT = {"cyan": "cyan", "magenta": "magenta", "green": "green", "yellow": "orange", "red": "red+"}
_PEAK = "red"
_PLAIN_MARKERS = "*o+x"
_ROWS_PER_TICK, _COLUMNS_PER_TICK = 3, 14
_BLOCKS, _PLAIN_BLOCKS = "▁▂▃▄▅▆▇█", ".:-=+*#@"
_SHORTEST_NAME = 3
_RATE_NAME = 5
_LOWEST, _HIGHEST, _NOT_ON_A_TERMINAL = 12, 40, 24
"""Heights of a report's chart, in lines."""
_OF_STORAGE = {"read_bytes": ("Read", "blue"), "write_bytes": ("Write", "yellow")}


class Style(NamedTuple):
    """What a screen can show, and the unit of memory."""

    unit: MemoryUnit = MemoryUnit.MiB
    unicode: bool = True
    colour: bool = True


class Line(NamedTuple):
    """A metric over time, in seconds and bytes, without unknown values."""

    label: str
    time_s: Sequence[float]
    values: Sequence[float]
    last: float | None = None
    """The latest value, for the legend."""


class Rate(NamedTuple):
    """A line of rates: the counters whose sum it shows, and the unit of that sum."""

    name: str
    counters: tuple[str, ...]
    unit: str
    """``cores``, ``B``, ``s`` or empty."""
    colour: str


@dataclass(frozen=True)
class Span:
    """An operation; ``end_s`` is None while it is running."""

    name: str
    start_s: float
    end_s: float | None = None
    kind: str | None = None


class Window(NamedTuple):
    """The visible part of a run, and its number of columns."""

    begin_s: float
    end_s: float
    columns: int

    def column(self, at_s: float) -> int:
        """Return the column of a moment."""
        return round((at_s - self.begin_s) / (self.end_s - self.begin_s) * (self.columns - 1))


def chart_lines(
    lines: Sequence[Line], peak: tuple[float, float] | None, shown: Window, height: int, style: Style
) -> list[Text]:
    """Return a chart as ``height`` lines of text: the legend, the canvas with its axis, the time axis.

    ``peak`` is a value in bytes and its time; it is marked if it is visible.
    """
    rows = max(2, height - 3)
    unit = style.unit
    largest = max((max(line.values, default=0.0) for line in lines), default=0.0)
    if peak is not None and shown.begin_s <= peak[1] <= shown.end_s:
        largest = max(largest, peak[0])
    top = scales.rounded_up(unit.of(largest))
    canvas = _canvas(lines, peak, shown, (rows, top * unit.factor), style)
    marks = {round(value / top * (rows - 1)): value for value in scales.ticks(top, max(1, rows // _ROWS_PER_TICK))}
    bar, tick = ("│", "┤") if style.unicode else ("|", "+")
    texts = [_legend(lines, peak, shown, style)]
    for row, line in enumerate(canvas):
        value = marks.get(rows - 1 - row)
        text = "" if value is None else f"{value:,.10g}"
        edge = Text(f"{text:>{LEFT - 1}} {bar if value is None else tick}", style="dim")
        texts.append(edge.append_text(line))
    return [*texts, *_times(shown, unicode=style.unicode)]


def _legend(lines: Sequence[Line], peak: tuple[float, float] | None, shown: Window, style: Style) -> Text:
    text = Text(f"{style.unit:>{LEFT - 1}} ", style="dim")
    for line, colour, marker in zip(lines, _LINES, _PLAIN_MARKERS, strict=False):
        sign = "━━" if _is_fine(lines, style) else marker
        text.append(f" {sign} ", style=f"bold {colour}" if style.colour else "bold")
        text.append(f"{line.label} {style.unit.text(line.last)}", style="not dim")
    if peak is not None and shown.begin_s <= peak[1]:
        text.append(f"  {'◆' if style.unicode else '^'}", style=f"not dim {_PEAK}" if style.colour else "not dim")
        text.append(f" peak {style.unit.text(peak[0])} at {scales.clock(float(int(peak[1])))}", style="not dim")
    return text


def _is_fine(lines: Sequence[Line], style: Style) -> bool:
    """Return whether lines can be drawn in Braille: only colour distinguishes several such lines."""
    return style.unicode and (style.colour or len(lines) == 1)


def _canvas(
    lines: Sequence[Line], peak: tuple[float, float] | None, shown: Window, size: tuple[int, float], style: Style
) -> list[Text]:
    """Return the lines of the canvas, drawn by plotext; ``size`` is their number and the bytes at the top."""
    import plotext

    rows, top = size
    plotext.terminal.limit(False, False)  # noqa: FBT003 — width and height
    figure = plotext.figure
    figure.clear()
    figure.plot_size(shown.columns, rows)
    figure.theme("colorless")
    figure.axes(False)  # noqa: FBT003 — whether they are drawn
    figure.legend(False)  # noqa: FBT003 — the same
    for axis, begin, end in (("x", shown.begin_s, shown.end_s), ("y", 0.0, top)):
        figure.ruler(axis).lim(begin, end)
        figure.ruler(axis).frequency(0)
    for line, colour, plain in reversed(list(zip(lines, _LINES, _PLAIN_MARKERS, strict=False))):  # the first on top
        if len(line.values):
            marker = "braille" if _is_fine(lines, style) else plain
            points = _near(line.time_s, shown.begin_s, shown.end_s), _near(line.values, 0.0, top)
            figure.draw(_signal(*points, marker, colour if style.colour else None).lines())
    if peak is not None and shown.begin_s <= peak[1] <= shown.end_s:
        marker = "◆" if style.unicode else "^"
        figure.draw(_signal([peak[1]], [peak[0]], marker, _PEAK if style.colour else None))
    found = figure.build().string(colorless=not style.colour).rstrip("\n").split("\n")[:rows]
    texts = [Text.from_ansi(line) if style.colour else Text(line) for line in found]
    for text in texts:
        text.truncate(shown.columns, pad=True)
    return texts + [Text(" " * shown.columns)] * (rows - len(texts))


def _near(values: Sequence[float], low: float, high: float) -> Sequence[float]:
    """Return values not further from the canvas than it is large: plotext draws what is outside of it, too."""
    clipped: list[float] = np.clip(values, low - (high - low), high + (high - low)).tolist()
    return clipped


def _signal(time_s: Sequence[float], values: Sequence[float], marker: str, colour: str | None) -> Any:  # noqa: ANN401 — plotext has no types
    import plotext

    pixel = plotext.pixel() if colour is None else plotext.pixel(_PLOTEXT[colour])
    return plotext.figure.signal(list(time_s), list(values), marker=plotext.marker(marker, pixel))


def _times(shown: Window, *, unicode: bool) -> list[Text]:
    """Return the time axis and its labels."""
    corner, flat, tick = ("└", "─", "┬") if unicode else ("+", "-", "+")
    axis = [flat] * shown.columns
    labels = [" "] * (LEFT + 1 + shown.columns)
    free_from = 0
    for at_s in scales.time_ticks(shown.begin_s, shown.end_s, shown.columns // _COLUMNS_PER_TICK):
        column = shown.column(at_s)
        if not 0 <= column < shown.columns:
            continue
        axis[column] = tick
        text = scales.clock(round(at_s, 6))
        begin = min(LEFT + 1 + column - len(text) // 2, len(labels) - len(text))
        if begin >= free_from:
            labels[begin : begin + len(text)] = text
            free_from = begin + len(text) + 1
    return [Text(text, style="dim") for text in (" " * LEFT + corner + "".join(axis), "".join(labels))]


def operations_line(spans: Sequence[Span], shown: Window, style: Style) -> Text:
    """Return one line with the names of the operations, each at the time of its operation."""
    line = Text(f"{'Operations':>{LEFT - 1}}  ")
    visible = [span for span in spans if span.end_s is None or span.end_s >= shown.begin_s]
    colours = fills([Operation(name=span.name, start_s=0, end_s=0, kind=span.kind) for span in visible])
    column = 0
    for place, span in enumerate(visible):
        begin = max(column, shown.column(max(span.start_s, shown.begin_s)))
        end = shown.columns - 1 if span.end_s is None else shown.column(min(span.end_s, shown.end_s))
        if place + 1 < len(visible):  # the next one must keep a column of its own
            end = min(end, shown.column(max(visible[place + 1].start_s, shown.begin_s)) - 1)
        room = min(end + 1, shown.columns) - begin
        if room <= 0:
            continue
        line.append(" " * (begin - column))
        name = shortened(printable(span.name), room) if room >= _SHORTEST_NAME else ""
        if not style.unicode:
            name = name.replace("…", "~").encode("ascii", "replace").decode()
        if style.colour:
            fill = colours[span.name]
            line.append(f"{name:^{room}}", style=f"{fill.ink} on {fill.colour}")
        else:
            line.append(_bracketed(name, room, unicode=style.unicode))
        column = begin + room
    return line


def _bracketed(name: str, room: int, *, unicode: bool) -> str:
    left, flat, right = ("├", "─", "┤") if unicode else ("|", "-", "|")
    if room <= 2:  # noqa: PLR2004 — both ends
        return left[:room] + right[: room - 1]
    return f"{left}{name[: room - 2]:{flat}^{room - 2}}{right}"


def _sparkline(rates: NDArray[np.float64], full: float, *, unicode: bool) -> str:
    """Return rates as one line of bars; ``full`` is the highest rate, 0 and unknown are blank."""
    blocks = _BLOCKS if unicode else _PLAIN_BLOCKS
    if full <= 0:
        return " " * len(rates)
    levels = np.minimum(np.ceil(np.nan_to_num(rates) / full * len(blocks)), len(blocks)).astype(int)
    return "".join(" " if level <= 0 else blocks[level - 1] for level in levels)


def rate_line(rate: Rate, rates: NDArray[np.float64], style: Style) -> Text:
    """Return rates as one line of bars, with the highest rate as a figure."""
    full = float(np.nanmax(rates, initial=0.0))
    if rate.unit == "cores":
        most = f"{full:.0%}".replace("%", " %")
        full = max(full, 1.0)
    else:
        most = f"{text_of(full, rate.unit) if rate.unit else _brief(full)}/s" if full else "0"
    line = Text(f"{rate.name:<{_RATE_NAME}}")
    line.append(f"{_fitted(most, LEFT - 6):>{LEFT - 6}} ", style="dim").append(" ")
    return line.append(_sparkline(rates, full, unicode=style.unicode), style=rate.colour if style.colour else "")


def _brief(number: float) -> str:
    """Return a count, in thousands or millions if it is large: ``98k``."""
    factor, letter = next((pair for pair in ((1e6, "M"), (1e3, "k")) if number >= pair[0]), (1, ""))
    return f"{number / factor:.0f}{letter}"


def _fitted(text: str, room: int) -> str:
    """Return a rate, shortened if necessary: without decimals, with one letter of its unit."""
    if len(text) <= room:
        return text
    number, _, unit = text.partition(" ")
    if not unit:
        return number.removesuffix("/s")[:room]
    return f"{float(number.replace(',', '')):.0f}{unit[:1]}"[:room]


def rates_shown(columns: Collection[str]) -> Sequence[Rate]:
    """Return the rates to show of a run with these columns: CPU, storage, and counters of no family."""
    found = [Rate("CPU", cpu_counters(columns), "cores", "green")]
    for column in metrics.of_operations(columns):
        metric = metrics.of(column)
        if metric is not None and metric.is_counter and metric.family != metrics.SYSTEM_CALLS:
            name, colour = _OF_STORAGE.get(column, (metric.label, "magenta"))
            found.append(Rate(shortened(name, _RATE_NAME), (column,), metric.unit, colour))
    return [rate for rate in found if rate.counters and all(name in columns for name in rate.counters)]


class _Chart:
    """The chart of a session as wide and high as the terminal, with the characters and colours that it supports."""

    def __init__(self, session: Session, view: View) -> None:
        self._session = session
        self._view = view

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        with_prompt = min(max(console.size.height - 2, _LOWEST), _HIGHEST)
        height = with_prompt if console.is_terminal else _NOT_ON_A_TERMINAL
        style = Style(self._view.unit, not options.ascii_only, console.color_system is not None)
        yield chart(self._session, self._view, options.max_width, height, style)


def report(session: Session, view: View) -> _Chart:
    """Return the chart of a session for Rich to print."""
    return _Chart(session, view)


def chart(session: Session, view: View, width: int, height: int, style: Style) -> Group:
    """Return the chart of a session with ``width`` columns and ``height`` lines, for Rich to print."""
    shown = Window(0.0, max(session.duration_s, 1e-3), max(10, width - LEFT - 1))
    names = [name for name in view.metrics if name in session.samples][: len(_LINES)]
    lines = [_line_of(session, name, shown.columns, from_zero=view.from_zero) for name in names]
    of = level(session.samples, names[0], session.peaks) if names and not view.from_zero else None
    marked = None if of is None or of.peak is None or of.span_s is None else (of.peak, sum(of.span_s) / 2)
    outermost = [operation for operation in timeline(session.operations, 1) if operation.depth == 0]
    spans = [Span(operation.name, operation.start_s, operation.end_s, operation.kind) for operation in outermost]
    rates = [rate_line(rate, found, style) for rate, found in _rates(session, shown)]
    below = [operations_line(spans, shown, style)] if spans else []
    texts = [*chart_lines(lines, marked, shown, height - len(below) - len(rates), style), *below, *rates]
    for text in texts:
        text.truncate(width)
    return Group(*texts)


def _line_of(session: Session, name: str, columns: int, *, from_zero: bool) -> Line:
    time_s, values = series.decimated_with_gaps(session.samples.time_s, session.samples[name], None, 2 * columns)
    known = ~np.isnan(values)
    time_s, values = time_s[known], values[known]
    if from_zero and len(values):
        values = np.maximum(values - values[0], 0.0)
    return Line(label(name), time_s.tolist(), values.tolist(), values[-1] if len(values) else None)


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
