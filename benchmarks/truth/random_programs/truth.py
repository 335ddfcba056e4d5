"""The truth about a program: its operations, its peak, and the operations that may be named with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from benchmarks.truth.random_programs.envelope import Envelope, Interval, Reading, changes
from benchmarks.workloads.random_programs.notes import BEGAN, END, GONE, MARKED, MOMENT, READ

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_MIB = 2**20
_NOISE, _NOISE_BYTES = 0.01, _MIB
"""Memory has come to the peak when it is this close to it."""
_DOUBT, _DOUBT_BYTES, _DOUBT_NS = 0.005, _MIB / 2, 1_000_000
"""How exactly size and moment of this are known."""
_UNREAD = 2 * _MIB
"""What a process holds at most that ended before anyone read it: a program that does nothing."""
_GROWTH, _GROWTH_BYTES = 0.1, _MIB / 4
"""A process that changes by less than this share of what another one does, or this size, does not make the peak."""


class Operation(NamedTuple):
    """An operation; its ends are two times each, before and after the mark."""

    name: str
    pid: int
    tid: int
    start_ns: tuple[int, int]
    end_ns: tuple[int, int] | None
    """None for a moment that no other mark ended, and for what an orphan ended after the recording."""
    start: Interval
    end: Interval | None
    peak: Interval
    inside: str | None
    """The operation of its thread around it."""


class Headline(NamedTuple):
    """The operations in which memory first came within noise of the peak."""

    names: frozenset[str]
    """Each of them is right; an empty name stands for no operation."""
    open: frozenset[str]
    """Those that may stand around them."""


class Truth(NamedTuple):
    """All that is known of a program."""

    operations: Sequence[Operation]
    optional: frozenset[str]
    """Operations that an orphan began when the recording may have ended already."""
    peak: Interval
    headline: Headline


class _Mark(NamedTuple):
    from_ns: int
    to_ns: int
    pid: int
    tid: int
    kind: str
    name: str


class _Notes:
    """The notes of a program, by kind."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.readings: dict[int, list[Reading]] = {}
        self.parents: dict[int, int] = {}
        self.gone_ns: dict[int, int] = {}
        self.marks: list[_Mark] = []
        for line in lines:
            kind, rest = line.split(" ", 1)
            if kind == MARKED:
                *numbers, what, name = rest.split(" ", 5)
                from_ns, to_ns, pid, tid = map(int, numbers)
                self.marks.append(_Mark(from_ns, to_ns, pid, tid, what, name))
            else:
                self._take(kind, [int(word) for word in rest.split()])
        self.marks.sort()
        for readings in self.readings.values():
            if not any(reading.high for reading in readings):
                times = [reading.from_ns for reading in readings]
                readings.append(Reading(min(times) + 1, max(times) - 1, 0, _UNREAD))

    def _take(self, kind: str, numbers: Sequence[int]) -> None:
        if kind == BEGAN:
            at_ns, pid, self.parents[pid] = numbers  # pid is known when its place in parents is
            self._add(pid, at_ns, at_ns, 0)
        elif kind == GONE:
            at_ns, pid = numbers
            self.gone_ns[pid] = min(at_ns, self.gone_ns.get(pid, at_ns))
            self._add(pid, at_ns, at_ns, 0)
        elif kind == READ:
            from_ns, to_ns, *sizes = numbers
            for pid, size in zip(sizes[::2], sizes[1::2], strict=True):
                self._add(pid, from_ns, to_ns, size)

    def _add(self, pid: int, from_ns: int, to_ns: int, size: int) -> None:
        self.readings.setdefault(pid, []).append(Reading(from_ns, to_ns, size, size))


def truth_of(lines: Iterable[str]) -> Truth:
    """Return what the notes of a program say."""
    notes = _Notes(lines)
    by_pid = {pid: Envelope(changes(readings)) for pid, readings in notes.readings.items()}
    tree = Envelope(change for readings in notes.readings.values() for change in changes(readings))
    ended_ns = _ended_ns(notes)
    peak = tree.most((0, ended_ns[0]), (0, ended_ns[1]))
    operations = list(_operations([mark for mark in notes.marks if mark.from_ns <= ended_ns[0]], tree, ended_ns))
    optional = {mark.name for mark in notes.marks if mark.kind != END and mark.from_ns > ended_ns[0]}
    headline = _headline(notes, operations, by_pid, tree.until(ended_ns[1]), peak)
    return Truth(operations, frozenset(optional), peak, headline)


def envelopes_of(lines: Iterable[str]) -> dict[int, Envelope]:
    """Return the bounds of each process by PID."""
    return {pid: Envelope(changes(readings)) for pid, readings in _Notes(lines).readings.items()}


def _ended_ns(notes: _Notes) -> tuple[int, int]:
    """Return when the first process certainly was there, and when it has ended: its recording ends with it."""
    root = next(pid for pid, parent in notes.parents.items() if parent == 0)
    last_ns = max(reading.from_ns for reading in notes.readings[root] if reading.low)
    return last_ns, notes.gone_ns.get(root, last_ns)


