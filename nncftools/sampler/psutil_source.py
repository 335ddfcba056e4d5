"""macOS (and Linux, when asked for): the figures of a process tree through psutil.

Every sample walks the process table anew, and a process that ends between two samples takes its last CPU time and I/O
with it; the largest totals seen of each process are kept.
"""

from __future__ import annotations

import os

import psutil

from nncftools.sampler.counters import Counters

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nncftools.journal.lines import ExitStatus
    from nncftools.journal.plan import Plan

_GAUGES = ("rss", "vms", "threads", "processes")
_COUNTERS = ("cpu_user", "cpu_system", "read_bytes", "write_bytes", "read_chars", "write_chars")
GIVEN = (*_GAUGES, "system", *_COUNTERS)
"""The metrics that psutil knows on some system."""
_GONE = (psutil.NoSuchProcess, psutil.ZombieProcess)


class _Seen:
    """A process and the last that was read of it."""

    __slots__ = ("counters", "number", "peak_rss", "process", "rss", "samples")

    def __init__(self, process: psutil.Process, number: int) -> None:
        self.process = process
        self.number = number
        self.samples = 0
        self.rss = 0
        self.peak_rss = 0
        self.counters: dict[str, float | None] = {}


class PsutilSource:
    """Reads one row of figures per sample and tells what it learns of single processes."""

    def __init__(self, plan: Plan, tell: Callable[[str, object], None]) -> None:
        """Read what ``plan`` asks for; ``tell`` takes a line for the journal, its key and its value."""
        self.columns = plan.columns
        self._counters = Counters(plan.columns, from_now=plan.pid is not None)
        self._tell = tell
        self._children = plan.children
        self._attached = plan.pid is not None
        self._root: psutil.Process | None = None
        self._alive: dict[psutil.Process, _Seen] = {}
        self._count = 0
        self._retired: dict[str, float] = dict.fromkeys(_COUNTERS, 0)
        self._unknown: set[str] = set()

    def start(self, pid: int) -> bool:
        """Make ``pid`` the root of the tree; return whether it is there."""
        try:
            self._root = psutil.Process(pid)
        except psutil.Error:
            return False
        self._look(self._root, 0.0)
        return True

    def sample(self, now_s: float) -> Sequence[float | None]:
        """Return one value per column; ``now_s`` is the time since the session's start."""
        for process in self._find():
            self._look(process, now_s)
        gauges = dict.fromkeys(_GAUGES, 0)
        for seen in list(self._alive.values()):
            try:
                with seen.process.oneshot():
                    memory = seen.process.memory_info()
                    threads = seen.process.num_threads()
                    seen.counters = _counters(seen.process)
            except _GONE:
                self._forget(seen, now_s)
                continue
            except psutil.AccessDenied:
                self._unknown |= {*_GAUGES, *_COUNTERS}
                continue
            seen.rss = memory.rss
            if not memory.rss:  # it is ending and has given back its memory
                continue
            seen.samples += 1
            gauges["threads"] += threads
            seen.peak_rss = max(seen.peak_rss, memory.rss)
            gauges["rss"] += memory.rss
            gauges["vms"] += memory.vms
            gauges["processes"] += 1
        return self._row(gauges)

    def each(self) -> dict[int, int]:
        """Return the RSS of every process at the last sample, in bytes, by number."""
        return {seen.number: seen.rss for seen in self._alive.values()}

    def account(self, now_s: float) -> None:
        """Do nothing: the system tells nothing of processes that have ended."""

    def retire(self, pid: int, now_s: float) -> None:
        """Do nothing: psutil reads nothing of a process that has ended."""

    def ended(self, pid: int, now_s: float, status: ExitStatus, high_water_limit: int | None) -> None:
        """Take a child of ours that was reaped out of the tree."""
        for seen in [seen for seen in self._alive.values() if seen.process.pid == pid]:
            self._forget(seen, now_s, status, high_water_limit)

    def is_empty(self, now_s: float) -> bool:
        """Return whether no process of the tree is left."""
        for process in self._find():
            self._look(process, now_s)
        return not any(_is_alive(seen.process) for seen in self._alive.values())

    def alive(self, now_s: float) -> list[int]:
        """Return the PIDs of the processes that run."""
        for process in self._find():
            self._look(process, now_s)
        return [seen.process.pid for seen in self._alive.values() if _is_alive(seen.process)]

    def totals(self) -> Sequence[float | None]:
        """Return one value per column: the counters' totals as far as they were seen; None for gauges."""
        return self._counters.only(self._row({}))

    def close(self, now_s: float) -> None:
        """Tell the last figures of all processes; those that still run have no end."""
        for process in self._find():
            self._look(process, now_s)
        for seen in list(self._alive.values()):
            if _is_alive(seen.process):
                self._tell("process", _figures(seen))
            else:
                self._forget(seen, now_s)

    def _find(self) -> Sequence[psutil.Process]:
        """Return the descendants; a process once seen stays in the tree when it is re-parented."""
        if not self._children:
            return ()
        pids = {process.pid for process in self._alive}
        found = [] if self._attached else psutil.Process().children(recursive=True)
        for process in list(self._alive):
            try:
                if process == self._root or process.ppid() not in pids:
                    found += process.children(recursive=True)
            except psutil.Error:
                continue
        return [process for process in found if process.pid not in {os.getpid(), os.getppid()}]

    def _look(self, process: psutil.Process, now_s: float) -> None:
        if process in self._alive:
            return
        try:
            with process.oneshot():
                parent = self._parent_of(process)
                facts: dict[str, object] = {
                    "name": process.name(),
                    "command": process.cmdline(),
                    "start_s": round(now_s, 6),
                }
        except psutil.Error:
            return
        self._alive[process] = _Seen(process, self._count)
        facts["id"] = self._count
        facts["pid"] = process.pid
        facts["parent"] = parent.number if parent is not None else None
        facts["forked_copy"] = parent is not None and parent.process.cmdline() == facts["command"]
        self._tell("process", facts)
        self._count += 1

    def _parent_of(self, process: psutil.Process) -> _Seen | None:
        parent = process.parent()
        return self._alive.get(parent) if parent is not None and process != self._root else None

    def _forget(
        self,
        seen: _Seen,
        now_s: float,
        status: ExitStatus | None = None,
        high_water_limit: int | None = None,
    ) -> None:
        del self._alive[seen.process]
        for name, value in seen.counters.items():
            self._retired[name] += value or 0
        end = {"end_s": round(now_s, 6), "exit": status, "high_water_limit": high_water_limit}
        self._tell("process", {**_figures(seen), **end})

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
    """Return a process's own totals; None for what the system does not tell (I/O on macOS)."""
    cpu = process.cpu_times()
    try:
        io = process.io_counters()
    except (AttributeError, psutil.AccessDenied):
        io = None
    return {
        "cpu_user": cpu.user,
        "cpu_system": cpu.system,
        "read_bytes": getattr(io, "read_bytes", None),
        "write_bytes": getattr(io, "write_bytes", None),
        "read_chars": getattr(io, "read_chars", None),
        "write_chars": getattr(io, "write_chars", None),
    }


def _figures(seen: _Seen) -> dict[str, object]:
    cpu = [seen.counters.get("cpu_user"), seen.counters.get("cpu_system")]
    return {
        "id": seen.number,
        "samples": seen.samples,
        "peak_rss": seen.peak_rss if seen.samples else None,
        "high_water_mark": None,
        "cpu_s": None if None in cpu else sum(part for part in cpu if part is not None),
    }
