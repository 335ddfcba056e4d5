"""Command lines of processes, shortened to what tells them apart."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from nncftools.units import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_MOST_WORDS, _MOST_CHARACTERS = 64, 200
_INTERPRETER = re.compile(r"((?:python|pypy|perl|ruby)[\d.]*|node|(?:ba|da|z|k)?sh)")
_SWITCHES = {"-B", "-E", "-I", "-O", "-S", "-s", "-u"}
"""Of Python, without a value."""
_BEFORE_CODE, _BEFORE_MODULE = "-c", "-m"
_LONG, _HEAD, _CONTEXT = 32, 20, 8
"""Of long words, that many characters of what is the same stay: at the beginning, and before what differs."""
_LEFT_OUT = "…"


def without_interpreter(command: Sequence[str]) -> list[str]:
    """Return the words of a command, harmless and without folders of programs and scripts."""
    words = [printable(word[:_MOST_CHARACTERS]) for word in command[:_MOST_WORDS]]
    first = _INTERPRETER.fullmatch(_name(words[0])) if words else None
    if first is not None:
        rest = words[1:]
        while rest and rest[0] in _SWITCHES:
            rest = rest[1:]
        words = rest if rest and not rest[0].startswith("-") else [first[1].rstrip("0123456789."), *rest]
    return [_name(words[0]), *words[1:]] if words else []


def told_apart(commands: Mapping[int, Sequence[str]]) -> dict[int, str]:
    """Return a short text for every command: its program, and the words that others of this program do not have.

    Folders, and the interpreter of a script, are left out; words that are the same in all are ``…``.
    """
    words = {number: without_interpreter(command) for number, command in commands.items()}
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
    if len(command) > 2 and command[1] in {_BEFORE_CODE, _BEFORE_MODULE}:  # noqa: PLR2004 — and a value
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
    common = min(_common(word, other) for other in others)
    return word if common <= _HEAD + _CONTEXT else f"{word[:_HEAD]}{_LEFT_OUT}{word[common - _CONTEXT :]}"


def _common(one: str, other: str) -> int:
    pairs = zip(one, other, strict=False)
    return next((place for place, (left, right) in enumerate(pairs) if left != right), min(len(one), len(other)))
