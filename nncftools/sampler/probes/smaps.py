"""``/proc/PID/smaps_rollup``: PSS and USS, counted page by page by the kernel (proc(5), in kB of 1,024 bytes).

Counting takes 11 ms per GiB of 4 KiB pages, and holds the target's memory lock. So a separate thread counts, and uses
at most a given part of the time of the recording. A pass is a single reading of all processes. Half of the allowed time
is for passes at regular intervals. The other half is for passes at a new maximum of RSS or of estimated PSS. The
estimate is the PSS of the last pass, plus the memory that each process has gained or freed since.
"""

from __future__ import annotations

import _thread
import os
import time

from nncftools.sampler.probes import SLOW
from nncftools.sampler.tree import PAGE, find_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from nncftools.sampler.tree import Process

    Sums = tuple[int, int, float] | tuple[None, None, None]
    """PSS and USS in bytes, and the age of these figures in seconds. All are None if unknown."""
    Counted = tuple[Process, int, int, int]
    """A process in a pass: the process, RSS in pages at the start of the pass, PSS in bytes, USS in bytes."""

_HIGHER = 1.02
"""A pass (a reading of all processes) is made if RSS is more than this many times the highest RSS of all passes so far.
"""
_HIGHER_ESTIMATE = 1.01
"""A pass (a reading of all processes) is made if the estimate of PSS is more than this many times the highest PSS of
all passes so far.
"""
_BLUR = 0.05
"""The result of a pass (a reading of all processes) is dropped if forks during the pass may have changed the sum of PSS
by more than this share.
"""
_MOST_SPOILT = 2
"""At most this many consecutive passes (readings of all processes) are dropped."""
_UNKNOWN = (None, None, None)


class Smaps:
    """PSS (proportional set size), USS (unique set size), and the seconds since both were read.

    A separate thread reads all processes from time to time. The first sample after such a pass has the values.
    """

    kind = SLOW
    metrics = ("pss", "uss", "pss_age")
    source = "/proc/PID/smaps_rollup"
    cost = "11 ms a GiB, in a thread, at most 1 % of the time"

    spent_s = 0.0
    _highest = 0
    """In pages: the largest RSS of all processes together at the start of a pass (a reading of all processes)."""
    _highest_pss = 0.0
    """In pages: the largest PSS of all processes together in a pass (a reading of all processes)."""
    _running = False
    _counted: tuple[list[Counted], float] | None = None
    """The result of a pass (a reading of all processes) that is not in a sample yet: the processes, and the time in the
    middle of the pass.
    """
    _spoilt = 0
    """How many consecutive passes (readings of all processes) were dropped, up to now."""

    def __init__(self, share: float) -> None:
        """``share`` is the part of the recording's time that readings of all processes may take: 0.01 for 1 %.

        A reading begins only while less time was used, but may then take longer.
        """
        self._share = share
        self._begun_s = time.monotonic()
        self._estimate = Estimate()
        self._members: dict[Process, int] = {}
        """``{process: RSS in pages}`` at the start of the last pass (a reading of all processes)."""

    @staticmethod
    def why_unavailable(root: str) -> str:
        """Return the reason why PSS is unknown on this system. Empty if PSS is known."""
        return "" if os.path.exists(f"{root}/self/smaps_rollup") else "the kernel has no smaps_rollup (before 4.14)"

    def read(self, processes: Sequence[Process]) -> Sums:
        """Return PSS and USS of all processes in bytes, and the age of both in seconds. Begin a new reading if due.

        All are None if no reading of all processes has ended since the last call.
        """
        if self._running:
            return _UNKNOWN
        now_s = time.monotonic()
        sums = self._take_result(processes, now_s)
        pss = self._estimate.pss(processes)
        left_s = self._share * (now_s - self._begun_s) - self.spent_s
        if left_s >= 0:
            rss = sum([process.rss for process in processes if process.counted])
            is_higher = rss > self._highest * _HIGHER or pss > self._highest_pss * _HIGHER_ESTIMATE
            if is_higher or self._spoilt or self.spent_s <= left_s:
                self._highest = max(self._highest, rss)
                self._begin(processes)
        return sums

    def _take_result(self, processes: Sequence[Process], now_s: float) -> Sums:
        """Return PSS, USS and their age from a pass (a reading of all processes) that has ended.

        All are None if no pass has ended, or if the pass is dropped.

        The sum leaves out a process that ended during the pass, for two reasons. The common pages of this process would
        count twice, because at its end they were divided among the other processes. And another folder may have got the
        descriptor of the closed folder of the process.

        The sum does not contain a process that was forked during the pass. The PSS of its parent, if read after the
        fork, is therefore too small. If the error may be large, the pass is dropped and repeated, a few times at most.
        """
        if self._counted is None:
            return _UNKNOWN
        entries, middle_s = self._counted
        self._counted = None
        entries = [entry for entry in entries if entry[0].alive and not entry[0].sampled_to]
        if not entries:
            return _UNKNOWN
        pss = sum(entry[2] for entry in entries)
        uss = sum(entry[3] for entry in entries)
        new = [process for process in processes if process.counted and process not in self._members]
        forks = [process.rss for process in new if process.forked_copy]
        missing = sum(forks) / (len(forks) + 1) * PAGE
        if missing > pss * _BLUR and self._spoilt < _MOST_SPOILT:
            self._spoilt += 1
            return _UNKNOWN
        self._spoilt = 0
        self._highest_pss = max(self._highest_pss, pss / PAGE)
        self._estimate = Estimate(entries)
        return pss, uss, now_s - middle_s

    def _begin(self, processes: Sequence[Process]) -> None:
        self._members = {process: process.rss for process in processes if process.alive and process.counted}
        if self._members:
            self._running = True
            try:
                _thread.start_new_thread(self._count, (self._members,))
            except RuntimeError:  # the limit of threads is reached
                self._running = False

    def _count(self, members: Mapping[Process, int]) -> None:
        begun_s = time.monotonic()
        entries: list[Counted] = []
        is_readable = True
        for process, rss in members.items():
            pss, uss = _read_rollup(process)
            is_readable &= pss >= 0
            if pss:
                entries.append((process, rss, pss, uss))
        if is_readable:
            self._counted = entries, (begun_s + time.monotonic()) / 2
        self.spent_s += time.thread_time()
        self._running = False


