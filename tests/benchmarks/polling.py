"""Runs a program and reads what all of its processes hold, as often as it can: ``python polling.py FILE COMMAND...``.

It shares no code with the notes that it checks. A line of FILE is the time before and after the reading of one process,
its PID and its RSS in bytes; 0 before exec in a child of vfork.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_KCMP = {"x86_64": 312, "aarch64": 272, "riscv64": 272}[os.uname().machine]
_PAUSE_S = 0.0005
_LIBC = ctypes.CDLL(None)


def _look(pid: int, parent: int | None) -> Iterator[tuple[int, int, int, int]]:
    """Yield what a process and its descendants hold."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        before_ns = time.monotonic_ns()
        is_before_exec = parent is not None and _LIBC.syscall(_KCMP, pid, parent, 1, 0, 0) == 0
        pages = 0 if is_before_exec else int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
        yield before_ns, time.monotonic_ns(), pid, pages * os.sysconf("SC_PAGE_SIZE")
        for task in list(Path(f"/proc/{pid}/task").iterdir()):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                for child in (task / "children").read_text("ascii").split():
                    yield from _look(int(child), pid)


def main() -> int:
    """Run and read; return the command's exit status."""
    file, *command = sys.argv[1:]
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # orphans become children of this process
    found = []
    own = Path("/proc/self/task") / str(os.getpid()) / "children"
    with subprocess.Popen(command) as program:
        while program.poll() is None:
            for child in own.read_text("ascii").split():
                found += _look(int(child), None)
            time.sleep(_PAUSE_S)
    Path(file).write_text("".join(f"{' '.join(map(str, line))}\n" for line in found), "ascii")
    return program.returncode


if __name__ == "__main__":
    sys.exit(main())
