"""Does what a plan says, and notes what every process holds before and after each mark."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import traceback
from functools import singledispatchmethod
from typing import TYPE_CHECKING

from benchmarks.workloads.random_programs import actions as what
from benchmarks.workloads.random_programs.child import CODE
from benchmarks.workloads.random_programs.memory import MIB, Area
from benchmarks.workloads.random_programs.notes import BEGIN, END, MARKED, MOMENT, Notes, reading
from benchmarks.workloads.random_programs.tree import Tree
from nncftools import mark_operation, operation

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Sequence

_SMALL_PYTHON = (sys.executable, "-S", "-E", "-c", CODE)


class Process:
    """What the threads of a process share."""

    def __init__(self, file: str) -> None:
        self.notes = Notes(file)
        self.tree = Tree()
        self.changing = threading.Lock()
        """Held while memory is taken or given back: one change at a time is noted, from before it to after it."""
        self.slots = 0


class Performer:
    """One thread that performs actions."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._notes = process.notes
        self._open: list[tuple[str, contextlib.AbstractContextManager[None]]] = []
        self._areas: dict[int, Area] = {}
        self._children: dict[int, int | subprocess.Popen[bytes]] = {}
        self._threads: dict[int, threading.Thread] = {}

    def perform(self, actions: Sequence[what.Action]) -> None:
        """Perform actions."""
        for action in actions:
            self._notes.own()
            self._do(action)
        self._notes.own()
        self._notes.flush()

    def _marked(self, kind: str, name: str, mark: Callable[[], object], *, is_bare: bool) -> None:
        """Mark, and note what all processes hold just before and just after; write only then."""
        before = [] if is_bare else reading(self._process.tree.sizes)
        from_ns = time.monotonic_ns()
        mark()
        to_ns = time.monotonic_ns()
        after = [] if is_bare else reading(self._process.tree.sizes)
        self._notes.write(MARKED, from_ns, to_ns, os.getpid(), threading.get_native_id(), kind, name)
        if not is_bare:
            self._notes.write(*before)
            self._notes.write(*after)

    @singledispatchmethod
    def _do(self, action: object) -> None:
        raise TypeError(action)

    @_do.register
    def _(self, action: what.Pause) -> None:
        self._notes.flush()
        time.sleep(action.ms / 1000)

    @_do.register
    def _(self, action: what.Begin) -> None:
        entered = operation(action.name)
        self._marked(BEGIN, action.name, entered.__enter__, is_bare=action.is_bare)
        self._open.append((action.name, entered))

    @_do.register
    def _(self, action: what.End) -> None:
        name, entered = self._open.pop()
        self._marked(END, name, lambda: entered.__exit__(None, None, None), is_bare=action.is_bare)

    @_do.register
    def _(self, action: what.Moment) -> None:
        self._marked(MOMENT, action.name, lambda: mark_operation(action.name), is_bare=action.is_bare)

    @_do.register
    def _(self, action: what.Take) -> None:
        with self._process.changing:
            self._notes.own()  # another thread may have changed it meanwhile
            self._areas[action.area] = Area(action.mebibytes * MIB, action.kind, self._notes.own)

    @_do.register
    def _(self, action: what.Free) -> None:
        with self._process.changing:
            self._notes.own()
            self._areas.pop(action.area).close()
            self._notes.own()

    @_do.register
    def _(self, action: what.Spawn) -> None:
        words = map(str, (self._notes.file, *action[1:]))
        self._children[action.child] = self._started(*_SMALL_PYTHON, *words)

    def _started(self, *words: str) -> subprocess.Popen[bytes]:
        begun_ns = time.monotonic_ns()
        child = subprocess.Popen(words)
        self._notes.began(begun_ns, child.pid, os.getpid())
        return child

    @_do.register
    def _(self, action: what.Wait) -> None:
        self._notes.flush()
        self._ended(self._children.pop(action.child))

    def _ended(self, child: int | subprocess.Popen[bytes]) -> None:
        """Wait for a child."""
        if isinstance(child, int):
            pid, status = os.waitpid(child, 0)
        else:
            pid, status = child.pid, child.wait()
        self._notes.gone(pid)
        assert status == 0

    @_do.register
    def _(self, _: what.Short) -> None:
        self._ended(self._started("true"))

    @_do.register
    def _(self, action: what.Fork) -> None:
        self._children[action.child] = self._forked(lambda performer: performer.perform(action.actions))

    def _forked(self, work: Callable[[Performer], object]) -> int:
        begun_ns, parent = time.monotonic_ns(), os.getpid()
        pid = os.fork()
        if pid:
            return pid
        status = 1
        try:
            self._notes.forget()
            self._notes.began(begun_ns, os.getpid(), parent)
            self._notes.own()
            self._process.changing = threading.Lock()
            work(Performer(self._process))
            self._notes.own()
            self._notes.flush()
            status = 0
        except BaseException:  # noqa: BLE001 — nothing of the parent's may run here
            traceback.print_exc()
        finally:
            os._exit(status)

    @_do.register
    def _(self, action: what.Orphan) -> None:
        self._process.slots += 1
        slot = self._process.slots

        def leave(performer: Performer) -> None:
            if isinstance(action.does, what.Spawn):
                performer.perform([action.does])
                child = performer._children[action.does.child]
            else:
                actions = action.does
                child = performer._forked(lambda inner: inner.perform(actions))
            self._process.tree.add(child if isinstance(child, int) else child.pid, slot)

        self._ended(self._forked(leave))

    @_do.register
    def _(self, action: what.Start) -> None:
        thread = threading.Thread(target=Performer(self._process).perform, args=(action.actions,))
        self._threads[action.thread] = thread
        thread.start()

    @_do.register
    def _(self, action: what.Join) -> None:
        self._notes.flush()
        self._threads.pop(action.thread).join()
