"""The operations that reports and pictures list, with numbers and colours.

Outputs list the operations of the outer levels, with repeated calls in a common row. The page lists all levels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, groupby, product
from operator import itemgetter
from typing import Any, TypeVar

from nncftools import metrics
from nncftools.analysis.operation import Operation, combine_calls
from nncftools.analysis.session import Session
from nncftools.render.sentences import Performers, without_shared_start
from nncftools.render.table import NOTE, has_estimates
from nncftools.render.view import clip
from nncftools.session.model import END_UNKNOWN, UNFINISHED
from nncftools.session.nesting import KINDS, kind_of
from nncftools.units import count_text, seconds_text, shortened

_Item = TypeVar("_Item")


def keep_largest(items: Sequence[_Item], most: int, key: Callable[[_Item], Any]) -> list[_Item]:
    """Return the items with the largest keys, at most ``most`` items, in the original order."""
    largest_first = sorted(
        range(len(items)),
        key=lambda index: key(items[index]),
        reverse=True,
    )
    return [items[index] for index in sorted(largest_first[:most])]


@dataclass(frozen=True)
class Fill:
    """Colour and hatch that mark an operation or a package."""

    colour: str
    """``#rrggbb``."""
    hatch: str = ""
    """Hatch in Matplotlib's notation."""

    @property
    def ink(self) -> str:
        """Black or white, whichever has the better contrast (WCAG) with the fill: the colour of text on the fill."""
        light = luminance(self.colour)
        return "#000000" if (light + _GLARE) ** 2 > (1 + _GLARE) * _GLARE else "#ffffff"


_COLOURS = ("#56B4E9", "#E69F00", "#009E73", "#0072B2", "#CC79A7", "#D55E00", "#F0E442", "#332288", "#3B3B3B")
"""Colours in the order of ``KINDS``: seven of Okabe and Ito, Tol's indigo, and a grey in place of black.

For every kind of colour blindness, the two most similar colours here differ at least as much as the two most similar
colours in the palette of Okabe and Ito.
"""
FILLS = tuple(
    Fill(colour, hatch)
    for hatch, colour in product(
        ("", "///", "...", "xxx"),
        _COLOURS,
    )
)
"""All fills that a reader can distinguish: first the colours without a hatch, then all colours with each hatch."""
PATTERNS = {"": "", "///": "/", "...": ".", "xxx": "x"}
"""Hatches in plotly's notation, by Matplotlib's notation."""
REST = Fill("#BDBDBD")
"""The fill for a row of several operations, and for memory whose code is unknown."""
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
"""Fixed fills by package: ``""`` is the program's own code, ``python`` the standard library."""
_GLARE = 0.05
_BENT_FROM = 0.04045


def fills(operations: Sequence[Operation]) -> dict[str, Fill]:
    """Return a fill for each name of an operation.

    Operations of a known kind (``KINDS``) have the fill of the kind. The other names get the remaining fills in turn;
    if there are not enough fills, they repeat.
    """
    kinds: dict[str, str | None] = {}
    for operation in operations:
        kind = operation.kind if operation.kind in KINDS else kind_of(operation.name)
        kinds[operation.name] = kinds.get(operation.name) or kind
    by_kind = dict(zip(KINDS, FILLS, strict=False))
    used = {by_kind[kind] for kind in kinds.values() if kind is not None}
    free = cycle(fill for fill in FILLS if fill not in used)
    fill_of = {}
    for name, kind in kinds.items():
        fill_of[name] = next(free) if kind is None else by_kind[kind]
    return fill_of


def choose_package_fills(packages: Sequence[str]) -> dict[str, Fill]:
    """Return a fill for each package in a flame graph; the package ``""`` is the program's own code.

    Well-known packages have fixed fills. Other packages get the remaining colours. If no colour remains, all further
    packages share one fill.
    """
    used = {_OF_PACKAGES.get(package) for package in ("", *packages)}
    free = (fill for fill in FILLS if fill not in used and not fill.hatch)
    return {package: _OF_PACKAGES.get(package) or next(free, OTHER_PACKAGES) for package in packages}


