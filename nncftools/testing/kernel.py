"""The kernel's own figures of this process's memory. Linux only; elsewhere all figures are unknown."""

from __future__ import annotations

import os
import pathlib
import re
import sys
from dataclasses import dataclass

_STATUS, _CLEAR_REFS, _TASKS = "/proc/self/status", "/proc/self/clear_refs", "/proc/self/task"
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
    import resource

    try:
        figures = _FIGURES.search(pathlib.Path(_STATUS).read_bytes())
    except OSError:
        figures = None
    mark, rss = (None, None) if figures is None else (int(figure) * 1024 for figure in figures.groups())
    children_mark = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return Memory(rss=rss, mark=mark, children_mark=children_mark, has_children=_has_children(excluded_child))


def reset_mark() -> bool:
    """Set VmHWM, and with it getrusage's ``ru_maxrss``, to the current RSS; return whether that worked."""
    try:
        pathlib.Path(_CLEAR_REFS).write_bytes(_RESET_HIGH_WATER_MARK)
    except OSError:
        return False
    return True


def _has_children(excluded_child: int | None) -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    try:
        lists = [(task / "children").read_bytes() for task in pathlib.Path(_TASKS).iterdir()]
    except OSError:  # a thread has just ended, or this kernel has no such lists
        return True
    return bool({int(child) for children in lists for child in children.split()} - {excluded_child})
