"""Operations of a run with the memory and CPU time of each, and the operation that has the RSS peak of the run.

``combine_calls`` makes a single operation of several calls, and ``place_of`` finds the operation with the peak.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from nncftools.analysis.peaks import CPU, RATE_WINDOW_S, RSS, UNKNOWN, Bracket, Figures
from nncftools.session.model import END_UNKNOWN, Mark, Peak, Process, ProcessTable
from nncftools.session.samples import noise


def short_name(call: str) -> str:
    """Return the part of a function's name that tells the purpose of the function.

    This is the last part if it has several words (``compress_weights``) or belongs to NNCF (``quantize``). A method of
    a single word also needs the class (``AWQ.apply``). Any other function needs the whole name (``torch.onnx.export``).
    """
    *outer, last = call.split(".")
    is_method = bool(outer) and outer[-1][:1].isupper()
    if is_method and last in {"from_pretrained", "save_pretrained"}:  # many classes have these methods
        return f"{outer[-1]}.{last}"
    if "_" in last.strip("_") or outer == ["nncf"]:
        return last
    return f"{outer[-1]}.{last}" if is_method else call


def signature(name: str, call: str | None, arguments: str | None) -> str:
    """Return the function of an operation with the arguments; empty if this only repeats the operation's name.

    If an operation has several functions, all are named.
    """
    if call is None:
        return ""
    if arguments is not None:
        return f"{short_name(call)}({arguments})"
    if ", " not in call:
        owner = call.rpartition(".")[0].rpartition(".")[2]
        if owner[:1].isupper() and _fold(name) in _fold(owner):
            return ""
    return ", ".join(map(short_name, call.split(", ")))


def _fold(text: str) -> str:
    return "".join(filter(str.isalnum, text)).casefold()


class Spread(msgspec.Struct, frozen=True):
    """The smallest, median and largest value over several calls: RSS peaks in bytes, or durations in seconds."""

    least: float
    median: float
    largest: float
    call: int
    """Number of the call with the largest value, from 1."""


def _measure_spread(values: Sequence[float | None]) -> Spread | None:
    """Return the smallest, median and largest of the values of all calls; None if any value is unknown."""
    known = [round(value, 6) for value in values if value is not None]
    if len(known) < len(values):
        return None
    from statistics import median  # the module is large, and few runs repeat a call

    largest = max(known)
    return Spread(min(known), median(known), largest, known.index(largest) + 1)


class _FigureOf:
    """A property of an operation: a value (such as ``start``) of a metric (such as ``rss``)."""

    def __init__(self, column: str, figure: str) -> None:
        self._column = column
        self._figure = figure

    def __get__(self, operation: Operation, _: type[Operation]) -> float | None:
        figure: float | None = getattr(operation.of(self._column), self._figure)
        return figure


class Operation(Mark, eq=False, kw_only=True):
    """An operation with the end and the measured values. Units are bytes and seconds; None is unknown.

    Operations are compared by identity, not by name. An operation inside another operation has a greater depth.
    """

    end_s: float
    parent: Operation | None = None
    """The operation that encloses this operation; None for an outermost operation."""
    calls: Sequence[Operation] = ()
    """The calls that this operation combines; empty for a single call."""
    has_peak: bool | None = False
    """Whether RSS reached the peak of the whole run during the operation; None if uncertain."""
    is_parallel: bool = False
    """Whether another operation of the process ran at the same time, neither inside nor around this operation.

    The values of a parallel operation include all parallel operations.
    """
    process: int | None = None
    """The ``id`` of the process that performed the operation."""
    cores_s: float | None = None
    """The seconds over which ``cpu_s`` was measured; None for the whole duration."""
    figures: Mapping[str, Figures] = msgspec.field(default_factory=dict)
    """``{metric: values during the operation}``. The metric ``cpu`` is the sum of user and system time."""
    rates: Mapping[str, float | None] = msgspec.field(default_factory=dict)
    """The highest rate per second over 0.2 s: ``{counter: rate}``. None if the operation is shorter."""

    @property
    def ancestors(self) -> Iterator[Operation]:
        """The enclosing operations, the innermost operation first."""
        outer = self.parent
        while outer is not None:
            yield outer
            outer = outer.parent

    def overlaps(self, start_s: float, end_s: float) -> bool:
        """Return whether the operation and a span of time overlap."""
        return self.start_s < end_s and self.end_s > start_s

    def of(self, column: str) -> Figures:
        """Return the values of a metric during the operation: start, end, peak and growth.

        If the metric was not recorded, all values are unknown.
        """
        return self.figures.get(column, UNKNOWN)

    rss_start = _FigureOf(RSS, "start")
    """RSS that was read at the start. If RSS was not read, RSS of the last sample up to the start."""
    rss_end = _FigureOf(RSS, "end")
    """RSS that was read at the end. If RSS was not read, RSS of the last sample up to the end."""
    rss_peak = _FigureOf(RSS, "peak_low")
    """The lower bound of the RSS peak during the operation; None if there was no sample."""
    delta = _FigureOf(RSS, "delta")
    """RSS at the end minus RSS at the start, in bytes. Negative if memory was freed."""
    cpu_s = _FigureOf(CPU, "spent")
    """CPU seconds of all processes during the operation."""
    read_bytes = _FigureOf("read_bytes", "spent")
    """Bytes read from storage."""
    write_bytes = _FigureOf("write_bytes", "spent")
    """Bytes written to storage."""
    read_chars = _FigureOf("read_chars", "spent")
    """Bytes read by system calls, also from the page cache and pipes."""
    write_chars = _FigureOf("write_chars", "spent")
    """Bytes written by system calls, also to the page cache and pipes."""

    @property
    def signature(self) -> str:
        """The function with arguments: ``compress_weights(INT4_SYM, g64)``.

        Empty if this only repeats the name.
        """
        return signature(self.name, self.call, self.arguments)

    @property
    def duration_s(self) -> float:
        """Seconds from start to end. If the end is unknown, the operation took at least this time."""
        return self.end_s - self.start_s

    @property
    def known_duration_s(self) -> float | None:
        """Seconds from start to end; None if the end is unknown."""
        return None if self.error == END_UNKNOWN else self.duration_s

    @property
    def in_calls_s(self) -> float:
        """Seconds from start to end.

        If this operation combines several calls, the time between the calls is left out.
        """
        return self.duration_s if self.total_s is None else self.total_s

    @property
    def longest_call_s(self) -> float:
        """Seconds of the longest call."""
        return self.duration_s if self.longest_s is None else self.longest_s

    @property
    def spreads(self) -> Mapping[str, Spread | None]:
        """The spreads (smallest, median and largest value) over the calls: ``{"duration": spread, "peak": spread}``.

        ``peak`` is the RSS peak. A spread is None if a value is unknown. Empty if not all calls were recorded
        separately.
        """
        calls = self.calls
        if len(calls) < self.count or not calls:
            return {}
        return {
            "duration": _measure_spread([call.known_duration_s for call in calls]),
            "peak": _measure_spread([call.rss_peak for call in calls]),
        }

    @property
    def busy_s(self) -> float:
        """The seconds over which ``cpu_s`` was measured."""
        return self.duration_s if self.cores_s is None else self.cores_s

    @property
    def cpu_peak(self) -> float | None:
        """The largest number of busy cores, averaged over 0.2 s; None if the operation is shorter."""
        return self.rates.get(CPU)

    @property
    def cpu_average(self) -> float | None:
        """The average number of busy cores; None if unknown, or if measured over less than 0.2 s.

        If this operation combines several calls, only the time in the calls counts.
        """
        over_s = self.busy_s
        if self.cores_s is None and self.total_s is not None and self.total_s < over_s * 0.9:
            return None  # CPU time was also counted between the calls
        return None if self.cpu_s is None or over_s < RATE_WINDOW_S else self.cpu_s / over_s


_Value = TypeVar("_Value")


class LazyMapping(Mapping[str, _Value]):
    """Computes each value at the first access, because a report needs few of the columns."""

    def __init__(self, names: Iterable[str], compute: Callable[[str], _Value]) -> None:
        """Call ``compute`` with a name when the value of this name is needed for the first time."""
        self._values: dict[str, _Value | None] = dict.fromkeys(names)
        self._compute = compute

    def __getitem__(self, name: str) -> _Value:
        value = self._values[name]
        if value is None:
            value = self._values[name] = self._compute(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def combine_calls(group: Sequence[Operation]) -> Operation:
    """Combine several calls into a single operation, from the first start to the last end.

    The peak is the largest peak of the calls. For a counter (such as CPU time), the growths in the calls are added up.
    If some calls ran at the same time, this sum is unknown, because the growth in each call includes all parallel
    calls.
    """
    if len(group) == 1:
        return group[0]
    first = group[0]
    last = max(group, key=lambda operation: operation.end_s)
    latest_s = accumulate((operation.end_s for operation in group), max)
    pairs = zip(group[1:], latest_s, strict=False)
    is_sum = all(call.start_s >= end_s for call, end_s in pairs)
    has_peak = {operation.has_peak for operation in group}
    errors = [operation.error for operation in reversed(group) if operation.error]

    def combine_figures(column: str) -> Figures:
        figures = [call.of(column) for call in group]
        brackets = [each.peak for each in figures if each.peak is not None]
        return Figures(
            start=figures[0].start,
            end=last.of(column).end,
            peak=max(brackets, key=attrgetter("low"), default=None),
            spent=sum_all([each.spent for each in figures]) if is_sum else None,
        )

    def combine_rates(column: str) -> float | None:
        rates = [call.rates[column] for call in group]
        return max((rate for rate in rates if rate is not None), default=None)

    return replace(
        first,
        calls=group,
        end_s=last.end_s,
        error=END_UNKNOWN if END_UNKNOWN in errors else next(iter(errors), None),
        count=sum(operation.count for operation in group),
        total_s=sum(call.in_calls_s for call in group),
        cores_s=sum(call.busy_s for call in group),
        longest_s=max(call.longest_call_s for call in group),
        arguments=_find_common(call.arguments for call in group),
        saved=_find_common(call.saved for call in group),
        has_peak=next(value for value in (True, None, False) if value in has_peak),
        is_parallel=any(call.is_parallel for call in group),
        figures=LazyMapping(first.figures, combine_figures),
        rates=LazyMapping(first.rates, combine_rates),
    )


def sum_all(values: Sequence[float | None]) -> float | None:
    """Return the sum of values; None if a value is unknown."""
    numbers = [value for value in values if value is not None]
    return sum(numbers) if len(numbers) == len(values) else None


def _find_common(texts: Iterable[str | None]) -> str | None:
    different = set(texts)
    return different.pop() if len(different) == 1 else None


Path = Sequence[Operation]
"""Nested operations, the outermost operation first."""
Children = dict[Operation | None, list[Operation]]
"""The operations directly inside each operation. The key None has the outermost operations."""

_TRIGGERED_S = 0.005
"""The start or the end of an operation (a mark) triggers a sample. The sample is taken at most this many seconds
later."""


class PeakPlace(NamedTuple):
    """The moment of the RSS peak of the run, and the operations at this moment."""

    from_s: float
    """The peak was reached between ``from_s`` and ``to_s``, in seconds since the start."""
    to_s: float
    path: Path = ()
    """The nested operations in which RSS certainly reached the peak, the outermost operation first."""
    either: Sequence[Operation] = ()
    """The possible operations if the operation with the peak is uncertain. All are inside the last operation of
    ``path``."""
    nearest: Operation | None = None
    """The nearest operation if the peak was just outside all operations."""
    rivals: Sequence[Operation] = ()
    """Other operations that may have the peak instead, because the likely upper bound of RSS in the operation is above
    the peak. If the operation ended before the peak, an equal upper bound is enough. A rival may have run in another
    process at the time of the peak. A rival may also be an outer operation of ``path`` (the nested operations at the
    peak), because RSS may have reached the peak while no inner operation ran."""
    may_be_outside: bool = False
    """Whether RSS may have been even higher while no operation ran. False if this was not examined, or if ``path`` (the
    nested operations at the peak) is empty."""


def place_of(
    peak: Peak,
    operations: Sequence[Operation],
    processes: Sequence[Process],
    duration_s: float,
    gaps: Iterable[Operation] | None = None,
) -> PeakPlace | None:
    """Return the moment of the RSS peak and the operations at this moment; None if the moment is unknown.

    The peak belongs to the operation in which RSS first came within noise (1 %, at least 1 MiB) of the peak. If
    operations of several processes ran at that time, the peak belongs to the process that held the most memory, with
    all descendants. ``gaps`` are the times outside all operations. If ``gaps`` is None, other possible times of the
    peak are not examined: ``rivals`` is empty, and ``may_be_outside`` is False.
    """
    if peak.span_s is None:
        return None
    place = PeakPlace(*peak.span_s)
    children = _find_children(operations, processes, place)
    sizes = _sizes_at_peak(processes, peak, place)
    path: list[Operation] = []
    while True:
        candidates = children.get(path[-1] if path else None, [])
        holders = [operation for operation in candidates if _holds(operation, peak, place)]
        if path:
            holders = _keep_large(holders, path[-1], sizes)
        if not holders:
            break
        path.append(min(holders, key=lambda operation: _rank_holder(operation, peak, sizes)))
    if gaps is not None:
        bracket = _bracket(path[-1]) if path else None
        proven = peak.low or 0 if bracket is None else raise_bracket(bracket, peak.low or 0).low
        place = place._replace(
            rivals=list(_find_rivals(operations, path, children, place, size=proven)),
            may_be_outside=bool(path) and any(_may_exceed(gap, proven) for gap in gaps),
        )
    shared = _find_shared(path, children, place)
    if shared is not None:
        return shared
    possible = [operation for operation in candidates if _is_at(operation, place)]
    if path and (len(possible) == 1 or not _cover(possible, place)):
        possible = []
    nearest = None if path or possible else _find_nearest(place, candidates, duration_s)
    either = []
    for operation in possible:
        either += _find_innermost(operation, children, place) if operation.is_parallel else [operation]
    return place._replace(path=path, either=either, nearest=nearest)


def _keep_large(holders: Iterable[Operation], outer: Operation, sizes: Mapping[int | None, int]) -> list[Operation]:
    """Return the operations of ``holders`` that ran in the process of ``outer``, or in a process of similar size.

    The size of a process is similar if the process held at least half as much memory.
    """
    large = []
    for operation in holders:
        is_large = sizes.get(operation.process, 0) * 2 >= sizes.get(outer.process, 0)
        if operation.process == outer.process or is_large:
            large.append(operation)
    return large


def raise_bracket(bracket: Bracket, low: int) -> Bracket:
    """Return the bounds of the peak in an operation, raised to ``low``, the lower bound of the peak of the whole run.

    If the lower bound of the operation is much smaller than ``low`` (by more than 1 % and 1 MiB), return ``bracket``
    unchanged. In this case, the peak of the run was perhaps in another operation, so ``low`` proves nothing here.
    """
    if bracket.low < low - noise(low):
        return bracket
    least = max(low, bracket.low)
    high = None if bracket.high is None else max(bracket.high, least)
    return bracket._replace(low=least, high=high)


def _find_children(operations: Sequence[Operation], processes: Sequence[Process], place: PeakPlace) -> Children:
    """Return the operations directly inside each operation.

    If a parent ended before the peak, the children belong to the next enclosing operation that had not ended.
    """
    pids = {process.pid for process in processes}
    children: Children = {}
    for operation in operations:
        # An operation without a duration: the sample that the last mark of a run triggers shows memory before the mark.
        is_last = operation.end_s <= operation.start_s
        if is_last or operation.error == END_UNKNOWN:
            continue
        if pids and operation.pid is not None and operation.pid not in pids:  # the process was not recorded
            continue
        parent = None
        for outer in operation.ancestors:
            if outer.end_s >= place.from_s and outer.error != END_UNKNOWN:
                parent = outer
                break
        children.setdefault(parent, []).append(operation)
    return children


def _find_rivals(
    operations: Sequence[Operation], path: Path, children: Children, place: PeakPlace, *, size: float
) -> Iterator[Operation]:
    """Yield operations in which RSS may have reached the peak of the run at another time.

    ``size`` is the RSS in bytes that was certainly reached at the known moment of the peak. The likely upper bound of
    RSS in a yielded operation is above ``size``. If the operation ended before the peak, an almost equal upper bound is
    enough. An outer operation is left out if inner operations ran during the whole time of the outer operation.
    """
    for operation in operations:
        bracket = _bracket(operation)
        if bracket is None or bracket.likely_high is None or operation in path[-1:]:
            continue
        is_before = operation.end_s <= place.from_s and bracket.likely_high >= size - noise(size)
        if is_before or _may_exceed(operation, size):
            inner = children.get(operation, [])
            if not _cover(inner, place._replace(from_s=operation.start_s, to_s=operation.end_s)):
                yield operation


def _may_exceed(operation: Operation, size: float) -> bool:
    bracket = _bracket(operation)
    return bracket is not None and bracket.likely_high is not None and bracket.likely_high > size + noise(size)


def _holds(operation: Operation, peak: Peak, place: PeakPlace) -> bool:
    """Return whether the bounds of RSS in the operation prove that RSS reached the run's peak in the operation."""
    bracket = _bracket(operation)
    level = peak.likely or peak.low
    if bracket is None or level is None or operation.start_s > place.to_s:
        return False
    is_read = operation.own_start is not None and operation.own_start.tree is not None
    if is_read and bracket.to_s <= operation.start_s:
        return False  # memory was already as high when the operation began
    until_s = max(operation.end_s + _TRIGGERED_S, bracket.to_s)
    return until_s >= place.from_s and (bracket.likely or bracket.low) >= level - noise(level)


