"""Turns the lines of a marks log or sidecar into operations with a depth and an end.

The lines are nested once. Where a log holds more operations than a report can list, the others are counted together
with those of their name.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count, islice
from math import inf

from msgspec.structs import replace

from nncftools.analysis.session import Session
from nncftools.intake import LIMITS
from nncftools.reading_marks.entries import AUTO, BEGIN, END, EXEC, LOST, Entry, Nesting, Open
from nncftools.reading_marks.readings import TreeReader
from nncftools.session.model import END_UNKNOWN, UNFINISHED, Mark, OwnMemory, ProcessTable
from nncftools.session.nesting import kind_of, latest_end_s, parents, with_ends

FURTHER = "further operations"
"""The name of all operations whose names are beyond the first hundred."""
_MOST_NAMES = 100
_DEEPEST = 200
"""Levels of operations; a deeper one is part of the last one."""
_WAITING = 500
"""Lines that wait until earlier ones can no longer follow: several processes write to one log."""
_OF_ONE_CALL = dict.fromkeys(("op", "arguments", "saved", "saved_size", "error", "own_start", "own_end"))
"""The fields of a mark that operations of one name do not share."""


@dataclass(eq=False, slots=True)
class _Scope:
    """A process or an operation, by what is directly inside it."""

    listed: int = 0
    """How many operations are listed."""
    together: dict[str, Mark] = field(default_factory=dict)
    """By name: a mark for all operations that are counted together."""


@dataclass(eq=False, slots=True)
class _Frame:
    """An operation and its enclosing one, in any process."""

    opened: Open[_Frame]
    enclosing: _Frame | None
    scope: _Scope
    """What it is directly inside of."""
    is_listed: bool
    """Whether it has a mark of its own."""
    mark: Mark = field(init=False)
    inside: _Scope = field(init=False)
    is_counted: bool = False
    may_have_ended: bool = False
    """Whether its end may be among lines that are missing."""

    @property
    def entry(self) -> Entry:
        return self.opened.entry

    @property
    def bound(self) -> _Frame | None:
        """The operation of its profiler, or the call, that it is inside of."""
        return None if self.opened.bound is None else self.opened.bound.what

    @property
    def depth(self) -> int:
        return 0 if self.enclosing is None else self.enclosing.mark.depth + 1


def _mark_of(entry: Entry, depth: int) -> Mark:
    changed = {
        "depth": depth if entry.depth is None else entry.depth,
        "op": None if entry.depth is None else entry.op,
        "source": entry.source or "",
        "kind": entry.kind or kind_of(entry.name),
        "arguments": ", ".join(entry.arguments) or None if isinstance(entry.arguments, list) else entry.arguments,
        "own_start": entry.own_start or entry.own,
    }
    return Mark(**{name: getattr(entry, name) for name in Mark.__struct_fields__} | changed)


def resolve(
    entries: Iterable[Entry],
    session: Session,
    begun_s: Mapping[int | None, Sequence[float]] | None = None,
    *,
    is_cut: bool = False,
) -> list[Mark]:
    """Return the operations sorted by start; ``entries`` have their times in seconds from the start.

    - Which operation is around another one of its process, and which moments end, is the rule of ``Nesting``.
    - Operations of a child process are nested in what its parent was doing; automatic marks on another thread, in what
      the main thread was doing; everything, in what was marked from outside the programs.
    - An operation that never ended is unfinished. If its end may be missing, because lines of its process are or the
      log ``is_cut``, its end is unknown, and nothing that begins after the missing lines is inside of it.
    - Operations beyond the limits are counted together with others of their name, and a warning says so.

    ``begun_s`` has by process when programs in it wrote their first lines, up to the line that was read last; None for
    a sidecar.
    """
    nested = _NestedMarks(session, begun_s, is_cut=is_cut)
    marks = nested.marks(entries)
    if nested.counted:
        session.warnings.append(
            f"{nested.counted:,} operations are counted together with others of their name: at most "
            f"{LIMITS.marks_of_operation:,} are listed of one process inside one operation, and "
            f"{LIMITS.marks_of_process:,} of one process"
        )
    return marks


class _NestedMarks:
    def __init__(
        self, session: Session, begun_s: Mapping[int | None, Sequence[float]] | None = None, *, is_cut: bool = False
    ) -> None:
        self._session = session
        self._begun_s = {} if begun_s is None else begun_s
        self._reader = None if begun_s is None else TreeReader(session)
        self._execs = deque(() if self._reader is None else self._reader.execs())
        self._is_cut = is_cut
        self._finished = session.finished is not False
        self._table = ProcessTable(session.processes)
        self._nesting: Nesting[_Frame] = Nesting()
        self._frames: list[_Frame] = []
        self.counted = 0
        """How many operations are not listed."""
        self._listed = 0
        self._of_process: dict[int | None, int] = {}
        """How many operations of each process are listed."""
        self._processes: dict[int | None, _Scope] = {}
        self._elsewhere = _Scope()
        """Holds what is counted together when the whole log is too long."""

    def marks(self, entries: Iterable[Entry]) -> list[Mark]:
        for entry in _in_order(entries):
            self._end_programs(entry.start_s or 0.0)
            self._add(entry)
        self._end_programs(inf)
        for operation in self._nesting.every():
            self._count(operation.what, None)
        self._frames.sort(key=lambda frame: frame.mark.start_s)
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

    def _end_programs(self, until_s: float) -> None:
        """End what programs left open whose processes ran other programs by then, by what the sampler saw.

        The first line of a program ends it, too.
        """
        while self._execs and self._execs[0][2] <= until_s:
            pid, from_s, to_s = self._execs.popleft()
            begun_s = self._begun_s.get(pid, ())
            if bisect_right(begun_s, from_s) == bisect_right(begun_s, to_s):
                self._add(Entry(event=EXEC, pid=pid, start_s=to_s, error=UNFINISHED))

    def _add(self, entry: Entry) -> None:
        if entry.event == LOST:
            for operation in self._nesting.lose(entry.pid):
                operation.what.may_have_ended = True
                self._count(operation.what, entry.start_s)
        elif entry.event == EXEC:
            for operation in self._nesting.end_process(entry.pid):
                frame = operation.what
                if not frame.is_listed or (entry.start_s or 0.0) <= latest_end_s(frame.mark, self._table, inf):
                    self._end(operation, entry)
        elif entry.event == END:
            for operation in self._nesting.end(entry):
                self._end(operation, entry)
        else:
            opened, ended = self._nesting.begin(entry)
            if ended is not None:
                self._end(ended, entry)
            if opened.entry is entry:
                self._begin(opened)

    def _begin(self, opened: Open[_Frame]) -> None:
        entry = opened.entry
        if opened.outer is not None and not opened.outer.what.is_listed:  # part of an operation that is only counted
            return
        scope = self._scope(opened)
        is_listed = self._has_room(scope, opened)
        has_mark = is_listed or entry.name not in scope.together
        frame = _Frame(opened, self._enclosing(opened) if has_mark else None, scope, is_listed)
        if is_listed:
            scope.listed += 1
            self._listed += 1
            self._of_process[entry.pid] = self._of_process.get(entry.pid, 0) + 1
            frame.inside = _Scope()
            frame.mark = _mark_of(entry, frame.depth)
            frame.mark.own_start = frame.mark.own_start or self._own(entry)
            self._frames.append(frame)
        if entry.may_go_on and (is_listed or self._nesting.open_count < LIMITS.marks_of_recording):
            replaced = self._nesting.open(opened, frame)
            if replaced is not None:
                self._count(replaced.what, entry.start_s)
        else:
            self._count(frame, entry.end_s)

    def _scope(self, opened: Open[_Frame]) -> _Scope:
        """Return what an operation is directly inside of: another one, or its process."""
        if opened.outer is not None:
            return opened.outer.what.inside
        pid = opened.entry.pid
        if pid not in self._processes and len(self._processes) >= LIMITS.marks_of_recording:
            return self._elsewhere
        return self._processes.setdefault(pid, _Scope())

    def _has_room(self, scope: _Scope, opened: Open[_Frame]) -> bool:
        return (
            scope.listed < LIMITS.marks_of_operation
            and self._of_process.get(opened.entry.pid, 0) < LIMITS.marks_of_process
            and self._listed < LIMITS.marks_of_recording
            and sum(1 for _ in opened.outwards) <= _DEEPEST
        )

    def _enclosing(self, opened: Open[_Frame]) -> _Frame | None:
        """Return what is around: in its thread, its process's main thread or an ancestor, or marked from outside."""
        entry = opened.entry
        if opened.outer is not None or entry.pid is None:
            return None if opened.outer is None else opened.outer.what
        is_beside = entry.source == AUTO and entry.tid != entry.pid
        main = self._nesting.innermost(entry.pid, entry.pid) if is_beside else None
        process = self._table.at(entry.pid, entry.start_s or 0.0)
        ancestors = () if process is None else islice(self._table.upwards(process), 1, 201)
        pids = (*(ancestor.pid for ancestor in ancestors), None)
        for innermost in chain([main], map(self._nesting.innermost, pids)):
            for operation in () if innermost is None else innermost.outwards:
                if operation.what.is_listed:
                    return operation.what
        return None

    def _own(self, entry: Entry) -> OwnMemory | None:
        """Return what was read at a line of the log, and what the tree held then."""
        if entry.own is None and self._reader is not None and entry.end_s is None and entry.event != EXEC:
            entry.own = self._reader.at(entry.start_s or 0.0, entry.pid, entry)
        return entry.own

    def _end(self, ended: Open[_Frame], by: Entry) -> None:
        """End an operation by its own end, or a moment by the line that ends it."""
        if not ended.what.is_listed:
            self._count(ended.what, by.start_s)
            return
        mark = ended.what.mark
        mark.end_s = by.start_s
        mark.own_end = self._own(by)
        if not ended.is_moment:
            mark.own_end = by.own_end or mark.own_end
            mark.error = by.error
            mark.saved = by.saved or mark.saved

    def _count(self, frame: _Frame, end_s: float | None) -> None:
        """Count an operation that is not listed together with others of its name."""
        if frame.is_listed or frame.is_counted:
            return
        frame.is_counted = True
        entry = frame.entry
        self.counted += entry.count
        scope = frame.scope if self._listed < LIMITS.marks_of_recording else self._elsewhere
        is_known = entry.name in scope.together or len(scope.together) < _MOST_NAMES
        name = entry.name if is_known else FURTHER
        start_s = entry.start_s or 0.0
        end_s = max(start_s, end_s or start_s)
        mark = scope.together.get(name)
        if mark is None:
            mark = replace(_mark_of(entry, frame.depth), **_OF_ONE_CALL, name=name, end_s=start_s, count=0)
            mark.kind = mark.kind if is_known else None
            mark.total_s = mark.longest_s = 0.0
            frame.mark = scope.together[name] = mark
            self._frames.append(frame)
        length_s = end_s - start_s
        mark.count += entry.count
        mark.total_s = (mark.total_s or 0.0) + (length_s if entry.total_s is None else entry.total_s)
        mark.longest_s = max(mark.longest_s or 0.0, length_s if entry.longest_s is None else entry.longest_s)
        mark.end_s = max(mark.end_s or 0.0, end_s)

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


