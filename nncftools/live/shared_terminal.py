"""Share a terminal: the command's output scrolls above, and the live view stays below.

The view does not use raw mode, the alternate screen, a hidden cursor or a scrolling region. So if this process is
killed, the terminal works as before, and still shows the last view. The cursor stays at the end of the command's
output, where echoed keys and the output of other programs appear. ``Tail`` contains only the last lines of the
command's output, because only these may still change: a progress bar, a prompt, an unfinished line.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import pathlib
import platform
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from operator import itemgetter

from rich.cells import chop_cells, get_character_cell_size

from nncftools.files import write_all

FRAME_S = 0.5
"""Seconds between two drawings of the view."""
STATUS_S = 5.0
"""Seconds between two status lines."""
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
    """Return whether output of a command takes over the whole screen, as an editor or a pager does."""
    return _SCREEN.search(data) is not None


class Tail:
    """Reads a command's output, and returns each line as soon as the command can no longer change the line.

    Some commands move the cursor up to change earlier lines, for example to draw several progress bars. In this case,
    up to 16 lines are kept until the command makes the cursor visible again.
    """

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        self._rest = ""
        self._lines: list[list[tuple[str, str]]] = [[]]
        self._row = 0
        self._column = 0
        self._style = ""
        self._holds = False
        self._done: list[str] = []

    def feed(self, data: bytes) -> list[str]:
        """Read output; return the lines that cannot change any more, with their colours."""
        text = self._rest + self._decode(data)
        unfinished = _UNFINISHED.search(text)
        self._rest = text[unfinished.start() :] if unfinished is not None else ""
        *lines, last = text.removesuffix(self._rest).split("\n")
        for line in lines:
            content = line.rstrip("\r")
            if self._lines == [[]] and content.isprintable():  # most lines are plain text
                self._done.append(_colour(self._style, content))
            else:
                self._write(line)
                self._begin_line()
        self._write(last)
        done = self._done
        self._done = []
        return done

    def end(self) -> list[str]:
        """Return all remaining lines, and start again with an empty line."""
        lines = [_join(line) for line in self._lines]
        self._lines = [[]]
        self._row = 0
        self._column = 0
        return lines if lines[-1] else lines[:-1]

    def shown(self, width: int) -> list[str]:
        """Return the lines that may still change, cut to ``width`` columns."""
        return [_join(_cut(line, width)) for line in self._lines]

    def cursor(self, width: int) -> tuple[int, int]:
        """Return row and column of the cursor within the lines of ``shown``."""
        before = self._line[: self._column]
        column = sum(get_character_cell_size(character) for character, _ in before)
        return self._row, min(width, column)

    def count_rows_above(self, width: int, columns: int) -> int:
        """Return how many rows are above the cursor if the lines of ``shown`` wrap at ``columns`` columns."""
        rows = 0
        for line in *self._lines[: self._row], self._line[: self._column]:
            text = "".join(character for character, _ in _cut(line, width))
            rows += len(chop_cells(text or " ", columns))
        return rows - 1

    @property
    def _line(self) -> list[tuple[str, str]]:
        return self._lines[self._row]

    def _begin_line(self) -> None:
        self._row += 1
        self._column = 0
        if self._row == len(self._lines):
            self._lines.append([])
        self._release(_HELD if self._holds else 0)

    def _release(self, most: int) -> None:
        """Move lines from the top to ``_done``, until at most ``most`` lines are left above the cursor.

        The attribute ``_done`` has the lines that cannot change any more.
        """
        while self._row > most:
            self._done.append(_join(self._lines.pop(0)))
            self._row -= 1

    def _write(self, text: str) -> None:
        for token in _TOKENS.finditer(text):
            if token["text"] is not None:
                self._put(token["text"])
            elif token["control"] is not None:
                self._obey_control(token["control"])
            elif token["final"] is not None:
                self._obey_sequence(token["parameters"], token["final"])

    def _put(self, text: str) -> None:
        line = self._line
        if self._column > len(line):
            line += [(" ", "")] * (self._column - len(line))
        text = text[: max(0, _LONGEST_LINE - self._column)]
        end = self._column + len(text)
        line[self._column : end] = [(character, self._style) for character in text]
        self._column = end

    def _obey_control(self, character: str) -> None:
        if character == "\r":
            self._column = 0
        elif character == "\b":
            self._column = max(0, self._column - 1)
        elif character == "\t":
            self._put(" " * (_TAB - self._column % _TAB))

    def _obey_sequence(self, parameters: str, final: str) -> None:
        number = int(parameters) if parameters.isdigit() else 0
        distance = max(1, number)
        match final:
            case "m":
                self._restyle(parameters)
            case "K":
                self._erase(number)
            case "J" if number == 0:
                del self._line[self._column :]
                del self._lines[self._row + 1 :]
            case "C":
                self._column = min(_LONGEST_LINE, self._column + distance)
            case "D":
                self._column = max(0, self._column - distance)
            case "G":
                self._column = min(_LONGEST_LINE, distance - 1)
            case "A" | "F":
                self._holds = True
                self._row = max(0, self._row - distance)
                self._column = 0 if final == "F" else self._column
            case "B" | "E":
                self._row = min(len(self._lines) - 1, self._row + distance)
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
            end = min(self._column, len(line))
            line[:end] = [(" ", "")] * end
        else:
            del line[self._column if number == 0 else 0 :]


def _cut(line: list[tuple[str, str]], width: int) -> Iterator[tuple[str, str]]:
    used = 0
    for character, style in line:
        used += get_character_cell_size(character)
        if used > width:
            return
        yield character, style


def _join(line: Iterable[tuple[str, str]]) -> str:
    text = ""
    for style, cells in groupby(line, key=itemgetter(1)):
        text += _colour(style, "".join(character for character, _ in cells))
    return text


def _colour(style: str, text: str) -> str:
    return f"{style}{text}{_RESET}" if style else text


_READ = {
    "x86_64": "0",
    "aarch64": "63",
    "riscv64": "63",
    "ppc64le": "3",
    "s390x": "3",
}
"""Number of the system call read(2), by type of machine."""
_LOCAL_MODES = 3
_MOST = 50


def can_draw(descriptor: int) -> bool:
    """Return whether a descriptor is a terminal whose cursor can be moved."""
    return os.isatty(descriptor) and os.environ.get("TERM", "") not in {"", "dumb"}


class Terminal:
    """A terminal for output."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def size(self) -> tuple[int, int]:
        """Return the number of columns and rows."""
        with contextlib.suppress(OSError):
            columns, rows = os.get_terminal_size(self._descriptor)
            if columns and rows:
                return columns, rows
        return 80, 24

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):  # the terminal no longer exists
            write_all(self._descriptor, text.encode(errors="replace"))


