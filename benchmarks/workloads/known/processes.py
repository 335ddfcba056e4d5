"""Forked processes, and a place where they wait for each other."""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import time
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PAUSE_S = 0.001
_LONGEST_S = 30
"""Nobody waits longer, even if a process was killed."""


def fork(work: Callable[[], object]) -> int:
    """Do ``work`` in a forked process; return its PID."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return pid


@contextlib.contextmanager
def forked(*works: Callable[[], object]) -> Iterator[None]:
    """Do each of ``works`` in a forked process of its own; wait for all of them at the end of a ``with`` block."""
    pids = [fork(work) for work in works]
    yield
    for pid in pids:
        _, status = os.waitpid(pid, 0)
        assert status == 0


@contextlib.contextmanager
def asleep(count: int) -> Iterator[None]:
    """Have forked processes that sleep during a ``with`` block."""
    pids = [fork(partial(time.sleep, _LONGEST_S)) for _ in range(count)]
    yield
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


class Meeting:
    """Where forked processes wait for each other, any number of times."""

    def __init__(self, count: int) -> None:
        """Wait for ``count`` processes."""
        self._count = count
        self._rounds = mmap.mmap(-1, count)  # shared with forked processes

    def join(self, number: int) -> None:
        """Wait, as the process with this number, until all others have come as often."""
        self._rounds[number] += 1
        while min(self._rounds[: self._count]) < self._rounds[number]:
            time.sleep(_PAUSE_S)
