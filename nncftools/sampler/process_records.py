"""The journal's records of single processes: who they are, how much memory they held, how they ended."""

from __future__ import annotations

import contextlib
import os
import time

from nncftools.journal.writing import span
from nncftools.sampler.tree import PAGE, TICKS_PER_S, value_of

TYPE_CHECKING = False

if TYPE_CHECKING:
    from nncftools.journal.reading import ExitStatus
    from nncftools.sampler.tree import Process, Tree, WriteLine


USER, ROOT, CLOCK = "user", "root", "clock"


def log_barriers(process: Process) -> list[str]:
    """Return which of these differ from our own; what the kernel does not tell is left out."""
    barriers = {
        USER: process.read_user() not in {None, 0, os.geteuid()},
        ROOT: process.differs("root", "/"),
        CLOCK: process.differs("ns/time", "/proc/self/ns/time"),
    }
    return [barrier for barrier, differs in barriers.items() if differs]


class ProcessRecords:
    """Writes the records of a tree's processes."""

    def __init__(self, tree: Tree, write_line: WriteLine) -> None:
        self._tree = tree
        self._write_line = write_line
        self._boot_at_start_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        self._barriers: dict[int, list[str]] = {}
        """By process: what kept it from the marks log at some moment."""

    def add(self, process: Process) -> None:
        """Record a process that was found."""
        start_s = process.started_ticks / TICKS_PER_S - self._boot_at_start_s  # rounded down to a tick: never too late
        if -1 / TICKS_PER_S <= start_s < 0:
            start_s = 0.0
        if start_s < 0:
            with contextlib.suppress(OSError):  # it has ended meanwhile
                process.earlier_mark = process.mark.size = value_of(process.read("status"), b"\nVmHWM:") or 0
                process.earlier_ticks = sum(map(int, process.read("stat").rpartition(b")")[2].split()[11:13]))
        process.mark.sampled_s = max(0.0, start_s)
        parent = process.parent.number if process.parent is not None else None
        born = {"pid": process.pid, "parent": parent, "start_s": round(start_s, 6)}
        self._write_line("process", {**self._identity(process), **born})

    def discard(self, process: Process) -> None:
        """Take back the record of a process that turned out to be the sampler of a program that records itself."""
        self._tree.remove(process)
        self._write_line("process", {"id": process.number, "left_out": True})

    def update_identity(self, process: Process, *, at_end: bool = False) -> None:
        """Read the name again: before its exec, a process has its parent's.

        What keeps it from the marks log is looked for once for each program, and at the end: that takes 25 µs.
        """
        if not process.alive:
            return
        has_changed = process.identify()
        if has_changed or at_end or process.number not in self._barriers:
            known = self._barriers.setdefault(process.number, [])
            new = [barrier for barrier in log_barriers(process) if barrier not in known]
            known += new
            has_changed |= bool(new)
        if has_changed:
            self._write_line("process", self._identity(process))

    def _identity(self, process: Process) -> dict[str, object]:
        facts = {"name": process.name, "command": process.command, "forked_copy": process.forked_copy}
        barriers = self._barriers.get(process.number)
        return {"id": process.number, **facts, **({"apart": barriers} if barriers else {})}

    def note_exec(self, process: Process, from_s: float, to_s: float) -> None:
        """Record that a process began to run another program between two moments, if it did.

        Its code and its stack are at other addresses then. While it ends, and during exec, it has none: the code is at
        0. While the kernel hides them from us (ptrace(2)), as after seteuid(2), the code is at 1.
        """
        if process.hidden_from_s is not None:
            from_s = process.hidden_from_s
        process.hidden_from_s = from_s if process.image[0] == b"1" else None
        if process.image[0] in {b"0", b"1"}:
            return
        if process.image != process.known_image:
            if process.known_image:
                self._write_line("exec", {"id": process.number, **span(from_s, to_s)})
            process.known_image = process.image

    def update_high_water_mark(self, process: Process) -> None:
        """Record the high-water mark of a running process if it rose."""
        if process.high_water_mark != process.mark.written:
            process.mark.written = process.high_water_mark
            self.write_figures(process)

    def write_end(self, process: Process, now_s: float, status: ExitStatus | None, limit: int | None) -> None:
        """Record the end of a process; ``limit`` is the ``ru_maxrss`` that came with its status, in bytes."""
        figures = {**_figures(process), "end_s": round(now_s, 6), "exit": status}
        if limit is not None:
            figures["high_water_limit"] = limit
        self._write_line("process", figures)

    def write_figures(self, process: Process) -> None:
        """Record the figures of a process so far."""
        self._write_line("process", _figures(process))


def _figures(process: Process) -> dict[str, object]:
    return {
        "id": process.number,
        "counted_s": None if process.counted_s is None else round(process.counted_s, 6),
        "first_rss": process.first_rss * PAGE or None,
        "samples": process.samples,
        "peak_rss": process.peak_rss * PAGE if process.samples else None,
        "peak_s": None if process.mark.peak_s is None else round(process.mark.peak_s, 6),
        "high_water_mark": process.high_water_mark,
        "high_water_limit": process.earlier_mark or None,
        "cpu_s": max(0, process.cpu_ticks - process.earlier_ticks) / TICKS_PER_S,
    }
