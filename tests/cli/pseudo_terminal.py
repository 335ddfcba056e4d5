"""A real pseudo-terminal that runs a program, and the content of its screen."""

from __future__ import annotations

import os
import re
import signal
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pexpect
import pyte

from tests.cli.hastened import hastened
from tests.conftest import HANGING_S, command_line

_END = r"  \d+:\d\d(?: [─-][╮+])?$"
RECORDING = re.compile(rf"[●*] recording{_END}", re.MULTILINE)
"""What the title of a view of a recording ends with: behind the command, which may hold any word."""
PAUSED = re.compile(rf"[●*] paused{_END}", re.MULTILINE)
MACHINE = re.compile(r"^[│|]? *Machine  [\d.]+ \w+ available", re.MULTILINE)
"""The last line of a view without keys, but for its border."""
CHART = re.compile(r" 0 \w+ ┤.*\n.* 0:00 ", re.MULTILINE)
"""The lowest row of a chart and its axis."""
KEYS = "q quit   ? help   space pause"

Sight = str | re.Pattern[str] | Callable[[str], object]


class PseudoTerminal:
    """Runs nncf-tools, or a shell, in a terminal of its own and reads its screen."""

    def __init__(
        self,
        folder: Path,
        *words: object,
        size: tuple[int, int] = (80, 24),
        in_shell: bool = False,
        periods: Mapping[str, float] | None = None,
        **environment: str,
    ) -> None:
        """Start ``nncf-tools WORDS`` in ``folder``, on a screen of ``columns`` by ``rows``.

        ``in_shell``: as the child of a shell that outlives it. ``periods``: as in ``hastened``.
        """
        columns, rows = size
        self.screen = _Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.written = b""
        """All that the terminal was sent."""
        surroundings = {
            name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "COLUMNS", "LINES"}
        }
        program, *arguments = hastened(periods, *words) if periods else command_line(*words)
        if in_shell:
            program, arguments = "/bin/sh", ["-c", '"$@"; sleep 60', "sh", program, *arguments]
        self.process: Any = pexpect.spawn(
            program,
            arguments,
            cwd=str(folder),
            env={
                **surroundings,
                "TERM": "xterm-256color",
                "LANG": "C.UTF-8",
                "PYTHONPATH": str(Path.cwd()),
                **environment,
            },
            dimensions=(rows, columns),
            timeout=HANGING_S,
        )
        self.modes = termios.tcgetattr(self.process.child_fd)

    @property
    def child(self) -> int:
        """The PID of the program that the shell runs."""
        pid = self.process.pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def read(self) -> bool:
        """Read the output so far; return whether more may follow."""
        try:
            data = self.process.read_nonblocking(1 << 16, timeout=0.05)
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            return False
        self.written += data
        self._stream.feed(data)
        return True

    @property
    def lines(self) -> list[str]:
        """The rows of the screen, without trailing blanks."""
        return [line.rstrip() for line in self.screen.display]

    @property
    def text(self) -> str:
        """The screen as text."""
        return "\n".join(self.lines)

    @property
    def scrollback(self) -> str:
        """Lines that scrolled off the top, and the screen."""
        return "\n".join([*self.screen.gone, *self.lines])

    def until(self, *sights: Sight) -> str:
        """Read until the screen shows all texts and patterns and meets all conditions; return it."""
        deadline = time.monotonic() + HANGING_S
        while not all(_shows(self.text, sight) for sight in sights):
            assert self.read(), f"ended before; the screen:\n{self.text}"
            assert time.monotonic() < deadline, f"waited in vain; the screen:\n{self.text}"
        return self.text

    def until_end(self) -> str:
        """Read to the end; return the screen."""
        deadline = time.monotonic() + HANGING_S
        while self.read():
            assert time.monotonic() < deadline, f"hangs; the screen:\n{self.text}"
        self.process.wait()
        return self.text

    @property
    def status(self) -> int:
        """The exit status, 128 + N when signal N ended it."""
        self.process.close()
        return int(self.process.exitstatus if self.process.signalstatus is None else 128 + self.process.signalstatus)

    def kill(self) -> None:
        """Kill the program and wait for its end, however long that takes: pexpect gives it 0.1 s, and fails."""
        self.process.kill(signal.SIGKILL)
        self.process.wait()
        self.process.close()

    def send(self, keys: str) -> None:
        """Press keys."""
        self.process.send(keys)

    def resize(self, columns: int, rows: int) -> None:
        """Give the terminal another size, when all output for the size of before has been read."""
        self.process.kill(signal.SIGSTOP)
        size = -1
        while len(self.written) != size:
            size = len(self.written)
            self.read()
        self.screen.resize(rows, columns)
        self.process.setwinsize(rows, columns)
        self.process.kill(signal.SIGCONT)

    def is_restored(self) -> bool:
        """Return whether modes, screen and cursor are as they were."""
        return (
            termios.tcgetattr(self.process.child_fd) == self.modes
            and not self.screen.cursor.hidden
            and self.written.count(b"\x1b[?1049h") == self.written.count(b"\x1b[?1049l")
        )


class _Screen(pyte.Screen):
    """A screen that keeps lines that scroll off the top, and ignores wrong commands, as real terminals do."""

    def __init__(self, columns: int, rows: int) -> None:
        self.gone: list[str] = []
        super().__init__(columns, rows)

    def index(self) -> None:
        if self.cursor.y == self.lines - 1:
            self.gone.append("".join(self.buffer[0][column].data for column in range(self.columns)).rstrip())
        super().index()

    def erase_in_line(self, how: int = 0, *rest: int, private: bool = False) -> None:
        """Ignore what SIGKILL left of a command: the K of the shell's "Killed" completes it."""
        if how <= 2 and not rest:
            super().erase_in_line(how, private)


def _shows(text: str, sight: Sight) -> bool:
    if isinstance(sight, str):
        return sight in text
    return bool(sight.search(text) if isinstance(sight, re.Pattern) else sight(text))
