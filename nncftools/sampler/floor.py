"""The least memory that a run needs: anonymous and shared memory cannot be dropped, pages of files can be read again.

``RssAnon`` and ``RssShmem`` are in ``/proc/PID/status`` (proc(5)), which takes 8 µs to read. So it is read of processes
whose RSS has changed, and the marks of ``high_water_marks.py`` come from the same readings.
"""

from __future__ import annotations

import contextlib

from nncftools.sampler.kernel_file import PAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from nncftools.sampler.tree import Process

_MOST = 2
"""Readings at one sample."""
_CHANGED, _CHANGED_SHARE = (1 << 20) // PAGE, 256
"""RSS has changed if it did by so many pages, and by this part."""
_HIGHER = 1.005


class Floor:
    """Writes the largest sum of anonymous and shared memory so far to the journal, and what was mapped from files."""

    def __init__(self, write_line: Callable[[str, object], None]) -> None:
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
