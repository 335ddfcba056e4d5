"""A terminal that a command, whose output scrolls, shares with a view below it.

It uses neither raw mode nor the alternate screen nor a hidden cursor nor a scrolling region. So whatever kills this
process, the terminal works as before, with the last view on it. The cursor rests where the command would have it: what
the terminal echoes or another program writes appears there.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from nncftools.live.screen.tail import Tail, takes_the_screen
from nncftools.live.screen.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Sequence

_SAVE, _RESTORE = "\x1b7", "\x1b8"
_ERASE_BELOW = "\x1b[J"
_ERASE_LINE = "\x1b[2K"
_INSERT_LINE = "\x1b[L"
_DOWN = "\x1b[B"
_MOST_WAITING = 1 << 18


class SharedTerminal(Terminal):
    """Paints a view at the bottom of a terminal, and the command's output above it."""

    def __init__(self, descriptor: int) -> None:
        """Paint on the terminal ``descriptor``."""
        super().__init__(descriptor)
        self._lock = threading.RLock()
        self._tail = Tail()
        self._waiting: list[str] = []
        self._waiting_length = 0
        self.has_output = False
        """Whether output of the command waits to be painted."""
        self._view: list[str] = []
        self._painted: list[str] = []
        self._tail_rows = 1
        self._placed: tuple[int, int] | None = None
        """Columns and rows of the terminal that the view was placed on."""
        self.is_aside = False
        """Whether the view has left the terminal to the command for good."""

    def take(self, data: bytes) -> None:
        """Take output of the command; it is painted soon."""
        with self._lock:
            if not self.is_aside and takes_the_screen(data):
                self.step_aside("the command takes the screen")
            if self.is_aside:
                self._write(data)
                return
            lines = self._tail.feed(data)
            self._waiting += lines
            self._waiting_length += sum(map(len, lines))
            self.has_output = True
            if self._waiting_length > _MOST_WAITING:
                self.paint()

    def show(self, view: Sequence[str]) -> None:
        """Paint another view, and the output that waits."""
        with self._lock:
            self._view = list(view)
            self.paint()

    def paint(self) -> None:
        """Paint the output that waits."""
        with self._lock:
            if self.is_aside or not self._view:
                return
            columns, rows = self.size()
            if self._placed != (columns, rows) or len(self._painted) != len(self._view):
                self._make_room(columns, rows)
            first = rows - len(self._view) + 1
            if self.has_output:
                self._write(self._output(columns, rows) + self._lines_of_view(first, self._view))
                row, column = self._tail.cursor(columns - 1)
                self._write(f"\x1b[{first - self._tail_rows + row};{column + 1}H")
                self.has_output = False
            elif self._painted != self._view:
                self._write(_SAVE + self._lines_of_view(first, self._view, self._painted) + _RESTORE)
            self._painted = list(self._view)

    def _lines_of_view(self, first: int, view: Sequence[str], painted: Sequence[str] = ()) -> str:
        known = dict(enumerate(painted))
        return "".join(
            f"\x1b[{first + place};1H{_ERASE_LINE}{line}" for place, line in enumerate(view) if known.get(place) != line
        )

    def _output(self, columns: int, rows: int) -> str:
        """Return the text that erases view and tail, then writes waiting output and the tail again."""
        top = max(1, rows - len(self._view) - self._tail_rows + 1)
        lines, self._waiting, self._waiting_length = self._waiting, [], 0
        most = max(1, rows - len(self._view) - 1)
        tail = self._tail.shown(columns - 1)[-most:]
        missing = max(0, self._tail_rows - len(lines) - len(tail))
        self._tail_rows = len(tail)
        below = [""] * len(self._view)
        return f"\x1b[{top};1H{_ERASE_BELOW}" + "\r\n".join([*lines, *[""] * missing, *tail, *below])

    def _make_room(self, columns: int, rows: int) -> None:
        """Erase tail and view, and scroll up what is on the screen to make room for them."""
        if self._placed is not None:
            self._write(self._erasing(columns, rows))
        self._write("\r\n" * (len(self._view) + self._tail_rows))
        self._placed = columns, rows
        self._painted = [""] * len(self._view)
        self.has_output = True

    def _erasing(self, columns: int, rows: int) -> str:
        """Return the text that erases tail and view; after a resize, only the cursor shows where they are."""
        if self._placed == (columns, rows):
            top = max(1, rows - len(self._painted) - self._tail_rows + 1)
            return f"\x1b[{top};1H{_ERASE_BELOW}"
        before = self._placed[0] if self._placed is not None else columns
        row, column = self._tail.cursor(before - 1)
        above = self._tail.shown(before - 1)[:row]
        rows_up = column // columns + sum(max(1, -(-len(line) // columns)) for line in above)
        return "\r" + (f"\x1b[{rows_up}A" if rows_up else "") + _ERASE_BELOW

    def replace(self) -> None:
        """Paint everything again, after something else has written to the terminal."""
        with self._lock:
            self._placed = None
            self.paint()

    def pause(self) -> None:
        """Remove the view for a while; what the command was writing stays."""
        with self._lock:
            if self._placed is None or self.is_aside:
                return
            _, rows = self.size()
            first = rows - len(self._painted) + 1
            self._write(f"\x1b[{first};1H{_ERASE_BELOW}")

    def erase(self) -> None:
        """Remove the view and leave the cursor below the command's output."""
        with self._lock:
            if self.is_aside:
                return
            erasing = "" if self._placed is None else self._erasing(*self.size())
            lines, self._waiting = [*self._waiting, *self._tail.end()], []
            self._write(erasing + "".join(f"{line}\r\n" for line in lines))
            self._placed, self._tail_rows, self.has_output = None, 1, False

    def step_aside(self, why: str) -> None:
        """Leave the terminal to the command, and note this in a line above what it is writing."""
        with self._lock:
            if self.is_aside:
                return
            if self.has_output:
                self.paint()
            columns, rows = self.size()
            note = f"nncf-tools: {why}: the live view steps aside"[: columns - 1]
            if self._placed is None:
                self._write(f"{note}\r\n" + "".join(f"{line}\r\n" for line in self._waiting))
                self._write("\r\n".join(self._tail.shown(_UNLIMITED)))
            else:
                first = rows - len(self._painted) + 1
                row = max(1, first - self._tail_rows)
                self._write(
                    f"{_SAVE}\x1b[{first};1H{_ERASE_BELOW}\x1b[{row};1H{_INSERT_LINE}\x1b[0m{note}{_RESTORE}{_DOWN}"
                )
            self.is_aside = True


_UNLIMITED = 1 << 20
