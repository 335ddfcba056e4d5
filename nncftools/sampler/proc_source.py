"""Linux: the figures of a process tree from kept-open files of ``/proc``."""

from __future__ import annotations

import time

from nncftools.sampler.counters import Counters
from nncftools.sampler.probes import process_probes, system_probes
from nncftools.sampler.probes.stat import TICKS_PER_S
from nncftools.sampler.probes.statm import PAGE
from nncftools.sampler.tree import Tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nncftools.sampler.plan import Plan
    from nncftools.sampler.tree import Process

DETAILS_EVERY_S = 1.0
"""Names and high-water marks are read this often: 20 µs a process."""


class ProcSource:
    """Reads one row of figures per sample and tells what it learns of single processes."""

    def __init__(
        self,
        plan: Plan,
        tell: Callable[[str, object], None],
        *,
        reaper: int | None,
        root: str = "/proc",
    ) -> None:
        """Read what ``plan`` asks for under the proc directory ``root``.

        ``tell`` takes a line for the journal, its key and its value; orphans become children of ``reaper``.
        """
        columns = plan["columns"]
        self._tell = tell
        wanted = [probe for probe in process_probes() if set(probe.metrics) & set(columns)]
        self._probes = [probe(slot) for slot, probe in enumerate(wanted)]
        self._system = [probe(root) for probe in system_probes() if set(probe.metrics) & set(columns)]
        given = [name for probe in self._probes for name in probe.metrics]
        given += [name for probe in self._system for name in probe.metrics]
        self._order = [given.index(name) for name in columns]
        self._counters = Counters(columns, from_now=plan["pid"] is not None)
        self._tree = Tree(root, [probe.file for probe in wanted], reaper=reaper, children=plan["children"])
        self._boot_at_start_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        self._young: list[Process] = []
        self._details_at_s = 0.0
        self._warned = False

    def start(self, pid: int) -> bool:
        """Make ``pid`` the root of the tree; return whether it is there."""
        root = self._tree.add(pid)
        if root is not None:
            self._introduce(root)
            self._young = [root]
        return root is not None

    def sample(self, now_s: float) -> Sequence[float | None]:
        """Return one value per column; ``now_s`` is the time since the session's start."""
        for process in self._young:
            self._identify(process)
        self._young = self._tree.refresh()
        for process in self._young:
            self._introduce(process)
        if self._tree.out_of_descriptors and not self._warned:
            self._warned = True
            self._tell("warning", "too many processes for the limit of open files: some are left out of the figures")
        row = self._read()
        if now_s >= self._details_at_s:
            self._details_at_s = now_s + DETAILS_EVERY_S
            self.read_details()
        for process in [process for process in self._tree.processes if not process.alive]:
            self._forget(process, now_s)
        return row

    def _read(self) -> Sequence[float | None]:
        values: list[float | None] = []
        for probe in self._probes:
            values += probe.read(self._tree.processes)
        for system in self._system:
            values += system.read()
        row = [values[place] for place in self._order]
        self._counters.settle(row)
        return row

    def read_details(self) -> None:
        """Read what changes seldom: the high-water mark, and the name after an exec."""
        for process in self._tree.processes:
            mark = _high_water_mark(process) or 0
            if mark > (process.high_water_mark or 0):
                process.high_water_mark = mark
                self._tell("process", _figures(process))
            self._identify(process)

    def _identify(self, process: Process) -> None:
        """Read the name again, which the process may have had from its parent before its exec."""
        if process.alive and process.identify():
            self._tell("process", _identity(process))

    def retire(self, pid: int) -> None:
        """Read a child of ours that has ended and is still to be reaped for the last time."""
        process = self._tree.get(pid)
        if process is None:
            process = self._tree.add(pid)
            if process is None:
                return
            self._introduce(process)
        for probe in self._probes:
            probe.retire(process)

    def ended(self, pid: int, now_s: float, status: dict[str, int | None], high_water_mark: int | None) -> None:
        """Take a child of ours that was reaped out of the tree."""
        process = self._tree.get(pid)
        if process is not None:
            if high_water_mark is not None:
                process.high_water_mark = max(high_water_mark, process.high_water_mark or 0)
            self._forget(process, now_s, status)

    def totals(self) -> Sequence[float | None]:
        """Return one value per column: the counters' totals, also of those that have ended; None for gauges."""
        return self._counters.only(self._read())

    def close(self, now_s: float) -> None:
        """Tell the last figures of all processes; those that still run have no end."""
        self.read_details()
        for process in list(self._tree.processes):
            if _runs(process):
                self._tell("process", _figures(process))
            else:
                self._forget(process, now_s)

    def _introduce(self, process: Process) -> None:
        start_s = process.started_ticks / TICKS_PER_S - self._boot_at_start_s
        if -1 / TICKS_PER_S <= start_s < 0:  # the kernel rounds down to a tick
            start_s = 0.0
        parent = process.parent.number if process.parent is not None else None
        born = {"pid": process.pid, "parent": parent, "start_s": round(start_s, 2)}
        self._tell("process", {**_identity(process), **born})

    def _forget(self, process: Process, now_s: float, status: dict[str, int | None] | None = None) -> None:
        self._tree.remove(process)
        self._tell("process", {**_figures(process), "end_s": round(now_s, 6), "exit": status})


def _identity(process: Process) -> dict[str, object]:
    return {
        "id": process.number,
        "name": process.name,
        "command": process.command,
        "forked_copy": process.forked_copy,
    }


def _figures(process: Process) -> dict[str, object]:
    return {
        "id": process.number,
        "samples": process.samples,
        "peak_rss": process.peak_rss * PAGE if process.samples else None,
        "high_water_mark": process.high_water_mark,
        "cpu_s": process.cpu_ticks / TICKS_PER_S,
    }


def _runs(process: Process) -> bool:
    """Return whether a process is neither gone nor a zombie."""
    try:
        return process.read("stat").rpartition(b")")[2].split(None, 1)[0] not in b"ZX"
    except (OSError, IndexError):
        return False


def _high_water_mark(process: Process) -> int | None:
    """Return ``VmHWM`` in bytes (proc(5)); None for a zombie, a kernel thread or a process that is gone."""
    try:
        _, found, rest = process.read("status").partition(b"\nVmHWM:")
    except OSError:
        return None
    return int(rest.split(None, 1)[0]) * 1024 if found else None