def luminance(colour: str) -> float:
    """Return the relative luminance that WCAG defines: 0 is black, 1 is white."""
    levels = []
    for digit in (1, 3, 5):
        level = int(colour[digit : digit + 2], 16) / 255
        levels.append(level / 12.92 if level <= _BENT_FROM else ((level + 0.055) / 1.055) ** 2.4)
    red, green, blue = levels
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


_LONGEST_TEXT = 200
_LONG_NAME = 20
"""Names of at most this number of characters are never shortened."""
_MOST_LONG_NAMES = 1000
"""If a run has more names than this, no names are shortened, because a reader could not distinguish the short names."""
_SMALL = 0.01
PARALLEL = "parallel"
_WITHOUT_END = (UNFINISHED, END_UNKNOWN)
_END_NOTE = f"{END_UNKNOWN}: the mark of the end was lost, so the figures from start to end are unknown"
_PARALLEL_NOTE = f"{PARALLEL}: growth, CPU and I/O include operations that ran at the same time in the same process"


@dataclass(frozen=True)
class NumberedOperation:
    """An operation in a list, with a number such as ``3.1.2``, and with the colour and hatch of its bar."""

    number: str
    """Position in the tree of operations: ``3.1.2``.

    Empty for a row of several operations, and for a time outside all operations.
    """
    operation: Operation
    fill: Fill
    process: str = ""
    """The process; empty unless other processes ran operations at the same time."""
    short_name: str = ""
    """The name without the beginning that it shares with other names; empty if the name is not shortened."""

    @property
    def title(self) -> str:
        """Name, number of calls, process, and a sign if the operation failed or did not end."""
        return f"{clip(self.operation.name, _LONGEST_TEXT)}{self._addition}"

    @property
    def short_title(self) -> str:
        """The title with the short name, if there is a short name."""
        return f"{self.short_name}{self._addition}" if self.short_name else self.title

    def fitted(self, room: int, fewest: int) -> str:
        """Return the title, cut to ``room`` characters; empty if fewer than ``fewest`` would be left."""
        title = self.title if len(self.title) <= room else self.short_title
        return shortened(title, room) if min(len(title), fewest) <= room else ""

    @property
    def _addition(self) -> str:
        operation = self.operation
        text = f" ×{operation.count:,}" if operation.count > 1 else ""
        words = [self.process, PARALLEL if operation.is_parallel else ""]
        if any(words):
            text += f" ({', '.join(filter(None, words))})"
        if operation.error is not None:
            text += " …" if operation.error in _WITHOUT_END else " ✕"
        return text

    @property
    def details(self) -> str:
        """How the operation ended, the function with arguments, and the total time of several calls."""
        operation = self.operation
        texts = [operation.error, operation.signature]
        if operation.total_s is not None:
            texts.append(f"{seconds_text(operation.total_s)} in {count_text(operation.count, 'call')}")
        return clip(" · ".join(filter(None, texts)), _LONGEST_TEXT)


def label_storage(session: Session) -> dict[str, str]:
    """Return the labels of the I/O counters that count bytes: ``{column: label}``."""
    labels = {}
    for column, metric in metrics.of_operations(session.samples.metrics).items():
        if metric.is_counter and metric.unit == "B":
            labels[column] = metric.short_label
    return labels


def figures_by_key(operation: Operation) -> dict[str, float | None]:
    """Return the measured values of an operation by their keys in exported documents.

    Column ``rss`` has the keys ``rss_start``, ``rss_end``, ``rss_delta`` and ``rss_peak``. The key of a counter is the
    name of its column. Bytes are whole numbers.
    """
    values: dict[str, float | None] = {}
    for column, metric in metrics.of_operations(operation.figures).items():
        figures = operation.of(column)
        levels = {
            f"{column}_start": figures.start,
            f"{column}_end": figures.end,
            f"{column}_delta": figures.delta,
            f"{column}_peak": figures.peak_low,
        }
        for key, value in ({column: figures.spent} if metric.is_counter else levels).items():
            values[key] = value if value is None or metric.unit != "B" else round(value)
    return values


def estimates_by_key(operation: Operation) -> dict[str, bool]:
    """Return whether RSS at the start, RSS at the end, and the change of RSS are estimates: ``{key: is_estimate}``."""
    rss = operation.of("rss")
    return {
        "rss_start_is_estimate": rss.start_is_estimate,
        "rss_end_is_estimate": rss.end_is_estimate,
        "rss_delta_is_estimate": rss.delta_is_estimate,
    }


