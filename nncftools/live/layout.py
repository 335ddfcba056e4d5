"""The live view for any size of the screen, as rich's Layout and tables.

From top to bottom: what is known of the run, the chart of memory, operations and rates on one time axis, processes, the
memory that is left, and the keys.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.layout import Layout
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from nncftools.analysis import series
from nncftools.analysis.operation import RATE_WINDOW_S
from nncftools.live import figures
from nncftools.live.figures import Machine, ViewSettings, charted
from nncftools.live.processes import process_table
from nncftools.live.run import LiveProcess, Run
from nncftools.render import terminal_chart, terminal_plot
from nncftools.render.terminal_plot import (
    AXIS,
    CURVES,
    DANGER,
    GOOD,
    GUTTER,
    KEY,
    PEAK,
    SIGNS,
    TITLE,
    WARNING,
    Line,
    Marked,
    TerminalStyle,
    Window,
    fitting,
    render_rows,
)
from nncftools.render.view import label
from nncftools.units import printable, shortened

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.segment import Segment

    Part = tuple[RenderableType, int]
    """A part of the view, and its number of rows."""


_SHORTEST_S, _GROWTH = 5.0, 1.25
"""The time axis of a run begins with this length, and grows by a quarter whenever it is full."""
_SMALLEST_CHART, _SMALLEST_BODY = 3, 5
_RATES = ((44, (4, 2)), (26, (3, 1)), (8, (1, 1)), (7, (1, 0)))
"""From which height on, the heights of CPU and of the other rates."""
_NARROW, _WIDE, _BOXED_ROWS = 60, 100, 12
_SIDES = 4
"""Columns that the frame takes."""
_MOST_PROCESSES = ((58, 12), (38, 8), (18, 4), (12, 2), (10, 1))
"""From which height between title and keys on, how many processes are shown below the chart."""
_STEADY_FRAMES = 20
"""So long the rows of processes that have ended stay: a chart that jumps cannot be read."""
_GAP = 3
_LONGEST_GAUGE, _SHORTEST_GAUGE = 40, 8
_HIGH, _VERY_HIGH = 0.75, 0.9
_KEYS = {
    "q": ("quit", "quit; a recording goes on"),
    "?": ("help", "the keys and what they do"),
    "space": ("pause", "pause, and go on"),
    "l": ("list", "list as many processes as there is room for"),
    "m": ("metric", "other metrics"),
    "↑ ↓": ("scroll", "scroll the processes; Page Up and Page Down by ten"),
}
"""What each key does, in short and whole, in the order in which they are named where there is little room."""
_REPLAY_KEYS = {"← →": ("move", "move by a twentieth of the run"), "g": ("peak", "go to the peak")}
_NO_KEYS = "keys: nncf-tools watch, in another terminal"


class Drawing:
    """Draws a run repeatedly."""

    def __init__(self, here: Machine) -> None:
        """Ask ``here`` for what the recording does not hold."""
        self._here = here
        self._alive: deque[int] = deque(maxlen=_STEADY_FRAMES)
        """How many processes the last frames had."""

    def frame(self, run: Run, settings: ViewSettings, width: int, height: int) -> list[str]:
        """Return ``height`` lines of ``width`` columns at most, with colours as escape sequences."""
        rows = self.rows(run, settings, width, height)
        return [terminal_plot.coloured(row) for row in rows]

    def rows(self, run: Run, settings: ViewSettings, width: int, height: int) -> list[list[Segment]]:
        """Return ``height`` rows of ``width`` columns: in a frame if there is room, else between title and keys."""
        gutter = 10 if width < _NARROW else 16 if width >= _WIDE else GUTTER
        style = TerminalStyle(settings.unit, settings.unicode, settings.colours, gutter)
        if width >= _NARROW and height >= _BOXED_ROWS:
            content: RenderableType = Panel(
                _stack(self._inside(run, settings, style, width - _SIDES, height - 2)),
                box=box.ROUNDED,
                title=_title(run, settings, width - _SIDES - 2, "─"),
                title_align="left",
                subtitle=_keys(settings, width - _SIDES - 2),
                subtitle_align="left",
                border_style=AXIS,
                height=height,
            )
        else:
            keys = [(_keys(settings, width), 1)] if settings.keys else []
            inside = self._inside(run, settings, style, width, height - 1 - len(keys))
            content = _stack([(_title(run, settings, width, " "), 1), *inside, *keys])
        return render_rows(content, width, height, style)

    def _inside(self, run: Run, settings: ViewSettings, style: TerminalStyle, width: int, height: int) -> list[Part]:
        """Return what is between title and keys: ``height`` rows."""
        head = [_summary(run, settings, width), *_current(run, settings, width)]
        foot = _memory_left(run, self._here.available(run), width)
        room = max(0, height - len(head) - 1)
        processes = self._here.processes(run)
        self._alive.append(len(processes))
        most = next((rows for least, rows in _MOST_PROCESSES if height >= least), 0)
        rows = min(most, max(self._alive), room - _SMALLEST_BODY - 1)
        if settings.listing:
            rows = min(len(processes), room - 1)
        below = [] if rows <= 0 else _listed(processes, settings, rows, width)
        room -= sum(size for _, size in below)
        above: list[Part] = []
        if settings.helping:
            size = min(room, len(render_rows(_help(settings), width, None, style)))
            above = [(_help(settings), size)]
            room -= size
        return [*((row, 1) for row in head), *above, *_over_time(run, settings, style, width, room), *below, (foot, 1)]


def _stack(parts: Sequence[Part]) -> Layout:
    """Return parts below each other."""
    layout = Layout()
    layout.split_column(*(Layout(part, size=size) for part, size in parts if size))
    return layout


def _over_time(run: Run, settings: ViewSettings, style: TerminalStyle, width: int, height: int) -> Iterator[Part]:
    """Yield chart, operations and rates, with their heights; without the chart if there is little room."""
    shown = _window(run.latest_s, max(10, width - style.gutter - 1), has_ended=run.ended)
    spans = run.outermost_operations
    below = [terminal_plot.operations_row(spans, shown, style)] if spans else []
    below += _rates(run, shown, style, height)
    if height >= _SMALLEST_CHART:
        below = below[: height - _SMALLEST_CHART]
        names = charted(run, settings)
        peak = run.peaks.get(names[0]) if names else None
        limit = run.limit.size if run.limit is not None and names[:1] == ["rss"] else None
        lines = [Line(label(name), *run.history.points(name)) for name in names]
        marked = Marked(None if peak is None else (peak.value, peak.at_s), limit)
        yield terminal_plot.plot(lines, marked, shown, height - len(below), style), height - len(below)
    for row in below[:height]:
        yield row, 1


def _rates(run: Run, shown: Window, style: TerminalStyle, height: int) -> Iterator[Text]:
    """Yield CPU and I/O as bars, and the rate of now beside them."""
    of_cpu, of_others = next((rows for least, rows in _RATES if height >= least), (0, 0))
    window_s = max(RATE_WINDOW_S, shown.end_s / shown.columns)
    for rate in terminal_chart.rates_shown(run.columns):
        moments, rates = series.rates(*run.history.totals(rate.counters), window_s)
        in_columns = terminal_chart.rates_in_columns(moments, rates, shown)
        now = None if run.ended else run.rate(rate.counters) or 0.0
        rows = of_cpu if rate.unit == "cores" else of_others
        yield from terminal_chart.rate_rows(rate, in_columns, now, style.gutter, rows)


def _window(now_s: float, columns: int, *, has_ended: bool) -> Window:
    """Return the time axis: all of a run that has ended, else with room for the seconds to come."""
    if has_ended:
        return Window(max(now_s, 1e-3), columns, now_s)
    steps = math.ceil(math.log(max(now_s / _SHORTEST_S, 1.0), _GROWTH) - 1e-9)
    return Window(_SHORTEST_S * _GROWTH**steps, columns, now_s)


def _listed(processes: Sequence[LiveProcess], settings: ViewSettings, rows: int, width: int) -> list[Part]:
    """Return so many rows of processes below a line with their number."""
    first = min(settings.first, max(0, len(processes) - rows))
    words = f" {len(processes)} by memory{f', from number {first + 1}' if first else ''}"
    heading = Rule(Text.assemble(("Processes", TITLE), (words, AXIS)), align="left", style=AXIS)
    return [(heading, 1), (process_table(processes, first, rows, settings, width), rows)]


def _title(run: Run, settings: ViewSettings, width: int, line: str) -> Text:
    """Return the command, what goes on, and the time of the run."""
    words = figures.ending(run) if run.ended else "paused" if settings.paused else settings.state
    colour = WARNING if settings.paused else GOOD if run.ended or words != "recording" else DANGER
    state = Text.assemble(("" if run.ended else "● ", colour), (f"{words}  {figures.at(run.latest_s)}", TITLE))
    command = shortened(printable(run.command), max(10, width - state.cell_len - 3))
    between = max(0, width - Text(command).cell_len - state.cell_len - 2)
    return Text.assemble((command, TITLE), (f" {line * between} ", AXIS), state, no_wrap=True, overflow="crop")


def _keys(settings: ViewSettings, width: int) -> Text:
    """Return the keys and what they do, as many as fit."""
    if not settings.keys:
        return Text(_NO_KEYS, AXIS)
    named = _named_keys(settings).items()
    return fitting((Text.assemble((name, KEY), (f" {meaning}", AXIS)) for name, (meaning, _) in named), width, _GAP)


def _named_keys(settings: ViewSettings) -> dict[str, tuple[str, str]]:
    return _KEYS | (_REPLAY_KEYS if settings.moves else {})


def _help(settings: ViewSettings) -> Table:
    table = Table.grid()
    table.add_column(justify="right", style=KEY, width=8)
    table.add_column(width=2)
    for name, (_, meaning) in _named_keys(settings).items():
        table.add_row(name, "", meaning)
    return table


def _spread(left: Text, right: RenderableType) -> Table:
    """Return a row with something at its left and right end."""
    row = Table.grid(expand=True)
    row.add_column(no_wrap=True, overflow="crop", ratio=1)
    row.add_column(no_wrap=True, justify="right")
    row.add_row(left, right)
    return row


def _summary(run: Run, settings: ViewSettings, width: int) -> RenderableType:
    """Return memory with its peak, CPU and processes, as far as there is room."""
    names = charted(run, settings)
    if not names:
        return Text("no memory metric")
    parts = [_metric(run, settings, names, 0)]
    for number, words in enumerate(figures.peak_words(run, settings, names[0])):
        parts.append(Text(words) if number else Text.assemble(" " * _GAP, ("◆", PEAK), f" {words}"))
    left = fitting(parts, width)
    return _spread(left, fitting(map(Text, figures.activity(run)), width - left.cell_len - _GAP, _GAP))


def _metric(run: Run, settings: ViewSettings, names: Sequence[str], number: int) -> Text:
    value = settings.unit.label(run.latest.get(names[number]))
    return Text.assemble((f"{SIGNS[number]} ", CURVES[number]), f"{label(names[number])} ", (value, TITLE))


def _current(run: Run, settings: ViewSettings, width: int) -> Iterator[RenderableType]:
    """Yield the current operation and which code made memory grow; at the right, the other metrics of the chart."""
    names = charted(run, settings)
    left = Text()
    if words := figures.operation_words(run):
        operation = shortened(words[0], width - len("Now "))
        left = fitting([Text.assemble(("Now ", AXIS), (operation, TITLE)), Text(words[1])], width)
    gap = _GAP if left else 0
    others = (_metric(run, settings, names, number) for number in range(1, len(names)))
    right = fitting(others, width - left.cell_len - gap, _GAP)
    grown = figures.growth(run, width - left.cell_len - gap - right.cell_len - _GAP)
    if grown:
        left.append(f"{' ' * gap}{grown if gap else grown[0].upper() + grown[1:]}")
    if left or right:
        yield _spread(left, right)


def _memory_left(run: Run, available: float | None, width: int) -> RenderableType:
    """Return which memory is limited, how much of it is left and for how long, and a bar of the used part."""
    found = figures.memory_left(run, available)
    words = f"{found.amount}, {found.exhausted}" if found.exhausted else found.amount
    name = f"{found.name.capitalize()}  "
    if len(name) + len(words) > width:
        words = found.exhausted or found.amount.partition(" of ")[0]
    left = Text.assemble(name, (words, DANGER if found.exhausted else ""))
    room = min(width - left.cell_len - _GAP, _LONGEST_GAUGE)
    if found.used is None or room < _SHORTEST_GAUGE:
        return left
    colour = GOOD
    if found.exhausted or found.used >= _VERY_HIGH:
        colour = DANGER
    elif found.used >= _HIGH:
        colour = WARNING
    return _spread(left, ProgressBar(1.0, found.used, room, complete_style=colour, finished_style=colour, style=AXIS))
