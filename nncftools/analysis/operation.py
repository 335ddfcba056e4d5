"""An operation of a run: its kind, which gives it name and colour, its function as people read it, and its figures.

``Column`` computes the figures of one metric between two moments.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf, isnan, nextafter
from typing import NamedTuple, TypeVar

import msgspec

from nncftools.metrics import DEVICE_ALLOCATED, DEVICE_MEMORY
from nncftools.session.model import END_UNKNOWN, LateReadings, Mark
from nncftools.session.samples import first_at_least, noise


def short_name(call: str) -> str:
    """Return the part of a function's name that says what it does.

    That is its last part if it has several words (``compress_weights``) or is NNCF's (``quantize``). A method of one
    word needs its class (``AWQ.apply``), any other function its whole name (``torch.onnx.export``).
    """
    *before, last = call.split(".")
    is_method = bool(before) and before[-1][:1].isupper()
    if is_method and last in {"from_pretrained", "save_pretrained"}:  # many classes have them
        return f"{before[-1]}.{last}"
    if "_" in last.strip("_") or before == ["nncf"]:
        return last
    return f"{before[-1]}.{last}" if is_method else call


def signature(name: str, call: str | None, arguments: str | None) -> str:
    """Return the function of an operation with its arguments; empty when it says no more than the operation's name.

    Several functions of one operation are all named.
    """
    if call is None:
        return ""
    calls = call.split(", ")
    if arguments is not None:
        return f"{short_name(call)}({arguments})"
    owner = call.rpartition(".")[0].rpartition(".")[2]
    if len(calls) == 1 and owner[:1].isupper() and _plain(name) in _plain(owner):
        return ""
    return ", ".join(map(short_name, calls))


def _plain(text: str) -> str:
    return "".join(filter(str.isalnum, text)).casefold()


_Value = TypeVar("_Value")

RATE_WINDOW_S = 0.2
"""CPU time is counted in ticks of 10 ms: over a shorter time, a rate measures the tick more than the program."""
CPU = "cpu"
"""The column of CPU time: recorded as such, or the sum of the counters that are CPU time."""
RSS = "rss"


class Bracket(NamedTuple):
    """The bounds of a peak, and of the moment at which it was reached, in seconds since the start."""

    low: float
    high: float | None
    """None for unknown."""
    from_s: float
    to_s: float
    likely: float | None = None
    """The best estimate of the peak, at least ``low``; None when it is ``low``."""


class Figures(NamedTuple):
    """The figures of one column for one operation, in the column's unit; None for unknown."""

    start: float | None = None
    """Of a gauge: its value in the last sample up to the start, or in the sample that the mark triggered. Of RSS: what
    was read at the mark, if it was."""
    end: float | None = None
    """The same at the end."""
    peak: Bracket | None = None
    """Of a gauge: the largest sample of the operation; of RSS also what high-water marks that rose during it prove."""
    spent: float | None = None
    """Of a counter: by how much it rose."""
    start_is_estimate: bool = False
    """Whether memory changed around the start and ``start`` was not read at the mark."""
    end_is_estimate: bool = False

    @property
    def peak_low(self) -> float | None:
        """The lower bound of the peak."""
        return None if self.peak is None else self.peak.low

    @property
    def delta(self) -> float | None:
        """By how much a gauge grew."""
        return None if self.start is None or self.end is None else self.end - self.start

    @property
    def delta_is_estimate(self) -> bool:
        """Whether ``start`` or ``end`` is an estimate."""
        return self.start_is_estimate or self.end_is_estimate


UNKNOWN = Figures()


class _FigureOf:
    """An attribute of an operation that is one figure of one column."""

    def __init__(self, column: str, figure: str) -> None:
        self._column = column
        self._figure = figure

    def __get__(self, operation: Operation, _: type[Operation]) -> float | None:
        figure: float | None = getattr(operation.of(self._column), self._figure)
        return figure


