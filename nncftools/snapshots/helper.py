"""The helper process beside the sampler: watches a tree for growth, and takes stacks and mappings of what grew.

It polls ``statm`` of each process (10 µs) and never changes the command. Near each new maximum of the tree it reads
the mappings of the largest processes (``/proc/PID/smaps``, proc(5)). What it sees goes to a log of its own, line by
line, as ``nncftools.session.snapshots`` describes. Nobody depends on it: if it dies, only stacks and mappings are
missing.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import re
import select
import time
from operator import add

from nncftools.journal.writing import Writer
from nncftools.snapshots.budget import Budget, Pace
from nncftools.snapshots.range_watch import RangeWatch
from nncftools.snapshots.stack_taker import StackTaker
from nncftools.snapshots.tree_watch import PROC, TreeWatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import TypedDict, TypeVar

    from nncftools.snapshots.tree_watch import Watched

    Key = TypeVar("Key")

    class Order(TypedDict):
        """What to watch, and at what cost."""

        sampler: int
        """The PID of the sampler, which is the parent of the command and of orphans."""
        pid: int | None
        """The process that a recording is attached to; None when the sampler starts a command."""
        children: bool
        """Whether descendants belong to the run."""
        duration_s: float | None
        """When to stop although the run goes on, in seconds from now."""
        stacks: bool
        """Whether to take stacks."""
        missing: str | None
        """Why no stacks are taken, or not of every process."""
        share: float
        """Of one core's time."""
        least_s: float
        """CPU seconds that may be spent in any case."""


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
ANONYMOUS, STACK, SHARED = "anonymous", "stack", "shared"
FILE, OTHER_FILES, LIBRARIES = "file", "other_files", "libraries"


def groups(smaps: bytes) -> list[tuple[str, str, list[int]]]:
    """Return kind, name and bytes of each group: RSS, shared clean and dirty, private clean and dirty, anonymous.

    Large files have a group of their own, named by their path. In a group of files, anonymous pages are copies: the
    process has written to its private mapping.
    """
    mappings: dict[bytes, list[int]] = {}
    executable = set()
    for match in _MAPPING.finditer(smaps):
        rights, name, *sizes = match.groups()
        if b"x" in rights and name.startswith(b"/"):
            executable.add(name)
        if sizes[0] != b"0":
            _add(mappings, name, [int(size) * 1024 for size in sizes])
    kinds = {name: _kind(name) for name in mappings}
    of_files = sorted((figures[0] for name, figures in mappings.items() if kinds[name] == FILE), reverse=True)
    least = max([_SMALLEST_FILE, *of_files[_MOST_FILES - 1 : _MOST_FILES]])
    merged: dict[tuple[str, str], list[int]] = {}
    for name, figures in mappings.items():
        kind, file = kinds[name], ""
        if kind == FILE and name in executable:
            kind = LIBRARIES
        elif kind == FILE and figures[0] < least:
            kind = OTHER_FILES
        elif kind == FILE:
            file = name.removesuffix(b" (deleted)").decode(errors="backslashreplace")
        _add(merged, (kind, file), figures)
    return [(*key, figures) for key, figures in sorted(merged.items(), key=lambda item: -item[1][0])]


def _add(sums: dict[Key, list[int]], key: Key, sizes: list[int]) -> None:
    sums[key] = list(map(add, sums[key], sizes)) if key in sums else sizes


def _kind(name: bytes) -> str:
    if name.startswith(_SHARED):
        return SHARED
    if name.startswith(b"/"):
        return LIBRARIES if b".so" in name.rpartition(b"/")[2] else FILE
    return STACK if name.startswith(b"[stack") else ANONYMOUS


_STEP = 1.0
"""While memory grows, mappings are read when it has doubled: all readings together cost twice the last one."""
_STEP_AT_REST, _RESTS_NS = 0.05, 300_000_000
"""They are also read when memory is higher by this part, and has not risen for so long."""
_GROWING_EVERY_NS = 1_000_000_000
"""While memory grows, mappings are read so often."""
_SMALLEST = 128 << 20
_COPIED = 1.4
_HELD = 0.9
"""If the tree still holds this part of its maximum, and much of it became anonymous, mapped files were copied."""
_AT_REST_NS = 30_000_000
_COVERED = 0.95
_MOST_PROCESSES = 8


class MappingWatch:
    """Reads mappings when the tree holds more than ever and stays there for a moment, or grows for long."""

    def __init__(self, writer: Writer, share: float, least_s: float) -> None:
        self.spent_s = 0.0
        """CPU seconds so far."""
        self._writer = writer
        self._budget = Budget(share, least_s, own_cpu=lambda: self.spent_s)
        self._highest = _SMALLEST
        self._most_anonymous = self._read_ns = 0

    def look(self, watched: Collection[Watched], now_ns: int, rose_ns: int) -> None:
        """Read the mappings if it is time to; ``rose_ns`` is when the memory of the tree last rose."""
        total = sum([process.growth.rss for process in watched])
        at_rest = now_ns - rose_ns >= _AT_REST_NS
        anonymous = sum([process.growth.rss - process.growth.shared for process in watched])
        is_more_anonymous = anonymous >= (self._most_anonymous + _SMALLEST) * _COPIED
        is_copied = at_rest and is_more_anonymous and total >= self._highest * _HELD
        is_more = total >= self._highest * (1 + _STEP) and (at_rest or now_ns - self._read_ns >= _GROWING_EVERY_NS)
        is_more |= total >= self._highest * (1 + _STEP_AT_REST) and now_ns - rose_ns >= _RESTS_NS
        if self._budget.left_s <= 0 or not (is_more or is_copied):
            return
        self._read_ns = now_ns
        before_s = time.process_time()
        self._highest, self._most_anonymous = max(total, self._highest), anonymous
        t_ns, covered, described = time.monotonic_ns(), 0, []
        for largest in sorted(watched, key=lambda process: -process.growth.rss)[:_MOST_PROCESSES]:
            if covered >= total * _COVERED:
                break
            with contextlib.suppress(OSError):  # it has ended, or belongs to another user
                described.append((largest.process.number, groups(largest.process.read("smaps"))))
                covered += largest.growth.rss
        if described:
            self._writer.line("mappings", {"t_ns": t_ns, "total": total, "processes": described})
        self.spent_s += time.process_time() - before_s


