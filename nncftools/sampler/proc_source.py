"""Linux: the figures of a process tree, from files of ``/proc`` that are kept open.

- ``ProcSource`` follows the processes, decides which processes count, and writes facts to the journal.
- ``Rows`` makes rows of figures.
- ``Schedule``: when other work than sampling is due.
- ``Stillness``: whether nothing has changed since a sample. The files of ``/proc`` are read in any case; if all bytes
  are equal, all figures are equal, and no further code runs. This halves the cost of a tree that sleeps or waits: at 10
  ms, the CPU's caches have lost the code since the last sample, so the cost depends on the amount of code.
"""

from __future__ import annotations

import os
import time

from nncftools.journal.writing import Counters, format_span
from nncftools.metrics import name_of as metric_name
from nncftools.sampler import tree
from nncftools.sampler.control_groups import LimitWatch
from nncftools.sampler.probes import OCCASIONAL, PROCESS, SLOW, SYSTEM
from nncftools.sampler.probes.machine import FreeSpace
from nncftools.sampler.probes.process import Stat
from nncftools.sampler.process_records import FilesRead, Floor, HeldAtMarks, HighWaterMarks, ProcessRecords
from nncftools.sampler.tree import NONE_LEFT, PAGE, RESERVE, TICKS_PER_S, Tree, split_stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from nncftools.journal.reading import ExitStatus
    from nncftools.journal.writing import Plan
    from nncftools.sampler.tree import Process, WriteLine

PROC = "/proc"
_DETAILS_EVERY_S = 1.0
"""How often the names and the high-water marks of all processes are read: that takes 20 µs a process."""
_OCCASIONAL_EVERY_S = 1.0
_AFTER_END_S = 0.25
"""After the end of a process, occasional probes are read this soon, and at most this often."""
_TWO_SAMPLES_S = 0.0009
"""A process is judged only after this time: two samples for marks may be so close that a child of vfork(2) has not
reached exec.
"""
_LATE_S = 0.001
"""A sample that takes longer, on a busy machine or with many processes, may show memory of a later time."""
_EXEC_WITHIN_S = 0.03
"""A younger forked copy is not counted yet, because exec usually follows fork immediately."""


class Schedule:
    """The queue of work that is not due at each sample.

    Each function gets the current time, and returns the time of the next call.
    """

    next_s = 0.0
    """The time when the next work is due."""

    def __init__(self, *works: Callable[[float], float]) -> None:
        """Plan all ``works`` for now; they are done in this order when several are due."""
        self._due_s = dict.fromkeys(works, 0.0)

    def is_due(self, work: Callable[[float], float], now_s: float) -> bool:
        """Return whether ``run`` would do this work."""
        return now_s >= self._due_s[work]

    def hasten(self, work: Callable[[float], float], at_s: float) -> None:
        """Plan work for a time, unless the work is due earlier."""
        self._due_s[work] = min(at_s, self._due_s[work])
        self.next_s = min(at_s, self.next_s)

    def run(self, now_s: float) -> None:
        """Do all work that is due."""
        for work, at_s in self._due_s.items():
            if now_s >= at_s:
                self._due_s[work] = work(now_s)
        self.next_s = min(self._due_s.values())


class Stillness:
    """The content of each file of a tree at the last sample, as long as no change is expected."""

    _changes = 0

    def __init__(self) -> None:
        self._expected: list[tuple[int, int, bytes]] = []

    def expect(self, processes: Sequence[Process], tree: Tree) -> None:
        """Expect that no file of ``processes`` changes; these are all processes of ``tree``, or none."""
        self._changes = tree.changes
        self._expected = []
        for process in processes:
            for file, data in zip(process.files, process.data, strict=True):
                if file < 0 or not data:  # the file cannot be read
                    self._expected = []
                    return
                self._expected.append((file, len(data) + 1, data))

    def lasts(self, tree: Tree) -> bool:
        """Read the files again; return whether everything is as expected."""
        if not self._expected or tree.changes != self._changes:
            return False
        pread = os.pread
        try:
            for file, size, data in self._expected:
                if pread(file, size, 0) != data:
                    return False
        except OSError:  # a process is gone
            return False
        return True


