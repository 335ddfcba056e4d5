"""The journal's records of single processes: who they are, how much memory they held, how they ended, what they read.

The pages of files that the processes read are in the page cache: with less memory than all of them, what is read twice
comes from storage twice. A file on a network may not answer, so a thread looks at the open files.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import stat
import time

from nncftools.journal.writing import span
from nncftools.sampler.tree import PAGE, TICKS_PER_S, value_of

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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

    def __init__(self, tree: Tree, write_line: WriteLine, begun_s: float) -> None:
        """``begun_s`` is when the recording began, in seconds since the machine's start (CLOCK_BOOTTIME)."""
        self._tree = tree
        self._write_line = write_line
        self._begun_s = begun_s
        self._barriers: dict[int, list[str]] = {}
        """By process: what kept it from the marks log at some moment."""

    def add(self, process: Process) -> None:
        """Record a process that was found."""
        start_s = process.started_ticks / TICKS_PER_S - self._begun_s  # rounded down to a tick: never too late
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
        "hugetlb": process.kinds.hugetlb or None,
        "cpu_s": max(0, process.cpu_ticks - process.earlier_ticks) / TICKS_PER_S,
    }


_MUCH = 16 << 20
"""Bytes that are read between two looks."""
_SHARE = 100
"""A look is followed by at least this many times the CPU time that it took, and by ``SOONEST_S``."""
SOONEST_S = 0.1
_MOST_PROCESSES = 8
_MOST_FILES = 10_000
_NOT_FILES = ("/dev/", "/proc/", "/sys/")


class FilesRead:
    """Looks at the open files of the largest processes, and writes new ones to the journal."""

    def __init__(self, write_line: WriteLine) -> None:
        self._write_line = write_line
        self.is_due = False
        """Whether the processes have read much since the last look."""
        self._due_at = float(_MUCH)
        """A look is due when all processes have read so many bytes."""
        self._again_s = 0.0
        self._running = False
        self._new_files: dict[str, int] = {}
        self._sizes: dict[str, int] = {}

    def watch(self, read: float, processes: Sequence[Process]) -> None:
        """Look again if that is due, and not too soon; all processes have read so many bytes so far."""
        self.is_due = read >= self._due_at
        if not self.is_due or self._running or time.monotonic() < self._again_s:
            return
        self.write()
        self.is_due = False
        self._due_at = read + _MUCH if len(self._sizes) <= _MOST_FILES else float("inf")
        largest = sorted(processes, key=lambda process: process.rss, reverse=True)[:_MOST_PROCESSES]
        self._running = True
        try:
            _thread.start_new_thread(self._look, ([process.path for process in largest],))
        except RuntimeError:  # the limit of threads
            self._running = False

    def write(self) -> None:
        """Write the files that were found since the last call."""
        if self._running:
            return
        new = {path: size for path, size in self._new_files.items() if size > self._sizes.get(path, 0)}
        self._new_files = {}
        if new:
            self._sizes.update(new)
            self._write_line("files_read", {"files": list(new.items())})

    def _look(self, folders: Iterable[str]) -> None:
        begun_s = time.thread_time()
        files: dict[str, int] = {}
        for folder in folders:
            with contextlib.suppress(OSError):  # it has ended, or belongs to another user
                _add_files(folder, files)
        self._new_files = files
        self._again_s = time.monotonic() + max(SOONEST_S, _SHARE * (time.thread_time() - begun_s))
        self._running = False


def _add_files(folder: str, files: dict[str, int]) -> None:
    for number in os.listdir(f"{folder}/fd"):
        with contextlib.suppress(OSError):
            path = os.fsencode(os.readlink(f"{folder}/fd/{number}")).decode(errors="backslashreplace")
            if path in files or not path.startswith("/") or path.startswith(_NOT_FILES):
                continue
            facts = os.stat(f"{folder}/fd/{number}")
            if stat.S_ISREG(facts.st_mode) and _is_read(f"{folder}/fdinfo/{number}"):
                files[path] = facts.st_size


def _is_read(fdinfo: str) -> bool:
    """Return whether a descriptor was opened for reading (``flags`` of fdinfo are octal, proc(5)). Raises OSError."""
    with open(fdinfo, "rb") as file:
        flags = int(file.read(200).partition(b"flags:")[2].split(None, 1)[0], 8)
    return flags & os.O_ACCMODE != os.O_WRONLY
