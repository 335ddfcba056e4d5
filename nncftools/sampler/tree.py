"""The processes of the run: the first process and all descendants, including orphans.

Directories and files of ``/proc/PID`` are opened once and kept open. Reading an open descriptor again costs 1 µs, and a
new process with the same PID cannot be mistaken for the old process: if the process is gone, a read fails with ESRCH.
Near the limit of open files, further files are opened, read and closed for each sample. This is slower, but no figure
is missing.

This module also reads the kinds of memory of a process (``/proc/PID/status``, proc(5)), and finds out whether two
processes share an address space: a child of vfork(2) shares the address space of the parent until exec.
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
    """A function that writes the line ``{key: value}`` to the journal."""


NONE_LEFT = (errno.EMFILE, errno.ENFILE)
"""The errors if no more files can be opened. These errors do not mean that a process has ended."""
GONE = (errno.ENOENT, errno.ESRCH)
"""The errors if a process has ended."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
SMALL = 448
"""The number of bytes to read from ``/proc/PID/stat`` and ``/proc/PID/io``, enough for the fields in use. Python's own
allocator serves at most 512 bytes, and is fast: a reading takes 1 µs less than with 1,024 bytes.
"""
_CHUNK = 4096


def read_all(descriptor: int) -> bytes:
    """Read a kernel file from the start to the end. A single read may end early, at the edge of a kernel buffer."""
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
    """Return the content of a small file. Empty if the file is gone, or is not readable."""
    try:
        with open(file, "rb", buffering=0) as content:
            return content.read()
    except OSError:
        return b""


def read_number(file: str) -> int | None:
    """Return the number in a file. None if the content is ``max``, or if the file cannot be read."""
    text = read_small_file(file).strip()
    return int(text) if text.isdigit() else None


def find_number(data: bytes, key: bytes) -> int | None:
    """Return the number in the line that begins with ``key``. None if there is no such line."""
    _, _, rest = (b"\n" + data).partition(b"\n" + key)
    return int(rest.split(None, 1)[0]) if rest else None


def find_size(data: bytes, key: bytes) -> int | None:
    """Return the size after ``key`` in the content of a status file, in bytes. None if the key is missing."""
    begin = data.find(key)
    if begin < 0:
        return None
    return int(data[begin + len(key) : data.index(b"kB", begin)]) * 1024


class MemoryKinds:
    """The memory of a process by kind, in bytes, as of the last reading."""

    rss = 0
    """RSS in pages at the last reading."""
    anon = 0
    shmem = 0
    file = 0
    resident = 0
    """The sum of ``anon``, ``shmem`` and ``file``. RSS may have changed since ``rss`` was read."""
    tables = 0
    """The size of the page tables. A control group charges page tables, too."""
    hugetlb = 0
    """The most memory in hugetlb pages so far. RSS does not contain these pages."""
    inherited: int | None = None
    """The anonymous memory that the process had from the parent at the fork. None before the first reading."""
    is_new = False
    """Whether the memory was read again since the method ``own`` was last called."""

    def take(self, status: bytes, rss: int, parents: int) -> None:
        """Parse the content of a status file. ``rss`` is RSS in pages.

        If the process was forked, ``parents`` is the anonymous memory of the parent, otherwise 0. The status file of a
        zombie has no sizes. On a kernel before 4.5, no status file has sizes.
        """
        anon = find_size(status, b"\nRssAnon:")
        if anon is None:
            return
        self.rss = rss
        self.anon = anon
        self.is_new = True
        self.file = find_size(status, b"\nRssFile:") or 0
        self.shmem = find_size(status, b"\nRssShmem:") or 0
        self.resident = self.anon + self.file + self.shmem
        self.tables = find_size(status, b"\nVmPTE:") or 0
        self.hugetlb = max(self.hugetlb, find_size(status, b"\nHugetlbPages:") or 0)
        if self.inherited is None:
            self.inherited = min(anon, parents)

    def own(self, rss: int, faults: int) -> int:
        """Return the bytes of anonymous memory that the process does not share with the parent, plus the page tables.

        For a forked process, this is the memory taken since the fork, plus the inherited pages to which the process has
        written. The kernel copies an inherited page at the first write (copy-on-write). This copy is a page fault that
        does not increase RSS, so such ``faults`` count as copied pages.
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
"""This number stands for a file that is not kept open, because of the limit of open files."""
RESERVE = 64
"""The number of descriptors that are left free for files that are opened and closed again."""
DETACHED_ARGUMENT = "nncf-tools-beside"
"""The last argument of a detached sampler, a sampler that records its own starter. Such a sampler is left out of every
tree.
"""
DETACHED_NAME = "nncf-sampler"
"""The process name (comm) that a detached sampler gives itself."""
_STARTED = 19
"""The index of the start time among the words of stat after the name (proc(5))."""
_OF_FILES = 3
"""The index of the user ID for file access among the four user IDs of a process (proc(5))."""
_RESCANS = 2
"""The tree is scanned this many times after a change. In a single scan, the kernel may omit children from ``children``
while others exit (proc(5)).
"""


def detach() -> None:
    """Stop being a child of the starter, begin a new session, and take the name ``DETACHED_NAME``.

    The starter is the measured process. A child would be part of the tree, and the CPU time of the child would be added
    to the starter's CPU time. The name tells other recordings to leave this process out.
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
    """Whether no descriptor was left to open a file, read it and close it again. If so, figures are missing."""

    below = sys.maxsize
    """Only descriptors below this number are kept open."""


