"""What every process of a program holds, read from outside of them."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct

from benchmarks.workloads.random_programs.notes import ENDED, resident

_KCMP = {"x86_64": 312, "aarch64": 272, "riscv64": 272}
"""System call numbers of kcmp(2), by machine."""
_KCMP_VM = 1
_SLOT = struct.Struct("i")
_MOST = 64


class Tree:
    """All processes of a program: the first one, its descendants, and orphans, which make themselves known."""

    def __init__(self) -> None:
        self._roots = mmap.mmap(-1, _MOST * _SLOT.size)  # shared with forked processes
        self.add(os.getpid(), 0)
        if not is_possible():
            raise OSError("kcmp(2) is not allowed here: a child before its exec cannot be told from a copy")

    def add(self, pid: int, slot: int) -> None:
        """Add an orphan; its parent must be alive."""
        _SLOT.pack_into(self._roots, slot * _SLOT.size, pid)

    def sizes(self) -> dict[int, int]:
        """Return the RSS of each process, by PID; 0 for one that has ended, or has not executed since vfork(2)."""
        found: dict[int, int] = {}
        for (pid,) in _SLOT.iter_unpack(self._roots):
            if pid:
                _add(found, pid, None)
        return found


def is_possible() -> bool:
    """Return whether the kernel tells which processes share an address space."""
    return _compared(os.getpid(), os.getpid()) == 0


def _add(found: dict[int, int], pid: int, parent: int | None) -> None:
    """Add a process and its descendants."""
    if pid in found:
        return
    if parent is not None and _compared(pid, parent) == 0:  # asked before its size is read: it may execute any time
        found[pid] = 0
        return
    found[pid] = resident(pid)
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except ENDED:
        return
    for thread in threads:
        for child in _children(f"/proc/{pid}/task/{thread}/children"):
            _add(found, child, pid)


def _children(path: str) -> list[int]:
    try:
        with open(path, "rb") as file:
            return [int(pid) for pid in file.read().split()]
    except ENDED:
        return []


def _compared(pid: int, other: int) -> int:
    """Return 0 if two processes share an address space; another number if not, or if one of them has ended."""
    return -1 if _number is None else int(_call(_number, pid, other, _KCMP_VM, 0, 0))


_call = ctypes.CDLL(None).syscall
_number = _KCMP.get(os.uname().machine)