class Estimate:
    """Estimates PSS in pages from the last pass (a reading of all processes), and from later RSS and page faults.

    A new forked copy shares all pages at first. If a process writes to a shared page, the kernel copies the page: this
    is a page fault without a change of RSS. At most all shared pages can be copied.
    """

    _shared = 0.0
    """In pages: PSS minus USS of all processes in the last pass (a reading of all processes), the shared memory. The
    number stays the same if a process ends, because the other processes keep the shared memory.
    """

    def __init__(self, counted: Iterable[Counted] = ()) -> None:
        """Begin with the results of a pass (a reading of all processes)."""
        self._known: dict[Process, tuple[float, float, int, int]] = {}
        """Maps a process to a tuple of four numbers of pages or of page faults.

        The numbers are: USS minus RSS in the last pass (a reading of all processes), pages copied since this pass, RSS
        at the last sample, and page faults at the last sample.
        """
        for process, rss, pss, uss in counted:
            self._shared += (pss - uss) / PAGE
            self._known[process] = (uss / PAGE - rss, 0.0, rss, process.faults)

    def pss(self, processes: Iterable[Process]) -> float:
        """Return the estimate of PSS at a sample, in pages."""
        pages = self._shared
        for process in processes:
            rss = process.rss
            faults = process.faults
            if not (rss and process.counted):
                continue
            new = (-rss if process.forked_copy else 0, 0.0, rss, faults)
            private, copied, last_rss, last_faults = self._known.get(process, new)
            copied += max(0, faults - last_faults - max(0, rss - last_rss))
            copied = min(copied, -private)
            self._known[process] = (private, copied, rss, faults)
            pages += rss + private + max(0.0, copied)
        return pages


def _read_rollup(process: Process) -> tuple[int, int]:
    """Return PSS and USS in bytes. Both are 0 if the process is gone, and -1 if the file is not readable."""
    try:
        data = process.read("smaps_rollup")
    except (FileNotFoundError, ProcessLookupError):
        return 0, 0
    except OSError:
        return -1, -1
    uss = 0
    for line in data.splitlines():
        if line.startswith(b"Private_"):
            uss += int(line.split()[1]) * 1024
    return find_size(data, b"\nPss:") or 0, uss
