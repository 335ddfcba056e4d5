"""What the tree can have held between two samples: as much as page faults and high-water marks leave.

RSS grows by page faults only, and each adds a page, or a huge page. So between two samples a process held at most what
it held before and what its faults since then can have added, and at most its high-water mark.
"""

from __future__ import annotations

from nncftools.sampler.high_water_marks import LARGEST_FAULT
from nncftools.sampler.kernel_file import PAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from nncftools.sampler.tree import Process

_UNKNOWN = 1 << 50
"""More pages than a machine has."""
_FEW = 2
"""Samples of a new process."""
_NOISE, _SHARE = 1 << 20, 100
"""Less than this, or than one part in so many, is not recorded."""


def is_new(process: Process) -> bool:
    """Return whether a process has just begun: it maps libraries, of which one fault adds several pages."""
    return process.samples <= _FEW and not process.forked_copy


class Unseen:
    """Records between which samples more can have been held than they show.

    Huge pages are counted for the whole machine, and seldom: what depends on them waits for the next count. What was
    mapped between two samples is the difference of a count before the first one and a count after the second one.
    """

    def __init__(self, write_line: Callable[[str, object], None]) -> None:
        self._write_line = write_line
        self._before = 0
        self._grown = self._grown_huge = 0
        """The pages that processes can have added which ended since the sample before, without and with huge ones."""
        self._waiting: list[tuple[float, float, int, int, int, int | None]] = []
        self._huge_before: int | None = None
        self._huge_now: int | None = None
        """Bytes in huge pages, counted before the processes were read: for the sample before, and for this one."""

    def begin(self, huge_pages: int | None) -> None:
        """Begin a sample: so many bytes were mapped in huge pages at some moment before; None for unknown."""
        self._huge_before, self._huge_now = self._huge_now, huge_pages

    def ended(self, process: Process) -> None:
        """Take a process that has left the tree since the sample before."""
        if not process.samples:  # a session adds the most that it can have held
            return
        if process.exit is None:  # without the kernel's exit accounting
            faults = most = _UNKNOWN
        else:
            most = process.exit.high_water_mark // PAGE - process.rss
            was_zombie = not process.rss  # its last faults are in the sample
            faults = most if is_new(process) and not was_zombie else process.exit.faults - process.faults
        self._grown += max(0, min(faults, most))
        self._grown_huge += max(0, min(faults * LARGEST_FAULT, most))

    def read(
        self,
        rss: float | None,
        restless: Collection[Process],
        fresh: Iterable[Process],
        unread: Collection[Process],
        span_s: tuple[float, float],
    ) -> bool:
        """Compare what the tree can have held with two samples, of which the second has a sum of ``rss`` bytes.

        ``restless`` processes had page faults meanwhile, ``fresh`` ones are not in the sample before, and the marks of
        ``unread`` ones were not read since. Return whether it should be known now what huge pages have added.
        """
        now, before = int(rss or 0) // PAGE, self._before
        self._before = now
        begun = sum(process.rss for process in fresh if not (process in restless or _was_there(process)))
        most, most_huge = before + begun + self._grown, before + begun + self._grown_huge
        self._grown = self._grown_huge = 0
        may_be_huge = False
        for process in restless:
            held, added = process.rss_before, process.faults - process.faults_before
            mark = _UNKNOWN if process in unread else process.mark.size // PAGE
            if process.exit is not None:
                mark = process.exit.high_water_mark // PAGE
            if is_new(process):
                added = max(added, mark) if mark < _UNKNOWN else added
            base = held if _was_there(process) else 0
            may_be_huge |= process.rss - held >= LARGEST_FAULT
            most += max(process.rss, min(held + added, mark)) - base
            most_huge += max(process.rss, min(held + added * LARGEST_FAULT, mark)) - base
        if most_huge > max(now, before) + _noise(now):
            self._waiting.append((*span_s, max(now, before), most, most_huge, self._huge_before))
        return may_be_huge or bool(self._waiting)

    def settle(self, huge_pages: int | None) -> None:
        """Write what waits: so many bytes were mapped in huge pages so far, None for unknown."""
        for from_s, to_s, seen, most, most_huge, before in self._waiting:
            huge = _UNKNOWN if before is None or huge_pages is None else (huge_pages - before) // PAGE
            size = max(most, min(most + huge, most_huge))
            if size > seen + _noise(seen):
                rss = size * PAGE if size < _UNKNOWN else None
                self._write_line("unseen", {"from_s": round(from_s, 6), "to_s": round(to_s, 6), "rss": rss})
        self._waiting.clear()


def _was_there(process: Process) -> bool:
    """Return whether a process is part of the sample before the last one."""
    return process.samples > (process.counted and process.rss > 0)


def _noise(pages: int) -> int:
    return max(_NOISE // PAGE, pages // _SHARE)
