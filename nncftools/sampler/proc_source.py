"""Linux: the figures of a process tree, from files of ``/proc`` that are kept open."""

from __future__ import annotations

import sys
import time

from nncftools.journal.writing import span
from nncftools.metrics import name_of as metric_name
from nncftools.sampler import tree
from nncftools.sampler.control_groups import LimitWatch
from nncftools.sampler.high_water_marks import Floor, HeldAtMarks, HighWaterMarks
from nncftools.sampler.loop import Counters, Stillness
from nncftools.sampler.occasional import FilesRead, Occasional
from nncftools.sampler.probes import OCCASIONAL, PROCESS, SLOW, SYSTEM, columns_of, references, resolved
from nncftools.sampler.probes.process import Stat
from nncftools.sampler.process_records import ProcessRecords
from nncftools.sampler.tree import NONE_LEFT, PAGE, RESERVE, TICKS_PER_S, Tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from nncftools.journal.reading import ExitStatus
    from nncftools.journal.writing import Plan
    from nncftools.sampler.tree import Process, WriteLine

PROC = "/proc"
DETAILS_EVERY_S = 1.0
"""How often the names and the high-water marks of all processes are read: that takes 20 µs a process."""
_SOMETIMES_EVERY_S = 0.1
_TWO_SAMPLES_S = 0.0009
"""Samples for marks may be closer than any interval, and closer than vfork(2) is to exec."""
_LATE_S = 0.001
"""A sample that takes longer to read, on a busy machine or of many processes, may show what came after its time."""
_EXEC_WITHIN_S = 0.03
"""A forked copy that has lived this long is counted when it is found: usually, exec follows fork at once."""


