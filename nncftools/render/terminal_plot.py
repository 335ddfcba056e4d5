"""Parts of terminal charts: memory over time (drawn by plotext), a row of operations, colours and characters.

The first metric is drawn as an area, other metrics as curves. All colours are readable on light and dark backgrounds.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len, set_cell_size
from rich.color import Color, ColorSystem
from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from nncftools.analysis.operation import Operation
from nncftools.render.listing import fills
from nncftools.units import MemoryUnit, brief_size, printable, shortened

Floats = NDArray[np.float64]

GUTTER = 12
"""Width of the space for axis labels at the left of a chart, in columns."""
AXIS = "#787878"
TITLE = "bold default"
PEAK = "#e85040"
KEY = "bold #0098f0"
GOOD = "#209850"
WARNING = "#c07f20"
DANGER = "bold #e85040"
CURVES = ("#0098f0", "#c860b0", "#209850", "#c07f20")
AREA = "#3070d8"
COLOURS = (AXIS, PEAK, KEY, GOOD, WARNING, DANGER, *CURVES, AREA)
"""All colours of charts. Each has a WCAG contrast of at least 3 to white and to black.

On a terminal with 16 colours, none of them becomes white or black.
"""
_DARK = (0, 4, 8)
"""Numbers of black, blue and grey among the 16 colours."""
_SYSTEMS = {"256": ColorSystem.EIGHT_BIT, "truecolor": ColorSystem.TRUECOLOR}
_ASCII = str.maketrans("›–…●×·◆━╸╺─│┤├╭╮╰╯▁▂▃▄▅▆▇█↑↓←→", ">-~*x-^==--|++++++.:-=+*#@^v<>")


class TerminalStyle(NamedTuple):
    """The abilities of a terminal, and the unit of memory."""

    unit: MemoryUnit = MemoryUnit.MiB
    unicode: bool = True
    """Whether the terminal shows characters other than ASCII."""
    colours: ColorSystem | None = ColorSystem.EIGHT_BIT
    """The colours of the terminal; None if the terminal has bold characters, but no colours."""
    gutter: int = GUTTER


def colours_of(console: Console) -> ColorSystem | None:
    """Return the colours that a console shows; None without colours."""
    if console.color_system is None or console.no_color:
        return None
    return _SYSTEMS.get(console.color_system, ColorSystem.STANDARD)


def render_rows(content: RenderableType, width: int, height: int | None, style: TerminalStyle) -> list[list[Segment]]:
    """Return at most ``height`` rows of ``content``, in characters and colours that the terminal can show."""
    console = Console(
        width=width,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        no_color=style.colours is None,
        _environ={},
    )
    rows = console.render_lines(content, console.options.update(height=height))
    return [[_translate(part, style) for part in row] for row in rows[:height]]


def _translate(part: Segment, terminal: TerminalStyle) -> Segment:
    text = part.text
    if not terminal.unicode:
        text = re.sub(
            "[^\0-\x7f]",
            lambda sign: "?" * cell_len(sign[0]),
            text.translate(_ASCII),
        )
    return Segment(text, _reduce_colours(part.style or Style.null(), terminal.colours))


@lru_cache(maxsize=256)
def _reduce_colours(style: Style, colours: ColorSystem | None) -> Style:
    """Return a new style with colours that the terminal can show.

    The style must be new, because Rich caches the escape sequences of a style.
    """
    if colours is None:
        return style.without_color
    ink = style.color and style.color.downgrade(colours)
    ground = style.bgcolor and style.bgcolor.downgrade(colours)
    return Style(color=ink, bgcolor=ground, bold=style.bold)


def fitting(parts: Iterable[Text], width: int, gap: int = 0) -> Text:
    """Return the first parts beside each other: as many as fit into ``width``; no part is cut."""
    row = Text(no_wrap=True)
    for part in parts:
        blanks = gap if row else 0
        if row.cell_len + blanks + part.cell_len > width:
            break
        row.append(" " * blanks).append_text(part)
    return row


def coloured(row: Iterable[Segment]) -> str:
    """Return a row as text, with escape sequences for colours."""
    text = ""
    for part in row:
        text += part.style.render(part.text) if part.style else part.text
    return text


def name_style(ink: str, colour: str, colours: ColorSystem) -> Style:
    """Return the style of a name that is written on the colour of an operation."""
    if colours == ColorSystem.STANDARD:
        is_dark = Color.parse(colour).downgrade(colours).number in _DARK
        ink = "bright_white" if is_dark else "black"
    return Style(color=ink, bgcolor=colour)


SIGNS = "●o+x"
"""Signs of the curves in legends. All curves but the first are drawn with these signs."""
MOST_LINES = len(CURVES)


class Window(NamedTuple):
    """The time axis of a chart, from the start of the run."""

    end_s: float
    columns: int
    now_s: float
    """The latest known moment, in seconds."""

    def column(self, at_s: float) -> int:
        """Return the column of the chart for a moment."""
        column = int(at_s / self.end_s * self.columns)
        return min(max(column, 0), self.columns - 1)


class Line(NamedTuple):
    """A metric over time, in seconds and bytes; the line has a gap at NaN."""

    label: str
    time_s: Floats
    values: Floats
    last: float | None = None
    """The latest value, in bytes."""


class Marked(NamedTuple):
    """The peak and the limit that a chart marks."""

    peak: tuple[float, float] | None = None
    """Size of the peak in bytes, and its moment in seconds."""
    limit: float | None = None
    """Size of the limit in bytes. The limit is drawn only if memory has reached half of the limit, as in pictures."""


def column_extremes(time_s: Floats, values: Floats, end_s: float, columns: int) -> tuple[Floats, Floats]:
    """Return the smallest and the largest value in each of ``columns`` equal parts of the time; NaN if unknown.

    All values count, so no spike is lost. Between two neighbouring values, the line is straight. NaN among the values
    is a gap.
    """
    indexes = np.flatnonzero(~np.isnan(values) & (time_s <= end_s))
    if not len(indexes):
        return np.full(columns, np.nan), np.full(columns, np.nan)
    time = time_s[indexes]
    known = values[indexes]
    middles = (np.arange(columns) + 0.5) * end_s / columns
    low = np.interp(middles, time, known, left=np.nan, right=np.nan)
    previous = np.clip(np.searchsorted(time, middles, side="right") - 1, 0, None)
    is_gap = np.append(np.diff(indexes) > 1, False)
    low[is_gap[previous]] = np.nan
    high = low.copy()
    column = np.minimum(time / end_s * columns, columns - 1).astype(np.intp)
    np.fmin.at(low, column, known)
    np.fmax.at(high, column, known)
    return low, high


_ACROSS = 2
"""Number of dots in the width of a Braille character."""
_UP = 4
"""Number of dots in the height of a Braille character."""
_ROWS_PER_TICK = 3
_COLUMNS_PER_TICK = 12
_MOST_DOTS = 10_000
"""A curve with more dots than this looks like noise. Such a curve is drawn in whole characters, in a quarter of the
time.
"""
_FEWEST_ROWS = 2


def plot(lines: Sequence[Line], marked: Marked, shown: Window, height: int, style: TerminalStyle) -> Text:
    """Return a chart of ``height`` rows: memory over time, with sizes at the left and times below."""
    rows = max(_FEWEST_ROWS, height - 1)
    across = shown.columns * _ACROSS
    up = rows * _UP
    peak = marked.peak if marked.peak is not None and marked.peak[1] <= shown.end_s else None
    extremes = []
    for number, line in enumerate(lines[:MOST_LINES]):
        columns = shown.columns if number else across  # the sign of a further curve is two dots wide
        extremes.append(_find_extremes(line, shown, columns))
    largest = 0.0 if peak is None else peak[0]
    for pair in extremes:
        largest = max(largest, float(np.nanmax(pair, initial=0.0)))
    limit = marked.limit if marked.limit is not None and largest > marked.limit / 2 else None
    unit = style.unit
    top = rounded_up(unit.of(max(largest, limit or 0.0))) * unit.factor

    if extremes:
        low, high = extremes[0]
        dots = np.nansum(high - low) / top * up
        if dots > _MOST_DOTS:
            extremes[0] = _find_extremes(lines[0], shown, shown.columns)

    def count_dots(values: Floats | float) -> NDArray[np.int16]:
        """Return heights in dots; -1 if unknown."""
        heights = np.asarray(values) / top * up
        dots = np.clip(np.ceil(heights - 1e-9) - 1, 0, up - 1)
        return np.where(np.isnan(values), -1, dots).astype(np.int16)

    levels = []
    for level in ticks(unit.of(top), max(1, rows // _ROWS_PER_TICK)):
        size = level * unit.factor
        text = f"{level:,.10g} {unit}"
        if len(text) >= style.gutter:
            text = brief_size(size)
        levels.append((size / top * up, f"{text:>{style.gutter - 1}} "))
    moments = []
    for at_s in time_ticks(shown.end_s, shown.columns // _COLUMNS_PER_TICK):
        dot = at_s / shown.end_s * across
        moments.append((dot, write_clock(round(at_s, 6))))
    return _draw(
        (shown.columns, rows),
        style,
        curves=tuple(count_dots(pair).tobytes() for pair in extremes),
        levels=tuple(levels),
        moments=tuple(moments),
        peak=peak
        and (
            shown.column(peak[1]) * _ACROSS,
            int(count_dots(peak[0])),
        ),
        limit=None if limit is None else (int(count_dots(limit)), f" limit {brief_size(limit)} "),
    )


def _find_extremes(line: Line, shown: Window, columns: int) -> Floats:
    """Return two arrays: the smallest and the largest value in each column of the chart."""
    return np.stack(column_extremes(line.time_s, line.values, shown.end_s, columns))


def load_plotext() -> Any:  # noqa: ANN401 — plotext has no types
    """Return the module plotext. Loading takes 0.15 s of CPU, and needs a compiled library.

    Raises ImportError, OSError.
    """
    import plotext

    return plotext


def chart_problem() -> str:
    """Return why no chart can be drawn; empty if nothing prevents it."""
    try:
        load_plotext()
    except (ImportError, OSError) as error:
        reason = printable(str(error).partition("\n")[0])
        return f"no chart: plotext cannot be loaded ({reason})"
    return ""


class _Signs(NamedTuple):
    """The characters that a chart consists of."""

    fine: str
    """Character of the first curve if it is drawn in dots; ``braille`` means plotext's braille characters."""
    coarse: str
    """Character of the first curve if it is drawn in whole characters."""
    area: str
    limit: str
    peak: str


