"""``/proc/PID/stat``: CPU time, a process's own and what the kernel folded into it from reaped children (proc(5)).

Because a reaped child's time moves to its parent (``cutime``, ``cstime``), the sum over the live tree loses no child
whose parent waits for it.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.sampler.tree import Process

TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_UTIME = 11
_THREADS = 17
"""Positions after the closing parenthesis of the name, which may itself hold spaces and parentheses."""


class Stat:
    """CPU seconds in user mode and in the kernel, with the resolution of a clock tick (10 ms)."""

    metrics = ("cpu_user", "cpu_system")
    file = "stat"

    def __init__(self, slot: int) -> None:
        self._slot = slot
        self._retired = (0, 0)

    def read(self, processes: Sequence[Process]) -> tuple[float, float]:
        """Return the sums in seconds."""
        user, system = self._ticks(processes)
        return user / TICKS_PER_S, system / TICKS_PER_S

    def retire(self, process: Process) -> None:
        """Keep the CPU time of a child of ours that has ended."""
        self._retired = self._ticks([process])

    def _ticks(self, processes: Sequence[Process]) -> tuple[int, int]:
        """Sum over processes and those retired.

        Parents come before children: a child that is reaped in between is missed for one sample, never counted twice.
        """
        slot = self._slot
        pread = os.pread
        user, system = self._retired
        for process in processes:
            if not process.alive:
                continue
            try:
                data = pread(process.files[slot], 1024, 0)
            except OSError:
                process.alive = False
                continue
            fields = data[data.rindex(b")") + 2 :].split(b" ", _THREADS + 1)
            utime, stime, cutime, cstime = map(int, fields[_UTIME : _UTIME + 4])
            process.thread_count = int(fields[_THREADS])
            process.cpu_ticks = utime + stime
            user += utime + cutime
            system += stime + cstime
        return user, system
