"""Which operations a report shows: those of the outer levels, with repeated calls in one row."""

from __future__ import annotations

from itertools import accumulate, groupby
from typing import TYPE_CHECKING

from msgspec.structs import replace

from nncftools.session.operation import Figures, LazyMapping
from nncftools.session.peak_place import enclosing

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nncftools.session.operation import Operation

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
    above = enclosing(shown)
    places: dict[int, tuple[int, ...]] = {}
    """By ``id()``: the numbers of the operations around it, and its own."""
    inside: dict[tuple[object, ...], list[Operation]] = {}
    for number, operation in enumerate(shown):
        parent = id(above.get(id(operation)))
        places[id(operation)] = *places.get(parent, ()), number
        if operation.depth:
            inside.setdefault((parent, operation.depth, *_function(operation)), []).append(operation)
    outer = groupby((operation for operation in shown if operation.depth == 0), key=_function)
    rows = [row for _, run in outer for row in _combined_if_many(list(run), _FEW_IN_A_ROW)]
    rows += [row for group in inside.values() for row in _combined_if_many(group, _FEW_INSIDE)]
    return [row for _, row in sorted(rows, key=lambda row: places[id(row[0])])]


def _function(operation: Operation) -> tuple[object, ...]:
    return operation.source, operation.name, operation.call


def _combined_if_many(group: Sequence[Operation], few: int) -> Iterable[tuple[Operation, Operation]]:
    """Yield rows, each after the first of the operations that it stands for."""
    is_many = len(group) > 1 and sum(operation.count for operation in group) > few
    return [(group[0], _combined(group))] if is_many else [(one, one) for one in group]


def _combined(group: Sequence[Operation]) -> Operation:
    """Return operations as one row: from the first start to the last end, with the sum of what they cost.

    The sum is unknown where some ran beside each other: each has what all of them spent.
    """
    first, last = group[0], max(group, key=lambda operation: operation.end_s)
    latest_s = accumulate((operation.end_s for operation in group), max)
    is_sum = all(after.start_s >= end_s for after, end_s in zip(group[1:], latest_s, strict=False))
    return replace(
        first,
        end_s=last.end_s,
        error=next((operation.error for operation in reversed(group) if operation.error), None),
        count=sum(operation.count for operation in group),
        total_s=sum(map(_inside_s, group)),
        cores_s=sum(one.duration_s if one.cores_s is None else one.cores_s for one in group),
        longest_s=max(one.duration_s if one.longest_s is None else one.longest_s for one in group),
        arguments=_common(operation.arguments for operation in group),
        saved=_common(operation.saved for operation in group),
        has_peak=_any(operation.has_peak for operation in group),
        is_parallel=any(operation.is_parallel for operation in group),
        figures=LazyMapping(
            first.figures, lambda column: _sum([one.of(column) for one in group], last.of(column), is_sum=is_sum)
        ),
    )


def _inside_s(operation: Operation) -> float:
    """Return the seconds inside the calls that an operation stands for."""
    return operation.duration_s if operation.total_s is None else operation.total_s


def _common(found: Iterable[str | None]) -> str | None:
    """Return the text that all have in common; None when they differ."""
    different = set(found)
    return different.pop() if len(different) == 1 else None


def _any(found: Iterable[bool | None]) -> bool | None:
    """Return True if one is, otherwise None if one is unknown."""
    known = set(found)
    return True if True in known else None if None in known else False


def _sum(every: Sequence[Figures], last: Figures, *, is_sum: bool) -> Figures:
    """Return the figures of a column for several operations; what they spent is unknown if it is for one of them."""
    spent = [figures.spent for figures in every if figures.spent is not None]
    return Figures(
        start=every[0].start,
        end=last.end,
        peak=max((figures.peak for figures in every if figures.peak is not None), key=lambda of: of.low, default=None),
        spent=sum(spent) if is_sum and len(spent) == len(every) else None,
    )
