"""What each operation of a session cost."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from itertools import pairwise
from math import isnan
from typing import TYPE_CHECKING

from nncftools.metrics import cpu_counters
from nncftools.session.model import Mark

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from nncftools.session.model import Session

CPU_WINDOW_S = 0.2
"""CPU time is counted in ticks of 10 ms: over a shorter time, a rate says more of the tick than of the program."""
_TAKEN_FOR_IT = 0.2
"""A sample that follows a mark within this part of the distance to the one before was taken because of the mark."""
_COLUMNS = ("rss", "read_bytes", "write_bytes", "read_chars", "write_chars")
_CPU = "cpu"
"""The sum of the counters that are CPU time."""


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One operation from its mark to its end; bytes and seconds, None for unknown.

    Two operations of one name are two phases; an operation inside another one has a greater depth.
    """

    name: str
    start_s: float
    end_s: float
    depth: int = 0
    pid: int | None = None
    source: str = ""
    kind: str | None = None
    """One of ``nncftools.session.kinds.KINDS``."""
    call: str | None = None
    """The function that was called."""
    error: str | None = None
    """The exception that ended it, or ``unfinished``."""
    count: int = 1
    """How many calls are told together."""
    total_s: float | None = None
    """Seconds in them together; None for a single one."""
    longest_s: float | None = None
    """Seconds of the longest of them; None for a single one."""
    rss_start: float | None = None
    """RSS in the last sample up to the start, or one that was taken for it."""
    rss_end: float | None = None
    """RSS in the last sample up to the end, or one that was taken for it."""
    rss_peak: float | None = None
    """The largest RSS that was sampled meanwhile; None when there was no sample."""
    has_peak: bool = False
    """Whether the largest RSS of the whole run was sampled meanwhile."""
    cpu_s: float | None = None
    cpu_peak: float | None = None
    """The most cores that were busy on average over 0.2 s; None for a shorter phase."""
    read_bytes: float | None = None
    """Delivered by storage."""
    write_bytes: float | None = None
    read_chars: float | None = None
    """By system calls, page cache and pipes included."""
    write_chars: float | None = None

    @property
    def duration_s(self) -> float:
        """Seconds from start to end."""
        return self.end_s - self.start_s

    @property
    def delta(self) -> float | None:
        """What RSS grew by, in bytes."""
        return None if self.rss_start is None or self.rss_end is None else self.rss_end - self.rss_start

    @property
    def cpu_average(self) -> float | None:
        """How many cores were busy on average; None when it was shorter than 0.2 s."""
        return None if self.cpu_s is None or self.duration_s < CPU_WINDOW_S else self.cpu_s / self.duration_s


def phases(session: Session) -> list[Phase]:
    """Return the operations of a session in the order of their starts."""
    if not session.marks:  # no column has to be parsed
        return []
    marks = in_order(session.marks)
    columns = _columns(session)
    peak_s = _peak_s(session)
    found = [_phase(columns, mark, end_s, peak_s) for mark, end_s in zip(marks, ends(marks, session), strict=True)]
    if peak_s is None or any(phase.has_peak for phase in found):
        return found
    rss = columns["rss"]
    return [replace(phase, has_peak=rss.is_taken_for(phase.end_s, peak_s)) for phase in found]


def unmarked(session: Session, shortest_s: float) -> list[Phase]:
    """Return the times of at least ``shortest_s`` in which no operation was marked, as phases without a name."""
    columns = _columns(session)
    peak_s = _peak_s(session)
    marks = in_order(session.marks)
    gaps = []
    free_from_s = 0.0
    for start_s, end_s in [
        *((mark.start_s, end_s) for mark, end_s in zip(marks, ends(marks, session), strict=True)),
        (session.duration_s, session.duration_s),
    ]:
        if start_s - free_from_s >= shortest_s:
            gaps.append(_phase(columns, Mark(name="", start_s=free_from_s), start_s, peak_s))
        free_from_s = max(free_from_s, end_s)
    return gaps


def _peak_s(session: Session) -> float | None:
    """Return when the largest sample of RSS was taken."""
    peak = session.peaks.get("rss")
    return None if peak is None else peak.at_s


def in_order(marks: Iterable[Mark]) -> list[Mark]:
    """Return operations in the order of their starts, outer ones before those that they begin with."""
    return sorted(marks, key=lambda mark: (mark.start_s, mark.depth))


def ends(marks: Sequence[Mark], session: Session) -> list[float]:
    """Return where operations, given in their order, end.

    That is their own end, else the next mark of their process on their level or above, the end of their process, or
    that of the session.
    """
    gone = {process.pid: process.end_s for process in session.processes if process.end_s is not None}
    following: dict[int | None, dict[int, float]] = {}
    found = []
    for mark in reversed(marks):
        after = following.setdefault(mark.pid, {})
        last_s = min(session.duration_s, gone.get(mark.pid, session.duration_s))
        followers = [start_s for depth, start_s in after.items() if depth <= mark.depth]
        found.append(max(mark.start_s, min([*followers, last_s])) if mark.end_s is None else mark.end_s)
        after[mark.depth] = mark.start_s
    return found[::-1]


