"""The end of a command's output that can still change: a progress bar, a prompt, an unfinished line."""

from __future__ import annotations

import codecs
import re
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from rich.cells import get_character_cell_size

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOKENS = re.compile(
    r"\x1b\[(?P<parameters>[0-?]*)[ -/]*(?P<final>[@-~])"
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]"
    r"|(?P<control>[\x00-\x1a\x1c-\x1f\x7f])|(?P<text>[^\x00-\x1f\x7f]+)"
)
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]{0,500})?\Z")
_SCREEN = re.compile(rb"\x1b\[\?(?:1049|1047|47)h|\x1b\[\d+;\d+[Hf]")
_RESET = "\x1b[0m"
_HELD = 16
_TAB = 8
_LONGEST_STYLE = 100
_LONGEST_LINE = 20_000


def takes_the_screen(data: bytes) -> bool:
    """Return whether a command that writes this takes over the screen, as an editor or a pager does."""
    return _SCREEN.search(data) is not None


class Tail:
    """Takes a command's output and releases lines that will not change any more.

    While a command moves its cursor upwards (several progress bars), up to 16 of its last lines are held. When it shows
    its cursor again, they are released.
    """

    def __init__(self) -> None:
        """Begin with one empty line."""
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        self._rest = ""
        self._lines: list[list[tuple[str, str]]] = [[]]
        self._row = 0
        self._column = 0
        self._style = ""
        self._holds = False
        self._done: list[str] = []

    def feed(self, data: bytes) -> list[str]:
        """Take output; return the complete lines, with their colours."""
        text = self._rest + self._decode(data)
        unfinished = _UNFINISHED.search(text)
        self._rest = text[unfinished.start() :] if unfinished is not None else ""
        text = text[: len(text) - len(self._rest)]
        *whole, last = text.split("\n")
        for line in whole:
            if len(self._lines) == 1 and not self._lines[0] and "\x1b" not in line and line.rstrip("\r").isprintable():
                self._done.append(_coloured(self._style, line.rstrip("\r")))  # most lines need no parsing
            else:
                self._write(line)
                self._new_line()
        self._write(last)
        done, self._done = self._done, []
        return done

    def end(self) -> list[str]:
        """Return and release all lines that are held."""
        lines = [_text(line) for line in self._lines]
        self._lines, self._row, self._column = [[]], 0, 0
        return lines if lines[-1] else lines[:-1]

    def shown(self, width: int) -> list[str]:
        """Return the lines that are held, cut to ``width`` columns."""
        return [_text(_cut(line, width)) for line in self._lines]

    def cursor(self, width: int) -> tuple[int, int]:
        """Return row and column of the cursor in what is shown."""
        return self._row, min(width, sum(get_character_cell_size(cell[0]) for cell in self._line[: self._column]))

    @property
    def _line(self) -> list[tuple[str, str]]:
        return self._lines[self._row]

    def _new_line(self) -> None:
        self._row += 1
        self._column = 0
        if self._row == len(self._lines):
            self._lines.append([])
        self._release(_HELD if self._holds else 0)

    def _release(self, held: int) -> None:
        """Release lines until at most ``held`` are left above the cursor."""
        while self._row > held:
            self._done.append(_text(self._lines.pop(0)))
            self._row -= 1

    def _write(self, text: str) -> None:
        for token in _TOKENS.finditer(text):
            if token["text"] is not None:
                self._put(token["text"])
            elif token["control"] is not None:
                self._control(token["control"])
            elif token["final"] is not None:
                self._sequence(token["parameters"], token["final"])

    def _put(self, text: str) -> None:
        line = self._line
        if self._column > len(line):
            line += [(" ", "")] * (self._column - len(line))
        text = text[: max(0, _LONGEST_LINE - self._column)]
        line[self._column : self._column + len(text)] = [(character, self._style) for character in text]
        self._column += len(text)

    def _control(self, character: str) -> None:
        if character == "\r":
            self._column = 0
        elif character == "\b":
            self._column = max(0, self._column - 1)
        elif character == "\t":
            self._put(" " * (_TAB - self._column % _TAB))

    def _sequence(self, parameters: str, final: str) -> None:
        number = int(parameters) if parameters.isdigit() else 0
        match final:
            case "m":
                self._restyle(parameters)
            case "K":
                self._erase(number)
            case "J" if number == 0:
                del self._line[self._column :]
                del self._lines[self._row + 1 :]
            case "C":
                self._column = min(_LONGEST_LINE, self._column + max(1, number))
            case "D":
                self._column = max(0, self._column - max(1, number))
            case "G":
                self._column = min(_LONGEST_LINE, max(1, number) - 1)
            case "A" | "F":
                self._holds = True
                self._row = max(0, self._row - max(1, number))
                self._column = 0 if final == "F" else self._column
            case "B" | "E":
                self._row = min(len(self._lines) - 1, self._row + max(1, number))
                self._column = 0 if final == "E" else self._column
            case "h" if parameters == "?25" and self._holds:
                self._holds = False
                self._release(0)

    def _restyle(self, parameters: str) -> None:
        first, _, _ = parameters.partition(";")
        if first in {"", "0"}:
            self._style = "" if parameters in {"", "0"} else f"\x1b[{parameters}m"
        elif len(self._style) < _LONGEST_STYLE:
            self._style += f"\x1b[{parameters}m"

    def _erase(self, number: int) -> None:
        line = self._line
        if number == 1:
            line[: self._column] = [(" ", "")] * min(self._column, len(line))
        else:
            del line[self._column if number == 0 else 0 :]


def _cut(line: list[tuple[str, str]], width: int) -> Iterator[tuple[str, str]]:
    used = 0
    for character, style in line:
        used += get_character_cell_size(character)
        if used > width:
            return
        yield character, style


def _text(line: Iterator[tuple[str, str]] | list[tuple[str, str]]) -> str:
    runs = ((style, "".join(character for character, _ in cells)) for style, cells in groupby(line, key=itemgetter(1)))
    return "".join(_coloured(style, text) for style, text in runs)


def _coloured(style: str, text: str) -> str:
    return f"{style}{text}{_RESET}" if style else text
