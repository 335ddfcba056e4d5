"""The helper process beside the sampler: follows the memory of a process tree, and reads stacks and mappings.

The helper polls ``statm`` of each process (10 µs), and never changes the command. Near each new maximum of the tree's
memory, the helper reads the mappings of the largest processes (``/proc/PID/smaps``, proc(5)). The results go to a log
of JSON lines, described in ``nncftools.session.snapshots``. If the helper dies, only stacks and mappings are missing.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import select
import time
from operator import add

from nncftools.journal.writing import Writer
from nncftools.snapshots.stack_taker import StackTaker
from nncftools.snapshots.tree_watch import PROC, RangeWatch, TreeWatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import TypedDict, TypeVar

    from nncftools.snapshots.tree_watch import Watched

    Key = TypeVar("Key")

    class Order(TypedDict):
        """The request to the helper, sent as JSON: the processes to watch, and the CPU budget."""

        sampler: int
        """The PID of the sampler. The sampler is the parent of the command and of orphans."""
        pid: int | None
        """The PID of the process that the recording is attached to. None if the sampler starts a command."""
        children: bool
        """Whether descendants belong to the run."""
        duration_s: float | None
        """Stop after this many seconds, even if the run goes on."""
        stacks: bool
        """Whether to read stacks."""
        missing: str | None
        """The reason why some or all processes have no stacks. None if all processes can have stacks."""
        share: float
        """The share of a core's time (0 to 1) that the helper may use."""
        least_s: float
        """The helper may use this many CPU seconds even in a short run, when ``share`` of the run's time is less."""


_SPREAD_S = 20.0
"""When little of the CPU budget is left, the rest must last for this many seconds."""
_AMPLE = 0.15
"""While more than this fraction of ``least_s`` is left, every poll of a growing process reads stacks. (``least_s`` is
the least CPU time, in seconds, that the helper may use, however short the run is.)
"""
_RESERVE = 0.05
"""This fraction of ``least_s`` is reserved for rises of memory to a new maximum. (``least_s`` is the least CPU time, in
seconds, that the helper may use, however short the run is.)"""
_SLOWEST_POLLS = 0.1
"""When the CPU budget is used up, polls still use this fraction of the allowed share of a core's time."""
_FARTHEST_S = 0.5
"""The longest time between two polls, except for costly polls (``_COSTLY``)."""
_COSTLY = 0.25
"""With thousands of processes, a poll every ``_FARTHEST_S`` seconds may need more than this fraction of the allowed
share of a core's time. Then polls are farther apart.
"""


class Budget:
    """The CPU time that the helper may use, except for reading memory mappings (``/proc/PID/smaps``).

    The budget is the share ``share`` (0 to 1) of a core's time since the start of the helper. The smallest budget, from
    the first moment on, is ``least_s`` CPU seconds.
    """

    def __init__(self, share: float, least_s: float) -> None:
        self._share = share
        self._least_s = least_s
        self._begun_s = time.monotonic()
        self.mappings_s = 0.0
        """CPU seconds spent on reading memory mappings, which have a separate budget."""

    @property
    def total_s(self) -> float:
        """The CPU seconds that the budget allows from the start of the helper until now."""
        return max(self._least_s, self._share * (time.monotonic() - self._begun_s))

    @property
    def is_ample(self) -> bool:
        """Whether enough CPU time is left to read stacks at every poll."""
        return self.left_s > self._least_s * _AMPLE

    @property
    def left_s(self) -> float:
        """The CPU seconds of the budget that are left now."""
        return self.total_s + self.mappings_s - time.process_time()

    @property
    def rate(self) -> float:
        """The share of a core's time (1: a whole core) that uses up the rest of the budget in ``_SPREAD_S`` seconds.

        The reserve (``_RESERVE``) does not count. Negative if only a part of the reserve is left.
        """
        return (self.left_s - self._least_s * _RESERVE) / _SPREAD_S

    def is_left(self) -> bool:
        """Return whether any CPU time of the budget is left."""
        return self.left_s > 0

    def distance_s(self, poll_s: float) -> float:
        """Return the shortest time between two polls that the budget allows. Each poll uses ``poll_s`` CPU seconds."""
        farthest_s = max(_FARTHEST_S, poll_s / (self._share * _COSTLY))
        return min(poll_s / max(self._share * _SLOWEST_POLLS, self.rate), farthest_s)


