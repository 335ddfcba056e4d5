"""Follows the memory of every process of the tree: RSS, page faults of threads, addresses of anonymous memory.

RSS comes from ``statm``, and is written as a short list of points. If a thread touches a new page, the kernel counts a
page fault for this thread (``task/TID/stat``, proc(5)). So page faults show the thread that made a process grow, even
if another thread has Python's lock (the GIL). A large block of memory is a mapping (mmap(2)). When the block is freed,
its addresses disappear. So the addresses that disappeared show which rises of memory were undone.
"""

from __future__ import annotations

import contextlib
import os
import time
from itertools import pairwise

from nncftools.sampler.tree import PAGE, Tree, share_memory
from nncftools.snapshot_rules import subtract_ranges

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from nncftools.journal.writing import Writer
    from nncftools.sampler.tree import Process
    from nncftools.snapshot_rules import Range

    Ranges = list[Range]
    Processes = dict[Process, "Watched"]
    Reading = tuple[int, int, int]
    """A reading of ``statm``: the time, the resident pages, and the resident pages of files and shared memory."""
    Points = list["Point"]
    Point = tuple[int, int, int, int]
    """A point: the time in nanoseconds (CLOCK_MONOTONIC), RSS in bytes, the bytes of files and shared memory in RSS,
    and the longest time between two readings since the previous point.
    """

_SMALLEST_STEP = 64 * 1024
_SMALLEST_DEVIATION = 256 * 1024
_MOST_POINTS = 500
_FULL = 1024