class Operation(Mark, eq=False, kw_only=True):
    """One operation with its end and its figures; bytes and seconds, None for unknown.

    Two operations with one name are two. An operation inside another one has a greater depth.
    """

    end_s: float
    parent: Operation | None = None
    """The operation that encloses it; None for an outermost one."""
    calls: Sequence[Operation] = ()
    """The calls of which it is the sum, if it stands for several."""
    has_peak: bool | None = False
    """Whether RSS reached the peak of the whole run during the operation; None when it may have."""
    is_parallel: bool = False
    """Whether others of its process, neither inside of it nor around it, ran at the same time.

    Its figures are those of all of them together.
    """
    process: int | None = None
    """The ``id`` of the process that performed it; None for unknown."""
    cores_s: float | None = None
    """The seconds in which ``cpu_s`` was spent; None for the whole duration."""
    figures: Mapping[str, Figures] = msgspec.field(default_factory=dict)
    """By column; ``cpu`` is the sum of user and system time."""
    rates: Mapping[str, float | None] = msgspec.field(default_factory=dict)
    """By column of a counter: its highest rate per second over 0.2 s; None for a shorter operation."""

    @property
    def ancestors(self) -> Iterator[Operation]:
        """The operations around it, the innermost first."""
        outer = self.parent
        while outer is not None:
            yield outer
            outer = outer.parent

    def overlaps(self, start_s: float, end_s: float) -> bool:
        """Return whether it shares some time with what ran between two moments."""
        return self.start_s < end_s and self.end_s > start_s

    def of(self, column: str) -> Figures:
        """Return the figures of a column; all are unknown if it was not recorded."""
        return self.figures.get(column, UNKNOWN)

    rss_start = _FigureOf(RSS, "start")
    """RSS as it was read at the mark of the start, or else in the last sample up to it."""
    rss_end = _FigureOf(RSS, "end")
    """The same at the end."""
    rss_peak = _FigureOf(RSS, "peak_low")
    """RSS reached at least this during the operation; None when there was no sample."""
    delta = _FigureOf(RSS, "delta")
    """By how much RSS grew, in bytes."""
    cpu_s = _FigureOf(CPU, "spent")
    """CPU seconds of all processes during the operation."""
    read_bytes = _FigureOf("read_bytes", "spent")
    """Bytes that storage delivered."""
    write_bytes = _FigureOf("write_bytes", "spent")
    """Bytes sent to storage."""
    read_chars = _FigureOf("read_chars", "spent")
    """Bytes read by system calls, page cache and pipes included."""
    write_chars = _FigureOf("write_chars", "spent")
    """Bytes written by system calls, page cache and pipes included."""

    @property
    def signature(self) -> str:
        """Its function and what it was called with: ``compress_weights(INT4_SYM, g64)``.

        Empty when it says no more than the name.
        """
        return signature(self.name, self.call, self.arguments)

    @property
    def duration_s(self) -> float:
        """Seconds from start to end; if the end is unknown, it took at least this."""
        return self.end_s - self.start_s

    @property
    def known_duration_s(self) -> float | None:
        """Seconds from start to end; None if the end is unknown."""
        return None if self.error == END_UNKNOWN else self.duration_s

    @property
    def in_calls_s(self) -> float:
        """Seconds from start to end; of calls that are counted together, without the time between them."""
        return self.duration_s if self.total_s is None else self.total_s

    @property
    def cpu_peak(self) -> float | None:
        """The most cores that were busy on average over 0.2 s; None for a shorter operation."""
        return self.rates.get(CPU)

    @property
    def cpu_average(self) -> float | None:
        """How many cores were busy on average, in calls that are counted together: inside of them.

        None for less than 0.2 s.
        """
        over_s = self.duration_s if self.cores_s is None else self.cores_s
        if self.cores_s is None and self.total_s is not None and self.total_s < over_s * 0.9:
            return None  # CPU time was counted between the calls, too
        return None if self.cpu_s is None or over_s < RATE_WINDOW_S else self.cpu_s / over_s


