"""The processes of a run as a table: a short command, CPU, memory, a bar of its share."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from rich.align import Align
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from nncftools.live.figures import ViewSettings
from nncftools.live.run import LiveProcess
from nncftools.render.terminal_plot import AXIS, CURVES, GOOD, TITLE
from nncftools.units import cores_text, printable, shortened

if TYPE_CHECKING:
    from rich.console import RenderableType


_MOST_WORDS, _MOST_CHARACTERS = 64, 200
_INTERPRETER = re.compile(
    r"(?:\S*/)?((?:python|pypy|perl|ruby)[\d.]*|node|(?:ba|da|z|k)?sh)(?: -[BEIOSsu])* "  # flags without a value
)
_FOLDERS = re.compile(r"\S*/(?=\S)")
_LONG, _HEAD, _CONTEXT = 40, 20, 8
"""How many equal characters of commands stay: at their beginning, and before the first that differs."""


def short_command(command: Sequence[str]) -> str:
    """Return a command without folders and without the interpreter of a script, harmless to a terminal."""
    text = " ".join(word[:_MOST_CHARACTERS] for word in command[:_MOST_WORDS])
    interpreter = _INTERPRETER.match(text)
    if interpreter is not None:
        rest = text[interpreter.end() :]
        text = f"{interpreter[1]} {rest}" if rest.startswith("-") else rest
    folders = _FOLDERS.match(text)
    return shortened(printable(text if folders is None else text[folders.end() :]), _MOST_CHARACTERS)


def short_commands(commands: Iterable[Sequence[str]]) -> list[str]:
    """Return a short text for each command; a long beginning that several share is cut."""
    texts = [short_command(command) for command in commands]
    alike = defaultdict[str, list[str]](list)
    for text in texts:
        alike[text[:_LONG]].append(text)
    for number, text in enumerate(texts):
        others = alike[text[:_LONG]]
        equal = takewhile(lambda letters: len(set(letters)) == 1, zip(*others, strict=False))
        common = len(list(equal))
        if len(set(others)) > 1 and common >= _LONG:
            texts[number] = f"{text[:_HEAD]}…{text[common - _CONTEXT :]}"
    return texts


_PID, _CPU, _RSS = 7, 11, 13
_CPU_FROM = 44
"""With fewer columns, there is no room for CPU."""
_BAR_FROM, _LONGEST_BAR = 56, 24
_MOST = 200
"""The most commands that those on the screen are compared with."""


def process_table(seen: Sequence[LiveProcess], first: int, rows: int, settings: ViewSettings, width: int) -> Table:
    """Return so many rows, from the process with the number ``first`` on; ``seen`` are all processes."""
    last = first + rows
    names = short_commands(process.command for process in seen[: max(last, _MOST)])
    whole = sum(process.size for process in seen)
    has_cpu = width >= _CPU_FROM and any(process.cpu is not None for process in seen)
    bar = min(width // 5, _LONGEST_BAR) + 1 if width >= _BAR_FROM else 0
    table = Table.grid(expand=True)  # without padding, whose place differs between releases of rich
    table.add_column(justify="right", style=AXIS, width=_PID)
    table.add_column(ratio=1, no_wrap=True)
    widths = [(size, style) for size, style in ((_CPU * has_cpu, GOOD), (_RSS, TITLE), (bar, AXIS)) if size]
    for size, style in widths:
        table.add_column(justify="right", style=style, width=size)
    room = width - _PID - sum(size for size, _ in widths)
    for process, command in zip(seen[first:last], names[first:last], strict=True):
        name = shortened(command or printable(process.name or "?"), max(1, room - 1))
        cells: list[RenderableType] = [f"{process.pid or ''}", Text(f" {name}")]
        if has_cpu:
            cells.append("" if process.cpu is None else cores_text(process.cpu))
        at_most = "" if process.rss is not None else "≤" if settings.unicode else "<="
        cells.append(f"{at_most}{settings.unit.label(process.size)}")
        if bar:
            gauge = ProgressBar(
                whole or 1.0, process.size, bar - 1, style=AXIS, complete_style=CURVES[0], finished_style=CURVES[0]
            )
            cells.append(Align.right(gauge))
        table.add_row(*cells)
    return table
