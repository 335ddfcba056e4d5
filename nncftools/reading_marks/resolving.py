"""Turns marks as they were logged into operations with a depth and an end.

``LimitedMarks`` comes first: it counts operations together where a log holds more than a report can list.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from math import inf

from msgspec.structs import replace

from nncftools.analysis.session import Session
from nncftools.intake import LIMITS
from nncftools.reading_marks.entries import AUTO, BEGIN, END, EXEC, LOST, Entry, Nesting, Open
from nncftools.session.model import END_UNKNOWN, UNFINISHED, Mark, ProcessTable
from nncftools.session.nesting import kind_of, latest_end_s, parents, with_ends

_ENDS = (END, EXEC)


@dataclass(eq=False, slots=True)
class _Frame:
    """An operation and its enclosing one, in any process."""

    opened: Open[_Frame]
    enclosing: _Frame | None
    mark: Mark
    may_have_ended: bool = False
    """Whether its end may be among lines that are missing."""

    @property
    def entry(self) -> Entry:
        return self.opened.entry

    @property
    def bound(self) -> _Frame | None:
        """The operation of its profiler, or the call, that it is inside of."""
        return None if self.opened.bound is None else self.opened.bound.what


def _mark_of(entry: Entry, depth: int) -> Mark:
    changed = {
        "depth": depth if entry.depth is None else entry.depth,
        "op": None if entry.depth is None else entry.op,
        "source": entry.source or "",
        "kind": entry.kind or kind_of(entry.name),
        "arguments": ", ".join(entry.arguments) or None if isinstance(entry.arguments, list) else entry.arguments,
        "total_s": _seconds(entry.total_ns, entry.total_s),
        "longest_s": _seconds(entry.longest_ns, entry.longest_s),
        "own_start": entry.own_start or entry.own,
    }
    return Mark(**{name: getattr(entry, name) for name in Mark.__struct_fields__} | changed)


def _seconds(nanoseconds: int | None, seconds: float | None) -> float | None:
    return seconds if nanoseconds is None else nanoseconds / 1e9


def resolve(entries: Iterable[Entry], session: Session, *, is_cut: bool = False) -> list[Mark]:
    """Return the operations sorted by start; ``entries`` have their times in seconds from the start.

    - Which operation is around another one of its process, and which moments end, is the rule of ``nesting``.
    - Operations of a child process are nested in what its parent was doing; automatic marks on another thread, in what
      the main thread was doing; everything, in what was marked from outside the programs.
    - An operation that never ended is unfinished. If its end may be missing, because lines of its process are or the
      log ``is_cut``, its end is unknown, and nothing that begins after the missing lines is inside of it.
    """
    return _NestedMarks(session, is_cut=is_cut).marks(entries)


class _NestedMarks:
    def __init__(self, session: Session, *, is_cut: bool) -> None:
        self._session = session
        self._is_cut = is_cut
        self._finished = session.finished is not False
        self._table = ProcessTable(session.processes)
        self._nesting: Nesting[_Frame] = Nesting()
        self._frames: list[_Frame] = []

    def marks(self, entries: Iterable[Entry]) -> list[Mark]:
        for entry in sorted(_as_events(entries), key=_order):
            self._add(entry)
        for frame in self._frames:
            self._finish(frame)
        for frame in reversed(self._frames):  # inner ones first
            outer = frame.enclosing
            if outer is not None and outer.mark.error == END_UNKNOWN:
                outer.mark.end_s = max(outer.mark.end_s or 0.0, frame.mark.end_s or frame.mark.start_s)
        frames = sorted(_merged_steps(self._frames), key=lambda frame: (frame.mark.start_s, frame.mark.depth))
        marks = [frame.mark for frame in frames]
        until_s = dict(self._until_s())
        for frame, (mark, end_s) in zip(frames, with_ends(marks, self._session), strict=True):
            last_s = min(until_s.get(frame, end_s), latest_end_s(mark, self._table, self._session.duration_s))
            if mark.end_s is None and end_s < last_s:
                mark.end_s = last_s
        self._name_outer(frames, parents(with_ends(marks, self._session)))
        return marks

    def _name_outer(self, frames: Sequence[_Frame], by_depth: Sequence[int | None]) -> None:
        """Name what an operation is inside of, where readers of the marks could not tell by their depth."""
        numbers = count(1 + max((frame.mark.op or 0 for frame in frames), default=0))
        for frame, place in zip(frames, by_depth, strict=True):
            outer = None if frame.enclosing is None or frame.entry.depth is not None else frame.enclosing.mark
            if outer is not None and (place is None or frames[place].mark is not outer):
                outer.op = outer.op or next(numbers)
                frame.mark.inside = outer.op

    def _until_s(self) -> Iterator[tuple[_Frame, float]]:
        """Yield each operation without an end, and how long it goes on at most, if its process lives on.

        A moment ends with the next one of its profiler, also on another thread.
        """
        following: dict[tuple[int | None, int | None, _Frame | None], float] = {}
        for frame in reversed(self._frames):
            entry, start_s = frame.entry, frame.mark.start_s
            key = entry.pid, entry.profiler, frame.bound
            if entry.may_go_on and frame.mark.end_s is None:
                yield frame, inf if entry.event is not None else following.get(key, inf)
            if entry.source != AUTO:
                following[key] = start_s

    def _add(self, entry: Entry) -> None:
        if entry.event == LOST:
            for operation in self._nesting.lose(entry.pid):
                operation.what.may_have_ended = True
            return
        if entry.event == EXEC:
            for operation in self._nesting.end_process(entry.pid):
                if (entry.start_s or 0.0) <= latest_end_s(operation.what.mark, self._table, inf):
                    _end(operation, entry)
            return
        if entry.event == END:
            for operation in self._nesting.end(entry):
                _end(operation, entry)
            return
        opened, ended = self._nesting.begin(entry)
        if opened.entry is not entry:
            return
        if ended is not None:
            _end(ended, entry)
        outer = opened.outer or self._outside_of_process(entry)
        enclosing = None if outer is None else outer.what
        frame = _Frame(opened, enclosing, _mark_of(entry, 0 if enclosing is None else enclosing.mark.depth + 1))
        self._frames.append(frame)
        if entry.may_go_on:
            self._nesting.open(opened, frame)

    def _outside_of_process(self, entry: Entry) -> Open[_Frame] | None:
        """Return what is around all of a thread: in its process's main thread, in an ancestor, or from outside."""
        if entry.pid is None:
            return None
        main = None
        if entry.source == AUTO and entry.tid != entry.pid:
            main = self._nesting.innermost(entry.pid, entry.pid)
        process = self._table.at(entry.pid, entry.start_s or 0.0)
        ancestors = () if process is None else islice(self._table.upwards(process), 1, 201)
        pids = (*(ancestor.pid for ancestor in ancestors), None)
        return main or next(filter(None, map(self._nesting.innermost, pids)), None)

    def _finish(self, frame: _Frame) -> None:
        """End what has no end with the one around it on its thread; mark it unfinished unless it is a moment.

        What belongs to a context, such as a task, may go on after what is around it.
        """
        if frame.mark.end_s is not None or frame.entry.depth is not None:
            return
        if frame.may_have_ended or (self._is_cut and frame.entry.may_go_on):
            frame.mark.error, frame.mark.end_s = END_UNKNOWN, frame.mark.start_s
            return
        around = frame.enclosing if frame.entry.source == AUTO else frame.bound
        ends_with_it = frame.entry.event is None or frame.entry.is_of_thread
        if around is not None and around.entry.pid == frame.entry.pid and ends_with_it:
            end_s = around.mark.end_s
            frame.mark.end_s = None if end_s is None else max(end_s, frame.mark.start_s)
        if frame.entry.event is not None and (self._finished or frame.mark.end_s is not None):
            frame.mark.error = UNFINISHED


