"""Decides when to read the stacks of which process, and writes them."""

from __future__ import annotations

import os
import time

from nncftools.snapshots import py_spy
from nncftools.snapshots.budget import step
from nncftools.snapshots.interning import Interned
from nncftools.snapshots.watched import EXPECTED_S

TYPE_CHECKING = False
if TYPE_CHECKING:
    import select
    from collections.abc import Collection

    from nncftools.journal.writing import Writer
    from nncftools.snapshots.budget import Budget
    from nncftools.snapshots.watched import Watched

_MS = 1_000_000
_STALLED_NS = 30 * _MS
_AT_REST = 0.3
"""When memory has stopped to rise, a smaller gain will do: the look shows whether the same code still runs."""
_IMPORTING = 6
"""Of an import, a larger gain will do: its many modules share their outer frames, and say little."""
_IMPORTS_NS = 1_000 * _MS
"""It may have ended this long after a look."""
_IMPORT = "<frozen importlib._bootstrap>"
_MOST_AT_ONCE = 4
_LEAST_GAIN = 1 << 20
_STEP_EVERY_NS = 200 * _MS
_RETRY_NS = 20 * _MS
_FIRST_PAUSE_NS = 100 * _MS
_MOST_PAUSES = 10
_MOST_PROBLEMS = 20
_LONGEST_PROBLEM = 200
_PYTHON = b"python"