class LazyMapping(Mapping[str, _Value]):
    """Values by name, each computed when it is first asked for: a report needs few of the columns."""

    def __init__(self, names: Iterable[str], compute: Callable[[str], _Value]) -> None:
        """Use ``compute`` for the value of a name."""
        self._known: dict[str, _Value | None] = dict.fromkeys(names)
        self._compute = compute

    def __getitem__(self, name: str) -> _Value:
        value = self._known[name]
        if value is None:
            value = self._known[name] = self._compute(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


_TRIGGERED = 0.2
"""A sample was triggered by a mark if it follows the mark within this part of the distance to the sample before."""


class Column:
    """The samples in which a metric is known."""

    def __init__(self, times: Sequence[float], values: Sequence[float], late: LateReadings | None = None) -> None:
        """``late``: which samples were read after their times."""
        self._read_s = {} if late is None else late.by_time()
        if isnan(sum(values)):
            known = [(time, value) for time, value in zip(times, values, strict=True) if not isnan(value)]
            times, values = [time for time, _ in known], [value for _, value in known]
        self.times = times
        """In seconds since the start."""
        self.readings = values

    def held(self, start_s: float, end_s: float, *, until_triggered: bool = True) -> Figures:
        """Return the figures of a gauge between two moments; by default a sample triggered by the end counts."""
        if not self.times:
            return UNKNOWN
        first = bisect_left(self.times, start_s)
        after = self._after(end_s) if until_triggered else bisect_right(self.times, end_s)
        is_late = after > first and self._read_s.get(self.times[after - 1], end_s) > end_s  # it shows what came after
        values = self.readings[first : after - is_late]
        start, end = self.readings[max(0, self._after(start_s) - 1)], self.readings[max(0, after - 1)]
        if not values:
            return Figures(start, end)
        highest = max(values)
        at_s = self.times[first + first_at_least(values, highest - noise(highest))]
        return Figures(start, end, Bracket(highest, None, at_s, at_s))

    def around(self, at_s: float) -> tuple[float | None, bool]:
        """Return a gauge at a moment, and whether the samples around it differ.

        The value is the last sample up to then, or the sample that was triggered then.
        """
        if not self.times:
            return None, False
        after = bisect_right(self.times, at_s)
        values = self.readings[max(0, after - 1) : after + 1]
        value = self.readings[max(0, self._after(at_s) - 1)]
        return value, max(values) - min(values) > noise(value)

    def counted(self, start_s: float, end_s: float) -> Figures:
        """Return the figures of a counter between two moments."""
        return Figures(spent=self._at(end_s) - self._at(start_s)) if self.times else UNKNOWN

    def highest_rate(self, start_s: float, end_s: float) -> float | None:
        """Return the highest rate per second of a counter between two moments, over 0.2 s."""
        rates = [
            (self.readings[after] - self.readings[before]) / (self.times[after] - self.times[before])
            for before, after in pairwise(spaced(self.times, RATE_WINDOW_S, start_s, end_s))
        ]
        return max([*rates, (self._at(end_s) - self._at(start_s)) / (end_s - start_s)]) if rates else None

    def _after(self, at_s: float) -> int:
        """Return the place after the last sample up to a moment, including a sample triggered by it."""
        after = bisect_right(self.times, at_s)
        return after + self._is_triggered(at_s, after)

    def read_until(self, at_s: float) -> float:
        """Return until when the sample that a mark at ``at_s`` triggered was read; ``at_s`` if it triggered none."""
        after = bisect_right(self.times, at_s)
        if not self._is_triggered(at_s, after):
            return at_s
        return self.times[after] + _TRIGGERED * (self.times[after] - self.times[after - 1])

    def _is_triggered(self, at_s: float, after: int) -> bool:
        """Return whether a mark at ``at_s`` triggered the sample at place ``after``, the first one that follows."""
        if not 0 < after < len(self.times):
            return False
        return self.times[after] - at_s <= _TRIGGERED * (self.times[after] - self.times[after - 1])

    def _at(self, at_s: float) -> float:
        """Return a counter's value: that of a sample triggered by this moment, else interpolated between two."""
        times, values = self.times, self.readings
        after = bisect_left(times, at_s)
        if after in {0, len(times)}:
            return values[min(after, len(times) - 1)]
        if self._is_triggered(at_s, after):
            return values[after]
        share = (at_s - times[after - 1]) / (times[after] - times[after - 1])
        return values[after - 1] + share * (values[after] - values[after - 1])


def spaced(times: Sequence[float], distance_s: float, start_s: float = -inf, end_s: float = inf) -> Iterator[int]:
    """Yield the places of samples between two moments, each at least ``distance_s`` after the one before."""
    row, stop = bisect_left(times, start_s), bisect_right(times, end_s)
    while row < stop:
        yield row
        next_s = max(times[row] + distance_s, nextafter(times[row], inf))
        row += 1
        if row < stop and times[row] < next_s:  # most samples are further apart: no search for the next one
            row = bisect_left(times, next_s, row)


_USUAL_S, _LATE = 0.5, 2
"""The distance of two readings of a device is at least this, and seldom more than the one before so many times."""


def allocated(mark: Mark, end_s: float, device: str) -> Figures | None:
    """Return what torch's allocator had given out during an operation of its process; None where it was not read.

    The allocator keeps its own high-water mark: where that rose, the peak is exact. Where it fell, the program has
    reset it, and it says what was reached since.
    """
    if mark.own_start is None or mark.own_end is None or mark.own_end.rss is None:
        return None
    # Where other values were read and these were not, torch had not begun to use the device.
    held, most = (mark.own_end.devices or {}).get(device, (0, 0))
    held_before, most_before = (mark.own_start.devices or {}).get(device, (0, 0))
    low = max(held if most == most_before else most, held_before)
    high = None if most < most_before else most
    return Figures(held_before, held, Bracket(low, high, mark.start_s, end_s))


def with_allocated(figures: Figures, of_allocator: Figures | None) -> Figures:
    """Return figures of a device's memory with what its allocator proves: the process held at least this."""
    if of_allocator is None or of_allocator.peak is None or not of_allocator.peak.low:
        return figures
    least = of_allocator.peak
    if figures.peak is None or figures.peak.low < least.low:
        figures = figures._replace(peak=least._replace(high=None))
    if (of_allocator.start or 0) > (figures.start or 0):
        figures = figures._replace(start=of_allocator.start, start_is_estimate=True)
    if (of_allocator.end or 0) > (figures.end or 0):
        figures = figures._replace(end=of_allocator.end, end_is_estimate=True)
    return figures


def figures_of(name: str, mark: Mark, end_s: float, column: Column, unknown: Collection[str]) -> Figures:
    """Return the figures of a column of a device for an operation.

    Of the devices ``unknown`` something is unknown: what was read before the operation says nothing. The same is true
    where the reading before is old: the driver, or what reads it, has stopped.
    """
    metric, _, device = name.partition("@")
    of_allocator = allocated(mark, end_s, device)
    if metric == DEVICE_ALLOCATED:
        return of_allocator or UNKNOWN
    held = column.held(mark.start_s, end_s, until_triggered=False)
    starts = bisect_right(column.times, mark.start_s)
    held = held._replace(start=column.readings[starts - 1] if starts else None)
    if held.peak is None and starts:
        before_s, last_s = column.times[max(0, starts - 2)], column.times[starts - 1]
        if device in unknown or end_s - last_s > _LATE * max(_USUAL_S, last_s - before_s):
            held = UNKNOWN
    return with_allocated(held, of_allocator if metric == DEVICE_MEMORY else None)
