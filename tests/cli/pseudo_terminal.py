"""A real pseudo-terminal with a program in it, and what its screen shows."""

from __future__ import annotations

import os
import pathlib
import termios
import time
from collections.abc import Callable
from typing import Any

import pexpect
import pyte

from tests.conftest import HANGING_S, command_line


class PseudoTerminal:
    """Runs nncf-tools, or a shell, in a terminal of its own and reads its screen."""

    def __init__(
        self,
        folder: pathlib.Path,
        *words: object,
        size: tuple[int, int] = (80, 24),
        in_shell: bool = False,
        **environment: str,
    ) -> None:
        """Start ``nncf-tools WORDS`` in ``folder``, on a screen of so many columns and rows.

        ``in_shell``: as the child of a shell, which is there when it has ended.
        """
        columns, rows = size
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.written = b""
        """All that the terminal was sent."""
        surroundings = {
            name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "COLUMNS", "LINES"}
        }
        program, *arguments = command_line(*words)
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
                "PYTHONPATH": str(pathlib.Path.cwd()),
                **environment,
            },
            dimensions=(rows, columns),
            timeout=HANGING_S,
        )
        self.modes = termios.tcgetattr(self.process.child_fd)

    @property
    def child(self) -> int:
        """The PID of what the shell runs."""
        pid = self.process.pid
        return int(pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def read(self) -> bool:
        """Take what was written up to now; return whether more may come."""
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
        """The rows of the screen, without what is blank at their ends."""
        return [line.rstrip() for line in self.screen.display]

    @property
    def text(self) -> str:
        """The screen as text."""
        return "\n".join(self.lines)

    def until(self, holds: Callable[[str], object] | str) -> str:
        """Read until the screen holds a text, or fulfils a condition; return it."""
        deadline = time.monotonic() + HANGING_S
        while not (holds in self.text if isinstance(holds, str) else holds(self.text)):
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

    def send(self, keys: str) -> None:
        """Press keys."""
        self.process.send(keys)

    def resize(self, columns: int, rows: int) -> None:
        """Give the terminal another size."""
        self.screen.resize(rows, columns)
        self.process.setwinsize(rows, columns)

    def is_restored(self) -> bool:
        """Return whether modes, screen and cursor are as they were."""
        return (
            termios.tcgetattr(self.process.child_fd) == self.modes
            and not self.screen.cursor.hidden
            and self.written.count(b"\x1b[?1049h") == self.written.count(b"\x1b[?1049l")
        )
