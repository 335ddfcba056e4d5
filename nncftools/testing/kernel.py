"""The kernel's own figures of this process's memory. Linux only; elsewhere all figures are unknown."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass

_STATUS, _CLEAR_REFS, _TASKS = "/proc/self/status", "/proc/self/clear_refs", "/proc/self/task"
_LONGEST = 1 << 16
_FIGURES = re.compile(rb"^VmHWM:\s*(\d+) kB\nVmRSS:\s*(\d+) kB$", re.MULTILINE)
_RESET_HIGH_WATER_MARK = b"5"
"""Since Linux 4.0, proc(5)."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Memory of this process at one moment; in bytes, None for unknown."""

    rss: int | None = None
    mark: int | None = None
    """VmHWM: the largest RSS since the last reset, or since the start."""
    children_mark: int | None = None
    """The largest ``ru_maxrss`` of all descendants that were ever waited for."""
    has_children: bool = True
    """Whether it has a child; also true if that is unknown."""


def memory(excluded_child: int | None) -> Memory:
    """Return the current figures; the process ``excluded_child`` does not count as a child."""
    if sys.platform != "linux":
        return Memory()
    try:
        figures = _FIGURES.search(_read(_STATUS))
    except OSError:
        figures = None
    mark, rss = (None, None) if figures is None else (int(figure) * 1024 for figure in figures.groups())
    return Memory(rss=rss, mark=mark, children_mark=_children_mark(), has_children=_has_children(excluded_child))


def reset_mark() -> bool:
    """Set VmHWM, and with it getrusage's ``ru_maxrss``, to the current RSS; return whether that worked."""
    try:
        descriptor = os.open(_CLEAR_REFS, os.O_WRONLY)
        try:
            os.write(descriptor, _RESET_HIGH_WATER_MARK)
        finally:
            os.close(descriptor)
    except OSError:
        return False
    return True


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, _LONGEST)
    finally:
        os.close(descriptor)


def _children_mark() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def _has_children(excluded_child: int | None) -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    children: set[int] = set()
    try:
        with os.scandir(_TASKS) as tasks:
            for task in tasks:
                children.update(map(int, _read(f"{task.path}/children").split()))
    except OSError:  # a thread has just ended, or this kernel has no such lists
        return True
    return bool(children - {excluded_child})
