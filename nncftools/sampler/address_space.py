"""Whether two processes share one address space, as a child of vfork(2) does with its parent until exec."""

from __future__ import annotations

import os

_KCMP = {"x86_64": 312, "aarch64": 272, "riscv64": 272}
"""Numbers of kcmp(2), by machine: the C library has no function for it."""
_KCMP_VM = 1


def shared(pid: int, other: int) -> bool:
    """Return whether the kernel says so; False also where it does not tell. 6 µs."""
    number = _KCMP.get(os.uname().machine)
    if number is None:
        return False
    import ctypes

    return bool(ctypes.CDLL(None).syscall(number, pid, other, _KCMP_VM, 0, 0) == 0)
