"""Probes of the machine, and of the command's control group and file systems.

- ``/proc/meminfo``: memory in use on the whole machine (proc(5), in kB of 1,024 bytes).
- The memory charged to a control group: ``memory.current`` (v2) or ``memory.usage_in_bytes`` (v1).
- Signs that memory is short. ``/proc/pressure/memory`` has the stall time in microseconds (PSI,
  Documentation/accounting/psi.rst). ``/proc/vmstat`` counts pages and events of the machine (proc(5)). A v2 group has
  its own ``memory.pressure``, a v1 group has no such file.
- The current and the lowest free space of file systems (statvfs(3)). A thread reads the free space, because a network
  file system may not answer. If little space is left, the thread reads more often: a program that fills a disk may
  remove the file at once.
"""

from __future__ import annotations

import _thread
import os
import time
from contextlib import suppress

from nncftools.metrics import OF_DEVICES
from nncftools.sampler.control_groups import Hierarchies
from nncftools.sampler.probes import OCCASIONAL, SYSTEM
from nncftools.sampler.tree import PAGE, find_number, read_all

TYPE_CHECKING = False

if TYPE_CHECKING:
    from nncftools.journal.writing import Plan


class Meminfo:
    """The memory in use on the whole machine: MemTotal − MemAvailable."""

    kind = SYSTEM
    metrics = ("system",)
    source = "/proc/meminfo"
    cost = "15 µs"

    def __init__(self, root: str, pid: int) -> None:  # noqa: ARG002 — the same for every process
        self._file = os.open(f"{root}/meminfo", os.O_RDONLY)

    def read(self) -> tuple[float | None, ...]:
        """Return the bytes in use. None on a kernel before 3.14, because such a kernel has no MemAvailable."""
        words = os.pread(self._file, 256, 0).split(None, 8)
        if words[6] != b"MemAvailable:":
            return (None,)
        return ((int(words[1]) - int(words[7])) * 1024,)


class Cgroup:
    """Memory of the control group in which the command was started. Other processes in that group are included."""

    kind = SYSTEM
    metrics = ("cgroup",)
    source = "memory.current or memory.usage_in_bytes"
    cost = "3 µs"

    def __init__(self, root: str, pid: int) -> None:
        group = Hierarchies(root).group_of(pid)
        self._file = -1 if group is None else os.open(group.usage_file, os.O_RDONLY)

    @staticmethod
    def why_unavailable(root: str) -> str:
        """Return the reason why the memory of this process's control group cannot be read, or an empty text."""
        if Hierarchies(root).group_of(os.getpid()) is not None:
            return ""
        return "no memory controller counts the memory of this process's control group"

    def read(self) -> tuple[int | None]:
        """Return the bytes charged to the group. None if the group is gone, or its memory is not counted."""
        try:
            return (int(os.pread(self._file, 64, 0)),)
        except OSError:
            return (None,)


_KEYS = (b"workingset_refault_file ", b"workingset_refault_anon ", b"pswpin ", b"pswpout ", b"oom_kill ")
_OLD_KEY = b"workingset_refault "
"""The key in ``/proc/vmstat`` before Linux 5.9: a single number for the refaults of files and of anonymous memory."""


def try_open(file: str) -> int:
    """Open a kernel file. Return -1 if the file cannot be opened; a reading from descriptor -1 fails."""
    try:
        return os.open(file, os.O_RDONLY)
    except OSError:
        return -1


class Pressure:
    """The stall time, refaults, swapping and killed processes since the first reading.

    Reading ``vmstat`` takes 25 µs, so the file is read again only after memory has stalled or a process has ended.
    """

    kind = OCCASIONAL
    metrics = ("memory_stall", "refaults", "swap_in", "swap_out", "oom_kills", "group_oom_kills")
    source = "/proc/pressure/memory, /proc/vmstat"
    cost = "2 µs per second of recording; 25 µs if memory is short"

    _pressure = -1
    _stalled_us: int | None = None

    def __init__(self, root: str, pid: int, plan: Plan) -> None:  # noqa: ARG002 — the same for every plan
        self._group = Hierarchies(root).group_of(pid)
        if self._group is not None:
            self._pressure = try_open(f"{self._group.folder}/memory.pressure")
        if self._pressure < 0:
            self._pressure = try_open(f"{root}/pressure/memory")
        self._vmstat = try_open(f"{root}/vmstat")
        self._counts: list[int | None] = []
        self._first: list[float | None] = [0] * len(self.metrics)
        self._first = self.read(thorough=True)

    def read(self, *, thorough: bool) -> list[float | None]:
        """Return the values of ``metrics``: the stall time in seconds, three sizes in bytes, and two counts.

        With ``thorough``, read ``vmstat`` even if memory has not stalled.
        """
        stalled_us = self._read_stall()
        if thorough or stalled_us != self._stalled_us or stalled_us is None:
            self._counts = self._read_counts()
        self._stalled_us = stalled_us
        values = [None if stalled_us is None else stalled_us / 1e6, *self._counts]
        return list(map(_subtract, values, self._first))

    def _read_stall(self) -> int | None:
        try:
            data = os.pread(self._pressure, 512, 0)
            return int(data.partition(b"total=")[2].split(None, 1)[0])
        except (OSError, ValueError, IndexError):
            return None

    def _read_counts(self) -> list[int | None]:
        data = b"" if self._vmstat < 0 else read_all(self._vmstat)
        files, anonymous, swapped_in, swapped_out, kills = (find_number(data, key) for key in _KEYS)
        refaults = find_number(data, _OLD_KEY)
        if files is not None and anonymous is not None:
            refaults = files + anonymous
        sizes = map(_find_bytes, (refaults, swapped_in, swapped_out))
        return [*sizes, kills, None if self._group is None else self._group.oom_kills()]


