"""What each operation of a session cost."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf, isnan, nextafter
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from nncftools import metrics
from nncftools.session.model import Mark

if TYPE_CHECKING:
    from nncftools.session.model import SessionData
    from nncftools.session.samples import Samples

_Value = TypeVar("_Value")

RATE_WINDOW_S = 0.2
"""CPU time is counted in ticks of 10 ms: over a shorter time, a rate measures the tick more than the program."""
CPU = "cpu"
"""The column of CPU time: recorded as such, or the sum of the counters that are CPU time."""
RSS = "rss"
_TRIGGERED = 0.2
"""A sample was triggered by a mark if it follows the mark within this part of the distance to the sample before."""


class Bracket(NamedTuple):
    """The bounds of a peak, and of its moment in seconds since the start."""

    low: float
    high: float | None
    """None for unknown."""
    from_s: float
    to_s: float


class Figures(NamedTuple):
    """The figures of one column for one operation, in the column's unit; None for unknown."""

    start: float | None = None
    """Of a gauge: its value in the last sample up to the start, or in the sample that the mark triggered."""
    end: float | None = None
    """The same at the end."""
    peak: Bracket | None = None
    """Of a gauge: the largest sample of the operation. Of a counter: its highest rate per second over 0.2 s."""
    spent: float | None = None
    """Of a counter: by how much it rose."""

    @property
    def peak_low(self) -> float | None:
        """The lower bound of the peak."""
        return None if self.peak is None else self.peak.low

    @property
    def delta(self) -> float | None:
        """By how much a gauge grew."""
        return None if self.start is None or self.end is None else self.end - self.start


UNKNOWN = Figures()


class _FigureOf:
    """An attribute of an operation that is one figure of one column."""

    def __init__(self, column: str, figure: Callable[[Figures], float | None]) -> None:
        self._column, self._figure = column, figure

    def __get__(self, operation: Operation, _: type[Operation]) -> float | None:
        return self._figure(operation.of(self._column))


class Operation(Mark, frozen=True, kw_only=True):  # type: ignore[misc] # a rule of dataclasses, not of msgspec
    """One operation with its end and its figures; bytes and seconds, None for unknown.

    Two operations with one name are two. An operation inside another one has a greater depth.
    """

    end_s: float
    has_peak: bool = False
    """Whether the largest RSS of the whole run was sampled during the operation."""
    figures: Mapping[str, Figures] = msgspec.field(default_factory=dict)
    """By column; ``cpu`` is the sum of user and system time."""

    def of(self, column: str) -> Figures:
        """Return the figures of a column; all are unknown if it was not recorded."""
        return self.figures.get(column, UNKNOWN)

    rss_start = _FigureOf(RSS, lambda rss: rss.start)
    """RSS in the last sample up to the start, or in the sample that the mark triggered."""
    rss_end = _FigureOf(RSS, lambda rss: rss.end)
    """RSS in the last sample up to the end, or in the sample that the mark triggered."""
    rss_peak = _FigureOf(RSS, lambda rss: rss.peak_low)
    """The largest RSS sampled during the operation; None when there was no sample."""
    delta = _FigureOf(RSS, lambda rss: rss.delta)
    """By how much RSS grew, in bytes."""
    cpu_s = _FigureOf(CPU, lambda cpu: cpu.spent)
    """CPU seconds of all processes during the operation."""
    cpu_peak = _FigureOf(CPU, lambda cpu: cpu.peak_low)
    """The most cores that were busy on average over 0.2 s; None for a shorter operation."""
    read_bytes = _FigureOf("read_bytes", lambda counter: counter.spent)
    """Bytes that storage delivered."""
    write_bytes = _FigureOf("write_bytes", lambda counter: counter.spent)
    """Bytes sent to storage."""
    read_chars = _FigureOf("read_chars", lambda counter: counter.spent)
    """Bytes read by system calls, page cache and pipes included."""
    write_chars = _FigureOf("write_chars", lambda counter: counter.spent)
    """Bytes written by system calls, page cache and pipes included."""

    @property
    def duration_s(self) -> float:
        """Seconds from start to end."""
        return self.end_s - self.start_s

    @property
    def cpu_average(self) -> float | None:
        """How many cores were busy on average; None when the operation was shorter than 0.2 s."""
        return None if self.cpu_s is None or self.duration_s < RATE_WINDOW_S else self.cpu_s / self.duration_s


