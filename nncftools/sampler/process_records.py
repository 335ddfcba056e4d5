"""The journal's records of single processes: identity, memory, end, and the files that the processes read.

- ``ProcessRecords``: name, command, parent, start and end.
- ``FilesRead``: the files that the processes read. Pages of these files are in the page cache. If memory is too small
  for the page cache, a file that is read twice is loaded from storage twice. A thread looks at the open files, because
  a file on a network may not answer.
- ``HighWaterMarks``: when the high-water mark of a process rose (VmHWM, proc(5)). The mark shows a peak that came and
  went between two samples, but not the time of the peak. So each sample reads the marks that may have risen, and a rise
  is recorded with the times of two readings. Marks are never reset (``clear_refs``), because the program would see the
  reset.
- ``Floor``: the least memory that a run needs. Anonymous and shared memory cannot be dropped; pages of files can be
  dropped and read again. Reading the status file takes 8 µs, so the file is read only if RSS has changed, or if the
  high-water mark is needed.
- ``HeldAtMarks``: the memory of each process when an operation was marked. The process that marks an operation reads
  the memory of itself and all descendants. The sampler reads all other processes.
"""

from __future__ import annotations

import _thread
import os
import stat
import time
from contextlib import suppress

from nncftools.journal.writing import format_span
from nncftools.sampler.tree import PAGE, TICKS_PER_S, find_size, split_stat

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from nncftools.journal.reading import ExitStatus
    from nncftools.sampler.tree import Process, Tree, WriteLine


def find_barriers(process: Process) -> list[str]:
    """Return the reasons why a process cannot write to the marks log: ``user``, ``root`` or ``clock``.

    The user, the root folder or the clock of the process is different from the sampler's.
    """
    barriers = []
    if process.read_user() not in {None, 0, os.geteuid()}:
        barriers.append("user")
    if process.differs("root", "/"):
        barriers.append("root")
    if process.differs("ns/time", "/proc/self/ns/time"):
        barriers.append("clock")
    return barriers


class ProcessRecords:
    """Writes the name, command, parent, start and end of each process of a tree."""

    def __init__(self, tree: Tree, write_line: WriteLine, begun_s: float) -> None:
        """``begun_s`` is the start of the recording, in seconds since the boot of the machine (CLOCK_BOOTTIME)."""
        self._tree = tree
        self._write_line = write_line
        self._begun_s = begun_s
        self._barriers: dict[int, list[str]] = {}
        """``{id of the process in the journal: reasons so far why the process could not write to the marks log}``."""

    def add(self, process: Process) -> None:
        """Record a new process."""
        # rounded down to a tick, so never later than the true start
        start_s = process.started_ticks / TICKS_PER_S - self._begun_s
        if -1 / TICKS_PER_S <= start_s < 0:
            start_s = 0.0
        if start_s < 0:
            with suppress(OSError):  # the process has ended
                process.earlier_mark = process.mark.size = find_size(process.read("status"), b"\nVmHWM:") or 0
                words = split_stat(process.read("stat"))
                process.earlier_ticks = int(words[11]) + int(words[12])
        process.mark.sampled_s = max(0.0, start_s)
        parent = process.parent.number if process.parent is not None else None
        facts = {"pid": process.pid, "parent": parent, "start_s": round(start_s, 6)}
        self._write_line("process", {**self._describe(process), **facts})

    def discard(self, process: Process) -> None:
        """Remove the detached sampler of another program from the tree, and mark its record as left out."""
        self._tree.remove(process)
        self._write_line("process", {"id": process.number, "left_out": True})

    def update_identity(self, process: Process, *, at_end: bool = False) -> None:
        """Read the name again, and record a change: before exec, a process has the name of the parent.

        The reasons why the process cannot write to the marks log are looked up only for each new program and at the end
        of the recording, because this takes 25 µs.
        """
        if not process.alive:
            return
        has_changed = process.identify()
        if has_changed or at_end or process.number not in self._barriers:
            barriers = self._barriers.setdefault(process.number, [])
            for barrier in find_barriers(process):
                if barrier not in barriers:
                    barriers.append(barrier)
                    has_changed = True
        if has_changed:
            self._write_line("process", self._describe(process))

    def _describe(self, process: Process) -> dict[str, object]:
        facts: dict[str, object] = {
            "id": process.number,
            "name": process.name,
            "command": process.command,
            "forked_copy": process.forked_copy,
        }
        barriers = self._barriers.get(process.number)
        if barriers:
            facts["apart"] = barriers
        return facts

    def note_exec(self, process: Process, from_s: float, to_s: float) -> None:
        """Record an exec if the process has called exec between ``from_s`` and ``to_s``.

        Exec changes the addresses of code and stack. During exec and at the end of a process, the kernel shows the
        address 0 for the code. If the kernel hides the addresses from us (ptrace(2)), as after seteuid(2), the kernel
        shows the address 1.
        """
        if process.hidden_from_s is not None:
            from_s = process.hidden_from_s
        process.hidden_from_s = from_s if process.image[0] == b"1" else None
        if process.image[0] in {b"0", b"1"}:
            return
        if process.image != process.known_image:
            if process.known_image:
                self._write_line("exec", {"id": process.number, **format_span(from_s, to_s)})
            process.known_image = process.image

    def update_high_water_mark(self, process: Process) -> None:
        """Record the high-water mark of a running process if the mark has risen."""
        if process.high_water_mark != process.mark.written:
            process.mark.written = process.high_water_mark
            self.write_figures(process)

    def write_end(self, process: Process, now_s: float, status: ExitStatus | None, limit: int | None) -> None:
        """Record the end of a process. ``limit`` is the ``ru_maxrss`` that came with the status, in bytes."""
        figures = {**_list_figures(process), "end_s": round(now_s, 6), "exit": status}
        if limit is not None:
            figures["high_water_limit"] = limit
        self._write_line("process", figures)

    def write_figures(self, process: Process) -> None:
        """Write the memory and the CPU time of a process, as measured until now, to the journal."""
        self._write_line("process", _list_figures(process))