class TerminalReaders:
    """Notices programs that read from a terminal: by the terminal's modes, and by processes that wait in read(2)."""

    def __init__(self, descriptor: int) -> None:
        """Store the present modes of the terminal. Call this before a program reads from the terminal."""
        self._terminal = descriptor
        self._modes = self._read_modes()
        self._names = {"/dev/tty"}
        with contextlib.suppress(OSError):
            self._names.add(os.ttyname(descriptor))

    def _read_modes(self) -> int | None:
        """Return the modes for line editing and echo. Password prompts, editors and pagers change these modes."""
        import termios

        try:
            modes: int = termios.tcgetattr(self._terminal)[_LOCAL_MODES]
        except termios.error:
            return None
        return modes & (termios.ECHO | termios.ICANON)

    def are_there(self, pids: Iterable[int]) -> bool:
        """Return whether a program reads from the terminal.

        This is so if the terminal's modes have changed, or if any of the first 50 processes waits for input.
        """
        if self._read_modes() != self._modes:
            return True
        return any(file_read(pid) in self._names for pid in islice(pids, _MOST))


def file_read(pid: int) -> str:
    """Return the path of the file from which a process waits to read; empty if the process does not wait in read(2).

    proc_pid_syscall(5) documents the format.
    """
    process = pathlib.Path(f"/proc/{pid}")
    with contextlib.suppress(OSError, ValueError, IndexError):
        call, file, *_ = (process / "syscall").read_text(encoding="ascii").split()
        if call == _READ.get(platform.machine()):
            return str((process / "fd" / str(int(file, 16))).readlink())
    return ""


def descendants(pid: int | str = "self") -> Iterator[int]:
    """Yield all descendants of a process: children, their children, and so on."""
    for children in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in children.read_text(encoding="ascii").split():
                yield int(child)
                yield from descendants(child)


_SAVE = "\x1b7"
_RESTORE = "\x1b8"
_ERASE_BELOW = "\x1b[J"
_ERASE_LINE = "\x1b[2K"
_INSERT_LINE = "\x1b[L"
_DOWN = "\x1b[B"
_MOST_WAITING = 2000
"""The largest number of lines that wait to be painted. If there are more, the command waits until all are painted."""