def number_operations(session: Session, depth: int) -> list[NumberedOperation]:
    """Return the listed operations of the ``depth`` outermost levels with their numbers, fills and processes."""
    operations = list_operations(session.operations, depth)
    fill_of = fills(operations)
    performers = Performers(session)
    short = short_names(operations)
    rows = []
    indexes: list[int] = []
    for operation in operations:
        level = operation.depth
        del indexes[level + 1 :]
        indexes += [0] * (level + 1 - len(indexes))
        indexes[level] += 1
        rows.append(
            NumberedOperation(
                number=".".join(map(str, indexes)),
                operation=operation,
                fill=fill_of[operation.name],
                process=performers.name_process(operation),
                short_name=short.get(operation.name, ""),
            )
        )
    return rows


def left_out_text(count: int) -> str:
    """Return a text about the operations that a list leaves out: ``and 3 smaller ones``; empty if ``count`` is 0."""
    return f"and {count:,} smaller ones" if count else ""


def explain_rows(rows: Sequence[NumberedOperation]) -> list[str]:
    """Return explanations of the words and signs that occur in these rows."""
    notes = []
    if any(row.operation.is_parallel for row in rows):
        notes.append(_PARALLEL_NOTE)
    if any(row.operation.error == END_UNKNOWN for row in rows):
        notes.append(_END_NOTE)
    if has_estimates(row.operation for row in rows):
        notes.append(NOTE)
    return notes


def short_names(operations: Sequence[Operation]) -> dict[str, str]:
    """Return short names, without the beginning that a name shares with other names: ``{full name: short name}``."""
    names = {operation.name: clip(operation.name, _LONGEST_TEXT) for operation in operations}
    long = {name: text for name, text in names.items() if len(text) > _LONG_NAME}
    if len(names) > _MOST_LONG_NAMES or not long:
        return {}
    short = without_shared_start(sorted(set(names.values())))
    changed = {name for name, text in long.items() if short[text] != text}
    return {name: short[long[name]] for name in changed}


def note_peak(operations: Iterable[Operation], session: Session) -> dict[int, str]:
    """Return notes about the RSS peak, such as ``<- peak``: ``{id(operation): note}``.

    An operation has a note if the peak was, or may have been, during this operation. If nested operations qualify, only
    the innermost has a note. If the peak was outside all operations, the nearest operation has the note ``<- peak just
    after`` or ``<- peak just before``.
    """
    every = list(operations)
    peak = session.peak_place
    possible = [operation for operation in every if operation.has_peak is None]
    outer = {operation.parent for operation in possible}
    notes = {id(operation): "<- peak?" for operation in possible if outer.isdisjoint(_list_calls(operation))}
    certain = [operation for operation in every if operation.has_peak]
    if certain:
        holder = max(certain, key=lambda operation: operation.depth)
        if peak is None or not peak.either or outer.isdisjoint(_list_calls(holder)):
            notes[id(holder)] = "<- peak"
    if notes or peak is None or peak.nearest is None:
        return notes
    side = "after" if peak.from_s >= peak.nearest.end_s else "before"
    rows = [operation for operation in every if peak.nearest in _list_calls(operation)]
    return {id(row): f"<- peak just {side}" for row in rows[-1:]}


def drop_small(rows: Sequence[NumberedOperation], session: Session) -> list[NumberedOperation]:
    """Return the rows without small operations: less than 1 % of the time and less than 1 % of the memory.

    An operation stays if the peak was, or may have been, during this operation. All rows stay if only a single
    operation is small, or if the small operations took more time than the others.
    """
    peak = session.peak_place
    nearest = None if peak is None else peak.nearest
    least_s = session.duration_s * _SMALL
    least = (session.rss_peak.low or 0) * _SMALL

    def is_large(operation: Operation) -> bool:
        return nearest in _list_calls(operation) or not _is_small(operation, least_s, least)

    large = [row for row in rows if is_large(row.operation)]
    time_s = sum(row.operation.duration_s for row in rows)
    large_s = sum(row.operation.duration_s for row in large)
    are_enough = large and large_s * 2 >= time_s
    return large if are_enough and len(rows) - len(large) > 1 else list(rows)