def _list_figures(process: Process) -> dict[str, object]:
    return {
        "id": process.number,
        "counted_s": None if process.counted_s is None else round(process.counted_s, 6),
        "first_rss": process.first_rss * PAGE or None,
        "samples": process.samples,
        "peak_rss": process.peak_rss * PAGE if process.samples else None,
        "peak_s": None if process.mark.peak_s is None else round(process.mark.peak_s, 6),
        "high_water_mark": process.high_water_mark,
        "high_water_limit": process.earlier_mark or None,
        "hugetlb": process.kinds.hugetlb or None,
        "cpu_s": max(0, process.cpu_ticks - process.earlier_ticks) / TICKS_PER_S,
    }


_MUCH = 16 << 20
"""The open files are listed again when the processes have read at least this many more bytes."""
_SHARE = 100
"""The pause after a look at the open files lasts at least this many times the CPU time of the look, and at least
``SOONEST_S``.
"""
SOONEST_S = 0.1
_MOST_PROCESSES = 8
_MOST_FILES = 10_000
_NOT_FILES = ("/dev/", "/proc/", "/sys/")


class FilesRead:
    """Lists the open files of the largest processes, and writes path and size of new or grown files to the journal."""

    is_due = False
    """Whether the processes have read at least ``_MUCH`` bytes since the last look at the open files."""
    _again_s = 0.0
    _running = False

    def __init__(self, write_line: WriteLine) -> None:
        self._write_line = write_line
        self._due_at = float(_MUCH)
        """The next look is due when the processes together have read this many bytes."""
        self._new_files: dict[str, int] = {}
        self._sizes: dict[str, int] = {}

    def watch(self, read: float, processes: Sequence[Process]) -> None:
        """Look at the open files, if a look is due and the pause after the last look is over.

        ``read`` is the number of bytes that all processes together have read.
        """
        self.is_due = read >= self._due_at
        if not self.is_due or self._running or time.monotonic() < self._again_s:
            return
        self.write()
        self.is_due = False
        self._due_at = read + _MUCH if len(self._sizes) <= _MOST_FILES else float("inf")
        largest = sorted(processes, key=_measure_rss, reverse=True)[:_MOST_PROCESSES]
        self._running = True
        try:
            _thread.start_new_thread(self._look, ([process.path for process in largest],))
        except RuntimeError:  # the limit of threads is reached
            self._running = False

    def write(self) -> None:
        """Write the path and size of each new or grown file, as last listed by the thread, to the journal."""
        if self._running:
            return
        files = list(filter(self._has_grown, self._new_files.items()))
        self._new_files = {}
        if files:
            self._sizes.update(files)
            self._write_line("files_read", {"files": files})

    def _has_grown(self, file: tuple[str, int]) -> bool:
        path, size = file
        return size > self._sizes.get(path, 0)

    def _look(self, folders: Iterable[str]) -> None:
        begun_s = time.thread_time()
        files: dict[str, int] = {}
        for folder in folders:
            with suppress(OSError):  # the process has ended, or belongs to another user
                _add_files(folder, files)
        self._new_files = files
        cost_s = time.thread_time() - begun_s
        self._again_s = time.monotonic() + max(SOONEST_S, _SHARE * cost_s)
        self._running = False