def _subtract(value: float | None, first: float | None) -> float | None:
    return None if value is None or first is None else value - first


def _find_bytes(pages: int | None) -> int | None:
    return None if pages is None else pages * PAGE


_LONGEST_S = 1.0
_SHORTEST_S = 0.01
_FILLED_PER_S = 2 << 30
"""The assumed largest speed of writing, in bytes per second. The free space is read again before it can be used up at
this speed, and at least once a second.
"""
_CALM_S = 0.05
"""The shortest pause between two readings of the free space, if the free space has not changed."""


class FileSystem:
    """A file system, and the number of free bytes for ordinary users."""

    free: int | None = None
    _size = -1
    _first = -1
    _lowest = -1
    _written = -1
    _lowest_ns = 0

    def __init__(self, role: str, path: str) -> None:
        self.role = role
        self._path = path

    def ask(self) -> float:
        """Read the number of free bytes; return the pause before the next reading, in seconds."""
        try:
            facts = os.statvfs(self._path)
        except OSError:
            self.free = None
            return _LONGEST_S
        free = facts.f_bavail * facts.f_frsize
        if self._first < 0:
            self._first = free
            self._size = facts.f_blocks * facts.f_frsize
        if self._lowest < 0 or free < self._lowest:
            self._lowest = free
            self._lowest_ns = time.monotonic_ns()
        shortest_s = _CALM_S if free == self.free else _SHORTEST_S
        self.free = free
        return min(_LONGEST_S, max(shortest_s, free / _FILLED_PER_S))

    def line(self, start_ns: int, *, always: bool) -> dict[str, object] | None:
        """Return a journal line if the free space has halved since the last line, or if ``always``.

        Otherwise, return None.
        """
        has_halved = self._written < 0 or self._lowest * 2 <= self._written
        if self._first < 0 or not (always or has_halved):
            return None
        self._written = self._lowest
        return {
            "role": self.role,
            "path": self._path,
            "size": self._size,
            "first": self._first,
            "lowest": self._lowest,
            "lowest_s": round(max(0.0, (self._lowest_ns - start_ns) / 1e9), 6),
            "last": self.free,
        }


class FreeSpace:
    """The free bytes of each file system. The value is None until the file system has answered."""

    kind = OCCASIONAL
    metrics = ("disk_free",)
    source = "statvfs(3)"
    cost = "15 µs per second of recording, in a thread; more if a disk is almost full"

    def __init__(self, root: str, pid: int, plan: Plan) -> None:  # noqa: ARG002 — the same for every process
        self._file_systems = [FileSystem(role, path) for role, path in plan.file_systems]
        self.columns = tuple(f"disk_free@{file_system.role}" for file_system in self._file_systems)
        self._start_ns = time.monotonic_ns()
        self._ended = _thread.allocate_lock()
        self._ended.acquire()
        if self._file_systems:
            with suppress(RuntimeError):  # no thread can be started, so the free space stays unknown
                _thread.start_new_thread(self._watch, ())

    def _watch(self) -> None:
        due_s = dict.fromkeys(self._file_systems, 0.0)
        while True:
            for file_system, at_s in due_s.items():
                if at_s <= time.monotonic():
                    due_s[file_system] = file_system.ask() + time.monotonic()
            wait_s = min(due_s.values()) - time.monotonic()
            if self._ended.acquire(timeout=max(0.0, wait_s)):
                return

    def read(self, *, thorough: bool) -> list[int | None]:  # noqa: ARG002 — the thread decides about times
        """Return the free bytes of each file system, as last read by the thread."""
        return [file_system.free for file_system in self._file_systems]

    def lines(self, *, always: bool = False) -> list[dict[str, object]]:
        """Return a journal line for each file system whose free space has halved.

        With ``always``, return a line for all.
        """
        lines = (file_system.line(self._start_ns, always=always) for file_system in self._file_systems)
        return [line for line in lines if line is not None]

    def close(self) -> None:
        """End the thread."""
        self._ended.release()


_NVIDIA = ("/dev/nvidiactl", "/dev/dxg")
"""The device file of NVIDIA's driver, and the device file in WSL."""
_OTHERS = (("/dev/dri", "renderD"), ("/dev/accel", "accel"))
_FOR_TESTS = "NNCF_TOOLS_NVML"
"""The environment variable with the path of a library to load in place of NVIDIA's. Only tests set the variable. The
constant stands here a second time, because importing ``nncftools.sampler.devices`` takes memory.
"""


class Devices:
    """GPUs and NPUs. A separate helper process reads these devices (``nncftools.sampler.devices``)."""

    kind = "helper"
    metrics = OF_DEVICES
    source = "NVML, /proc/PID/fdinfo, torch's allocator at the start and end of operations"
    cost = "a process of its own, at most 1 % of a core"

    @staticmethod
    def why_unavailable(root: str) -> str:  # noqa: ARG004 — devices are not in /proc
        """Return the reason why there are no figures of devices. Empty if there is a device."""
        if _FOR_TESTS in os.environ or any(map(os.path.exists, _NVIDIA)):
            return ""
        for folder, node in _OTHERS:
            with suppress(OSError):
                if any(name.startswith(node) for name in os.listdir(folder)):
                    return ""
        return "there is no GPU or NPU"
