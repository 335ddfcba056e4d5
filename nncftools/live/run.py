"""The state of a run so far, in limited memory: a long run takes no more memory than a short run.

Only outermost and running operations are stored. When the run has ended, ``reading_marks.resolving`` computes all
operations exactly. Figures over time are stored in buckets. The buckets double in width as the run grows.
"""

from __future__ import annotations

import itertools
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
"""The usual time between samples is computed from this many recent samples. Earlier samples of a long recording may be
merged."""


class LiveOperations:
    """The operations of a recording that is still running, from the lines of the marks log."""

    def __init__(self) -> None:
        self._nesting: Nesting = Nesting()
        self._ended: list[Span] = []
        """The outermost operations that have ended."""
        self._programs: set[int | None] = {None}
        """The programs that have written to the marks log. Each program has a random number; a process gets a new
        number after exec. None stands for lines without a number."""

    def take(self, entry: Entry) -> None:
        """Process the next line of the marks log. Times in ``entry`` are seconds since the start of the recording."""
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
        is_inside = opened.outer is not None
        for outer in self._nesting.every():
            if entry.source == AUTO or outer.entry.pid != entry.pid:
                is_inside = True
        start_s = max(0.0, entry.start_s)
        span = Span(entry.name, start_s, entry.end_s, entry.kind, depth=int(is_inside))
        if entry.end_s is None and entry.may_go_on:
            self._nesting.open(opened, span)
        elif not entry.depth:
            self._store(span)

    def end_process(self, pid: int, at_s: float) -> None:
        """End the operations of a process that has ended, at the time ``at_s``."""
        self._close(self._nesting.end_process(pid), at_s)

    def _close(self, ended: Sequence[Open], at_s: float) -> None:
        for operation in ended:
            span: Span = operation.payload
            self._store(replace(span, end_s=max(at_s, span.start_s)))

    def _store(self, span: Span) -> None:
        ended = self._ended
        if span.depth:
            return
        if len(ended) > _MOST // 2 and ended[-1].name == span.name:  # join successive operations with the same name
            ended[-1] = replace(ended[-1], end_s=span.end_s)
        else:
            ended.append(span)
        if len(ended) > _MOST:
            shortest = min(ended, key=lambda span: (span.end_s or span.start_s) - span.start_s)
            ended.remove(shortest)

    def spans(self) -> list[Span]:
        """Return all outermost operations, and the inner operations that still run, in the order of their starts."""
        current = [operation.payload for operation in self._nesting.every()]
        return sorted([*self._ended, *current], key=lambda span: span.start_s)


class History:
    """The smallest and the largest value of each column, in buckets of equal length; the first column is the time."""

    def __init__(self, columns: Sequence[str], interval_s: float, buckets: int = 4096) -> None:
        """Start with buckets that are ``interval_s`` wide, so that a bucket has a single sample."""
        self._rows = dict(zip(columns, itertools.count(1), strict=False))
        self._interval_s = interval_s
        self.width_s = max(interval_s, 0.01)
        """Width of a bucket in seconds."""
        self._low = np.full((1 + len(columns), buckets), np.nan)
        self._high = np.full_like(self._low, np.nan)

    def widen(self, columns: Sequence[str]) -> None:
        """Add columns whose values are unknown so far."""
        self._rows |= zip(columns, itertools.count(len(self._low)), strict=False)
        _, buckets = self._low.shape
        unknown = np.full((len(columns), buckets), np.nan)
        self._low = np.vstack([self._low, unknown])
        self._high = np.vstack([self._high, unknown])

    def add(self, samples: Floats) -> None:
        """Add samples in time order. A row is a sample; NaN is unknown."""
        while samples[-1, 0] >= self.width_s * self._low.shape[1]:
            self._double()
        buckets = (samples[:, 0] / self.width_s).astype(np.intp)
        begins = np.flatnonzero(np.diff(buckets, prepend=-1))
        buckets = buckets[begins]
        lowest = np.fmin.reduceat(samples, begins, axis=0).T
        highest = np.fmax.reduceat(samples, begins, axis=0).T
        self._low[:, buckets] = np.fmin(self._low[:, buckets], lowest)
        self._high[:, buckets] = np.fmax(self._high[:, buckets], highest)

    def _double(self) -> None:
        self._low = _join_pairs(self._low, np.fmin)
        self._high = _join_pairs(self._high, np.fmax)
        self.width_s *= 2

    def points(self, name: str) -> Points:
        """Return times and values to draw: smallest and largest value of each bucket, with NaN for gaps.

        The smallest value is drawn at the start of the bucket, the largest value at the time of the bucket's last
        sample.
        """
        buckets = np.flatnonzero(~np.isnan(self._high[0]))
        if name not in self._rows or not len(buckets):
            return np.empty(0), np.empty(0)
        row = self._rows[name]
        ends = self._high[0, buckets]
        begins = np.minimum(buckets * self.width_s, ends)
        distance_s = np.inf
        if len(buckets) > 1:
            usual_s = float(np.median(np.diff(ends[-_RECENT:])))
            distance_s = max(usual_s, self._interval_s)
        lowest = self._low[row, buckets]
        highest = self._high[row, buckets]
        values = np.column_stack([lowest, highest]).ravel()
        time_s = np.column_stack([begins, ends]).ravel()
        return decimated_with_gaps(time_s, values, distance_s, 2 * len(values))

    def totals(self, counters: Sequence[str]) -> Points:
        """Return times, and the sum of ``counters`` at each time; empty if a counter is unknown."""
        if not counters or not self._rows.keys() >= set(counters):
            return np.empty(0), np.empty(0)
        rows = [self._rows[name] for name in counters]
        sums = self._high[rows].sum(axis=0)
        known = ~np.isnan(sums)
        if not known.any():
            return np.empty(0), np.empty(0)
        moments = self._high[0, known]
        return np.append(0.0, moments), np.append(0.0, sums[known])