def _measure_rss(process: Process) -> int:
    return process.rss


def _add_files(folder: str, files: dict[str, int]) -> None:
    for number in os.listdir(f"{folder}/fd"):
        with suppress(OSError):
            path = os.fsencode(os.readlink(f"{folder}/fd/{number}")).decode(errors="backslashreplace")
            if path in files or not path.startswith("/") or path.startswith(_NOT_FILES):
                continue
            facts = os.stat(f"{folder}/fd/{number}")
            if stat.S_ISREG(facts.st_mode) and _is_opened_to_read(f"{folder}/fdinfo/{number}"):
                files[path] = facts.st_size


def _is_opened_to_read(fdinfo: str) -> bool:
    """Return whether a descriptor was opened for reading. Raises OSError.

    ``fdinfo`` is the path of the file with the octal ``flags`` (proc(5)).
    """
    with open(fdinfo, "rb") as file:
        text = file.read(200).partition(b"flags:")[2]
    flags = int(text.split(None, 1)[0], 8)
    return flags & os.O_ACCMODE != os.O_WRONLY


_MOST_READ = 2
"""A sample reads at most this many high-water marks, because a reading takes 8 µs."""
LARGEST_FAULT = PAGE // 8
"""A page fault maps at most this many pages (the size of a huge page). A page table has this many entries: a table
fills a page, and an entry has 8 bytes.
"""
_SMALLEST_RISE = 256 * 1024
_RISE_SHARE = 1000
"""A high-water mark is recorded if the mark is above the RSS of the process in all samples by more than 1 / 1,000, and
by more than ``_SMALLEST_RISE`` bytes.
"""


