"""What a recording tells of single processes, each in its time: who they are, what they held, how they ended."""

from __future__ import annotations

import time

from nncftools.sampler.kernel_file import PAGE, TICKS_PER_S
from nncftools.sampler.probes.status import value_of
from nncftools.sampler.target import exit_status
from nncftools.sampler.tree import NAME_BESIDE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from nncftools.journal.lines import ExitStatus
    from nncftools.sampler.exits import Exit
    from nncftools.sampler.tree import Process, Tree

_PARENTLESS_MOST = 4096
"""Ended processes of unknown parents that are kept, because the parent may turn out to belong to the tree."""
_LISTED_MOST = 100_000
"""Beyond this number, processes that ended unseen are counted, and told only when larger than all before."""

_ENDING_S = 1.0
"""So long after the kernel has told its end, a process may still be found: it gives back its memory first."""


class Roster:
    """Tells the journal of the processes of a tree, those included that ended before they were ever seen."""

    def __init__(
        self, tree: Tree, tell: Callable[[str, object], None], *, reaper: int | None, accounting: bool
    ) -> None:
        """Tell of ``tree`` and of orphans, which become children of ``reaper``; with ``accounting``, ends are told."""
        self._accounting = accounting
        self._tree = tree
        self._tell = tell
        self._reaper = reaper
        self._boot_at_start_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        self._parentless: dict[int, list[Exit]] = {}
        self._kept = 0
        self._unlisted = 0
        self._largest_unlisted = 0
        self._just_ended: dict[int, float] = {}

    def introduce(self, process: Process, now_s: float) -> None:
        """Tell of a process that was found, and of its children that had ended before.

        One whose end was told already still is a zombie, or about to be: it stays in the tree for its CPU time alone.
        """
        if process.pid in self._just_ended or (process.was_zombie and self._accounting):
            return
        process.introduced = True
        start_s = process.started_ticks / TICKS_PER_S - self._boot_at_start_s
        if -1 / TICKS_PER_S <= start_s < 0:  # the kernel rounds down to a tick
            start_s = 0.0
        if start_s < 0:
            process.mark_before = _high_water_mark(process)
        parent = process.parent.number if process.parent is not None else None
        born = {"pid": process.pid, "parent": parent, "start_s": round(start_s, 2)}
        self._tell("process", {**_identity(process), **born})
        self._adopt(process.pid, process.number, now_s)

    def leave_out(self, process: Process) -> None:
        """Take back a process that turned out to be the sampler of a program that records itself."""
        self._tree.remove(process)
        self._tell("process", {"id": process.number, "left_out": True})

    def identify(self, process: Process) -> None:
        """Read the name again, which the process may have had from its parent before its exec."""
        if process.alive and process.introduced and process.identify():
            self._tell("process", _identity(process))

    def weigh(self, process: Process) -> None:
        """Read the high-water mark that the kernel keeps of a living process."""
        mark = _high_water_mark(process)
        if process.introduced and mark > max(process.high_water_mark or 0, process.mark_before):
            process.high_water_mark = mark
            self._tell("process", _figures(process))

    def account(self, exits: Iterable[Exit], now_s: float) -> None:
        """Take what the kernel told of processes that have ended."""
        while self._just_ended and now_s - next(iter(self._just_ended.values())) > _ENDING_S:
            del self._just_ended[next(iter(self._just_ended))]
        for ended in exits:
            if ended.name == NAME_BESIDE:
                continue
            process = self._tree.get(ended.pid)
            parent = self._tree.get(ended.parent_pid)
            if process is not None and process.introduced:
                process.exit = ended
            elif not self._tree.children:
                continue
            elif process is not None or parent is not None or ended.parent_pid == self._reaper:
                number = None if process is None else process.number
                self._tell_unseen(ended, None if parent is None else parent.number, now_s, number)
            else:
                self._keep(ended)

    def _keep(self, ended: Exit) -> None:
        self._parentless.setdefault(ended.parent_pid, []).append(ended)
        self._kept += 1
        while self._kept > _PARENTLESS_MOST:
            self._kept -= len(self._parentless.pop(next(iter(self._parentless))))

    def _adopt(self, pid: int, number: int, now_s: float) -> None:
        children = self._parentless.pop(pid, ())
        self._kept -= len(children)
        for ended in children:
            self._tell_unseen(ended, number, now_s)

    def _tell_unseen(self, ended: Exit, parent: int | None, now_s: float, number: int | None = None) -> None:
        self._just_ended[ended.pid] = now_s
        if self._tree.count >= _LISTED_MOST and ended.high_water_mark <= self._largest_unlisted:
            self._unlisted += 1
            return
        self._largest_unlisted = max(self._largest_unlisted, ended.high_water_mark)
        if number is None:
            number = self._tree.count
            self._tree.count += 1
        facts = {"id": number, "pid": ended.pid, "parent": parent, "name": ended.name, "forked_copy": ended.forked_copy}
        start_s = max(0.0, now_s - ended.elapsed_s)
        self._tell("process", {**facts, "start_s": round(start_s, 6), "end_s": round(now_s, 6), **_accounted(ended)})
        self._adopt(ended.pid, number, now_s)

    def forget(self, process: Process, now_s: float, status: ExitStatus | None, limit: int | None) -> None:
        """Tell how a process ended; ``limit`` is the ``ru_maxrss`` that came with its status, in bytes."""
        if not process.introduced:
            return
        figures = {**_figures(process), "end_s": round(now_s, 6), "exit": status}
        if limit is not None:
            figures["high_water_limit"] = limit
        if process.exit is not None:
            figures.update(_accounted(process.exit, process.mark_before))
        self._tell("process", figures)

    def last(self, process: Process) -> None:
        """Tell the last figures of a process that outlives the recording."""
        if process.introduced:
            self._tell("process", _figures(process))

    def close(self) -> None:
        """Tell how many processes are not listed."""
        if self._unlisted:
            self._tell("warning", f"{self._unlisted:,} more processes, all small and short-lived, are not listed")


def _high_water_mark(process: Process) -> int:
    """Return VmHWM in bytes, 0 for a process that is gone or a zombie."""
    try:
        return value_of(process.read("status"), b"\nVmHWM:") or 0
    except OSError:
        return 0


def _identity(process: Process) -> dict[str, object]:
    return {
        "id": process.number,
        "name": process.name,
        "command": process.command,
        "forked_copy": process.forked_copy,
    }


def _figures(process: Process) -> dict[str, object]:
    return {
        "id": process.number,
        "samples": process.samples,
        "peak_rss": process.peak_rss * PAGE if process.samples else None,
        "high_water_mark": process.high_water_mark,
        "high_water_limit": process.mark_before or None,
        "cpu_s": process.cpu_ticks / TICKS_PER_S,
    }


def _accounted(ended: Exit, mark_before: int = 0) -> dict[str, object]:
    is_of_now = ended.high_water_mark > mark_before
    return {
        "high_water_mark": ended.high_water_mark if is_of_now else None,
        "accounted": True,
        "cpu_s": round(ended.cpu_s, 6),
        "exit": exit_status(ended.wait_status),
    }