_MS = 1_000_000
_DISTANCES = (
    (0.001, 500 * _MS),
    (0.005, 3_000 * _MS),
    (0.01, 10_000 * _MS),
    (0.1, math.inf),
)
"""Pairs ``(time_s, calm_ns)``. The pair that counts is the first whose ``calm_ns`` is longer than the time since the
last fast rise of memory. Polls are then usually ``time_s`` apart.
"""
_SHORTEST_S = 0.002
_LEAST_EXPECTED = 512 << 20
"""The CPU budget must last until memory has doubled, or has grown by this many bytes if this is more."""
_DECAY = 0.5
_GOLDEN = 0.618
"""The time before a poll is the mean time multiplied by ``0.5 + phase``. At each poll, ``phase`` grows by this number,
modulo 1. With equal times, all polls could meet the same function of a loop.
"""
_MEAN_OF = 10
_FIRST_S = 0.0002
_FIRST_READING_S = 0.001


class Pace:
    """Decides when to poll and when to read stacks, so that the cost stays in the budget.

    While much of the budget is left, polls come more often if memory grows faster, and each poll of a growing process
    reads stacks. When little of the budget is left, polls come more often only if memory rises to a new maximum, and
    stacks are read after each ``step`` of growth. While memory is below the maximum, stacks are read at times spread
    over the run, because a program that keeps freeing and taking memory would use up any budget.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._spent_s = time.process_time()
        self._poll_s = _FIRST_S
        """The mean cost of a poll that reads no stacks, in CPU seconds."""
        self._reading_s = _FIRST_READING_S
        """The mean cost of a poll that reads stacks, in CPU seconds."""
        self._mean_s = _FIRST_S
        """The mean cost of all polls, in CPU seconds."""
        self._readings = self._highest = 0
        self._read_at_ns = self._polled_ns = 0
        self._phase = 0.0
        self._speed = 0.0
        """The recent growth of the RSS of all processes together, in bytes a second."""

    def step(self, held: int, now_ns: int) -> float:
        """Return the growth in bytes after which stacks are read again. All processes together hold ``held`` bytes.

        0: read the stacks even without growth. Infinity: do not read the stacks, however much memory grows.
        """
        if self._budget.is_ample or (self._budget.is_left() and now_ns >= self._read_at_ns):
            return 0.0
        return self._spread(held, self._reading_s) if held > self._highest else math.inf

    def _spread(self, held: int, cost_s: float) -> float:
        """Return how many bytes memory may grow between two polls. A poll costs ``cost_s`` CPU seconds.

        The rest of the CPU budget must last until memory (now ``held`` bytes) has doubled, or has grown by
        ``_LEAST_EXPECTED`` bytes if this is more. Return infinity if the budget is used up.
        """
        left_s = self._budget.left_s
        return max(held, _LEAST_EXPECTED) * cost_s / left_s if left_s > 0 else math.inf

    def rest_s(self, now_ns: int, rose_fast_ns: int, rise: int, held: int, readings: int) -> float:
        """Return the seconds until the next poll, after a poll that began at ``now_ns``.

        Since the previous poll, memory rose by ``rise`` bytes to ``held``. The last fast rise was at ``rose_fast_ns``.
        Stacks were read ``readings`` times so far.
        """
        spent_s = time.process_time()
        cost_s = spent_s - self._spent_s
        self._spent_s = spent_s
        self._mean_s += (cost_s - self._mean_s) / _MEAN_OF
        if readings == self._readings:
            self._poll_s += (cost_s - self._poll_s) / _MEAN_OF
        else:
            self._reading_s += (cost_s - self._reading_s) / _MEAN_OF
            self._read_at_ns = now_ns + int(self._reading_s / max(self._budget.rate, 1e-9) * 1e9)
        self._readings = readings
        self._speed = max(self._speed * _DECAY, rise / (now_ns - self._polled_ns) * 1e9)
        self._polled_ns = now_ns
        is_ample = self._budget.is_ample
        distance_s = self._budget.distance_s(self._mean_s if is_ample else self._poll_s)
        distance_s = max(distance_s, _longest_s(now_ns - rose_fast_ns))
        if self._speed and (is_ample or held > self._highest):
            growth = self._spread(held, self._mean_s if is_ample else self._reading_s)
            distance_s = min(distance_s, max(_SHORTEST_S, growth / self._speed))
        self._highest = max(self._highest, held)
        self._phase = (self._phase + _GOLDEN) % 1.0
        return distance_s * (0.5 + self._phase) - (time.monotonic_ns() - now_ns) / 1e9


def _longest_s(calm_ns: int) -> float:
    return next(longest_s for longest_s, until_ns in _DISTANCES if calm_ns < until_ns)


_MAPPING = re.compile(
    rb"^[0-9a-f]+-[0-9a-f]+ (?P<rights>\S+) \S+ \S+ \d+ *(?P<name>[^\n]*)\n"
    rb".*?^Rss: +(\d+) kB\n"
    rb".*?^Shared_Clean: +(\d+) kB\n"
    rb"Shared_Dirty: +(\d+) kB\n"
    rb"Private_Clean: +(\d+) kB\n"
    rb"Private_Dirty: +(\d+) kB\n"
    rb".*?^Anonymous: +(\d+) kB\n",
    re.MULTILINE | re.DOTALL,
)
_SHARED = (b"/dev/shm/", b"/memfd:", b"/SYSV", b"/dev/zero", b"/anon_hugepage")
_MOST_FILES = 20
_SMALLEST_FILE = 1 << 20
ANONYMOUS = "anonymous"
STACK = "stack"
SHARED = "shared"
FILE = "file"
OTHER_FILES = "other_files"
LIBRARIES = "libraries"


def group_mappings(smaps: bytes) -> list[tuple[str, str, list[int]]]:
    """Return kind, name and sizes of each group of mappings, the largest group first.

    The sizes in bytes are: RSS, shared clean, shared dirty, private clean, private dirty, anonymous. Each large file is
    a group, named by the path; other groups have no name. In a group of files, anonymous pages are copies: the process
    has written to a private mapping.
    """
    mappings: dict[bytes, list[int]] = {}
    executable = set()
    for match in _MAPPING.finditer(smaps):
        rights, name, *numbers = match.groups()
        if b"x" in rights:
            executable.add(name)
        if numbers[0] != b"0":
            _add(mappings, name, [int(number) * 1024 for number in numbers])
    kinds = {name: _kind(name, is_executable=name in executable) for name in mappings}
    files = [name for name, kind in kinds.items() if kind == FILE]
    sizes = sorted([mappings[name][0] for name in files])
    smallest = max([_SMALLEST_FILE, *sizes[-_MOST_FILES:][:1]])
    groups: dict[tuple[str, str], list[int]] = {}
    for name, kind in kinds.items():
        figures = mappings[name]
        file = ""
        is_small = kind == FILE and figures[0] < smallest
        if kind == FILE and not is_small:
            file = name.removesuffix(b" (deleted)").decode(errors="backslashreplace")
        _add(groups, (OTHER_FILES if is_small else kind, file), figures)
    largest_first = sorted(groups.items(), key=lambda item: -item[1][0])
    return [(*key, figures) for key, figures in largest_first]


def _add(sums: dict[Key, list[int]], key: Key, sizes: list[int]) -> None:
    sums[key] = list(map(add, sums[key], sizes)) if key in sums else sizes


def _kind(name: bytes, *, is_executable: bool) -> str:
    if name.startswith(_SHARED):
        return SHARED
    if name.startswith(b"/"):
        return LIBRARIES if is_executable or b".so" in name.rpartition(b"/")[2] else FILE
    return STACK if name.startswith(b"[stack") else ANONYMOUS


_STEP = 1.0
"""Memory mappings are read again when memory has grown by this fraction: 1.0 means that memory has doubled. So all
readings together cost at most twice as much as the last reading.
"""
_STEP_AT_REST = 0.05
"""Memory mappings are also read if memory has grown by this fraction, and then has not risen for ``_RESTS_NS``."""
_RESTS_NS = 300 * _MS
_GROWING_EVERY_NS = 1_000 * _MS
"""The shortest time between two readings of memory mappings while memory grows."""
_SMALLEST = 128 << 20
_COPIED = 1.4
_HELD = 0.9
"""Memory mappings are also read if much memory has become anonymous, and if the memory of all processes together is at
least this fraction of the maximum. Both are signs that mapped files were copied.
"""
_AT_REST_NS = 30 * _MS
_COVERED = 0.95
_MOST_PROCESSES = 8
_MAPPINGS = 0.25
"""The CPU budget for reading memory mappings (``/proc/PID/smaps``), as a fraction of the CPU budget for all other work.
"""


class MappingWatch:
    """Reads memory mappings (``/proc/PID/smaps``) when the memory of all processes together has a new maximum.

    The reading waits until memory stops rising for a moment. If memory has doubled and is still rising, mappings are
    read at most once a second.
    """

    def __init__(self, writer: Writer, budget: Budget) -> None:
        self._writer = writer
        self._budget = budget
        self._highest = _SMALLEST
        self._most_anonymous = self._read_ns = 0

    def look(self, watched: Collection[Watched], now_ns: int, rose_ns: int) -> None:
        """Read the mappings if they are due. ``rose_ns`` is the time when the memory of the tree last rose."""
        total = sum([process.growth.rss for process in watched])
        anonymous = total - sum([process.growth.shared for process in watched])
        has_budget = self._budget.mappings_s < self._budget.total_s * _MAPPINGS
        if not has_budget or not self._is_due(total, anonymous, now_ns, rose_ns):
            return
        begun_s = time.process_time()
        self._read_ns = now_ns
        self._highest = max(total, self._highest)
        self._most_anonymous = anonymous
        t_ns = time.monotonic_ns()
        covered = 0
        processes = []
        for largest in sorted(watched, key=lambda process: -process.growth.rss)[:_MOST_PROCESSES]:
            if covered >= total * _COVERED:
                break
            with contextlib.suppress(OSError):  # the process has ended, or belongs to another user
                groups = group_mappings(largest.process.read("smaps"))
                processes.append((largest.process.number, groups))
                covered += largest.growth.rss
        if processes:
            self._writer.line("mappings", {"t_ns": t_ns, "total": total, "processes": processes})
        self._budget.mappings_s += time.process_time() - begun_s

    def _is_due(self, total: int, anonymous: int, now_ns: int, rose_ns: int) -> bool:
        calm_ns = now_ns - rose_ns
        if total >= self._highest * (1 + _STEP_AT_REST) and calm_ns >= _RESTS_NS:
            return True
        is_at_rest = calm_ns >= _AT_REST_NS
        if total >= self._highest * (1 + _STEP):
            return is_at_rest or now_ns - self._read_ns >= _GROWING_EVERY_NS
        is_copied = anonymous >= (self._most_anonymous + _SMALLEST) * _COPIED
        return is_at_rest and is_copied and total >= self._highest * _HELD


_GROWING_NS = 200 * _MS
_WRITE_EVERY_NS = 5_000 * _MS
_CHECK_EVERY_NS = 500 * _MS


class Helper:
    """Watches a recording until it ends."""

    def __init__(self, order: Order, writer: Writer) -> None:
        self._writer = writer
        self._order = order
        parts = 1 + _MAPPINGS
        budget = Budget(order["share"] / parts, order["least_s"] / parts)
        self._mappings = MappingWatch(writer, budget)
        self._poller = select.poll()
        self._tree = TreeWatch(writer, order["sampler"], order["pid"], children=order["children"])
        self._stacks = StackTaker(writer, budget.is_left, is_allowed=order["stacks"])
        self._ranges = RangeWatch(writer, budget.is_left)
        self._pace = Pace(budget)

    def run(self, control: int) -> None:
        """Watch until the process that started this helper writes to ``control``, or until the sampler is gone.

        ``control`` is a file descriptor.
        """
        self._poller.register(control, select.POLLIN)
        facts = {
            "pid": os.getpid(),
            "t_ns": time.monotonic_ns(),
            "missing": self._order["missing"],
            "share": self._order["share"],
            "least_s": self._order["least_s"],
        }
        self._writer.line("helper", facts)
        tree = self._tree
        write_at_ns = check_at_ns = 0
        is_wanted = True
        ends_ns = time.monotonic_ns() + (self._order["duration_s"] or math.inf) * 1e9
        while is_wanted:
            now_ns = time.monotonic_ns()
            tree.poll(now_ns)
            step = self._pace.step(tree.held, now_ns)
            self._stacks.look(tree.watched, now_ns, tree.poll_again, step)
            self._ranges.look(tree.watched.values())
            if now_ns >= check_at_ns or now_ns - tree.rose_ns < _GROWING_NS:
                self._mappings.look(tree.watched.values(), now_ns, tree.rose_ns)
            if now_ns >= check_at_ns:
                check_at_ns = now_ns + _CHECK_EVERY_NS
                if not self._writer.flush():  # the disk is full, and other files need the space more than this log
                    break
                is_wanted = _is_alive(self._order["sampler"])
            if now_ns >= write_at_ns:
                write_at_ns = now_ns + _WRITE_EVERY_NS
                tree.write_points()
            is_wanted = self._sleep(now_ns, control) and is_wanted and now_ns < ends_ns
        self._stacks.close()
        tree.write_points()
        end = {
            "cpu_s": round(time.process_time(), 3),
            "readings": self._stacks.taken,
            "failed": self._stacks.failed,
        }
        self._writer.line("end", end)
        self._writer.flush()

    def _sleep(self, now_ns: int, control: int) -> bool:
        """Wait until the next poll. Return False if a message on ``control`` has ended the watch."""
        tree = self._tree
        rest_s = self._pace.rest_s(
            now_ns,
            tree.rose_fast_ns,
            rise=tree.rise,
            held=tree.held,
            readings=self._stacks.taken + self._stacks.failed,
        )
        if self._poller.poll(max(1.0, rest_s * 1e3)):
            if os.read(control, 64):
                return False
            self._poller.unregister(control)  # the starter is gone, but the recording goes on
        return True


def _is_alive(pid: int) -> bool:
    """Return whether a process runs. A zombie does not count, because a zombie may stay for ever."""
    try:
        with open(f"{PROC}/{pid}/statm", "rb") as file:
            return not file.read().startswith(b"0 ")
    except OSError:
        return False


def main(log: int) -> int:
    """Read the request (an ``Order``) from standard input, and watch the recording. Return the exit status.

    ``log`` is the file descriptor of the log.
    """
    with open(0, "rb", buffering=0, closefd=False) as control:
        text = control.readline()  # poll would not see bytes in a buffer
    if not text.endswith(b"\n"):
        return 0  # the starter has ended before the command began
    writer = Writer(log)
    try:
        Helper(json.loads(text), writer).run(0)
    except Exception as failure:  # noqa: BLE001 — the report repeats any error
        writer.line("failure", f"{type(failure).__name__}: {failure}")
        writer.flush()
        return 1
    return 0
