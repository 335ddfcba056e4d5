"""Control groups (cgroups(7)): memory limits, memory in use, and the number of killed processes.

The kernel describes the files in Documentation/admin-guide/cgroup-v1/memory.rst (v1) and cgroup-v2.rst (v2). On a
hybrid system, the memory controller belongs to v1 if ``/proc/PID/cgroup`` has a group for v1's memory controller, and
otherwise to v2.

A process may get a limit at any time, by ``ulimit``, by ``prlimit`` or by entering a group. A process must grow before
a limit matters, so ``LimitWatch`` reads the limits of a process again when the memory has doubled.
"""

from __future__ import annotations

import os

from nncftools.journal.writing import ADDRESS_SPACE, DATA, GROUP, THROTTLE, format_span
from nncftools.sampler.tree import PAGE, find_number, read_number, read_small_file

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from nncftools.sampler.tree import Process, WriteLine

    Limit = tuple[str, int, str]
    """A memory limit: kind (a constant in ``nncftools.journal.writing``), bytes, and the file or call that sets the
    limit.
    """

_UNLIMITED = 1 << 62
"""If a group has no limit, v1 shows a number larger than this."""


class ControlGroup:
    """A control group for which the kernel counts memory."""

    def __init__(self, folder: str, top: str, *, is_v2: bool) -> None:
        self.folder = folder
        self.top = top
        self.is_v2 = is_v2
        self.usage_file = f"{folder}/{'memory.current' if is_v2 else 'memory.usage_in_bytes'}"
        """The file with the number of bytes that are charged to the group. Page cache is included."""

    def limits(self) -> list[Limit]:
        """Return the smallest limit of each kind, from this group and all parent groups.

        In v1, ``hierarchical_memory_limit`` also includes parent groups that this mount does not show.
        """
        settings = list(self._list_settings())
        if not self.is_v2:
            effective = self.in_stat(b"hierarchical_memory_limit ")
            if effective is None or effective >= _UNLIMITED:
                return []
            equal = [limit for limit in settings if limit[1] == effective]
            return equal[:1] or [(GROUP, effective, f"above {self.folder}")]
        smallest: dict[str, Limit] = {}
        for limit in settings:
            kind, size, _ = limit
            if size < smallest.setdefault(kind, limit)[1]:
                smallest[kind] = limit
        return list(smallest.values())

    def _list_settings(self) -> Iterator[Limit]:
        """Yield each limit that a file of this group or of a parent group sets."""
        kinds = {"memory.max": GROUP, "memory.high": THROTTLE} if self.is_v2 else {"memory.limit_in_bytes": GROUP}
        for folder in self._list_folders():
            for name, kind in kinds.items():
                size = read_number(f"{folder}/{name}")
                if size is not None and size < _UNLIMITED:
                    yield kind, size, f"{folder}/{name}"

    def _list_folders(self) -> Iterator[str]:
        folder = self.folder
        while folder.startswith(self.top):
            yield folder
            folder = folder.rpartition("/")[0]

    def oom_kills(self) -> int | None:
        """Return how many processes of this group the kernel has killed because memory ran out. None if unknown."""
        return read_oom_kills(self.folder)

    def used(self) -> int | None:
        """Return the bytes charged to the group, without file pages that the kernel can drop. None if unknown."""
        usage = read_number(self.usage_file)
        cache = self.in_stat(b"inactive_file " if self.is_v2 else b"total_inactive_file ")
        return None if usage is None else max(0, usage - (cache or 0))

    def available(self) -> int | None:
        """Return the number of bytes that the group can still get before any limit is reached. None without a limit.

        The limits of parent groups count, too. Other groups of the same parent may use this memory first.
        """
        rooms = []
        used = self.used()
        if used is not None:
            rooms = [size - used for _, size, _ in self.limits()]
        for _, size, file in self._list_settings():
            folder = file.rpartition("/")[0]
            used = ControlGroup(folder, self.top, is_v2=self.is_v2).used()
            if used is not None:
                rooms.append(size - used)
        return max(0, min(rooms)) if rooms else None

    def number(self, file: str) -> int | None:
        """Return the number in a file of the group. None if unknown."""
        return read_number(f"{self.folder}/{file}")

    def in_stat(self, key: bytes) -> int | None:
        """Return the value of a key in the group's file ``memory.stat``. None if unknown."""
        return find_number(read_small_file(f"{self.folder}/memory.stat"), key)


def read_oom_kills(folder: str) -> int | None:
    """Return how many processes of a group the kernel has killed because memory ran out. None if unknown.

    ``folder`` is the folder of the group. The number includes processes that were killed because the whole machine ran
    out of memory.
    """
    counts = read_small_file(f"{folder}/memory.events") or read_small_file(f"{folder}/memory.oom_control")
    return find_number(counts, b"oom_kill ")


