"""What each process held when an operation was marked, for the marks of other processes.

A process that marks an operation reads itself and its descendants at the mark. All other processes of the tree are read
by the sample that the mark triggers, a moment later: RSS at the mark lies within the bounds that page faults leave.
"""

from __future__ import annotations

from nncftools.sampler.high_water_marks import LARGEST_FAULT
from nncftools.sampler.kernel_file import PAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from nncftools.sampler.tree import Process

_MOST = 64
"""Processes in one line."""


class HeldAtMarks:
    """Records the RSS of the processes whose RSS is not the same as at the mark before."""

    def __init__(self, write_line: Callable[[str, object], None]) -> None:
        self._write_line = write_line
        self._before: dict[Process, tuple[int, int]] = {}
        self._written: dict[Process, int] = {}

    def begin(self, processes: Sequence[Process]) -> None:
        """Remember the sample before: RSS and page faults."""
        self._before = {process: (process.rss, process.faults) for process in processes}

    def write(self, processes: Sequence[Process], vforked: Collection[Process], span_s: tuple[float, float]) -> None:
        """Write what changed between two samples; ``vforked`` processes have no memory of their own before exec.

        RSS grows by page faults only. So between the samples it was at least the RSS after them less what the faults
        can have added, and at most the RSS before them and what the faults can have added, or the high-water mark.
        """
        if len(self._before) == len(processes) == 1:  # no process can be another one's
            return
        found = []
        for process in processes:
            now = 0 if process in vforked else process.rss
            before, faults = self._before.pop(process, (0, 0))
            added = (process.faults - faults) * LARGEST_FAULT
            low = min(now, before) if not added else max(0, now - added)
            high = max(now, min(before + added, max(before, process.mark.size // PAGE)))
            if low != high:
                found.append([process.number, now * PAGE, low * PAGE, high * PAGE])
            elif self._written.get(process) != now:
                found.append([process.number, now * PAGE])
            self._written[process] = now
        for process in self._before:  # ended
            found.append([process.number, 0])
            self._written.pop(process, None)
        from_s, to_s = span_s
        rss = found if len(found) <= _MOST else None
        self._write_line("held", {"from_s": round(from_s, 6), "to_s": round(to_s, 6), "rss": rss})
