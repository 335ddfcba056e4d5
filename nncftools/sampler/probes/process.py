"""Probes of single processes, summed over the tree.

- ``/proc/PID/stat``: memory, CPU time, page faults and threads in a single read (proc(5)). CPU time and faults come
  twice: for the process itself, and for its reaped children, as added by the kernel (``cutime``, ``cstime``,
  ``cminflt``, ``cmajflt``). So the sum over the living processes includes each ended child whose parent has waited for
  the child.
- ``/proc/PID/status``: the parts of RSS, swap, and the high-water mark VmHWM (in kB of 1,024 bytes).
- ``/proc/PID/io``: bytes read and written by a process and by reaped children. ``read_bytes`` and ``write_bytes`` count
  the bytes of storage. ``rchar`` and ``wchar`` count the bytes of system calls, including page cache and pipes.
"""

from __future__ import annotations

import os

from nncftools.sampler.probes import PROCESS
from nncftools.sampler.tree import PAGE, SMALL, TICKS_PER_S, find_size, read_all

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.sampler.tree import Process


_RSS = 21
"""In ``/proc/PID/stat``, this is the index of RSS among the words after the process's name. The last closing
parenthesis ends the name, because a name can contain spaces and parentheses.
"""
_NO_STAT = (0,) * 8


class Summed:
    """A probe that reads the same file of ``/proc/PID`` for each process, and adds up the numbers over the processes.

    The last numbers of children of the sampler that have ended stay in the sums.
    """

    _summed = -1
    """The number of processes in the sums ``_values``. If -1, the sums must be computed again."""

    def __init__(self, slot: int, nothing: tuple[int, ...]) -> None:
        """``slot`` is the index of the file in the list ``Process.files``. ``nothing`` has a zero for each sum."""
        self._slot = slot
        self._retired: tuple[int, ...] | None = nothing
        """The sums over children of the sampler that have ended. None if the file of any such child was unreadable."""
        self._values: tuple[float | None, ...] = ()

    def take(self, process: Process, data: bytes) -> tuple[int, ...] | None:
        """Return the numbers to sum from ``data``, the new content of the file. None if the file is not readable."""
        raise NotImplementedError

    def values(self, sums: tuple[int, ...] | None) -> tuple[float | None, ...]:
        """Convert the sums over all processes to the values of ``metrics``. Unknown values are None.

        ``sums`` is None if the file of any process could not be read.
        """
        raise NotImplementedError

    def read(self, processes: Sequence[Process]) -> tuple[float | None, ...]:
        """Return the values of ``metrics``.

        Parents are read before their children. If a child is reaped after the parent was read, but before the child is
        read, the child is missing from the sample, but is never counted twice. The file of a sleeping process does not
        change, and is not parsed again.
        """
        slot = self._slot
        pread = os.pread
        has_changed = len(processes) != self._summed
        for process in processes:
            try:
                data = pread(process.files[slot], SMALL, 0)
            except OSError:
                data = process.read_slot(slot)
            if data != process.data[slot]:
                has_changed = True
                process.data[slot] = data
                process.parts[slot] = self.take(process, data)
        if has_changed:
            self._summed = len(processes)
            parts = [process.parts[slot] for process in processes]
            self._values = self.values(_sum_parts(self._retired, *parts))
        return self._values

    def retire(self, process: Process) -> None:
        """Read the file of an ended child of the sampler for the last time, and add the numbers to all later sums.

        The file is readable until the child is reaped.
        """
        self.read([process])
        self._summed = -1
        self._retired = _sum_parts(self._retired, process.parts[self._slot])


def _sum_parts(*parts: tuple[int, ...] | None) -> tuple[int, ...] | None:
    return None if None in parts else tuple(map(sum, zip(*parts, strict=True)))


