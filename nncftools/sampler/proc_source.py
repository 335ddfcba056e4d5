"""Linux: the figures of a process tree, from files of ``/proc`` that are kept open.

- ``ProcSource`` follows the processes, decides which processes are part of the sums, and writes facts to the journal.
- ``Rows`` makes rows of figures.
- ``Schedule`` calls the functions that do not run at each sample.
- ``Stillness`` finds out whether anything has changed since the last sample. The files of ``/proc`` are read at each
  sample. If all bytes are equal, all figures are equal, and the sample runs no further code. This halves the cost of a
  tree that sleeps or waits: at an interval of 10 ms, the CPU's caches have lost the code since the last sample, so the
  cost depends on the amount of code.
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
"""The names and the high-water marks of all processes are read at this interval. This takes 20 µs a process."""
_OCCASIONAL_EVERY_S = 1.0
_AFTER_END_S = 0.25
"""When a process has ended, the occasional probes (free space, killed processes) are read after this pause. If more
processes end during the pause, the probes are still read only once.
"""
_TWO_SAMPLES_S = 0.0009
"""A new process must have this age before the sampler decides whether to include its memory in the sums. Marked
operations can cause two samples within a shorter time, in which a child of vfork(2) may not reach exec.
"""
_LATE_S = 0.001
"""If a sample takes longer, the journal notes the delay, because the memory was read later than the time of the sample.
Causes are a busy machine, or many processes.
"""
_EXEC_WITHIN_S = 0.03
"""A forked copy is not counted before this age, because exec usually follows fork immediately."""


class Schedule:
    """Calls the functions that do not run at each sample. Times are seconds since the start of the recording.

    Each function gets the current time, and returns the time of the next call.
    """

    next_s = 0.0
    """The time at which the next function is due."""

    def __init__(self, *works: Callable[[float], float]) -> None:
        """Plan a first call of each function for now. If several functions are due, they run in this order."""
        self._due_s = dict.fromkeys(works, 0.0)

    def is_due(self, work: Callable[[float], float], now_s: float) -> bool:
        """Return whether the function ``work`` is due at the time ``now_s``."""
        return now_s >= self._due_s[work]

    def hasten(self, work: Callable[[float], float], at_s: float) -> None:
        """Plan a call of ``work`` for the time ``at_s``, unless an earlier call is already planned."""
        self._due_s[work] = min(at_s, self._due_s[work])
        self.next_s = min(at_s, self.next_s)

    def run(self, now_s: float) -> None:
        """Call all functions that are due."""
        for work, at_s in self._due_s.items():
            if now_s >= at_s:
                self._due_s[work] = work(now_s)
        self.next_s = min(self._due_s.values())


class Stillness:
    """Keeps the content of a tree's ``/proc`` files, to find out whether the next sample equals the last sample."""

    _changes = 0

    def __init__(self) -> None:
        self._expected: list[tuple[int, int, bytes]] = []

    def expect(self, processes: Sequence[Process], tree: Tree) -> None:
        """Keep the content of the files of ``processes``, for comparison at the next sample.

        ``processes`` are all processes of ``tree``, or none if a change is expected.
        """
        self._changes = tree.changes
        self._expected = []
        for process in processes:
            for file, data in zip(process.files, process.data, strict=True):
                if file < 0 or not data:  # the file cannot be read
                    self._expected = []
                    return
                self._expected.append((file, len(data) + 1, data))

    def lasts(self, tree: Tree) -> bool:
        """Read the files again; return whether the files and the tree are unchanged. False if no content was kept."""
        if not self._expected or tree.changes != self._changes:
            return False
        pread = os.pread
        try:
            for file, size, data in self._expected:
                if pread(file, size, 0) != data:
                    return False
        except OSError:  # the process is gone
            return False
        return True


class Rows:
    """Makes rows of figures from the values of all probes. A row has a value for each column."""

    def __init__(self, probes: Sequence[Any], plan: Plan, pid: int, root: str) -> None:
        """Create a probe from each class in ``probes``, for the columns of ``plan`` and the command ``pid``."""
        process_probes = [probe for probe in probes if probe.kind == PROCESS]
        self.files = [probe.file for probe in process_probes]
        """The names of the files that are kept open for each process, in the order of the probes in ``of_processes``.
        """
        self.of_processes = [probe(slot) for slot, probe in enumerate(process_probes)]
        self._slow = [probe(plan.slow_share) for probe in probes if probe.kind == SLOW]
        self._system = [probe(root, pid) for probe in probes if probe.kind == SYSTEM]
        self.occasional = [probe(root, pid, plan) for probe in probes if probe.kind == OCCASIONAL]
        self._seldom = _list_columns(self.occasional)
        columns = _list_columns([*self.of_processes, *self._slow, *self._system]) + self._seldom
        self.columns: list[str] = []
        """The columns of a row, in the order of the values. A metric of devices has a column for each device."""
        for name in plan.columns:
            self.columns += [column for column in columns if name in {column, metric_name(column)}]
        self._order = list(map(columns.index, self.columns))
        self._unread = [None] * len(self._seldom)
        self._counters = Counters(self.columns, from_now=plan.pid is not None, besides=self._seldom)
        self.values: list[float | None] = []
        """The values of the process probes at the last reading."""
        self._row: list[float | None] = []

    def read(self, processes: Sequence[Process]) -> list[float | None]:
        """Read the processes; return a row. The values of occasional probes are None in this row."""
        self.values = []
        for probe in self.of_processes:
            self.values += probe.read(processes)
        return self._make(processes)

    def repeat(self, processes: Sequence[Process]) -> list[float | None]:
        """Return a row for processes that have not changed since the last row. Read slow and system probes again."""
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
        """Read the occasional probes; return a copy of the row with the values of these probes."""
        values = dict(zip(self.columns, row, strict=True))
        seldom: list[float | None] = []
        for probe in self.occasional:
            seldom += probe.read(thorough=thorough)
        for column, value in zip(self._seldom, seldom, strict=True):
            if column in values:
                values[column] = value
        return list(values.values())


