"""Which processes belong to the run: the root and all its descendants, orphans too.

Directories and files of ``/proc/PID`` are opened once and kept: a kept descriptor costs 1 µs to read again and cannot
be fooled by a reused PID (a read of a process that is gone fails with ESRCH). Where the limit of open files is near,
files are opened, read and closed for each sample: slower, but no figure is left out.
"""

from __future__ import annotations

import os
import sys

from nncftools.sampler.kernel_file import GONE, NONE_LEFT, read_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nncftools.sampler.exits import Exit

STAT = "stat"
UNREADABLE = -1
UNKEPT = -2
"""In place of a descriptor that the limit of open files does not allow to keep."""
RESERVE = 64
"""Descriptors that are left for what is opened and closed again."""
BESIDE = "nncf-tools-beside"
"""The last word of a sampler's command when it records its own starter: it is left out of every tree."""
NAME_BESIDE = "nncf-sampler"
_STARTED = 19
"""Position of the start in stat, after the closing parenthesis of the name (proc(5))."""
_RESCANS = 2
"""The kernel may leave children out of ``children`` when others exit meanwhile (proc(5)): look once more."""


class Allowance:
    """How many descriptors may be kept, and whether there were too few for what must be read."""

    __slots__ = ("below", "ran_out")

    def __init__(self) -> None:
        self.below = sys.maxsize
        """Descriptors from this number on are not kept."""
        self.ran_out = False
        """Whether a file could not even be opened to be closed again: figures are missing."""