class ProcSource:
    """Reads one row of figures per sample, and records the facts of single processes in the journal."""

    def __init__(self, plan: Plan, write_line: WriteLine, *, reaper: int | None, root: str = PROC) -> None:
        """Read the columns of ``plan`` under the proc directory ``root``; orphans become children of ``reaper``."""
        self.columns = plan.columns
        """In the order of the values of a sample; at the start, a metric of devices becomes one column per device."""
        wanted = list(map(resolved, references(plan.columns)))
        process_probes = [probe for probe in wanted if probe.kind == PROCESS]
        self._probes = [probe(slot) for slot, probe in enumerate(process_probes)]
        self._stat = next((probe for probe in self._probes if isinstance(probe, Stat)), None)
        self._slow = [probe(plan.slow_share) for probe in wanted if probe.kind == SLOW]
        self._system_probes = [probe for probe in wanted if probe.kind == SYSTEM]
        occasional = [probe for probe in wanted if probe.kind == OCCASIONAL]
        self._limits = LimitWatch(root, write_line)
        self._occasional = Occasional(occasional, root, plan, self._limits, write_line)
        self._unread: list[None] = []
        self._floor = Floor(write_line)
        self._files = FilesRead(write_line)
        self._read_chars: int | None = None
        """The position of this column in a row."""
        self._system: list[Any] = []
        self._order: list[int] = []
        self._values: list[float | None] = []
        """What the process probes returned last."""
        self._row: list[float | None] = []
        self._still = Stillness()
        self._due_s = 0.0
        """Until then, there is nothing to do but sampling, as long as nothing changes."""
        self._from_now = plan.pid is not None
        self._counters = Counters([], from_now=False)
        self.tree = Tree(root, [probe.file for probe in process_probes], reaper=reaper, children=plan.children)
        """The processes of the run."""
        self._marks = HighWaterMarks(write_line)
        self._records = ProcessRecords(self.tree, write_line)
        self._root = root
        self._write_line = write_line
        self._at_marks = HeldAtMarks(write_line)
        self._sampled_s = 0.0
        """When the sample before began."""
        self._young: list[tuple[float, Process]] = []
        self._just_counted: list[Process] = []
        self._sometimes_s = 0.0
        self._details_at_s = 0.0
        self._warned = False

    def start(self, pid: int) -> bool:
        """Make ``pid`` the root of the tree; return whether it exists."""
        self.tree.allowance.below = _most_kept()
        self._system = [probe(self._root, pid) for probe in self._system_probes]
        self._occasional.start(pid)
        each = [*self._probes, *self._slow, *self._system]
        given = [column for probe in each for column in columns_of(probe)] + self._occasional.columns
        self.columns = [column for name in self.columns for column in given if name in {column, metric_name(column)}]
        self._order = list(map(given.index, self.columns))
        self._unread = [None] * len(self._occasional.columns)
        self._read_chars = self.columns.index("read_chars") if "read_chars" in self.columns else None
        self._counters = Counters(self.columns, from_now=self._from_now, besides=self._occasional.columns)
        root = self.tree.add(pid)
        if root is not None:
            self._records.add(root)
            self._count(root, 0.0)
            self._young = [(0.0, root)]
        return root is not None

    def sample(self, now_s: float, *, for_mark: bool = False) -> Sequence[float | None]:
        """Return one value per column; ``now_s`` is the time since the session's start.

        ``for_mark``: an operation has begun or ended, so the high-water marks of all processes are read, and what each
        process holds is recorded.
        """
        begun_s = time.monotonic()
        if for_mark:
            self._at_marks.begin(self.tree.processes)
        if self._young:
            self._settle(now_s)
        self._look(now_s)
        if now_s < self._due_s and not for_mark and self._still.lasts(now_s):
            self._sampled_s = now_s
            return self._make_row() if self._slow or self._system else self._row
        self._wake()
        before = self._values
        row = self._take(now_s, begun_s, for_mark=for_mark)
        if before == self._values and not (self._marks.unread or self._young):
            read = [(process.files, process.data) for process in self.tree.processes]
            self._still.expect([pair for files, data in read for pair in zip(files, data, strict=True)])
            self._due_s = self._next_due_s(row)
        self._sampled_s = now_s
        return row

    def _take(self, now_s: float, begun_s: float, *, for_mark: bool) -> list[float | None]:
        """Take a sample in which something may have changed."""
        if self.tree.allowance.ran_out and not self._warned:
            self._warned = True
            text = "too many processes for the limit of open files: some are left out of the figures"
            self._write_line("warning", text)
        row = self._read()
        read_s = _present_s(now_s, begun_s)
        if read_s > now_s:
            self._write_line("late", span(now_s, read_s))
        if now_s >= self._sometimes_s:
            row = self._sometimes(row, now_s)
        for process in self._just_counted:
            process.first_rss = process.rss
        self._just_counted.clear()
        self._remove_ended(read_s)
        has_details = now_s >= self._details_at_s
        restless = self._read_marks(now_s, begun_s, whole=for_mark or has_details)
        if for_mark and self._stat is not None:
            vforked = [process for _, process in self._young if not self._has_own_memory(process)]
            self._at_marks.write(self.tree.processes, vforked, (self._sampled_s, now_s))
        for process in restless:
            self._records.note_exec(process, self._sampled_s, now_s + time.monotonic() - begun_s)
        self._floor.read(self.tree.processes, restless, now_s)
        if restless:
            for process in self._limits.look(restless):
                self._records.update_identity(process)
        if has_details:
            self._details_at_s = now_s + DETAILS_EVERY_S
            self._update_records()
        return row

    def _remove_ended(self, now_s: float) -> None:
        for process in [process for process in self.tree.processes if not process.alive]:
            self._remove(process, now_s)

    def _next_due_s(self, row: Sequence[float | None]) -> float:
        """Return when something but sampling is due next, if the figures of processes stay as in ``row``."""
        reads_much = self._read_chars is not None and (row[self._read_chars] or 0) >= self._files.due_at
        soon_s = self._sometimes_s if reads_much else self._details_at_s
        return min(soon_s, self._details_at_s, self._limits.at_s, self._occasional.at_s)

    def _wake(self) -> None:
        """Catch up with the samples at which nothing changed, because something may now."""
        if self._still.samples and self._stat is not None:
            self._stat.repeat(self.tree.processes, self._still.samples)
            self._marks.pass_over(self._still.until_s)
        self._still.end()

    def _settle(self, now_s: float) -> None:
        """Decide about the processes that were found at least one sample ago: count them, or leave them out."""
        still_young = []
        for found_s, process in self._young:
            if now_s - found_s < _TWO_SAMPLES_S or not (process.counted or self._has_own_memory(process)):
                still_young.append((found_s, process))
                continue
            self._records.update_identity(process)
            if process.is_detached_sampler:
                self._records.discard(process)
            elif process.is_named or now_s - found_s >= DETAILS_EVERY_S:
                self._count(process, now_s)
            else:  # during exec: it is not known yet whether it is a detached sampler
                still_young.append((found_s, process))
        self._young = still_young

    def _has_own_memory(self, process: Process) -> bool:
        """Return False for a child of vfork(2), however long a busy machine delays its exec."""
        above = process.parent
        return self._root != PROC or above is None or not tree.shared(process.pid, above.pid)

    def _look(self, now_s: float) -> None:
        """Find new descendants; they may still have their parent's name."""
        new = self.tree.refresh()
        if new:
            self._wake()
        for process in new:
            process.counted = False
            is_itself = process.is_named and (not process.forked_copy or _age_s(process) >= _EXEC_WITHIN_S)
            # A child of vfork(2) may exec after its name was read, and have memory of its own then: look at it again.
            if is_itself and self._has_own_memory(process) and not process.identify():
                self._count(process, now_s)
            self._records.add(process)
        self._young += [(now_s, process) for process in new]

    def _count(self, process: Process, now_s: float) -> None:
        """Make the memory of a process part of the sums from now on."""
        process.counted = True
        process.forget()
        self._marks.add(process)
        if process.counted_s is None:
            process.counted_s = now_s
            self._just_counted.append(process)

    def _sometimes(self, row: list[float | None], now_s: float) -> list[float | None]:
        """Do what is not due at each sample; return the row with the values of occasional probes, if these are due."""
        self._sometimes_s = now_s + _SOMETIMES_EVERY_S
        processes = self.tree.processes
        if now_s >= self._limits.at_s and processes:
            self._limits.look_again(processes, now_s)
        if self._read_chars is not None and (row[self._read_chars] or 0) >= self._files.due_at:
            self._files.watch(row[self._read_chars] or 0, processes)
        return self._with_occasional(row, self._occasional.read(now_s)) if now_s >= self._occasional.at_s else row

    def _with_occasional(self, row: list[float | None], values: list[float | None]) -> list[float | None]:
        known = dict(zip(self._occasional.columns, values, strict=True))
        return [known.get(column, value) for column, value in zip(self.columns, row, strict=True)]

    def _read(self) -> list[float | None]:
        self._values = []
        for probe in self._probes:
            self._values += probe.read(self.tree.processes)
        return self._make_row()

    def _make_row(self) -> list[float | None]:
        """Return a row of what was read of the processes last, and of what slow and system probes say now."""
        values = [*self._values]
        for slow in self._slow:
            values += slow.read(self.tree.processes)
        for system in self._system:
            values += system.read()
        values += self._unread
        self._row = row = [values[position] for position in self._order]
        self._counters.settle(row)
        return row

    def _read_marks(self, now_s: float, begun_s: float, *, whole: bool) -> list[Process]:
        restless = [] if self._stat is None else self._stat.restless
        self._marks.read(self.tree.processes, restless, now_s, begun_s, whole=whole)
        return restless

    def _update_records(self) -> None:
        for process in self.tree.processes:
            if process.counted:
                self._records.update_high_water_mark(process)
                self._records.update_identity(process)

    def each(self) -> dict[int, int]:
        """Return the RSS of every process at the last sample, in bytes, by number."""
        return {
            process.number: process.rss * PAGE for process in self.tree.processes if process.rss and process.counted
        }

    def retire(self, pid: int) -> None:
        """Read a child of ours for the last time: it has ended and was not reaped yet."""
        self._wake()
        process = self.tree.get(pid)
        if process is None:
            process = self.tree.add(pid)
            if process is None:
                return
            if process.is_detached_sampler:
                self.tree.remove(process)
                return
            self._records.add(process)
        sampled = process.rss, process.faults
        for probe in self._probes:
            probe.retire(process)
        process.rss, process.faults = sampled  # what it added since then is not in any sample

    def ended(self, pid: int, now_s: float, status: ExitStatus, high_water_limit: int | None) -> None:
        """Remove a reaped child of ours from the tree."""
        self._wake()
        process = self.tree.get(pid)
        if process is not None:
            self._remove(process, now_s, status, high_water_limit)

    def _remove(
        self, process: Process, now_s: float, status: ExitStatus | None = None, high_water_limit: int | None = None
    ) -> None:
        self.tree.remove(process)
        self._records.write_end(process, now_s, status, high_water_limit)
        self._floor.ended(process)
        self._limits.ended(process)
        self._occasional.process_ended(now_s)

    def totals(self) -> Sequence[float | None]:
        """Return one value per column, of counters the totals that include ended processes."""
        self._wake()
        return self._with_occasional(self._read(), self._occasional.values(thorough=True))

    def alive(self, now_s: float) -> list[int]:
        """Return the PIDs of the running processes."""
        self._look(now_s)
        return [process.pid for process in self.tree.processes if _runs(process)]

    def close(self, now_s: float) -> None:
        """Record the last figures of all processes; those that still run have no end."""
        self._wake()
        self._look(now_s)
        self._read_marks(now_s, time.monotonic(), whole=True)
        self._update_records()
        for process in list(self.tree.processes):
            self._records.update_identity(process, at_end=True)  # one that was just found may have its parent's name
            if _runs(process):
                self._records.write_figures(process)
            else:
                self._remove(process, now_s)
        self._floor.close(self.tree.processes, now_s)
        self._files.write()
        self._occasional.close(now_s)


def _age_s(process: Process) -> float:
    """Return how long ago a process began, at the least: the kernel rounds its start down to a tick."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - (process.started_ticks + 1) / TICKS_PER_S


def _present_s(now_s: float, begun_s: float) -> float:
    """Return ``now_s``, the time at ``begun_s`` of ``time.monotonic()``; the present time if that is a while ago."""
    passed_s = time.monotonic() - begun_s
    return now_s + passed_s if passed_s > _LATE_S else now_s


def _most_kept() -> int:
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else max(0, soft - RESERVE)


def _runs(process: Process) -> bool:
    try:
        return process.read("stat").rpartition(b")")[2].split(None, 1)[0] not in b"ZX"
    except OSError as error:
        return error.errno in NONE_LEFT  # unknown: it may run
    except IndexError:
        return False