def _end(ended: Open[_Frame], by: Entry) -> None:
    """End an operation by its own end, or a moment by the line that ends it."""
    mark = ended.what.mark
    mark.end_s, mark.own_end = by.start_s, by.own
    if not ended.is_moment:
        mark.own_end = by.own_end or by.own
        mark.error = by.error
        mark.saved = by.saved or mark.saved


def _as_events(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield entries that have both ends, and may enclose others, as a begin and an end."""
    for number, entry in enumerate(entries):
        if entry.event is None and entry.end_s is not None and entry.may_go_on:
            op = -1 - number
            yield replace(entry, event=BEGIN, op=op)
            yield replace(entry, event=END, op=op, start_s=entry.end_s, end_s=None)
        else:
            yield entry


def _order(entry: Entry) -> tuple[float, bool, float]:
    """Sort by time; at equal times ends come first, then the longest."""
    assert entry.start_s is not None
    return entry.start_s, entry.event not in _ENDS, -(entry.end_s or 0.0)


def _merged_steps(frames: Sequence[_Frame]) -> Iterator[_Frame]:
    """Yield the operations; merge steps of one loop that have nothing else between them."""
    runs: dict[tuple[int | None, int | None, _Frame | None], list[_Frame]] = {}
    for frame in frames:
        key = frame.entry.pid, frame.entry.tid, frame.enclosing
        run = runs.get(key)
        if run and not (frame.entry.step and frame.mark.name == run[0].mark.name):
            yield _merged(runs.pop(key))
        if frame.entry.step:
            runs.setdefault(key, []).append(frame)
        else:
            yield frame
    for run in runs.values():
        yield _merged(run)


def _merged(steps: Sequence[_Frame]) -> _Frame:
    first = steps[0]
    if len(steps) == 1:
        return first
    mark = first.mark
    counts: dict[str | None, int] = defaultdict(int)
    lengths = []
    for step in (frame.mark for frame in steps):
        counts[step.call] += step.count
        length_s = (step.end_s or step.start_s) - step.start_s
        lengths.append((step.total_s or length_s, step.longest_s or length_s))
    mark.count = max(counts.values())
    mark.call = ", ".join(sorted(filter(None, counts))) or None
    mark.arguments = mark.saved = mark.saved_size = None
    mark.total_s = sum(total for total, _ in lengths)
    mark.longest_s = max(longest for _, longest in lengths)
    ends = [frame.mark.end_s for frame in steps]
    mark.end_s = None if None in ends else max(end for end in ends if end is not None)
    mark.error = steps[-1].mark.error
    mark.own_end = steps[-1].mark.own_end
    for frame in steps:
        frame.mark = mark  # for what is inside of it
    return first


FURTHER = "further operations"
"""The name of all operations whose names are beyond the first hundred."""
_MOST_NAMES = 100
_DEEPEST = 200
"""Levels of operations; a deeper one is part of the last one."""


_NOT_SHARED = dict.fromkeys(
    (
        *("event", "op", "arguments", "saved", "saved_size", "rt_info", "error", "own_start", "own_end", "own", "rss"),
        *("high_water_mark", "descendants", "total_ns", "longest_ns", "total_s", "longest_s"),
    )
)
"""The fields that operations of one name do not share."""


@dataclass(eq=False, slots=True)
class _Inside:
    """What is directly inside of an operation, or of a process."""

    is_listed: bool = True
    listed: int = 0
    """How many operations directly inside it are listed."""
    together: dict[str, Entry] = field(default_factory=dict)
    """By name: one line for all that are counted together."""


class LimitedMarks:
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
            if entry.event in {LOST, EXEC}:
                leave = self._nesting.lose if entry.event == LOST else self._nesting.end_process
                is_needed = False
                for operation in sorted(leave(entry.pid), key=lambda opened: -opened.number):  # inner ones first
                    is_needed |= operation.what.is_listed
                    yield from self._ended(operation, entry)
                    operation.what.is_listed = True  # it is counted; its end may still come
                if is_needed:  # a log may hold millions of lines that end nothing
                    yield entry
            elif entry.event == END:
                yield from self._end(entry)
            else:
                yield from self._begin(entry)
        still_open = list(self._nesting.every())
        for operation in still_open:
            if not operation.what.is_listed:
                self._count(self._around(operation.outer, operation.entry), operation.entry, None)
        for inside in (*(operation.what for operation in still_open), *self._processes.values(), self._elsewhere):
            yield from inside.together.values()

    def _begin(self, entry: Entry) -> Iterator[Entry]:
        opened, ended = self._nesting.begin(entry)
        if opened.entry is not entry:
            return
        if ended is not None:
            yield from self._ended(ended, entry)
        around = self._around(opened.outer, entry)
        is_listed = self._has_room(around, opened)
        if is_listed:
            around.listed += 1
            self._listed += 1
            self._of_process[entry.pid] = self._of_process.get(entry.pid, 0) + 1
            yield entry
        if not around.is_listed:  # part of an operation that is not listed
            return
        goes_on = entry.event is not None or (entry.end_s is None and entry.may_go_on)
        if goes_on and (is_listed or self._nesting.open_count < LIMITS.marks_of_recording):
            replaced = self._nesting.open(opened, _Inside(is_listed))
            if replaced is not None:
                yield from self._ended(replaced, entry)
        elif not is_listed:
            self._count(around, entry, entry.start_s if entry.end_s is None else entry.end_s)

    def _around(self, outer: Open[_Inside] | None, entry: Entry) -> _Inside:
        if outer is not None:
            return outer.what
        of_process = self._processes.get(entry.pid)
        if of_process is None:
            if len(self._processes) >= LIMITS.marks_of_recording:
                return self._elsewhere
            of_process = self._processes[entry.pid] = _Inside()
        return of_process

    def _has_room(self, around: _Inside, opened: Open[_Inside]) -> bool:
        return (
            around.is_listed
            and around.listed < LIMITS.marks_of_operation
            and self._of_process.get(opened.entry.pid, 0) < LIMITS.marks_of_process
            and self._listed < LIMITS.marks_of_recording
            and sum(1 for _ in opened.outwards) <= _DEEPEST
        )

    def _end(self, entry: Entry) -> Iterator[Entry]:
        ended = self._nesting.end(entry)
        for operation in ended:
            yield from self._ended(operation, entry)
        if any(operation.what.is_listed for operation in ended):
            yield entry

    def _ended(self, ended: Open[_Inside], by: Entry) -> Iterator[Entry]:
        if ended.what.is_listed:
            yield from ended.what.together.values()
            ended.what.together.clear()
        else:
            self._count(self._around(ended.outer, ended.entry), ended.entry, by.start_s)

    def _count(self, around: _Inside, entry: Entry, end_s: float | None) -> None:
        self.counted += entry.count
        into = around if self._listed < LIMITS.marks_of_recording else self._elsewhere
        name = entry.name if entry.name in into.together or len(into.together) < _MOST_NAMES else FURTHER
        start_s = entry.start_s or 0.0
        end_s = max(start_s, end_s or start_s)
        length_s = end_s - start_s
        before = into.together.get(name)
        if before is None:
            kind = entry.kind if name == entry.name else None
            before = into.together[name] = replace(entry, **_NOT_SHARED, name=name, kind=kind, end_s=start_s, count=0)
        before.count += entry.count
        total_s, longest_s = _seconds(entry.total_ns, entry.total_s), _seconds(entry.longest_ns, entry.longest_s)
        before.total_s = (before.total_s or 0.0) + (length_s if total_s is None else total_s)
        before.longest_s = max(before.longest_s or 0.0, length_s if longest_s is None else longest_s)
        before.end_s = max(before.end_s or 0.0, end_s)