_UNICODE = _Signs("braille", "⣿", "⣿", limit="─", peak="◆")
_PLAIN = _Signs("*", "*", ":", limit="-", peak="^")


class _Pen(NamedTuple):
    plotext: Any
    figure: Any

    def make_pixel(self, colour: str) -> Any:  # noqa: ANN401 — plotext has no types
        return self.plotext.pixel(tuple(Color.parse(colour).get_truecolor()))

    def make_signal(self, across: NDArray[Any], heights: NDArray[Any], sign: str, colour: str) -> Any:  # noqa: ANN401 — plotext has no types
        marker = self.plotext.marker(sign, self.make_pixel(colour))
        across = across + 0.5
        heights = heights + 0.5
        return self.figure.signal(across.tolist(), heights.tolist(), marker=marker)

    def draw_area(self, highs: NDArray[np.int16], columns: int, sign: str) -> None:
        """Fill the area below a curve, in whole characters."""
        cells = highs.reshape(columns, -1).min(axis=1)
        known = np.flatnonzero(cells >= 0)
        signal = self.make_signal(known * _ACROSS, cells[known], sign, AREA)
        self.figure.draw(signal.fillx())

    def draw_curve(self, highs: NDArray[np.int16], lows: NDArray[np.int16], width: int, sign: str, colour: str) -> None:
        """Draw a vertical line from the lowest to the highest dot of each column. A column is ``width`` dots wide.

        If the lines of two neighbouring columns have no height in common, a line joins them.
        """
        known = np.flatnonzero(highs >= 0)
        highest = highs[known]
        lowest = lows[known]
        points = np.stack([lowest, highest], axis=1).ravel()
        curve = self.make_signal(np.repeat(known, 2) * width, points, sign, colour)
        is_above = lowest[1:] > highest[:-1]
        is_below = highest[1:] < lowest[:-1]
        is_next = np.diff(known) == 1
        has_join = np.zeros(len(known), dtype=bool)
        has_join[1:] = (is_above | is_below) & is_next
        for point in np.flatnonzero(np.stack([has_join, lowest != highest], axis=1)):
            curve.line(int(point))
        self.figure.draw(curve)


