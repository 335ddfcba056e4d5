"""The state of a run up to now, in the same memory after a minute and after a day.

Operations are the outermost ones and those that are open: ``reading_marks.resolving`` computes them exactly when the
run has ended. Figures over time are kept in buckets that double their width.
"""

from __future__ import annotations

import shlex
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nncftools.analysis.series import decimated_with_gaps
from nncftools.analysis.session import Session
from nncftools.limits.needs import MACHINE, Effective, smallest
from nncftools.metrics import cpu_counters, is_memory
from nncftools.reading_marks.entries import AUTO, END, Entry, Nesting, Open
from nncftools.render.terminal_plot import Span
from nncftools.session.model import Exit, Frame, Host, MemoryLimit, Rise
from nncftools.session.nesting import with_ends
from nncftools.session.samples import noise
from nncftools.units import printable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Points = tuple[NDArray[np.float64], NDArray[np.float64]]

_MOST = 400
_RECENT = 200
"""The distance of the last samples is the usual one: a recorder merges neighbours in a long recording."""


@dataclass
class _Shown:
    span: Span
    is_outermost: bool


class LiveOperations:
    """Operations of a run that goes on, from the lines of its marks log."""

    def __init__(self) -> None:
        """Begin without operations."""
        self._nesting: Nesting[_Shown] = Nesting()
        self._ended: list[Span] = []
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
        span = Span(entry.name, max(0.0, entry.start_s), entry.end_s, entry.kind)
        around = (outer for outer in self._nesting.every() if entry.source == AUTO or outer.entry.pid != entry.pid)
        outermost = opened.outer is None and next(around, None) is None
        if entry.end_s is None and entry.may_go_on:
            self._nesting.open(opened, _Shown(span, outermost))
        elif outermost and not entry.depth:
            self._keep(span)

    def process_ended(self, pid: int, at_s: float) -> None:
        """End the operations of a process that has ended."""
        self._close(self._nesting.end_process(pid), at_s)

    def _close(self, ended: Sequence[Open[_Shown]], at_s: float) -> None:
        for operation in ended:
            if operation.what.is_outermost:
                self._keep(replace(operation.what.span, end_s=max(at_s, operation.what.span.start_s)))

    def _keep(self, span: Span) -> None:
        before = self._ended[-1] if self._ended else None
        if before is not None and before.name == span.name and len(self._ended) > _MOST // 2:
            self._ended[-1] = replace(before, end_s=span.end_s)  # calls of one function in a row, drawn as one
        else:
            self._ended.append(span)
        if len(self._ended) > _MOST:
            shortest = min(self._ended, key=lambda span: (span.end_s or span.start_s) - span.start_s)
            self._ended.remove(shortest)

    def outermost(self, now_s: float) -> Sequence[Span]:
        """Return the outermost operations up to now, in the order of their starts."""
        current = [operation.what.span for operation in self._nesting.every() if operation.what.is_outermost]
        return sorted([*self._ended, *current], key=lambda span: span.start_s) if now_s >= 0 else []

    def current(self, now_s: float) -> Sequence[Span]:
        """Return the open operations of all threads, in the order of their starts."""
        spans = [operation.what.span for operation in self._nesting.every()]
        return sorted((span for span in spans if span.start_s <= now_s + 1), key=lambda span: span.start_s)


class RecordedOperations:
    """Operations of a run that has ended, up to a moment of it."""

    def __init__(self, session: Session) -> None:
        """Take a session's marks."""
        self._spans = [
            (mark.depth, Span(mark.name, mark.start_s, end_s, mark.kind))
            for mark, end_s in with_ends(session.marks, session)
        ]

    def outermost(self, now_s: float) -> Sequence[Span]:
        """Return the outermost operations up to now, in the order of their starts."""
        begun = [span for depth, span in self._spans if depth == 0 and span.start_s <= now_s]
        return [span if (span.end_s or 0) <= now_s else replace(span, end_s=None) for span in begun]

    def current(self, now_s: float) -> Sequence[Span]:
        """Return the open operations, the outermost first."""
        return [span for _, span in self._spans if span.start_s <= now_s < (span.end_s or 0)]


