"""Which threads of a process touched memory: their page faults and CPU time (``task/TID/stat``, proc(5)).

The kernel counts a page fault in the thread that touches a new page. So the faults since the last reading tell which
thread made the process grow, whoever holds Python's lock.
"""

from __future__ import annotations

import os

_MINOR, _MAJOR, _USER, _SYSTEM = 7, 9, 11, 12
"""Positions after the closing parenthesis of the name."""
_STAT = 512


class Threads:
    """The threads of one process as they were at the last reading."""

    def __init__(self, path: str) -> None:
        """Read the threads of the process with this folder in ``/proc``."""
        self._path = path
        self._whole = 0
        self._before: dict[int, tuple[int, int]] = {}

    def read(self) -> tuple[dict[int, tuple[int, int]], int]:
        """Return page faults and clock ticks of each thread since the last call, and the faults of ended threads.

        Raises OSError when the process has ended.
        """
        whole, _ = _counted(f"{self._path}/stat")
        now: dict[int, tuple[int, int]] = {}
        for name in os.listdir(f"{self._path}/task"):
            try:
                now[int(name)] = _counted(f"{self._path}/task/{name}/stat")
            except OSError:  # the thread has ended
                continue
        since = {}
        for thread, (faults, ticks) in now.items():
            faults_before, ticks_before = self._before.get(thread, (0, 0))
            since[thread] = faults - faults_before, ticks - ticks_before
        lost = whole - self._whole - sum(faults for faults, _ in since.values())
        self._whole, self._before = whole, now
        return since, max(0, lost)


def _counted(path: str) -> tuple[int, int]:
    """Return the page faults and the clock ticks of CPU time of a process or thread. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        data = os.read(descriptor, _STAT)
    finally:
        os.close(descriptor)
    fields = data[data.rindex(b")") + 2 :].split()
    return int(fields[_MINOR]) + int(fields[_MAJOR]), int(fields[_USER]) + int(fields[_SYSTEM])
