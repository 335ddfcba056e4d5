"""The helper process beside the sampler: watches a tree for growth, and takes stacks and mappings of what grew.

It polls ``statm`` of each process (10 µs) and never changes the command. What it sees goes to a log of its own, line by
line, as ``nncftools.session.snapshots`` describes. Nobody depends on it: if it dies, only stacks are missing.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import time

from nncftools.journal.writing import Writer
from nncftools.snapshots.budget import Budget, Pace
from nncftools.snapshots.looks import Looks
from nncftools.snapshots.mappings import MappingWatch
from nncftools.snapshots.tree_watch import PROC, TreeWatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

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


_GROWING_NS = 200_000_000
_WRITE_EVERY_NS = 5_000_000_000
_CHECK_EVERY_NS = 500_000_000
_OF_MAPPINGS = 0.25
"""The part of the budget that is for mappings."""


class Helper:
    """Watches one recording until it ends."""

    def __init__(self, order: Order, writer: Writer) -> None:
        self._writer = writer
        self._order = order
        share, least_s = order["share"], order["least_s"]
        self._mappings = mappings = MappingWatch(writer, share * _OF_MAPPINGS, least_s * _OF_MAPPINGS)
        self._budget = Budget(
            share * (1 - _OF_MAPPINGS),
            least_s * (1 - _OF_MAPPINGS),
            own_cpu=lambda: time.process_time() - mappings.spent_s,
        )
        self._poller = select.poll()
        self._tree = TreeWatch(writer, order["sampler"], order["pid"], children=order["children"])
        self._looks = Looks(writer, self._budget, self._poller, order["py_spy"])
        self._pace = Pace(self._budget)

    def run(self, control: int) -> None:
        """Watch until the starter says so on ``control``, or the sampler is gone."""
        self._poller.register(control, select.POLLIN)
        facts = {"pid": os.getpid(), "t_ns": time.monotonic_ns(), "missing": self._order["missing"]}
        self._writer.line("helper", {**facts, "share": self._order["share"], "least_s": self._order["least_s"]})
        write_at_ns = check_at_ns = 0
        is_wanted = True
        while is_wanted:
            now_ns = time.monotonic_ns()
            self._tree.poll(now_ns)
            if self._looks.finish():
                self._tree.write_points()
            if now_ns - self._tree.rose_ns < _GROWING_NS:
                self._looks.begin(self._tree.watched, now_ns)
                self._mappings.look(self._tree.watched, now_ns, self._tree.rose_ns)
            if now_ns >= check_at_ns:
                check_at_ns = now_ns + _CHECK_EVERY_NS
                self._mappings.look(self._tree.watched, now_ns, self._tree.rose_ns)
                is_wanted = _lives(self._order["sampler"])
            if now_ns >= write_at_ns:
                write_at_ns = now_ns + _WRITE_EVERY_NS
                self._tree.write_points()
            if not self._writer.flush():  # the disk is full, and this log is the first to do without
                break
            is_wanted = self._sleep(now_ns, control) and is_wanted
        self._close()

    def _sleep(self, now_ns: int, control: int) -> bool:
        """Wait until the next poll, or the end of a dump; return False when the starter has asked for the end."""
        rest_s = self._pace.rest_s(now_ns, self._tree.rose_fast_ns)
        for descriptor, _ in self._poller.poll(max(1.0, rest_s * 1e3)):
            if descriptor == control:
                if os.read(control, 64):
                    return False
                self._poller.unregister(control)  # the starter is gone; the recording goes on
        return True

    def _close(self) -> None:
        self._looks.close()
        self._tree.write_points()
        cpu_s = round(self._budget.spent_s + self._mappings.spent_s, 3)
        self._writer.line("end", {"cpu_s": cpu_s, "looks": self._looks.taken, "failed": self._looks.failed})
        self._writer.flush()


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
    text = b""
    while not text.endswith(b"\n"):
        data = os.read(0, 4096)
        if not data:
            return 0  # the starter is gone before the command began
        text += data
    with contextlib.suppress(OSError):
        Helper(json.loads(text), Writer(log)).run(0)
    return 0