def _operations(marks: Sequence[_Mark], tree: Envelope, ended_ns: tuple[int, int]) -> Iterator[Operation]:
    """Yield operations: a moment ends with the next mark of its thread on its level, or the operation around it."""
    stacks: dict[tuple[int, int], list[tuple[_Mark, str | None]]] = {}
    for mark in marks:
        stack = stacks.setdefault((mark.pid, mark.tid), [])
        while stack and stack[-1][0].kind == MOMENT:
            yield _operation(*stack.pop(), mark, tree, ended_ns)
        if mark.kind == END:
            begun, inside = stack.pop()
            assert begun.name == mark.name
            yield _operation(begun, inside, mark, tree, ended_ns)
        else:
            stack.append((mark, stack[-1][0].name if stack else None))
    for stack in stacks.values():
        for mark, inside in stack:
            yield _operation(mark, inside, None, tree, ended_ns)


def _operation(
    begun: _Mark, inside: str | None, ended: _Mark | None, tree: Envelope, ended_ns: tuple[int, int]
) -> Operation:
    until_ns = ended_ns if ended is None else (ended.from_ns, ended.to_ns)
    return Operation(
        begun.name,
        begun.pid,
        begun.tid,
        (begun.from_ns, begun.to_ns),
        None if ended is None else until_ns,
        tree.between(begun.from_ns, begun.to_ns),
        None if ended is None else tree.between(*until_ns),
        tree.most((begun.to_ns, until_ns[0]), (begun.from_ns, until_ns[1])),
        inside,
    )


def _headline(
    notes: _Notes, operations: Sequence[Operation], by_pid: Mapping[int, Envelope], tree: Envelope, peak: Interval
) -> Headline:
    """Return the operations of the process that took the sum to the peak, or of its closest ancestor that has any.

    Where a process has several threads, any of them may have done it. An orphan has no ancestors.
    """
    names: set[str] = set()
    around: set[str] = set()
    for from_ns, to_ns in _arrivals(tree, peak):
        grown = _grown(by_pid, from_ns, to_ns)
        for at_ns in [from_ns, to_ns, *(one.to_ns + 1 for one in notes.marks if from_ns <= one.to_ns < to_ns)]:
            around.update(one.name for one in operations if _may_be_open(one, at_ns))
            innermost = list(_innermost(operations, at_ns))
            names.update(name for pid in grown for name in _of_process(pid, at_ns, notes, innermost))
    return Headline(frozenset(names), frozenset(around))


def _of_process(pid: int, at_ns: int, notes: _Notes, innermost: Iterable[Operation]) -> set[str]:
    """Return the innermost operations that a process worked for; any or none if nobody above it has one."""
    above = pid
    while above:
        if own := {one.name for one in innermost if one.pid == above}:
            return own
        above = notes.parents.get(above, 0)
        if above and notes.gone_ns.get(above, at_ns) < at_ns:
            break
    return {"", *(one.name for one in innermost)}


def _arrivals(tree: Envelope, peak: Interval) -> Iterator[tuple[int, int]]:
    """Yield the times in which the sum may first have come within noise of the peak: it was not above that before."""
    possible = peak.low - _noise(peak.low) - _doubt(peak.low)
    certain = peak.high - _noise(peak.high) + _doubt(peak.high)
    last = len(tree.times) - 1
    for place, (low, high) in enumerate(zip(tree.lows, tree.highs, strict=True)):
        if high >= possible:
            from_ns, to_ns = tree.times[place], tree.times[min(place + 1, last)]
            if low >= certain:
                yield from_ns - _DOUBT_NS, from_ns + _DOUBT_NS
                return
            yield from_ns - _DOUBT_NS, to_ns + _DOUBT_NS
        possible = max(possible, low - _doubt(low))


def _noise(size: float) -> float:
    return max(size * _NOISE, _NOISE_BYTES)


def _doubt(size: float) -> float:
    return max(size * _DOUBT, _DOUBT_BYTES)


def _grown(by_pid: Mapping[int, Envelope], from_ns: int, to_ns: int) -> list[int]:
    """Return the processes that may have taken memory; all, if there is none."""
    held = {pid: process.between(from_ns, to_ns) for pid, process in by_pid.items()}
    grown = {pid: size.high - size.low for pid, size in held.items()}
    enough = max(_GROWTH_BYTES, _GROWTH * max(grown.values()))
    return [pid for pid, size in grown.items() if size >= enough] or list(by_pid)


def _innermost(operations: Sequence[Operation], at_ns: int) -> Iterator[Operation]:
    """Yield the operations that may be open at a moment without one inside of them that certainly is."""
    certain = {
        one.inside for one in operations if one.start_ns[1] <= at_ns and (one.end_ns is None or at_ns <= one.end_ns[0])
    }
    return (one for one in operations if one.name not in certain and _may_be_open(one, at_ns))


def _may_be_open(operation: Operation, at_ns: int) -> bool:
    return operation.start_ns[0] <= at_ns and (operation.end_ns is None or at_ns <= operation.end_ns[1])
