"""The memory charged to a control group: ``memory.current`` (v2) or ``memory.usage_in_bytes`` (v1)."""

from __future__ import annotations

import os

from nncftools.sampler.control_groups import Hierarchies
from nncftools.sampler.probes import SYSTEM


class Cgroup:
    """Memory of the control group that the command was started in, including other processes in that group."""

    kind = SYSTEM
    metrics = ("cgroup",)
    source = "memory.current or memory.usage_in_bytes"
    cost = "3 µs"

    def __init__(self, root: str, pid: int) -> None:
        group = Hierarchies(root).group_of(pid)
        self._file = None if group is None else os.open(group.usage_file, os.O_RDONLY)

    def read(self) -> tuple[int | None]:
        """Return the bytes; None when the group is gone or its memory is not accounted."""
        if self._file is None:
            return (None,)
        try:
            return (int(os.pread(self._file, 64, 0)),)
        except OSError:
            return (None,)


def why_unavailable(root: str) -> str:
    """Return why the memory of our own control group cannot be read; empty when it can."""
    known = Hierarchies(root).group_of(os.getpid()) is not None
    return "" if known else "no memory controller accounts this process's control group"
