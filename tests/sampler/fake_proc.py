"""A proc directory made of plain files, for what a live machine does not do on demand."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from typing import TYPE_CHECKING, Any

from nncftools.journal.writing import Plan
from nncftools.sampler.probes import list_references, load_probe
from nncftools.sampler.proc_source import ProcSource
from nncftools.sampler.tree import PAGE, UNREADABLE, Common, Process, Tree

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import pytest

FILES = ("stat", "io", "status")
KIB = 1024
STATUS = (
    "Name:\t{name}\nState:\t{state}\nGroups:\t\nVmHWM:\t  {mark} kB\nVmRSS:\t  {kib} kB\n"
    "RssAnon:\t  5 kB\nRssFile:\t  6 kB\nRssShmem:\t  7 kB\nVmSwap:\t  8 kB\nThreads:\t1\nHugetlbPages:\t  {huge} kB\n"
)
ZOMBIE_STATUS = "Name:\t{name}\nState:\tZ (zombie)\nGroups:\t\nThreads:\t1\nHugetlbPages:\t  {huge} kB\n"
IO = "rchar: {}\nwchar: {}\nsyscr: 1\nsyscw: 1\nread_bytes: {}\nwrite_bytes: {}\ncancelled_write_bytes: 0\n"
MEMINFO = "MemTotal:    1000 kB\nMemFree:        1 kB\nMemAvailable:    400 kB\nBuffers:        3 kB\n"

Told = list[tuple[str, Any]]
Four = tuple[int, int, int, int]


class FakeProc:
    """A proc directory whose processes are files that a test writes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.forks = 0
        self.started = 4711
        """Start time of processes that are added from now on, in ticks since the machine's start."""
        self.add(1, name="first")

    def add(  # noqa: PLR0913 — one parameter per figure
        self,
        pid: int,
        *,
        name: str = "",
        state: str = "S",
        threads: dict[int, list[int]] | None = None,
        pages: int = 10,
        mark: int | None = None,
        ticks: Four = (0, 0, 0, 0),
        faults: Four = (1, 2, 3, 4),
        io: Four = (0, 0, 0, 0),
        code: int = 4,
        huge: int = 0,
    ) -> None:
        """Write a process, by default with a command of its own; ``threads`` holds the children of each thread.

        ``faults`` are minor and major ones, each followed by those of reaped children; ``io`` is what was read and
        written by system calls, then by storage: the order of the kernel's files. ``mark`` is the high-water mark in
        pages, by default ``pages``. ``code`` is where the code of its program begins: 0 for none, 1 if it is hidden.
        ``huge`` are KiB in hugetlb pages.
        """
        name = name or f"name{pid}"
        threads = threads or {pid: []}
        folder = self.root / str(pid)
        for thread, children in threads.items():
            (folder / "task" / str(thread)).mkdir(parents=True, exist_ok=True)
            (folder / "task" / str(thread) / "children").write_text("".join(f"{child} " for child in children))
        counts = " ".join(map(str, (*faults, *ticks)))
        sizes = f"{pages * 2 * PAGE} {pages} 0 {code}"
        kib, of_mark = (size * PAGE // KIB for size in (pages, pages if mark is None else mark))
        status = (ZOMBIE_STATUS if state == "Z" else STATUS).format(
            name=name, state=state, kib=kib, mark=of_mark, huge=huge
        )
        files = {
            "stat": f"{pid} ({name}) {state} 0 0 0 0 0 0 {counts} 20 0 {len(threads)} 0 {self.started} {sizes} 7 8 0\n",
            "io": IO.format(*io),
            "comm": f"{name}\n",
            "cmdline": "" if state == "Z" else f"{name}\0--option\0",
            "status": status.format(name=name, state=state, kib=kib, mark=of_mark, huge=huge),
        }
        for file, text in files.items():
            (folder / file).write_text(text)
        self.fork()

    def add_zombie(self, pid: int, *, ticks: Four = (0, 0, 0, 0), io: Four = (0, 0, 0, 0)) -> None:
        """Write a process that has ended and was not yet reaped."""
        self.add(pid, state="Z", pages=0, ticks=ticks, io=io)

    def set_children(self, pid: int, *children: int) -> None:
        """Write the children of a process's main thread."""
        (self.root / f"{pid}/task/{pid}/children").write_text("".join(f"{child} " for child in children))
        self.fork()

    def fork(self) -> None:
        """Let the kernel assign a new PID."""
        self.forks += 1
        (self.root / "loadavg").write_text(f"0.10 0.20 0.30 1/100 {self.forks}\n")

    def tree(
        self,
        common: Common | None = None,
        *,
        children: bool = True,
        reaper: int | None = None,
    ) -> Tree:
        """Return the tree of process 1."""
        tree = Tree(str(self.root), FILES, reaper=reaper, children=children)
        tree.common = common or tree.common
        tree.add(1)
        return tree

    def process(self, pid: int = 1) -> Process:
        """Return a process by itself."""
        return Process(str(self.root), pid, None, 0, files=FILES, common=Common())

    def source(self, *columns: str, **fields: Any) -> tuple[ProcSource, Told]:  # noqa: ANN401 — any field of the plan
        """Return a source of these columns for process 1, and the list of its journal lines."""
        (self.root / "meminfo").write_text(MEMINFO)
        told: Told = []
        plan = Plan(columns, **fields)
        probes = [load_probe(reference) for reference in list_references(columns)]
        return self.opened(plan, probes, told), told

    def opened(self, plan: Plan, probes: Sequence[Any], told: Told) -> ProcSource:
        """Return a source of process 1, which was there before, with these probes."""
        begun_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        write_line = lambda *line: told.append(line)  # noqa: E731 — as short as it is
        return ProcSource(plan, 1, probes, write_line, reaper=None, begun_s=begun_s, root=str(self.root))


def pids(processes: list[Process]) -> list[int]:
    """Return the PIDs."""
    return [process.pid for process in processes]


def facts(told: Told) -> dict[int, dict[str, Any]]:
    """Return all facts of each process, by its number: later lines add to earlier ones."""
    found: dict[int, dict[str, Any]] = {}
    for key, value in told:
        if key == "process":
            found.setdefault(value["id"], {}).update(value)
    return found


def vanish(process: Process) -> None:
    """Make every read of a process fail from now on, as in the kernel when the process was reaped."""
    child = subprocess.Popen(["true"])
    gone = os.open(f"/proc/{child.pid}/stat", os.O_RDONLY)
    folder = os.open(f"/proc/{child.pid}", os.O_RDONLY | os.O_DIRECTORY)
    child.wait()
    for descriptor in (*process.files, *process.threads.values()):
        if descriptor != UNREADABLE:
            os.dup2(gone, descriptor, inheritable=False)
    os.dup2(folder, process.directory, inheritable=False)
    os.close(gone)
    os.close(folder)


def none_kept() -> Common:
    """Return a state of a tree that permits no kept descriptor."""
    common = Common()
    common.below = 0
    return common


def none_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every open fail from now on, as at the limit of open files."""

    def full(*_: object, **__: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "open", full)


def locking(file: str) -> Callable[..., int]:
    """Return an ``os.open`` that finds ``file`` locked, as the kernel locks another user's (proc(5), ptrace(2))."""
    unlocked = os.open

    def opened(path: str, flags: int, *rest: Any, **options: Any) -> int:  # noqa: ANN401 — passed on to os.open
        if path == file:
            raise PermissionError(13, "Permission denied", path)
        return unlocked(path, flags, *rest, **options)

    return opened
