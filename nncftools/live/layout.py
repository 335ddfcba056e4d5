"""Arranges the live view for a screen of any size, as rich's Layout and tables.

From top to bottom: facts about the run, memory chart, operations and rates on the same time axis, processes, available
memory, keys.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.align import Align
from rich.cells import cell_len
from rich.layout import Layout
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from nncftools.analysis import summary
from nncftools.analysis.code_places import shared_depth
from nncftools.analysis.peaks import RATE_WINDOW_S
from nncftools.live import figures
from nncftools.live.figures import Machine, ViewSettings, choose_metrics
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
from nncftools.units import cores_text, printable, shortened

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.segment import Segment

    Part = tuple[RenderableType, int]
    """(part of the view, height in rows)."""


_SHORTEST_S = 5.0
_GROWTH = 1.25
"""At first, the time axis is ``_SHORTEST_S`` long. Whenever the run fills the axis, the axis gets longer by this
factor."""
_SMALLEST_CHART = 3
_SMALLEST_BODY = 5
_RATES = (
    (44, (4, 2)),
    (26, (3, 1)),
    (8, (1, 1)),
    (7, (1, 0)),
)
"""Pairs: (least height of the body, (rows for CPU, rows for each other rate)). The first pair whose least height fits
into the body is used.
"""
_NARROW = 60
_WIDE = 100
_BOXED_ROWS = 12
_SIDES = 4
"""Columns that the left and right borders of the frame take together."""
_MOST_PROCESSES = (
    (58, 12),
    (38, 8),
    (18, 4),
    (12, 2),
    (10, 1),
)
"""Pairs: (least height of the body, largest number of processes below the chart). The first pair whose least height
fits into the body is used.
"""
_GAP = 3
_LONGEST_GAUGE = 40
_SHORTEST_GAUGE = 8
_HIGH = 0.75
_VERY_HIGH = 0.9
_KEYS = {
    "q": ("quit", "quit; a recording continues"),
    "?": ("help", "the keys and what they do"),
    "space": ("pause", "pause or continue"),
    "l": ("list", "list as many processes as there is room for"),
    "m": ("metric", "show other metrics"),
    "↑ ↓": ("scroll", "scroll the processes; Page Up and Page Down by ten"),
}
"""The effect of each key: in a word, and in full. The most important keys come first."""
_REPLAY_KEYS = {"← →": ("move", "move by a twentieth of the run"), "g": ("peak", "go to the peak")}
_NO_KEYS = "keys: run nncf-tools watch in another terminal"


class Drawing:
    """Draws the live view of a run repeatedly."""

    def __init__(self, here: Machine) -> None:
        """Values that the recording lacks are read from ``here``, which stands for this machine."""
        self._here = here

    def frame(self, run: Run, settings: ViewSettings, width: int, height: int) -> list[str]:
        """Return at most ``height`` lines of at most ``width`` columns, with escape sequences for colours."""
        rows = self.rows(run, settings, width, height)
        return [terminal_plot.coloured(row) for row in rows]

    def rows(self, run: Run, settings: ViewSettings, width: int, height: int) -> list[list[Segment]]:
        """Return ``height`` rows of ``width`` columns.

        If there is room, a frame with title and keys surrounds the body; otherwise, title and keys are separate rows.
        """
        gutter = GUTTER
        if width < _NARROW:
            gutter = 10
        elif width >= _WIDE:
            gutter = 16
        style = TerminalStyle(settings.unit, settings.unicode, settings.colours, gutter)
        content: RenderableType
        if width >= _NARROW and height >= _BOXED_ROWS:
            inside = width - _SIDES
            body = self._lay_out_body(run, settings, style, width=inside, height=height - 2)
            content = Panel(
                _stack(body),
                box=box.ROUNDED,
                title=_make_title(run, settings, inside - 2, "─"),
                title_align="left",
                subtitle=_list_keys(settings, inside - 2),
                subtitle_align="left",
                border_style=AXIS,
                height=height,
            )
        else:
            title = _make_title(run, settings, width, " ")
            keys = [(_list_keys(settings, width), 1)] if settings.keys else []
            room = height - 1 - len(keys)
            body = self._lay_out_body(run, settings, style, width=width, height=room)
            content = _stack([(title, 1), *body, *keys])
        return render_rows(content, width, height, style)

    def _lay_out_body(
        self, run: Run, settings: ViewSettings, style: TerminalStyle, *, width: int, height: int
    ) -> list[Part]:
        """Return the parts of the body (everything between title and keys), ``height`` rows in total."""
        head = [_summarize(run, settings, width), *_describe_activity(run, settings, width)]
        foot = _describe_memory_left(run, self._here.available(run), width)
        above: list[Part] = [(row, 1) for row in head]
        room = max(0, height - len(head) - 1)
        processes = self._here.processes(run)
        rows = min(len(processes), room - 1)
        if not settings.listing:
            most = next((most for least, most in _MOST_PROCESSES if height >= least), 0)
            rows = min(rows, most, room - _SMALLEST_BODY - 1)
        below: list[Part] = []
        if rows > 0:
            below = _list_processes(processes, settings, rows, width)
            room -= rows + 1
        if settings.helping:
            explanation = _explain_keys(settings)
            size = min(room, len(render_rows(explanation, width, None, style)))
            above.append((explanation, size))
            room -= size
        chart = _draw_over_time(run, settings, style, width=width, height=room)
        return [*above, *chart, *below, (foot, 1)]


def _stack(parts: Sequence[Part]) -> Layout:
    layout = Layout()
    layout.split_column(*(Layout(part, size=size) for part, size in parts if size))
    return layout


def _draw_over_time(
    run: Run, settings: ViewSettings, style: TerminalStyle, *, width: int, height: int
) -> Iterator[Part]:
    """Yield the chart, operations and rates. If there is little room, leave the chart out."""
    columns = max(10, width - style.gutter - 1)
    window = _choose_window(run.latest_s, columns, has_ended=run.ended)
    spans = run.outermost_operations
    below = [terminal_plot.operations_row(spans, window, style)] if spans else []
    below += _draw_rates(run, window, style, height)
    if height >= _SMALLEST_CHART:
        below = below[: height - _SMALLEST_CHART]
        height -= len(below)
        names = choose_metrics(run, settings)
        peak = run.peaks.get(names[0]) if names else None
        place = None if peak is None or peak.at_s is None else (peak.value, peak.at_s)
        limit = run.limit if names[:1] == ["rss"] else None
        lines = [Line(label(name), *run.history.points(name)) for name in names]
        marked = Marked(place, None if limit is None else limit.size)
        yield terminal_plot.plot(lines, marked, window, height=height, style=style), height
        height = len(below)
    for row in below[:height]:
        yield row, 1


def _draw_rates(run: Run, window: Window, style: TerminalStyle, height: int) -> Iterator[Text]:
    heights = [rows for least, rows in _RATES if height >= least]
    cpu_rows, other_rows = heights[0] if heights else (0, 0)
    average_s = max(RATE_WINDOW_S, window.end_s / window.columns)
    for rate in terminal_chart.choose_rates(run.columns):
        moments, rates = summary.rates(*run.history.totals(rate.counters), average_s)
        bars = terminal_chart.rates_in_columns(moments, rates, window)
        now = None if run.ended else run.rate(rate.counters) or 0.0
        rows = cpu_rows if rate.unit == "cores" else other_rows
        yield from terminal_chart.rate_rows(rate, bars, now, style.gutter, height=rows)


def _choose_window(now_s: float, columns: int, *, has_ended: bool) -> Window:
    """Return the time axis.

    If the run has ended, the axis is the whole run; otherwise, the axis has room for a few more seconds.
    """
    if has_ended:
        return Window(max(now_s, 1e-3), columns, now_s)
    steps = math.ceil(math.log(max(now_s / _SHORTEST_S, 1.0), _GROWTH) - 1e-9)
    return Window(_SHORTEST_S * _GROWTH**steps, columns, now_s)


def _make_title(run: Run, settings: ViewSettings, width: int, line: str) -> Text:
    state = settings.state
    colour = DANGER if state == "recording" else GOOD
    if run.ended:
        state = figures.describe_ending(run)
        colour = GOOD
    elif settings.paused:
        state = "paused"
    if settings.paused:
        colour = WARNING
    time = f"{state}  {figures.at(run.latest_s)}"
    right = Text.assemble(("" if run.ended else "● ", colour), (time, TITLE))
    command = _shorten(printable(run.command), max(10, width - right.cell_len - 3))
    between = max(0, width - cell_len(command) - right.cell_len - 2)
    title = Text(no_wrap=True, overflow="crop")
    title.append(command, TITLE).append(f" {line * between} ", AXIS)
    return title.append_text(right)


def _shorten(text: str, width: int) -> str:
    """Cut out the middle of a text, so that the text fits into ``width`` columns; some characters take two columns."""
    length = width
    while cell_len(shortened(text, length)) > width:
        length -= 1
    return shortened(text, length)


def _list_keys(settings: ViewSettings, width: int) -> Text:
    """Return as many keys as fit into a row, each with a word for the effect."""
    if not settings.keys:
        return Text(_NO_KEYS, AXIS)
    keys = _get_keys(settings)
    texts = []
    for name, (word, _) in keys.items():
        texts.append(Text.assemble((name, KEY), (f" {word}", AXIS)))
    return fitting(texts, width, _GAP)


def _get_keys(settings: ViewSettings) -> dict[str, tuple[str, str]]:
    return _KEYS | _REPLAY_KEYS if settings.moves else _KEYS


def _explain_keys(settings: ViewSettings) -> Table:
    table = Table.grid()
    table.add_column(justify="right", style=KEY, width=8)
    table.add_column(width=2)
    for name, (_, meaning) in _get_keys(settings).items():
        table.add_row(name, "", meaning)
    return table


def _spread(left: Text, right: RenderableType) -> Table:
    row = Table.grid(expand=True)
    row.add_column(no_wrap=True, overflow="crop", ratio=1)
    row.add_column(no_wrap=True, justify="right")
    row.add_row(left, right)
    return row


def _summarize(run: Run, settings: ViewSettings, width: int) -> RenderableType:
    """Return a row with memory, peak, CPU and number of processes; omit parts for which there is no room."""
    names = choose_metrics(run, settings)
    if not names:
        return Text("no memory metric")
    parts = [_describe_metric(run, settings, names, 0)]
    parts += map(Text, figures.peak_words(run, settings, names[0]))
    if len(parts) > 1:
        parts[1] = Text.assemble(" " * _GAP, ("◆ ", PEAK), parts[1])
    left = fitting(parts, width)
    activity = map(Text, figures.activity(run))
    return _spread(left, fitting(activity, width - left.cell_len - _GAP, _GAP))


def _describe_metric(run: Run, settings: ViewSettings, names: Sequence[str], number: int) -> Text:
    name = names[number]
    text = Text.assemble((f"{SIGNS[number]} ", CURVES[number]), f"{label(name)} ")
    return text.append(settings.unit.label(run.latest.get(name)), TITLE)


def _describe_activity(run: Run, settings: ViewSettings, width: int) -> Iterator[RenderableType]:
    """Yield a row with the current operation, the code that made memory grow, and at the right other memory metrics.

    Yield nothing if all parts are empty.
    """
    names = choose_metrics(run, settings)
    left = Text()
    words = figures.operation_words(run)
    if words:
        operation = _shorten(words[0], width - len("Now "))
        now = Text.assemble(("Now ", AXIS), (operation, TITLE))
        left = fitting([now, Text(words[1])], width)
    gap = _GAP if left else 0
    room = width - left.cell_len - gap
    others = range(1, len(names))
    right = fitting((_describe_metric(run, settings, names, number) for number in others), room, _GAP)
    growth = figures.growth(run, room - right.cell_len - _GAP)
    if growth and not left:
        growth = growth[0].upper() + growth[1:]
    if growth:
        left.append(" " * gap + growth)
    if left or right:
        yield _spread(left, right)


def _describe_memory_left(run: Run, available: float | None, width: int) -> RenderableType:
    """Return a row with the available memory, how long the memory will last, and a bar with the share in use."""
    memory = figures.memory_left(run, available)
    words = f"{memory.amount}, {memory.exhausted}" if memory.exhausted else memory.amount
    name = f"{memory.name.capitalize()}  "
    if len(name) + len(words) > width:
        words = memory.exhausted or memory.amount.partition(" of ")[0]
    left = Text.assemble(name, (words, DANGER if memory.exhausted else ""))
    room = min(width - left.cell_len - _GAP, _LONGEST_GAUGE)
    if memory.used is None or room < _SHORTEST_GAUGE:
        return left
    colour = GOOD
    if memory.exhausted or memory.used >= _VERY_HIGH:
        colour = DANGER
    elif memory.used >= _HIGH:
        colour = WARNING
    return _spread(left, _make_gauge(1.0, memory.used, room, colour))


def _make_gauge(total: float, part: float, width: int, colour: str) -> ProgressBar:
    return ProgressBar(total, part, width, style=AXIS, complete_style=colour, finished_style=colour)


_MOST_WORDS = 64
_MOST_CHARACTERS = 200
_INTERPRETER = re.compile(
    r"(?:\S*/)?((?:python|pypy|perl|ruby)[\d.]*|node|(?:ba|da|z|k)?sh)(?: -[BEIOSsu])* "  # flags without a value
)
_FOLDERS = re.compile(r"^\S*/(?=\S)")
_LONG = 40
"""If commands have at least this many characters at the start in common, these characters are shortened."""
_HEAD = 20
_CONTEXT = 8
"""Number of common characters that a shortened command still shows just before the first difference."""


def _shorten_command(command: Sequence[str]) -> str:
    """Return a command as short, printable text: without folders, and without the interpreter of a script."""
    text = " ".join(word[:_MOST_CHARACTERS] for word in command[:_MOST_WORDS])
    interpreter = _INTERPRETER.match(text)
    if interpreter is not None:
        rest = text[interpreter.end() :]
        text = f"{interpreter[1]} {rest}" if rest.startswith("-") else rest
    text = _FOLDERS.sub("", text, count=1)
    return shortened(printable(text), _MOST_CHARACTERS)


def short_commands(commands: Iterable[Sequence[str]]) -> list[str]:
    """Return a short text for each command. If several commands have a long start in common, cut this start."""
    texts = [_shorten_command(command) for command in commands]
    alike = defaultdict[str, list[str]](list)
    for text in texts:
        alike[text[:_LONG]].append(text)
    shared = {}
    for start, others in alike.items():
        shared[start] = shared_depth(*others) if len(set(others)) > 1 else 0
    for number, text in enumerate(texts):
        common = shared[text[:_LONG]]
        if common >= _LONG:
            texts[number] = f"{text[:_HEAD]}…{text[common - _CONTEXT :]}"
    return texts


_PID = 7
_CPU = 11
_RSS = 13
_CPU_FROM = 44
"""If the view is at least this many characters wide, the table of processes shows CPU use."""
_BAR_FROM = 56
_LONGEST_BAR = 24
_MOST = 200
"""Number of commands that are compared to find a common start, even if fewer are shown."""


def _list_processes(processes: Sequence[LiveProcess], settings: ViewSettings, rows: int, width: int) -> list[Part]:
    first = min(settings.first, len(processes) - rows)
    words = f" {len(processes)} by memory"
    if first:
        words += f", from number {first + 1}"
    title = Text.assemble(("Processes", TITLE), (words, AXIS))
    table = process_table(processes, first, rows, settings, width=width)
    return [(Rule(title, align="left", style=AXIS), 1), (table, rows)]


def process_table(
    processes: Sequence[LiveProcess], first: int, rows: int, settings: ViewSettings, *, width: int
) -> Table:
    """Return a table of ``rows`` processes, starting with the process at the index ``first``."""
    last = first + rows
    names = short_commands(process.command for process in processes[: max(last, _MOST)])
    total = sum(process.size for process in processes)
    has_cpu = width >= _CPU_FROM and any(process.cpu is not None for process in processes)
    bar = min(width // 5, _LONGEST_BAR) if width >= _BAR_FROM else 0
    table = Table.grid(expand=True)  # no padding: releases of rich draw padding in different places
    table.add_column(justify="right", style=AXIS, width=_PID)
    table.add_column(ratio=1, no_wrap=True)
    room = width - _PID - _RSS - 1
    if has_cpu:
        table.add_column(justify="right", style=GOOD, width=_CPU)
        room -= _CPU
    table.add_column(justify="right", style=TITLE, width=_RSS)
    if bar:
        table.add_column(justify="right", style=AXIS, width=bar + 1)
        room -= bar + 1
    for process, command in zip(processes[first:last], names[first:], strict=False):
        name = _shorten(command or printable(process.name or "?"), max(1, room))
        cells: list[RenderableType] = [f"{process.pid or ''}", Text(f" {name}")]
        if has_cpu:
            cells.append("" if process.cpu is None else cores_text(process.cpu))
        size = settings.unit.label(process.size)
        if process.rss is None:
            size = f"≤{size}" if settings.unicode else f"<={size}"
        cells.append(size)
        if bar:
            gauge = _make_gauge(total or 1.0, process.size, bar, CURVES[0])
            cells.append(Align.right(gauge))
        table.add_row(*cells)
    return table
