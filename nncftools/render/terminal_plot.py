"""The parts of a chart in a terminal: memory over time as plotext draws it, a row of operations, bars of CPU and I/O.

Of memory, the first metric is an area, the others are curves. The colours are readable on light and on dark
backgrounds, whatever the terminal can show.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len, set_cell_size
from rich.color import Color
from rich.text import Text

from nncftools import metrics
from nncftools.analysis.operation import Operation
from nncftools.metrics import cpu_counters
from nncftools.render.listing import fills
from nncftools.render.terminal_style import AREA, AXIS, CURVES, GOOD, PEAK, WARNING, TerminalStyle, name_style
from nncftools.units import brief_size, fixed, printable, shortened, text_of

Floats = NDArray[np.float64]

SIGNS = "●o+x"
"""The signs of the curves in legends; all but the first are drawn with them."""
MOST_LINES = len(CURVES)


class Window(NamedTuple):
    """The time axis, from the start of a run, and its number of columns."""

    end_s: float
    columns: int
    now_s: float
    """Up to when something is known."""

    def column(self, at_s: float) -> int:
        """Return the column of a moment."""
        return min(max(int(at_s / self.end_s * self.columns), 0), self.columns - 1)


class Line(NamedTuple):
    """A metric over time, in seconds and bytes; NaN breaks the line."""

    label: str
    time_s: Floats
    values: Floats
    last: float | None = None
    """The latest value."""


class Marked(NamedTuple):
    """What is marked in the chart; None for nothing."""

    peak: tuple[float, float] | None = None
    """Bytes, and when."""
    limit: float | None = None
    """In bytes: drawn when memory has come to half of it, as in pictures."""


def column_extremes(time_s: Floats, values: Floats, end_s: float, columns: int) -> tuple[Floats, Floats]:
    """Return the least and the largest value in each of ``columns`` equal parts of a time; NaN where none is known.

    So no spike is lost, however many values there are. Columns between two neighbouring values are on the straight
    line that joins them. NaN among the values is a gap, which stays one.
    """
    places = np.flatnonzero(~np.isnan(values) & (time_s <= end_s))
    if not len(places):
        return np.full(columns, np.nan), np.full(columns, np.nan)
    time, known = time_s[places], values[places]
    middles = (np.arange(columns) + 0.5) * end_s / columns
    low = np.interp(middles, time, known, left=np.nan, right=np.nan)
    before = np.clip(np.searchsorted(time, middles, side="right") - 1, 0, None)
    is_gap = np.append(np.diff(places) > 1, False)
    low[is_gap[before]] = np.nan
    high = low.copy()
    into = np.minimum(time / end_s * columns, columns - 1).astype(np.intp)
    np.fmin.at(low, into, known)
    np.fmax.at(high, into, known)
    return low, high


_ACROSS, _UP = 2, 4
"""Dots of a Braille character."""
_ROWS_PER_TICK, _COLUMNS_PER_TICK = 3, 12
_MOST_DOTS = 10_000
"""A curve with more dots is noise: drawn in whole characters, it takes a quarter of the time."""
_FEWEST_ROWS = 2


def plot(lines: Sequence[Line], marked: Marked, shown: Window, height: int, style: TerminalStyle) -> Text:
    """Return ``height`` rows: memory over time with its axis on the left, and the moments below."""
    rows = max(_FEWEST_ROWS, height - 1)
    across, up = shown.columns * _ACROSS, rows * _UP
    peak = marked.peak if marked.peak is not None and marked.peak[1] <= shown.end_s else None
    parts = [across, *[shown.columns] * (MOST_LINES - 1)]  # the signs of all but the first are two dots wide
    extremes = [
        np.stack(column_extremes(line.time_s, line.values, shown.end_s, columns))
        for line, columns in zip(lines, parts, strict=False)
    ]
    highest = [float(np.nanmax(pair, initial=0.0)) for pair in extremes]
    largest = max([0.0 if peak is None else peak[0], *highest])
    limit = marked.limit if marked.limit is not None and largest > marked.limit / 2 else None
    unit = style.unit
    top = rounded_up(unit.of(max(largest, limit or 0.0))) * unit.factor

    if extremes and np.nansum(extremes[0][1] - extremes[0][0]) / top * up > _MOST_DOTS:
        extremes[0] = np.stack(column_extremes(lines[0].time_s, lines[0].values, shown.end_s, shown.columns))

    def dots_of(values: Floats | float) -> NDArray[np.int16]:
        """Return heights in dots, -1 for unknown."""
        dots = np.clip(np.ceil(np.asarray(values) / top * up - 1e-9) - 1, 0, up - 1)
        return np.where(np.isnan(values), -1, dots).astype(np.int16)

    levels = []
    for level in ticks(unit.of(top), max(1, rows // _ROWS_PER_TICK)):
        label = f"{level:,.10g} {unit}"
        text = label if len(label) < style.gutter else brief_size(level * unit.factor)
        levels.append((level * unit.factor / top * up, f"{text:>{style.gutter - 1}} "))
    moments = time_ticks(shown.end_s, shown.columns // _COLUMNS_PER_TICK)
    return _draw(
        (shown.columns, rows),
        style,
        curves=tuple(dots_of(pair).tobytes() for pair in extremes),
        levels=tuple(levels),
        moments=tuple((at_s / shown.end_s * across, clock(round(at_s, 6))) for at_s in moments),
        peak=None if peak is None else (shown.column(peak[1]) * _ACROSS, int(dots_of(peak[0]))),
        limit=None if limit is None else (int(dots_of(limit)), f" limit {brief_size(limit)} "),
    )


def load_plotext() -> Any:  # noqa: ANN401 — it has no types
    """Return plotext, which takes 0.15 s of CPU and a compiled library. Raises ImportError, OSError."""
    import plotext

    return plotext


def chart_problem() -> str:
    """Return why no chart can be drawn; empty if it can."""
    try:
        load_plotext()
    except (ImportError, OSError) as error:
        return f"no chart: plotext cannot be loaded ({printable(str(error).partition(chr(10))[0])})"
    return ""


@lru_cache(maxsize=1)
def _draw(  # noqa: PLR0913 — all that is seen
    size: tuple[int, int],
    style: TerminalStyle,
    *,
    curves: tuple[bytes, ...],
    levels: tuple[tuple[float, str], ...],
    moments: tuple[tuple[float, str], ...],
    peak: tuple[int, int] | None,
    limit: tuple[int, str] | None,
) -> Text:
    """Return a chart of so many columns and rows as plotext draws it; the same chart again is not drawn again.

    All places and heights are in dots. Of each metric, ``curves`` has the lowest dot in each of its columns, then the
    highest ones. Plotext's figure is one for the whole process: only one thread may draw. Its compiled part ends the
    process where a point is NaN, so it gets only known dots.
    """
    plotext = load_plotext()
    plotext.terminal.limit(False, False)  # noqa: FBT003 — width and height
    figure = plotext.figure
    figure.clear()
    figure.theme("colorless")
    columns, rows = size
    figure.plot_size(style.gutter + 1 + columns, rows + 1)
    figure.axes(active=False)
    figure.axes(active=True, axis="y", side="left")
    for name, marks, dots in (("x", moments, _ACROSS * columns), ("y", levels, _UP * rows)):
        ruler = figure.ruler(name)
        ruler.lim(0, dots)
        ruler.alignment(lim="edge", tick="left")
        ruler.ticks([at for at, _ in marks], [label for _, label in marks])
    signs = ("braille", "⣿", "⣿", "─", "◆") if style.unicode else ("*", "*", ":", "-", "^")
    fine, coarse, filling, line, diamond = signs

    def pixel(colour: str) -> Any:  # noqa: ANN401 — it has no types
        return plotext.pixel(tuple(Color.parse(colour).get_truecolor()))

    def signal(at: NDArray[Any], heights: NDArray[Any], sign: str, colour: str) -> Any:  # noqa: ANN401 — the same
        marker = plotext.marker(sign, pixel(colour))
        return figure.signal((at + 0.5).tolist(), (heights + 0.5).tolist(), marker=marker)

    if limit is not None:
        height, label = limit
        places = np.arange(0, _ACROSS * columns, _ACROSS)
        figure.draw(signal(places, np.full(columns, height), line, PEAK))
        figure.draw(figure.text(_ACROSS + 0.5, height + 0.5, plotext.colorize(label, pixel(PEAK))))
    lows_and_highs = [np.frombuffer(curve, dtype=np.int16).reshape(2, -1) for curve in curves]
    for _, highs in lows_and_highs[:1]:
        of_cells = highs.reshape(columns, -1).min(axis=1)
        known = np.flatnonzero(of_cells >= 0)
        figure.draw(signal(known * _ACROSS, of_cells[known], filling, AREA).fillx())
    for number, (lows, highs) in reversed(list(enumerate(lows_and_highs))):  # the first one above the others
        known = np.flatnonzero(highs >= 0)
        highest = highs[known]
        lowest = lows[known] if number else lows[known] // _UP * _UP  # it hides the area in its cells
        width = _ACROSS * columns // len(highs)
        points = np.stack([lowest, highest], axis=1).ravel()
        of_first = fine if width == 1 else coarse
        curve = signal(np.repeat(known, 2) * width, points, SIGNS[number] if number else of_first, CURVES[number])
        is_apart = (lowest[1:] > highest[:-1]) | (highest[1:] < lowest[:-1])
        from_before = np.insert(is_apart & (np.diff(known) == 1), 0, values=False)[: len(known)]
        for point in np.flatnonzero(np.stack([from_before, lowest != highest], axis=1)):
            curve.line(int(point))
        figure.draw(curve)
    if peak is not None:
        at, height = peak
        figure.draw(signal(np.array([at]), np.array([height]), diamond, PEAK))
    return Text.from_ansi(figure.build().string().rstrip("\n"), style=AXIS, no_wrap=True)


_STEPS = (1, 2, 2.5, 5, 10)
_TIME_STEPS = (
    *(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800),
    *(3600, 7200, 10800, 21600, 43200, 86400, 172800, 432000, 864000, 2592000),
)
"""Up to a minute, up to half an hour, up to 30 days."""


def rounded_up(value: float) -> float:
    """Return a round number of at least ``value``: 12, 25, 300."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if step * power >= value * 0.999999)


