"""Which processes belong to the run: the root and all its descendants, orphans too.

Directories and files of ``/proc/PID`` are opened once and kept: a kept descriptor costs 1 µs to read again and cannot
be fooled by a reused PID (a read of a process that is gone fails with ESRCH).
"""

from __future__ import annotations

import errno
import os

from nncftools.sampler.kernel_file import read_all
from nncftools.sampler.probes.stat import STARTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nncftools.sampler.exits import Exit

UNREADABLE = -1
BESIDE = "nncf-tools-beside"
"""The last word of a sampler's command when it records its own starter: it is left out of every tree."""
NAME_BESIDE = "nncf-sampler"
_RESCANS = 2
"""The kernel may leave children out of ``children`` when others exit meanwhile (proc(5)): look once more."""


class Process:
    """One process of the tree, with its kept descriptors and what was learned of it."""

    __slots__ = (
        "alive",
        "command",
        "counted",
        "cpu_ticks",
        "directory",
        "exit",
        "files",
        "forked_copy",
        "high_water_mark",
        "introduced",
        "mark_before",
        "name",
        "number",
        "parent",
        "peak_rss",
        "pid",
        "rss",
        "samples",
        "started_ticks",
        "thread_count",
        "threads",
        "was_zombie",
    )

    def __init__(self, root: str, pid: int, parent: Process | None, number: int, files: Sequence[str]) -> None:
        self.pid = pid
        self.parent = parent
        self.number = number
        self.alive = True
        self.samples = 0
        self.rss = 0
        """At the last sample, in pages, like ``peak_rss``."""
        self.peak_rss = 0
        self.high_water_mark: int | None = None
        self.mark_before = 0
        """Its high-water mark when a recording was attached to it: what is not above that may be of before."""
        self.cpu_ticks = 0
        self.thread_count = 1
        self.threads: dict[str, int] = {}
        self.name = ""
        self.command: list[str] = []
        self.forked_copy = False
        self.introduced = False
        self.counted = True
        self.exit: Exit | None = None
        """What the kernel's exit accounting told of its end."""
        self.files: list[int] = []
        self.directory = os.open(f"{root}/{pid}", os.O_RDONLY | os.O_DIRECTORY)
        try:
            fields = self.read("stat").rpartition(b")")[2].split(None, STARTED + 1)
            self.started_ticks = int(fields[STARTED])
            self.was_zombie = fields[0] == b"Z"
            for file in files:
                self.files.append(self._open(file))
        except BaseException:
            self.close()
            raise
        self.identify()

    def _open(self, file: str) -> int:
        try:
            return os.open(file, os.O_RDONLY, dir_fd=self.directory)
        except PermissionError:  # another user's process
            return UNREADABLE

    def read(self, file: str) -> bytes:
        """Return the content of one of the process's files; raise OSError when it is gone or not ours to read."""
        descriptor = os.open(file, os.O_RDONLY, dir_fd=self.directory)
        try:
            return read_all(descriptor)
        finally:
            os.close(descriptor)

    def identify(self) -> bool:
        """Read name and command line again; return whether they, or what they mean, changed (an exec)."""
        before = self.name, self.command, self.forked_copy
        try:
            self.name = self.read("comm").decode(errors="backslashreplace").rstrip("\n")
            text = self.read("cmdline").decode(errors="backslashreplace")
        except OSError:
            return False
        if text:
            self.command = text.removesuffix("\0").split("\0")
        self.forked_copy = self.parent is not None and self.command == self.parent.command != []
        return before != (self.name, self.command, self.forked_copy)

    @property
    def is_beside(self) -> bool:
        """Whether it is the sampler of a program that records itself; at its end it has only its name left."""
        return self.command[-1:] == [BESIDE] or self.name == NAME_BESIDE

    def children(self) -> Iterator[int]:
        """Yield the PIDs of the children of all threads."""
        if self.thread_count != len(self.threads):
            self._list_threads()
        for task, descriptor in list(self.threads.items()):
            try:
                yield from map(int, read_all(descriptor).split())
            except OSError:  # the thread has ended: list them anew next time
                os.close(self.threads.pop(task))

    def _list_threads(self) -> None:
        try:
            descriptor = os.open("task", os.O_RDONLY | os.O_DIRECTORY, dir_fd=self.directory)
            try:
                tasks = os.listdir(descriptor)
            finally:
                os.close(descriptor)
        except OSError:
            return
        for gone in self.threads.keys() - set(tasks):
            os.close(self.threads.pop(gone))
        for task in tasks:
            if task not in self.threads:
                try:
                    self.threads[task] = os.open(f"task/{task}/children", os.O_RDONLY, dir_fd=self.directory)
                except OSError:  # ended meanwhile
                    continue

    def close(self) -> None:
        """Give back the descriptors."""
        self.alive = False
        for descriptor in (*self.files, *self.threads.values(), self.directory):
            if descriptor != UNREADABLE:
                os.close(descriptor)
        self.files = [UNREADABLE] * len(self.files)
        self.threads = {}


