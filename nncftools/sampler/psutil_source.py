"""macOS (and Linux, on request): the figures of a process tree, from psutil.

Every sample reads the process table again. The last CPU time and I/O of a process that ends between two samples are
lost; the largest totals that were seen of each process are kept.
"""

from __future__ import annotations

import os

import psutil

from nncftools.sampler.loop import Counters

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
"""The metrics that psutil knows on some system."""
_GONE = (psutil.NoSuchProcess, psutil.ZombieProcess)


class _Seen:
    """A process and its latest figures."""

    def __init__(self, process: psutil.Process, number: int) -> None:
        self.process = process
        self.number = number
        self.samples = self.rss = self.peak_rss = 0
        self.counters: dict[str, float | None] = {}
        self.earlier_cpu_s = 0.0
        """Its CPU time when the recording was attached to it."""

    def figures(self) -> dict[str, object]:
        """Return the figures as the journal has them."""
        cpu_s = self.cpu_s
        return {
            "id": self.number,
            "samples": self.samples,
            "peak_rss": self.peak_rss if self.samples else None,
            "high_water_mark": None,
            "cpu_s": None if cpu_s is None else cpu_s - self.earlier_cpu_s,
        }

    @property
    def cpu_s(self) -> float | None:
        """Its CPU time since it began; None for unknown."""
        user, system = self.counters.get("cpu_user"), self.counters.get("cpu_system")
        return None if user is None or system is None else user + system


class PsutilSource:
    """Reads one row of figures per sample, and records the facts of single processes in the journal."""

    def __init__(self, plan: Plan, write_line: WriteLine) -> None:
        """Read the columns of ``plan``."""
        self.columns = plan.columns
        self._counters = Counters(plan.columns, from_now=plan.pid is not None)
        self._write_line = write_line
        self._children = plan.children
        self._attached = self._counts_from_now = plan.pid is not None
        self._root: psutil.Process | None = None
        self._alive: dict[psutil.Process, _Seen] = {}
        self._count = 0
        self._retired: dict[str, float] = dict.fromkeys(_COUNTERS, 0)
        self._unknown: set[str] = set()

    def start(self, pid: int) -> bool:
        """Make ``pid`` the root of the tree; return whether it exists."""
        try:
            self._root = psutil.Process(pid)
        except psutil.Error:
            return False
        self._add(self._root, 0.0)
        return True

    def sample(self, now_s: float, *, for_mark: bool = False) -> Sequence[float | None]:  # noqa: ARG002 — as ProcSource
        """Return one value per column; ``now_s`` is the time since the session's start."""
        self._look(now_s)
        gauges = dict.fromkeys(_GAUGES, 0)
        for seen in list(self._alive.values()):
            try:
                with seen.process.oneshot():
                    memory = seen.process.memory_info()
                    threads = seen.process.num_threads()
                    seen.counters = _counters(seen.process)
            except _GONE:
                self._remove(seen, now_s)
                continue
            except psutil.AccessDenied:
                self._unknown |= {*_GAUGES, *_COUNTERS}
                continue
            seen.rss = memory.rss
            if not memory.rss:  # it is ending and has freed its memory
                continue
            seen.samples += 1
            seen.peak_rss = max(seen.peak_rss, memory.rss)
            for name, value in zip(_GAUGES, (memory.rss, memory.vms, threads, 1), strict=True):
                gauges[name] += value
        if self._counts_from_now:
            self._counts_from_now = False
            for seen in self._alive.values():
                seen.earlier_cpu_s = seen.cpu_s or 0.0
        return self._row(gauges)

    def each(self) -> dict[int, int]:
        """Return the RSS of every process at the last sample, in bytes, by number."""
        return {seen.number: seen.rss for seen in self._alive.values()}

    def retire(self, pid: int) -> None:
        """Do nothing: psutil cannot read an ended process."""

    def ended(self, pid: int, now_s: float, status: ExitStatus, high_water_limit: int | None) -> None:
        """Remove a reaped child of ours from the tree."""
        for seen in [seen for seen in self._alive.values() if seen.process.pid == pid]:
            self._remove(seen, now_s, status, high_water_limit)

    def alive(self, now_s: float) -> list[int]:
        """Return the PIDs of the running processes."""
        self._look(now_s)
        return [seen.process.pid for seen in self._alive.values() if _is_alive(seen.process)]

    def totals(self) -> Sequence[float | None]:
        """Return one value per column, of counters the totals as far as they were seen."""
        return self._row({})

    def close(self, now_s: float) -> None:
        """Record the last figures of all processes; those that still run have no end."""
        self._look(now_s)
        for seen in list(self._alive.values()):
            if _is_alive(seen.process):
                self._write_line("process", seen.figures())
            else:
                self._remove(seen, now_s)

    def _look(self, now_s: float) -> None:
        """Add new descendants; a process once seen stays in the tree when its parent changes."""
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
        for process in descendants:
            if process not in self._alive and process.pid not in {os.getpid(), os.getppid()}:
                self._add(process, now_s)

    def _add(self, process: psutil.Process, now_s: float) -> None:
        try:
            with process.oneshot():
                above = process.parent() if process != self._root else None
                parent = None if above is None else self._alive.get(above)
                name, command = process.name(), process.cmdline()
        except psutil.Error:
            return
        self._alive[process] = _Seen(process, self._count)
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
        self, seen: _Seen, now_s: float, status: ExitStatus | None = None, high_water_limit: int | None = None
    ) -> None:
        del self._alive[seen.process]
        for name, value in seen.counters.items():
            self._retired[name] += value or 0
        end = {"end_s": round(now_s, 6), "exit": status, "high_water_limit": high_water_limit}
        self._write_line("process", {**seen.figures(), **end})

    def _row(self, gauges: dict[str, int]) -> list[float | None]:
        row = [self._value(name, gauges) for name in self.columns]
        self._counters.settle(row)
        return row

    def _value(self, name: str, gauges: dict[str, int]) -> float | None:
        if name == "system":
            memory = psutil.virtual_memory()
            return memory.total - memory.available
        if name in _GAUGES:
            return None if name in self._unknown else gauges.get(name) or None
        parts = [seen.counters.get(name) for seen in self._alive.values()]
        self._unknown |= {name} if None in parts else set()
        if name in self._unknown:
            return None
        return self._retired[name] + sum(part for part in parts if part is not None)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _counters(process: psutil.Process) -> dict[str, float | None]:
    """Return a process's own totals; None where the system does not have them (I/O on macOS)."""
    cpu = process.cpu_times()
    try:
        io = process.io_counters()
    except (AttributeError, psutil.AccessDenied):
        io = None
    return {"cpu_user": cpu.user, "cpu_system": cpu.system, **{name: getattr(io, name, None) for name in _IO}}