def ticks(end: float, most: int) -> list[float]:
    """Return about ``most`` round numbers from 0 to ``end``."""
    rough = max(end, 1e-9) / max(most, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(step * power for step in _STEPS if step * power >= rough * 0.999999)
    return [number * step for number in range(int(end / step + 1e-6) + 1)]


def time_ticks(end_s: float, most: int) -> list[float]:
    """Return at most ``most`` round moments after 0, and 0."""
    step = next((step for step in _TIME_STEPS if end_s / step <= max(most, 1)), end_s)
    return [number * step for number in range(int(end_s / step + 1e-9) + 1)]


def clock(seconds: float) -> str:
    """Return a time as ``0.5 s``, ``0:07``, ``12:30`` or ``1:02:03``."""
    if seconds != int(seconds):
        return f"{seconds:g} s"
    minutes, left = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{left:02d}" if hours else f"{minutes}:{left:02d}"


_BLOCKS = " ▁▂▃▄▅▆▇█"
_NAME = 5
_OF_STORAGE = {"read_bytes": ("Read", "#4a90e0"), "write_bytes": ("Write", WARNING)}


class Rate(NamedTuple):
    """What rises at a rate: the counters whose sum it shows, and the unit of that sum."""

    name: str
    counters: tuple[str, ...]
    unit: str
    """``cores``, ``B``, ``s`` or empty."""
    colour: str

    def figure(self, value: float, room: int) -> str:
        """Return a rate as text of fewer than ``room`` characters: ``0.98`` of cores, ``1.2 MiB/s``, ``1M/s``."""
        if self.unit == "cores":
            return fixed(value, 2)
        number, _, unit = text_of(value, self.unit).partition(" ")
        if not unit and value >= 1e4:  # noqa: PLR2004 — a count with five digits or more
            number, unit = f"{value / 1e3:.0f}", "k"
        whole = f"{float(number.replace(',', '')):.0f}"
        texts = (f"{number} {unit}/s", f"{whole} {unit}/s", f"{whole}{unit[:1]}/s", f"{whole}{unit[:1]}")
        return next((text for text in texts if len(text) < room), whole)[:room]


def rates_shown(columns: Collection[str]) -> Sequence[Rate]:
    """Return the rates to show of a run with these columns: busy cores, storage, and counters of no family."""
    rates = [Rate("Cores", cpu_counters(columns), "cores", GOOD)]
    for column, metric in metrics.of_operations(columns).items():
        if metric.is_counter and metric.family != metrics.SYSTEM_CALLS:
            name, colour = _OF_STORAGE.get(column, (metric.label, CURVES[1]))
            rates.append(Rate(shortened(name, _NAME), (column,), metric.unit, colour))
    return [rate for rate in rates if rate.counters and all(name in columns for name in rate.counters)]


def rates_in_columns(moments: Floats, rates: Floats, shown: Window) -> Floats:
    """Return the rate in the middle of each column; each rate goes from its moment to the next."""
    if not len(rates):
        return np.full(shown.columns, np.nan)
    middles = (np.arange(shown.columns) + 0.5) * shown.end_s / shown.columns
    places = np.searchsorted(moments, middles, side="right") - 1
    is_within = (places >= 0) & (places < len(rates))
    return np.where(is_within, rates[np.clip(places, 0, len(rates) - 1)], np.nan)


def rate_rows(rate: Rate, rates: Floats, figure: float | None, gutter: int, height: int = 1) -> Iterator[Text]:
    """Yield ``height`` rows of bars; full height is the highest rate, 0 and unknown are blank.

    ``figure`` is the rate beside them; None for nothing.
    """
    full = float(np.nanmax(rates, initial=1.0 if rate.unit == "cores" else 0.0)) or 1.0
    filled = np.ceil(np.nan_to_num(rates) / full * height * (len(_BLOCKS) - 1) - 1e-9).astype(int)
    for below in reversed(range(height)):
        label = Text(" " * (gutter + 1))
        if not below:
            room = gutter - _NAME
            value = "" if figure is None else rate.figure(figure, room)
            label = Text.assemble(f"{rate.name:<{_NAME}}", (f"{value:>{room}} ", AXIS))
        levels = np.clip(filled - below * (len(_BLOCKS) - 1), 0, len(_BLOCKS) - 1)
        yield label.append("".join(_BLOCKS[level] for level in levels), rate.colour)


_SHORTEST_NAME = 4
"""Fewer columns have no room for a name."""
_LABEL = "Operations"


@dataclass(frozen=True)
class Span:
    """An operation; ``end_s`` is None while it is running."""

    name: str
    start_s: float
    end_s: float | None = None
    kind: str | None = None
    depth: int = 0
    """0 for an outermost one."""

    def holds(self, at_s: float) -> bool:
        """Return whether it goes on at a moment."""
        return self.start_s <= at_s and (self.end_s is None or at_s <= self.end_s)

    def up_to(self, now_s: float) -> Span:
        """Return this as it was at a moment: without an end that comes later."""
        return self if self.end_s is not None and self.end_s <= now_s else replace(self, end_s=None)


def operations_row(spans: Sequence[Span], shown: Window, style: TerminalStyle) -> Text:
    """Return one row with the names of the operations, each at the time of its operation."""
    row = Text(f"{_LABEL if len(_LABEL) < style.gutter else '':<{style.gutter + 1}}", AXIS)
    colours = fills([Operation(name=span.name, start_s=0, end_s=0, kind=span.kind) for span in spans])
    begins = [shown.column(span.start_s) for span in spans]
    column = 0
    for span, begin, following in zip(spans, begins, [*begins[1:], shown.columns], strict=True):
        begin = max(column, begin)  # noqa: PLW2901 — after the one before
        end = shown.column(shown.now_s if span.end_s is None else span.end_s) + 1
        room = min(end, following) - begin  # the next one keeps a column of its own
        if room <= 0:
            continue
        row.append(" " * (begin - column), "none")
        name = shortened(printable(span.name), max(1, room - 2)) if room >= _SHORTEST_NAME else ""
        if style.colours is None:
            name = set_cell_size(name, min(cell_len(name), max(0, room - 2)))
            row.append(set_cell_size(f"├{name.center(room - 2, '─')}", room - 1) + "┤", "none")
        else:
            fill = colours[span.name]
            row.append(set_cell_size(name.center(room), room), name_style(fill.ink, fill.colour, style.colours))
        column = begin + room
    return row
