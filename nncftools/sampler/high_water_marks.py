"""When the kernel's high-water mark of a process rose: between which two readings of ``VmHWM`` (proc(5)).

A mark shows a peak that came and went between two samples, but not its moment. So marks are read at each sample, of
those processes whose mark may have risen since the last reading. Marks are never reset (``clear_refs``): the program
would see it.
"""

from __future__ import annotations

import time

from nncftools.sampler.kernel_file import PAGE, value_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from nncftools.sampler.exits import Exit
    from nncftools.sampler.tree import Process

_MOST = 2
"""Marks that are read at one sample; one reading takes 8 µs."""
LARGEST_FAULT = PAGE // 8
"""The most pages that one page fault maps, a huge page: as many as there are 8-byte entries in a page."""
_SMALLEST_RISE = 256 * 1024
_RISE_SHARE = 1000
"""A mark that exceeds the samples by less than this part of it, or by less than ``_SMALLEST_RISE``, is not recorded."""


class HighWaterMarks:
    """Reads the marks of a tree, and records when one rose above the samples around it."""

    def __init__(self, write_line: Callable[[str, object], None]) -> None:
        self._write_line = write_line
        self._sampled_s = 0.0
        self._unread: dict[Process, None] = {}
        """The processes whose mark may have risen since its last reading, in the order in which they wait."""
        self._waiting: list[Rise] = []

    def add(self, process: Process) -> None:
        """Expect a process whose memory counts from now on."""
        self._unread[process] = None

    @property
    def unread(self) -> Collection[Process]:
        """The processes whose mark may have risen since its last reading."""
        return self._unread

    @property
    def is_idle(self) -> bool:
        """Whether no mark is to be read or written, unless there are page faults."""
        return not (self._unread or self._waiting)

    def pass_over(self, now_s: float) -> None:
        """Note a sample at which nothing had changed."""
        self._sampled_s = now_s

    def read(
        self,
        processes: Iterable[Process],
        restless: Iterable[Process],
        now_s: float,
        begun_s: float,
        *,
        all_of_them: bool = False,
    ) -> None:
        """Read marks after a sample: of the largest process and the one that waited longest, or of all of them.

        RSS grows only by page faults, so nothing is read of processes other than ``restless``, which had any since the
        sample before. The sample began at ``now_s``, and at ``begun_s`` of ``time.monotonic()``.
        """
        due = self._due(restless, all_of_them=all_of_them)
        risen = [process for process in due if _read(process)]
        if risen:
            read_s = now_s + time.monotonic() - begun_s
            for process in risen:
                self._rose(process, process.high_water_mark or 0, read_s)
        for process in due:
            del self._unread[process]
            process.mark.sampled_s = now_s
        if self._waiting:
            self._write(processes, set(restless))
        for process in restless:
            process.mark.still_from_s = now_s
            if process.peak_rss != process.mark.peak_rss:
                process.mark.peak_rss, process.mark.peak_s = process.peak_rss, now_s
        self._sampled_s = now_s

    def _due(self, restless: Iterable[Process], *, all_of_them: bool) -> list[Process]:
        """Return the processes whose marks to read now."""
        for process in restless:
            if process not in self._unread and process.counted and _may_have_risen(process):
                process.mark.sampled_s = max(process.mark.sampled_s, self._sampled_s)
                self._unread[process] = None
        for process in [process for process in self._unread if not process.alive]:
            del self._unread[process]
        due = [process for process in self._unread if process.rss]
        if len(due) > _MOST and not all_of_them:
            largest = sorted(due[1:], key=lambda process: process.rss, reverse=True)
            due = [due[0], *largest[: _MOST - 1]]
        return due

    def ended(self, process: Process, exit_: Exit) -> None:
        """Record the mark with which a process of the tree has ended."""
        mark = exit_.high_water_mark
        if process in self._unread:
            del self._unread[process]
        else:
            process.mark.sampled_s = max(process.mark.sampled_s, min(self._sampled_s, exit_.after_s))
        if mark > max(process.mark.size, process.earlier_mark):
            self._rose(process, mark, exit_.at_s)

    def ended_unseen(self, number: int, mark: int, span_s: tuple[float, float]) -> None:
        """Record the mark of a process that no sample shows, and its first and last second."""
        if mark > _SMALLEST_RISE:
            self._waiting.append(Rise(number, mark, *span_s))

    def _rose(self, process: Process, mark: int, now_s: float) -> None:
        """Record a rise unless a sample shows that much memory, too: as the mark is new, so is this sample."""
        shown = process.peak_rss * PAGE
        if process.introduced and mark > shown + max(_SMALLEST_RISE, mark // _RISE_SHARE):
            self._waiting.append(Rise(process.number, mark, process.mark.sampled_s, now_s))

    def _write(self, processes: Iterable[Process], restless: Collection[Process]) -> None:
        """Write the rises since the last sample, each with what the other processes held meanwhile.

        Certainly, that is the RSS that a process has now, less what its page faults since then can have added.
        Probably, it is the smaller RSS of the samples before and after.
        """
        held = [process for process in processes if process.counted and process.rss and process.samples > 1]
        for rise in self._waiting:
            others = around = 0
            for process in held:
                if process.number == rise.number:
                    continue
                if process in restless:
                    around += min(process.rss, process.rss_before)
                    if self._sampled_s <= rise.from_s:
                        added = (process.faults - process.faults_before) * LARGEST_FAULT
                        others += max(0, process.rss - added)
                else:
                    around += process.rss
                    others += process.rss if process.mark.still_from_s <= rise.from_s else 0
            self._write_line("rise", rise.line(others * PAGE, around * PAGE))
        self._waiting.clear()

    def close(self) -> None:
        """Write the rises since the last sample; what the other processes held is unknown."""
        for rise in self._waiting:
            self._write_line("rise", rise.line(0, 0))
        self._waiting.clear()


class Rise:
    """The rise of a mark to ``mark`` bytes between two moments."""

    def __init__(self, number: int, mark: int, from_s: float, to_s: float) -> None:
        self.number = number
        self.mark = mark
        self.from_s = from_s
        self.to_s = max(from_s, to_s)

    def line(self, others: int, around: int) -> dict[str, float]:
        """Return it as a line of the journal, with the bytes that the other processes held."""
        moments = {"from_s": round(self.from_s, 6), "to_s": round(self.to_s, 6)}
        return {"id": self.number, **moments, "high_water_mark": self.mark, "others": others, "others_around": around}


def _may_have_risen(process: Process) -> bool:
    """Return False if page faults since the sample before cannot have raised RSS above the mark."""
    most = process.rss_before + (process.faults - process.faults_before) * LARGEST_FAULT
    return most * PAGE > process.mark.size


def _read(process: Process) -> bool:
    """Read the mark of a process; return whether it rose."""
    try:
        mark = value_of(process.read_memory(), b"\nVmHWM:")
    except OSError:
        return False
    if mark is None:  # a zombie has none
        return False
    process.mark.size = mark
    if mark <= max(process.high_water_mark or 0, process.earlier_mark) or not process.introduced:
        return False
    process.high_water_mark = mark
    return True