class Hierarchies:
    """The mounted hierarchies of control groups, as ``mountinfo`` lists them."""

    def __init__(self, root: str) -> None:
        self._root = root
        lines = read_small_file(f"{root}/self/mountinfo").decode(errors="surrogateescape").splitlines()
        self._mounts = [line.split() for line in lines]

    def group_of(self, pid: int) -> ControlGroup | None:
        """Return the group that a process's memory is charged to. None if there is no group with readable files."""
        return self.group_named(read_small_file(f"{self._root}/{pid}/cgroup"))

    def group_named(self, cgroup: bytes) -> ControlGroup | None:
        """Return the group that is named in ``cgroup``, the content of a file ``/proc/PID/cgroup``.

        None if there is no group, or if the files of the group are not readable.
        """
        v1 = v2 = None
        for line in cgroup.decode(errors="surrogateescape").splitlines():
            number, _, rest = line.partition(":")
            controllers, _, group = rest.partition(":")
            if "memory" in controllers.split(","):
                v1 = group
            if number == "0":
                v2 = group
        if v1 is not None:
            return self._find_readable(v1, is_v2=False)
        return None if v2 is None else self._find_readable(v2, is_v2=True)

    def _find_readable(self, group: str, *, is_v2: bool) -> ControlGroup | None:
        """Return the group from the first mount with readable files. A mount may show only a part of the hierarchy."""
        kind = "cgroup2" if is_v2 else "cgroup"
        for fields in self._mounts:
            dash = fields.index("-")
            root = _unescape(fields[3]).rstrip("/")
            if fields[dash + 1] != kind or not f"{group}/".startswith(f"{root}/"):
                continue
            if is_v2 or "memory" in fields[dash + 3].split(","):
                top = _unescape(fields[4])
                candidate = ControlGroup(f"{top}{group[len(root) :]}".rstrip("/"), top, is_v2=is_v2)
                if os.access(candidate.usage_file, os.R_OK):
                    return candidate
        return None


def _unescape(path: str) -> str:
    """Return a path from mountinfo, with octal escapes replaced.

    The escapes stand for blanks and backslashes (proc(5)).
    """
    raw = path.encode(errors="surrogateescape").decode("unicode_escape")
    return raw.encode("latin-1").decode(errors="surrogateescape")


_AGAIN_FROM = (16 << 20) // PAGE
"""In pages. The limits of a process are read again only if RSS is at least this size, and has doubled since the last
reading of the limits.
"""
_EVERY_S = 10.0
_FIRST_S = 0.05
"""The first pause between two readings of the largest process's limits. Later pauses are longer, because commands set
limits early.
"""
_RLIMITS = {b"Max address space": ADDRESS_SPACE, b"Max data size": DATA}
_SOFT = 26
"""In ``/proc/PID/limits``, the name of a limit takes this many characters. The soft limit follows (proc(5))."""


class LimitWatch:
    """Writes two kinds of lines to the journal: memory limits, and how many processes the kernel killed in a group."""

    _checked_s = 0.0

    def __init__(self, root: str, write_line: WriteLine) -> None:
        self._write_line = write_line
        self._hierarchies = Hierarchies(root)
        self._again_at: dict[Process, int] = {}
        """Maps a process to the RSS in pages at which the limits are read again."""
        self._written: set[Limit] = set()
        self._kills: dict[str, int | None] = {}
        """Maps the folder of a group to the number of processes that the kernel had killed in the group, as last read.
        None if unknown.
        """
        self._after_s = _FIRST_S

    def look(self, restless: Iterable[Process]) -> list[Process]:
        """Read the memory limits of some processes again; return the processes whose limits were read.

        ``restless`` are the processes that had page faults since the previous sample. The limits of a process are read
        if they were never read, or if RSS has doubled since the last reading.
        """
        doubled = [process for process in restless if process.rss >= self._again_at.get(process, 0)]
        for process in doubled:
            self._read(process)
        return doubled

    def look_again(self, processes: Iterable[Process], now_s: float) -> float:
        """Read the limits of the process with the largest RSS; return the time at which to call this method again."""
        again_s = now_s + self._after_s
        self._after_s = min(_EVERY_S, 4 * self._after_s)
        largest = max(processes, key=lambda process: process.rss, default=None)
        if largest is not None:
            self._read(largest, groups_too=self._after_s >= _EVERY_S)
        return again_s

    def _read(self, process: Process, *, groups_too: bool = True) -> None:
        """Read the limits of a process, and the limits of the control group if they were never read before.

        With ``groups_too``, read the limits of the group in any case. This takes 50 µs.
        """
        self._again_at[process] = max(_AGAIN_FROM, 2 * process.rss)
        try:
            group = self._hierarchies.group_named(process.read("cgroup"))
            limits = _parse_rlimits(process.read("limits"))
        except OSError:
            return
        if group is not None:
            is_new = group.folder not in self._kills
            if is_new:
                self._kills[group.folder] = kills = group.oom_kills()
                facts = {"folder": group.folder, "oom_kills": kills, "process": process.number}
                self._write_line("group", facts)
            if is_new or groups_too:
                limits += group.limits()
        for limit in limits:
            if limit not in self._written:
                self._written.add(limit)
                kind, size, file = limit
                facts = {"kind": kind, "size": size, "set_by": file, "process": process.number}
                self._write_line("memory_limit", facts)

    def ended(self, process: Process) -> None:
        """Forget a process that has ended."""
        self._again_at.pop(process, None)

    def check(self, now_s: float) -> None:
        """Write the number of processes that the kernel killed in each group since the last call."""
        for folder, last_kills in self._kills.items():
            kills = read_oom_kills(folder)
            if kills is not None and last_kills is not None and kills > last_kills:
                facts = {"group": folder, **format_span(self._checked_s, now_s), "count": kills - last_kills}
                self._write_line("oom_kills", facts)
                self._kills[folder] = kills
        self._checked_s = now_s


def _parse_rlimits(data: bytes) -> list[Limit]:
    limits: list[Limit] = []
    for line in data.splitlines():
        kind = _RLIMITS.get(line[:_SOFT].rstrip())
        if kind is not None:
            soft = line[_SOFT:].split(None, 1)[0]
            if soft.isdigit():
                limits.append((kind, int(soft), "ulimit or setrlimit(2)"))
    return limits
