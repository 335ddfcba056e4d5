"""Counts operations together where a log holds more than a report can list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from nncftools.bounds import limits
from nncftools.marks.entries import AUTO, END, Entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FURTHER = "further operations"
"""The name of operations with so many names that each has only a few."""
_MOST_NAMES = 100
_DEEPEST = 200
"""Operations inside each other; those further inside count as part of the last one."""
_Thread = tuple["int | None", "int | None"]


class _Together:
    """Operations of one name inside one operation."""

    def __init__(self, first: Entry) -> None:
        self._first = first
        self._count = 0
        self._total_s = self._longest_s = 0.0
        self._end_s = first.start_s or 0.0

    def add(self, start_s: float, end_s: float, count: int) -> None:
        self._count += count
        self._total_s += end_s - start_s
        self._longest_s = max(self._longest_s, end_s - start_s)
        self._end_s = max(self._end_s, end_s)

    def entry(self, name: str) -> Entry:
        return replace(
            self._first,
            **_NOT_SHARED,
            name=name,
            kind=self._first.kind if name == self._first.name else None,
            end_s=self._end_s,
            count=self._count,
            total_s=self._total_s,
            longest_s=self._longest_s,
        )


_NOT_SHARED = dict.fromkeys(
    (
        *("event", "op", "arguments", "saved", "saved_size", "rt_info", "error"),
        *("own_start", "own_end", "rss", "high_water_mark", "faults", "descendants", "own", "total_ns", "longest_ns"),
    )
)


class _Open:
    """An operation that goes on, or what is around all operations of a process."""

    __slots__ = ("entry", "inside", "is_listed", "listed")

    def __init__(self, entry: Entry | None = None, *, is_listed: bool = True) -> None:
        self.entry = entry
        self.is_listed = is_listed
        self.listed = 0
        """How many operations directly inside it are listed."""
        self.inside: dict[str, _Together] = {}

    @property
    def is_moment(self) -> bool:
        return self.entry is not None and self.entry.event is None


class TellingTogether:
    """Lists operations up to the limits, and counts the others together with those of their name."""

    def __init__(self) -> None:
        """Start without operations."""
        self.counted = 0
        """How many operations are not listed."""
        self._listed = 0
        self._of_process: dict[int | None, int] = {}
        self._stacks: dict[_Thread, list[_Open]] = {}
        self._bottoms: dict[int | None, _Open] = {}
        """By process: the bottom of the stacks of its threads."""
        self._elsewhere = _Open()
        """Holds what is counted together when the whole log is too long."""

    def listed(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Yield operations in the order of the log: begins, ends, moments; then those counted together."""
        for entry in entries:
            stack = self._stacks.get((entry.pid, entry.tid))
            if stack is None:
                bottom = self._bottoms.setdefault(entry.pid, _Open())
                stack = self._stacks[entry.pid, entry.tid] = [bottom]
            if entry.event == END:
                yield from self._end(stack, entry)
            else:
                yield from self._begin(stack, entry)
        for stack in self._stacks.values():
            last = stack[-1]
            if last.entry is not None and not last.is_listed:  # only the innermost one can be
                self._count(stack[-2], last.entry, None)
        for stack in self._stacks.values():
            for frame in stack:
                yield from _counted_in(frame)
        yield from _counted_in(self._elsewhere)

    def _begin(self, stack: list[_Open], entry: Entry) -> Iterator[Entry]:
        if entry.source != AUTO:
            self._end_moments(stack, entry.start_s or 0.0)
        around = stack[-1]
        is_whole = entry.event is None and (entry.end_s is not None or entry.count > 1 or entry.depth is not None)
        is_listed = self._has_room(around, entry, len(stack))
        if is_listed:
            around.listed += 1
            self._listed += 1
            self._of_process[entry.pid] = self._of_process.get(entry.pid, 0) + 1
            yield entry
        if not around.is_listed:  # part of an operation that is not listed
            return
        if not is_whole:
            stack.append(_Open(entry, is_listed=is_listed))
        elif not is_listed:
            self._count(around, entry, entry.start_s if entry.end_s is None else entry.end_s)

    def _has_room(self, around: _Open, entry: Entry, depth: int) -> bool:
        most = limits()
        return (
            around.is_listed
            and around.listed < most.marks_of_operation
            and self._of_process.get(entry.pid, 0) < most.marks_of_process
            and self._listed < most.marks_of_recording
            and depth <= _DEEPEST
        )

    def _end(self, stack: list[_Open], entry: Entry) -> Iterator[Entry]:
        place = len(stack) - 1
        while place and (stack[place].entry is None or stack[place].entry.op != entry.op):  # type: ignore[union-attr]
            place -= 1
        if not place:  # it began before the recording, or its begin was not written
            return
        at_s = entry.start_s or 0.0
        self._end_moments(stack, at_s, place + 1)
        frame = stack.pop(place)
        if frame.is_listed:
            yield from _counted_in(frame)
            yield entry
        elif frame.entry is not None:
            self._count(stack[place - 1], frame.entry, at_s)

    def _end_moments(self, stack: list[_Open], at_s: float, down_to: int = 1) -> None:
        while len(stack) > down_to and stack[-1].is_moment:
            frame = stack.pop()
            if not frame.is_listed and frame.entry is not None:
                self._count(stack[-1], frame.entry, at_s)

    def _count(self, around: _Open, entry: Entry, end_s: float | None) -> None:
        """Count an operation that is not listed."""
        self.counted += entry.count
        into = around if self._listed < limits().marks_of_recording else self._elsewhere
        name = entry.name if entry.name in into.inside or len(into.inside) < _MOST_NAMES else FURTHER
        if name not in into.inside:
            into.inside[name] = _Together(entry)
        start_s = entry.start_s or 0.0
        into.inside[name].add(start_s, max(start_s, end_s or start_s), entry.count)


def _counted_in(frame: _Open) -> Iterator[Entry]:
    for name, together in frame.inside.items():
        yield together.entry(name)
    frame.inside.clear()