class LazyMapping(Mapping[str, _Value]):
    """Values by name, each computed when it is first asked for: a report needs few of the columns."""

    def __init__(self, names: Iterable[str], compute: Callable[[str], _Value]) -> None:
        """Have ``compute`` return the value of a name."""
        self._known: dict[str, _Value | None] = dict.fromkeys(names)
        self._compute = compute

    def __getitem__(self, name: str) -> _Value:
        found = self._known[name]
        if found is None:
            found = self._known[name] = self._compute(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


def operations(session: SessionData) -> list[Operation]:
    """Return the operations of a session in the order of their starts."""
    if not session.marks:  # no column has to be parsed
        return []
    columns = _columns(session.samples)
    peak_s = _peak_s(session)
    found = [_operation(columns, mark, end_s, peak_s) for mark, end_s in with_ends(session.marks, session)]
    if peak_s is None or RSS not in columns or any(operation.has_peak for operation in found):
        return found
    return [replace(operation, has_peak=columns[RSS].triggered(operation.end_s, peak_s)) for operation in found]


def unmarked(session: SessionData, shortest_s: float) -> list[Operation]:
    """Return the times of at least ``shortest_s`` that no operation covers, as operations without a name."""
    columns = _columns(session.samples)
    gaps = []
    free_from_s = 0.0
    covered = [(mark.start_s, end_s) for mark, end_s in with_ends(session.marks, session)]
    for start_s, end_s in [*covered, (session.duration_s, session.duration_s)]:
        if start_s - free_from_s >= shortest_s:
            gaps.append(_operation(columns, Mark(name="", start_s=free_from_s), start_s, _peak_s(session)))
        free_from_s = max(free_from_s, end_s)
    return gaps


def _peak_s(session: SessionData) -> float | None:
    """Return when the largest sample of RSS was taken."""
    peak = session.peaks.get(RSS)
    return None if peak is None else peak.at_s


def in_order(marks: Iterable[Mark]) -> list[Mark]:
    """Return marks in the order of their starts, outer ones before inner ones with the same start."""
    return sorted(marks, key=lambda mark: (mark.start_s, mark.depth))


def with_ends(marks: Iterable[Mark], session: SessionData) -> list[tuple[Mark, float]]:
    """Return marks in order, each with the end of its operation.

    The end is the mark's own, or else the next mark of the same process on the same level or above, the end of the
    process, or the end of the session.
    """
    process_ends = {process.pid: process.end_s for process in session.processes if process.end_s is not None}
    following: dict[int | None, dict[int, float]] = {}
    found = []
    for mark in reversed(in_order(marks)):
        after = following.setdefault(mark.pid, {})
        last_s = min(session.duration_s, process_ends.get(mark.pid, session.duration_s))
        followers = [start_s for depth, start_s in after.items() if depth <= mark.depth]
        found.append((mark, max(mark.start_s, min([*followers, last_s])) if mark.end_s is None else mark.end_s))
        after[mark.depth] = mark.start_s
    return found[::-1]


def _operation(columns: Mapping[str, _Column], mark: Mark, end_s: float, peak_s: float | None) -> Operation:
    def figures(name: str) -> Figures:
        column = columns[name]
        return (column.counted if metrics.is_counter(name) else column.held)(mark.start_s, end_s)

    return Operation(
        **{**msgspec.structs.asdict(mark), "end_s": end_s},
        has_peak=peak_s is not None and mark.start_s <= peak_s <= end_s,
        figures=LazyMapping(columns, figures),
    )


def _columns(samples: Samples) -> Mapping[str, _Column]:
    """Return the columns of a session, and ``cpu`` if CPU time is known."""
    cpu_counters = metrics.cpu_counters(samples)

    def column(name: str) -> _Column:
        if name != CPU:
            return _Column(samples.time_s, samples[name])
        return _Column(
            samples.time_s, array("d", map(sum, zip(*(samples[part] for part in cpu_counters), strict=True)))
        )

    return LazyMapping([*samples.metrics, *([CPU] if cpu_counters else [])], column)


class _Column:
    """The samples in which a metric is known."""

    def __init__(self, times: Sequence[float], values: Sequence[float]) -> None:
        if isnan(sum(values)):
            known = [(time, value) for time, value in zip(times, values, strict=True) if not isnan(value)]
            times, values = [time for time, _ in known], [value for _, value in known]
        self.times = times
        """In seconds since the start."""
        self.values = values

    def held(self, start_s: float, end_s: float) -> Figures:
        """Return the figures of a gauge between two moments; a sample triggered by the end counts."""
        if not self.times:
            return UNKNOWN
        first, after = bisect_left(self.times, start_s), self._after(end_s)
        values = self.values[first:after]
        start, end = self.values[max(0, self._after(start_s) - 1)], self.values[max(0, after - 1)]
        if not values:
            return Figures(start, end)
        highest = max(values)
        at_s = self.times[first + values.index(highest)]
        return Figures(start, end, Bracket(highest, None, at_s, at_s))

    def counted(self, start_s: float, end_s: float) -> Figures:
        """Return the figures of a counter between two moments."""
        if not self.times:
            return UNKNOWN
        spent = self._at(end_s) - self._at(start_s)
        rates = [
            (self.values[after] - self.values[before]) / (self.times[after] - self.times[before])
            for before, after in pairwise(spaced(self.times, RATE_WINDOW_S, start_s, end_s))
        ]
        if not rates:
            return Figures(spent=spent)
        return Figures(spent=spent, peak=Bracket(max([*rates, spent / (end_s - start_s)]), None, start_s, end_s))

    def _after(self, at_s: float) -> int:
        """Return the place after the last sample up to a moment, including a sample triggered by it."""
        after = bisect_right(self.times, at_s)
        return after + self._is_triggered(at_s, after)

    def triggered(self, at_s: float, sample_s: float) -> bool:
        """Return whether a mark at ``at_s`` triggered the sample at ``sample_s``."""
        after = bisect_right(self.times, at_s)
        return self._is_triggered(at_s, after) and self.times[after] == sample_s

    def _is_triggered(self, at_s: float, after: int) -> bool:
        """Return whether a mark at ``at_s`` triggered the sample at place ``after``, the first one that follows."""
        if not 0 < after < len(self.times):
            return False
        return self.times[after] - at_s <= _TRIGGERED * (self.times[after] - self.times[after - 1])

    def _at(self, at_s: float) -> float:
        """Return a counter's value: that of a sample triggered by this moment, else interpolated between two."""
        times, values = self.times, self.values
        after = bisect_left(times, at_s)
        if after in {0, len(times)}:
            return values[min(after, len(times) - 1)]
        if self._is_triggered(at_s, after):
            return values[after]
        share = (at_s - times[after - 1]) / (times[after] - times[after - 1])
        return values[after - 1] + share * (values[after] - values[after - 1])


def spaced(times: Sequence[float], distance_s: float, start_s: float = -inf, end_s: float = inf) -> Iterator[int]:
    """Yield the places of samples between two moments, each at least ``distance_s`` after the one before."""
    place, stop = bisect_left(times, start_s), bisect_right(times, end_s)
    while place < stop:
        yield place
        next_s = max(times[place] + distance_s, nextafter(times[place], inf))
        place += 1
        if place < stop and times[place] < next_s:  # most samples are further apart: no search for the next one
            place = bisect_left(times, next_s, place)