class Process:
    """One process of the tree, with its kept descriptors and what was learned of it."""

    __slots__ = (
        "alive",
        "allowance",
        "command",
        "counted",
        "cpu_ticks",
        "directory",
        "exit",
        "file_names",
        "files",
        "forked_copy",
        "high_water_mark",
        "introduced",
        "is_named",
        "mark_before",
        "name",
        "number",
        "parent",
        "path",
        "peak_rss",
        "pid",
        "rss",
        "samples",
        "started_ticks",
        "thread_count",
        "threads",
        "was_zombie",
    )

    def __init__(  # noqa: PLR0913 — where it is, and what to keep of it
        self,
        root: str,
        pid: int,
        parent: Process | None,
        number: int,
        files: Sequence[str],
        *,
        allowance: Allowance,
    ) -> None:
        """Keep ``files`` open as far as the ``allowance`` goes."""
        self.path = f"{root}/{pid}"
        self.allowance = allowance
        self.file_names = files
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
        self.is_named = False
        """Whether its command line could be read: in the midst of exec it has none."""
        self.counted = True
        self.exit: Exit | None = None
        """What the kernel's exit accounting told of its end."""
        self.files: list[int] = []
        self.directory = UNKEPT
        self.directory = self._keep(".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            data = self.read(STAT)
            self.started_ticks = _started(data)
            self.was_zombie = data.rpartition(b")")[2].split(None, 1)[0] == b"Z"
            for file in files:
                self.files.append(self._keep(file))
        except BaseException:
            self.close()
            raise
        self.identify()

    def open(self, file: str, flags: int = os.O_RDONLY) -> int:
        """Open one of the process's files; raise OSError when it is gone or not ours to read."""
        try:
            return self._open(file, flags)
        except OSError as error:
            self.allowance.ran_out |= error.errno in NONE_LEFT
            raise

    def _open(self, file: str, flags: int) -> int:
        if self.directory >= 0:
            return os.open(file, flags, dir_fd=self.directory)
        if not self.alive:  # its PID may be another one's by now
            raise ProcessLookupError(f"{self.path} has ended")
        return os.open(f"{self.path}/{file}", flags)

    def _keep(self, file: str, flags: int = os.O_RDONLY) -> int:
        """Open a file for good, or say why not: the kernel gives the lowest number that is free."""
        try:
            descriptor = self._open(file, flags)
        except PermissionError:  # another user's process
            return UNREADABLE
        except OSError as error:
            if error.errno in NONE_LEFT:
                return UNKEPT
            raise
        if descriptor < self.allowance.below:
            return descriptor
        os.close(descriptor)
        return UNKEPT

    def read(self, file: str) -> bytes:
        """Return the content of one of the process's files; raise OSError when it is gone or not ours to read."""
        descriptor = self.open(file)
        try:
            return read_all(descriptor)
        finally:
            os.close(descriptor)

    def read_slot(self, slot: int) -> bytes:
        """Return the content of a file that could not be read by its descriptor; nothing when it cannot be had.

        The process is marked when that means that it is gone, or that another one has its PID.
        """
        if self.files[slot] == UNREADABLE:
            return b""
        if self.files[slot] == UNKEPT and self.alive:
            try:
                data = self.read(self.file_names[slot])
            except OSError as error:
                self.alive = error.errno not in GONE  # an ordinary user may not read the io of a zombie
                return b""
            if self.file_names[slot] != STAT or _started(data) == self.started_ticks:
                return data
        self.alive = False
        return b""

    def identify(self) -> bool:
        """Read name and command line again; return whether they, or what they mean, changed (an exec)."""
        before = self.name, self.command, self.forked_copy
        try:
            self.name = self.read("comm").decode(errors="backslashreplace").rstrip("\n")
            text = self.read("cmdline").decode(errors="backslashreplace")
        except OSError:
            return False
        self.is_named = bool(text)
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
                data = self.read(f"task/{task}/children") if descriptor < 0 else read_all(descriptor)
                yield from map(int, data.split())
            except OSError as error:
                if error.errno not in NONE_LEFT:  # the thread has ended: list them again next time
                    _close(self.threads.pop(task))

    def _list_threads(self) -> None:
        try:
            descriptor = self.open("task", os.O_RDONLY | os.O_DIRECTORY)
            try:
                tasks = os.listdir(descriptor)
            finally:
                os.close(descriptor)
        except OSError:
            return
        for gone in self.threads.keys() - set(tasks):
            _close(self.threads.pop(gone))
        for task in tasks:
            if task not in self.threads:
                try:
                    self.threads[task] = self._keep(f"task/{task}/children")
                except OSError:  # ended meanwhile
                    continue

    def close(self) -> None:
        """Give back the descriptors."""
        self.alive = False
        for descriptor in (*self.files, *self.threads.values(), self.directory):
            _close(descriptor)
        self.files = [UNREADABLE] * len(self.files)
        self.threads = {}
        self.directory = UNREADABLE  # its number may be another file's by now


def _started(stat: bytes) -> int:
    return int(stat.rpartition(b")")[2].split(None, _STARTED + 1)[_STARTED])


def _close(descriptor: int) -> None:
    if descriptor >= 0:
        os.close(descriptor)


class Tree:
    """The processes of the run, parents before their children."""

    def __init__(self, root: str, files: Sequence[str], *, reaper: int | None, children: bool) -> None:
        """Follow processes under the proc directory ``root``, keeping ``files`` of each open.

        ``reaper`` is the process to which orphans are re-parented (this one, when it started the command).
        """
        self.processes: list[Process] = []
        self._by_pid: dict[int, Process] = {}
        self._root = root
        self._files = files
        self.count = 0
        """Processes so far; the next one's number."""
        self.children = children
        self.allowance = Allowance()
        self._own = os.getpid()
        self._reaper = None if reaper is None else Process(root, reaper, None, -1, (), allowance=self.allowance)
        self._state = b""
        self._rescans = _RESCANS
        self._loadavg = os.open(f"{root}/loadavg", os.O_RDONLY)

    def add(self, pid: int, parent: Process | None = None) -> Process | None:
        """Take a process into the tree; return None when it is gone already."""
        try:
            process = Process(self._root, pid, parent, self.count, self._files, allowance=self.allowance)
        except (OSError, IndexError, ValueError):
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