class SharedTerminal(Terminal):
    """Paints a view at the bottom of a terminal, and the command's output above the view."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self._lock = threading.RLock()
        self._tail = Tail()
        self._waiting: list[str] = []
        self.has_output = False
        """Whether output of the command waits to be painted."""
        self._view: Sequence[str] = []
        self._size: tuple[int, int] | None = None
        """Size of the terminal, as columns and rows, when the view was made."""
        self._painted: Sequence[str] = []
        self._tail_rows = 1
        self._placed: tuple[int, int] | None = None
        """Size of the terminal when the view was last painted; None if the view is not on the screen."""
        self.is_aside = False
        """Whether the view has ended, and the command has the terminal alone."""

    def take(self, data: bytes) -> None:
        """Accept output of the command; the output is painted soon."""
        with self._lock:
            if not self.is_aside and takes_the_screen(data):
                self.step_aside("the command uses the whole screen")
            if self.is_aside:
                with contextlib.suppress(OSError):  # the terminal no longer exists
                    write_all(self._descriptor, data)
                return
            self._waiting += self._tail.feed(data)
            self.has_output = True
            if len(self._waiting) > _MOST_WAITING:
                self.paint()

    def show(self, view: Sequence[str], size: tuple[int, int]) -> None:
        """Paint a new view, and the output that waits. The view was made for a terminal of the size ``size``."""
        with self._lock:
            self._view = view
            self._size = size
            self.paint()

    def paint(self) -> None:
        """Paint waiting output, and lines of the view that have changed.

        If the terminal's size has changed since the view was made, paint nothing, because long lines would wrap.
        """
        with self._lock:
            columns, rows = size = self.size()
            if self.is_aside or self._size != size:
                return
            if self._placed != size or len(self._painted) != len(self._view):
                self._write(self._erase_all() + "\r\n" * (len(self._view) + self._tail_rows))
                self._placed = size
                self._painted = [""] * len(self._view)
                self.has_output = True
            text = ""
            if self.has_output:
                text = self._write_output(columns, rows)
                self._painted = [""] * len(self._view)
            first = self._find_first_row(rows)
            for row, line in enumerate(self._view):
                if line != self._painted[row]:
                    text += _move_to(first + row) + _ERASE_LINE + line
            if self.has_output:
                row, column = self._tail.cursor(columns - 1)
                self._write(text + _move_to(first - self._tail_rows + row, column + 1))
            elif text:
                self._write(_SAVE + text + _RESTORE)
            self.has_output = False
            self._painted = self._view

    def _find_first_row(self, rows: int) -> int:
        return rows - len(self._painted) + 1

    def _write_output(self, columns: int, rows: int) -> str:
        """Return the text that replaces the view and the tail (the last lines of output, which may still change).

        The text erases both, and writes the waiting output and the new tail.
        """
        text = self._erase_all()
        lines = self._waiting
        self._waiting = []
        room = max(1, rows - len(self._view) - 1)
        tail = self._tail.shown(columns - 1)[-room:]
        missing = max(0, self._tail_rows - len(lines) - len(tail))
        self._tail_rows = len(tail)
        blank = [""] * len(self._view)
        return text + "\r\n".join([*lines, *[""] * missing, *tail, *blank])

    def _erase_all(self) -> str:
        """Return the text that erases the view and the tail (the last lines of output, which may still change).

        After a change of the terminal's size, the place of both is only known relative to the cursor.
        """
        if self._placed is None:
            return ""
        columns, rows = size = self.size()
        if self._placed == size:
            first = self._find_first_row(rows) - self._tail_rows
            return _move_to(max(1, first)) + _ERASE_BELOW
        rows_up = self._tail.count_rows_above(self._placed[0] - 1, columns)
        return "\r" + (f"\x1b[{rows_up}A" if rows_up else "") + _ERASE_BELOW

    def repaint(self) -> None:
        """Paint everything again. Needed if another program has written to the terminal."""
        with self._lock:
            self._placed = None
            self.paint()

    def pause(self) -> None:
        """Remove the view until ``repaint`` is called; the command's output stays on the screen."""
        with self._lock:
            if self._placed is not None and not self.is_aside:
                _, rows = self.size()
                self._write(_move_to(self._find_first_row(rows)) + _ERASE_BELOW)

    def erase(self) -> None:
        """Remove the view for good; leave the cursor below the command's output."""
        with self._lock:
            if not self.is_aside:
                lines = [*self._waiting, *self._tail.end()]
                self._write(self._erase_all() + "".join(f"{line}\r\n" for line in lines))
                self.is_aside = True

    def step_aside(self, why: str) -> None:
        """End the view, and write a note above the last line of the command's output."""
        with self._lock:
            if self.is_aside:
                return
            if self.has_output:
                self.paint()
            columns, rows = size = self.size()
            note = f"nncf-tools: {why}: the live view ends"
            if self._placed == size:  # other programs may have written after the tail, so insert a line above the tail
                first = self._find_first_row(rows)
                above = _move_to(max(1, first - self._tail_rows)) + _INSERT_LINE
                erasing = _move_to(first) + _ERASE_BELOW
                self._write(_SAVE + erasing + above + _RESET + note[: columns - 1] + _RESTORE + _DOWN)
            else:
                lines = [note, *self._waiting, *self._tail.shown(_UNLIMITED)]
                self._write(self._erase_all() + "\r\n".join(lines))
            self.is_aside = True


def _move_to(row: int, column: int = 1) -> str:
    return f"\x1b[{row};{column}H"


_UNLIMITED = 1 << 20
