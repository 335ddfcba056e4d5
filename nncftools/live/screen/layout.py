"""Where what stands: the view as a Rich layout, for any size of the screen."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.layout import Layout
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from nncftools.live.screen import figures, picture
from nncftools.live.screen.look import KEYS
from nncftools.render.terminal.scales import clock
from nncftools.text import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import ConsoleOptions, RenderableType, RenderResult

    from nncftools.live.screen.figures import Machine
    from nncftools.live.screen.look import Look
    from nncftools.live.state.run import Lived, Run

_SHARE = 0.012
"""Of one core, what drawing charts may cost."""
_OLDEST_S = 5.0
_BESIDE_FROM = 110
_BESIDE = 34
_BELOW_FROM = 20
_PROCESSES = 5
_IN_A_LINE = 3
_SMALLEST_BODY = 5
_ASCII = str.maketrans({"›": ">", "–": "-", "…": "~", "●": "*", "×": "x"})


class Drawing:
    """Draws a run again and again; a chart that looks the same, or was drawn just now, is not drawn anew."""

    def __init__(self, here: Machine) -> None:
        """Ask ``here`` for what the recording does not hold."""
        self._here = here
        self._drawn: list[list[Segment]] = []
        self._form: object = None
        self._state: object = None
        self._after_s = 0.0
        self._console = Console()
        self._console_for: object = None
        import plotext  # noqa: F401 — takes a third of a second: not to be counted as the cost of a chart

    def frame(self, run: Run, look: Look, width: int, height: int) -> list[str]:
        """Return ``height`` lines of ``width`` columns at most, with colours as escape sequences."""
        if self._console_for != (look.colour, width):
            self._console_for = look.colour, width
            self._console = Console(
                force_terminal=True,
                color_system="256",
                no_color=not look.colour,
                width=width,
                highlight=False,
                legacy_windows=False,
                _environ={},
            )
        with self._console.capture() as captured:
            self._console.print(self.view(run, look, width, height), height=height, crop=True)
        text = captured.get()
        return (text if look.unicode else text.translate(_ASCII)).split("\n")[:height]

    def view(self, run: Run, look: Look, width: int, height: int) -> RenderableType:
        """Return the view as a Rich layout."""
        available = self._here.available(run)
        largest = self._here.largest(run)
        layout = Layout()
        head = [_title(run, look, width), Text(_joined(figures.memory(run, look), figures.activity(run)))]
        doing = figures.operation(run)
        if doing:
            head.append(Text(f"Now {doing}", style="bold"))
        foot = [_machine(run, available)]
        beside = width >= _BESIDE_FROM and height > len(head) + len(foot) + _PROCESSES
        room = height - len(head) - len(foot) - bool(look.keys)
        below = 0
        if not beside and largest:
            below = _PROCESSES + 1 if height >= _BELOW_FROM and len(largest) > _IN_A_LINE else 1
        if room - below < _SMALLEST_BODY:
            below = 0
        chart_width = width - _BESIDE if beside else width
        middle: RenderableType
        if look.listing:
            middle, below, beside = _processes(largest, look, room), 0, False
        else:
            middle = _Rendered(self._body(run, look, chart_width, room - below))
        rows = [Layout(_Lines(head), size=len(head))]
        if beside:
            both = Layout(size=room)
            both.split_row(Layout(middle, size=chart_width), Layout(_processes(largest, look, room), size=_BESIDE))
            rows.append(both)
        else:
            rows.append(Layout(middle, size=room - below))
        if below == 1:
            rows.append(Layout(Text(f"Largest  {figures.processes(largest, look, _IN_A_LINE)}", no_wrap=True), size=1))
        elif below:
            rows.append(Layout(_processes(largest, look, _PROCESSES + 1), size=below))
        rows.append(Layout(_Lines(foot), size=len(foot)))
        if look.keys:
            rows.append(Layout(Text(KEYS, style="dim", no_wrap=True), size=1))
        layout.split_column(*rows)
        return layout

    def _body(self, run: Run, look: Look, width: int, height: int) -> list[list[Segment]]:
        """Return chart, operations and rates, drawn anew if they have changed and it costs no more than its share."""
        shown = picture.window(run, look, width)
        spans = run.operations.outermost(run.latest_s)
        form = look, width, height, bool(spans), run.ended
        halves = (shown.end_s - shown.begin_s) / shown.columns / 2
        tops = [top.value for top in run.tops.values()]
        state = int(shown.end_s / halves), len(spans), spans[-1:], tops
        now_s = time.monotonic()
        if self._form != form or (self._state != state and now_s >= self._after_s):
            begin_cpu_s = time.thread_time()
            lines = picture.body(run, look, shown, height)
            self._drawn = [list(_cut(line, self._console, width)) for line in lines]
            self._form, self._state = form, state
            self._after_s = now_s + min(_OLDEST_S, (time.thread_time() - begin_cpu_s) / _SHARE)
        return self._drawn


class _Rendered:
    """Lines that fit and are rendered already."""

    def __init__(self, lines: Sequence[Sequence[Segment]]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self._lines:
            yield from line
            yield Segment.line()


class _Lines:
    """Lines that fit already."""

    def __init__(self, lines: Sequence[Text]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self._lines:
            yield from _cut(line, console, options.max_width)
            yield Segment.line()


def _cut(line: Text, console: Console, width: int) -> Iterator[Segment]:
    if line.cell_len > width:
        line = line.copy()
        line.truncate(width, overflow="ellipsis")
    yield from line.render(console)


def _joined(*texts: str) -> str:
    return "   ".join(text for text in texts if text)


def _title(run: Run, look: Look, width: int) -> Text:
    state = figures.ending(run) if run.ended else "paused" if look.paused else look.state
    right = f"{state}  {clock(float(int(run.latest_s)))}" if state else clock(float(int(run.latest_s)))
    room = max(10, width - len(right) - 2)
    text = Text(shortened(printable(run.command), room), style="bold")
    text.append(" " * max(2, width - text.cell_len - len(right)))
    colour = "yellow" if look.paused else "green"
    return text.append(right, style=f"not bold {colour}" if look.colour else "not bold")


def _machine(run: Run, available: float | None) -> Text:
    near = figures.is_near(run, available)
    return Text(f"Machine  {figures.machine_memory(run, available)}", style="bold red" if near else "")


def _processes(largest: Sequence[tuple[Lived, int]], look: Look, height: int) -> Table:
    """Return the largest processes as a table of at most ``height`` lines."""
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True, min_width=_BESIDE - 21, max_width=40 if look.listing else _BESIDE - 21)
    table.add_column(justify="right", no_wrap=True)
    table.add_row(Text(" PID", style="dim"), Text("Process", style="dim"), Text(f"RSS {look.unit}", style="dim"))
    most = height - 1 if look.listing else min(_PROCESSES, height - 1)
    for lived, rss in largest[: max(0, most)]:
        table.add_row(str(lived.pid or ""), printable(lived.name or "?"), look.unit.text(rss))
    return table
