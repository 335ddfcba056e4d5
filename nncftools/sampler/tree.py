"""The processes of the run: the root and all descendants, orphans too.

Directories and files of ``/proc/PID`` are opened once and kept open. Reading a kept descriptor again costs 1 µs, and a
reused PID cannot be mistaken for the process: a read fails with ESRCH when the process is gone. Near the limit of open
files, files are opened, read and closed for each sample: that is slower, but no figure is missing.

This module also reads the kinds of memory of a process (``/proc/PID/status``, proc(5)), and whether two processes
share an address space: a child of vfork(2) shares the address space of the parent until exec.
"""

from __future__ import annotations

import errno
import functools
import os
import sys
from contextlib import suppress

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    WriteLine = Callable[[str, object], None]
    """Writes a line of the journal, by key and value."""


NONE_LEFT = (errno.EMFILE, errno.ENFILE)
"""Errors when no more files can be opened at all; they say nothing about a process."""
GONE = (errno.ENOENT, errno.ESRCH)
"""Errors when the process has ended."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
SMALL = 448
"""Bytes to read of stat and io: enough for the fields in use, and small enough for Python's own allocator, which saves
1 µs compared with 1,024 bytes."""
_CHUNK = 4096


def read_all(descriptor: int) -> bytes:
    """Read a kernel file from the start; the kernel may end a read early, at the edge of a buffer."""
    data = os.pread(descriptor, _CHUNK, 0)
    if len(data) < _CHUNK // 2:
        return data
    parts = [data]
    length = len(data)
    while data := os.pread(descriptor, _CHUNK, length):
        parts.append(data)
        length += len(data)
    return b"".join(parts)


def read_small_file(file: str) -> bytes:
    """Return the content of a small file; nothing when the file is gone, or we may not read it."""
    try:
        with open(file, "rb", buffering=0) as content:
            return content.read()
    except OSError:
        return b""


def read_number(file: str) -> int | None:
    """Return the number in a file; None for ``max``, and if the file cannot be read."""
    text = read_small_file(file).strip()
    return int(text) if text.isdigit() else None


def find_number(data: bytes, key: bytes) -> int | None:
    """Return the number after the name that begins a line; None when there is no such line."""
    _, _, rest = (b"\n" + data).partition(b"\n" + key)
    return int(rest.split(None, 1)[0]) if rest else None


def find_size(data: bytes, key: bytes) -> int | None:
    """Return the size in a line of a status file, in bytes; None when the line is missing."""
    begin = data.find(key)
    if begin < 0:
        return None
    return int(data[begin + len(key) : data.index(b"kB", begin)]) * 1024


class MemoryKinds:
    """The kinds of memory of a process at the last reading, in bytes."""

    rss = 0
    """RSS in pages at the last reading."""
    anon = 0
    shmem = 0
    file = 0
    tables = 0
    """The page tables: a control group charges them, too."""
    hugetlb = 0
    """The most memory in hugetlb pages so far: no RSS contains them."""
    inherited: int | None = None
    """The anonymous memory that the process had from its parent at the fork; None before the first reading."""
    is_new = False
    """Whether ``own`` was not called since the last reading."""

    def take(self, status: bytes, rss: int, parents: int) -> None:
        """Parse a status file, when RSS is ``rss`` pages.

        ``parents`` is the anonymous memory of the parent of a forked copy, 0 for any other process. The file of a
        zombie has no sizes, and neither has a file of a kernel before 4.5.
        """
        anon = find_size(status, b"\nRssAnon:")
        if anon is None:
            return
        self.rss = rss
        self.anon = anon
        self.is_new = True
        self.file = find_size(status, b"\nRssFile:") or 0
        self.shmem = find_size(status, b"\nRssShmem:") or 0
        self.tables = find_size(status, b"\nVmPTE:") or 0
        self.hugetlb = max(self.hugetlb, find_size(status, b"\nHugetlbPages:") or 0)
        if self.inherited is None:
            self.inherited = min(anon, parents)

    def own(self, rss: int, faults: int) -> int:
        """Return the anonymous memory that the process does not share with the parent.

        A forked copy owns the memory taken since the fork, and the pages that were copied when written: each copy is a
        page fault without growth of RSS.
        """
        self.is_new = False
        if not self.inherited:
            return self.anon + self.tables
        grown = max(0, rss * PAGE - self.inherited)
        copied = min(self.inherited, max(0, faults * PAGE - grown))
        return max(0, self.anon - self.inherited) + copied + self.tables


STAT = "stat"
UNREADABLE = -1
UNKEPT = -2
"""Stands for a descriptor that is not kept, because of the limit of open files."""
RESERVE = 64
"""Descriptors that are left free for files that are opened and closed again."""
DETACHED_ARGUMENT = "nncf-tools-beside"
"""The last argument of a sampler that records the starter: such a process is left out of every tree."""
DETACHED_NAME = "nncf-sampler"
"""The name (comm) that such a sampler gives itself."""
_STARTED = 19
"""Position of the start time in stat, after the closing parenthesis of the name (proc(5))."""
_OF_FILES = 3
"""Position of the user for file access among the four users of a process (proc(5))."""
_RESCANS = 2
"""The kernel may omit children from ``children`` while others exit (proc(5)), so the tree is scanned twice."""


def detach() -> None:
    """Stop being a child of the starter, and begin a session of our own.

    The starter is the measured process: a child would be in the tree, and the CPU time would be added to the starter's.
    The name tells other recordings to leave this process out.
    """
    with suppress(OSError), open("/proc/self/comm", "w") as name:
        name.write(DETACHED_NAME)
    if os.fork():
        os._exit(0)
    os.setsid()


class Common:
    """The state that all processes of a tree share."""

    samples = 0
    """The number of samples so far."""
    ran_out = False
    """Whether a file could not even be opened for a moment: figures are missing."""

    below = sys.maxsize
    """Only descriptors below this number are kept."""


class MarkReading:
    """The last reading of a process's high-water mark, in bytes."""

    size = 0
    """The mark; after exec, the mark of the new program."""
    sampled_s = 0.0
    """The mark has not changed since the sample at this time, or longer."""
    written: int | None = None
    """The mark in the process's last record."""
    still_from_s = 0.0
    """The time of the last sample with a page fault."""
    peak_rss = 0
    """The largest RSS so far, in pages; ``peak_s`` is the time of the first sample that shows this RSS."""
    peak_s: float | None = None


