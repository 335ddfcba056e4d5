"""An operation of a run, and its figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf
from typing import NamedTuple, TypeVar

import msgspec

from nncftools.session.model import Mark
from nncftools.session.signature import signature

_Value = TypeVar("_Value")

RATE_WINDOW_S = 0.2
"""CPU time is counted in ticks of 10 ms: over a shorter time, a rate measures the tick more than the program."""
CPU = "cpu"
"""The column of CPU time: recorded as such, or the sum of the counters that are CPU time."""
RSS = "rss"
_MOSTLY = 0.9
"""Of the time from the first to the last call: with less inside of calls, their own CPU time is unknown."""


class Bracket(NamedTuple):
    """The bounds of a peak, and of the moment at which it was reached, in seconds since the start."""

    low: float
    high: float | None
    """None for unknown."""
    from_s: float
    to_s: float
    likely: float | None = None
    """The best estimate of the peak, at least ``low``; None when it is ``low``."""


class Bounds(NamedTuple):
    """What a figure certainly is at least and at most."""

    low: float
    high: float | None
    """None for unknown."""


class Figures(NamedTuple):
    """The figures of one column for one operation, in the column's unit; None for unknown."""

    start: float | None = None
    """Of a gauge: its value in the last sample up to the start, or in the sample that the mark triggered. Of RSS: what
    was read at the mark, if it was."""
    end: float | None = None
    """The same at the end."""
    peak: Bracket | None = None
    """Of a gauge: the largest sample of the operation; of RSS also what high-water marks that rose during it prove.
    Of a counter: its highest rate per second over 0.2 s."""
    spent: float | None = None
    """Of a counter: by how much it rose."""
    start_bounds: Bounds | None = None
    """The bounds of ``start``; None when it is known to 1 % or 1 MiB."""
    end_bounds: Bounds | None = None
    """The same of ``end``."""

    @property
    def peak_low(self) -> float | None:
        """The lower bound of the peak."""
        return None if self.peak is None else self.peak.low

    @property
    def delta(self) -> float | None:
        """By how much a gauge grew."""
        return None if self.start is None or self.end is None else self.end - self.start

    @property
    def delta_bounds(self) -> Bounds | None:
        """The bounds of ``delta``; None when both ends are known."""
        if self.start is None or self.end is None or self.start_bounds is self.end_bounds is None:
            return None
        start = self.start_bounds or Bounds(self.start, self.start)
        end = self.end_bounds or Bounds(self.end, self.end)
        low = -inf if start.high is None else end.low - start.high
        return Bounds(low, None if end.high is None else end.high - start.low)


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
    has_peak: bool | None = False
    """Whether RSS reached the peak of the whole run during the operation; None when it may have."""
    is_parallel: bool = False
    """Whether others of its process ran meanwhile, neither inside of it nor around it.

    Its figures are those of all of them together.
    """
    process: int | None = None
    """The ``id`` of the process that performed it; None for unknown."""
    cores_s: float | None = None
    """The seconds in which ``cpu_s`` was spent; None for the whole duration."""
    figures: Mapping[str, Figures] = msgspec.field(default_factory=dict)
    """By column; ``cpu`` is the sum of user and system time."""

    def overlaps(self, start_s: float, end_s: float) -> bool:
        """Return whether it shares some time with what ran between two moments."""
        return self.start_s < end_s and self.end_s > start_s

    def of(self, column: str) -> Figures:
        """Return the figures of a column; all are unknown if it was not recorded."""
        return self.figures.get(column, UNKNOWN)

    rss_start = _FigureOf(RSS, lambda rss: rss.start)
    """RSS as it was read at the mark of the start, or else in the last sample up to it."""
    rss_end = _FigureOf(RSS, lambda rss: rss.end)
    """The same at the end."""
    rss_peak = _FigureOf(RSS, lambda rss: rss.peak_low)
    """RSS reached at least this during the operation; None when there was no sample."""
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
    def signature(self) -> str:
        """Its function and what it was called with: ``compress_weights(INT4_SYM, g64)``.

        Empty when it says no more than the name.
        """
        return signature(self.name, self.call, self.arguments)

    @property
    def duration_s(self) -> float:
        """Seconds from start to end."""
        return self.end_s - self.start_s

    @property
    def cpu_average(self) -> float | None:
        """How many cores were busy on average, in calls that are counted together: inside of them.

        None for less than 0.2 s.
        """
        over_s = self.duration_s if self.cores_s is None else self.cores_s
        if self.cores_s is None and self.total_s is not None and self.total_s < over_s * _MOSTLY:
            return None  # CPU time was counted between the calls, too
        return None if self.cpu_s is None or over_s < RATE_WINDOW_S else self.cpu_s / over_s


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
