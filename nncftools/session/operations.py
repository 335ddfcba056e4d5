"""What each operation of a session cost."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import isnan
from typing import TYPE_CHECKING, NamedTuple

from nncftools import metrics
from nncftools.session.model import Mark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from nncftools.session.model import SessionData
    from nncftools.session.samples import Samples

RATE_WINDOW_S = 0.2
"""CPU time is counted in ticks of 10 ms: over a shorter time, a rate says more of the tick than of the program."""
CPU = "cpu"
"""The column of CPU time: recorded as such, or the sum of the counters that are CPU time."""
RSS = "rss"
_TAKEN_FOR_IT = 0.2
"""A sample that follows a mark within this part of the distance to the one before was taken because of the mark."""


class Bracket(NamedTuple):
    """What a peak was at least and at most, and between which two moments it was."""

    low: float
    high: float | None
    """None for unknown."""
    from_s: float
    to_s: float


class Figures(NamedTuple):
    """What one column says of one operation, in the column's unit; None for unknown."""

    start: float | None = None
    """Of a gauge: its value in the last sample up to the start, or in one that was taken for it."""
    end: float | None = None
    """The same at the end."""
    peak: Bracket | None = None
    """Of a gauge: the largest sample meanwhile. Of a counter: how much it rose per second, in the fastest 0.2 s."""
    spent: float | None = None
    """Of a counter: by how much it rose."""

    @property
    def delta(self) -> float | None:
        """By how much a gauge grew."""
        return None if self.start is None or self.end is None else self.end - self.start


UNKNOWN = Figures()


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One operation from its mark to its end; bytes and seconds, None for unknown.

    Two operations of one name are two; one that is inside another has a greater depth.
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
    """How many calls this row stands for."""
    total_s: float | None = None
    """Seconds in these calls; None for a single one."""
    longest_s: float | None = None
    """Seconds of the longest of them; None for a single one."""
    has_peak: bool = False
    """Whether the largest RSS of the whole run was sampled meanwhile."""
    figures: Mapping[str, Figures] = field(default_factory=dict)
    """By column; ``cpu`` is the sum of user and system time."""

    @property
    def duration_s(self) -> float:
        """Seconds from start to end."""
        return self.end_s - self.start_s

    def of(self, column: str) -> Figures:
        """Return what a column says of it; all is unknown where it was not recorded."""
        return self.figures.get(column, UNKNOWN)

    @property
    def rss_start(self) -> float | None:
        """RSS in the last sample up to the start, or one that was taken for it."""
        return self.of(RSS).start

    @property
    def rss_end(self) -> float | None:
        """RSS in the last sample up to the end, or one that was taken for it."""
        return self.of(RSS).end

    @property
    def rss_peak(self) -> float | None:
        """The largest RSS that was sampled meanwhile; None when there was no sample."""
        return _low(self.of(RSS).peak)

    @property
    def delta(self) -> float | None:
        """What RSS grew by, in bytes."""
        return self.of(RSS).delta

    @property
    def cpu_s(self) -> float | None:
        """CPU seconds of all processes meanwhile."""
        return self.of(CPU).spent

    @property
    def cpu_peak(self) -> float | None:
        """The most cores that were busy on average over 0.2 s; None for a shorter operation."""
        return _low(self.of(CPU).peak)

    @property
    def cpu_average(self) -> float | None:
        """How many cores were busy on average; None when it was shorter than 0.2 s."""
        return None if self.cpu_s is None or self.duration_s < RATE_WINDOW_S else self.cpu_s / self.duration_s

    @property
    def read_bytes(self) -> float | None:
        """Delivered by storage."""
        return self.of("read_bytes").spent

    @property
    def write_bytes(self) -> float | None:
        """Sent to storage."""
        return self.of("write_bytes").spent

    @property
    def read_chars(self) -> float | None:
        """Read by system calls, page cache and pipes included."""
        return self.of("read_chars").spent

    @property
    def write_chars(self) -> float | None:
        """Written by system calls, the same."""
        return self.of("write_chars").spent


def _low(peak: Bracket | None) -> float | None:
    return None if peak is None else peak.low