@lru_cache(maxsize=1)
def _draw(  # noqa: PLR0913 — everything that a reader sees
    size: tuple[int, int],
    style: TerminalStyle,
    *,
    curves: tuple[bytes, ...],
    levels: tuple[tuple[float, str], ...],
    moments: tuple[tuple[float, str], ...],
    peak: tuple[int, int] | None,
    limit: tuple[int, str] | None,
) -> Text:
    """Return a chart of ``size`` (columns, rows), drawn by plotext; an equal chart is not drawn again.

    All positions and heights are in dots. Each item of ``curves`` belongs to a metric: first the height of the lowest
    dot of the curve in each column, then the height of the highest dot in each column. plotext has a single canvas for
    the whole process, so only a single thread may draw. The compiled part of plotext ends the process at a NaN, so
    unknown heights are -1.
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
    axes = {"x": (moments, _ACROSS * columns), "y": (levels, _UP * rows)}
    for name, (marks, dots) in axes.items():
        ruler = figure.ruler(name)
        ruler.lim(0, dots)
        ruler.alignment(lim="edge", tick="left")
        ruler.ticks([dot for dot, _ in marks], [label for _, label in marks])
    signs = _UNICODE if style.unicode else _PLAIN
    pen = _Pen(plotext, figure)
    if limit is not None:
        height, text = limit
        across = np.arange(0, _ACROSS * columns, _ACROSS)
        heights = np.full(columns, height)
        figure.draw(pen.make_signal(across, heights, signs.limit, PEAK))
        label = plotext.colorize(text, pen.make_pixel(PEAK))
        figure.draw(figure.text(_ACROSS + 0.5, height + 0.5, label))
    arrays = [np.frombuffer(curve, dtype=np.int16) for curve in curves]
    pairs = [pair.reshape(2, -1) for pair in arrays]
    if pairs:
        pen.draw_area(pairs[0][1], columns, signs.area)
    for number in reversed(range(1, len(pairs))):
        lows, highs = pairs[number]
        pen.draw_curve(highs, lows, _ACROSS, SIGNS[number], colour=CURVES[number])
    if pairs:  # the first curve is above the others, and hides the area in its cells
        lows, highs = pairs[0]
        width = _ACROSS * columns // len(highs)
        sign = signs.fine if width == 1 else signs.coarse
        pen.draw_curve(highs, lows // _UP * _UP, width, sign, colour=CURVES[0])
    if peak is not None:
        at_peak, height = peak
        point = pen.make_signal(
            np.array([at_peak]),
            np.array([height]),
            signs.peak,
            PEAK,
        )
        figure.draw(point)
    content = figure.build().string().rstrip("\n")
    return Text.from_ansi(content, style=AXIS, no_wrap=True)


_STEPS = (1, 2, 2.5, 5, 10)
_ROUND = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
_TIME_STEPS = (
    *(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800),
    *(3600, 7200, 10800, 21600, 43200, 86400, 172800, 432000, 864000, 2592000),
)
"""Steps of a time axis in seconds: from 0.01 s to 30 days."""


def rounded_up(value: float) -> float:
    """Return a round number that is not below ``value``: 12, 25, 300."""
    return _round_up(value, _ROUND) if value > 0 else 1.0


def _round_up(value: float, steps: Sequence[float]) -> float:
    """Return the smallest product of a step and a power of 10 that is not below ``value``."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in steps if step * power >= value * 0.999999)


