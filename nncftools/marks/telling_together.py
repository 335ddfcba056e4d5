"""Counts operations together where a log holds more than a report can list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from nncftools.intake import limits
from nncftools.marks.entries import END, Entry
from nncftools.marks.nesting import Nesting

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from nncftools.marks.nesting import Open

FURTHER = "further operations"
"""The name of operations with so many names that each has only a few."""
_MOST_NAMES = 100
_DEEPEST = 200
"""Operations inside each other; those further inside count as part of the last one."""


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


class _Inside:
    """What is directly inside of an operation, or of a process."""

    def __init__(self, *, is_listed: bool = True) -> None:
        self.is_listed = is_listed
        self.listed = 0
        """How many operations directly inside it are listed."""
        self.together: dict[str, _Together] = {}


class TellingTogether:
    """Lists operations up to the limits, and counts the others together with those of their name."""

    def __init__(self) -> None:
        """Start without operations."""
        self.counted = 0
        """How many operations are not listed."""
        self._listed = 0
        self._of_process: dict[int | None, int] = {}
        self._nesting: Nesting[_Inside] = Nesting()
        self._processes: dict[int | None, _Inside] = {}
        self._elsewhere = _Inside()
        """Holds what is counted together when the whole log is too long."""

    def listed(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Yield operations in the order of the log: begins, ends, moments; then those counted together."""
        for entry in entries:
            if entry.event == END:
                yield from self._end(entry)
            else:
                yield from self._begin(entry)
        still_open = list(self._nesting.every())
        for one in still_open:
            if not one.what.is_listed:
                self._count(self._around(one.outer, one.entry), one.entry, None)
        for inside in (*(one.what for one in still_open), *self._processes.values(), self._elsewhere):
            yield from _counted_in(inside)

    def _begin(self, entry: Entry) -> Iterator[Entry]:
        place = self._nesting.begin(entry)
        if place.ended is not None:
            yield from self._ended(place.ended, entry)
        around = self._around(place.outer, entry)
        is_whole = entry.event is None and (entry.end_s is not None or entry.count > 1 or entry.depth is not None)
        is_listed = self._has_room(around, entry, 1 if place.outer is None else place.outer.depth + 2)
        if is_listed:
            around.listed += 1
            self._listed += 1
            self._of_process[entry.pid] = self._of_process.get(entry.pid, 0) + 1
            yield entry
        if not around.is_listed:  # part of an operation that is not listed
            return
        if not is_whole:
            self._nesting.open(entry, place, _Inside(is_listed=is_listed))
        elif not is_listed:
            self._count(around, entry, entry.start_s if entry.end_s is None else entry.end_s)

    def _around(self, outer: Open[_Inside] | None, entry: Entry) -> _Inside:
        return self._processes.setdefault(entry.pid, _Inside()) if outer is None else outer.what

    def _has_room(self, around: _Inside, entry: Entry, depth: int) -> bool:
        most = limits()
        return (
            around.is_listed
            and around.listed < most.marks_of_operation
            and self._of_process.get(entry.pid, 0) < most.marks_of_process
            and self._listed < most.marks_of_recording
            and depth <= _DEEPEST
        )

    def _end(self, entry: Entry) -> Iterator[Entry]:
        ended = self._nesting.end(entry)
        for one in ended:
            yield from self._ended(one, entry)
        if any(one.what.is_listed for one in ended):
            yield entry

    def _ended(self, one: Open[_Inside], by: Entry) -> Iterator[Entry]:
        if one.what.is_listed:
            yield from _counted_in(one.what)
        else:
            self._count(self._around(one.outer, one.entry), one.entry, by.start_s)

    def _count(self, around: _Inside, entry: Entry, end_s: float | None) -> None:
        """Count an operation that is not listed."""
        self.counted += entry.count
        into = around if self._listed < limits().marks_of_recording else self._elsewhere
        name = entry.name if entry.name in into.together or len(into.together) < _MOST_NAMES else FURTHER
        if name not in into.together:
            into.together[name] = _Together(entry)
        start_s = entry.start_s or 0.0
        into.together[name].add(start_s, max(start_s, end_s or start_s), entry.count)


def _counted_in(inside: _Inside) -> Iterator[Entry]:
    for name, together in inside.together.items():
        yield together.entry(name)
    inside.together.clear()