class Stat(Summed):
    """Resident and virtual size, CPU time in clock ticks (10 ms), page faults, threads, processes."""

    kind = PROCESS
    metrics = ("rss", "vms", "cpu_user", "cpu_system", "minor_faults", "major_faults", "threads", "processes")
    file = "stat"
    source = "/proc/PID/stat"
    cost = "4 µs a process"

    def __init__(self, slot: int) -> None:
        super().__init__(slot, _NO_STAT)
        self.restless: list[Process] = []
        """The processes that had page faults since the previous sample."""

    def read(self, processes: Sequence[Process]) -> tuple[float | None, ...]:
        """Return the values of ``metrics`` in bytes, seconds and counts. Memory is None if only zombies are left."""
        self.restless = []
        return super().read(processes)

    def values(self, sums: tuple[int, ...] | None) -> tuple[float | None, ...]:
        """Convert the sums over all processes to the values of ``metrics``: bytes, seconds and counts."""
        assert sums is not None
        rss, vms, user, system, *others, count = sums
        memory = (rss * PAGE, vms) if count else (None, None)
        return (*memory, user / TICKS_PER_S, system / TICKS_PER_S, *others, count)

    def take(self, process: Process, data: bytes) -> tuple[int, ...]:
        """Store CPU time, page faults and RSS in ``process``; return the numbers to sum. All are 0 if the file is gone.

        The numbers have the order of ``metrics``. RSS is in pages, and CPU time is in clock ticks.
        """
        if not data:
            process.lose_memory()
            return _NO_STAT
        fields = data[data.rindex(b")") + 2 :].split(b" ", _RSS + 1)
        minor, minor_reaped, major, major_reaped, *ticks = map(int, fields[7:15])
        user, system, user_reaped, system_reaped = ticks
        process.cpu_ticks = user + system
        faults = minor + major
        if faults != process.faults:
            process.faults_before = process.faults
            process.rss_before = process.rss
            process.faults = faults
            process.image = fields[_RSS + 1].split(b" ", 4)[1:4]
            self.restless.append(process)
        process.rss = resident = int(fields[_RSS])
        user += user_reaped
        system += system_reaped
        minor += minor_reaped
        major += major_reaped
        if not (resident and process.counted):  # the process is ending and has freed its memory, or is not counted yet
            process.lose_memory()
            return 0, 0, user, system, minor, major, 0, 0
        process.sampled_from = process.sampled_from or process.common.samples + 1
        process.sampled_to = 0
        process.thread_count = int(fields[17])
        if resident > process.peak_rss:  # noqa: PLR1730 — max() costs 60 ns more, for each process at each sample
            process.peak_rss = resident
        return resident, int(fields[20]), user, system, minor, major, process.thread_count, 1


_KEYS = (b"\nRssAnon:", b"\nRssFile:", b"\nRssShmem:", b"\nVmSwap:")
_UNKNOWN = (None,) * len(_KEYS)


class Status:
    """The anonymous, file-backed and shared parts of RSS, and swapped-out memory."""

    kind = PROCESS
    metrics = ("anon", "file", "shmem", "swap")
    file = "status"
    source = "/proc/PID/status"
    cost = "8 µs a process"

    def __init__(self, slot: int) -> None:
        self._slot = slot

    def read(self, processes: Sequence[Process]) -> tuple[int | None, ...]:
        """Return the sums in bytes. They are None if no process has memory, or on a kernel before 4.5."""
        sums: tuple[int | None, ...] = _UNKNOWN
        for process in processes:
            try:  # the file is longer than a page if the user is in many groups
                data = read_all(process.files[self._slot])
            except OSError:
                data = process.read_slot(self._slot)
            if not process.counted or b"\nVmRSS:" not in data:  # a zombie has no VmRSS
                continue
            sizes = [find_size(data, key) for key in _KEYS]
            if None in sizes:
                return _UNKNOWN
            pairs = zip(sums, sizes, strict=True)
            sums = tuple((total or 0) + (size or 0) for total, size in pairs)
        return sums

    def retire(self, process: Process) -> None:
        """Do nothing: a process that has ended has no memory."""


_NO_IO = (0, 0, 0, 0)
_POSITIONS = (9, 11, 1, 3)
"""The index of each metric among the words of ``/proc/PID/io``."""


class Io(Summed):
    """Bytes read and written, of storage and of system calls."""

    kind = PROCESS
    metrics = ("read_bytes", "write_bytes", "read_chars", "write_chars")
    file = "io"
    source = "/proc/PID/io"
    cost = "3 µs a process"

    def __init__(self, slot: int) -> None:
        super().__init__(slot, _NO_IO)

    def values(self, sums: tuple[int, ...] | None) -> tuple[float | None, ...]:
        """Return the sums. All sums are None while the file of any process cannot be read.

        If the file of an ended child of the sampler could not be read, all sums stay None.
        """
        return sums or (None,) * len(_NO_IO)

    def take(self, process: Process, data: bytes) -> tuple[int, ...] | None:
        """Return the numbers of bytes read and written, in the order of ``metrics``. None if the file is unreadable."""
        if not data:
            return None if process.alive else _NO_IO
        words = data.split()
        return tuple(int(words[position]) for position in _POSITIONS)
