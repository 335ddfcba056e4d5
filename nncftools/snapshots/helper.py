"""The helper process beside the sampler: watches a tree for growth, and takes stacks and mappings of what grew.

It polls ``statm`` of each process (10 µs) and never changes the command. What it sees goes to a log of its own, line by
line, as ``nncftools.journal.snapshot_lines`` describes. Nobody depends on it: if it dies, only stacks are missing.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import select
import time

from nncftools.journal.writer import Writer
from nncftools.sampler.address_space import shared
from nncftools.sampler.tree import Tree
from nncftools.snapshots import py_spy
from nncftools.snapshots.budget import Budget, step
from nncftools.snapshots.interning import Interned
from nncftools.snapshots.mapping_watch import MappingWatch
from nncftools.snapshots.watched import EXPECTED_S, Watched

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

    from nncftools.sampler.tree import Process

    class Order(TypedDict):
        """What to watch, and at what cost."""

        sampler: int
        """The PID of the sampler, which is the parent of the command and of orphans."""
        pid: int | None
        """The process that a recording is attached to; None when the sampler starts a command."""
        children: bool
        """Whether descendants belong to the run."""
        py_spy: str | None
        """The path of py-spy; None to take no stacks."""
        missing: str | None
        """Why no stacks are taken, or not of every process."""
        share: float
        """Of one core's time."""
        least_s: float
        """CPU seconds that may be spent in any case."""


PROC = "/proc"
_STATM = 128
_MS = 1_000_000
_CALM_AFTER_NS = 200 * _MS
_POLLS = ((0.01, 20 * _MS), (0.02, 3_000 * _MS), (0.05, 10_000 * _MS), (0.1, math.inf))
"""The distance of polls, up to this time after memory last rose fast."""
_FAST = 1 << 20
"""Bytes from one poll to the next."""
_PACE_EVERY_NS = 500 * _MS
_TREE_EVERY_NS = 30 * _MS
_WRITE_EVERY_NS = 5_000 * _MS
_EXEC_WITHIN_NS = 30 * _MS
"""A forked copy that has lived this long stays one: usually, exec follows fork at once."""
_LEAST_GAIN = 1 << 20
_STALLED_NS = 30 * _MS
_AT_REST = 0.3
"""When memory has stopped to rise, a smaller gain will do: the look shows whether the same code still runs."""
_IMPORTING = 3
"""Of an import, a larger gain will do: its many modules share their outer frames, and say little."""
_IMPORT = "<frozen importlib."
_MOST_AT_ONCE = 4
_OF_MAPPINGS = 0.2
"""The part of the budget that is for mappings."""
_FIRST_PAUSE_NS = 100 * _MS
_RETRY_NS = 20 * _MS
_MOST_PROBLEMS = 20
_POLLS_OF_MEAN = 50
_PYTHON = b"python"


