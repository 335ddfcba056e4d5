"""The state of a run up to now, in the same memory after a minute and after a day.

Operations are the outermost ones and those that are open: ``reading_marks.resolving`` computes them exactly when the
run has ended. Figures over time are kept in buckets that double their width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from nncftools.analysis.peaks import PeakCandidate, PeakSoFar, find_near_peak, raise_peak
from nncftools.analysis.summary import decimated_with_gaps
from nncftools.limits.needs import MACHINE, Effective, smallest
from nncftools.metrics import cpu_counters, is_memory
from nncftools.reading_marks.entries import AUTO, END, Entry, Nesting, Open
from nncftools.render.terminal_plot import Span
from nncftools.session.model import Exit, Frame, Host, MemoryLimit

Floats = NDArray[np.float64]
Points = tuple[Floats, Floats]

_MOST = 400
_RECENT = 200
"""The distance of the last samples is the usual one: a recorder merges neighbours in a long recording."""


class LiveOperations:
    """Operations of a run that goes on, from the lines of its marks log."""

    def __init__(self) -> None:
        """Begin without operations."""
        self._nesting: Nesting[Span] = Nesting()
        self._ended: list[Span] = []
        """Outermost operations only."""
        self._programs: set[int | None] = {None}
        """The numbers of programs that wrote a first line."""

    def take(self, entry: Entry) -> None:
        """Take the next line; its time is in seconds from the start."""
        assert entry.start_s is not None
        if entry.program not in self._programs:
            self._programs.add(entry.program)
            self._close(self._nesting.end_process(entry.pid), entry.start_s)
        if not entry.is_operation:
            return
        if entry.event == END:
            self._close(self._nesting.end(entry), entry.start_s)
            return
        opened, ended = self._nesting.begin(entry)
        if opened.entry is not entry:
            return
        self._close([ended] if ended else [], entry.start_s)
        around = (outer for outer in self._nesting.every() if entry.source == AUTO or outer.entry.pid != entry.pid)
        is_outermost = opened.outer is None and next(around, None) is None
        span = Span(entry.name, max(0.0, entry.start_s), entry.end_s, entry.kind, depth=int(not is_outermost))
        if entry.end_s is None and entry.may_go_on:
            self._nesting.open(opened, span)
        elif not entry.depth:
            self._keep(span)

    def end_process(self, pid: int, at_s: float) -> None:
        """End the operations of a process that has ended."""
        self._close(self._nesting.end_process(pid), at_s)

    def _close(self, ended: Sequence[Open[Span]], at_s: float) -> None:
        for operation in ended:
            span = operation.what
            self._keep(replace(span, end_s=max(at_s, span.start_s)))

    def _keep(self, span: Span) -> None:
        if span.depth:
            return
        before = self._ended[-1] if self._ended else None
        if before is not None and before.name == span.name and len(self._ended) > _MOST // 2:
            self._ended[-1] = replace(before, end_s=span.end_s)  # calls of one function in a row, drawn as one
        else:
            self._ended.append(span)
        if len(self._ended) > _MOST:
            shortest = min(self._ended, key=lambda span: (span.end_s or span.start_s) - span.start_s)
            self._ended.remove(shortest)

    def spans(self) -> list[Span]:
        """Return the outermost operations and all that are open, in the order of their starts."""
        current = [operation.what for operation in self._nesting.every()]
        return sorted([*self._ended, *current], key=lambda span: span.start_s)


class History:
    """The smallest and the largest value of every column in buckets of equal length; the first column is the time."""

    def __init__(self, columns: Sequence[str], interval_s: float, buckets: int = 4096) -> None:
        """Begin with buckets that hold one sample each."""
        self._rows = {name: number for number, name in enumerate(columns, start=1)}
        self._interval_s = interval_s
        self.width_s = max(interval_s, 0.01)
        """Seconds that a bucket covers."""
        self._low = np.full((1 + len(columns), buckets), np.nan)
        self._high = np.full_like(self._low, np.nan)

    def widen(self, columns: Sequence[str]) -> None:
        """Add columns of which nothing is known so far."""
        self._rows |= {name: number for number, name in enumerate(columns, start=len(self._low))}
        unknown = np.full((len(columns), self._low.shape[1]), np.nan)
        self._low = np.vstack([self._low, unknown])
        self._high = np.vstack([self._high, unknown])

    def add(self, samples: Floats) -> None:
        """Take samples in the order of their times, a row for each; NaN is unknown."""
        while samples[-1, 0] >= self.width_s * self._low.shape[1]:
            self._double()
        places = (samples[:, 0] / self.width_s).astype(np.intp)
        begins = np.flatnonzero(np.diff(places, prepend=-1))
        into = places[begins]
        self._low[:, into] = np.fmin(self._low[:, into], np.fmin.reduceat(samples, begins, axis=0).T)
        self._high[:, into] = np.fmax(self._high[:, into], np.fmax.reduceat(samples, begins, axis=0).T)

    def _double(self) -> None:
        half = self._low.shape[1] // 2
        for values, of_two in ((self._low, np.fmin), (self._high, np.fmax)):
            values[:, :half] = of_two(values[:, ::2], values[:, 1::2])
            values[:, half:] = np.nan
        self.width_s *= 2

    def points(self, name: str) -> Points:
        """Return times and values to draw: the smallest and the largest value of each bucket; NaN where unknown.

        The smallest one is at the begin of the bucket, the largest at its last sample.
        """
        taken = np.flatnonzero(~np.isnan(self._high[0]))
        if name not in self._rows or not len(taken):
            return np.empty(0), np.empty(0)
        row, moments = self._rows[name], self._high[0, taken]
        usual_s = float(np.median(np.diff(moments[-_RECENT:]))) if len(taken) > 1 else np.inf
        values = np.stack([self._low[row, taken], self._high[row, taken]], axis=1).ravel()
        time_s = np.stack([np.minimum(taken * self.width_s, moments), moments], axis=1).ravel()
        return decimated_with_gaps(time_s, values, max(usual_s, self._interval_s), 2 * len(values))

    def totals(self, counters: Sequence[str]) -> Points:
        """Return moments, and the sum of some counters at each; nothing if one of them is unknown."""
        if not counters or not all(name in self._rows for name in counters):
            return np.empty(0), np.empty(0)
        sums = self._high[[self._rows[name] for name in counters]].sum(axis=0)
        known = np.flatnonzero(~np.isnan(sums))
        if not len(known):
            return np.empty(0), np.empty(0)
        return np.append(0.0, self._high[0, known]), np.append(0.0, sums[known])


@dataclass
class LiveProcess:
    """A process that is alive; ``rss`` in bytes, None for unknown."""

    pid: int | None = None
    name: str = ""
    rss: int | None = None
    command: Sequence[str] = ()
    most: int | None = None
    """The most memory it held by itself in a run that is replayed."""
    cpu: float | None = None
    """How many cores it keeps busy."""

    @property
    def size(self) -> int:
        """Its memory, or the most that it held."""
        return self.rss if self.rss is not None else self.most or 0


@dataclass
class Run:
    """A run up to now."""

    command: str
    """As it could be typed. For a process that was attached to, it becomes known during the run."""
    columns: Sequence[str]
    interval_s: float
    host: Host
    attached_to: int | None = None
    operations: Sequence[Span] = ()
    """The outermost ones and all that are open, in the order of their starts."""
    processes: dict[int, LiveProcess] = field(default_factory=dict)
    """The processes that are alive, by their number in the session."""
    latest: dict[str, float] = field(default_factory=dict)
    """The last known value of every metric."""
    latest_s: float = 0.0
    peaks: dict[str, PeakSoFar] = field(default_factory=dict)
    limits: list[MemoryLimit] = field(default_factory=list)
    """Those that processes were seen with."""
    max_memory: int | None = None
    """The limit of the recording itself."""
    grown: tuple[Frame, float] | None = None
    """Where the program stood when memory last grew, and when; None for unknown."""
    ended: bool = False
    exit: Exit | None = None

    def __post_init__(self) -> None:
        """Begin without samples."""
        self.take_columns(self.columns)

    def take_columns(self, columns: Sequence[str]) -> None:
        """Set the columns of the samples, before the first one."""
        self.columns = columns
        self.history = History(columns, self.interval_s)

    def add_columns(self, columns: Sequence[str]) -> None:
        """Add columns that no sample contained so far."""
        self.columns = [*self.columns, *columns]
        self.history.widen(columns)

    def take_samples(self, samples: Floats) -> None:
        """Take samples in the order of their times: a row for each, with its time first; NaN is unknown."""
        time_s = samples[:, 0]
        samples = samples[time_s >= np.maximum.accumulate(np.append(self.latest_s, time_s))[:-1]]
        if not len(samples):
            return
        self.history.add(samples)
        time_s = samples[:, 0]
        self.latest_s = float(time_s[-1])
        for name, column in zip(self.columns, samples.T[1:], strict=True):
            known = np.flatnonzero(~np.isnan(column))
            if not len(known):
                continue
            self.latest[name] = float(column[known[-1]])
            if is_memory(name):
                highest = int(column[known].max())
                at_s = float(time_s[find_near_peak(column, highest)])
                self.reach(name, PeakCandidate(highest, highest, at_s, at_s))

    @property
    def limit(self) -> Effective | None:
        """The limit that RSS meets first; None when the machine's memory is the limit."""
        peak = self.peaks.get("rss")
        rss = 0.0 if peak is None else peak.value
        lowest = smallest(self.limits, rss, self.max_memory, self.host.memory)
        return None if lowest is None or lowest.kind == MACHINE else lowest

    def reach(self, name: str, candidate: PeakCandidate) -> None:
        """Take a level of a metric that samples or a high-water mark prove."""
        self.peaks[name] = raise_peak(self.peaks.get(name), candidate)

    @property
    def outermost_operations(self) -> list[Span]:
        """The operations that are in no other one."""
        return [span for span in self.operations if not span.depth]

    @property
    def open_operations(self) -> list[Span]:
        """The operations of all threads that go on."""
        return [span for span in self.operations if span.end_s is None]

    def cpu(self) -> float | None:
        """Return how many cores are busy, on average over the last second."""
        return self.rate(cpu_counters(self.columns))

    def rate(self, counters: Sequence[str]) -> float | None:
        """Return at which rate the sum of some counters rose, on average over the last second; None for unknown."""
        moments, totals = self.history.totals(counters)
        begin_s = max(0.0, self.latest_s - max(1.0, 2 * self.interval_s))
        if not len(moments) or begin_s >= self.latest_s:
            return None
        return float(totals[-1] - np.interp(begin_s, moments, totals)) / (self.latest_s - begin_s)