class Rows:
    """Makes rows, with a value per column, from the values of all probes."""

    def __init__(self, probes: Sequence[Any], plan: Plan, pid: int, root: str) -> None:
        """Make objects of the classes ``probes``, for the columns of ``plan`` and the command ``pid``."""
        process_probes = [probe for probe in probes if probe.kind == PROCESS]
        self.files = [probe.file for probe in process_probes]
        """The files of each process to keep open, in the order of ``of_processes``."""
        self.of_processes = [probe(slot) for slot, probe in enumerate(process_probes)]
        self._slow = [probe(plan.slow_share) for probe in probes if probe.kind == SLOW]
        self._system = [probe(root, pid) for probe in probes if probe.kind == SYSTEM]
        self.occasional = [probe(root, pid, plan) for probe in probes if probe.kind == OCCASIONAL]
        self._seldom = _list_columns(self.occasional)
        columns = _list_columns([*self.of_processes, *self._slow, *self._system]) + self._seldom
        self.columns: list[str] = []
        """The columns in the order of the values of a row; a metric of devices becomes a column per device."""
        for name in plan.columns:
            self.columns += [column for column in columns if name in {column, metric_name(column)}]
        self._order = list(map(columns.index, self.columns))
        self._unread = [None] * len(self._seldom)
        self._counters = Counters(self.columns, from_now=plan.pid is not None, besides=self._seldom)
        self.values: list[float | None] = []
        """The last values of the process probes."""
        self._row: list[float | None] = []

    def read(self, processes: Sequence[Process]) -> list[float | None]:
        """Read the processes; return a row without values of occasional probes."""
        self.values = []
        for probe in self.of_processes:
            self.values += probe.read(processes)
        return self._make(processes)

    def repeat(self, processes: Sequence[Process]) -> list[float | None]:
        """Return a row for processes that have not changed since the last row."""
        return self._make(processes) if self._slow or self._system else self._row

    def _make(self, processes: Sequence[Process]) -> list[float | None]:
        values = [*self.values]
        for slow in self._slow:
            values += slow.read(processes)
        for system in self._system:
            values += system.read()
        values += self._unread
        self._row = row = [values[position] for position in self._order]
        self._counters.settle(row)
        return row

    def with_occasional(self, row: Sequence[float | None], *, thorough: bool) -> list[float | None]:
        """Read the occasional probes; return a row with their values."""
        values = dict(zip(self.columns, row, strict=True))
        seldom: list[float | None] = []
        for probe in self.occasional:
            seldom += probe.read(thorough=thorough)
        for column, value in zip(self._seldom, seldom, strict=True):
            if column in values:
                values[column] = value
        return list(values.values())


def _list_columns(probes: Sequence[Any]) -> list[str]:
    """Return the columns of probes: their metrics, or a column for each device."""
    columns: list[str] = []
    for probe in probes:
        columns += getattr(probe, "columns", probe.metrics)
    return columns