def _join_pairs(values: Floats, extreme: np.ufunc) -> Floats:
    joined = np.full_like(values, np.nan)
    pairs = extreme(values[:, ::2], values[:, 1::2])
    joined[:, : pairs.shape[1]] = pairs
    return joined


@dataclass
class LiveProcess:
    """A process that is alive."""

    pid: int | None = None
    name: str = ""
    rss: int | None = None
    command: Sequence[str] = ()
    most: int | None = None
    """Largest memory of the process; only set in a replay."""
    cpu: float | None = None
    """Number of busy cores; None if unknown."""
    start_s: float | None = None

    @property
    def size(self) -> int:
        """Current memory of the process; if unknown, the largest memory."""
        return self.rss if self.rss is not None else self.most or 0


@dataclass
class Run:
    """The state of a run so far."""

    command: str
    """The command as typed. For a recording that was attached to a process: the command of the process, as soon as it
    is known.
    """
    columns: Sequence[str]
    interval_s: float
    host: Host
    attached_to: int | None = None
    operations: Sequence[Span] = ()
    """All outermost operations, and the inner operations that still run, in the order of their starts."""
    processes: dict[int, LiveProcess] = field(default_factory=dict)
    """The processes that are alive, by ``id``."""
    latest: dict[str, float] = field(default_factory=dict)
    """The last known value of each metric."""
    latest_s: float = 0.0
    peaks: dict[str, PeakSoFar] = field(default_factory=dict)
    limits: list[MemoryLimit] = field(default_factory=list)
    """Memory limits that apply to the processes."""
    max_memory: int | None = None
    """The limit that ``--max-memory`` sets; None for no limit."""
    grown: tuple[Frame, float] | None = None
    """(code that ran when memory last grew, time of this growth in seconds since the start); None if unknown."""
    ended: bool = False
    exit: Exit | None = None

    def __post_init__(self) -> None:
        self.take_columns(self.columns)

    def take_columns(self, columns: Sequence[str]) -> None:
        """Set the columns of the samples. Only allowed before the first sample."""
        self.columns = columns
        self.history = History(columns, self.interval_s)

    def add_columns(self, columns: Sequence[str]) -> None:
        """Add columns that earlier samples lack."""
        self.columns = [*self.columns, *columns]
        self.history.widen(columns)

    def take_samples(self, samples: Floats) -> None:
        """Add samples in time order. A row is a sample: the time, then the values; NaN is unknown."""
        time_s = samples[:, 0]
        latest_s = np.maximum.accumulate(np.append(self.latest_s, time_s))
        samples = samples[time_s >= latest_s[:-1]]
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
        """The limit that RSS would reach first; None if only the machine's memory limits the run."""
        peak = self.peaks.get("rss")
        rss = 0.0 if peak is None else peak.value
        lowest = smallest(self.limits, rss, self.max_memory, self.host.memory)
        return None if lowest is None or lowest.kind == MACHINE else lowest

    def reach(self, name: str, candidate: PeakCandidate) -> None:
        """Raise the peak of a metric if ``candidate``, a sample or a high-water mark, is higher."""
        self.peaks[name] = raise_peak(self.peaks.get(name), candidate)

    @property
    def outermost_operations(self) -> list[Span]:
        """The operations that are not inside other operations."""
        return [span for span in self.operations if not span.depth]

    @property
    def open_operations(self) -> list[Span]:
        """The operations that are still running, of all threads."""
        return [span for span in self.operations if span.end_s is None]

    def cpu(self) -> float | None:
        """Return the mean number of busy cores over the last second; None if unknown."""
        return self.rate(cpu_counters(self.columns))

    def rate(self, counters: Sequence[str]) -> float | None:
        """Return how fast the sum of ``counters`` grew over the last second; None if unknown."""
        moments, totals = self.history.totals(counters)
        begin_s = max(0.0, self.latest_s - max(1.0, 2 * self.interval_s))
        duration_s = self.latest_s - begin_s
        if not len(moments) or not duration_s:
            return None
        before = np.interp(begin_s, moments, totals)
        return float(totals[-1] - before) / duration_s