def _list_calls(row: Operation) -> Sequence[Operation]:
    """Return the operations that a row combines."""
    return row.calls or (row,)


def _is_small(operation: Operation, least_s: float, least: float) -> bool:
    if operation.has_peak is not False or operation.error is not None or operation.duration_s >= least_s:
        return False
    rss = operation.of("rss")
    if rss.start is None or rss.delta is None:
        return True
    return abs(rss.delta) < least and (rss.peak_low or 0) - rss.start < least


def place_in_lanes(rows: Sequence[NumberedOperation], most: int) -> list[tuple[int, NumberedOperation, int]]:
    """Put each operation into the first free lane (row of bars); return (index in ``rows``, operation, lane).

    Lanes are numbered from 0. There are at most ``most`` lanes. Operations without a free lane are left out.
    """
    ends: list[float] = []
    placed: list[tuple[int, NumberedOperation, int]] = []
    for index, row in enumerate(rows):
        operation = row.operation
        free = (lane for lane, end_s in enumerate(ends) if end_s <= operation.start_s)
        lane = next(free, len(ends))
        if lane < most:
            ends[lane : lane + 1] = [operation.end_s]
            placed.append((index, row, lane))
    return placed


_FEW_INSIDE = 3
"""Up to this number of calls of the same function in an operation, each call has a row."""
_FEW_IN_A_ROW = 12
"""Up to this number of consecutive outermost calls of the same function, each call has a row."""


def list_operations(operations: Sequence[Operation], depth: int) -> list[Operation]:
    """Return the operations of the ``depth`` outermost nesting levels. Inner operations follow their outer operation.

    If an operation contains many calls of the same function, one row combines these calls: their number, total time and
    longest call. Many consecutive outermost calls of the same function are combined, too.
    """
    shown = [operation for operation in operations if operation.depth < depth]

    def key(operation: Operation) -> tuple[object, ...]:
        return operation.source, operation.name, operation.call, operation.error == END_UNKNOWN

    paths: dict[Operation | None, tuple[int, ...]] = {None: ()}
    """The sort key of each operation's row: the indexes of the enclosing operations and of the operation."""
    outer = []
    inner: dict[tuple[object, ...], list[Operation]] = {}
    for index, operation in enumerate(shown):
        paths[operation] = (*paths[operation.parent], index)
        if operation.depth:
            place = (operation.parent, operation.depth, *key(operation))
            inner.setdefault(place, []).append(operation)
        else:
            outer.append(operation)
    rows: list[tuple[tuple[int, ...], Operation]] = []
    groups = [(list(group), _FEW_IN_A_ROW) for _, group in groupby(outer, key)]
    groups += [(group, _FEW_INSIDE) for group in inner.values()]
    for group, few in groups:
        if len(group) > 1 and sum(operation.count for operation in group) > few:
            rows.append((paths[group[0]], combine_calls(group)))
        else:
            rows += [(paths[operation], operation) for operation in group]
    return [row for _, row in sorted(rows, key=itemgetter(0))]


_MOST_LEVELS = 8
_MOST_NESTED = 2000
"""Innermost levels are left out until at most this number of operations remains."""


def with_inner_levels(session: Session, depth: int) -> list[NumberedOperation]:
    """Return the operations of the ``depth`` outermost nesting levels, and as many deeper levels as a page can show.

    The deeper levels are left out as soon as all levels together would be more than ``_MOST_LEVELS`` levels, or more
    than ``_MOST_NESTED`` operations. An operation of a deeper level has the same colour and hatch as an outer operation
    with the same name.
    """
    counts = Counter(operation.depth for operation in session.operations)
    deepest = min(max(counts, default=-1) + 1, _MOST_LEVELS)
    while deepest > depth and sum(counts[level] for level in range(deepest)) > _MOST_NESTED:
        deepest -= 1
    rows = number_operations(session, max(depth, deepest))
    outer = fills([row.operation for row in rows if row.operation.depth < depth])
    return [
        replace(
            row,
            fill=outer.get(row.operation.name, row.fill),
        )
        for row in rows
    ]
