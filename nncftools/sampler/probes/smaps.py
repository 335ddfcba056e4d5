"""``/proc/PID/smaps_rollup``: PSS and USS, which the kernel counts page by page (proc(5), in kB of 1,024 bytes).

Counting takes 11 ms per GiB of 4 KiB pages and holds the target's memory lock. So it runs in a separate thread, and
takes at most a given share of the time: half of it at regular distances, the rest when RSS reaches a new maximum, or
PSS does by an estimate: what was counted last, and what each process has gained or freed since.
"""

from __future__ import annotations

import _thread
import os
import time

from nncftools.sampler.probes import SLOW
from nncftools.sampler.tree import PAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nncftools.sampler.tree import Process

    Counted = tuple[Process, int, int, int]
    """A process, its RSS in pages when the pass began, PSS and USS in bytes."""

_HIGHER = 1.02
"""A maximum is new when RSS exceeds that of all passes by this ratio."""
_HIGHER_ESTIMATE = 1.01
"""The same of PSS, by its estimate."""
_BLUR = 0.05
_MOST_SPOILT = 2
_UNKNOWN = (None, None, None)
_UNREADABLE = (-1, -1)


class Smaps:
    """Proportional and unique set size, and how old they are; unknown in the samples between two passes."""

    kind = SLOW
    metrics = ("pss", "uss", "pss_age")
    source = "/proc/PID/smaps_rollup"
    cost = "11 ms a GiB, in a thread, at most 1 % of the time"

    def __init__(self, share: float) -> None:
        """Use at most ``share`` of the time; the last pass may go beyond it."""
        self._share = share
        self._begun_s = time.monotonic()
        self.spent_s = 0.0
        self._highest = 0
        """The highest RSS at which a pass began, in pages."""
        self._highest_pss = 0.0
        """The highest PSS that was counted, in pages."""
        self._estimate = Estimate()
        self._running = False
        self._counted: tuple[list[Counted], float] | None = None
        """The processes of a pass that has ended, and the time of its middle."""
        self._members: set[Process] = set()
        self._spoilt = 0
        """The number of passes in a row that were dropped."""

    @staticmethod
    def why_unavailable(root: str) -> str:
        """Return why PSS is unknown on this system; empty when it is known."""
        return "" if os.path.exists(f"{root}/self/smaps_rollup") else "the kernel has no smaps_rollup (before 4.14)"

    def read(self, processes: Sequence[Process]) -> tuple[int, int, float] | tuple[None, None, None]:
        """Return the sums in bytes and their age, if a pass has ended since the last call; begin a pass when due."""
        if self._running:
            return _UNKNOWN
        now_s = time.monotonic()
        sums = self._result(processes, now_s)
        pss = self._estimate.pss(processes)
        left_s = self._share * (now_s - self._begun_s) - self.spent_s
        if left_s >= 0:
            rss = sum([process.rss for process in processes if process.counted])
            is_higher = rss > self._highest * _HIGHER or pss > self._highest_pss * _HIGHER_ESTIMATE
            if is_higher or self._spoilt or self.spent_s <= left_s:
                self._highest = max(self._highest, rss)
                self._begin(processes)
        return sums

    def _result(self, processes: Sequence[Process], now_s: float) -> tuple[int, int, float] | tuple[None, None, None]:
        """Return the sums of a pass that has ended.

        When a process ends during a pass, the others' shares of its pages grow: with its own share, the sum would count
        them twice. Without it, the sum is at most what the others held at the end. And the loop may have closed its
        folder during the pass, whose number was another folder's when the file was opened.

        Forks during a pass take a share of pages that were not counted yet, and are not counted themselves. If they may
        have taken much, the pass is dropped and repeated, a few times at most.
        """
        if self._counted is None:
            return _UNKNOWN
        (counted, middle_s), self._counted = self._counted, None
        counted = [one for one in counted if one[0].alive and not one[0].sampled_to]
        if not counted:
            return _UNKNOWN
        sums = sum(pss for _, _, pss, _ in counted), sum(uss for _, _, _, uss in counted)
        new = [process for process in processes if process.counted and process not in self._members]
        forks = [process.rss for process in new if process.forked_copy]
        if sum(forks) / (len(forks) + 1) * PAGE > sums[0] * _BLUR and self._spoilt < _MOST_SPOILT:
            self._spoilt += 1
            return _UNKNOWN
        self._spoilt = 0
        self._highest_pss = max(self._highest_pss, sums[0] / PAGE)
        self._estimate = Estimate(counted)
        return (*sums, now_s - middle_s)

    def _begin(self, processes: Sequence[Process]) -> None:
        self._members = {process for process in processes if process.alive and process.counted}
        begun = [(process, process.rss) for process in processes if process in self._members]
        if begun:
            self._running = True
            try:
                _thread.start_new_thread(self._pass, (begun,))
            except RuntimeError:  # the limit of threads
                self._running = False

    def _pass(self, begun: Sequence[tuple[Process, int]]) -> None:
        begun_s = time.monotonic()
        sizes = [_rollup(process) for process, _ in begun]
        if _UNREADABLE not in sizes:
            counted = [(*one, *of_one) for one, of_one in zip(begun, sizes, strict=True) if of_one[0]]
            self._counted = counted, (begun_s + time.monotonic()) / 2
        self.spent_s += time.thread_time()
        self._running = False


class Estimate:
    """PSS as it follows from the last pass, from RSS and from page faults since; in pages.

    A new forked copy shares what it has at first. A page that it copies, because it writes to it, is a fault without a
    change of RSS; such pages are at most as many as it shared.
    """

    def __init__(self, counted: Iterable[Counted] = ()) -> None:
        """Begin with the processes of a pass."""
        self._shared = 0.0
        """The shares of pages that several processes have: when one of these ends, the others hold them."""
        self._known: dict[Process, tuple[float, float, int, int]] = {}
        """Of each process: its private pages less RSS, the pages it copied since, and RSS and faults in the end."""
        for process, rss, pss, uss in counted:
            self._shared += (pss - uss) / PAGE
            self._known[process] = uss / PAGE - rss, 0.0, rss, process.faults

    def pss(self, processes: Iterable[Process]) -> float:
        """Return the estimate at a sample."""
        pages = self._shared
        for process in processes:
            rss, faults = process.rss, process.faults
            if not (rss and process.counted):
                continue
            new = -rss if process.forked_copy else 0, 0.0, rss, faults
            private, copied, rss_before, faults_before = self._known.get(process, new)
            copied += max(0, faults - faults_before - max(0, rss - rss_before))
            copied = min(copied, -private)
            self._known[process] = private, copied, rss, faults
            pages += rss + private + max(0.0, copied)
        return pages


def _rollup(process: Process) -> tuple[int, int]:
    """Return PSS and USS in bytes: 0 for a process that is gone, -1 for one that we may not read."""
    try:
        data = process.read("smaps_rollup")
    except (FileNotFoundError, ProcessLookupError):
        return 0, 0
    except OSError:
        return _UNREADABLE
    lines = (line.split() for line in data.split(b"\n")[1:] if line)
    sizes = {words[0]: int(words[1]) * 1024 for words in lines}
    return sizes.get(b"Pss:", 0), sum(size for key, size in sizes.items() if key.startswith(b"Private_"))
