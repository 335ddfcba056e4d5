"""Memory between samples: high-water marks, the floor, and the RSS of each process at marks.

- ``HighWaterMarks``: when VmHWM (proc(5)) of a process rose, between which two readings. A mark shows a peak that came
  and went between two samples, but not its moment. So marks are read at each sample, of those processes whose mark may
  have risen since. They are never reset (``clear_refs``): the program would see it.
- ``Floor``: the least memory that a run needs. Anonymous and shared memory cannot be dropped, pages of files can be
  read again. Reading the status file takes 8 µs, so it is read of processes whose RSS has changed, or with their
  marks.
- ``HeldAtMarks``: what each process held when an operation was marked. The process that marks it reads itself and its
  descendants; all others are read by the sample that the mark triggers.
"""

from __future__ import annotations

import contextlib
import time

from nncftools.journal.writing import span
from nncftools.sampler.tree import PAGE, value_of

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from nncftools.sampler.tree import Process, WriteLine


_MOST = 2
"""Marks that are read at one sample; one reading takes 8 µs."""
LARGEST_FAULT = PAGE // 8
"""The most pages that one page fault maps, a huge page: as many as there are 8-byte entries in a page."""
_SMALLEST_RISE = 256 * 1024
_RISE_SHARE = 1000
"""A mark that exceeds the samples by less than this part of it, or by less than ``_SMALLEST_RISE``, is not recorded."""


