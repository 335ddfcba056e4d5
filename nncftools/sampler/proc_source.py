"""Linux: the figures of a process tree from kept-open files of ``/proc``."""

from __future__ import annotations

import sys

from nncftools.metrics import name_of as metric_name
from nncftools.sampler import address_space
from nncftools.sampler.counters import Counters
from nncftools.sampler.kernel_file import NONE_LEFT, PAGE
from nncftools.sampler.probes import PROCESS, SLOW, SYSTEM, columns_of, references, resolved
from nncftools.sampler.roster import Roster
from nncftools.sampler.tree import RESERVE, Tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nncftools.journal.lines import ExitStatus
    from nncftools.journal.plan import Plan
    from nncftools.sampler.exits import Exits
    from nncftools.sampler.probes import SystemProbe
    from nncftools.sampler.tree import Process

PROC = "/proc"
DETAILS_EVERY_S = 1.0
"""Names and high-water marks are read this often: 20 µs a process."""
_TWO_SAMPLES_S = 0.0009
"""Samples that were taken for marks may be closer than any interval, and than vfork(2) is to exec."""


class ProcSource:
    """Reads one row of figures per sample and tells what it learns of single processes."""

    def __init__(
        self,
        plan: Plan,
        tell: Callable[[str, object], None],
        *,
        reaper: int | None,
        exits: Exits | None = None,
        root: str = PROC,
    ) -> None:
        """Read what ``plan`` asks for under the proc directory ``root``.

        ``tell`` takes a line for the journal, its key and its value; orphans become children of ``reaper``; ``exits``
        tells of processes that have ended.
        """
        self.columns = plan.columns
        """In the order of the values of a sample; a metric of devices becomes a column of each at the start."""
        wanted = list(map(resolved, references(plan.columns)))
        process_probes = [probe for probe in wanted if probe.kind == PROCESS]
        self._probes = [probe(slot) for slot, probe in enumerate(process_probes)]
        self._slow = [probe() for probe in wanted if probe.kind == SLOW]
        self._system_probes = [probe for probe in wanted if probe.kind == SYSTEM]
        self._system: list[SystemProbe] = []
        self._order: list[int] = []
        self._from_now = plan.pid is not None
        self._counters = Counters([], from_now=False)
        self._tree = Tree(root, [probe.file for probe in process_probes], reaper=reaper, children=plan.children)
        self._roster = Roster(self._tree, tell, reaper=reaper, accounting=exits is not None)
        self._exits = exits
        self._root = root
        self._tell = tell
        self._young: list[tuple[float, Process]] = []
        self._details_at_s = 0.0
        self._warned = False

    def start(self, pid: int) -> bool:
        """Make ``pid`` the root of the tree; return whether it is there."""
        self._tree.allowance.below = _most_kept()
        self._system = [probe(self._root, pid) for probe in self._system_probes]
        given = [column for probe in [*self._probes, *self._slow, *self._system] for column in columns_of(probe)]
        self.columns = [column for name in self.columns for column in given if name in {column, metric_name(column)}]
        self._order = list(map(given.index, self.columns))
        self._counters = Counters(self.columns, from_now=self._from_now)
        root = self._tree.add(pid)
        if root is not None:
            self._roster.introduce(root, 0.0)
            self._young = [(0.0, root)]
        return root is not None

    def sample(self, now_s: float) -> Sequence[float | None]:
        """Return one value per column; ``now_s`` is the time since the session's start."""
        self._settle(now_s)
        self._look(now_s)
        if self._tree.allowance.ran_out and not self._warned:
            self._warned = True
            self._tell("warning", "too many processes for the limit of open files: some are left out of the figures")
        row = self._read()
        if now_s >= self._details_at_s:
            self._details_at_s = now_s + DETAILS_EVERY_S
            self._read_details()
        ended = [process for process in self._tree.processes if not (process.rss and process.alive)]
        if ended:
            self._drain(now_s)  # the kernel has told of them by now
        for process in ended:
            if not process.alive:
                self._forget(process, now_s)
        return row

    def _settle(self, now_s: float) -> None:
        """Take as what they are those that were found at least one sample ago."""
        still_young = []
        for found_s, process in self._young:
            if now_s - found_s < _TWO_SAMPLES_S or not (process.counted or self._has_own_memory(process)):
                still_young.append((found_s, process))
                continue
            self._roster.identify(process)
            if process.is_beside:
                self._roster.leave_out(process)
            elif process.is_named or now_s - found_s >= DETAILS_EVERY_S:
                process.counted = True
            else:  # in the midst of exec: whose it is, is not known yet
                still_young.append((found_s, process))
        self._young = still_young

    def _has_own_memory(self, process: Process) -> bool:
        """Return False for a child of vfork(2), however long a busy machine keeps it from exec."""
        above = process.parent
        return self._root != PROC or above is None or not address_space.shared(process.pid, above.pid)

    def _look(self, now_s: float) -> None:
        """Find new descendants; they may still have their parent's name."""
        found = self._tree.refresh()
        for process in found:
            process.counted = process.is_named and not process.forked_copy and self._has_own_memory(process)
            self._roster.introduce(process, now_s)
        self._young += [(now_s, process) for process in found]

    def _read(self) -> list[float | None]:
        values: list[float | None] = []
        for probe in self._probes:
            values += probe.read(self._tree.processes)
        for slow in self._slow:
            values += slow.read(self._tree.processes)
        for system in self._system:
            values += system.read()
        row = [values[place] for place in self._order]
        self._counters.settle(row)
        return row

    def _read_details(self) -> None:
        """Read what changes seldom: the high-water mark, and the name after an exec."""
        for process in self._tree.processes:
            if process.counted:
                self._roster.weigh(process)
                self._roster.identify(process)

    def each(self) -> dict[int, int]:
        """Return the RSS of every process at the last sample, in bytes, by number."""
        return {
            process.number: process.rss * PAGE for process in self._tree.processes if process.rss and process.counted
        }

    def account(self, now_s: float) -> None:
        """Take what the kernel has told of processes that ended, if any did."""
        if self._tree.stir():
            self._drain(now_s)

    def _drain(self, now_s: float) -> None:
        if self._exits is not None:
            self._roster.account(self._exits.read(), now_s)

    def retire(self, pid: int, now_s: float) -> None:
        """Read a child of ours that has ended and is still to be reaped for the last time."""
        process = self._tree.get(pid)
        if process is None:
            process = self._tree.add(pid)
            if process is None:
                return
            if process.is_beside:
                self._tree.remove(process)
                return
            self._roster.introduce(process, now_s)
        for probe in self._probes:
            probe.retire(process)

    def ended(self, pid: int, now_s: float, status: ExitStatus, high_water_limit: int | None) -> None:
        """Take a child of ours that was reaped out of the tree."""
        self._drain(now_s)
        process = self._tree.get(pid)
        if process is not None:
            self._forget(process, now_s, status, high_water_limit)

    def _forget(
        self,
        process: Process,
        now_s: float,
        status: ExitStatus | None = None,
        high_water_limit: int | None = None,
    ) -> None:
        self._tree.remove(process)
        self._roster.forget(process, now_s, status, high_water_limit)

    def totals(self) -> Sequence[float | None]:
        """Return one value per column: the counters' totals, also of those that have ended; None for gauges."""
        return self._counters.only(self._read())

    def is_empty(self, now_s: float) -> bool:
        """Return whether no process of the tree is left."""
        self._look(now_s)
        return not any(_runs(process) for process in self._tree.processes)

    def alive(self, now_s: float) -> list[int]:
        """Return the PIDs of the processes that run."""
        self.account(now_s)
        self._look(now_s)
        return [process.pid for process in self._tree.processes if _runs(process)]

    def close(self, now_s: float) -> None:
        """Tell the last figures of all processes; those that still run have no end."""
        self._look(now_s)
        self._drain(now_s)
        self._read_details()
        for process in self._tree.processes:  # one that was just found may have its parent's name
            self._roster.identify(process)
        for process in list(self._tree.processes):
            if _runs(process):
                self._roster.last(process)
            else:
                self._forget(process, now_s)
        self._roster.close()


def _most_kept() -> int:
    """Return the number from which on descriptors are not kept open."""
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else max(0, soft - RESERVE)


def _runs(process: Process) -> bool:
    """Return whether a process is neither gone nor a zombie."""
    try:
        return process.read("stat").rpartition(b")")[2].split(None, 1)[0] not in b"ZX"
    except OSError as error:
        return error.errno in NONE_LEFT  # it may
    except IndexError:
        return False
