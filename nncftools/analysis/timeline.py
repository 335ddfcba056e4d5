"""Which operations a reader is shown: those of the outer levels, repeated calls told together."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from nncftools.session.operations import Figures, LazyFigures

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nncftools.session.operations import Operation

_FEW_INSIDE = 3
"""Up to this number, calls of one function inside of one operation are shown one by one."""
_FEW_IN_A_ROW = 12
"""The same for outermost calls that follow one another."""


def timeline(operations: Sequence[Operation], depth: int) -> list[Operation]:
    """Return the operations of the outer ``depth`` levels, in the order of their starts.

    Many calls of one function inside of one operation are one row, with their number, their time together and the
    longest of them; so are many outermost ones with no other between them.
    """
    shown = [operation for operation in operations if operation.depth < depth]
    outer = [operation for operation in shown if operation.depth == 0]
    rows = [row for _, run in groupby(outer, key=_what) for row in _if_many(list(run), _FEW_IN_A_ROW)]
    inside: dict[tuple[object, ...], list[Operation]] = {}
    above: dict[int, Operation] = {}
    for operation in shown:
        above[operation.depth] = operation
        if operation.depth:
            inside.setdefault((id(above.get(operation.depth - 1)), operation.depth, *_what(operation)), []).append(
                operation
            )
    rows += [row for group in inside.values() for row in _if_many(group, _FEW_INSIDE)]
    return sorted(rows, key=lambda operation: (operation.start_s, operation.depth))


def _what(operation: Operation) -> tuple[object, ...]:
    return operation.source, operation.name, operation.call


def _if_many(group: Sequence[Operation], few: int) -> Iterable[Operation]:
    return [together(group)] if len(group) > few else group


def together(group: Sequence[Operation]) -> Operation:
    """Return operations as one row: from the first start to the last end, what they cost added up."""
    first, last = group[0], max(group, key=lambda operation: operation.end_s)
    return replace(
        first,
        end_s=last.end_s,
        error=next((operation.error for operation in reversed(group) if operation.error), None),
        count=sum(operation.count for operation in group),
        total_s=sum(operation.duration_s if operation.total_s is None else operation.total_s for operation in group),
        longest_s=max(
            operation.duration_s if operation.longest_s is None else operation.longest_s for operation in group
        ),
        has_peak=any(operation.has_peak for operation in group),
        figures=LazyFigures(
            first.figures, lambda column: _together([one.of(column) for one in group], last.of(column))
        ),
    )


def _together(every: Sequence[Figures], last: Figures) -> Figures:
    """Return what a column says of several operations; the sum is unknown when one of them is."""
    spent = [figures.spent for figures in every]
    return Figures(
        start=every[0].start,
        end=last.end,
        peak=max((figures.peak for figures in every if figures.peak is not None), default=None),
        spent=None if None in spent else sum(value for value in spent if value is not None),
    )
