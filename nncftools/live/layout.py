"""The live view as rows, for any size of the screen.

From top to bottom: what is known of the run, the chart of memory, operations and rates on one time axis, processes, the
memory that is left, and the keys.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from nncftools.live import figures
from nncftools.live.figures import Machine, ShownProcess, ViewSettings, charted
from nncftools.live.processes import gauge, process_rows, sort_processes
from nncftools.live.run import Run
from nncftools.render import terminal_plot
from nncftools.render.canvas import GUTTER, TerminalStyle, Window, fitted, length, painted, text
from nncftools.render.terminal_plot import LABEL, Line, Marked, Rate
from nncftools.render.view import label
from nncftools.units import folds, printable, shortened

if TYPE_CHECKING:
    from nncftools.render.canvas import Row


_SHORTEST_S, _GROWTH = 5.0, 1.25
"""The time axis of a run begins with this length, and grows by a quarter whenever it is full."""
_SMALLEST_CHART = 3
_RATES = ((44, (4, 2, 2)), (26, (3, 1, 1)), (8, (1, 1, 1)), (7, (1,)))
"""From which height on, the heights of CPU and of the other rates."""


class Body:
    """Draws what happened over time; a chart that would look the same is not drawn again."""

    def __init__(self) -> None:
        """Begin with nothing drawn."""
        self._state: object = None
        self._drawn: list[Row] = []
        self._state_of_rates: object = None
        self._rate_rows: list[tuple[Rate, list[Row]]] = []

    def rows(self, run: Run, settings: ViewSettings, medium: TerminalStyle, width: int, height: int) -> list[Row]:
        """Return ``height`` rows: chart, operations and rates; without the chart if there is little room."""
        if not height:
            return []
        shown = _window(run.latest_s, max(10, width - medium.gutter - 1), has_ended=run.ended)
        spans = run.operations.outermost(run.latest_s)
        below = [terminal_plot.operations_row(spans, shown, medium)] if spans else []
        below += self._rates(run, medium, shown, height)
        room = height - len(below)
        chart = (
            self._chart(run, settings, medium, shown, room) if room >= _SMALLEST_CHART else [[] for _ in range(room)]
        )
        return [*chart, *below][:height]

    def _chart(self, run: Run, settings: ViewSettings, medium: TerminalStyle, shown: Window, height: int) -> list[Row]:
        names = charted(run, settings)
        peaks = [run.peaks.get(name) for name in names]
        # The latest value is drawn when it has changed by 1/256 of the peak: no chart has so many dots in its height.
        heights = [
            None if peak is None or name not in run.latest else round(run.latest[name] / (peak.value or 1.0) * 256)
            for name, peak in zip(names, peaks, strict=True)
        ]
        dot_s = shown.end_s / shown.columns / 2
        limit = run.limit.size if run.limit is not None and names[:1] == ["rss"] else None
        state = names, medium, height, shown._replace(now_s=shown.now_s // dot_s), peaks, heights, limit
        if self._state != state:
            self._state = state
            marked = Marked(None if not peaks or peaks[0] is None else (peaks[0].value, peaks[0].at_s), limit)
            lines = [Line(label(name), *run.history.points(name, shown.end_s, 2 * shown.columns)) for name in names]
            self._drawn = terminal_plot.plot(lines, marked, shown, height, medium)
        return self._drawn

    def _rates(self, run: Run, medium: TerminalStyle, shown: Window, height: int) -> Iterator[Row]:
        """Yield CPU and I/O as bars, which move on with each column, and the rate of now, which is always new."""
        heights = next((heights for least, heights in _RATES if height >= least), ())
        state = medium, heights, shown._replace(now_s=shown.column(shown.now_s)), tuple(run.columns)
        if self._state_of_rates != state:
            self._state_of_rates = state
            self._rate_rows = list(_drawn_rates(run, shown, medium, heights)) if heights else []
        for rate, rows in self._rate_rows:
            yield from rows[:-1]
            now = None if run.ended else run.rate(rate.counters) or 0.0
            yield [*terminal_plot.rate_label(rate, now, medium), *rows[-1][LABEL:]]


def _drawn_rates(
    run: Run, shown: Window, medium: TerminalStyle, heights: Sequence[int]
) -> Iterator[tuple[Rate, list[Row]]]:
    for number, rate in enumerate(terminal_plot.rates_shown(run.columns)):
        series = [run.history.rates(name, 0.0, shown.end_s, shown.columns) for name in rate.counters]
        if all(len(rates) for rates in series):
            rates = np.sum(series, axis=0)
            rates[shown.column(shown.now_s) + 1 :] = np.nan
            yield rate, list(terminal_plot.rate_rows(rate, rates, 0.0, medium, heights[min(number, len(heights) - 1)]))
        if len(heights) == 1:
            return


def _window(now_s: float, columns: int, *, has_ended: bool) -> Window:
    """Return the time axis: all of a run that has ended, else with room for what comes."""
    if has_ended:
        return Window(max(now_s, 1e-3), columns, now_s)
    steps = math.ceil(math.log(max(now_s / _SHORTEST_S, 1.0), _GROWTH) - 1e-9)
    return Window(_SHORTEST_S * _GROWTH**steps, columns, now_s)


TOP, BETWEEN, BOTTOM = "╭╮", "├┤", "╰╯"
SIDES = 4
"""Columns that the sides take."""


def ruled(ends: str, left: Sequence[Row], right: Sequence[Row], width: int, medium: TerminalStyle) -> Row:
    """Return a horizontal line with texts in it; those on the left are cut if they are too long."""
    line = medium.style("axis")
    tail = [part for row in right for part in (text(" "), *row, text(" "), text("─", line))]
    head: Row = []
    for row in left:
        room = width - length(tail) - length(head) - 5
        if room > 0:
            head += [text("─", line), text(" "), *(row if length(row) <= room else fitted(row, room)), text(" ")]
    between = max(0, width - 2 - length(head) - length(tail))
    return fitted([text(ends[0], line), *head, text("─" * between, line), *tail, text(ends[1], line)], width)


def sided(row: Row, width: int, medium: TerminalStyle) -> Row:
    """Return a row between the sides of the box."""
    line = medium.style("axis")
    return [text("│ ", line), *fitted(row, width - SIDES), text(" │", line)]


_GAP = 3
_LONGEST_GAUGE, _SHORTEST_GAUGE = 40, 8
_HIGH, _VERY_HIGH = 0.75, 0.9
KEYS = {"q": "quit", "?": "help", "space": "pause", "l": "list", "m": "metric", "↑ ↓": "scroll"}
"""In the order in which they are named where there is little room."""
_HELP = {
    "q": "quit; a recording goes on",
    "space": "pause, and go on",
    "↑ ↓": "scroll the processes; Page Up and Page Down by ten",
    "l": "list processes instead of the chart",
    "m": "other metrics",
}
_NO_KEYS = "keys: nncf-tools watch, in another terminal"


def state(run: Run, settings: ViewSettings, medium: TerminalStyle) -> Row:
    """Return what goes on, and the time of the run."""
    words = figures.ending(run) if run.ended else "paused" if settings.paused else settings.state
    role = "warning" if settings.paused else "good" if run.ended or words != "recording" else "danger"
    sign = [] if run.ended else [text("● " if medium.unicode else "* ", medium.style(role))]
    return [*sign, text(f"{words}  {figures.at(run.latest_s)}", medium.style("title"))]


def summary(run: Run, settings: ViewSettings, medium: TerminalStyle, width: int) -> Row:
    """Return memory with its peak, the other metrics of the chart, and CPU, as far as there is room."""
    names = figures.charted(run, settings)
    if not names:
        return [text("no memory metric")]
    peak = run.peaks.get(names[0])
    parts = [_metric(run, names, 0, medium)]
    right: list[Row] = []
    room = width - length(parts[0])

    def add(part: Row, to: list[Row]) -> None:
        nonlocal room
        if part and length(part) + _GAP <= room:
            to.append(part)
            room -= length(part) + _GAP

    if peak is not None:
        value = text(f" peak {medium.unit.label(peak.value)}")
        short = [text("◆" if medium.unicode else "^", medium.style("peak")), value]
        with_time = [*short, text(f" at {figures.at(peak.at_s)}")]
        during = figures.during(run, peak)
        whole = [*with_time, text(f" in {during}")] if during else with_time
        add(next((part for part in (whole, with_time) if length(part) + _GAP <= room), short), parts)
    for words in figures.activity(run):
        add([text(words)], right)
    left, end = _joined(parts), _joined(right)
    return [*left, text(" " * (width - length(left) - length(end))), *end]


def _metric(run: Run, names: Sequence[str], number: int, medium: TerminalStyle) -> Row:
    value = medium.unit.label(run.latest.get(names[number]))
    return [*terminal_plot.key(number, medium), text(f"{label(names[number])} "), text(value, medium.style("title"))]


def _joined(parts: Sequence[Row]) -> Row:
    return [piece for number, part in enumerate(parts) for piece in ([text(" " * _GAP)] if number else []) + part]


def current(run: Run, settings: ViewSettings, medium: TerminalStyle, width: int) -> Iterator[Row]:
    """Yield the current operation and which code made memory grow; at the right, the other metrics of the chart."""
    names = figures.charted(run, settings)
    others = [_metric(run, names, number, medium) for number in range(1, len(names))]
    now = figures.operation(run)
    row = [text("Now ", medium.style("axis")), text(now, medium.style("title"))] if now else []
    while others and length(row) + length(_joined(others)) + _GAP > width:
        others.pop()
    end = _joined(others)
    between = " " * _GAP if now else ""
    grown = figures.growth(run, width - length(row) - len(between) - length(end) - _GAP)
    if grown:
        row.append(text(f"{between}{grown if now else grown[0].upper() + grown[1:]}"))
    if row or end:
        yield [*row, text(" " * (width - length(row) - length(end))), *end]


def memory_left(run: Run, available: float | None, medium: TerminalStyle, width: int) -> Row:
    """Return which memory is limited, how much of it is left and for how long, and a bar of what is used."""
    name, words = figures.memory_left(run, available)
    near = figures.time_left(run, available) is not None
    row = [text(f"{name.capitalize()}  ")]
    words = next((short for short in _shorter(words) if len(short) <= width - length(row)), words)
    row.append(text(words, medium.style("danger") if near else None))
    used = figures.used(run, available)
    room = min(width - length(row) - _GAP, _LONGEST_GAUGE)
    if used is None or room < _SHORTEST_GAUGE:
        return row
    role = "danger" if near or used >= _VERY_HIGH else "warning" if used >= _HIGH else "good"
    return [*row, text(" " * (width - length(row) - room)), *gauge(used, room, role, medium)]


def _shorter(words: str) -> Iterator[str]:
    """Yield ever shorter versions of a text on memory; the time that it lasts is left out last."""
    yield words
    yield words.removesuffix(" at this rate")
    available, comma, exhausted = words.removesuffix(" at this rate").partition(", exhausted")
    yield f"exhausted{exhausted}" if comma else available.partition(" of ")[0]


def keys(medium: TerminalStyle, width: int) -> Row:
    """Return the keys and what they do, as many as fit."""
    row: Row = []
    for name, meaning in KEYS.items():
        part = [text(name, medium.style("key")), text(f" {meaning}   ", medium.style("axis"))]
        if length(row) + length(part) - _GAP <= width:
            row += part
    return [*row[:-1], text(row[-1].text.rstrip(), row[-1].style)] if row else row


_NARROW, _WIDE, _BOXED_ROWS = 60, 100, 12
_SMALLEST_BODY = 5
_MOST_PROCESSES = ((60, 12), (40, 8), (20, 4), (14, 2), (12, 1))
"""From which height on, how many processes are shown below the chart."""


@dataclass(frozen=True)
class _Screen:
    """A run and how it is to be shown."""

    run: Run
    settings: ViewSettings
    medium: TerminalStyle
    width: int
    height: int
    processes: Sequence[ShownProcess]
    """The largest first."""
    available: float | None

    @property
    def is_boxed(self) -> bool:
        return self.width >= _NARROW and self.height >= _BOXED_ROWS

    @property
    def inner(self) -> int:
        return self.width - SIDES if self.is_boxed else self.width


class Drawing:
    """Draws a run repeatedly."""

    def __init__(self, here: Machine) -> None:
        """Ask ``here`` for what the recording does not hold."""
        self._here = here
        self._body = Body()
        self._most: dict[tuple[int, int], int] = {}
        """The largest number of processes on a screen of this size: its rows stay, so that the chart does not jump."""

    def frame(self, run: Run, settings: ViewSettings, width: int, height: int) -> list[str]:
        """Return ``height`` lines of ``width`` columns at most, with colours as escape sequences."""
        gutter = 10 if width < _NARROW else 16 if width >= _WIDE else GUTTER
        medium = TerminalStyle(settings.unit, settings.unicode, settings.colours, gutter)
        processes = sort_processes(self._here.processes(run))
        screen = _Screen(run, settings, medium, width, height, processes, self._here.available(run))
        return [painted(row, medium) for row in self._rows(screen)[:height]]

    def _rows(self, screen: _Screen) -> list[Row]:
        run, medium, width = screen.run, screen.medium, screen.inner
        head = [summary(run, screen.settings, medium, width), *current(run, screen.settings, medium, width)]
        foot = [memory_left(run, screen.available, medium, width)]
        middle = screen.height - len(head) - len(foot) - 2
        if not screen.is_boxed and not screen.settings.keys:
            middle += 1
        processes = self._processes(screen, max(0, middle))
        body = self._body.rows(run, screen.settings, medium, width, max(0, middle - len(processes)))
        if screen.settings.helping:
            rows = [
                [text(f"{'' if begin else name:>8}  ", medium.style("key")), text(of[begin:end])]
                for name, of in _HELP.items()
                for begin, end in pairwise([0, *folds(of, width - 10), len(of)])
            ]
            body = [*rows, *body[len(rows) :]][: len(body)]
        if not screen.is_boxed:
            below = [keys(medium, width)] if screen.settings.keys else []
            return [fitted(row, width) for row in (_title(screen), *head, *body, *processes, *foot, *below)]
        return _boxed(screen, [*head, *body], processes, foot)

    def _processes(self, screen: _Screen, room: int) -> list[Row]:
        """Return the processes and, above them, their number; nothing where there is no room."""
        most = next((rows for height, rows in _MOST_PROCESSES if screen.height >= height), 0)
        size = screen.width, screen.height
        self._most[size] = max(self._most.get(size, 0), len(screen.processes))
        most = min(most, self._most[size], room - _SMALLEST_BODY - 1)
        if screen.settings.listing:
            most = room - 1
        if most <= 0:
            return []
        first = min(screen.settings.first, max(0, len(screen.processes) - most))
        part = screen.processes[first : first + most]
        rows = list(process_rows(part, screen.processes, screen.medium, screen.inner))
        return [_heading(screen, first), *rows, *[[]] * (most - len(rows))]


def _title(screen: _Screen) -> Row:
    right = state(screen.run, screen.settings, screen.medium)
    room = max(10, screen.width - length(right) - 2)
    command = shortened(printable(screen.run.command), room)
    left = [text(command, screen.medium.style("title"))]
    return [*left, text(" " * max(1, screen.width - length(left) - length(right))), *right]


def _boxed(screen: _Screen, above: Sequence[Row], processes: Sequence[Row], foot: Sequence[Row]) -> list[Row]:
    run, settings, medium, width = screen.run, screen.settings, screen.medium, screen.width
    right = state(run, settings, medium)
    command = shortened(printable(run.command), max(10, width - length(right) - 10))
    bottom = [keys(medium, width - 6) if settings.keys else [text(_NO_KEYS, medium.style("axis"))]]
    inside = [sided(row, width, medium) for row in above]
    if processes:
        heading, *rows = processes
        inside.append(ruled(BETWEEN, [heading], [], width, medium))
        inside += [sided(row, width, medium) for row in rows]
    return [
        ruled(TOP, [[text(command, medium.style("title"))]], [right], width, medium),
        *inside,
        *[sided(row, width, medium) for row in foot],
        ruled(BOTTOM, bottom, [], width, medium),
    ]


def _heading(screen: _Screen, first: int) -> Row:
    medium = screen.medium
    words = f" {len(screen.processes)} by memory{f', from number {first + 1}' if first else ''}"
    return [text("Processes", medium.style("title")), text(words, medium.style("axis"))]
