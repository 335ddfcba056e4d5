"""Writes calls to the marks log: one line each, or aggregated when there are thousands.

Runs in the marked program: Python 3.8 and later, the standard library only.
"""

from __future__ import annotations

import atexit
import os
from _thread import _local
from time import monotonic_ns

from . import causes, context, line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from .arguments import Parameters

MAX_LOGGED = 1000
"""Calls of one function directly inside one operation that get lines of their own; further calls are aggregated."""
DEEPEST = 100
"""Open calls of one thread that are logged; calls further inside, of a recursive function, are part of the last one."""
FLUSH_NS = 10 * 10**9
"""Aggregated calls are flushed this often; a kill loses at most this much."""


class Call:
    """A function to mark."""

    __slots__ = ("is_leaf", "members", "most_logged", "parameters")

    def __init__(self, members: str, facts: Mapping[str, Any]) -> None:
        """``facts`` are those of the catalogue."""
        self.members = members
        """The JSON members that all its lines share."""
        self.most_logged: int = facts.get("logged", MAX_LOGGED)
        """How many of its calls inside one operation get lines of their own."""
        self.is_leaf: bool = facts.get("leaf", False)
        """Whether calls inside it are not marked."""
        self.parameters: Parameters | None = None
        """What to show of its arguments, if anything."""


class Aggregate:
    """Aggregated calls of one function; times in nanoseconds."""

    __slots__ = ("count", "end", "error", "longest", "start", "total")

    def __init__(self, start: int) -> None:
        self.start = self.end = start
        self.count = self.total = self.longest = 0
        self.error: str | None = None

    def add(self, start: int, end: int, error: str | None) -> None:
        """Add a call."""
        self.count += 1
        self.total += end - start
        self.longest = max(self.longest, end - start)
        self.end = end
        self.error = error

    def line(self, members: str, where: str) -> str:
        """Return its line; ``error`` is that of the last call."""
        error = "" if self.error is None else f',"error":{line.quoted(self.error)}'
        return (
            f'{{{members},"t_ns":{self.start},"end_ns":{self.end},{where},'
            f'"count":{self.count},"total_ns":{self.total},"longest_ns":{self.longest}{error}}}\n'
        )


class Frame:
    """An open call, or the bottom of a thread's stack; counts the calls directly inside it."""

    __slots__ = ("aggregates", "is_logged", "level", "op", "outer", "start", "thread", "written")

    def __init__(self) -> None:
        self.thread: Thread | None = None
        self.outer: Frame | None = None
        self.level = 0
        """How many open calls are around it."""
        self.op = 0
        self.start = 0
        self.is_logged = False
        """Whether it is in the log; calls inside it are logged only then."""
        self.written: dict[Call, int] | None = None
        self.aggregates: dict[Call, Aggregate] | None = None


class Later:
    """A coroutine or generator that goes on, in its context and not on the stack of a thread."""

    def __init__(self, recorder: Recorder, frame: Frame, call: Call) -> None:
        self._recorder = recorder
        self._frame = frame
        self._call = call
        self._opened = context.Open(frame.op) if frame.op else None

    def end(self, error: BaseException | None) -> None:
        """Record its end; ``error`` ended it, if anything did."""
        if self._opened is not None:
            self._opened.close()
        self._recorder.end(self._frame, self._call, error)


class Thread(_local):
    """A thread and its innermost open call."""

    def __init__(self) -> None:
        self.where = line.here()
        self.frame = Frame()
        self.frame.is_logged = True


class Recorder:
    """Records the calls of all threads of this process."""

    def __init__(self, path: bytes) -> None:
        self._path = path
        self._reset()
        atexit.register(self._flush_all)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        """Start empty, also after a fork: the open calls belong to the parent process."""
        self._thread = Thread()
        self._pending: dict[Frame, str] = {}

    def enter(self, frame: Frame, call: Call, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Record the start of a call with its arguments."""
        thread = self._thread
        outer = thread.frame
        frame.outer = outer
        frame.thread = thread
        frame.level = outer.level + 1
        thread.frame = frame
        if not outer.is_logged:
            return
        written = outer.written
        if written is None:
            written = outer.written = {}
        count = written.get(call, 0)
        if count >= call.most_logged:
            frame.start = monotonic_ns()
            return
        if outer.aggregates:
            self._flush(outer, thread.where)
        written[call] = count + 1
        frame.op = next(line.operations)
        frame.is_logged = not call.is_leaf and frame.level < DEEPEST
        members = call.members
        if call.parameters is not None:
            members += call.parameters.members(args, kwargs)
        members += context.around()
        line.append(self._path, line.begin(frame.op, members, monotonic_ns(), thread.where))

    def leave(
        self, frame: Frame, call: Call, raised: BaseException | None = None, facts: Callable[[], str] | None = None
    ) -> None:
        """Record the end of a call; ``raised`` ended it, ``facts`` returns further members for its line."""
        end = monotonic_ns()
        error = None if raised is None else type(raised).__name__
        thread, outer = frame.thread, frame.outer
        if outer is None or thread is not self._thread:  # its start was not recorded, or in another process
            return
        thread.frame = outer
        if frame.op:
            if frame.aggregates:
                self._flush(frame, thread.where)
            line.append(self._path, line.end(frame.op, end, error, facts() if facts else "", thread.where))
            if raised is not None:
                causes.report(self._path, raised)
        elif frame.start:
            self._add(outer, call, (frame.start, end, error), thread.where)

    def begin(self, call: Call, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Later | None:
        """Record the first step of a coroutine or generator; None inside of a call whose inner calls are not marked."""
        frame = Frame()
        around = self._thread.frame
        self.enter(frame, call, args, kwargs)
        self._thread.frame = around  # the thread goes on with other things
        return Later(self, frame, call) if frame.op or frame.start else None

    def end(self, frame: Frame, call: Call, raised: BaseException | None) -> None:
        """Record the end of a coroutine or generator; ``raised`` ended it."""
        around = self._thread.frame
        self.leave(frame, call, raised)
        self._thread.frame = around

    def _add(self, outer: Frame, call: Call, span: tuple[int, int, str | None], where: str) -> None:
        if outer.aggregates is None:
            outer.aggregates = {}
        aggregate = outer.aggregates.get(call)
        if aggregate is None:
            aggregate = outer.aggregates[call] = Aggregate(span[0])
            self._pending[outer] = where
        aggregate.add(*span)
        if aggregate.end - aggregate.start > FLUSH_NS:
            self._flush(outer, where)

    def _flush(self, frame: Frame, where: str) -> None:
        aggregates, frame.aggregates = frame.aggregates, None
        self._pending.pop(frame, None)
        for call, aggregate in (aggregates or {}).items():
            line.append(self._path, aggregate.line(call.members, where))

    def _flush_all(self) -> None:
        for frame, where in list(self._pending.items()):
            self._flush(frame, where)