def ticks(end: float, most: int) -> list[float]:
    """Return 0 and the multiples of a round step up to ``end``; there are at most ``most`` multiples."""
    step = _round_up(max(end, 1e-9) / max(most, 1), _STEPS)
    return [number * step for number in range(int(end / step + 1e-6) + 1)]


def time_ticks(end_s: float, most: int) -> list[float]:
    """Return 0 and the multiples of a round step, up to ``end_s``; there are at most ``most`` multiples."""
    step = next((step for step in _TIME_STEPS if end_s / step <= max(most, 1)), end_s)
    return [number * step for number in range(int(end_s / step + 1e-9) + 1)]


def write_clock(seconds: float) -> str:
    """Return a time as ``0.5 s``, ``0:07``, ``12:30`` or ``1:02:03``."""
    if seconds != int(seconds):
        return f"{seconds:g} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


_SHORTEST_NAME = 4
"""An operation that is narrower than this number of columns has no name."""
_LABEL = "Operations"


@dataclass(frozen=True)
class Span:
    """An operation in the row of operations; ``end_s`` is None while the operation is running."""

    name: str
    start_s: float
    end_s: float | None = None
    kind: str | None = None
    depth: int = 0
    """Nesting level: 0 for an outermost operation."""

    def holds(self, at_s: float) -> bool:
        """Return whether the operation is running at a moment."""
        return self.start_s <= at_s and (self.end_s is None or at_s <= self.end_s)

    def up_to(self, now_s: float) -> Span:
        """Return the operation as known at the moment ``now_s``: if the operation ended later, the end is removed."""
        return self if self.end_s is not None and self.end_s <= now_s else replace(self, end_s=None)


