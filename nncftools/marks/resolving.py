"""Turns marks as they were logged into operations with a depth and an end."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from msgspec.structs import replace

from nncftools.marks.entries import AUTO, BEGIN, END, Entry
from nncftools.session.kinds import kind_of
from nncftools.session.model import UNFINISHED, Mark
from nncftools.session.operations import in_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from nncftools.session.model import Process
    from nncftools.session.session import Session

_DEEPEST_TREE = 200
"""Processes above a process that are looked at."""
_Thread = tuple[int | None, int | None]
_OUTSIDE: _Thread = (None, None)
"""The thread of marks made outside the programs: a shell script, a line of output, a sidecar."""


class _Frame:
    """An operation and its enclosing one."""

    __slots__ = ("enclosing", "entry", "is_moment", "mark", "thread")

    def __init__(self, entry: Entry, thread: _Thread, enclosing: _Frame | None, *, is_moment: bool) -> None:
        assert entry.start_s is not None
        self.entry = entry
        self.thread = thread
        self.enclosing = enclosing
        self.is_moment = is_moment
        total_s = entry.total_s if entry.total_ns is None else entry.total_ns / 1e9
        longest_s = entry.longest_s if entry.longest_ns is None else entry.longest_ns / 1e9
        self.mark: Mark = Mark(
            name=entry.name,
            start_s=entry.start_s,
            end_s=entry.end_s,
            depth=(0 if enclosing is None else enclosing.mark.depth + 1) if entry.depth is None else entry.depth,
            pid=entry.pid,
            source=entry.source or "",
            kind=entry.kind or kind_of(entry.name),
            call=entry.call,
            arguments=", ".join(entry.arguments) or None if isinstance(entry.arguments, list) else entry.arguments,
            saved=entry.saved,
            saved_size=entry.saved_size,
            error=entry.error,
            count=entry.count,
            total_s=total_s,
            longest_s=longest_s,
            own_start=entry.own_start or entry.own,
            own_end=entry.own_end,
        )


def resolve(entries: Iterable[Entry], session: Session) -> list[Mark]:
    """Return the operations sorted by start; ``entries`` have their times in seconds from the start.

    - A moment opens an operation. It ends at the next moment on its level and thread, at the next operation marked by
      hand there, or with the enclosing operation. Automatic marks are nested in the preceding moment.
    - Operations of a child process are nested in what its parent was doing; automatic marks on another thread, in what
      the main thread was doing; everything, in what was marked from outside the programs.
    - An operation that never ended is unfinished.
    """
    return _Resolver(session).marks(entries)


class _Resolver:
    def __init__(self, session: Session) -> None:
        self._finished = session.finished is not False
        self._by_id = {process.id: process for process in session.processes}
        self._by_pid: dict[int | None, list[Process]] = defaultdict(list)
        for process in session.processes:
            self._by_pid[process.pid].append(process)
        self._stacks: dict[_Thread, list[_Frame]] = defaultdict(list)
        self._threads: dict[int | None, dict[_Thread, None]] = defaultdict(dict)
        self._frames: list[_Frame] = []

    def marks(self, entries: Iterable[Entry]) -> list[Mark]:
        for entry in sorted(_as_events(entries), key=_order):
            self._add(entry)
        for frame in self._frames:
            self._finish(frame)
        marks = [frame.mark for frame in _merged_steps(self._frames)]
        return in_order(marks)

    def _add(self, entry: Entry) -> None:
        thread = _OUTSIDE if entry.pid is None else (entry.pid, entry.tid)
        stack = self._stacks[thread]
        self._threads[entry.pid][thread] = None
        if entry.event == END:
            self._end(entry, stack)
            return
        if entry.source != AUTO:
            self._end_moments(stack, entry, down_to=0)
        frame = _Frame(entry, thread, self._enclosing(entry, thread), is_moment=entry.event is None)
        self._frames.append(frame)
        if entry.count == 1 and entry.depth is None:
            stack.append(frame)

    def _end(self, entry: Entry, stack: list[_Frame]) -> None:
        places = range(len(stack) - 1, -1, -1)
        place = next((place for place in places if stack[place].entry.op == entry.op), None)
        if place is None:  # it began before the recording, or its begin was not written
            return
        self._end_moments(stack, entry, down_to=place + 1)
        frame = stack.pop(place)
        frame.mark.end_s = entry.start_s
        frame.mark.own_end = entry.own_end or entry.own
        frame.mark.error = entry.error
        frame.mark.saved = entry.saved or frame.mark.saved

    @staticmethod
    def _end_moments(stack: list[_Frame], by: Entry, down_to: int) -> None:
        while len(stack) > down_to and stack[-1].is_moment:
            mark = stack.pop().mark
            mark.end_s, mark.own_end = by.start_s, by.own

    def _enclosing(self, entry: Entry, thread: _Thread) -> _Frame | None:
        """Return the open operation around a new one: on its thread, its process's main thread, or in an ancestor."""
        if self._stacks[thread]:
            return self._stacks[thread][-1]
        if thread == _OUTSIDE:
            return None
        main = (entry.pid, entry.pid)
        if thread != main and entry.source == AUTO and self._stacks[main]:
            return self._stacks[main][-1]
        for pid in self._ancestors(entry):
            open_frames = [stack[-1] for thread in self._threads[pid] if (stack := self._stacks[thread])]
            if open_frames:
                return max(open_frames, key=lambda frame: frame.mark.start_s)
        return self._stacks[_OUTSIDE][-1] if self._stacks[_OUTSIDE] else None

    def _ancestors(self, entry: Entry) -> Iterator[int | None]:
        at_s = entry.start_s or 0.0
        candidates = [process for process in self._by_pid[entry.pid] if (process.start_s or 0.0) <= at_s]
        process = candidates[-1] if candidates else None
        for _ in range(min(len(self._by_id), _DEEPEST_TREE)):
            process = None if process is None or process.parent is None else self._by_id.get(process.parent)
            if process is None:
                return
            yield process.pid

    def _finish(self, frame: _Frame) -> None:
        """End an operation that has no end with its enclosing one; mark it unfinished unless it is a moment."""
        if frame.mark.end_s is not None or frame.entry.depth is not None:
            return
        if frame.enclosing is not None and frame.enclosing.thread[0] == frame.thread[0]:
            frame.mark.end_s = frame.enclosing.mark.end_s
        if not frame.is_moment and (self._finished or frame.mark.end_s is not None):
            frame.mark.error = UNFINISHED


def _as_events(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield entries that have both ends, and may enclose others, as a begin and an end."""
    for number, entry in enumerate(entries):
        if entry.event is None and entry.end_s is not None and entry.count == 1 and entry.depth is None:
            op = -1 - number
            yield replace(entry, event=BEGIN, op=op)
            yield replace(entry, event=END, op=op, start_s=entry.end_s, end_s=None)
        else:
            yield entry


def _order(entry: Entry) -> tuple[float, bool, float]:
    """Sort by time; at equal times ends come first, then the longest."""
    assert entry.start_s is not None
    return entry.start_s, entry.event != END, -(entry.end_s or 0.0)


def _merged_steps(frames: Sequence[_Frame]) -> Iterator[_Frame]:
    """Yield the operations; merge steps of one loop that have nothing else between them."""
    runs: dict[tuple[_Thread, _Frame | None], list[_Frame]] = {}
    for frame in frames:
        key = frame.thread, frame.enclosing
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
    return first
