"""Which process performed an operation, where operations of several processes ran at the same time."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from nncftools.text import printable, shortened

if TYPE_CHECKING:
    from nncftools.session.operation import Operation
    from nncftools.session.session import Session

_NAME = 16


class Performers:
    """The processes of a session's operations."""

    def __init__(self, session: Session) -> None:
        self._names = {process.id: process.name for process in session.processes}
        self._spans: dict[int, dict[int, tuple[list[float], list[float]]]] = {}
        for operation in session.operations:
            if operation.pid is not None:
                starts, ends = self._spans.setdefault(operation.depth, {}).setdefault(operation.pid, ([], []))
                starts.append(operation.start_s)
                ends.append(max(operation.end_s, ends[-1] if ends else 0.0))

    def of(self, operation: Operation) -> str:
        """Return name and PID; empty unless operations of other processes ran on the same level meanwhile."""
        others = (spans for pid, spans in self._spans.get(operation.depth, {}).items() if pid != operation.pid)
        if operation.pid is None or not any(_overlap(operation, *spans) for spans in others):
            return ""
        name = "" if operation.process is None else self._names[operation.process]
        return ", ".join(filter(None, (shortened(printable(name), _NAME), f"pid {operation.pid}")))


def _overlap(operation: Operation, starts: list[float], latest_ends: list[float]) -> bool:
    """Return whether one of several operations overlaps another one; ``latest_ends`` are the latest ends so far."""
    begun = bisect_left(starts, operation.end_s)
    return begun > 0 and latest_ends[begun - 1] > operation.start_s
