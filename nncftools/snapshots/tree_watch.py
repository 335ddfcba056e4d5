"""Reads ``statm`` of every process of the tree, and writes how their memory changes: a short list of points for each.

It also reads which threads touched memory (``task/TID/stat``, proc(5)). The kernel counts a page fault in the thread
that touches a new page, so the faults since the last reading tell which thread made a process grow, whoever holds
Python's lock.
"""

from __future__ import annotations

import os
import time
from itertools import pairwise

from nncftools.sampler.tree import PAGE, Tree, shared

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.journal.writing import Writer
    from nncftools.sampler.tree import Process

    Point = tuple[int, int, int, int]
    """A moment on CLOCK_MONOTONIC in nanoseconds, RSS in bytes, the bytes of RSS that are pages of files and of shared
    memory, and the longest time between two readings before the moment."""

_SMALLEST_STEP = 64 * 1024
_SMALLEST_DEVIATION = 256 * 1024
_MOST_POINTS = 500
_FULL = 1024


class Growth:
    """The points of one process since they were written last."""

    def __init__(self, t_ns: int) -> None:
        """Begin at nothing: the first reading is a rise, too."""
        self.points: list[Point] = [(t_ns, 0, 0, 0)]
        self.rss = 0
        self.shared = 0
        """The bytes of ``rss`` that are pages of files and of shared memory."""
        self.first = 0
        """The first reading."""
        self._polled_ns = t_ns
        self._apart_ns = 0
        """The longest time between two readings since the last point."""
        self.rose_ns = t_ns
        """When RSS last rose."""
        self.risen = 0
        """By how many bytes it rose since stacks were read."""

    def add(self, t_ns: int, pages: int, shared_pages: int) -> int:
        """Take a reading of RSS; return by how many bytes it rose."""
        rss = pages * PAGE
        last_t_ns, last_rss, *_ = self.points[-1]
        step = rss - last_rss
        before_ns, before, shared_before, self._polled_ns = self._polled_ns, self.rss, self.shared, t_ns
        self.shared = shared_pages * PAGE
        if rss == before:
            return 0
        apart_ns = t_ns - before_ns
        self.rss = rss
        self.first = self.first or rss
        if not -_SMALLEST_STEP < step < _SMALLEST_STEP:
            if before_ns > last_t_ns:
                self.points.append((before_ns, before, shared_before, self._apart_ns))  # until then it was level
            self.points.append((t_ns, rss, self.shared, apart_ns))
            self._apart_ns = 0
            if len(self.points) > _FULL:
                self.points = thinned(self.points, _FULL // 2)
        else:
            self._apart_ns = max(self._apart_ns, apart_ns)
        if rss > before:
            self.rose_ns = t_ns
            self.risen += rss - before
        return rss - before

    def take_points(self, t_ns: int) -> list[Point]:
        """Return the points since the last call, as few as possible; the last one is now."""
        points = self.points
        if points[-1][0] != t_ns:
            points.append((t_ns, self.rss, self.shared, self._apart_ns))
        self.points = [points[-1]]
        return thinned(points, _MOST_POINTS)


def thinned(points: Sequence[Point], most: int) -> list[Point]:
    """Return at most ``most`` points, the last one too: those that lie farthest from the lines between the others."""
    kept = {0, len(points) - 1}
    pending = [_farthest(points, 0, len(points) - 1)]
    while pending and len(kept) < most:
        pending.sort()
        deviation, number, first, last = pending.pop()
        if deviation < _SMALLEST_DEVIATION:
            break
        kept.add(number)
        pending += [_farthest(points, first, number), _farthest(points, number, last)]
    thin = [points[0]]
    for before, number in pairwise(sorted(kept)):
        t_ns, rss, shared, _ = points[number]
        thin.append((t_ns, rss, shared, max([apart_ns for *_, apart_ns in points[before + 1 : number + 1]])))
    return thin


def _farthest(points: Sequence[Point], first: int, last: int) -> tuple[float, int, int, int]:
    """Return deviation and place of the point farthest from the line between two others, and these.

    The deviation is that of the shared bytes and that of all other bytes together: where a process maps a file and then
    allocates at the same speed, RSS alone is one line.
    """
    (t0, rss0, shared0, _), (t1, rss1, shared1, _) = points[first], points[last]
    duration = max(1, t1 - t0)
    shared_slope = (shared1 - shared0) / duration
    slope = (rss1 - rss0) / duration - shared_slope
    deviation, farthest = 0.0, first
    for number in range(first + 1, last):
        t, rss, shared, _ = points[number]
        since = t - t0
        of_shared = shared - shared0
        distance = abs(rss - rss0 - of_shared - slope * since) + abs(of_shared - shared_slope * since)
        if distance > deviation:
            deviation, farthest = distance, number
    return deviation, farthest, first, last


_MINOR, _MAJOR = 7, 9
"""Positions after the closing parenthesis of the name."""


class Threads:
    """The threads of one process as they were at the last reading."""

    def __init__(self, path: str) -> None:
        """Read the threads of the process with this folder in ``/proc``."""
        self._path = path
        self._whole = 0
        self._before: dict[int, int] = {}

    def read(self) -> tuple[dict[int, int], int]:
        """Return the page faults of each thread since the last call, and those of ended threads.

        Raises OSError when the process has ended.
        """
        whole = _faults(f"{self._path}/stat")
        now: dict[int, int] = {}
        for name in os.listdir(f"{self._path}/task"):
            try:
                now[int(name)] = _faults(f"{self._path}/task/{name}/stat")
            except OSError:  # the thread has ended
                continue
        since = {thread: faults - self._before.get(thread, 0) for thread, faults in now.items()}
        lost = whole - self._whole - sum(since.values())
        self._whole, self._before = whole, now
        return {thread: faults for thread, faults in since.items() if faults}, max(0, lost)


def _faults(path: str) -> int:
    """Return the page faults of a process or thread. Raises OSError."""
    with open(path, "rb", buffering=0) as file:
        data = file.read(512)
    fields = data[data.rindex(b")") + 2 :].split()
    return int(fields[_MINOR]) + int(fields[_MAJOR])


class Watched:
    """A process of the tree, its growth, and whether its stacks can be read."""

    def __init__(self, process: Process, t_ns: int) -> None:
        self.process = process
        self.growth = Growth(t_ns)
        self.found_ns = t_ns
        self.is_introduced = False
        self.threads = Threads(process.path)
        self.faults_read_ns = self.faults_after_ns = 0
        self._program = self._running_program()
        self.begin_program()

    def begin_program(self) -> None:
        """Know nothing of the program that it runs."""
        self.may_look = True
        self.look_after_ns = 0
        self.failures = 0

    def has_execed(self) -> bool:
        """Return whether it runs another program than at the last call."""
        before, self._program = self._program, self._running_program()
        return before != self._program

    def _running_program(self) -> str:
        try:
            return os.readlink(f"{self.process.path}/exe")
        except OSError:  # it has ended, or belongs to another user
            return ""


PROC = "/proc"
_MS = 1_000_000
_TREE_EVERY_NS = 30 * _MS
_EXEC_WITHIN_NS = 30 * _MS
"""A forked copy that has lived this long stays one: usually, exec follows fork at once."""
_FAST = 2 << 20
"""Bytes from one poll to the next."""


def _memory(process: Process) -> tuple[int, int, int]:
    """Return the time, and the pages of a process: all that are resident, and those of files and shared memory."""
    try:
        data = os.pread(process.files[0], 128, 0)
    except OSError:
        data = process.read_slot(0)
    pages, shared_pages = map(int, data.split(None, 3)[1:3]) if data else (0, 0)
    return time.monotonic_ns(), pages, shared_pages


def _file_user(process: Process) -> int | None:
    """Return the ID of the user whose files a process opens; None if a path may lead it to another file than us."""
    if process.differs("root", "/") or process.differs("ns/mnt", "/proc/self/ns/mnt"):
        return None
    return process.read_user()


class TreeWatch:
    """The processes of a run, as far as they have memory of their own."""

    def __init__(self, writer: Writer, sampler: int, pid: int | None, *, children: bool) -> None:
        """Watch the children of ``sampler``, or ``pid`` if there is one; only one process without ``children``."""
        self._writer = writer
        self._only_first = not children and pid is None
        reaper = sampler if pid is None else None
        self._tree = Tree(PROC, ["statm"], reaper=reaper, children=children or self._only_first)
        if pid is not None:
            self._tree.add(pid)
        self.watched: dict[Process, Watched] = {}
        """The processes that live."""
        self._look_at_ns = 0
        self.rose_ns = self.rose_fast_ns = time.monotonic_ns()
        """When the memory of any process last rose, and when it last rose by much from one poll to the next."""

        self.rise = self.held = 0
        """By how many bytes memory rose since the poll before, and the RSS of all processes."""

    def poll(self, now_ns: int) -> None:
        """Read the memory of all processes; look for new ones from time to time."""
        if now_ns >= self._look_at_ns:
            self._look_at_ns = now_ns + _TREE_EVERY_NS
            self._tree.refresh()
            if self._only_first and self._tree.processes:
                self._tree.children = False
        self.rise = 0
        for process in list(self._tree.processes):
            watched = self.watched.get(process)
            t_ns, pages, shared_pages = _memory(process)
            if watched is None:
                self._meet(process, t_ns, pages, shared_pages)
            elif not pages:
                self._end(watched, t_ns)
            else:
                if not watched.is_introduced and t_ns - watched.found_ns > _EXEC_WITHIN_NS:
                    self._introduce(watched)
                self._add(watched, t_ns, pages, shared_pages)
        self.held = sum([watched.growth.rss for watched in self.watched.values()])

    def poll_again(self, watched: Watched) -> None:
        """Read the memory of a process right after its stacks: what rose later rose between two readings of stacks."""
        t_ns, pages, shared_pages = _memory(watched.process)
        if pages:
            self._add(watched, t_ns, pages, shared_pages)

    def _add(self, watched: Watched, t_ns: int, pages: int, shared_pages: int) -> None:
        rise = watched.growth.add(t_ns, pages, shared_pages)
        if rise > 0:
            self.rise += rise
            self.rose_ns = t_ns
            if rise >= _FAST:
                self.rose_fast_ns = t_ns

    def _meet(self, process: Process, t_ns: int, pages: int, shared_pages: int) -> None:
        if not process.alive:
            self._tree.remove(process)
            return
        above = process.parent
        if not pages or (process.forked_copy and above is not None and shared(process.pid, above.pid)):
            return  # a child of vfork(2) has its parent's memory until exec
        watched = self.watched[process] = Watched(process, t_ns)
        self._add(watched, t_ns, pages, shared_pages)

    def _introduce(self, watched: Watched) -> None:
        """Write who this is, after a time in which it could exec."""
        process = watched.process
        process.identify()
        watched.is_introduced = True
        inherited = watched.growth.first if process.forked_copy else 0
        facts = {"number": process.number, "pid": process.pid, "t_ns": watched.found_ns, "inherited": inherited}
        self._writer.line("process", {**facts, "user": _file_user(process)})

    def _end(self, watched: Watched, now_ns: int) -> None:
        """Take the end of a process: a zombie has no memory, and is there until it is reaped."""
        if watched.growth.rss:
            if not watched.is_introduced:
                self._introduce(watched)
            self._write_points(watched, now_ns)
            watched.growth.add(now_ns, 0, 0)
            self._write_points(watched, now_ns)
        if not watched.process.alive:
            del self.watched[watched.process]
            self._tree.remove(watched.process)

    def write_points(self) -> None:
        """Write how the memory of all processes has changed since the last time."""
        now_ns = time.monotonic_ns()
        for watched in self.watched.values():
            self._write_points(watched, now_ns)

    def _write_points(self, watched: Watched, now_ns: int) -> None:
        if watched.is_introduced:
            points = watched.growth.take_points(now_ns)
            columns = dict(zip(("t_ns", "rss", "shared", "apart_ns"), zip(*points, strict=True), strict=True))
            self._writer.line("rss", {"process": watched.process.number, **columns})