class HighWaterMarks:
    """Reads the high-water marks of a tree, and records each mark that is above the process's RSS in all samples."""

    def __init__(self, write_line: WriteLine) -> None:
        self._write_line = write_line
        self.unread: dict[Process, None] = {}
        """The processes whose mark may have risen since the last reading. The process that has waited longest is first.
        """

    def read(
        self,
        processes: Iterable[Process],
        restless: Iterable[Process],
        times_s: tuple[float, float, float],
        *,
        reads_all: bool,
    ) -> None:
        """Read high-water marks after a sample.

        With ``reads_all``, read all marks that may have risen. Otherwise, read the marks of the largest process and of
        the process that has waited longest. RSS grows only by page faults, so only the marks of ``restless`` processes
        may rise: these processes had page faults since the previous sample. ``times_s`` are the start of the previous
        sample, the start of this sample, and the start of this sample in ``time.monotonic()``.
        """
        sampled_s, now_s, begun_s = times_s
        due = self._find_due(restless, sampled_s, reads_all=reads_all)
        # the mark of a process that is ending cannot be read: the process stays in unread
        done = list(filter(_read_mark, due))
        risen = list(filter(_keep_if_risen, done))
        if risen:
            read_s = now_s + time.monotonic() - begun_s
            self._write(risen, (sampled_s, read_s), processes, set(restless))
        for process in done:
            del self.unread[process]
            process.mark.sampled_s = now_s
        for process in restless:
            process.mark.still_from_s = now_s
            if process.peak_rss != process.mark.peak_rss:
                process.mark.peak_rss = process.peak_rss
                process.mark.peak_s = now_s

    def _find_due(self, restless: Iterable[Process], sampled_s: float, *, reads_all: bool) -> list[Process]:
        for process in restless:
            added = process.faults - process.faults_before
            may_have_risen = (process.rss_before + added * LARGEST_FAULT) * PAGE > process.mark.size
            if may_have_risen and process not in self.unread and process.counted:
                process.mark.sampled_s = max(process.mark.sampled_s, sampled_s)
                self.unread[process] = None
        for process in list(self.unread):
            if not process.alive:
                del self.unread[process]
        due = [process for process in self.unread if process.rss]
        if len(due) > _MOST_READ and not reads_all:
            largest = max(due[1:], key=_measure_rss)
            due = [due[0], largest]
        return due

    def _write(
        self,
        risen: Iterable[Process],
        span_s: tuple[float, float],
        processes: Iterable[Process],
        restless: Collection[Process],
    ) -> None:
        """Write each high-water mark that rose above all samples, with the memory of the other processes.

        ``span_s`` are the start of the previous sample and the time of this reading. In the journal, ``others`` is a
        lower bound: the RSS of the other processes now, minus the memory that page faults can have added since the mark
        was last known. ``others_around`` is an estimate: the sum, over the other processes, of the smaller RSS in the
        samples before and after the rise.
        """
        sampled_s, read_s = span_s
        resident = [process for process in processes if process.counted and process.rss and process.samples > 1]
        for process in risen:
            mark = process.mark.size
            from_s = process.mark.sampled_s
            if mark <= process.peak_rss * PAGE + max(_SMALLEST_RISE, mark // _RISE_SHARE):
                continue  # a sample has shown as much memory
            others = 0
            around = 0
            for other in resident:
                if other is process:
                    continue
                if other in restless:
                    around += min(other.rss, other.rss_before)
                    if sampled_s <= from_s:
                        added = (other.faults - other.faults_before) * LARGEST_FAULT
                        others += max(0, other.rss - added)
                else:
                    around += other.rss
                    others += other.rss if other.mark.still_from_s <= from_s else 0
            facts = {
                "id": process.number,
                **format_span(from_s, max(from_s, read_s)),
                "high_water_mark": mark,
                "others": others * PAGE,
                "others_around": around * PAGE,
            }
            self._write_line("rise", facts)


def _read_mark(process: Process) -> bool:
    try:
        mark = find_size(process.read_memory(), b"\nVmHWM:")
    except OSError:
        return False
    if mark is None:  # a zombie has no mark
        return False
    process.mark.size = mark
    return True


def _keep_if_risen(process: Process) -> bool:
    """Store the last reading of the high-water mark if the reading is a new maximum; return whether it is."""
    if process.mark.size <= max(process.high_water_mark or 0, process.earlier_mark):
        return False
    process.high_water_mark = process.mark.size
    return True


_CHANGED = (1 << 20) // PAGE
_CHANGED_SHARE = 256
"""RSS counts as changed if the difference is more than ``_CHANGED`` pages, and more than 1 / 256 of RSS."""
_HIGHER = 1.005
"""A sum of memory is written to the journal if the sum is more than this many times the last written sum."""


class Floor:
    """Writes the largest sum of anonymous and shared memory so far, and the bytes of mapped files, to the journal."""

    _mapped_written = 0

    def __init__(self, write_line: WriteLine) -> None:
        self._write_line = write_line
        self._highest = {"size": 0, "at_s": 0.0, "rss": 0}
        """The largest sum, with the time and RSS of the same readings."""
        self._sizes: dict[Process, int] = {}
        self._shared: dict[Process, int] = {}
        self._mapped: dict[str, int] = {}
        """``{process name: bytes}``: the largest size of mapped files in a single process with this name.

        Processes with the same name map the same files, so their sizes are not added.
        """

    def read(self, processes: Iterable[Process], restless: Iterable[Process], now_s: float) -> None:
        """Read the memory of processes whose RSS has changed much.

        If the sum over all processes is a new maximum, write the sum to the journal. ``restless`` are the processes
        that had page faults since the previous sample.
        """
        fresh = [process for process in processes if process.rss and process.kinds.is_new]
        changed = [process for process in restless if process.rss and _has_changed(process)]
        changed.sort(key=_measure_change, reverse=True)
        for process in (*fresh, *changed[:_MOST_READ]):
            self._take(process)
        if self._sum() > self._highest["size"] * _HIGHER:
            for process in processes:  # other processes may have freed memory without a page fault
                if process.rss != process.kinds.rss:
                    self._take(process)
            self._write(now_s)

    def _take(self, process: Process) -> None:
        """Update the sums with the memory of a process. Read the memory, unless this sample has already done so."""
        if not process.counted:
            return
        if not process.rss:  # the process has ended, and the parent has not waited for the end yet
            self.ended(process)
            return
        kinds = process.kinds
        if not (kinds.is_new and kinds.rss == process.rss):
            with suppress(OSError):
                process.read_memory()
        self._sizes[process] = kinds.own(process.rss, process.faults)
        self._shared[process] = kinds.shmem
        if kinds.file > self._mapped.get(process.name, 0):
            self._mapped[process.name] = kinds.file

    def _sum(self) -> int:
        """Return the sum of anonymous and shared memory. Shared memory counts once: the largest size in any process."""
        own = sum(self._sizes.values())
        return own + max(self._shared.values(), default=0)

    def ended(self, process: Process) -> None:
        """Remove a process from the sums."""
        self._sizes.pop(process, None)
        self._shared.pop(process, None)

    def _write(self, now_s: float) -> None:
        size = self._sum()
        mapped = sum(self._mapped.values())
        if size > self._highest["size"] * _HIGHER:
            resident = sum(process.kinds.resident for process in self._sizes)
            self._highest = {"size": size, "at_s": round(now_s, 6), "rss": resident}
        elif mapped <= self._mapped_written * _HIGHER:
            return
        self._mapped_written = mapped
        self._write_line("floor", {**self._highest, "mapped": mapped})

    def close(self, processes: Iterable[Process], now_s: float) -> None:
        """Read the memory of all processes once more.

        Write the sum of anonymous and shared memory, and the size of mapped files, if one of them is a new maximum.
        """
        for process in processes:
            self._take(process)
        self._write(now_s)


def _has_changed(process: Process) -> bool:
    """Return whether RSS has changed much since the kinds of memory were read. False if this sample has read them."""
    if process.kinds.is_new:
        return False
    change = _measure_change(process)
    return change > _CHANGED and change * _CHANGED_SHARE > process.rss


def _measure_change(process: Process) -> int:
    return abs(process.rss - process.kinds.rss)


_MOST_CHANGES = 64
"""A line of the journal has at most this many processes. If the RSS of more processes has changed, the line has no
sizes.
"""


class HeldAtMarks:
    """Writes, at each sample for a mark, the RSS of each process whose RSS has changed since the previous line."""

    def __init__(self, write_line: WriteLine) -> None:
        self._write_line = write_line
        self._last: dict[Process, int] = {}
        """Maps a process to RSS in pages at the previous sample."""
        self._highest: dict[Process, int | None] = {}
        """Maps a process to the high-water mark in bytes that was known at the previous sample. None if unknown."""
        self._written: dict[Process, int] = {}

    def begin(self, processes: Iterable[Process]) -> None:
        """Remember the memory at the previous sample, before a new sample is taken."""
        self._last = {process: process.rss for process in processes if process.counted}
        self._highest = {process: process.high_water_mark for process in processes}

    def write(self, processes: Iterable[Process], vforked: Collection[Process], span_s: tuple[float, float]) -> None:
        """Write the changes of RSS. The processes ``vforked`` count as 0, because they have no own memory before exec.

        ``span_s`` are the times at which the previous sample and this sample began.
        """
        changes = []
        written: dict[Process, int] = {}
        last = {**self._written, **self._last}
        for process in processes:
            is_vforked = process in vforked
            rss = 0 if is_vforked else process.rss
            last_rss = last.get(process, 0)
            sizes = [rss * PAGE]
            has_ended_early = not (rss or is_vforked or process in last)
            if rss != last_rss or has_ended_early:
                sizes.append(last_rss * PAGE)
            mark = process.high_water_mark or 0
            if rss and mark != self._highest.get(process) and mark > max(sizes) + _SMALLEST_RISE:
                sizes.append(mark)
            if len(sizes) > 1 or self._written.get(process) != rss:
                changes.append([process.number, *sizes])
            written[process] = rss
        for process, rss in last.items():
            if process not in written:  # the process has ended
                changes.append([process.number, 0, rss * PAGE])
        self._written = written
        written_changes = changes if len(changes) <= _MOST_CHANGES else None
        self._write_line("held", {**format_span(*span_s), "rss": written_changes})
