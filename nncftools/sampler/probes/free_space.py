"""How much room the file systems have that a command writes to (statvfs(3)), and the least that they had.

A network file system may not answer, so a thread asks. It asks more often the less room there is: a program that fills
a disk may remove its file at once.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import time

from nncftools.sampler.probes import OCCASIONAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nncftools.journal.writing import Plan

_LONGEST_S, _SHORTEST_S = 1.0, 0.01
_FILLED_PER_S = 2 << 30
"""Bytes that a program writes in a second, at most: a file system with more room can be asked once a second."""
_CALM_S = 0.05
"""The shortest distance while the room does not change."""


class FileSystem:
    """A file system by one of its folders; bytes that ordinary users can write."""

    def __init__(self, role: str, path: str) -> None:
        self.role = role
        self._path = path
        self.free: int | None = None
        self._size = self._first = self._lowest = self._written = -1
        self._lowest_ns = 0

    def ask(self) -> float:
        """Ask for the free bytes; return after how many seconds to ask again."""
        try:
            found = os.statvfs(self._path)
        except OSError:
            self.free = None
            return _LONGEST_S
        free = found.f_bavail * found.f_frsize
        if self._first < 0:
            self._first, self._size = free, found.f_blocks * found.f_frsize
        if self._lowest < 0 or free < self._lowest:
            self._lowest, self._lowest_ns = free, time.monotonic_ns()
        is_calm, self.free = free == self.free, free
        return min(_LONGEST_S, max(_CALM_S if is_calm else _SHORTEST_S, free / _FILLED_PER_S))

    def line(self, start_ns: int, *, always: bool) -> dict[str, object] | None:
        """Return it as a line of the journal, if its lowest level has halved since the last one, or ``always``."""
        if self._first < 0 or (not always and self._written >= 0 and self._lowest * 2 > self._written):
            return None
        self._written = self._lowest
        lowest_s = round(max(0.0, (self._lowest_ns - start_ns) / 1e9), 6)
        room = {"size": self._size, "first": self._first, "lowest": self._lowest, "lowest_s": lowest_s}
        return {"role": self.role, "path": self._path, **room, "last": self.free}


class FreeSpace:
    """Free bytes of each file system; unknown while none answers."""

    kind = OCCASIONAL
    metrics = ("disk_free",)
    source = "statvfs(3)"
    cost = "15 µs a second in a thread, more often where little is left"

    def __init__(self, root: str, pid: int, plan: Plan) -> None:  # noqa: ARG002 — the same for every process
        self._file_systems = [FileSystem(role, path) for role, path in plan.file_systems]
        self.columns = tuple(f"disk_free@{one.role}" for one in self._file_systems)
        self._ended = _thread.allocate_lock()
        self._ended.acquire()
        if self._file_systems:
            with contextlib.suppress(RuntimeError):  # the limit of threads: nothing will be known
                _thread.start_new_thread(self._watch, ())

    def _watch(self) -> None:
        due_s = dict.fromkeys(self._file_systems, 0.0)
        while True:
            for one, at_s in due_s.items():
                if at_s <= time.monotonic():
                    due_s[one] = one.ask() + time.monotonic()
            if self._ended.acquire(timeout=max(0.0, min(due_s.values()) - time.monotonic())):
                return

    def read(self, *, thorough: bool) -> list[int | None]:  # noqa: ARG002 — the thread has its own times
        """Return the bytes that were free when the thread asked last."""
        return [one.free for one in self._file_systems]

    def lines(self, start_ns: int, *, always: bool = False) -> list[dict[str, object]]:
        """Return lines for the journal: of file systems whose lowest level has halved, or ``always``."""
        lines = (one.line(start_ns, always=always) for one in self._file_systems)
        return [line for line in lines if line is not None]

    def close(self) -> None:
        """End the thread."""
        self._ended.release()
