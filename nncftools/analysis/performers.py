"""Which process performed an operation, where operations of several processes ran at the same time."""

from __future__ import annotations

from bisect import bisect_left
from math import inf
from typing import TYPE_CHECKING

from nncftools.units import printable, shortened

if TYPE_CHECKING:
    from nncftools.session.operation import Operation
    from nncftools.session.session import Session

_NAME = 16


class Performers:
    """The processes of a session's operations."""

    def __init__(self, session: Session) -> None:
        self._names = {process.id: process.name for process in session.processes}
        self._levels: dict[int, _Level] = {}
        for operation in session.operations:
            if operation.pid is not None:
                self._levels.setdefault(operation.depth, _Level()).add(operation, operation.pid)

    def of(self, operation: Operation) -> str:
        """Return name and PID; empty unless operations of other processes ran on the same level meanwhile."""
        level = self._levels.get(operation.depth)
        if operation.pid is None or level is None or not level.others_ran(operation):
            return ""
        name = "" if operation.process is None else self._names[operation.process]
        return ", ".join(filter(None, (shortened(printable(name), _NAME), f"pid {operation.pid}")))


class _Level:
    """The operations of one level: up to each of them, the latest end, and the latest end of any other process."""

    def __init__(self) -> None:
        self._starts: list[float] = []
        self._latest: list[tuple[float, int, float]] = []

    def add(self, operation: Operation, pid: int) -> None:
        """Add an operation; none begins before those added."""
        end_s, of, others_end_s = self._latest[-1] if self._latest else (-inf, pid, -inf)
        if pid == of:
            end_s = max(end_s, operation.end_s)
        elif operation.end_s > end_s:
            end_s, of, others_end_s = operation.end_s, pid, end_s
        else:
            others_end_s = max(others_end_s, operation.end_s)
        self._starts.append(operation.start_s)
        self._latest.append((end_s, of, others_end_s))

    def others_ran(self, operation: Operation) -> bool:
        """Return whether an operation of another process overlaps this one."""
        begun = bisect_left(self._starts, operation.end_s)
        if not begun:
            return False
        end_s, of, others_end_s = self._latest[begun - 1]
        return (others_end_s if of == operation.pid else end_s) > operation.start_s
