"""Lets the helper of a recording read this process's stacks, where the kernel allows only parents to (yama).

Runs in the marked program: Python 3.8 and later, the standard library only. ``ctypes`` takes 10 ms to import, so
the starter asks for this only where it is needed.
"""

from __future__ import annotations

import os

_PR_SET_PTRACER = 0x59616D61
_BEGAN = 19
"""Position after the closing parenthesis of the name (proc(5))."""


def open_for(helper: str) -> None:
    """Allow the process that ``PID:START`` names, and no other, to read our memory; again in forked children.

    ``START`` is when it began (field 22 of ``/proc/PID/stat``): after its end, another process may have its PID. The
    kernel keeps the permission for one process only (Yama, Documentation/admin-guide/LSM/Yama.rst).
    """
    pid, _, began = helper.partition(":")
    number = int(pid)
    if number <= 1 or began_at(number) != began:  # -1 would allow it to every process
        return
    import ctypes

    prctl = ctypes.CDLL(None).prctl

    def allow() -> None:
        prctl(_PR_SET_PTRACER, ctypes.c_ulong(number), 0, 0, 0)

    allow()
    os.register_at_fork(after_in_child=allow)


def began_at(pid: int) -> str:
    """Return when a process began, in clock ticks since the start of the machine; empty if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[_BEGAN].decode("ascii")
    except (OSError, IndexError):
        return ""