class HighWaterMarks:
    """Reads the marks of a tree, and records when one rose above the samples around it."""

    def __init__(self, write_line: WriteLine) -> None:
        self._write_line = write_line
        self.unread: dict[Process, None] = {}
        """The processes whose mark may have risen since its last reading, in the order in which they wait."""

    def add(self, process: Process) -> None:
        """Expect a process whose memory counts from now on."""
        self.unread[process] = None

    def read(
        self,
        processes: Iterable[Process],
        restless: Iterable[Process],
        times_s: tuple[float, float, float],
        *,
        whole: bool,
    ) -> None:
        """Read marks after a sample: of the largest process and the one that waited longest, or ``whole``, of all.

        RSS grows only by page faults, so nothing is read of processes other than ``restless``, which had any since the
        sample before. ``times_s``: when that sample began, when this one did, and this in ``time.monotonic()``.
        """
        sampled_s, now_s, begun_s = times_s
        due = self._due(restless, sampled_s, whole=whole)
        was_read = list(filter(_read, due))  # the mark of a process that is ending cannot be read: it stays unread
        risen = list(filter(_has_risen, was_read))
        if risen:
            read_s = now_s + time.monotonic() - begun_s
            self._write(risen, (sampled_s, read_s), processes, set(restless))
        for process in was_read:
            del self.unread[process]
            process.mark.sampled_s = now_s
        for process in restless:
            process.mark.still_from_s = now_s
            if process.peak_rss != process.mark.peak_rss:
                process.mark.peak_rss, process.mark.peak_s = process.peak_rss, now_s

    def _due(self, restless: Iterable[Process], sampled_s: float, *, whole: bool) -> list[Process]:
        for process in restless:
            added = process.faults - process.faults_before
            may_have_risen = (process.rss_before + added * LARGEST_FAULT) * PAGE > process.mark.size
            if may_have_risen and process not in self.unread and process.counted:
                process.mark.sampled_s = max(process.mark.sampled_s, sampled_s)
                self.unread[process] = None
        for process in [process for process in self.unread if not process.alive]:
            del self.unread[process]
        due = [process for process in self.unread if process.rss]
        if len(due) > _MOST and not whole:
            largest = sorted(due[1:], key=lambda process: process.rss, reverse=True)
            due = [due[0], *largest[: _MOST - 1]]
        return due

    def _write(
        self,
        risen: Iterable[Process],
        span_s: tuple[float, float],
        processes: Iterable[Process],
        restless: Collection[Process],
    ) -> None:
        """Write which marks rose above all samples in a span, each with what the other processes held meanwhile.

        Certainly, that is the RSS that a process has now, less what its page faults since then can have added.
        Probably, it is the smaller RSS of the samples before and after.
        """
        sampled_s, read_s = span_s
        resident = [process for process in processes if process.counted and process.rss and process.samples > 1]
        for process in risen:
            mark, from_s = process.mark.size, process.mark.sampled_s
            if mark <= process.peak_rss * PAGE + max(_SMALLEST_RISE, mark // _RISE_SHARE):
                continue  # a sample shows that much memory, too
            others = around = 0
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
            known = {"high_water_mark": mark, "others": others * PAGE, "others_around": around * PAGE}
            self._write_line("rise", {"id": process.number, **span(from_s, max(from_s, read_s)), **known})


def _read(process: Process) -> bool:
    """Read the mark of a process; return whether it could be read."""
    try:
        mark = value_of(process.read_memory(), b"\nVmHWM:")
    except OSError:
        return False
    process.mark.size = process.mark.size if mark is None else mark
    return mark is not None  # a zombie has none


def _has_risen(process: Process) -> bool:
    """Keep the mark of a process if it rose; return whether it did."""
    if process.mark.size <= max(process.high_water_mark or 0, process.earlier_mark):
        return False
    process.high_water_mark = process.mark.size
    return True


_CHANGED, _CHANGED_SHARE = (1 << 20) // PAGE, 256
"""RSS has changed if it did by so many pages, and by this part."""
_HIGHER = 1.005


class Floor:
    """Writes the largest sum of anonymous and shared memory so far to the journal, and what was mapped from files."""

    def __init__(self, write_line: WriteLine) -> None:
        self._write_line = write_line
        self._own: dict[Process, int] = {}
        self._shared: dict[Process, int] = {}
        self._total = 0
        self._highest = 0
        self._highest_s = 0.0
        self._mapped: dict[str, int] = {}
        """By the name of the program: the most that one process had mapped. Processes of one program map the same."""
        self._mapped_written = 0

    def read(self, processes: Iterable[Process], restless: Iterable[Process], now_s: float) -> None:
        """Read what changed since the last sample, and write a new maximum."""
        is_read = [process for process in processes if process.rss and process.kinds.is_new]
        unread = (process for process in restless if process.rss and not process.kinds.is_new)
        changed = [process for process in unread if _has_changed(process)]
        if not (is_read or changed):
            return
        if len(changed) > _MOST:
            changed.sort(key=lambda process: abs(process.rss - process.kinds.rss), reverse=True)
        for process in (*is_read, *changed[:_MOST]):
            self._take(process)
        if self._sum() > self._highest * _HIGHER:
            for process in processes:  # some may have freed memory, which takes no page fault
                if process.rss and process.rss != process.kinds.rss:
                    self._take(process)
            self._write(now_s)

    def _take(self, process: Process) -> None:
        """Count what a process holds, which is read unless that was done at this sample."""
        if not process.counted:
            return
        kinds = process.kinds
        if not (kinds.is_new and kinds.rss == process.rss):
            with contextlib.suppress(OSError):
                process.read_memory()
        own = kinds.own(process.rss, process.faults)
        self._total += own - self._own.get(process, 0)
        self._own[process] = own
        if kinds.shmem or process in self._shared:
            self._shared[process] = kinds.shmem
        if kinds.file > self._mapped.get(process.name, 0):
            self._mapped[process.name] = kinds.file

    def _sum(self) -> int:
        """Return the sum; shared memory counts once, as much as any process has of it."""
        return self._total + max(self._shared.values(), default=0)

    def ended(self, process: Process) -> None:
        """Count a process no longer."""
        self._total -= self._own.pop(process, 0)
        self._shared.pop(process, None)

    def _write(self, now_s: float) -> None:
        size, mapped = self._sum(), sum(self._mapped.values())
        if size > self._highest * _HIGHER:
            self._highest, self._highest_s = size, now_s
        elif mapped <= self._mapped_written * _HIGHER:
            return
        self._mapped_written = mapped
        self._write_line("floor", {"size": self._highest, "at_s": round(self._highest_s, 6), "mapped": mapped})

    def close(self, processes: Iterable[Process], now_s: float) -> None:
        """Read all processes once more, and write what is new."""
        for process in processes:
            if process.rss:
                self._take(process)
        self._write(now_s)


def _has_changed(process: Process) -> bool:
    by = abs(process.rss - process.kinds.rss)
    return by > _CHANGED and by * _CHANGED_SHARE > process.rss


_MOST_HELD = 64
"""Processes in one line."""


class HeldAtMarks:
    """Writes the RSS of each process at the samples that marks trigger, if it differs from the line before."""

    def __init__(self, write_line: WriteLine) -> None:
        self._write_line = write_line
        self._before: dict[Process, int] = {}
        """RSS in pages at the sample before."""
        self._written: dict[Process, int] = {}

    def begin(self, processes: Iterable[Process]) -> None:
        """Remember the RSS of the sample before the one that comes now."""
        self._before = {process: process.rss for process in processes if process.counted}

    def write(self, processes: Iterable[Process], vforked: Collection[Process], span_s: tuple[float, float]) -> None:
        """Write what changed; ``vforked`` processes have no memory of their own before exec.

        ``span_s`` are the times at which the sample before and this one began.
        """
        changes = []
        written: dict[Process, int] = {}
        for process in processes:
            rss = 0 if process in vforked else process.rss
            before = self._before.pop(process, 0)
            if rss != before:
                changes.append([process.number, rss * PAGE, before * PAGE])
            elif self._written.get(process) != rss:
                changes.append([process.number, rss * PAGE])
            written[process] = rss
        changes += [[process.number, 0, rss * PAGE] for process, rss in self._before.items()]  # ended
        self._written = written
        self._write_line("held", {**span(*span_s), "rss": changes if len(changes) <= _MOST_HELD else None})