class Growth:
    """The RSS of a process over time, in points that are not written yet."""

    def __init__(self, t_ns: int) -> None:
        """Begin with 0 bytes, so that the first reading counts as a rise."""
        self.points: Points = [(t_ns, 0, 0, 0)]
        self.rss = 0
        self.shared = 0
        """The bytes of ``rss`` that are pages of files and of shared memory."""
        self.first = 0
        """The RSS of the first reading."""
        self._polled_ns = t_ns
        self._apart_ns = 0
        """The longest time between two readings since the last point in ``points``, in nanoseconds."""
        self.rose_ns = t_ns
        """The time when RSS last rose."""
        self.risen = 0
        """The bytes by which RSS has risen since stacks were last read."""

    def add(self, t_ns: int, pages: int, shared_pages: int) -> int:
        """Add a reading; return the change of RSS in bytes."""
        level: Point = (self._polled_ns, self.rss, self.shared, self._apart_ns)
        apart_ns = t_ns - self._polled_ns
        rise = pages * PAGE - self.rss
        self._polled_ns = t_ns
        self.shared = shared_pages * PAGE
        if rise == 0:
            return 0
        self.rss += rise
        self.first = self.first or self.rss
        last_ns, last_rss, *_ = self.points[-1]
        if abs(self.rss - last_rss) < _SMALLEST_STEP:
            self._apart_ns = max(self._apart_ns, apart_ns)
        else:
            if level[0] > last_ns:
                self.points.append(level)
            self.points.append((t_ns, self.rss, self.shared, apart_ns))
            self._apart_ns = 0
            if len(self.points) > _FULL:
                self.points = thin_points(self.points, _FULL // 2)
        if rise > 0:
            self.rose_ns = t_ns
            self.risen += rise
        return rise

    def take_points(self, t_ns: int) -> Points:
        """Return the points (``Point``) since the last call. The last point is at ``t_ns``.

        Points close to the straight line between their neighbours are left out.
        """
        points = self.points
        if points[-1][0] != t_ns:
            points.append((t_ns, self.rss, self.shared, self._apart_ns))
        self.points = [points[-1]]
        return thin_points(points, _MOST_POINTS)


def thin_points(points: Points, most: int) -> Points:
    """Return at most ``most`` points: the first, the last, and those farthest from the lines between kept points."""
    chosen = {0, len(points) - 1}
    pending = [_farthest(points, 0, len(points) - 1)]
    while pending and len(chosen) < most:
        pending.sort()
        deviation, number, first, last = pending.pop()
        if deviation < _SMALLEST_DEVIATION:
            break
        chosen.add(number)
        pending += [_farthest(points, first, number), _farthest(points, number, last)]
    thin = [points[0]]
    for previous, number in pairwise(sorted(chosen)):
        t_ns, rss, shared, _ = points[number]
        apart_ns = max([point[3] for point in points[previous + 1 : number + 1]])
        thin.append((t_ns, rss, shared, apart_ns))
    return thin


def _farthest(points: Points, first: int, last: int) -> tuple[float, int, int, int]:
    """Find the point that is farthest from the straight line between the points with indexes ``first`` and ``last``.

    Return the deviation in bytes, the index of the farthest point, ``first`` and ``last``. The deviations of shared
    bytes and of all other bytes are added. The deviation of RSS alone would be 0 if a process maps a file and then
    allocates at the same speed.
    """
    t0, rss0, shared0, _ = points[first]
    t1, rss1, shared1, _ = points[last]
    duration = max(1, t1 - t0)
    shared_slope = (shared1 - shared0) / duration
    slope = (rss1 - rss0) / duration - shared_slope
    deviation = 0.0
    farthest = first
    for number in range(first + 1, last):
        t, rss, shared, _ = points[number]
        shared_rise = shared - shared0
        distance = abs(rss - rss0 - shared_rise - slope * (t - t0))
        distance += abs(shared_rise - shared_slope * (t - t0))
        if distance > deviation:
            deviation = distance
            farthest = number
    return deviation, farthest, first, last


_MINOR = 7
"""The index of the minor page faults among the fields after the process name in ``/proc/PID/stat``, counted from 0."""
_MAJOR = 9
"""The index of the major page faults among the fields after the process name in ``/proc/PID/stat``, counted from 0."""


class Threads:
    """Counts the page faults of the threads of a process."""

    def __init__(self, path: str) -> None:
        """``path`` is the folder of the process in ``/proc``."""
        self._path = path
        self._total = 0
        self._faults: dict[int, int] = {}

    def read(self) -> tuple[dict[int, int], int]:
        """Return the new page faults of each thread since the last call, and the page faults of ended threads.

        Raises OSError if the process has ended.
        """
        total = _read_faults(f"{self._path}/stat")
        faults: dict[int, int] = {}
        for name in os.listdir(f"{self._path}/task"):
            with contextlib.suppress(OSError):  # the thread has ended
                faults[int(name)] = _read_faults(f"{self._path}/task/{name}/stat")
        new = {}
        lost = total - self._total
        for thread, count in faults.items():
            new_count = count - self._faults.get(thread, 0)
            lost -= new_count
            if new_count:
                new[thread] = new_count
        self._total = total
        self._faults = faults
        return new, max(0, lost)


def _read_faults(path: str) -> int:
    with open(path, "rb", buffering=0) as file:
        data = file.read(512)
    fields = data[data.rindex(b")") + 2 :].split()
    return int(fields[_MINOR]) + int(fields[_MAJOR])


class Watched:
    """A process of the tree, with everything that the helper knows about the process."""

    def __init__(self, process: Process, t_ns: int) -> None:
        self.process = process
        self.growth = Growth(t_ns)
        self.found_ns = t_ns
        self.is_introduced = False
        self.threads = Threads(process.path)
        self.faults_read_ns = self.faults_after_ns = 0
        self.ranges: Ranges = []
        """The address ranges of the anonymous memory of the process, at the last reading of ``/proc/PID/maps``."""
        self.ranges_rss = 0
        """RSS of the process in bytes, at the last reading of ``/proc/PID/maps``."""
        self._program = self._running_program()
        self.begin_program()

    def begin_program(self) -> None:
        """Note that the process runs a new program, so that reading stacks is tried again."""
        self.may_look = True
        self.look_after_ns = 0
        self.failures = 0

    def has_execed(self) -> bool:
        """Return whether the process runs a different program than at the last call."""
        program = self._program
        self._program = self._running_program()
        return program != self._program

    def _running_program(self) -> str:
        try:
            return os.readlink(f"{self.process.path}/exe")
        except OSError:  # the process has ended, or belongs to another user
            return ""


PROC = "/proc"
_MS = 1_000_000
_TREE_EVERY_NS = 30 * _MS
_EXEC_WITHIN_NS = 30 * _MS
"""The facts about a new process are written when the process is older than this, because exec usually follows fork at
once.
"""
_FAST = 2 << 20
"""A rise by this many bytes between two polls is a fast rise."""


def _read_memory(process: Process) -> Reading:
    try:
        data = os.pread(process.files[0], 128, 0)
    except OSError:
        data = process.read_slot(0)
    if not data:
        return time.monotonic_ns(), 0, 0
    _, pages, shared_pages, *_ = data.split(None, 3)
    return time.monotonic_ns(), int(pages), int(shared_pages)


class TreeWatch:
    """Watches the memory of all processes of a run, except children of vfork(2) before their exec."""

    def __init__(self, writer: Writer, sampler: int, pid: int | None, *, children: bool) -> None:
        """Watch the children of ``sampler``, or ``pid`` if given. Without ``children``, watch only a single process."""
        self._writer = writer
        self._only_first = not children and pid is None
        reaper = sampler if pid is None else None
        self._tree = Tree(PROC, ["statm"], reaper=reaper, children=children or self._only_first)
        if pid is not None:
            self._tree.add(pid)
        self.watched: Processes = {}
        """The living processes."""
        self._look_at_ns = 0
        self.rose_ns = time.monotonic_ns()
        """The time when the memory of any process last rose."""
        self.rose_fast_ns = self.rose_ns
        """The time when the memory of any process last rose by ``_FAST`` bytes or more between two polls."""
        self.rise = 0
        """The bytes by which memory rose since the previous poll."""
        self.held = 0
        """The RSS of all processes together."""

    def poll(self, now_ns: int) -> None:
        """Read the memory of all processes. Look for new processes from time to time."""
        if now_ns >= self._look_at_ns:
            self._look_at_ns = now_ns + _TREE_EVERY_NS
            self._tree.refresh()
            if self._only_first and self._tree.processes:
                self._tree.children = False
        self.rise = 0
        for process in list(self._tree.processes):
            watched = self.watched.get(process)
            reading = _read_memory(process)
            t_ns, pages, _ = reading
            if watched is None:
                self._meet(process, reading)
            elif not pages:
                self._end(watched, t_ns)
            else:
                if not watched.is_introduced and t_ns - watched.found_ns > _EXEC_WITHIN_NS:
                    self._introduce(watched)
                self._add(watched, reading)
        self.held = sum([watched.growth.rss for watched in self.watched.values()])

    def poll_again(self, watched: Watched) -> None:
        """Read the memory of a process right after its stacks, so that only later rises belong to the next stacks."""
        reading = _read_memory(watched.process)
        if reading[1]:
            self._add(watched, reading)

    def _add(self, watched: Watched, reading: Reading) -> None:
        rise = watched.growth.add(*reading)
        if rise > 0:
            self.rise += rise
            self.rose_ns = watched.growth.rose_ns
            if rise >= _FAST:
                self.rose_fast_ns = self.rose_ns

    def _meet(self, process: Process, reading: Reading) -> None:
        if not process.alive:
            self._tree.remove(process)
            return
        t_ns, pages, _ = reading
        parent = process.parent
        if not pages:
            return
        if process.forked_copy and parent is not None and share_memory(process.pid, parent.pid):
            return  # a child of vfork(2) has the memory of the parent until exec
        watched = Watched(process, t_ns)
        self.watched[process] = watched
        self._add(watched, reading)

    def _introduce(self, watched: Watched) -> None:
        """Write the facts about a process when it is old enough to have called exec."""
        process = watched.process
        process.identify()
        watched.is_introduced = True
        facts = {"number": process.number, "pid": process.pid, "t_ns": watched.found_ns}
        inherited = watched.growth.first if process.forked_copy else 0
        # With another root folder, the process may find a different file at the same path.
        has_other_files = process.differs("root", "/") or process.differs("ns/mnt", "/proc/self/ns/mnt")
        user = None if has_other_files else process.read_user()
        self._writer.line("process", {**facts, "inherited": inherited, "user": user})

    def _end(self, watched: Watched, now_ns: int) -> None:
        """Write that a process has ended. A zombie counts as ended, but stays in ``watched`` until it is reaped."""
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
        """Write the changes of the memory of all processes since the last call."""
        now_ns = time.monotonic_ns()
        for watched in self.watched.values():
            self._write_points(watched, now_ns)

    def _write_points(self, watched: Watched, now_ns: int) -> None:
        if watched.is_introduced:
            t_ns, rss, shared, apart_ns = zip(*watched.growth.take_points(now_ns), strict=True)
            columns = {"t_ns": t_ns, "rss": rss, "shared": shared, "apart_ns": apart_ns}
            self._writer.line("rss", {"process": watched.process.number, **columns})


_LEAST = 8 << 20
_RISE = 0.04
_FALL = 0.02
"""The addresses of anonymous memory are read again after a rise of RSS by at least the fraction ``_RISE`` (4 %), or a
fall by at least the fraction ``_FALL`` (2 %). Changes of less than ``_LEAST`` bytes do not count.
"""
_MOST_READINGS = 150
_PAGE_BITS = 12
_SHARED = b"/dev/zero"
"""In ``/proc/PID/maps``, the name of anonymous memory that processes share begins with this text."""
_ARENA = 64 << 20
"""The size of malloc's arenas. An arena begins at a multiple of this size, and is writable at the beginning."""
_LARGEST_GUARD = 64 << 10
"""A guard is memory without access rights, below the stack of a thread. A guard has at most this many bytes."""


def find_anonymous_ranges(maps: bytes) -> tuple[Ranges, int]:
    """Return the blocks of anonymous memory in ``/proc/PID/maps`` (proc(5)), and the size of the heap in bytes.

    A block is writable memory without a file. Adjacent blocks are merged. The heap and malloc's arenas are not blocks,
    because they use the same addresses again and again. Stacks are left out.
    """
    ranges: Ranges = []
    heap = guard_ends = 0
    for line in maps.split(b"\n"):
        words = line.split(None, 5)
        if len(words) < 5:  # noqa: PLR2004 — up to the inode
            continue
        name = b"".join(words[5:])
        is_file = words[4] != b"0" and not name.startswith(_SHARED)
        if is_file or name.startswith(b"[stack") or b"-" not in words[0]:
            continue
        begin, end = [int(address, 16) for address in words[0].split(b"-")]
        if name == b"[heap]":
            heap += end - begin
        elif words[1][1:2] == b"w" and begin != guard_ends:
            if ranges and ranges[-1][1] == begin:
                begin, _ = ranges.pop()
            ranges.append((begin, end))
        elif words[1].startswith(b"---") and end % _ARENA == 0:
            heap += _remove_arena(ranges, end - _ARENA, begin)
        elif words[1].startswith(b"---") and end - begin <= _LARGEST_GUARD:
            guard_ends = end
    return ranges, heap


def _remove_arena(ranges: Ranges, begin: int, end: int) -> int:
    """Remove addresses from ``begin`` to ``end`` if the last range ends at ``end``; return the removed bytes."""
    if not ranges or ranges[-1][1] != end:
        return 0
    first, _ = ranges.pop()
    if first < begin:
        ranges.append((first, begin))
    return end - max(first, begin)


class RangeWatch:
    """Writes the addresses that appeared and disappeared in processes whose memory has changed much."""

    def __init__(self, writer: Writer, has_budget: Callable[[], bool]) -> None:
        self._writer = writer
        self._has_budget = has_budget
        self._readings = 0

    def look(self, processes: Iterable[Watched]) -> None:
        """Read the addresses of each process whose memory has changed much since the last reading."""
        for watched in processes:
            rss = watched.growth.rss
            share = _RISE if rss > watched.ranges_rss else _FALL
            if abs(rss - watched.ranges_rss) < max(_LEAST, rss * share) or not watched.is_introduced:
                continue
            if self._readings >= _MOST_READINGS or not self._has_budget():
                return
            with contextlib.suppress(OSError):  # the process has ended, or belongs to another user
                self._read(watched)

    def _read(self, watched: Watched) -> None:
        ranges, heap = find_anonymous_ranges(watched.process.read("maps"))
        facts = {"process": watched.process.number, "t_ns": time.monotonic_ns(), "heap": heap}
        came = _in_pages(subtract_ranges(ranges, watched.ranges))
        went = _in_pages(subtract_ranges(watched.ranges, ranges))
        self._writer.line("ranges", {**facts, "came": came, "went": went})
        self._readings += 1
        watched.ranges = ranges
        watched.ranges_rss = watched.growth.rss


def _in_pages(ranges: Iterable[Range]) -> list[int]:
    """Return the first page and the number of pages of each range: ``[first, count, first, count]``."""
    pages = []
    for begin, end in ranges:
        pages += [begin >> _PAGE_BITS, (end - begin) >> _PAGE_BITS]
    return pages