def _columns(session: Session) -> dict[str, _Column]:
    samples = session.samples
    nothing = array("d")
    spent = [samples[name] for name in cpu_counters(samples)]
    values = {name: samples.get(name, nothing) for name in _COLUMNS}
    values[_CPU] = array("d", map(sum, zip(*spent, strict=True)))
    return {name: _Column(samples.time_s, column) for name, column in values.items()}


def _phase(columns: Mapping[str, _Column], mark: Mark, end_s: float, peak_s: float | None) -> Phase:
    span = mark.start_s, end_s
    cpu_s = columns[_CPU].risen(*span)
    rates = list(columns[_CPU].rates(*span, CPU_WINDOW_S))
    return Phase(
        name=mark.name,
        start_s=mark.start_s,
        end_s=end_s,
        depth=mark.depth,
        pid=mark.pid,
        source=mark.source,
        kind=mark.kind,
        call=mark.call,
        error=mark.error,
        count=mark.count,
        total_s=mark.total_s,
        longest_s=mark.longest_s,
        rss_start=columns["rss"].held(mark.start_s),
        rss_end=columns["rss"].held(end_s),
        rss_peak=columns["rss"].largest(*span),
        has_peak=peak_s is not None and mark.start_s <= peak_s <= end_s,
        cpu_s=cpu_s,
        cpu_peak=max([*rates, (cpu_s or 0.0) / (end_s - mark.start_s)]) if rates else None,
        read_bytes=columns["read_bytes"].risen(*span),
        write_bytes=columns["write_bytes"].risen(*span),
        read_chars=columns["read_chars"].risen(*span),
        write_chars=columns["write_chars"].risen(*span),
    )


class _Column:
    """The samples in which a metric is known."""

    def __init__(self, times: Sequence[float], values: Sequence[float]) -> None:
        if not values:
            times = values
        elif isnan(sum(values)):
            known = [(time, value) for time, value in zip(times, values, strict=True) if not isnan(value)]
            times, values = [time for time, _ in known], [value for _, value in known]
        self.times = times
        """In seconds since the start."""
        self.values = values

    def held(self, at_s: float) -> float | None:
        """Return the value at a moment: that of a sample taken for it, else of the last one before, or of the first."""
        return self.values[max(0, self._after(at_s) - 1)] if self.times else None

    def largest(self, start_s: float, end_s: float) -> float | None:
        """Return the largest value between two moments, that of a sample taken for the latter included."""
        return max(self.values[bisect_left(self.times, start_s) : self._after(end_s)], default=None)

    def _after(self, at_s: float) -> int:
        """Return the place after the last sample up to a moment, one that was taken for it included."""
        after = bisect_right(self.times, at_s)
        return after + (0 < after < len(self.times) and self._follows_at_once(at_s, after))

    def is_taken_for(self, at_s: float, sample_s: float) -> bool:
        """Return whether the sample at ``sample_s`` was taken because of a mark at ``at_s``."""
        after = bisect_right(self.times, at_s)
        return 0 < after < len(self.times) and self.times[after] == sample_s and self._follows_at_once(at_s, after)

    def _follows_at_once(self, at_s: float, after: int) -> bool:
        """Return whether the sample at place ``after``, the first after a moment, was taken because of it."""
        return self.times[after] - at_s <= _TAKEN_FOR_IT * (self.times[after] - self.times[after - 1])

    def risen(self, start_s: float, end_s: float) -> float | None:
        """Return by how much a counter rose."""
        return self._at(end_s) - self._at(start_s) if self.times else None

    def rates(self, start_s: float, end_s: float, window_s: float) -> Iterator[float]:
        """Yield how fast a counter rose in each window from sample to sample between two moments."""
        for before, after in pairwise(self.spaced(start_s, end_s, window_s)):
            yield (self.values[after] - self.values[before]) / (self.times[after] - self.times[before])

    def spaced(self, start_s: float, end_s: float, distance_s: float) -> Iterator[int]:
        """Yield the places of samples between two moments, each at least ``distance_s`` after the one before."""
        times = self.times
        place, last = bisect_left(times, start_s), bisect_right(times, end_s) - 1
        while place <= last:
            yield place
            next_s = times[place] + distance_s
            place += 1
            if place <= last and times[place] < next_s:
                place = bisect_left(times, next_s, place)

    def _at(self, at_s: float) -> float:
        """Return a counter's value: that of a sample taken for this moment, else on a straight line between two."""
        times, values = self.times, self.values
        after = bisect_left(times, at_s)
        if after in {0, len(times)}:
            return values[min(after, len(times) - 1)]
        if self._follows_at_once(at_s, after):
            return values[after]
        share = (at_s - times[after - 1]) / (times[after] - times[after - 1])
        return values[after - 1] + share * (values[after] - values[after - 1])
