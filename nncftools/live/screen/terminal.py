"""A terminal as a view needs it: its size, writing to it, and whether a command reads from it."""

from __future__ import annotations

import contextlib
import os
import pathlib
import platform
from itertools import islice
from typing import TYPE_CHECKING

from nncftools.files import write_all

if TYPE_CHECKING:
    from collections.abc import Iterable

_READ = {"x86_64": "0", "aarch64": "63", "riscv64": "63", "ppc64le": "3", "s390x": "3"}
"""The number of read(2), by machine."""
_LOCAL_MODES = 3
_MOST = 50


def can_draw(descriptor: int) -> bool:
    """Return whether a descriptor is a terminal on which the cursor can be moved."""
    return os.isatty(descriptor) and os.environ.get("TERM") not in {None, "", "dumb"} and os.name == "posix"


class Terminal:
    """A terminal that is written to."""

    def __init__(self, descriptor: int) -> None:
        """Write to the terminal ``descriptor``."""
        self._descriptor = descriptor

    def size(self) -> tuple[int, int]:
        """Return columns and rows."""
        with contextlib.suppress(OSError):
            columns, rows = os.get_terminal_size(self._descriptor)
            if columns and rows:
                return columns, rows
        return 80, 24

    def _write(self, text: str | bytes) -> None:
        data = text.encode(errors="replace") if isinstance(text, str) else text
        with contextlib.suppress(OSError):  # the terminal is gone
            write_all(self._descriptor, data)


class TerminalReaders:
    """Watches the modes of a terminal, and processes that wait in read(2) on it."""

    def __init__(self, descriptor: int, proc: str = "/proc") -> None:
        """Store the terminal's modes while no process reads from it."""
        self._terminal = descriptor
        self._proc = proc
        self._modes = self._local_modes()
        self._names = {"/dev/tty"}
        with contextlib.suppress(OSError):
            self._names.add(os.ttyname(descriptor))
        self._read = _READ.get(platform.machine())

    def _local_modes(self) -> int | None:
        """Return whether lines are edited and echoed: password prompts, editors and pagers change this."""
        import termios

        try:
            modes: int = termios.tcgetattr(self._terminal)[_LOCAL_MODES]
        except termios.error:
            return None
        return modes & (termios.ECHO | termios.ICANON)

    def are_there(self, pids: Iterable[int]) -> bool:
        """Return whether the terminal's modes have changed, or one of the first 50 processes waits for its input."""
        return self._local_modes() != self._modes or any(map(self._waits, islice(pids, _MOST)))

    def _waits(self, pid: int) -> bool:
        """Return whether a process waits in read(2) on the terminal; see proc_pid_syscall(5) for the format."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            descriptor = os.open(f"{self._proc}/{pid}/syscall", os.O_RDONLY)
            try:
                call, file, *_ = os.read(descriptor, 200).decode().split()
            finally:
                os.close(descriptor)
            opened = pathlib.Path(f"{self._proc}/{pid}/fd/{int(file, 16)}")
            return call == self._read and str(opened.readlink()) in self._names
        return False
