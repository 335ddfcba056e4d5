"""The processes of a run as a table: a command shortened to its differences, CPU, memory, a bar of its share."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import takewhile
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
_INTERPRETER = re.compile(r"((?:python|pypy|perl|ruby)[\d.]*|node|(?:ba|da|z|k)?sh)")
_LONG, _HEAD, _CONTEXT = 32, 20, 8
"""How many equal characters of a long word stay: at its beginning, and before the first that differs."""
_LEFT_OUT = "…"


def without_interpreter(command: Sequence[str]) -> list[str]:
    """Return the words of a command, harmless and without folders of programs and scripts."""
    words = [printable(word[:_MOST_CHARACTERS]) for word in command[:_MOST_WORDS]]
    first = _INTERPRETER.fullmatch(_name(words[0])) if words else None
    if first is not None:
        rest = words[1:]
        while rest and rest[0] in {"-B", "-E", "-I", "-O", "-S", "-s", "-u"}:  # without a value
            rest = rest[1:]
        words = rest if rest and not rest[0].startswith("-") else [first[1].rstrip("0123456789."), *rest]
    return [_name(words[0]), *words[1:]] if words else []


@lru_cache(maxsize=4)
def short_commands(commands: tuple[tuple[int, tuple[str, ...]], ...]) -> dict[int, str]:
    """Return a short text for each command, by number: its program, and the words that differ between its commands.

    Folders, and the interpreter of a script, are left out; words that all have are ``…``.
    """
    words = {number: without_interpreter(command) for number, command in commands}
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for number, command in words.items():
        groups[_program(command)].append(number)
    texts = {}
    for program, numbers in groups.items():
        for number, kept in zip(numbers, _different([words[number] for number in numbers], len(program)), strict=True):
            texts[number] = shortened(" ".join(kept), _MOST_CHARACTERS)
    return texts


def _name(path: str) -> str:
    return path.rpartition("/")[2] or path


def _program(command: Sequence[str]) -> tuple[str, ...]:
    """Return the words that name the program: of code on the command line, the option and how it begins."""
    if len(command) > 2 and command[1] in {"-c", "-m"}:  # noqa: PLR2004 — and a value
        return command[0], command[1], " ".join(command[2].split()[:2])
    return tuple(command[:1])


def _different(commands: Sequence[list[str]], least: int) -> Iterable[list[str]]:
    """Return the commands of one program without the words that all have; the first ``least`` words stay."""
    if len(set(map(tuple, commands))) <= 1:
        return commands
    longest = max(map(len, commands))
    columns = [[command[number] for command in commands if len(command) > number] for number in range(longest)]
    shared = [len(set(words)) == 1 and len(words) == len(commands) for words in columns]
    return [_shown(command, shared, columns, least) for command in commands]


def _shown(command: list[str], shared: Sequence[bool], columns: Sequence[list[str]], least: int) -> list[str]:
    kept: list[str] = []
    for number, word in enumerate(command):
        names_the_next = word.startswith("-") and number + 1 < len(command) and not shared[number + 1]
        if not shared[number]:
            kept.append(_without_common(word, columns[number]))
        elif number < least or names_the_next:
            kept.append(word)
        elif kept[-1] != _LEFT_OUT:
            kept.append(_LEFT_OUT)
    return kept[:-1] if kept[-1] == _LEFT_OUT else kept


def _without_common(word: str, others: Sequence[str]) -> str:
    """Shorten the beginning that a long word shares with all others in its position."""
    if len(word) <= _LONG:
        return word
    equal = takewhile(lambda letters: len(set(letters)) == 1, zip(*others, strict=False))
    common = len(list(equal))
    return word if common <= _HEAD + _CONTEXT else f"{word[:_HEAD]}{_LEFT_OUT}{word[common - _CONTEXT :]}"


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
    compared = sorted({process.number: process for process in [*shown, *seen[:_MOST]]}.items())
    labels = short_commands(tuple((number, tuple(process.live.command)) for number, process in compared))
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