def _list_columns(probes: Sequence[Any]) -> list[str]:
    """Return the columns of all probes: a column for each metric, or for each device of the probe."""
    columns: list[str] = []
    for probe in probes:
        columns += getattr(probe, "columns", probe.metrics)
    return columns


class ProcSource:
    """Reads a row of figures at each sample, and writes the facts of each process to the journal."""

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
        """Follow the process ``pid`` in the proc directory ``root``. Orphans become children of the process ``reaper``.

        ``begun_s`` is the start of the recording, in seconds since the boot of the machine. The recording starts before
        the command.
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
        """Pairs ``(found_s, process)`` for processes that have possibly not called exec yet. ``found_s`` is the time
        when the process was found.
        """
        self._just_counted: list[Process] = []
        process = self.tree.add(pid)
        if process is not None:
            self._records.add(process)
            self._count(process, 0.0)
            self._young = [(0.0, process)]

    def sample(self, now_s: float, *, for_mark: bool = False) -> Sequence[float | None]:
        """Return a value for each column. ``now_s`` is the time since the session's start.

        ``for_mark`` means that an operation has begun or ended. In this case, also read the high-water marks of all
        processes, and record the memory of each process.
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
        """Take a full sample, because figures may have changed since the last sample."""
        if self.tree.common.ran_out and not self._has_warned:
            self._has_warned = True
            text = "some processes are left out of the figures: the limit of open files is too low (ulimit -n)"
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
        """Read more about the processes that had page faults: high-water marks, kinds of memory, exec and limits."""
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
        """Read the occasional probes (free space, killed processes); return the time of the next call.

        If a process has ended, also read the numbers of killed processes, because the kernel may have killed it.
        """
        self._write_surroundings(now_s)
        self._row = self._rows.with_occasional(self._row, thorough=self._has_ended)
        self._has_ended = False
        return now_s + _OCCASIONAL_EVERY_S

    def _write_surroundings(self, now_s: float, *, at_end: bool = False) -> None:
        """Write how many processes the kernel has killed, and how much space is left on disks."""
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
        """Decide about each new process: include its memory in the sums, leave the process out, or wait until exec."""
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
            else:  # a process during exec has no command line, and may be a detached sampler
                still_young.append((found_s, process))
        self._young = still_young

    def _has_own_memory(self, process: Process) -> bool:
        """Return whether a process has memory of its own. A child of vfork(2) has none until exec."""
        parent = process.parent
        return self._root != PROC or parent is None or not tree.share_memory(process.pid, parent.pid)

    def _look(self, now_s: float) -> None:
        """Find new descendants. A new descendant may still have the name of the parent."""
        for process in self.tree.refresh():
            process.counted = False
            # The kernel rounds the start down to a tick, so a tick is added: the process is at least this old.
            age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - (process.started_ticks + 1) / TICKS_PER_S
            has_exec = process.is_named and (not process.forked_copy or age_s >= _EXEC_WITHIN_S)
            # A child of vfork(2) may call exec after its name was read, and then has memory: read the name again.
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
        """Return ``{id of the process in the journal: RSS in bytes}`` at the last sample."""
        processes = self.tree.processes
        return {process.number: process.rss * PAGE for process in processes if process.rss and process.counted}

    def retire(self, pid: int) -> None:
        """Read the files of an ended child for the last time, before the child is reaped."""
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
        process.rss = rss  # no sample contains the memory that the process took since the last sample
        process.faults = faults

    def ended(self, pid: int, now_s: float, status: ExitStatus, high_water_limit: int | None) -> None:
        """Remove a reaped child from the tree, and record the end."""
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
        """Record the memory and CPU time of all processes for the last time; return a value for each column.

        A process that still runs is recorded without an end. The counters include ended processes.
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
        return error.errno in NONE_LEFT  # the state is unknown: the process may run
    except IndexError:
        return False