class Helper:
    """Watches one recording until it ends."""

    def __init__(self, order: Order, writer: Writer) -> None:
        self._writer = writer
        self._order = order
        self._tree = Tree(
            PROC, ["statm"], reaper=order["sampler"] if order["pid"] is None else None, children=order["children"]
        )
        self._watched: dict[Process, Watched] = {}
        self._running: dict[Watched, py_spy.Dump] = {}
        self._interned = Interned(writer)
        share, least_s = order["share"], order["least_s"]
        self._mappings = mappings = MappingWatch(writer, share * _OF_MAPPINGS, least_s * _OF_MAPPINGS)
        self._budget = Budget(
            share * (1 - _OF_MAPPINGS),
            least_s * (1 - _OF_MAPPINGS),
            own_cpu=lambda: time.process_time() - mappings.spent_s,
        )
        self._poller = select.poll()
        self._poll_s = 0.0001
        self._slowest_s = 0.0
        self._tree_at_ns = self._pace_at_ns = 0
        self._write_at_ns = 0
        self._rose_ns = self._rose_fast_ns = time.monotonic_ns()
        self._looks = self._failed = self._problems = 0

    def run(self, control: int) -> None:
        """Watch until the starter says so on ``control``, or the sampler is gone."""
        if self._order["pid"] is not None:
            self._tree.add(self._order["pid"])
        elif not self._order["children"]:
            self._tree.children = True
        self._poller.register(control, select.POLLIN)
        started = {"pid": os.getpid(), "t_ns": time.monotonic_ns(), "missing": self._order["missing"]}
        self._writer.line("helper", {**started, "share": self._order["share"], "least_s": self._order["least_s"]})
        is_wanted = True
        while is_wanted:
            now_ns = time.monotonic_ns()
            before_s = time.process_time()
            self._poll(now_ns)
            if self._running:
                self._finish_dumps()
            if now_ns - self._rose_ns < _CALM_AFTER_NS:
                self._begin_dumps(now_ns)
                self._mappings.look(self._watched.values(), now_ns, self._rose_ns)
            else:
                self._poll_s += (time.process_time() - before_s - self._poll_s) / _POLLS_OF_MEAN
            if now_ns >= self._write_at_ns:
                self._write_at_ns = now_ns + _WRITE_EVERY_NS
                for watched in self._watched.values():
                    self._write_points(watched, now_ns)
                is_wanted = os.path.exists(f"{PROC}/{self._order['sampler']}")
            if not self._writer.flush():  # the disk is full, and this log is the first to do without
                break
            is_wanted = self._sleep(now_ns, control) and is_wanted
        self._close()

    def _sleep(self, now_ns: int, control: int) -> bool:
        """Wait until the next poll, or the end of a dump; return False when the starter has asked for the end."""
        calm_ns = now_ns - self._rose_fast_ns
        if now_ns >= self._pace_at_ns:
            self._pace_at_ns = now_ns + _PACE_EVERY_NS
            self._slowest_s = self._budget.distance_s(self._poll_s)
        distance_s = self._slowest_s
        for poll_s, until_ns in _POLLS:
            if calm_ns < until_ns:
                distance_s = max(distance_s, poll_s)
                break
        elapsed_s = (time.monotonic_ns() - now_ns) / 1e9
        for descriptor, _ in self._poller.poll(max(1.0, (distance_s - elapsed_s) * 1e3)):
            if descriptor == control:
                if os.read(control, 64):
                    return False
                self._poller.unregister(control)  # the starter is gone; the recording goes on
        return True

    def _poll(self, now_ns: int) -> None:
        if now_ns >= self._tree_at_ns:
            self._tree_at_ns = now_ns + _TREE_EVERY_NS
            self._tree.has_changed()
            self._tree.refresh()
            if not self._order["children"] and self._tree.processes:
                self._tree.children = False
        for process in list(self._tree.processes):
            watched = self._watched.get(process)
            try:
                data = os.pread(process.files[0], _STATM, 0)
            except OSError:
                data = process.read_slot(0)
            t_ns = time.monotonic_ns()
            pages = int(data.split(None, 2)[1]) if data else 0
            if watched is None:
                self._meet(process, t_ns, pages)
            elif not pages:
                self._forget(watched, t_ns, gone=not process.alive)
            else:
                if not watched.is_introduced and t_ns - watched.found_ns > _EXEC_WITHIN_NS:
                    self._introduce(watched)
                rise = watched.growth.add(t_ns, pages)
                if rise > 0:
                    self._rose_ns = t_ns
                    if rise >= _FAST:
                        self._rose_fast_ns = t_ns

    def _meet(self, process: Process, t_ns: int, pages: int) -> None:
        if not process.alive:
            self._tree.remove(process)
            return
        above = process.parent
        if not pages or (process.forked_copy and above is not None and shared(process.pid, above.pid)):
            return  # a child of vfork(2) has its parent's memory until exec
        watched = self._watched[process] = Watched(process, t_ns, 0)
        watched.growth.add(t_ns, pages)
        self._rose_ns = self._rose_fast_ns = t_ns

    def _introduce(self, watched: Watched) -> None:
        """Write who this is, after a time in which it could exec."""
        process = watched.process
        process.identify()
        watched.is_introduced = True
        inherited = watched.growth.points[min(1, len(watched.growth.points) - 1)][1] if process.forked_copy else 0
        facts = {"number": process.number, "pid": process.pid, "t_ns": watched.found_ns, "inherited": inherited}
        self._writer.line("process", facts)

    def _forget(self, watched: Watched, now_ns: int, *, gone: bool) -> None:
        """Take the end of a process: a zombie has no memory, and is there until it is reaped."""
        if watched.growth.rss:
            if not watched.is_introduced:
                self._introduce(watched)
            self._write_points(watched, now_ns)
            watched.growth.add(now_ns, 0)
        if gone:
            self._write_points(watched, now_ns)
            del self._watched[watched.process]
            self._tree.remove(watched.process)

    def _write_points(self, watched: Watched, now_ns: int) -> None:
        if not watched.is_introduced:
            return
        points = watched.growth.take_points(now_ns)
        values = {"t_ns": [t_ns for t_ns, _ in points], "rss": [rss for _, rss in points]}
        self._writer.line("rss", {"process": watched.process.number, **values})

    # stacks

    def _begin_dumps(self, now_ns: int) -> None:
        program = self._order["py_spy"]
        if program is None or self._budget.waits or len(self._running) >= _MOST_AT_ONCE:
            return
        if not any(watched.growth.gained >= _LEAST_GAIN for watched in self._watched.values()):
            return
        held = sum([watched.growth.rss for watched in self._watched.values()])
        least = step(self._budget.used, held)
        due = [one for one in self._watched.values() if self._is_due(one, least, now_ns)]
        due.sort(key=lambda one: -one.growth.gained)
        for watched in due[: _MOST_AT_ONCE - len(self._running)]:
            if self._budget.allows(watched.cost_s) and self._may_be_python(watched, now_ns):
                self._begin_dump(program, watched)

    def _is_due(self, watched: Watched, least: float, now_ns: int) -> bool:
        if watched in self._running or now_ns < watched.look_after_ns or not watched.is_introduced:
            return False
        if watched.imports:
            least *= _IMPORTING
        if now_ns - watched.growth.rose_ns >= _STALLED_NS:
            least *= _AT_REST
        return watched.may_look and watched.growth.gained >= least

    def _may_be_python(self, watched: Watched, now_ns: int) -> bool:
        """Return whether it has a file of Python mapped; if not, look again later, each time later."""
        if watched.seen:
            return True
        with contextlib.suppress(OSError):
            if _PYTHON in watched.process.read("maps"):
                return True
        self._postpone(watched, now_ns)
        return False

    def _postpone(self, watched: Watched, now_ns: int) -> None:
        watched.look_after_ns = now_ns + _FIRST_PAUSE_NS * 2 ** min(watched.failures, 10)
        watched.failures += 1

    def _begin_dump(self, program: str, watched: Watched) -> None:
        self._budget.begin(watched.cost_s)
        try:
            dump = py_spy.Dump(program, watched.process.pid, blocking=watched.needs_blocking)
        except OSError as error:
            self._problem(watched, f"py-spy cannot be started: {error.strerror or error}")
            self._order["py_spy"] = None
            return
        self._running[watched] = dump
        if dump.watch is not None:
            self._poller.register(dump.watch, select.POLLIN)

    def _finish_dumps(self) -> None:
        for watched, dump in list(self._running.items()):
            if not dump.has_ended():
                continue
            del self._running[watched]
            if dump.watch is not None:
                self._poller.unregister(dump.watch)
            self._budget.add(dump.cpu_s)
            watched.cost_s = (watched.cost_s + max(dump.cpu_s, EXPECTED_S / 2)) / 2
            try:
                stacks = dump.result()
                self._take(watched, dump.at_ns, stacks)
            except py_spy.DumpError as error:
                self._fail(watched, error)
            except OSError:  # the process has ended
                continue

    def _fail(self, watched: Watched, error: py_spy.DumpError) -> None:
        self._failed += 1
        if error.is_refusal and os.path.exists(watched.process.path):
            watched.may_look = False
            self._problem(watched, "refused")
            return
        now_ns = time.monotonic_ns()
        if watched.seen:  # its stack has changed meanwhile
            watched.look_after_ns = now_ns + _RETRY_NS
            return
        self._postpone(watched, now_ns)
        if watched.failures > 1:
            self._problem(watched, str(error).partition("\n")[0][:200] or "py-spy took more than a second")

    def _problem(self, watched: Watched, text: str) -> None:
        self._problems += 1
        if self._problems <= _MOST_PROBLEMS:
            self._writer.line("problem", {"process": watched.process.number, "text": text})

    def _take(self, watched: Watched, at_ns: int, stacks: list[py_spy.Stack]) -> None:
        """Write the stacks that changed, and who touched new memory since the last look. Raises OSError."""
        if any(stack.thread is None for stack in stacks) and len(stacks) > 1:  # before Python 3.11
            watched.needs_blocking = True
            return
        faults, lost = watched.threads.read()
        now: dict[int, tuple[int, tuple[py_spy.Frame, ...]]] = {}
        for stack in stacks:
            thread = watched.process.pid if stack.thread is None else stack.thread
            _, before = watched.seen.get(thread, (None, None))
            if py_spy.is_whole(stack.frames, before):
                frames = tuple(stack.frames)
                now[thread] = self._interned.stack(frames), frames
        changed: dict[int, int | None] = {
            thread: number for thread, (number, _) in now.items() if watched.seen.get(thread, (None,))[0] != number
        }
        changed |= dict.fromkeys(watched.seen.keys() - now.keys())
        watched.seen = now
        watched.imports = any(frame[1].startswith(_IMPORT) for _, frames in now.values() for frame in frames)
        watched.failures = 0
        watched.growth.looked()
        self._looks += 1
        self._write_points(watched, time.monotonic_ns())
        look = {"process": watched.process.number, "t_ns": at_ns, "stacks": changed, "lost": lost}
        touched = {thread: counted for thread, counted in faults.items() if counted[0]}
        ticks = {thread: counted[1] for thread, counted in faults.items() if counted[1]}
        look["faults"] = {thread: counted[0] for thread, counted in touched.items()}
        self._writer.line("look", {**look, "ticks": ticks})

    def _close(self) -> None:
        for dump in self._running.values():
            dump.stop()
        now_ns = time.monotonic_ns()
        for watched in self._watched.values():
            self._write_points(watched, now_ns)
        cpu_s = round(self._budget.spent_s + self._mappings.spent_s, 3)
        self._writer.line("end", {"cpu_s": cpu_s, "looks": self._looks, "failed": self._failed})
        self._writer.flush()


def main(log: int) -> int:
    """Watch as the order on standard input asks; return the exit status."""
    gc.disable()
    text = b""
    while not text.endswith(b"\n"):
        data = os.read(0, 4096)
        if not data:
            return 0  # the starter is gone before the command began
        text += data
    with contextlib.suppress(OSError):
        Helper(json.loads(text), Writer(log)).run(0)
    return 0
