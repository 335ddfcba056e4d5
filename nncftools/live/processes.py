"""The processes of a run as rows: a command shortened to what tells it from others, CPU, memory, a bar of its share."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size

from nncftools.live.figures import Order, ShownProcess, ViewSettings
from nncftools.render.canvas import CURVES, text
from nncftools.units import cores_text, printable, shortened

if TYPE_CHECKING:
    from nncftools.render.canvas import Row, TerminalStyle


_MOST_WORDS, _MOST_CHARACTERS = 64, 200
_INTERPRETER = re.compile(r"((?:python|pypy|perl|ruby)[\d.]*|node|(?:ba|da|z|k)?sh)")
_LONG, _HEAD, _CONTEXT = 32, 20, 8
"""Of long words, that many characters of what is the same stay: at the beginning, and before what differs."""
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
    """Return by its number a short text for every command: its program, and the words that others of it do not have.

    Folders, and the interpreter of a script, are left out; words that are the same in all are ``…``.
    """
    words = {number: without_interpreter(command) for number, command in commands}
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for number, command in words.items():
        groups[_program(command)].append(number)
    found = {}
    for program, numbers in groups.items():
        for number, kept in zip(numbers, _different([words[one] for one in numbers], len(program)), strict=True):
            found[number] = shortened(" ".join(kept), _MOST_CHARACTERS)
    return found


def _name(path: str) -> str:
    return path.rpartition("/")[2] or path


def _program(command: Sequence[str]) -> tuple[str, ...]:
    """Return the words that name the program: of code on the command line, the option and how it begins."""
    if len(command) > 2 and command[1] in {"-c", "-m"}:  # noqa: PLR2004 — and a value
        return command[0], command[1], " ".join(command[2].split()[:2])
    return tuple(command[:1])


def _different(commands: Sequence[list[str]], least: int) -> Iterable[list[str]]:
    """Return the commands of one program without the words that are the same in all, apart from the ``least`` first."""
    if len(set(map(tuple, commands))) <= 1:
        return commands
    longest = max(map(len, commands))
    columns = [[command[place] for command in commands if len(command) > place] for place in range(longest)]
    shared = [len(set(words)) == 1 and len(words) == len(commands) for words in columns]
    return [_shown(command, shared, columns, least) for command in commands]


def _shown(command: list[str], shared: Sequence[bool], columns: Sequence[list[str]], least: int) -> list[str]:
    kept: list[str] = []
    for place, word in enumerate(command):
        names_the_next = word.startswith("-") and place + 1 < len(command) and not shared[place + 1]
        if not shared[place]:
            kept.append(_without_common(word, columns[place]))
        elif place < least or names_the_next:
            kept.append(word)
        elif kept[-1] != _LEFT_OUT:
            kept.append(_LEFT_OUT)
    return kept[:-1] if kept[-1] == _LEFT_OUT else kept


def _without_common(word: str, others: Sequence[str]) -> str:
    """Return a long word without most of the beginning that all others at its place have, too."""
    if len(word) <= _LONG:
        return word
    common = len(os.path.commonprefix([word, *others]))  # noqa: RUF071 — characters are meant
    return word if common <= _HEAD + _CONTEXT else f"{word[:_HEAD]}{_LEFT_OUT}{word[common - _CONTEXT :]}"


_PID, _CPU, _RSS = 7, 12, 12
_CPU_FROM = 44
"""With fewer columns, there is no room for CPU."""
_BAR_FROM, _LONGEST_BAR = 56, 24
_MOST = 200
"""The most commands that those on the screen are compared with."""


def chosen(seen: Sequence[ShownProcess], settings: ViewSettings) -> list[ShownProcess]:
    """Return the processes that pass the filter, in the order of the settings."""
    wanted = settings.filter.casefold()
    passed = [one for one in seen if not wanted or wanted in _whole(one).casefold()]
    keys: dict[Order, Callable[[ShownProcess], tuple[object, ...]]] = {
        Order.MEMORY: lambda one: (-one.rss, one.number),
        Order.CPU: lambda one: (-(one.cpu or 0.0), -one.rss, one.number),
        Order.AGE: lambda one: (one.number,),
        Order.NAME: lambda one: (_whole(one).casefold(), one.number),
    }
    return sorted(passed, key=keys[settings.order])


def _whole(one: ShownProcess) -> str:
    """Return what the filter looks at: not the folders and the interpreter, which are not shown either."""
    command = " ".join(without_interpreter(one.process.command))
    return f"{command} {one.process.name} {one.process.pid or ''}"


def process_rows(
    shown: Sequence[ShownProcess], seen: Sequence[ShownProcess], medium: TerminalStyle, width: int
) -> Iterator[Row]:
    """Yield a row of ``width`` columns for each process that is ``shown``; ``seen`` are all of them."""
    compared = sorted({one.number: one for one in [*shown, *seen[:_MOST]]}.items())
    labels = short_commands(tuple((number, tuple(one.process.command)) for number, one in compared))
    whole = sum(one.rss for one in seen)
    has_cpu = width >= _CPU_FROM and any(one.cpu is not None for one in seen)
    bar = min(width // 5, _LONGEST_BAR) if width >= _BAR_FROM else 0
    room = width - _PID - 1 - _CPU * has_cpu - _RSS - (bar + 1 if bar else 0)
    for one in shown:
        name = shortened(labels.get(one.number) or printable(one.process.name or "?"), max(1, room)).replace("……", "…")
        row = [
            text(f"{one.process.pid or '':>{_PID}} ", medium.style("axis")),
            text(set_cell_size(name, max(cell_len(name), room))),
        ]
        if has_cpu:
            row.append(text(f"{'' if one.cpu is None else cores_text(one.cpu):>{_CPU}}", medium.style("cpu")))
        row.append(text(f"{medium.unit.label(one.rss):>{_RSS}}", medium.style("title")))
        yield [*row, text(" "), *gauge(one.rss / whole if whole else 0.0, bar, CURVES[0], medium)] if bar else row


def gauge(share: float, width: int, role: str, medium: TerminalStyle) -> Row:
    """Return a bar of ``width`` columns of which a share is filled."""
    filled = round(min(max(share, 0.0), 1.0) * width)
    return [text("━" * filled, medium.style(role)), text("─" * (width - filled), medium.style("axis"))]
