"""Reads ``statm`` of every process of the tree, and writes how their memory changes."""

from __future__ import annotations

import os
import time

from nncftools.sampler.tree import PAGE, Tree, shared
from nncftools.snapshots.watched import Watched

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    from nncftools.journal.writing import Writer
    from nncftools.sampler.tree import Process

PROC = "/proc"
_STATM = 128
_MS = 1_000_000
_TREE_EVERY_NS = 30 * _MS
_EXEC_WITHIN_NS = 30 * _MS
"""A forked copy that has lived this long stays one: usually, exec follows fork at once."""
_FAST = 1 << 20
"""Bytes from one poll to the next."""


class TreeWatch:
    """The processes of a run, as far as they have memory of their own."""

    def __init__(self, writer: Writer, sampler: int, pid: int | None, *, children: bool) -> None:
        """Watch the children of ``sampler``, or ``pid`` if there is one; only one process without ``children``."""
        self._writer = writer
        self._only_first = not children and pid is None
        self._tree = Tree(
            PROC, ["statm"], reaper=sampler if pid is None else None, children=children or self._only_first
        )
        if pid is not None:
            self._tree.add(pid)
        self._watched: dict[Process, Watched] = {}
        self._look_at_ns = 0
        self.rose_ns = self.rose_fast_ns = time.monotonic_ns()
        """When the memory of any process last rose, and when it last rose by much from one poll to the next."""

    @property
    def watched(self) -> Collection[Watched]:
        """The processes that live."""
        return self._watched.values()

    def poll(self, now_ns: int) -> None:
        """Read the memory of all processes; look for new ones from time to time."""
        if now_ns >= self._look_at_ns:
            self._look_at_ns = now_ns + _TREE_EVERY_NS
            self._tree.has_changed()
            self._tree.refresh()
            if self._only_first and self._tree.processes:
                self._tree.children = False
        for process in list(self._tree.processes):
            watched = self._watched.get(process)
            try:
                data = os.pread(process.files[0], _STATM, 0)
            except OSError:
                data = process.read_slot(0)
            t_ns = time.monotonic_ns()
            pages, mapped = map(int, data.split(None, 3)[1:3]) if data else (0, 0)
            if watched is None:
                self._meet(process, t_ns, pages)
            elif not pages:
                self._end(watched, t_ns)
            else:
                if not watched.is_introduced and t_ns - watched.found_ns > _EXEC_WITHIN_NS:
                    self._introduce(watched)
                self._add(watched, t_ns, pages)
                watched.anonymous = (pages - mapped) * PAGE

    def _add(self, watched: Watched, t_ns: int, pages: int) -> None:
        rise = watched.growth.add(t_ns, pages)
        if rise > 0:
            self.rose_ns = t_ns
            if rise >= _FAST:
                self.rose_fast_ns = t_ns

    def _meet(self, process: Process, t_ns: int, pages: int) -> None:
        if not process.alive:
            self._tree.remove(process)
            return
        above = process.parent
        if not pages or (process.forked_copy and above is not None and shared(process.pid, above.pid)):
            return  # a child of vfork(2) has its parent's memory until exec
        watched = self._watched[process] = Watched(process, t_ns)
        self._add(watched, t_ns, pages)

    def _introduce(self, watched: Watched) -> None:
        """Write who this is, after a time in which it could exec."""
        process = watched.process
        process.identify()
        watched.is_introduced = True
        inherited = watched.growth.first if process.forked_copy else 0
        facts = {"number": process.number, "pid": process.pid, "t_ns": watched.found_ns, "inherited": inherited}
        self._writer.line("process", facts)

    def _end(self, watched: Watched, now_ns: int) -> None:
        """Take the end of a process: a zombie has no memory, and is there until it is reaped."""
        if watched.growth.rss:
            if not watched.is_introduced:
                self._introduce(watched)
            self._write_points(watched, now_ns)
            watched.growth.add(now_ns, 0)
            self._write_points(watched, now_ns)
        if not watched.process.alive:
            del self._watched[watched.process]
            self._tree.remove(watched.process)

    def write_points(self) -> None:
        """Write how the memory of all processes has changed since the last time."""
        now_ns = time.monotonic_ns()
        for watched in self._watched.values():
            self._write_points(watched, now_ns)

    def _write_points(self, watched: Watched, now_ns: int) -> None:
        if watched.is_introduced:
            points = watched.growth.take_points(now_ns)
            values = {"t_ns": [t_ns for t_ns, _ in points], "rss": [rss for _, rss in points]}
            self._writer.line("rss", {"process": watched.process.number, **values})