class ProcSource:
    """Reads a row of figures per sample, and records the facts of single processes in the journal."""

    _sampled_s = 0.0
    """The time when the previous sample began."""
    _has_ended = False
    _has_warned = False

    def __init__(  # noqa: PLR0913 — a name for each argument
        self,
        plan: Plan,
        pid: int,
        probes: Sequence[Any],
        write_line: WriteLine,
        *,
        reaper: int | None,
        begun_s: float,
        root: str = PROC,
    ) -> None:
        """Follow ``pid`` under the proc directory ``root``; orphans become children of ``reaper``.

        ``begun_s`` is when the recording began, in seconds since the machine's start: before the command.
        """
        self._rows = Rows(probes, plan, pid, root)
        self.columns = self._rows.columns
        stats = (probe for probe in self._rows.of_processes if isinstance(probe, Stat))
        self._stat = next(stats, Stat(0))
        self._free_space = [probe for probe in self._rows.occasional if isinstance(probe, FreeSpace)]
        self._read_chars = self.columns.index("read_chars") if "read_chars" in self.columns else None
        self._root = root
        self._write_line = write_line
        self.tree = Tree(root, self._rows.files, reaper=reaper, children=plan.children)
        """The processes of the run."""
        self.tree.common.below = os.sysconf("SC_OPEN_MAX") - RESERVE
        self._records = ProcessRecords(self.tree, write_line, begun_s)
        self._marks = HighWaterMarks(write_line)
        self._at_marks = HeldAtMarks(write_line)
        self._floor = Floor(write_line)
        self._files = FilesRead(write_line)
        self._limits = LimitWatch(root, write_line)
        self._schedule = Schedule(self._look_at_limits, self._read_seldom, self._write_details)
        self._still = Stillness()
        self._row: list[float | None] = []
        self._young: list[tuple[float, Process]] = []
        """Processes that may not have exec'd yet, with the times when they were found."""
        self._just_counted: list[Process] = []
        process = self.tree.add(pid)
        if process is not None:
            self._records.add(process)
            self._count(process, 0.0)
            self._young = [(0.0, process)]

    def sample(self, now_s: float, *, for_mark: bool = False) -> Sequence[float | None]:
        """Return a value per column; ``now_s`` is the time since the session's start.

        ``for_mark``: an operation has begun or ended, so the high-water marks of all processes are read, and the memory
        of each process is recorded.
        """
        begun_s = time.monotonic()
        if for_mark:
            self._at_marks.begin(self.tree.processes)
        if self._young:
            self._settle(now_s)
        self._look(now_s)
        if now_s < self._schedule.next_s and not for_mark and self._still.lasts(self.tree):
            self.tree.common.samples += 1
            self._row = self._rows.repeat(self.tree.processes)
        else:
            values = self._rows.values
            self._take(now_s, begun_s, for_mark=for_mark)
            is_restless = values != self._rows.values or self._marks.unread or self._young or self._files.is_due
            self._still.expect([] if is_restless else self.tree.processes, self.tree)
        self._sampled_s = now_s
        return self._row

    def _take(self, now_s: float, begun_s: float, *, for_mark: bool) -> None:
        """Take a sample that may differ from the last sample."""
        if self.tree.common.ran_out and not self._has_warned:
            self._has_warned = True
            text = "too many processes for the limit of open files: some are left out of the figures"
            self._write_line("warning", text)
        self._row = self._rows.read(self.tree.processes)
        self.tree.common.samples += 1
        read_s = now_s
        passed_s = time.monotonic() - begun_s
        if passed_s > _LATE_S:
            read_s += passed_s
            self._write_line("late", format_span(now_s, read_s))
        for process in self._just_counted:
            process.first_rss = process.rss
        self._just_counted.clear()
        for process in list(self.tree.processes):
            if not process.alive:
                self._remove(process, read_s)
        if self._read_chars is not None:
            self._files.watch(self._row[self._read_chars] or 0, self.tree.processes)
        self._read_memory(now_s, begun_s, for_mark=for_mark)
        if now_s >= self._schedule.next_s:
            self._schedule.run(now_s)

    def _read_memory(self, now_s: float, begun_s: float, *, for_mark: bool) -> None:
        """Read more of the processes that had page faults: high-water marks, kinds of memory, limits."""
        processes = self.tree.processes
        restless = self._stat.restless
        all_marks = for_mark or self._schedule.is_due(self._write_details, now_s)
        self._marks.read(processes, restless, (self._sampled_s, now_s, begun_s), reads_all=all_marks)
        if for_mark:
            vforked = [process for _, process in self._young if not self._has_own_memory(process)]
            self._at_marks.write(processes, vforked, (self._sampled_s, now_s))
        for process in restless:
            self._records.note_exec(process, self._sampled_s, now_s + time.monotonic() - begun_s)
        self._floor.read(processes, restless, now_s)
        for process in self._limits.look(restless):
            self._records.update_identity(process)

    def _look_at_limits(self, now_s: float) -> float:
        return self._limits.look_again(self.tree.processes, now_s)

    def _read_seldom(self, now_s: float) -> float:
        """Read the occasional probes; thoroughly after the end of a process: the kernel may have killed the process."""
        self._write_surroundings(now_s)
        self._row = self._rows.with_occasional(self._row, thorough=self._has_ended)
        self._has_ended = False
        return now_s + _OCCASIONAL_EVERY_S

    def _write_surroundings(self, now_s: float, *, at_end: bool = False) -> None:
        """Write how many processes the kernel killed, and how much room is left on disks."""
        self._limits.check(now_s)
        for probe in self._free_space:
            for line in probe.lines(always=at_end):
                self._write_line("file_system", line)

    def _write_details(self, now_s: float) -> float:
        for process in self.tree.processes:
            if process.counted:
                self._records.update_high_water_mark(process)
                self._records.update_identity(process)
        return now_s + _DETAILS_EVERY_S

    def _settle(self, now_s: float) -> None:
        """Decide about the processes that were found at least a sample ago: count them, or leave them out."""
        still_young = []
        for found_s, process in self._young:
            if now_s - found_s < _TWO_SAMPLES_S or not (process.counted or self._has_own_memory(process)):
                still_young.append((found_s, process))
                continue
            self._records.update_identity(process)
            if process.is_detached_sampler:
                self._records.discard(process)
            elif process.is_named or now_s - found_s >= _DETAILS_EVERY_S:
                self._count(process, now_s)
            else:  # during exec: the process may be a detached sampler
                still_young.append((found_s, process))
        self._young = still_young

    def _has_own_memory(self, process: Process) -> bool:
        """Return False for a child of vfork(2), however long a busy machine delays exec."""
        parent = process.parent
        return self._root != PROC or parent is None or not tree.share_memory(process.pid, parent.pid)

    def _look(self, now_s: float) -> None:
        """Find new descendants; they may still have the names of their parents."""
        for process in self.tree.refresh():
            process.counted = False
            # The kernel rounds the start down to a tick: the process is at least this old.
            age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - (process.started_ticks + 1) / TICKS_PER_S
            has_exec = process.is_named and (not process.forked_copy or age_s >= _EXEC_WITHIN_S)
            # A child of vfork(2) may exec after its name was read, and then has memory: read the name again.
            if has_exec and self._has_own_memory(process) and not process.identify():
                self._count(process, now_s)
            self._records.add(process)
            self._young.append((now_s, process))

    def _count(self, process: Process, now_s: float) -> None:
        """Include the memory of a process in the sums from now on."""
        process.counted = True
        process.forget()
        self._marks.unread[process] = None
        if process.counted_s is None:
            process.counted_s = now_s
            self._just_counted.append(process)

    def each(self) -> dict[int, int]:
        """Return the RSS of every process at the last sample, in bytes, by number."""
        processes = self.tree.processes
        return {process.number: process.rss * PAGE for process in processes if process.rss and process.counted}

    def retire(self, pid: int) -> None:
        """Read a child of ours for the last time, after the end and before the child is reaped."""
        process = self.tree.by_pid.get(pid)
        if process is None:
            process = self.tree.add(pid)
            if process is None:
                return
            self._records.add(process)
        rss = process.rss
        faults = process.faults
        for probe in self._rows.of_processes:
            probe.retire(process)
        process.rss = rss  # memory taken since then is not in any sample
        process.faults = faults

    def ended(self, pid: int, now_s: float, status: ExitStatus, high_water_limit: int | None) -> None:
        """Remove a reaped child of ours from the tree."""
        process = self.tree.by_pid.get(pid)
        if process is not None:
            self._remove(process, now_s, status, high_water_limit)

    def _remove(
        self, process: Process, now_s: float, status: ExitStatus | None = None, high_water_limit: int | None = None
    ) -> None:
        self.tree.remove(process)
        self._records.write_end(process, now_s, status, high_water_limit)
        self._floor.ended(process)
        self._limits.ended(process)
        self._has_ended = True
        self._schedule.hasten(self._read_seldom, now_s + _AFTER_END_S)

    def alive(self, now_s: float) -> list[int]:
        """Return the PIDs of the running processes."""
        self._look(now_s)
        return [process.pid for process in self.tree.processes if _is_running(process)]

    def close(self, now_s: float) -> Sequence[float | None]:
        """Record the last figures of all processes; processes that still run have no end.

        Return a value per column; totals of counters include ended processes.
        """
        totals = self._rows.with_occasional(self._rows.read(self.tree.processes), thorough=True)
        self._look(now_s)
        restless = self._stat.restless
        times_s = (self._sampled_s, now_s, time.monotonic())
        self._marks.read(self.tree.processes, restless, times_s, reads_all=True)
        self._write_details(now_s)
        for process in list(self.tree.processes):
            self._records.update_identity(process, at_end=True)  # a new process may still have the parent's name
            if _is_running(process):
                self._records.write_figures(process)
            else:
                self._remove(process, now_s)
        self._floor.close(self.tree.processes, now_s)
        self._files.write()
        self._write_surroundings(now_s, at_end=True)
        for probe in self._free_space:
            probe.close()
        return totals


def _is_running(process: Process) -> bool:
    try:
        return split_stat(process.read("stat"))[0] not in b"ZX"
    except OSError as error:
        return error.errno in NONE_LEFT  # unknown: the process may run
    except IndexError:
        return False