_GROWING_NS = 200_000_000
_WRITE_EVERY_NS = 5_000_000_000
_CHECK_EVERY_NS = 500_000_000
_OF_MAPPINGS = 0.2
"""The part of the budget that is for mappings."""


class Helper:
    """Watches one recording until it ends."""

    def __init__(self, order: Order, writer: Writer) -> None:
        self._writer = writer
        self._order = order
        share, least_s = order["share"], order["least_s"]
        self._mappings = mappings = MappingWatch(writer, share * _OF_MAPPINGS, least_s * _OF_MAPPINGS)
        left = 1 - _OF_MAPPINGS
        self._budget = Budget(share * left, least_s * left, own_cpu=lambda: time.process_time() - mappings.spent_s)
        self._poller = select.poll()
        self._tree = TreeWatch(writer, order["sampler"], order["pid"], children=order["children"])
        self._stacks = StackTaker(writer, self._budget, is_allowed=order["stacks"])
        self._ranges = RangeWatch(writer, self._budget)
        self._pace = Pace(self._budget)

    def run(self, control: int) -> None:
        """Watch until the starter says so on ``control``, or the sampler is gone."""
        self._poller.register(control, select.POLLIN)
        facts = {"pid": os.getpid(), "t_ns": time.monotonic_ns(), "missing": self._order["missing"]}
        self._writer.line("helper", {**facts, "share": self._order["share"], "least_s": self._order["least_s"]})
        write_at_ns = check_at_ns = 0
        is_wanted = True
        ends_ns = time.monotonic_ns() + (self._order["duration_s"] or math.inf) * 1e9
        while is_wanted:
            now_ns = time.monotonic_ns()
            self._tree.poll(now_ns)
            step = self._pace.step(self._tree.held, now_ns)
            self._stacks.look(self._tree.watched, now_ns, self._tree.poll_again, step)
            self._ranges.look(self._tree.watched.values())
            if now_ns - self._tree.rose_ns < _GROWING_NS:
                self._mappings.look(self._tree.watched.values(), now_ns, self._tree.rose_ns)
            if now_ns >= check_at_ns:
                check_at_ns = now_ns + _CHECK_EVERY_NS
                self._mappings.look(self._tree.watched.values(), now_ns, self._tree.rose_ns)
                if not self._writer.flush():  # the disk is full, and this log is the first to do without
                    break
                is_wanted = _lives(self._order["sampler"])
            if now_ns >= write_at_ns:
                write_at_ns = now_ns + _WRITE_EVERY_NS
                self._tree.write_points()
                self._ranges.forget(self._tree.watched.values())
            is_wanted = self._sleep(now_ns, control) and is_wanted and now_ns < ends_ns
        self._stacks.close()
        self._tree.write_points()
        cpu_s = round(self._budget.own_cpu() + self._mappings.spent_s, 3)
        self._writer.line("end", {"cpu_s": cpu_s, "readings": self._stacks.taken, "failed": self._stacks.failed})
        self._writer.flush()

    def _sleep(self, now_ns: int, control: int) -> bool:
        """Wait until the next poll; return False when the starter has asked for the end."""
        tree = self._tree
        readings = self._stacks.taken + self._stacks.failed
        rest_s = self._pace.rest_s(now_ns, tree.rose_fast_ns, tree.rise, tree.held, readings)
        if self._poller.poll(max(1.0, rest_s * 1e3)):
            if os.read(control, 64):
                return False
            self._poller.unregister(control)  # the starter is gone; the recording goes on
        return True


def _lives(pid: int) -> bool:
    """Return whether a process runs: a zombie, which nobody may ever reap, has no memory."""
    try:
        with open(f"{PROC}/{pid}/statm", "rb") as file:
            return not file.read().startswith(b"0 ")
    except OSError:
        return False


def main(log: int) -> int:
    """Watch as the order on standard input asks; return the exit status."""
    gc.disable()
    with open(0, "rb", buffering=0, closefd=False) as control:
        text = control.readline()  # without a buffer, what follows is left for the poll
    if not text.endswith(b"\n"):
        return 0  # the starter is gone before the command began
    writer = Writer(log)
    try:
        Helper(json.loads(text), writer).run(0)
    except Exception as failure:  # noqa: BLE001 — whatever it is, the report can say it
        writer.line("failure", f"{type(failure).__name__}: {failure}")
        writer.flush()
        return 1
    return 0
