"""Wakes the sampler when an operation is marked, so that there is a sample at its start and its end.

What each process held when an operation was marked, for the marks of other processes.

A process that marks an operation reads itself and its descendants at the mark. All other processes of the tree are read
by the sample that the mark triggers, a moment later: RSS at the mark lies within the bounds that page faults leave.
"""

from __future__ import annotations

import os
import time

from nncftools.sampler.high_water_marks import LARGEST_FAULT, is_new
from nncftools.sampler.tree import PAGE

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from nncftools.sampler.tree import Process


_IN_MODIFY = 0x2
_MANY_EVENTS = 1 << 16
_SHARE = 10
"""Samples for marks take at most one part in this many of the time."""


class MarkWatch:
    """Any write to the marks log triggers a sample (inotify(7), Linux only)."""

    def __init__(self, path: str, sample: Callable[[], None]) -> None:
        """Watch an existing file. Raises OSError; AttributeError where there is no inotify."""
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.descriptor < 0 or libc.inotify_add_watch(self.descriptor, os.fsencode(path), _IN_MODIFY) < 0:
            raise OSError(ctypes.get_errno(), "inotify")
        self._sample = sample
        self._rests_until_ns = 0
        self.is_due = False
        """Whether marks wait for the next sample."""

    def take(self) -> None:
        """Take a sample for new marks; if such samples have just taken too much time, the next sample is for them."""
        os.read(self.descriptor, _MANY_EVENTS)
        begun_ns = time.monotonic_ns()
        self.is_due = begun_ns < self._rests_until_ns
        if self.is_due:
            return
        self._sample()
        ended_ns = time.monotonic_ns()
        self._rests_until_ns = ended_ns + (ended_ns - begun_ns) * _SHARE


_MOST = 64
"""Processes in one line."""
_UNKNOWN = 1 << 50
"""More pages than a machine has."""


class HeldAtMarks:
    """Records the RSS of the processes whose RSS is not the same as at the mark before."""

    def __init__(self, write_line: Callable[[str, object], None]) -> None:
        self._write_line = write_line
        self._huge_before: int | None = None
        self._huge_now: int | None = None
        """Bytes in huge pages, counted before the processes were read: at the mark before, and at this one."""
        self._before: dict[Process, tuple[int, int, int]] = {}
        self._written: dict[Process, int] = {}

    def begin(self, processes: Sequence[Process], restless: Collection[Process], huge_pages: int | None) -> None:
        """Remember RSS and faults before the sample that comes now; ``restless`` had page faults in the one before.

        A mark may have been made while that sample was read, so what restless processes held before it counts, too.
        """
        self._huge_before, self._huge_now = self._huge_now, huge_pages
        self._before = {process: (process.rss, process.rss, process.faults) for process in processes}
        for process in restless:
            if process in self._before:
                self._before[process] = (process.rss, process.rss_before, process.faults_before)

    def write(
        self,
        processes: Sequence[Process],
        vforked: Collection[Process],
        span_s: tuple[float, float],
        huge_pages: int | None,
    ) -> None:
        """Write what changed between two samples; ``vforked`` processes have no memory of their own before exec.

        ``span_s`` are the times at which the samples began, ``huge_pages`` the bytes that the machine has mapped in
        huge pages. RSS grows by page faults only, and each adds a page, or a huge one. What they added and is not there
        any more was there for a while.
        """
        before = self._huge_before
        huge = _UNKNOWN if before is None or huge_pages is None else (huge_pages - before) // PAGE
        found = []
        written, self._written = self._written, {}
        for process in processes:
            now = 0 if process in vforked else process.rss
            at_sample, before, faults = self._before.pop(process, (now, 0, 0))
            count = process.faults - faults
            added = count + min(count * LARGEST_FAULT, huge)
            came_and_went = max(0, added - max(0, now - before))
            low = max(0, min(now, before, at_sample) - came_and_went)
            most = max(now, before, at_sample)
            mark = max(most, process.mark.size // PAGE)
            high = mark if is_new(process) else min(most + came_and_went, mark)
            if low != high:
                found.append([process.number, now * PAGE, low * PAGE, high * PAGE])
            elif written.get(process) != now:
                found.append([process.number, now * PAGE])
            self._written[process] = now
        found += [[process.number, 0] for process in self._before]  # ended
        from_s, to_s = span_s
        rss = found if len(found) <= _MOST else None
        self._write_line("held", {"from_s": round(from_s, 6), "to_s": round(to_s, 6), "rss": rss})