class LazyFigures(Mapping[str, Figures]):
    """Figures by column, each computed when first asked for: a report needs few of them."""

    def __init__(self, columns: Iterable[str], figures: Callable[[str], Figures]) -> None:
        """Have ``figures`` compute those of a column."""
        self._known: dict[str, Figures | None] = dict.fromkeys(columns)
        self._figures = figures

    def __getitem__(self, column: str) -> Figures:
        found = self._known[column]
        if found is None:
            found = self._known[column] = self._figures(column)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


def operations(session: SessionData) -> list[Operation]:
    """Return the operations of a session in the order of their starts."""
    if not session.marks:  # no column has to be parsed
        return []
    marks = in_order(session.marks)
    columns = _Columns(session.samples)
    peak_s = _peak_s(session)
    found = [_operation(columns, mark, end_s, peak_s) for mark, end_s in zip(marks, ends(marks, session), strict=True)]
    if peak_s is None or any(operation.has_peak for operation in found):
        return found
    rss = columns[RSS]
    return [replace(operation, has_peak=rss.is_taken_for(operation.end_s, peak_s)) for operation in found]


def unmarked(session: SessionData, shortest_s: float) -> list[Operation]:
    """Return the times of at least ``shortest_s`` in which nothing was marked, as operations without a name."""
    columns = _Columns(session.samples)
    peak_s = _peak_s(session)
    marks = in_order(session.marks)
    gaps = []
    free_from_s = 0.0
    for start_s, end_s in [
        *((mark.start_s, end_s) for mark, end_s in zip(marks, ends(marks, session), strict=True)),
        (session.duration_s, session.duration_s),
    ]:
        if start_s - free_from_s >= shortest_s:
            gaps.append(_operation(columns, Mark(name="", start_s=free_from_s), start_s, peak_s))
        free_from_s = max(free_from_s, end_s)
    return gaps


def _peak_s(session: SessionData) -> float | None:
    """Return when the largest sample of RSS was taken."""
    peak = session.peaks.get(RSS)
    return None if peak is None else peak.at_s


def in_order(marks: Iterable[Mark]) -> list[Mark]:
    """Return operations in the order of their starts, outer ones before those that they begin with."""
    return sorted(marks, key=lambda mark: (mark.start_s, mark.depth))


def ends(marks: Sequence[Mark], session: SessionData) -> list[float]:
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


class _Columns(Mapping[str, "_Column"]):
    """The columns of a session, and ``cpu``; each is made ready when first asked for."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples
        self._spent = metrics.cpu_counters(samples)
        self.names = [*samples.metrics, *([CPU] if self._spent and CPU not in samples else [])]
        self._ready: dict[str, _Column] = {}

    def __getitem__(self, name: str) -> _Column:
        if name not in self._ready:
            self._ready[name] = _Column(self._samples.time_s, self._values(name))
        return self._ready[name]

    def _values(self, name: str) -> Sequence[float]:
        if name == CPU:
            return array("d", map(sum, zip(*(self._samples[part] for part in self._spent), strict=True)))
        return self._samples.get(name, array("d"))

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def _operation(columns: _Columns, mark: Mark, end_s: float, peak_s: float | None) -> Operation:
    span = mark.start_s, end_s
    return Operation(
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
        has_peak=peak_s is not None and mark.start_s <= peak_s <= end_s,
        figures=LazyFigures(columns, lambda name: _figures(columns[name], span, is_counter=metrics.is_counter(name))),
    )


def _figures(column: _Column, span: tuple[float, float], *, is_counter: bool) -> Figures:
    start_s, end_s = span
    if not is_counter:
        return Figures(column.held(start_s), column.held(end_s), column.largest(start_s, end_s))
    spent = column.risen(start_s, end_s)
    rates = list(column.rates(start_s, end_s, RATE_WINDOW_S))
    fastest = max([*rates, (spent or 0.0) / (end_s - start_s)]) if rates else None
    return Figures(spent=spent, peak=None if fastest is None else Bracket(fastest, None, start_s, end_s))


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

    def largest(self, start_s: float, end_s: float) -> Bracket | None:
        """Return the largest value between two moments, that of a sample taken for the latter included."""
        first = bisect_left(self.times, start_s)
        values = self.values[first : self._after(end_s)]
        if not values:
            return None
        highest = max(values)
        at_s = self.times[first + values.index(highest)]
        return Bracket(highest, None, at_s, at_s)

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
