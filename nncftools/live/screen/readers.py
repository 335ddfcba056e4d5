"""Whether a command reads from the terminal, so that a view would be in its way."""

from __future__ import annotations

import contextlib
import os
import pathlib
import platform
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_READ = {"x86_64": "0", "aarch64": "63", "riscv64": "63", "ppc64le": "3", "s390x": "3"}
"""The number of read(2), by machine."""
_LOCAL_MODES = 3
_MOST = 50


class TerminalReaders:
    """Watches the modes of a terminal, and processes that wait in read(2) on it."""

    def __init__(self, descriptor: int, proc: str = "/proc") -> None:
        """Take the terminal's modes as they are now for those of nobody who reads it."""
        self._terminal = descriptor
        self._proc = proc
        self._modes = self._local_modes()
        self._names = {"/dev/tty"}
        with contextlib.suppress(OSError):
            self._names.add(os.ttyname(descriptor))
        self._read = _READ.get(platform.machine())

    def _local_modes(self) -> int | None:
        """Return whether lines are edited and echoed: passwords, editors and pagers change that."""
        try:
            import termios
        except ImportError:  # Windows
            return None
        try:
            modes: int = termios.tcgetattr(self._terminal)[_LOCAL_MODES]
        except termios.error:
            return None
        return modes & (termios.ECHO | termios.ICANON)

    def are_there(self, pids: Iterable[int]) -> bool:
        """Return whether the terminal's modes were changed, or one of the first 50 processes waits for its input."""
        if self._local_modes() != self._modes:
            return True
        return any(self._waits(pid) for pid, _ in zip(pids, range(_MOST), strict=False))

    def _waits(self, pid: int) -> bool:
        """Return whether a process waits in read(2) on the terminal; proc_pid_syscall(5) tells call and arguments."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            descriptor = os.open(f"{self._proc}/{pid}/syscall", os.O_RDONLY)
            try:
                call, file, *_ = os.read(descriptor, 200).decode().split()
            finally:
                os.close(descriptor)
            return (
                call == self._read
                and str(pathlib.Path(f"{self._proc}/{pid}/fd/{int(file, 16)}").readlink()) in self._names
            )
        return False