def _find_shared(path: Path, children: Children, place: PeakPlace) -> PeakPlace | None:
    """Return a copy of ``place`` for a peak during parallel operations; None if no operations ran in parallel.

    The field ``either`` of the copy lists the operations that ran in parallel at the peak. For nested operations, the
    field lists only the innermost operations.
    """
    for depth, holder in enumerate(path):
        siblings = children[path[depth - 1] if depth else None]
        parallel = [
            operation for operation in siblings if operation is holder or _runs_beside(operation, holder, place)
        ]
        if len(parallel) > 1:
            either = []
            for operation in parallel:
                either += _find_innermost(operation, children, place)
            return place._replace(path=path[:depth], either=either)
    return None


def _find_innermost(operation: Operation, children: Children, place: PeakPlace) -> list[Operation]:
    """Return the innermost operations between ``place.from_s`` and ``place.to_s``.

    An outer operation is left out if inner operations ran during the whole time.
    """
    inner = [child for child in children.get(operation, ()) if _is_at(child, place)]
    innermost = [] if inner and _cover(inner, place) else [operation]
    for child in inner:
        innermost += _find_innermost(child, children, place)
    return innermost


def _runs_beside(operation: Operation, holder: Operation, place: PeakPlace) -> bool:
    if not (operation.is_parallel and holder.is_parallel and operation.pid == holder.pid):
        return False
    return operation.overlaps(holder.start_s, holder.end_s) and _is_at(operation, place)


