"""macOS (and Linux, on request): the figures of a process tree, from psutil.

Every sample reads the process table again. If a process ends between two samples, the last known figures of the process
are kept. CPU time and I/O between the last sample and the end of the process are lost.
"""

from __future__ import annotations

import os
from contextlib import suppress

import psutil

from nncftools.journal.writing import Counters

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.journal.reading import ExitStatus
    from nncftools.journal.writing import Plan
    from nncftools.sampler.tree import WriteLine

_GAUGES = ("rss", "vms", "threads", "processes")
_IO = ("read_bytes", "write_bytes", "read_chars", "write_chars")
_COUNTERS = ("cpu_user", "cpu_system", *_IO)
SUPPORTED = (*_GAUGES, "system", *_COUNTERS)
"""The metrics that psutil has on at least some systems."""
_GONE = (psutil.NoSuchProcess, psutil.ZombieProcess)


class _Member:
    """A process of the tree, with the values of the last sample."""

    samples = 0
    rss = 0
    peak_rss = 0
    earlier_cpu_s = 0.0
    """The CPU time of the process before the recording was attached. 0 if the recording was not attached."""

    def __init__(self, process: psutil.Process, number: int) -> None:
        self.process = process
        self.number = number
        self.values: dict[str, float | None] = dict.fromkeys(SUPPORTED, 0)

    def read(self) -> None:
        """Read memory, threads, CPU time and I/O of the process. Raises psutil.Error.

        I/O is None on systems without I/O counters (macOS), or without the permission to read them.
        """
        process = self.process
        values: dict[str, float | None] = dict.fromkeys(SUPPORTED, 0)
        with process.oneshot():
            memory = process.memory_info()
            cpu = process.cpu_times()
            if memory.rss:  # a process that is ending has no memory
                values.update(rss=memory.rss, vms=memory.vms, processes=1)
                values["threads"] = process.num_threads()
                self.samples += 1
            try:
                io = process.io_counters()
            except (AttributeError, psutil.AccessDenied):
                io = None
        values.update(cpu_user=cpu.user, cpu_system=cpu.system)
        for name in _IO:
            values[name] = getattr(io, name, None)
        self.values = values
        self.rss = memory.rss
        self.peak_rss = max(self.peak_rss, memory.rss)

    def figures(self) -> dict[str, object]:
        """Return the memory and the CPU time of the process as ``{key: value}`` of a journal line."""
        return {
            "id": self.number,
            "samples": self.samples,
            "peak_rss": self.peak_rss if self.samples else None,
            "high_water_mark": None,
            "cpu_s": self.cpu_s - self.earlier_cpu_s,
        }

    @property
    def cpu_s(self) -> float:
        """CPU time since the start of the process."""
        return (self.values["cpu_user"] or 0) + (self.values["cpu_system"] or 0)


class PsutilSource:
    """Reads a value for each column at each sample, and writes the facts of each process to the journal."""

    _is_first = True
    _root: psutil.Process | None = None
    _count = 0

    def __init__(self, plan: Plan, pid: int, write_line: WriteLine) -> None:
        """Follow ``pid``, and read the columns of ``plan``."""
        self.columns = plan.columns
        self._counters = Counters(plan.columns, from_now=plan.pid is not None)
        self._write_line = write_line
        self._children = plan.children
        self._attached = plan.pid is not None
        self._alive: dict[psutil.Process, _Member] = {}
        self._retired: dict[str, float] = dict.fromkeys(SUPPORTED, 0)
        self._unknown: set[str] = set()
        with suppress(psutil.Error):
            self._root = psutil.Process(pid)
            self._add(self._root, 0.0)

    def sample(self, now_s: float, *, for_mark: bool = False) -> Sequence[float | None]:  # noqa: ARG002 — as ProcSource
        """Return a value for each column. ``now_s`` is the time since the session's start."""
        self._look(now_s)
        for member in list(self._alive.values()):
            try:
                member.read()
            except _GONE:
                self._remove(member, now_s)
            except psutil.AccessDenied:
                self._unknown |= {*_GAUGES, *_COUNTERS}
        if self._attached and self._is_first:
            for member in self._alive.values():
                member.earlier_cpu_s = member.cpu_s
        self._is_first = False
        return self._row()

    def each(self) -> dict[int, int]:
        """Return ``{id of the process in the journal: RSS in bytes}`` at the last sample."""
        return {member.number: member.rss for member in self._alive.values()}

    def retire(self, pid: int) -> None:
        """Do nothing: psutil cannot read an ended process."""

    def ended(self, pid: int, now_s: float, status: ExitStatus, high_water_limit: int | None) -> None:
        """Remove a reaped child from the tree, and record the end."""
        for member in list(self._alive.values()):
            if member.process.pid == pid:
                self._remove(member, now_s, status, high_water_limit)

    def alive(self, now_s: float) -> list[int]:
        """Return the PIDs of the running processes."""
        self._look(now_s)
        return [process.pid for process in self._alive if _is_alive(process)]

    def close(self, now_s: float) -> Sequence[float | None]:
        """Record the memory and CPU time of all processes for the last time; return a value for each column.

        A process that still runs is recorded without an end.
        """
        totals = self._row()
        self._look(now_s)
        for member in list(self._alive.values()):
            if _is_alive(member.process):
                self._write_line("process", member.figures())
            else:
                self._remove(member, now_s)
        return totals

    def _look(self, now_s: float) -> None:
        """Add new descendants. A known process stays in the tree even if its parent changes."""
        if not self._children:
            return
        pids = {process.pid for process in self._alive}
        descendants = [] if self._attached else psutil.Process().children(recursive=True)
        for process in list(self._alive):
            try:
                if process == self._root or process.ppid() not in pids:
                    descendants += process.children(recursive=True)
            except psutil.Error:
                continue
        own_pids = {os.getpid(), os.getppid()}
        for process in descendants:
            if process not in self._alive and process.pid not in own_pids:
                self._add(process, now_s)

    def _add(self, process: psutil.Process, now_s: float) -> None:
        try:
            with process.oneshot():
                parent_process = process.parent() if process != self._root else None
                parent = None if parent_process is None else self._alive.get(parent_process)
                name = process.name()
                command = process.cmdline()
        except psutil.Error:
            return
        self._alive[process] = _Member(process, self._count)
        facts = {
            "name": name,
            "command": command,
            "start_s": round(now_s, 6),
            "id": self._count,
            "pid": process.pid,
            "parent": None if parent is None else parent.number,
            "forked_copy": parent is not None and parent.process.cmdline() == command,
        }
        self._write_line("process", facts)
        self._count += 1

    def _remove(
        self, member: _Member, now_s: float, status: ExitStatus | None = None, high_water_limit: int | None = None
    ) -> None:
        del self._alive[member.process]
        for name in _COUNTERS:
            self._retired[name] += member.values[name] or 0
        end = {"end_s": round(now_s, 6), "exit": status, "high_water_limit": high_water_limit}
        self._write_line("process", {**member.figures(), **end})

    def _row(self) -> list[float | None]:
        row = [self._read_column(name) for name in self.columns]
        self._counters.settle(row)
        return row

    def _read_column(self, name: str) -> float | None:
        if name == "system":
            memory = psutil.virtual_memory()
            return memory.total - memory.available
        parts = [member.values[name] for member in self._alive.values()]
        if None in parts:
            self._unknown.add(name)
        if name in self._unknown:
            return None
        total = self._retired[name] + sum(part for part in parts if part is not None)
        return total or None if name in _GAUGES else total


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