def operations_row(spans: Sequence[Span], shown: Window, style: TerminalStyle) -> Text:
    """Return a row of the chart with the operations at their times; names are left out if there is no room."""
    label = _LABEL if len(_LABEL) < style.gutter else ""
    row = Text(f"{label:<{style.gutter + 1}}", AXIS)
    colours = fills(
        [
            Operation(
                name=span.name,
                start_s=0,
                end_s=0,
                kind=span.kind,
            )
            for span in spans
        ]
    )
    starts = [shown.column(span.start_s) for span in spans]
    column = 0
    for span, start, following in zip(
        spans,
        starts,
        [*starts[1:], shown.columns],
        strict=True,
    ):
        start = max(column, start)  # noqa: PLW2901 — after the previous operation
        end = shown.column(shown.now_s if span.end_s is None else span.end_s) + 1
        room = min(end, following) - start  # the next operation keeps a column
        if room <= 0:
            continue
        row.append(" " * (start - column), "none")
        name = ""
        if room >= _SHORTEST_NAME:
            name = shortened(printable(span.name), max(1, room - 2))
        if style.colours is None:
            name = set_cell_size(name, min(cell_len(name), max(0, room - 2)))
            row.append(set_cell_size(f"├{name.center(room - 2, '─')}", room - 1) + "┤", "none")
        else:
            fill = colours[span.name]
            look = name_style(fill.ink, fill.colour, style.colours)
            row.append(set_cell_size(name.center(room), room), look)
        column = start + room
    return row