def _is_at(operation: Operation, place: PeakPlace) -> bool:
    return operation.overlaps(place.from_s, place.to_s)


def _bracket(operation: Operation) -> Bracket | None:
    return operation.of(RSS).peak


def _sizes_at_peak(processes: Sequence[Process], peak: Peak, place: PeakPlace) -> Mapping[int | None, int]:
    """Return the memory of each process, including all descendants: ``{id of the process: bytes}``.

    Processes that reached their own peaks at other moments than the run's peak are left out. The result has no key
    None; the type allows callers to look up an unknown process.
    """
    table = ProcessTable(processes)
    sizes: dict[int | None, int] = {}
    for process in processes:
        spans = [(rise.from_s, rise.to_s) for rise in process.rises]
        if process.peak_s is not None:
            spans.append((process.peak_s, process.peak_s))
        is_there = any(from_s <= place.to_s and to_s >= place.from_s for from_s, to_s in spans)
        if is_there or process.id == peak.process:
            for above in table.upwards(process):
                sizes[above.id] = sizes.get(above.id, 0) + process.most_memory
    return sizes


def _rank_holder(
    operation: Operation, peak: Peak, sizes: Mapping[int | None, int]
) -> tuple[bool, float, bool, bool, int, float]:
    """Return a sort key for operations that may have the peak. The most probable operation has the smallest key.

    Proven peaks come first, then earlier peaks, then operations that were still running, then processes whose
    high-water mark proves the peak, then processes with more memory. A sample that the end of an operation triggers
    counts for the operation.
    """
    bracket = _bracket(operation)
    assert bracket is not None
    low = peak.low or 0
    is_estimate = bracket.low < low - noise(low)
    has_ended = operation.end_s + _TRIGGERED_S < bracket.to_s
    is_other = peak.process is not None and operation.process != peak.process
    size = sizes.get(operation.process, 0)
    return is_estimate, bracket.to_s, has_ended, is_other, -size, operation.start_s


def _cover(operations: Sequence[Operation], place: PeakPlace) -> bool:
    """Return whether the operations cover the time from ``place.from_s`` to ``place.to_s`` without a gap."""
    until_s = place.from_s
    for operation in operations:
        if operation.start_s > until_s:
            return False
        until_s = max(until_s, operation.end_s)
    return until_s >= place.to_s


def _find_nearest(place: PeakPlace, operations: Sequence[Operation], duration_s: float) -> Operation | None:
    """Return the operation nearest to the peak in time. None if the distance is over 0.1 s and over 1 % of the run."""
    near_s = max(0.1, duration_s * 0.01)

    def distance_s(operation: Operation) -> float:
        return max(place.from_s - operation.end_s, operation.start_s - place.to_s)

    nearest = min(operations, key=distance_s, default=None)
    return None if nearest is None or distance_s(nearest) > near_s else nearest
