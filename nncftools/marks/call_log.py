"""Calls as lines of the marks log: one by one, and together where they come by the thousand.

Runs in the marked program: Python 3.8 and later, the standard library only.
"""

from __future__ import annotations

import atexit
import os
from _thread import _local
from time import monotonic_ns

from . import line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

WRITTEN = 1000
"""Calls of one function right inside of one operation that get lines of their own; the others are told together."""
TOGETHER_NS = 10 * 10**9
"""The longest time told together, and so lost when the program is killed."""


class Call:
    """A function to mark."""

    __slots__ = ("members", "saves")

    def __init__(self, members: str, saves: tuple[int, str] | None = None) -> None:
        self.members = members
        """What all its lines have in common."""
        self.saves = saves
        """Position and name of the argument that says where it saves an OpenVINO model."""


class Tally:
    """Calls that are told together; nanoseconds."""

    __slots__ = ("count", "end", "error", "longest", "start", "total")

    def __init__(self, start: int) -> None:
        self.start = self.end = start
        self.count = self.total = self.longest = 0
        self.error: str | None = None

    def add(self, start: int, end: int, error: str | None) -> None:
        """Count a call."""
        self.count += 1
        self.total += end - start
        self.longest = max(self.longest, end - start)
        self.end = end
        self.error = error

    def line(self, members: str, where: str) -> str:
        """Return its line; ``error`` is the last call's."""
        error = "" if self.error is None else f',"error":{line.quoted(self.error)}'
        return (
            f'{{{members},"t_ns":{self.start},"end_ns":{self.end},{where},'
            f'"count":{self.count},"total_ns":{self.total},"longest_ns":{self.longest}{error}}}\n'
        )


class Frame:
    """A call that goes on, or the bottom of a thread; counts what is called right inside of it."""

    __slots__ = ("is_told", "op", "outer", "start", "tallies", "thread", "written")

    def __init__(self) -> None:
        self.thread: Thread | None = None
        self.outer: Frame | None = None
        self.op = 0
        self.start = 0
        self.is_told = False
        """Whether it stands in the log, and what is inside of it can."""
        self.written: dict[Call, int] | None = None
        self.tallies: dict[Call, Tally] | None = None


class Thread(_local):
    """A thread and the innermost of its calls."""

    def __init__(self) -> None:
        self.where = line.here()
        self.frame = Frame()
        self.frame.is_told = True


class Recorder:
    """Writes what the threads of this process call."""

    def __init__(self, path: bytes) -> None:
        self._path = path
        self._forget()
        atexit.register(self._tell_all)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """Begin anew: the calls that a forked process came out of are its parent's."""
        self._thread = Thread()
        self._waiting: dict[Frame, str] = {}

    def enter(self, frame: Frame, call: Call) -> None:
        """Note that a call begins."""
        thread = self._thread
        outer = thread.frame
        frame.outer = outer
        frame.thread = thread
        thread.frame = frame
        if not outer.is_told:
            return
        written = outer.written
        if written is None:
            written = outer.written = {}
        count = written.get(call, 0)
        if count >= WRITTEN:
            frame.start = monotonic_ns()
            return
        if outer.tallies:
            self._tell(outer, thread.where)
        written[call] = count + 1
        frame.op = next(line.operations)
        frame.is_told = True
        line.append(self._path, line.begin(frame.op, call.members, monotonic_ns(), thread.where))

    def leave(self, frame: Frame, call: Call, error: str | None = None, facts: Callable[[], str] | None = None) -> None:
        """Note that a call ends; ``facts`` is asked for what its line says beyond that."""
        end = monotonic_ns()
        thread, outer = frame.thread, frame.outer
        if outer is None or thread is not self._thread:  # it did not begin, or not in this process
            return
        thread.frame = outer
        if frame.op:
            if frame.tallies:
                self._tell(frame, thread.where)
            line.append(self._path, line.end(frame.op, end, error, facts() if facts else "", thread.where))
        elif frame.start:
            self._add(outer, call, (frame.start, end, error), thread.where)

    def _add(self, outer: Frame, call: Call, told: tuple[int, int, str | None], where: str) -> None:
        if outer.tallies is None:
            outer.tallies = {}
        tally = outer.tallies.get(call)
        if tally is None:
            tally = outer.tallies[call] = Tally(told[0])
            self._waiting[outer] = where
        tally.add(*told)
        if tally.end - tally.start > TOGETHER_NS:
            self._tell(outer, where)

    def _tell(self, frame: Frame, where: str) -> None:
        tallies, frame.tallies = frame.tallies, None
        self._waiting.pop(frame, None)
        for call, tally in (tallies or {}).items():
            line.append(self._path, tally.line(call.members, where))

    def _tell_all(self) -> None:
        for frame, where in list(self._waiting.items()):
            self._tell(frame, where)
