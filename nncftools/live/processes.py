"""The processes of a run as a table: a short command, CPU, memory, a bar of its share."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.align import Align
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from nncftools.live.figures import ShownProcess, ViewSettings
from nncftools.render.terminal_style import AXIS, CURVES, GOOD, TITLE
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


def short_commands(commands: Mapping[int, Sequence[str]]) -> dict[int, str]:
    """Return a short text for each command, by number; a long beginning that several share is cut."""
    texts = {number: short_command(command) for number, command in commands.items()}
    alike = defaultdict[str, list[str]](list)
    for text in texts.values():
        alike[text[:_LONG]].append(text)
    for number, text in texts.items():
        others = alike[text[:_LONG]]
        common = len(os.path.commonprefix(others))  # noqa: RUF071 — characters are meant
        if len(set(others)) > 1 and common >= _LONG:
            texts[number] = f"{text[:_HEAD]}…{text[common - _CONTEXT :]}"
    return texts


_PID, _CPU, _RSS = 7, 11, 13
_CPU_FROM = 44
"""With fewer columns, there is no room for CPU."""
_BAR_FROM, _LONGEST_BAR = 56, 24
_MOST = 200
"""The most commands that those on the screen are compared with."""


def sort_processes(seen: Sequence[ShownProcess]) -> list[ShownProcess]:
    """Return processes, the largest first."""
    return sorted(seen, key=lambda process: (-_size(process), process.number))


def _size(process: ShownProcess) -> int:
    return process.rss if process.rss is not None else process.live.most or 0


def process_table(
    shown: Sequence[ShownProcess], seen: Sequence[ShownProcess], settings: ViewSettings, width: int
) -> Table:
    """Return a row for each process that is ``shown``; ``seen`` are all of them."""
    labels = short_commands({process.number: process.live.command for process in [*seen[:_MOST], *shown]})
    whole = sum(map(_size, seen))
    has_cpu = width >= _CPU_FROM and any(process.cpu is not None for process in seen)
    bar = min(width // 5, _LONGEST_BAR) + 1 if width >= _BAR_FROM else 0
    table = Table.grid(expand=True)  # without padding, whose place differs between releases of rich
    table.add_column(justify="right", style=AXIS, width=_PID)
    table.add_column(ratio=1, no_wrap=True)
    widths = [(size, style) for size, style in ((_CPU * has_cpu, GOOD), (_RSS, TITLE), (bar, AXIS)) if size]
    for size, style in widths:
        table.add_column(justify="right", style=style, width=size)
    room = width - _PID - sum(size for size, _ in widths)
    for process in shown:
        name = labels.get(process.number) or printable(process.live.name or "?")
        cells: list[RenderableType] = [f"{process.live.pid or ''}", Text(f" {shortened(name, max(1, room - 1))}")]
        if has_cpu:
            cells.append("" if process.cpu is None else cores_text(process.cpu))
        at_most = "" if process.rss is not None else "≤" if settings.unicode else "<="
        cells.append(f"{at_most}{settings.unit.label(_size(process))}")
        if bar:
            share = _size(process) / whole if whole else 0.0
            gauge = ProgressBar(1.0, share, bar - 1, complete_style=CURVES[0], finished_style=CURVES[0], style=AXIS)
            cells.append(Align.right(gauge))
        table.add_row(*cells)
    return table