class Tree:
    """The processes of the run, parents before their children."""

    def __init__(self, root: str, files: Sequence[str], *, reaper: int | None, children: bool) -> None:
        """Follow processes under the proc directory ``root``, keeping ``files`` of each open.

        ``reaper`` is the process to which orphans are re-parented (this one, when it started the command).
        """
        self.processes: list[Process] = []
        self.out_of_descriptors = False
        self._by_pid: dict[int, Process] = {}
        self._root = root
        self._files = files
        self.count = 0
        """Processes so far; the next one's number."""
        self.children = children
        self._own = os.getpid()
        self._reaper = None if reaper is None else Process(root, reaper, None, -1, ())
        self._state = b""
        self._rescans = _RESCANS
        self._loadavg = os.open(f"{root}/loadavg", os.O_RDONLY)

    def add(self, pid: int, parent: Process | None = None) -> Process | None:
        """Take a process into the tree; return None when it is gone already."""
        try:
            process = Process(self._root, pid, parent, self.count, self._files)
        except (OSError, IndexError, ValueError) as error:
            self.out_of_descriptors |= getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE)
            return None
        self.count += 1
        self.processes.append(process)
        self._by_pid[pid] = process
        return process

    def get(self, pid: int) -> Process | None:
        """Return the process with this PID if it is in the tree."""
        return self._by_pid.get(pid)

    def remove(self, process: Process) -> None:
        """Take a process out of the tree that has ended."""
        process.close()
        self.processes.remove(process)
        del self._by_pid[process.pid]
        self._rescans = _RESCANS

    def stir(self) -> bool:
        """Return whether processes may have come or gone since the last call.

        The end of ``loadavg`` tells for 1 µs how many threads there are and which PID was given out last (proc(5)):
        while both stay the same, nobody forked or was reaped.
        """
        state = os.pread(self._loadavg, 128, 0).rpartition(b"/")[2]
        if state == self._state:
            return False
        self._state = state
        self._rescans = _RESCANS
        return True

    def refresh(self) -> list[Process]:
        """Look for new descendants when there was a stir; return those that were found."""
        if not self.children or not self._rescans:
            return []
        self._rescans -= 1
        return list(self._scan())

    def _scan(self) -> Iterator[Process]:
        if self._reaper is not None:
            yield from self._new_children(self._reaper, None)
        for process in self.processes:  # grows meanwhile: grandchildren are found in the same pass
            yield from self._new_children(process, process)

    def _new_children(self, of: Process, parent: Process | None) -> Iterator[Process]:
        for pid in of.children():
            if pid not in self._by_pid and pid != self._own and pid != os.getppid():
                child = self.add(pid, parent)
                if child is None:
                    continue
                if child.is_beside:
                    self.remove(child)
                else:
                    yield child