def _in_order(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield entries by time; lines of several processes are nearly in this order.

    An entry that has both ends, and may enclose others, becomes a begin and an end.
    """
    waiting: list[Entry] = []
    for number, entry in enumerate(entries):
        if entry.event is None and entry.end_s is not None and entry.may_go_on:
            begin = replace(entry, event=BEGIN, op=-1 - number)
            waiting += [begin, replace(begin, event=END, start_s=entry.end_s)]
        else:
            waiting.append(entry)
        if len(waiting) >= 2 * _WAITING:
            waiting.sort(key=_order)
            yield from waiting[:_WAITING]
            del waiting[:_WAITING]
    yield from sorted(waiting, key=_order)


def _order(entry: Entry) -> tuple[float, bool, float]:
    """Sort by time; at equal times what ends comes first, then the longest. A line stays after the one that it ends."""
    assert entry.start_s is not None
    is_end = entry.event == EXEC or (entry.event == END and entry.end_s is not None)
    return entry.start_s, not is_end, -(entry.end_s or 0.0)


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
    last = steps[-1].mark
    counts: dict[str | None, int] = defaultdict(int)
    ends = [frame.mark.end_s for frame in steps]
    total_s = longest_s = 0.0
    for step in (frame.mark for frame in steps):
        counts[step.call] += step.count
        length_s = (step.end_s or step.start_s) - step.start_s
        total_s += step.total_s or length_s
        longest_s = max(longest_s, step.longest_s or length_s)
    mark.count = max(counts.values())
    mark.call = ", ".join(sorted(filter(None, counts))) or None
    mark.arguments = mark.saved = mark.saved_size = None
    mark.total_s = total_s
    mark.longest_s = longest_s
    mark.end_s = None if None in ends else max(end for end in ends if end is not None)
    mark.error = last.error
    mark.own_end = last.own_end
    for frame in steps:
        frame.mark = mark  # for what is inside of it
    return first
