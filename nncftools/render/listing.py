"""The operations of a run as reports and pictures list them: numbered, each with its colour, and not too many.

Outputs show those of the outer levels, with repeated calls in one row; the page also shows those inside of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, groupby, product

from nncftools import metrics
from nncftools.analysis.operation import Operation, combined
from nncftools.analysis.session import Session
from nncftools.render.sentences import Performers, without_shared_start
from nncftools.render.table import NOTE, has_estimates
from nncftools.session.model import END_UNKNOWN, UNFINISHED
from nncftools.session.nesting import KINDS, kind_of
from nncftools.units import printable, seconds_text, shortened


@dataclass(frozen=True)
class Fill:
    """How an operation is filled."""

    colour: str
    """``#rrggbb``."""
    hatch: str = ""
    """In Matplotlib's notation."""

    @property
    def ink(self) -> str:
        """The colour of readable text on it, by the contrast ratio of WCAG."""
        light = luminance(self.colour)
        return "#000000" if (light + _GLARE) ** 2 > (1 + _GLARE) * _GLARE else "#ffffff"


_COLOURS = ("#56B4E9", "#E69F00", "#009E73", "#0072B2", "#CC79A7", "#D55E00", "#F0E442", "#332288", "#3B3B3B")
"""In the order of the kinds: seven of Okabe and Ito, Tol's indigo, and a grey for Okabe and Ito's black. For every kind
of colour blindness any two differ as much as the two closest of Okabe and Ito do."""
FILLS = tuple(Fill(colour, hatch) for hatch, colour in product(("", "///", "...", "xxx"), _COLOURS))
"""All fills that a reader can distinguish: first those of the kinds, then each colour with a hatch."""
PATTERNS = {"": "", "///": "/", "...": ".", "xxx": "x"}
"""The hatches in plotly's notation."""
REST = Fill("#BDBDBD")
"""For the sum of several operations, and for memory whose code is unknown."""
OTHER_PACKAGES = Fill("#8A9BA8")
_OF_PACKAGES = {
    "": Fill("#E69F00"),
    "python": Fill("#E4E1D6"),
    "torch": Fill("#56B4E9"),
    "openvino": Fill("#CC79A7"),
    "nncf": Fill("#009E73"),
    "transformers": Fill("#F0E442"),
    "optimum": Fill("#0072B2"),
}
"""Always the same: the program's own code, the standard library, and the packages that a run most likely uses."""
_GLARE = 0.05
_BENT_FROM = 0.04045


def fills(operations: Sequence[Operation]) -> dict[str, Fill]:
    """Return the fill of every operation by its name.

    An operation of a kind has the kind's fill. The others have, in turn, the fills that the kinds in ``operations``
    leave; when there are more names than fills, fills repeat.
    """
    kinds: dict[str, str | None] = {}
    for operation in operations:
        kind = operation.kind if operation.kind in KINDS else kind_of(operation.name)
        kinds[operation.name] = kinds.get(operation.name) or kind
    by_kind = dict(zip(KINDS, FILLS, strict=False))
    taken = {by_kind[kind] for kind in kinds.values() if kind is not None}
    free = cycle(fill for fill in FILLS if fill not in taken)
    return {name: next(free) if kind is None else by_kind[kind] for name, kind in kinds.items()}


def package_fills(packages: Sequence[str]) -> dict[str, Fill]:
    """Return the fill of every package in a flame graph; empty stands for the program's own code.

    Well-known packages have fills of their own. The others get, in turn, the plain fills that are left; when these are
    used up, all further packages share one.
    """
    taken = {_OF_PACKAGES[package] for package in ("", *packages) if package in _OF_PACKAGES}
    free = (fill for fill in FILLS if fill not in taken and not fill.hatch)
    return {package: _OF_PACKAGES.get(package) or next(free, OTHER_PACKAGES) for package in packages}