class MarkReading:
    """The last reading of the high-water mark of a process."""

    size = 0
    """The high-water mark in bytes. After exec, this is the mark of the new program."""
    sampled_s = 0.0
    """The last time at which the high-water mark is known to have had this size. If the mark is larger now, the mark
    rose after this time.
    """
    written: int | None = None
    """The high-water mark in the last record of the process."""
    still_from_s = 0.0
    """The time of the last sample that showed new page faults. RSS has not grown since."""
    peak_rss = 0
    """The largest RSS so far, in pages; ``peak_s`` is the time of the first sample that shows this RSS."""
    peak_s: float | None = None


class Process:
    """A process of the tree: descriptors of files in ``/proc/PID``, and the memory and CPU time at the last sample."""

    alive = True
    sampled_from = 0
    """The index, counted from 1, of the first sample that contains memory of the process. 0 if there is none yet."""
    sampled_to = 0
    """Set when the process no longer has memory: the index, counted from 1, of the last sample that contains memory of
    the process. Otherwise 0."""
    rss = 0
    """RSS at the last sample, in pages. ``peak_rss`` is the highest RSS of all samples, in pages."""
    peak_rss = 0
    high_water_mark: int | None = None
    """The largest high-water mark so far, in bytes."""
    earlier_mark = 0
    """The high-water mark when the recording was attached to the process. Only a larger mark belongs to the recording.
    """
    hidden_from_s: float | None = None
    """The time since which the kernel hides the addresses in ``image``. None if the last reading found the addresses.
    """
    faults = 0
    """The number of page faults up to the last sample."""
    faults_before = 0
    rss_before = 0
    """``faults_before`` and ``rss_before`` are the page faults and RSS in the last sample before ``faults`` changed."""
    cpu_ticks = 0
    """CPU time up to the last sample, in clock ticks."""
    earlier_ticks = 0
    """CPU time when the recording was attached to the process, in clock ticks."""
    thread_count = 0
    """The number of threads at the last sample. 0 if no probe reads this number."""
    name = ""
    forked_copy = False
    is_named = False
    """Whether the command line could be read. There is no command line during exec."""
    counted = True
    """Whether the memory of the process is part of the sums."""
    counted_s: float | None = None
    """The time of the first sample whose sums contain the memory of the process. None if there is none yet."""
    first_rss = 0
    """RSS in pages at the first sample whose sums contain the memory of the process."""
    _status: int | None = None
    directory = UNKEPT

    def __init__(  # noqa: PLR0913 — a line per fact
        self, root: str, pid: int, parent: Process | None, number: int, *, files: Sequence[str], common: Common
    ) -> None:
        """Open ``/proc/PID`` and files in this folder. ``files`` are the names of the files: ``("stat", "status")``.

        A descriptor is kept open if its number is below ``common.below``. Other files are opened for each reading.
        """
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
        """The addresses of code and stack at the last check for a call of exec."""
        self.kinds = MemoryKinds()
        self.threads: dict[str, int] = {}
        """Maps a thread ID to the descriptor of the thread's file ``children``."""
        self.command: list[str] = []
        self.files: list[int] = []
        self.data: list[bytes | None] = [None] * len(files)
        """The content of each file in ``files`` at the last reading. An unchanged file is not parsed again."""
        self.parts: list[tuple[int, ...] | None] = [None] * len(files)
        """The values that a probe parsed from each file in ``files``, such as RSS in pages. None if the file is not
        readable.
        """
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
        """Note that the process has no memory in further samples."""
        if self.sampled_from:
            self.sampled_to = self.sampled_to or self.common.samples

    def open(self, file: str, flags: int = os.O_RDONLY) -> int:
        """Open a file of the process. Raises OSError if the process is gone or the file is not readable."""
        try:
            return self._open(file, flags)
        except OSError as error:
            self.common.ran_out |= error.errno in NONE_LEFT
            raise

    def _open(self, file: str, flags: int) -> int:
        if self.directory >= 0:
            return os.open(file, flags, dir_fd=self.directory)
        if not self.alive:  # another process may have the same PID by now
            raise ProcessLookupError(f"{self.path} has ended")
        return os.open(f"{self.path}/{file}", flags)

    def _keep(self, file: str, flags: int = os.O_RDONLY) -> int:
        """Open a file, and return the descriptor. Return UNREADABLE if this process has no permission.

        Return UNKEPT if the file cannot be kept open: there are no free descriptors, or the number of the descriptor is
        too high. The kernel gives the lowest free number.
        """
        try:
            descriptor = self._open(file, flags)
        except PermissionError:  # the process belongs to another user
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
        """Return the user ID with which the process opens files. None if the process has ended."""
        try:
            users = self.read("status").partition(b"\nUid:")[2]
            return int(users.split(None, _OF_FILES + 1)[_OF_FILES])
        except (OSError, IndexError, ValueError):
            return None

    def differs(self, link: str, ours: str) -> bool:
        """Return whether a link such as ``root`` leads to another file than ``ours``. False if unreadable."""
        try:
            return not os.path.samestat(os.stat(f"{self.path}/{link}"), os.stat(ours))
        except OSError:
            return False

    def read_memory(self) -> bytes:
        """Return the content of the status file, and store the kinds of memory. The file stays open. Raises OSError."""
        if self._status is None:
            self._status = self._keep("status")
        status = read_all(self._status) if self._status >= 0 else self.read("status")
        parents = self.parent.kinds.anon if self.forked_copy and self.parent is not None else 0
        self.kinds.take(status, self.rss, parents)
        return status

    def read_slot(self, slot: int) -> bytes:
        """Open and read a file again, after the caller failed to read the descriptor ``files[slot]``.

        Return the content, or ``b""`` if the file cannot be read. If the process is gone, or if another process has the
        PID, ``alive`` becomes False.
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
        """Forget the content of all files, so that the next sample parses all files again."""
        self.data = [None] * len(self.data)

    def identify(self) -> bool:
        """Read the name and the command line again.

        Return whether the name, the command line or ``forked_copy`` has changed, as after an exec.
        """
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
        """Whether the process is the sampler of a program that records itself.

        The last argument shows this, or the process name: a zombie has no arguments.
        """
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
        """From now on, let ``children`` yield only the children of the first thread. Called for the sampler.

        The sampler's first thread starts the command, and gets all orphans (``find_alive_thread`` in the kernel's
        exit.c).
        """
        self.threads = {str(self.pid): self._keep(f"task/{self.pid}/children")}
        self.thread_count = 1

    def _count_threads(self) -> int:
        """Return the number of threads, from the number of links of the folder ``task``.

        The folder has two links more than threads (``proc_task_getattr`` in the kernel).
        """
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
        self.directory = UNREADABLE  # another file may have the same number by now


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
    """The number of processes so far. The next process gets this number."""
    changes = 0
    """How often a process was added or removed."""
    _reaper: Process | None = None
    _state = b"?"

    def __init__(self, root: str, files: Sequence[str], *, reaper: int | None, children: bool) -> None:
        """Follow processes in the proc directory ``root``, and keep ``files`` of each process open.

        ``reaper`` is the PID of the process that becomes the parent of orphans: the sampler, if the sampler started the
        command.
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
        """The number of further scans for new descendants. 0 while no process comes or goes."""
        self._loadavg = os.open(f"{root}/loadavg", os.O_RDONLY)

    def add(self, pid: int, parent: Process | None = None) -> Process | None:
        """Add a process to the tree. Return None if the process is already gone, or is a detached sampler."""
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
        """Look for new descendants if any process may have come or gone; return the new processes.

        The file ``loadavg`` ends with the number of threads and the newest PID (proc(5)). If neither has changed, no
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
    """Return a descriptor that becomes readable when a process ends. -1 if pidfd_open(2) is not available."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # AttributeError: not on Linux
        return -1


_KCMP = {"x86_64": 312, "aarch64": 272, "riscv64": 272}
"""System call numbers of kcmp(2), by machine: the C library has no function for this call."""
_KCMP_VM = 1


def share_memory(pid: int, other: int) -> bool:
    """Return whether two processes share an address space. False if the kernel does not say. Takes 6 µs."""
    arguments = (pid, other, _KCMP_VM, 0, 0)
    return _load_kcmp()(*arguments) == 0


@functools.cache
def _load_kcmp() -> Callable[..., int]:
    """Return a function that calls kcmp(2).

    The function is cached, because the lookup takes longer than the call.
    """
    import ctypes

    number = _KCMP.get(os.uname().machine, -1)  # the kernel has no system call -1, so the call fails
    return functools.partial(ctypes.CDLL(None).syscall, number)
