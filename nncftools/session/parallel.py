"""Operations of one process that run beside each other, and numbers by which marks name what they are inside of."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from msgspec.structs import replace

from nncftools.session.peak_place import enclosing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from nncftools.session.model import Mark
    from nncftools.session.operation import Operation
    from nncftools.session.peak_place import Above

_DEEPEST = 400
"""A log of marks is read to 200 levels of one process."""


def with_parallel(operations: Sequence[Operation]) -> list[Operation]:
    """Return operations, in the order of their starts, with ``is_parallel``.

    Two are parallel if they share some time and their process, and neither is around the other. Calls that are counted
    together are left out: their span does not say when they ran.
    """
    above = enclosing(operations)
    processes: dict[int, _Running] = {}
    for operation in operations:
        if operation.pid is not None and _has_a_time(operation):
            processes.setdefault(operation.pid, _Running(above)).begin(operation)
    found = set[int]().union(*(running.parallel for running in processes.values()))
    return [replace(one, is_parallel=True) if id(one) in found else one for one in operations]


class _Running:
    """The operations of one process that go on."""

    def __init__(self, above: Above) -> None:
        self._above = above
        self.parallel: set[int] = set()
        """The ``id()`` of all that turned out to be parallel."""
        self._ends: list[float] = []
        """When those of them that go on end, as a heap."""
        self._nested: list[Operation] = []
        """The others, each inside of the one before."""

    def begin(self, operation: Operation) -> None:
        """Add an operation; none begins before those added."""
        while self._ends and self._ends[0] <= operation.start_s:
            heapq.heappop(self._ends)
        while self._nested and self._nested[-1].end_s <= operation.start_s:
            self._nested.pop()
        if self._ends or (self._nested and self._nested[-1] is not self._above.get(id(operation))):
            self._compare(operation)
        else:
            self._nested.append(operation)

    def _compare(self, operation: Operation) -> None:
        """Add an operation that may be beside others."""
        around = {id(one) for one in self._around(operation) if one.end_s > operation.start_s}
        beside = [one for one in self._nested if id(one) not in around and one.end_s > operation.start_s]
        if beside or len(self._ends) > len(around & self.parallel):
            beside.append(operation)
        else:
            self._nested.append(operation)
        self.parallel.update(map(id, beside))
        self._nested = [one for one in self._nested if id(one) not in self.parallel]
        for one in beside:
            heapq.heappush(self._ends, one.end_s)

    def _around(self, operation: Operation) -> Iterator[Operation]:
        for _ in range(_DEEPEST):
            outer = self._above.get(id(operation))
            if outer is None:
                return
            operation = outer
            yield operation


def _has_a_time(operation: Operation) -> bool:
    return operation.count == 1 and operation.end_s > operation.start_s


def renumbered(marks: Iterable[Mark], beside: Iterable[Mark]) -> list[Mark]:
    """Return marks whose numbers are none of those of the marks ``beside`` them."""
    most = max((mark.op or 0 for mark in beside), default=0)
    return [replace(mark, op=_later(mark.op, most), inside=_later(mark.inside, most)) for mark in marks]


def _later(number: int | None, most: int) -> int | None:
    return None if number is None else number + most