class Looks:
    """The looks of one recording, by py-spy at ``program``; none if that is None."""

    def __init__(self, writer: Writer, budget: Budget, poller: select.poll, program: str | None) -> None:
        """Watch the ends of dumps by ``poller``."""
        self._writer = writer
        self._budget = budget
        self._poller = poller
        self._program = program
        self._interned = Interned(writer)
        self._running: dict[Watched, py_spy.Dump] = {}
        self._step = 0.0
        self._step_at_ns = 0
        self._problems = 0
        self._others: set[int] = set()
        """The processes that grew and have no file of Python mapped, as long as no stack was seen."""
        self.taken = 0
        self.failed = 0

    def begin(self, watched: Collection[Watched], now_ns: int) -> None:
        """Begin to read the stacks of what has gained enough, the one that gained most first."""
        if self._program is None or self._budget.waits or len(self._running) >= _MOST_AT_ONCE:
            return
        if now_ns >= self._step_at_ns:
            self._step_at_ns = now_ns + _STEP_EVERY_NS
            self._step = step(self._budget.used, sum([one.growth.rss for one in watched]))
            for one in watched:
                if one.growth.gained >= _LEAST_GAIN and one.has_execed():
                    self._forget_stacks(one, now_ns)
        gained = sum([one.growth.gained for one in watched if one.may_look and now_ns >= one.look_after_ns])
        due = [one for one in watched if self._is_due(one, gained, now_ns)]
        due.sort(key=lambda one: -one.growth.gained)
        for one in due[: _MOST_AT_ONCE - len(self._running)]:
            if self._budget.allows(one.cost_s) and self._may_be_python(one, now_ns):
                self._begin(self._program, one)

    def _is_due(self, one: Watched, gained: int, now_ns: int) -> bool:
        """Return whether to look at a process, if all together have gained so many bytes since their last looks."""
        if one.growth.gained < _LEAST_GAIN or not one.is_introduced or one in self._running:
            return False
        is_import = one.imports and now_ns - one.looked_ns < _IMPORTS_NS
        least = self._step * _IMPORTING if is_import else self._step
        if now_ns - one.growth.rose_ns >= _STALLED_NS:
            least *= _AT_REST
        return gained >= least and one.may_look and now_ns >= one.look_after_ns

    def _forget_stacks(self, one: Watched, now_ns: int) -> None:
        """Begin as with a new process: it runs another program now."""
        ended = dict.fromkeys(one.seen)
        if ended:
            look = {
                "process": one.process.number,
                "t_ns": now_ns,
                "stacks": ended,
                "faults": {},
                "ticks": {},
                "lost": 0,
            }
            self._writer.line("look", look)
        one.begin_program()

    def _may_be_python(self, one: Watched, now_ns: int) -> bool:
        """Return whether it has a file of Python mapped; if not, look again later, each time later."""
        if one.seen:
            return True
        try:
            if _PYTHON in one.process.read("maps"):
                return True
        except PermissionError:
            self._refuse(one)
            return False
        except OSError:  # it has ended
            return False
        self._others.add(one.process.number)
        self._postpone(one, now_ns)
        return False

    def _refuse(self, one: Watched) -> None:
        one.may_look = False
        self._problem(one, "refused")

    def _postpone(self, one: Watched, now_ns: int) -> None:
        one.look_after_ns = now_ns + _FIRST_PAUSE_NS * 2 ** min(one.failures, _MOST_PAUSES)
        one.failures += 1

    def _begin(self, program: str, one: Watched) -> None:
        self._budget.begin(one.cost_s)
        try:
            dump = py_spy.Dump(program, one.process.pid, blocking=one.needs_blocking)
        except OSError as error:
            self._problem(one, f"py-spy cannot be started: {error.strerror or error}")
            self._program = None
            return
        self._running[one] = dump
        if dump.watch is not None:
            self._poller.register(dump.watch)

    def finish(self) -> bool:
        """Take the results of the dumps that have ended; return whether stacks were written."""
        taken = self.taken
        for one, dump in list(self._running.items()):
            if not dump.has_ended():
                continue
            del self._running[one]
            if dump.watch is not None:
                self._poller.unregister(dump.watch)
            self._budget.add(dump.cpu_s)
            one.cost_s = (one.cost_s + max(dump.cpu_s, EXPECTED_S / 2)) / 2
            try:
                stacks = dump.result()
                self._take(one, dump.at_ns, stacks)
            except py_spy.DumpError as error:
                self._fail(one, error)
            except OSError:  # the process has ended
                continue
        return self.taken > taken

    def _fail(self, one: Watched, error: py_spy.DumpError) -> None:
        self.failed += 1
        if error.is_refusal and os.path.exists(one.process.path):
            self._refuse(one)
            return
        now_ns = time.monotonic_ns()
        if one.seen and not error.is_late:  # its stack has changed meanwhile
            one.look_after_ns = now_ns + _RETRY_NS
            return
        self._postpone(one, now_ns)
        if one.failures > 1 or error.is_late:
            self._problem(one, str(error).partition("\n")[0][:_LONGEST_PROBLEM])

    def _problem(self, one: Watched, text: str) -> None:
        self._problems += 1
        if self._problems <= _MOST_PROBLEMS:
            self._writer.line("problem", {"process": one.process.number, "text": text})

    def _take(self, one: Watched, at_ns: int, stacks: list[py_spy.Stack]) -> None:
        """Write the stacks that changed, and who touched new memory since the last look. Raises OSError."""
        if any(stack.thread is None for stack in stacks) and len(stacks) > 1:  # before Python 3.11
            one.needs_blocking = True
            return
        faults, lost = one.threads.read()
        now: dict[int, tuple[int, tuple[py_spy.Frame, ...]]] = {}
        for stack in stacks:
            thread = one.process.pid if stack.thread is None else stack.thread
            _, before = one.seen.get(thread, (None, None))
            if py_spy.is_whole(stack.frames, before):
                frames = tuple(stack.frames)
                now[thread] = self._interned.stack(frames), frames
        changed: dict[int, int | None] = {
            thread: number for thread, (number, _) in now.items() if one.seen.get(thread, (None,))[0] != number
        }
        changed |= dict.fromkeys(one.seen.keys() - now.keys())
        one.seen = now
        one.imports = any(frame[1] == _IMPORT for _, frames in now.values() for frame in frames)
        one.looked_ns = at_ns
        one.failures = 0
        one.growth.looked()
        self.taken += 1
        self._others.clear()
        look = {
            "process": one.process.number,
            "t_ns": at_ns,
            "stacks": changed,
            "faults": {thread: count for thread, (count, _) in faults.items() if count},
            "ticks": {thread: ticks for thread, (_, ticks) in faults.items() if ticks},
            "lost": lost,
        }
        self._writer.line("look", look)

    def close(self) -> None:
        """End the dumps that still run; say it if no program that grew was a Python."""
        if self._others and not self._problems:
            self._writer.line("problem", {"process": min(self._others), "text": "no_python"})
        for dump in self._running.values():
            dump.stop()
