"""Lets the helper of a recording read this process's stacks, where the kernel allows only parents to (yama).

Runs in the marked program: Python 3.8 and later, the standard library only. ``ctypes`` takes 10 ms to import, so
the starter asks for this only where it is needed.
"""

from __future__ import annotations

import os

_PR_SET_PTRACER = 0x59616D61


def open_for(helper: str) -> None:
    """Allow the process with this PID, and no other, to read our memory; again in forked children.

    The kernel keeps the permission for one process only (Yama, Documentation/admin-guide/LSM/Yama.rst).
    """
    number = int(helper)
    if number <= 1:  # -1 would allow it to every process
        return
    import ctypes

    prctl = ctypes.CDLL(None).prctl

    def allow() -> None:
        prctl(_PR_SET_PTRACER, ctypes.c_ulong(number), 0, 0, 0)

    allow()
    os.register_at_fork(after_in_child=allow)
