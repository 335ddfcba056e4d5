"""Turns the rows of a marks log or sidecar (a file of marks from the user) into operations with a depth and an end.

If there are too many operations for a report, only some operations get a mark of their own (``is_listed``). The other
operations with the same name share one mark, which has their count.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from math import inf

from msgspec.structs import replace

from nncftools.analysis.session import Session
from nncftools.intake import LIMITS
from nncftools.reading_marks.entries import AUTO, BEGIN, END, EXEC, LOST, Entry, Nesting, Number, Open
from nncftools.session.model import END_UNKNOWN, UNFINISHED, Mark, OwnMemory, ProcessTable
from nncftools.session.nesting import add_ends, find_parents, kind_of, latest_end_s

FURTHER = "further operations"
"""If there are too many operations, the operations beyond the limit share a mark with all others of the same name.
After a hundred names, all further operations share a mark with this name."""
_MOST_NAMES = 100
_DEEPEST = 200
"""An operation at a deeper nesting level than this has no mark of its own."""
_WAITING = 500
"""The rows of a log are not quite sorted by time, because several processes write to the log. A row may come up to this
many rows too late.
"""
_SINGLE_CALL = dict.fromkeys(("op", "arguments", "saved", "saved_size", "error", "own_start", "own_end"))
"""The fields that are None in a mark for several operations."""


@dataclass(eq=False, slots=True)
class _Scope:
    """Counts of the operations directly inside a process, or directly inside an operation."""

    listed: int = 0
    """Number of operations with a mark of their own."""
    together: dict[str, Mark] = field(default_factory=dict)
    """Marks that several operations with the same name share: ``{name: mark}``. None of these operations has its own
    mark."""


@dataclass(eq=False, slots=True)
class _Frame:
    """An operation with its enclosing operation, which may belong to another process."""

    opened: Open
    enclosing: _Frame | None
    scope: _Scope
    is_listed: bool
    """Whether the operation has a mark of its own. If not, operations with the same name share a mark."""
    mark: Mark = field(init=False)
    inside: _Scope = field(init=False)
    is_counted: bool = False
    may_have_ended: bool = False
    """Whether rows of the process are missing, and the end row of the operation may be among them."""

    @property
    def entry(self) -> Entry:
        return self.opened.entry

    @property
    def bound(self) -> _Frame | None:
        """The operation that limits a moment (an operation without an end row).

        The moment ends at the next mark, or earlier: when this outer operation ends. If None, only the next mark or the
        end of the process ends the moment.
        """
        return None if self.opened.bound is None else self.opened.bound.payload

    @property
    def depth(self) -> int:
        return 0 if self.enclosing is None else self.enclosing.mark.depth + 1


def _mark_of(entry: Entry, depth: int) -> Mark:
    arguments = entry.arguments
    if isinstance(arguments, list):
        arguments = ", ".join(arguments) or None
    has_depth = entry.depth is not None
    changed = {
        "depth": entry.depth if has_depth else depth,
        "op": entry.op if has_depth else None,
        "source": entry.source or "",
        "kind": entry.kind or kind_of(entry.name),
        "arguments": arguments,
        "own_start": entry.own_start or entry.own,
    }
    return Mark(**{name: getattr(entry, name) for name in Mark.__struct_fields__} | changed)


@dataclass
class Log:
    """Facts about a marks log, and about the recording.

    A marks log is the file to which the recorded processes write their operations. The defaults of the fields are for a
    sidecar (a file of marks from the user).
    """

    begun_s: Mapping[Number, Sequence[float]] = field(default_factory=dict)
    """Times in seconds when each program wrote the first row: ``{pid: [times]}``. The dictionary grows while the rows
    are read.
    """
    read: Callable[[float, Number, Entry], OwnMemory | None] | None = None
    """A function that returns the memory at the time of a row. The arguments are the time in seconds, the PID of the
    process that wrote the row, and the row. Both the function and its result are None if the memory is unknown."""
    execs: Iterable[tuple[int, float, float]] = ()
    """Each process that began another program (exec): PID, last time before exec, first time after exec."""
    is_cut: bool = False
    """Whether the last rows may be missing."""


def resolve(entries: Iterable[Entry], session: Session, log: Log | None = None) -> list[Mark]:
    """Return the operations sorted by start; the times of ``entries`` are seconds from the session's start.

    - ``Nesting`` finds the outer operation in the same process, and the operations that a row ends.
    - Otherwise, the outer operation is the innermost operation of the parent process. For an operation that the hook
      marks on another thread, the outer operation is the innermost operation of the main thread.
    - An operation that was marked from outside the recorded command, such as from a shell, is around all operations of
      the command.
    - An operation that never ended is unfinished. If rows are missing, and the end row may be among them, the end is
      unknown. Operations that begin after the missing rows are not nested in this operation.
    - If there are too many operations, further operations with the same name share a mark, and a warning says so.
    """
    nested = _NestedMarks(session, log or Log())
    marks = nested.marks(entries)
    if nested.counted:
        session.warnings.append(
            f"{nested.counted:,} operations are counted together by name, instead of listed. The list has at most "
            f"{LIMITS.marks_of_process:,} operations of each process, and at most {LIMITS.marks_of_operation:,} "
            "directly inside the same operation"
        )
    return marks


class _NestedMarks:
    def __init__(self, session: Session, log: Log) -> None:
        self._session = session
        self._log = log
        self._execs = deque(log.execs)
        self._finished = session.finished is not False
        self._table = ProcessTable(session.processes)
        self._nesting = Nesting()
        self._frames: list[_Frame] = []
        self.counted = 0
        """The number of operations that have no mark of their own."""
        self._listed = 0
        self._listed_by_process: dict[Number, int] = defaultdict(int)
        self._processes: dict[Number, _Scope] = {}
        self._elsewhere = _Scope()
        """If the log has too many operations or processes, operations beyond the limit have no marks of their own.
        Operations of the same name then share a mark in this scope."""

    def marks(self, entries: Iterable[Entry]) -> list[Mark]:
        for entry in _in_order(entries):
            self._end_programs(entry.start_s or 0.0)
            self._add(entry)
        self._end_programs(inf)
        for operation in self._nesting.every():
            self._count(operation.payload, None)
        self._frames.sort(key=lambda frame: frame.mark.start_s)
        for frame in self._frames:
            self._finish(frame)
        for frame in reversed(self._frames):  # inner operations before outer operations
            if frame.enclosing is not None and frame.enclosing.mark.error == END_UNKNOWN:
                outer = frame.enclosing.mark
                end_s = frame.mark.end_s or frame.mark.start_s
                outer.end_s = max(outer.end_s or 0.0, end_s)
        frames = list(_merge_steps(self._frames))
        frames.sort(key=lambda frame: (frame.mark.start_s, frame.mark.depth))
        marks = [frame.mark for frame in frames]
        until_s = dict(self._until_s())
        ended = add_ends(marks, self._session)
        for frame, (mark, end_s) in zip(frames, ended, strict=True):
            latest_s = latest_end_s(mark, self._table, self._session.duration_s)
            last_s = min(until_s.get(frame, end_s), latest_s)
            if mark.end_s is None and end_s < last_s:
                mark.end_s = last_s
        self._name_outer(frames, find_parents(add_ends(marks, self._session)))
        return marks

    def _name_outer(self, frames: Sequence[_Frame], by_depth: Sequence[int | None]) -> None:
        """Set ``Mark.inside`` (the ``op`` number of the enclosing operation) where depths suggest another operation.

        For each operation, ``by_depth`` has the enclosing operation that the depths suggest: an index in ``frames``, or
        None for no enclosing operation.
        """
        highest = max((frame.mark.op or 0 for frame in frames), default=0)
        for frame, place in zip(frames, by_depth, strict=True):
            if frame.enclosing is None or frame.entry.depth is not None:
                continue
            outer = frame.enclosing.mark
            if place is None or frames[place].mark is not outer:
                if not outer.op:
                    highest += 1
                    outer.op = highest
                frame.mark.inside = outer.op

    def _until_s(self) -> Iterator[tuple[_Frame, float]]:
        """Yield (operation without an end, latest possible end in seconds).

        A moment (an operation that has no end row in the log) ends at the latest when the same profiler begins the next
        operation, also on another thread. If nothing limits the end, the latest end is infinity.
        """
        following: dict[tuple[Number, Number, _Frame | None], float] = {}
        for frame in reversed(self._frames):
            entry = frame.entry
            key = entry.pid, entry.profiler, frame.bound
            if entry.may_go_on and frame.mark.end_s is None:
                yield frame, inf if entry.event is not None else following.get(key, inf)
            if entry.source != AUTO:
                following[key] = frame.mark.start_s

    def _end_programs(self, until_s: float) -> None:
        """End the operations of processes that, according to the sampler, began another program before ``until_s``.

        Processes whose new program has written to the log are left out: the first row of the new program ends the
        operations.
        """
        while self._execs and self._execs[0][2] <= until_s:
            pid, from_s, to_s = self._execs.popleft()
            begun_s = self._log.begun_s.get(pid, ())
            if bisect_right(begun_s, from_s) == bisect_right(begun_s, to_s):
                self._add(Entry(event=EXEC, pid=pid, start_s=to_s, error=UNFINISHED))

    def _add(self, entry: Entry) -> None:
        if entry.event == LOST:
            for operation in self._nesting.lose(entry.pid):
                operation.payload.may_have_ended = True
                self._count(operation.payload, entry.start_s)
        elif entry.event == EXEC:
            for operation in self._nesting.end_process(entry.pid):
                frame: _Frame = operation.payload
                at_s = entry.start_s or 0.0
                if not frame.is_listed or at_s <= latest_end_s(frame.mark, self._table, inf):
                    self._end(frame, entry)
        elif entry.event == END:
            for operation in self._nesting.end(entry):
                self._end(operation.payload, entry)
        else:
            opened, ended = self._nesting.begin(entry)
            if ended is not None:
                self._end(ended.payload, entry)
            if opened.entry is entry:
                self._begin(opened)

    def _begin(self, opened: Open) -> None:
        entry = opened.entry
        if opened.outer is not None and not opened.outer.payload.is_listed:  # the outer operation shares a mark
            return
        scope = self._scope_of(opened)
        is_listed = self._has_room(scope, opened)
        has_mark = is_listed or entry.name not in scope.together
        frame = _Frame(opened, self._enclosing(opened) if has_mark else None, scope, is_listed)
        if is_listed:
            scope.listed += 1
            self._listed += 1
            self._listed_by_process[entry.pid] += 1
            frame.inside = _Scope()
            frame.mark = _mark_of(entry, frame.depth)
            frame.mark.own_start = frame.mark.own_start or self._own(entry)
            self._frames.append(frame)
        if entry.may_go_on and (is_listed or self._nesting.open_count < LIMITS.marks_of_recording):
            replaced = self._nesting.open(opened, frame)
            if replaced is not None:
                self._count(replaced.payload, entry.start_s)
        else:
            self._count(frame, entry.end_s)

    def _scope_of(self, opened: Open) -> _Scope:
        """Return the ``_Scope`` of the enclosing operation or process."""
        if opened.outer is not None:
            scope: _Scope = opened.outer.payload.inside
            return scope
        pid = opened.entry.pid
        if pid not in self._processes and len(self._processes) >= LIMITS.marks_of_recording:
            return self._elsewhere
        return self._processes.setdefault(pid, _Scope())

    def _has_room(self, scope: _Scope, opened: Open) -> bool:
        return (
            scope.listed < LIMITS.marks_of_operation
            and self._listed_by_process[opened.entry.pid] < LIMITS.marks_of_process
            and self._listed < LIMITS.marks_of_recording
            and sum(1 for _ in opened.outwards) <= _DEEPEST
        )

    def _enclosing(self, opened: Open) -> _Frame | None:
        """Return the innermost operation around a new operation; None if there is none.

        The result has a mark of its own. It belongs to the same process or to an ancestor, or was marked from outside
        the recorded command, such as from a shell.
        """
        entry = opened.entry
        if opened.outer is not None or entry.pid is None:
            return None if opened.outer is None else opened.outer.payload
        is_beside = entry.source == AUTO and entry.tid != entry.pid
        main = self._nesting.innermost(entry.pid, entry.pid) if is_beside else None
        process = self._table.at(entry.pid, entry.start_s or 0.0)
        ancestors = () if process is None else islice(self._table.upwards(process), 1, 201)
        pids = (*(ancestor.pid for ancestor in ancestors), None)
        for innermost in chain([main], map(self._nesting.innermost, pids)):
            for operation in () if innermost is None else innermost.outwards:
                frame: _Frame = operation.payload
                if frame.is_listed:
                    return frame
        return None

    def _own(self, entry: Entry) -> OwnMemory | None:
        """Return the memory of the process and of the tree at a row of the log."""
        read = self._log.read
        if read is not None and entry.own is None and entry.end_s is None and entry.event != EXEC:
            entry.own = read(entry.start_s or 0.0, entry.pid, entry)
        return entry.own

    def _end(self, frame: _Frame, row: Entry) -> None:
        """End an operation by a row of the log."""
        if not frame.is_listed:
            self._count(frame, row.start_s)
            return
        mark = frame.mark
        mark.end_s = row.start_s
        mark.own_end = self._own(row)
        if not frame.opened.is_moment:
            mark.own_end = row.own_end or mark.own_end
            mark.error = row.error
            mark.saved = row.saved or mark.saved

    def _count(self, frame: _Frame, end_s: float | None) -> None:
        """Add an operation to the mark that all operations with the same name share.

        Skip an operation that has its own mark or was added before.
        """
        if frame.is_listed or frame.is_counted:
            return
        frame.is_counted = True
        entry = frame.entry
        self.counted += entry.count
        scope = frame.scope if self._listed < LIMITS.marks_of_recording else self._elsewhere
        has_name = entry.name in scope.together or len(scope.together) < _MOST_NAMES
        name = entry.name if has_name else FURTHER
        start_s = entry.start_s or 0.0
        end_s = max(start_s, end_s or start_s)
        mark = scope.together.get(name)
        if mark is None:
            mark = replace(_mark_of(entry, frame.depth), **_SINGLE_CALL, name=name, end_s=start_s)
            mark.count = 0
            mark.kind = mark.kind if has_name else None
            mark.total_s = mark.longest_s = 0.0
            frame.mark = mark
            scope.together[name] = mark
            self._frames.append(frame)
        length_s = end_s - start_s
        mark.count += entry.count
        mark.total_s = (mark.total_s or 0.0) + (length_s if entry.total_s is None else entry.total_s)
        mark.longest_s = max(mark.longest_s or 0.0, length_s if entry.longest_s is None else entry.longest_s)
        mark.end_s = max(mark.end_s or 0.0, end_s)

    def _finish(self, frame: _Frame) -> None:
        """Set the end and the ``error`` of an operation that no row of the log ended.

        The operation ends together with the outer operation. If only the end row is missing, ``error`` becomes
        "unfinished". If the log may have lost the end row, ``error`` becomes "end unknown". An operation in an asyncio
        task gets no end, because the task may continue after the outer operation.
        """
        mark = frame.mark
        entry = frame.entry
        if mark.end_s is not None or entry.depth is not None:
            return
        if frame.may_have_ended or (self._log.is_cut and entry.may_go_on):
            mark.error = END_UNKNOWN
            mark.end_s = mark.start_s
            return
        outer = frame.enclosing if entry.source == AUTO else frame.bound
        ends_with_outer = entry.event is None or entry.is_of_thread
        if outer is not None and outer.entry.pid == entry.pid and ends_with_outer:
            end_s = outer.mark.end_s
            mark.end_s = None if end_s is None else max(end_s, mark.start_s)
        if entry.event is not None and (self._finished or mark.end_s is not None):
            mark.error = UNFINISHED


def _in_order(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield entries sorted by time. The rows of several processes must be nearly sorted.

    If an entry has start and end, and may enclose other entries, yield a begin and an end instead.
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
    """Return the sort key of an entry. At equal times, ends come first, then the longest operations.

    Only ends with an ``end_s`` come first: ``_in_order`` makes such ends. An end that was read from a marks log has no
    ``end_s``, and is sorted like a begin: rows with equal times stay in the order of the log.
    """
    assert entry.start_s is not None
    is_end = entry.event == EXEC or (entry.event == END and entry.end_s is not None)
    return entry.start_s, not is_end, -(entry.end_s or 0.0)


def _merge_steps(frames: Sequence[_Frame]) -> Iterator[_Frame]:
    """Yield the operations. Merge consecutive steps of a loop if no other operation is between them."""
    runs: dict[tuple[Number, Number, _Frame | None], list[_Frame]] = {}
    for frame in frames:
        key = frame.entry.pid, frame.entry.tid, frame.enclosing
        steps = runs.get(key)
        is_next = frame.entry.step and steps and frame.mark.name == steps[0].mark.name
        if steps and not is_next:
            yield _merge(runs.pop(key))
        if frame.entry.step:
            runs.setdefault(key, []).append(frame)
        else:
            yield frame
    yield from map(_merge, runs.values())


def _merge(steps: Sequence[_Frame]) -> _Frame:
    first = steps[0]
    if len(steps) == 1:
        return first
    mark = first.mark
    last = steps[-1].mark
    counts: dict[str | None, int] = defaultdict(int)
    ends: list[float] = []
    total_s = longest_s = 0.0
    for frame in steps:
        step = frame.mark
        counts[step.call] += step.count
        length_s = (step.end_s or step.start_s) - step.start_s
        total_s += step.total_s or length_s
        longest_s = max(longest_s, step.longest_s or length_s)
        if step.end_s is not None:
            ends.append(step.end_s)
        frame.mark = mark  # inner operations now refer to the merged mark
    mark.count = max(counts.values())
    mark.call = ", ".join(sorted(filter(None, counts))) or None
    mark.arguments = mark.saved = mark.saved_size = None
    mark.total_s = total_s
    mark.longest_s = longest_s
    mark.end_s = max(ends) if len(ends) == len(steps) else None
    mark.error = last.error
    mark.own_end = last.own_end
    return first
