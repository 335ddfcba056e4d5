"""When the kernel's high-water mark of a process rose: between which two readings of ``VmHWM`` (proc(5)).

A mark shows a peak that came and went between two samples, but not its moment. So marks are read at each sample, of
those processes whose mark may have risen since the last reading. Marks are never reset (``clear_refs``): the program
would see it.
"""

from __future__ import annotations

import time

from nncftools.sampler.kernel_file import PAGE
from nncftools.sampler.probes.status import value_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from nncftools.sampler.tree import Process

_MOST = 4
"""Marks that are read at one sample; one reading takes 8 µs."""
_LARGEST_FAULT = PAGE // 8
"""The most pages that one page fault maps, a huge page: as many as there are 8-byte entries in a page."""
_SMALLEST_RISE = 256 * 1024
_RISE_SHARE = 1000
"""A mark that exceeds the samples by less than this part of it, or by less than ``_SMALLEST_RISE``, is not recorded."""


class HighWaterMarks:
    """Reads the marks of a tree, and records when one rose above the samples around it."""

    def __init__(self, write_line: Callable[[str, object], None]) -> None:
        self._write_line = write_line
        self._sampled_s = 0.0
        self._waiting: list[dict[str, float]] = []

    def read(self, processes: Sequence[Process], now_s: float, begun_s: float, *, all_of_them: bool = False) -> None:
        """Read marks after a sample: of the largest processes, or of all of them.

        The sample began at ``now_s``, and at ``begun_s`` of ``time.monotonic()``. A process whose mark cannot have
        risen is left out: RSS grows only by page faults.
        """
        there = [process for process in processes if process.counted and process.rss and process.alive]
        due = [process for process in there if _may_have_risen(process, now_s)]
        if len(due) > _MOST and not all_of_them:
            due.sort(key=lambda process: process.rss, reverse=True)
            due[_MOST - 1 :] = [min(due[_MOST - 1 :], key=lambda process: process.mark.sampled_s)]
        risen = [process for process in due if _read(process)]
        if risen:
            read_s = now_s + time.monotonic() - begun_s
            for process in risen:
                self._rose(process, process.high_water_mark or 0, (process.mark.sampled_s, read_s), process.rss)
        for process in due:
            process.mark.sampled_s = now_s
            process.mark.rss, process.mark.faults = process.rss, process.faults
        if self._waiting:
            self._write(there)
        for process in there:
            mark = process.mark
            mark.rss_before = process.rss
            if process.faults != mark.faults_before:
                mark.faults_before = process.faults
                mark.still_from_s = now_s
            if process.peak_rss != mark.peak_rss:
                mark.peak_rss = process.peak_rss
                mark.peak_s = now_s
        self._sampled_s = now_s

    def ended(self, process: Process, mark: int, now_s: float) -> None:
        """Record the mark with which a process of the tree has ended, in bytes."""
        if mark > max(process.mark.size, process.earlier_mark):
            self._rose(process, mark, (process.mark.sampled_s, now_s), 0)

    def ended_unseen(self, number: int, mark: int, span_s: tuple[float, float]) -> None:
        """Record the mark of a process that no sample shows, and its first and last second."""
        if mark > _SMALLEST_RISE:
            self._waiting.append(_rise(number, mark, span_s))

    def _rose(self, process: Process, mark: int, span_s: tuple[float, float], rss: int) -> None:
        """Record a rise unless the samples at its ends show that much memory, too; ``rss`` is that of the later one."""
        shown = max(process.mark.rss, rss) * PAGE
        if process.introduced and mark > shown + max(_SMALLEST_RISE, mark // _RISE_SHARE):
            self._waiting.append(_rise(process.number, mark, span_s))

    def _write(self, processes: Iterable[Process]) -> None:
        """Write the rises since the last sample, each with what the other processes held meanwhile.

        Certainly, that is the RSS that a process has now, less what its page faults since then can have added.
        Probably, it is the smaller RSS of the samples before and after.
        """
        held = [process for process in processes if process.samples > 1]
        for rise in self._waiting:
            others = around = 0
            for process in held:
                if process.number != rise["id"]:
                    others += self._held_since(process, rise["from_s"])
                    around += min(process.rss, process.mark.rss_before)
            self._write_line("rise", {**rise, "others": others * PAGE, "others_around": around * PAGE})
        self._waiting.clear()

    def _held_since(self, process: Process, from_s: float) -> int:
        """Return the pages that a process certainly held from a moment up to now."""
        faults = process.faults - process.mark.faults_before
        if not faults and process.mark.still_from_s <= from_s:
            return process.rss
        return max(0, process.rss - faults * _LARGEST_FAULT) if self._sampled_s <= from_s else 0

    def close(self) -> None:
        """Write the rises since the last sample; what the other processes held is unknown."""
        for rise in self._waiting:
            self._write_line("rise", {**rise, "others": 0, "others_around": 0})
        self._waiting.clear()


def _may_have_risen(process: Process, now_s: float) -> bool:
    """Return False if page faults since the last reading cannot have raised RSS above the mark."""
    most = process.mark.rss + (process.faults - process.mark.faults) * _LARGEST_FAULT
    if most * PAGE > process.mark.size:
        return True
    process.mark.sampled_s = now_s
    process.mark.rss, process.mark.faults = process.rss, process.faults
    return False


def _read(process: Process) -> bool:
    """Read the mark of a process; return whether it rose."""
    try:
        mark = value_of(process.read_status(), b"\nVmHWM:") or 0  # a zombie has none
    except OSError:
        return False
    before, process.mark.size = process.mark.size, mark or process.mark.size
    if mark < before:  # after exec, the mark is that of the new program
        process.mark.rss = 0
    if mark <= max(process.high_water_mark or 0, process.earlier_mark) or not process.introduced:
        return False
    process.high_water_mark = mark
    return True


def _rise(number: int, mark: int, span_s: tuple[float, float]) -> dict[str, float]:
    from_s, to_s = span_s
    return {"id": number, "from_s": round(from_s, 6), "to_s": round(max(from_s, to_s), 6), "high_water_mark": mark}