def luminance(colour: str) -> float:
    """Return the relative luminance as WCAG defines it: 0 is black, 1 is white."""
    levels = (int(colour[digit : digit + 2], 16) / 255 for digit in (1, 3, 5))
    red, green, blue = (of / 12.92 if of <= _BENT_FROM else float(((of + 0.055) / 1.055) ** 2.4) for of in levels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


_LONGEST_TEXT = 200
_LONG_NAME, _MOST_LONG_NAMES = 20, 1000
"""Shorter names stay whole; and where there are more long names, no reader could tell them apart."""
_SMALL = 0.01
PARALLEL = "parallel"
_WITHOUT_END = (UNFINISHED, END_UNKNOWN)
_END_NOTE = f"{END_UNKNOWN}: the mark of the end was lost, and so the figures from start to end are unknown"
_PARALLEL_NOTE = f"{PARALLEL}: others of its process ran at the same time; growth, CPU and I/O are those of all of them"


@dataclass(frozen=True)
class NumberedOperation:
    """An operation, its number in the list and its fill."""

    number: str
    """Its path in the tree of all operations, which does not depend on the levels shown: ``3.1.2``.

    Empty for the sum of several operations and for a time outside all operations.
    """
    operation: Operation
    fill: Fill
    process: str = ""
    """The process that performed it, if operations of other processes ran at the same time."""
    short_name: str = ""
    """A long name without the beginning that it shares with others; empty for any other name."""

    @property
    def title(self) -> str:
        """Name, number of calls, process, and whether it failed or did not end."""
        return f"{shortened(printable(self.operation.name), _LONGEST_TEXT)}{self._addition}"

    @property
    def short_title(self) -> str:
        """The title for little room: without the beginning that the name shares with others."""
        return f"{self.short_name}{self._addition}" if self.short_name else self.title

    def fitted(self, room: int, fewest: int) -> str:
        """Return the part of the title that fits into ``room`` characters; nothing if that is less than ``fewest``."""
        title = self.title if len(self.title) <= room else self.short_title
        return shortened(title, room) if min(len(title), fewest) <= room else ""

    @property
    def _addition(self) -> str:
        operation = self.operation
        times = f" ×{operation.count}" if operation.count > 1 else ""
        end = "" if operation.error is None else " …" if operation.error in _WITHOUT_END else " ✕"
        return f"{times}{self.beside}{end}"

    @property
    def beside(self) -> str:
        """The process, if operations of others ran at the same time, and whether others of this process did."""
        words = ", ".join(filter(None, (self.process, PARALLEL if self.operation.is_parallel else "")))
        return f" ({words})" if words else ""

    @property
    def details(self) -> str:
        """How it ended, the function with its arguments, and the time in its calls."""
        operation = self.operation
        calls = None if operation.total_s is None else f"{seconds_text(operation.total_s)} in {operation.count} calls"
        parts = (operation.error, operation.signature, calls)
        return shortened(printable(" · ".join(filter(None, parts))), _LONGEST_TEXT)


def counters_of(columns: Iterable[str]) -> list[str]:
    """Return the counters that are shown of each operation, for a session with these columns."""
    return [column for column, metric in metrics.of_operations(columns).items() if metric.is_counter]


def by_key(operation: Operation) -> dict[str, float | None]:
    """Return the figures of an operation by their keys in exported documents.

    A gauge has ``NAME_start``, ``NAME_end``, ``NAME_delta`` and ``NAME_peak``; a counter has its name. Bytes are whole
    numbers.
    """
    every: dict[str, float | None] = {}
    for column, metric in metrics.of_operations(operation.figures).items():
        of = operation.of(column)
        levels = {"start": of.start, "end": of.end, "delta": of.delta, "peak": of.peak_low}
        values = {column: of.spent} if metric.is_counter else {f"{column}_{key}": levels[key] for key in levels}
        is_size = metric.unit == "B"
        every |= {key: round(value) if is_size and value is not None else value for key, value in values.items()}
    return every


def estimates_by_key(operation: Operation) -> dict[str, bool]:
    """Return whether RSS at the start, at the end and its change are estimates, by their keys in exported documents."""
    rss = operation.of("rss")
    estimates = {"start": rss.start_is_estimate, "end": rss.end_is_estimate, "delta": rss.delta_is_estimate}
    return {f"rss_{key}_is_estimate": is_estimate for key, is_estimate in estimates.items()}


def numbered(operations: Sequence[Operation], session: Session) -> list[NumberedOperation]:
    """Return operations of a session numbered and coloured, with their processes."""
    of, performers, short = fills(operations), Performers(session), short_names(operations)
    return [
        NumberedOperation(
            number, operation, of[operation.name], performers.of(operation), short.get(operation.name, "")
        )
        for number, operation in zip(_numbers(operations), operations, strict=True)
    ]


def _numbers(operations: Iterable[Operation]) -> Iterator[str]:
    """Yield the path of each operation: its index on each level; each operation is followed by those inside it."""
    indexes: list[int] = []
    for operation in operations:
        level = operation.depth
        del indexes[level + 1 :]
        indexes += [0] * (level + 1 - len(indexes))
        indexes[level] += 1
        yield ".".join(map(str, indexes))


def left_out_text(count: int) -> str:
    """Return how many operations a list leaves out; empty for none."""
    return f"and {count:,} smaller ones" if count else ""


def operation_notes(shown: Sequence[NumberedOperation]) -> list[str]:
    """Return what explains the rows of operations."""
    parallel = [_PARALLEL_NOTE] if any(row.operation.is_parallel for row in shown) else []
    ends = [_END_NOTE] if any(row.operation.error == END_UNKNOWN for row in shown) else []
    return [*parallel, *ends, *([NOTE] if has_estimates(row.operation for row in shown) else [])]


def short_names(operations: Sequence[Operation]) -> dict[str, str]:
    """Return long names without the beginning that they share, by the whole name."""
    names = {name: shortened(printable(name), _LONGEST_TEXT) for name in {operation.name for operation in operations}}
    if len(names) > _MOST_LONG_NAMES or all(len(name) <= _LONG_NAME for name in names.values()):
        return {}
    short = without_shared_start(sorted(names.values()))
    return {name: short[text] for name, text in names.items() if len(text) > _LONG_NAME and short[text] != text}


def peak_notes(shown: Iterable[Operation], session: Session) -> dict[int, str]:
    """Return a note for each shown operation that holds the peak, or may hold it, by its ``id()``.

    Of nested operations, the innermost shown one has the note.
    """
    every = list(shown)
    peak = session.peak_place
    possible = [operation for operation in every if operation.has_peak is None]
    around = {operation.parent for operation in possible}
    notes = {id(operation): "<- peak?" for operation in possible if around.isdisjoint(_calls(operation))}
    holder = max((operation for operation in every if operation.has_peak), key=lambda of: of.depth, default=None)
    if holder is not None and (peak is None or not peak.either or around.isdisjoint(_calls(holder))):
        notes[id(holder)] = "<- peak"
    if notes:
        return notes
    if peak is None or (nearest := peak.nearest) is None:
        return {}
    rows = [operation for operation in every if nearest in _calls(operation)]
    side = "after" if peak.from_s >= nearest.end_s else "before"
    return {id(rows[-1]): f"<- peak just {side}"} if rows else {}


def without_small(every: Sequence[NumberedOperation], session: Session) -> list[NumberedOperation]:
    """Return the operations without those that took less than 1 % of the time, and of the memory.

    An operation that holds the peak, or may hold it, stays. All stay if only one is small, or if the small ones
    together took more time than the others.
    """
    most = session.rss_peak.low or 0
    peak_place = session.peak_place
    nearest = None if peak_place is None else peak_place.nearest
    limits = session.duration_s * _SMALL, most * _SMALL
    kept = [row for row in every if not _is_small(row.operation, *limits) or nearest in _calls(row.operation)]
    whole_s, kept_s = (sum(row.operation.duration_s for row in of) for of in (every, kept))
    return kept if kept and kept_s * 2 >= whole_s and len(every) - len(kept) > 1 else list(every)


def _calls(row: Operation) -> Sequence[Operation]:
    """Return the operations that a row stands for."""
    return row.calls or (row,)


def _is_small(operation: Operation, least_s: float, least: float) -> bool:
    if operation.has_peak is not False or operation.error is not None or operation.duration_s >= least_s:
        return False
    rss = operation.of("rss")
    is_unknown = rss.start is None or rss.delta is None
    return is_unknown or (abs(rss.delta or 0) < least and (rss.peak_low or 0) - (rss.start or 0) < least)


def in_lanes(every: Sequence[NumberedOperation], most: int) -> list[tuple[int, NumberedOperation, int]]:
    """Return operations with their places in the list and the first free lanes, without those beyond ``most`` lanes."""
    ends: list[float] = []
    placed: list[tuple[int, NumberedOperation, int]] = []
    for index, row in enumerate(every):
        operation = row.operation
        lane = next((lane for lane, end_s in enumerate(ends) if end_s <= operation.start_s), len(ends))
        if lane < most:
            ends[lane : lane + 1] = [operation.end_s]
            placed.append((index, row, lane))
    return placed


_FEW_INSIDE = 3
"""Up to this number, calls of one function inside one operation are shown one by one."""
_FEW_IN_A_ROW = 12
"""The same for outermost calls that follow one another."""


def timeline(operations: Sequence[Operation], depth: int) -> list[Operation]:
    """Return the operations of the outer ``depth`` levels in the order of their starts, each with those inside of it.

    Many calls of one function inside one operation become one row, with their number, their total time and the longest
    call. So do many outermost calls with no other operation between them.
    """
    shown = [operation for operation in operations if operation.depth < depth]

    def function(operation: Operation) -> tuple[object, ...]:
        return operation.source, operation.name, operation.call, operation.error == END_UNKNOWN

    places: dict[Operation | None, tuple[int, ...]] = {None: ()}
    """The numbers of the operations around each, and its own."""
    inside: dict[tuple[object, ...], list[Operation]] = {}
    for number, operation in enumerate(shown):
        places[operation] = *places[operation.parent], number
        if operation.depth:
            inside.setdefault((operation.parent, operation.depth, *function(operation)), []).append(operation)
    outer = groupby((operation for operation in shown if operation.depth == 0), key=function)
    rows = [row for _, run in outer for row in _combined_if_many(list(run), _FEW_IN_A_ROW)]
    rows += [row for group in inside.values() for row in _combined_if_many(group, _FEW_INSIDE)]
    return [row for _, row in sorted(rows, key=lambda row: places[row[0]])]


def _combined_if_many(group: Sequence[Operation], few: int) -> list[tuple[Operation, Operation]]:
    """Return pairs: the first of some operations, and the row that stands for them."""
    is_many = len(group) > 1 and sum(operation.count for operation in group) > few
    return [(group[0], combined(group))] if is_many else [(operation, operation) for operation in group]


_MOST_LEVELS = 8
_MOST_NESTED = 2000
"""Of operations in all levels: with more, the innermost levels are left out."""


def with_inner_levels(session: Session, depth: int) -> list[NumberedOperation]:
    """Return the operations of ``depth`` levels and of those below them.

    Operations of deeper levels have a colour of their own only if no operation of the outer levels has their name.
    """
    counts = [sum(operation.depth == level for operation in session.operations) for level in range(_MOST_LEVELS)]
    deepest = max((level + 1 for level, count in enumerate(counts) if count), default=0)
    while deepest > depth and sum(counts[:deepest]) > _MOST_NESTED:
        deepest -= 1
    every = numbered(timeline(session.operations, max(depth, deepest)), session)
    of_outer = fills([row.operation for row in every if row.operation.depth < depth])
    return [dataclasses.replace(row, fill=of_outer.get(row.operation.name, row.fill)) for row in every]