class Process:
    """A process of the tree, with kept descriptors and facts."""

    alive = True
    sampled_from = 0
    """The number of the first sample with memory of the process, counted from 1; 0 before this sample."""
    sampled_to = 0
    """The number of the last sample with memory of the process; 0 as long as there may be further samples."""
    rss = 0
    """RSS at the last sample, in pages, like ``peak_rss``."""
    peak_rss = 0
    high_water_mark: int | None = None
    """The largest high-water mark so far, in bytes."""
    earlier_mark = 0
    """The high-water mark when the recording was attached: only a larger mark belongs to the recording."""
    hidden_from_s: float | None = None
    """Since this time, the addresses cannot be read; None if the last reading found them."""
    faults = 0
    """Page faults up to the last sample."""
    faults_before = 0
    rss_before = 0
    """Page faults and RSS in the last sample before the faults changed."""
    cpu_ticks = 0
    """CPU time up to the last sample."""
    earlier_ticks = 0
    """CPU time when the recording was attached."""
    thread_count = 0
    """The number of threads at the last sample; 0 where no probe reads this number."""
    name = ""
    forked_copy = False
    is_named = False
    """Whether the command line could be read: during exec there is none."""
    counted = True
    """Whether the memory of the process is part of the sums."""
    counted_s: float | None = None
    """The time of the first sample that contains this memory."""
    first_rss = 0
    """RSS in this first sample, in pages."""
    _status: int | None = None
    directory = UNKEPT

    def __init__(  # noqa: PLR0913 — a line per fact
        self, root: str, pid: int, parent: Process | None, number: int, *, files: Sequence[str], common: Common
    ) -> None:
        """Keep ``files`` open, as far as ``common`` permits."""
        self.path = f"{root}/{pid}"
        self.common = common
        self.file_names = files
        self.pid = pid
        self.parent = parent
        self.number = number
        self.mark = MarkReading()
        self.image: list[bytes] = []
        """The addresses of code and stack at the last page fault: exec changes them."""
        self.known_image: list[bytes] = []
        """The addresses that were compared last."""
        self.kinds = MemoryKinds()
        self.threads: dict[str, int] = {}
        """The descriptor of the file ``children`` of each thread, with the thread ID as key."""
        self.command: list[str] = []
        self.files: list[int] = []
        self.data: list[bytes | None] = [None] * len(files)
        """The content of each of ``files`` at the last reading: equal content has equal figures."""
        self.parts: list[tuple[int, ...] | None] = [None] * len(files)
        """The figures in each file; None if we may not read the file."""
        self.directory = self._keep(".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            self.started_ticks = _parse_start(self.read(STAT))
            for file in files:
                self.files.append(self._keep(file))
        except BaseException:
            self.close()
            raise
        self.identify()

    @property
    def samples(self) -> int:
        """The number of samples that contain memory of the process."""
        if not self.sampled_from:
            return 0
        return (self.sampled_to or self.common.samples) - self.sampled_from + 1

    def lose_memory(self) -> None:
        """Note that no further sample contains memory of the process."""
        if self.sampled_from:
            self.sampled_to = self.sampled_to or self.common.samples

    def open(self, file: str, flags: int = os.O_RDONLY) -> int:
        """Open a file of the process. Raises OSError when the process is gone or we may not read it."""
        try:
            return self._open(file, flags)
        except OSError as error:
            self.common.ran_out |= error.errno in NONE_LEFT
            raise

    def _open(self, file: str, flags: int) -> int:
        if self.directory >= 0:
            return os.open(file, flags, dir_fd=self.directory)
        if not self.alive:  # another process may have the PID by now
            raise ProcessLookupError(f"{self.path} has ended")
        return os.open(f"{self.path}/{file}", flags)

    def _keep(self, file: str, flags: int = os.O_RDONLY) -> int:
        """Open a file and return the descriptor to keep, or else UNREADABLE or UNKEPT.

        The kernel gives the lowest free number.
        """
        try:
            descriptor = self._open(file, flags)
        except PermissionError:  # another user's process
            return UNREADABLE
        except OSError as error:
            if error.errno in NONE_LEFT:
                return UNKEPT
            raise
        if descriptor < self.common.below:
            return descriptor
        os.close(descriptor)
        return UNKEPT

    def read(self, file: str) -> bytes:
        """Return the content of a file of the process. Raises OSError as ``open`` does."""
        descriptor = self.open(file)
        try:
            return read_all(descriptor)
        finally:
            os.close(descriptor)

    def read_user(self) -> int | None:
        """Return the ID of the user whose files the process may open; None if the process has ended."""
        try:
            users = self.read("status").partition(b"\nUid:")[2]
            return int(users.split(None, _OF_FILES + 1)[_OF_FILES])
        except (OSError, IndexError, ValueError):
            return None

    def differs(self, link: str, ours: str) -> bool:
        """Return whether a link of the process leads elsewhere than ours; False if we may not read the link."""
        try:
            return not os.path.samestat(os.stat(f"{self.path}/{link}"), os.stat(ours))
        except OSError:
            return False

    def read_memory(self) -> bytes:
        """Return the status file, and keep the kinds of memory. The file stays open. Raises OSError."""
        if self._status is None:
            self._status = self._keep("status")
        status = read_all(self._status) if self._status >= 0 else self.read("status")
        parents = self.parent.kinds.anon if self.forked_copy and self.parent is not None else 0
        self.kinds.take(status, self.rss, parents)
        return status

    def read_slot(self, slot: int) -> bytes:
        """Return the content of a file whose kept descriptor could not be read; empty when that fails, too.

        When the process is gone, or another process has the PID, this process is marked as not alive.
        """
        if self.files[slot] == UNREADABLE:
            return b""
        if self.files[slot] == UNKEPT and self.alive:
            try:
                data = self.read(self.file_names[slot])
            except OSError as error:
                self.alive = error.errno not in GONE  # users without privileges may not read the io file of a zombie
                return b""
            if self.file_names[slot] != STAT or _parse_start(data) == self.started_ticks:
                return data
        self.alive = False
        return b""

    def forget(self) -> None:
        """Make the next sample take the figures of all files again."""
        self.data = [None] * len(self.data)

    def identify(self) -> bool:
        """Read name and command line again; return whether these or ``forked_copy`` changed (an exec)."""
        identity = (self.name, self.command, self.forked_copy)
        try:
            self.name = self.read("comm").decode(errors="backslashreplace").rstrip("\n")
            text = self.read("cmdline").decode(errors="backslashreplace")
        except OSError:
            return False
        self.is_named = bool(text)
        if text:
            self.command = text.removesuffix("\0").split("\0")
        self.forked_copy = self.parent is not None and self.command == self.parent.command != []
        return identity != (self.name, self.command, self.forked_copy)

    @property
    def is_detached_sampler(self) -> bool:
        """Whether the process is the sampler of a program that records itself; a zombie has only a name."""
        return self.command[-1:] == [DETACHED_ARGUMENT] or self.name == DETACHED_NAME

    def children(self) -> Iterator[int]:
        """Yield the PIDs of the children of all threads."""
        if (self.thread_count or self._count_threads()) != len(self.threads):
            self._list_threads()
        for task, descriptor in list(self.threads.items()):
            try:
                data = self.read(f"task/{task}/children") if descriptor < 0 else read_all(descriptor)
                yield from map(int, data.split())
            except OSError as error:
                if error.errno not in NONE_LEFT:  # the thread has ended: list the threads again next time
                    _close(self.threads.pop(task))

    def keep_first_thread(self) -> None:
        """Look for children of the first thread only: this thread starts the command, and gets all orphans.

        (``find_alive_thread`` in the kernel's exit.c.)
        """
        self.threads = {str(self.pid): self._keep(f"task/{self.pid}/children")}
        self.thread_count = 1

    def _count_threads(self) -> int:
        """Return the number of threads: each is a link of ``task`` (``proc_task_getattr`` in the kernel)."""
        try:
            return os.stat(f"{self.path}/task").st_nlink - 2
        except OSError:
            return 0

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
                except OSError:  # the thread has ended
                    continue

    def close(self) -> None:
        """Close the descriptors."""
        self.alive = False
        single = (self.directory, self._status or UNKEPT)
        for descriptor in (*self.files, *self.threads.values(), *single):
            _close(descriptor)
        self._status = UNKEPT
        self.files = [UNREADABLE] * len(self.files)
        self.threads = {}
        self.directory = UNREADABLE  # another file may have the number by now


def split_stat(data: bytes) -> list[bytes]:
    """Return the words of ``/proc/PID/stat`` after the closing parenthesis of the name (proc(5))."""
    return data.rpartition(b")")[2].split()


def _parse_start(stat: bytes) -> int:
    return int(split_stat(stat)[_STARTED])


def _close(descriptor: int) -> None:
    if descriptor >= 0:
        os.close(descriptor)


class Tree:
    """The processes of the run, parents before children."""

    _count = 0
    """The number of processes so far, and of the next process."""
    changes = 0
    """How often a process came or went."""
    _reaper: Process | None = None
    _state = b"?"

    def __init__(self, root: str, files: Sequence[str], *, reaper: int | None, children: bool) -> None:
        """Follow processes under the proc directory ``root``, keeping ``files`` of each open.

        ``reaper`` is the process that becomes the parent of orphans (this process, if it started the command).
        """
        self.processes: list[Process] = []
        self.by_pid: dict[int, Process] = {}
        self._root = root
        self._files = files
        self.children = children
        self.common = Common()
        self._own_pid = os.getpid()
        if reaper is not None:
            self._reaper = Process(
                root,
                reaper,
                None,
                -1,
                files=(),
                common=self.common,
            )
            self._reaper.keep_first_thread()
        self._rescans = _RESCANS
        """How often ``refresh`` is still to look for new descendants; 0 while processes neither come nor go."""
        self._loadavg = os.open(f"{root}/loadavg", os.O_RDONLY)

    def add(self, pid: int, parent: Process | None = None) -> Process | None:
        """Add a process to the tree; return None when the process is already gone, or is a detached sampler."""
        try:
            process = Process(
                self._root,
                pid,
                parent,
                self._count,
                files=self._files,
                common=self.common,
            )
        except (OSError, IndexError, ValueError):
            return None
        if process.is_detached_sampler:
            process.close()
            return None
        self._count += 1
        self.changes += 1
        self.processes.append(process)
        self.by_pid[pid] = process
        return process

    def remove(self, process: Process) -> None:
        """Remove a process that has ended, or is not part of the run."""
        process.close()
        self.changes += 1
        self.processes.remove(process)
        del self.by_pid[process.pid]
        self._rescans = _RESCANS

    def refresh(self) -> list[Process]:
        """Look for new descendants if processes may have come or gone; return the new processes.

        The end of ``loadavg`` holds the number of threads and the newest PID (proc(5)): while both stay the same, no
        process was forked or reaped. Reading the file costs 1 µs.
        """
        data = os.pread(self._loadavg, 128, 0)
        if not data.endswith(self._state):
            self._state = data[data.rindex(b"/") :]
            self._rescans = _RESCANS
        if not self._rescans:
            return []
        self._rescans -= 1
        return list(self._scan()) if self.children else []

    def _scan(self) -> Iterator[Process]:
        if self._reaper is not None:
            yield from self._add_children(self._reaper, None)
        for process in self.processes:  # the list grows during the loop: grandchildren are found in the same pass
            yield from self._add_children(process, process)

    def _add_children(self, process: Process, parent: Process | None) -> Iterator[Process]:
        for pid in process.children():
            if pid not in self.by_pid and pid != self._own_pid and pid != os.getppid():
                child = self.add(pid, parent)
                if child is not None:
                    yield child


def open_exit_watch(pid: int) -> int:
    """Return a descriptor that becomes readable when a process ends; -1 without pidfd_open(2)."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # AttributeError: not on Linux
        return -1


_KCMP = {"x86_64": 312, "aarch64": 272, "riscv64": 272}
"""System call numbers of kcmp(2), by machine: the C library has no function for this call."""
_KCMP_VM = 1


def share_memory(pid: int, other: int) -> bool:
    """Return whether two processes share an address space; False also where the kernel does not say. Takes 6 µs."""
    arguments = (pid, other, _KCMP_VM, 0, 0)
    return _load_kcmp()(*arguments) == 0


@functools.cache
def _load_kcmp() -> Callable[..., int]:
    """Return the function; cached, because the lookup takes longer than the call."""
    import ctypes

    number = _KCMP.get(os.uname().machine, -1)  # the kernel has no call -1
    return functools.partial(ctypes.CDLL(None).syscall, number)
