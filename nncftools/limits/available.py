"""How much memory programs can still get: of the machine, and of a process's control group."""

from __future__ import annotations

import contextlib
import pathlib
import sys
from typing import NamedTuple

from nncftools.sampler.control_groups import Hierarchies


class Available(NamedTuple):
    """Bytes; None for unknown."""

    machine: int | None = None
    """What programs can get without swapping, as the kernel estimates it."""
    machine_size: int | None = None
    group: int | None = None
    """What the processes of the control group can get before a limit is met; None when there is no limit, too."""
    group_limit: int | None = None
    """The smallest limit of the group and of those above it."""

    @property
    def least(self) -> int | None:
        """What a program can get of both."""
        return min((size for size in (self.machine, self.group) if size is not None), default=None)


def available(proc: str, pid: int | None) -> Available:
    """Return what is available on this machine and to the control group of a process, if one is given."""
    machine, size = _of_machine(proc)
    group = None if pid is None else Hierarchies(proc).group_of(pid)
    if group is None:
        return Available(machine, size)
    limit = min((size for _, size, _ in group.limits()), default=None)
    return Available(machine, size, group.available(), limit)


def _of_machine(proc: str) -> tuple[int | None, int | None]:
    if sys.platform != "linux":
        import psutil

        memory = psutil.virtual_memory()
        return int(memory.available), int(memory.total)
    data = b""
    with contextlib.suppress(OSError):
        data = pathlib.Path(proc, "meminfo").read_bytes()
    return _value(data, b"MemAvailable:"), _value(data, b"MemTotal:")


def _value(data: bytes, key: bytes) -> int | None:
    with contextlib.suppress(ValueError, IndexError):
        return int(data.partition(key)[2].split(None, 1)[0]) * 1024
    return None