class History:
    """The smallest and the largest value of every column in buckets of equal length."""

    def __init__(self, columns: Sequence[str], interval_s: float, buckets: int = 4096) -> None:
        """Begin with buckets that hold one sample each."""
        self._places = {name: number for number, name in enumerate(columns)}
        self._size = buckets
        self._interval_s = interval_s
        self.width_s = max(interval_s, 0.01)
        """Seconds that a bucket covers."""
        self.last_s = 0.0
        """The time of the last sample."""
        self._used = 0
        shape = (len(columns), buckets)
        self._low, self._high = np.full(shape, np.nan), np.full(shape, np.nan)
        self._moments = np.full(buckets, np.nan)
        """The time of the last sample in each bucket."""

    def widen(self, columns: Sequence[str]) -> None:
        """Add columns of which nothing is known so far."""
        self._places |= {name: len(self._places) + number for number, name in enumerate(columns)}
        unknown = np.full((len(columns), self._size), np.nan)
        self._low, self._high = (np.vstack([values, unknown]) for values in (self._low, self._high))

    def add(self, time_s: NDArray[np.float64], rows: NDArray[np.float64]) -> None:
        """Take samples in the order of their times, a row for each; NaN is unknown."""
        if not len(time_s):
            return
        self.last_s = float(time_s[-1])
        while self.last_s >= self.width_s * self._size:
            self._double()
        places = (time_s / self.width_s).astype(np.intp)
        begins = np.flatnonzero(np.diff(places, prepend=-1))
        into = places[begins]
        self._used = max(self._used, int(into[-1]) + 1)
        self._low[:, into] = np.fmin(self._low[:, into], np.fmin.reduceat(rows, begins, axis=0).T)
        self._moments[into] = time_s[np.append(begins[1:], len(time_s)) - 1]
        self._high[:, into] = np.fmax(self._high[:, into], np.fmax.reduceat(rows, begins, axis=0).T)

    def _double(self) -> None:
        half = self._size // 2
        for values, of_two in ((self._low, np.fmin), (self._high, np.fmax), (self._moments, np.fmax)):
            values[..., :half] = of_two(values[..., ::2], values[..., 1::2])
            values[..., half:] = np.nan
        self.width_s *= 2
        self._used = -(-self._used // 2)

    def points(self, name: str) -> Points:
        """Return times and values to draw: the smallest and the largest value of each bucket; NaN where unknown.

        The smallest one is at the begin of the bucket, the largest at its last sample.
        """
        taken = np.flatnonzero(~np.isnan(self._moments[: self._used]))
        if name not in self._places or not len(taken):
            return np.empty(0), np.empty(0)
        moments, row = self._moments[taken], self._places[name]
        usual_s = float(np.median(np.diff(moments[-_RECENT:], prepend=np.nan)[1:])) if len(taken) > 1 else np.inf
        values = np.stack([self._low[row, taken], self._high[row, taken]], axis=1).ravel()
        time_s = np.stack([np.minimum(taken * self.width_s, moments), moments], axis=1).ravel()
        return decimated_with_gaps(time_s, values, max(usual_s, self._interval_s), 2 * len(values))

    def totals(self, counters: Sequence[str]) -> Points:
        """Return moments, and the sum of some counters at each; nothing if one of them is unknown."""
        if not counters or not all(name in self._places for name in counters):
            return np.empty(0), np.empty(0)
        sums = self._high[[self._places[name] for name in counters], : self._used].sum(axis=0)
        known = np.flatnonzero(~np.isnan(sums))
        if not len(known):
            return np.empty(0), np.empty(0)
        return np.append(0.0, self._moments[known]), np.append(0.0, sums[known])


RECENT_S = 30.0
"""How far back a trend looks."""
_RECENT_STEP_S = 0.25
_WORDS, _CHARACTERS = 64, 400
"""So much of a command is kept: it tells processes apart."""


@dataclass
class LiveProcess:
    """A process that is alive; ``rss`` in bytes, None for unknown."""

    pid: int | None = None
    name: str = ""
    rss: int | None = None
    command: Sequence[str] = ()
    most: int | None = None
    """The most memory it held by itself in a run that is replayed."""


class SampledPeak(NamedTuple):
    """The largest value of a metric so far, and when it was reached, apart from a small drift."""

    value: float
    at_s: float
    reached: float
    """The value at that time, or a little more."""
    operation: str | None = None
    """The outermost operation that holds it, empty for none; None where only the time says which one it was."""


@dataclass
class Run:
    """A run up to now."""

    command: str
    """As it could be typed. For a process that was attached to, it becomes known during the run."""
    columns: Sequence[str]
    interval_s: float
    host: Host
    attached_to: int | None = None
    operations: LiveOperations | RecordedOperations = field(default_factory=LiveOperations)
    processes: dict[int, LiveProcess] = field(default_factory=dict)
    """The processes that are alive, by their number in the session."""
    latest: dict[str, float] = field(default_factory=dict)
    """The last known value of every metric."""
    latest_s: float = 0.0
    peaks: dict[str, SampledPeak] = field(default_factory=dict)
    recent: deque[tuple[float, float]] = field(default_factory=deque)
    """Seconds and bytes of the last half minute: of what will be exhausted first, as far as it was recorded."""
    limits: list[MemoryLimit] = field(default_factory=list)
    """Those that processes were seen with."""
    max_memory: int | None = None
    """The limit of the recording itself."""
    _recent_of: str = ""
    """The metric of ``recent``."""
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

    def take_rows(self, time_s: NDArray[np.float64], rows: NDArray[np.float64]) -> None:
        """Take samples in the order of their times, a column for each metric; NaN is unknown."""
        kept = time_s >= np.maximum.accumulate(np.append(self.latest_s, time_s))[:-1]
        time_s, rows = time_s[kept], rows[kept]
        if not len(time_s):
            return
        self.history.add(time_s, rows)
        self.latest_s = float(time_s[-1])
        for name, column in zip(self.columns, rows.T, strict=True):
            known = np.flatnonzero(~np.isnan(column))
            if not len(known):
                continue
            self.latest[name] = float(column[known[-1]])
            if is_memory(name):
                highest = float(column[known].max())
                first = known[np.argmax(column[known] >= highest - noise(highest))]
                self._reach(name, highest, float(time_s[first]))
        self._remember(time_s, rows)

    @property
    def limit(self) -> Effective | None:
        """The limit that RSS meets first; None when the machine's memory is the limit."""
        peak = self.peaks.get("rss")
        rss = 0.0 if peak is None else peak.value
        lowest = smallest(self.limits, rss, self.max_memory, self.host.memory)
        return None if lowest is None or lowest.kind == MACHINE else lowest

    def take_rise(self, rise: Rise) -> None:
        """Take a level of RSS that a high-water mark proves between two moments."""
        self._reach("rss", rise.high_water_mark + rise.others, (rise.from_s + rise.to_s) / 2)

    def _reach(self, name: str, value: float, at_s: float) -> None:
        before = self.peaks.get(name)
        if before is None or value - noise(value) > before.reached:
            self.peaks[name] = SampledPeak(value, at_s, value)
        elif value > before.value:
            self.peaks[name] = before._replace(value=value)

    def _remember(self, time_s: NDArray[np.float64], rows: NDArray[np.float64]) -> None:
        columns = list(self.columns)
        name = "system" if "system" in columns and self.host.memory and self.limit is None else "rss"
        if name not in columns:
            return
        if name != self._recent_of:
            self.recent.clear()
            self._recent_of = name
        begin = int(np.searchsorted(time_s, self.latest_s - RECENT_S))
        for at_s, level in zip(time_s[begin:].tolist(), rows[begin:, columns.index(name)].tolist(), strict=True):
            if not self.recent or at_s - self.recent[-1][0] >= _RECENT_STEP_S:
                self.recent.append((at_s, level))
        while self.recent and self.recent[0][0] < self.latest_s - RECENT_S:
            self.recent.popleft()

    def take_process(self, fields: Mapping[str, Any]) -> None:
        """Take facts of a process; a process that has ended is forgotten."""
        number = fields["id"]
        mark = fields.get("high_water_mark")
        if mark and "rss" in self.columns and not fields.get("left_out"):
            self._reach("rss", mark, self.latest_s)
        if fields.get("end_s") is not None or fields.get("left_out"):
            self.end_operations(number, float(fields.get("end_s") or self.latest_s))
            self.processes.pop(number, None)
            return
        process = self.processes.setdefault(number, LiveProcess())
        process.pid = fields.get("pid", process.pid)
        process.name = fields.get("name", process.name)
        if "command" in fields:
            process.command = [word[:_CHARACTERS] for word in fields["command"][:_WORDS]]
        if number == 0 and self.attached_to is not None and fields.get("command"):
            self.command = printable(shlex.join(fields["command"]))

    def end_operations(self, number: int, at_s: float) -> None:
        """End the operations of a process that has ended, or runs another program now."""
        process = self.processes.get(number)
        if process is not None and process.pid is not None and isinstance(self.operations, LiveOperations):
            self.operations.process_ended(process.pid, at_s)

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
