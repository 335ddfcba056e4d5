"""The control groups of processes (cgroups(7)): the memory limits they set, their use, and their killed processes.

v1: Documentation/admin-guide/cgroup-v1/memory.rst of the kernel; v2: cgroup-v2.rst. On a hybrid system the memory
controller belongs to one of the two: to v1, if ``/proc/PID/cgroup`` has a group for v1's memory controller.

A process may get a limit at any time, by ``ulimit``, ``prlimit`` or by entering a group. So ``LimitWatch`` reads its
limits when its memory has doubled since the last time: whatever meets a limit has grown.
"""

from __future__ import annotations

import os

from nncftools.journal.writing import ADDRESS_SPACE, DATA, GROUP, THROTTLE, span
from nncftools.sampler.tree import PAGE, content_of, number_after
from nncftools.sampler.tree import number_in as number_in  # noqa: PLC0414 — ``fit`` reads groups with it, too

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from nncftools.sampler.tree import Process, WriteLine

    Limit = tuple[str, int, str]
    """Its kind (``nncftools.journal.writing``), its bytes, and the file that sets it."""

_UNLIMITED = 1 << 62
"""v1 writes its largest counter, which depends on the page size, for no limit."""


class ControlGroup:
    """A group that accounts memory."""

    def __init__(self, folder: str, top: str, *, is_v2: bool) -> None:
        self.folder = folder
        self.top = top
        self.is_v2 = is_v2

    @property
    def usage_file(self) -> str:
        """The file with the bytes that are charged to the group, page cache included."""
        return f"{self.folder}/{'memory.current' if self.is_v2 else 'memory.usage_in_bytes'}"

    def limits(self) -> list[Limit]:
        """Return the smallest limit of this group and all groups above it, for each kind of limit that is set.

        ``hierarchical_memory_limit`` of v1 also knows groups that this mount does not show.
        """
        settings = list(self._settings())
        if not self.is_v2:
            effective = self.in_stat(b"hierarchical_memory_limit ")
            if effective is None or effective >= _UNLIMITED:
                return []
            above = GROUP, effective, f"above {self.folder}"
            return [next((limit for limit in settings if limit[1] == effective), above)]
        smallest: dict[str, Limit] = {}
        for limit in settings:
            if limit[1] < smallest.setdefault(limit[0], limit)[1]:
                smallest[limit[0]] = limit
        return list(smallest.values())

    def _settings(self) -> Iterator[Limit]:
        """Yield the limits that files of this group and of all groups above it set."""
        kinds = {"memory.max": GROUP, "memory.high": THROTTLE} if self.is_v2 else {"memory.limit_in_bytes": GROUP}
        for folder in self._upwards():
            for name, kind in kinds.items():
                size = number_in(f"{folder}/{name}")
                if size is not None and size < _UNLIMITED:
                    yield kind, size, f"{folder}/{name}"

    def _upwards(self) -> Iterator[str]:
        folder = self.folder
        while folder.startswith(self.top):
            yield folder
            folder = folder.rpartition("/")[0]

    def oom_kills(self) -> int | None:
        """Return how many of its processes the kernel has killed because memory ran out, as ``oom_kills_in``."""
        return oom_kills_in(self.folder)

    def used(self) -> int | None:
        """Return the bytes that are charged to the group and that the kernel cannot simply drop; None for unknown."""
        usage = number_in(self.usage_file)
        cache = self.in_stat(b"inactive_file " if self.is_v2 else b"total_inactive_file ")
        return None if usage is None else max(0, usage - (cache or 0))

    def available(self) -> int | None:
        """Return the bytes that its processes can get before a limit of it or of a group above is met.

        Other groups may use what a group above has left. None without a limit.
        """
        own = self.used()
        left = [] if own is None else [size - own for _, size, _ in self.limits()]
        for _, size, file in self._settings():
            used = ControlGroup(file.rpartition("/")[0], self.top, is_v2=self.is_v2).used()
            if used is not None:
                left.append(size - used)
        return max(0, min(left)) if left else None

    def in_stat(self, key: bytes) -> int | None:
        """Return a number in ``memory.stat``; None for unknown."""
        return number_after(content_of(f"{self.folder}/memory.stat"), key)


def oom_kills_in(folder: str) -> int | None:
    """Return how many processes of a group the kernel has killed because memory ran out; None for unknown.

    This counts victims of the whole machine's shortage, too.
    """
    counts = content_of(f"{folder}/memory.events") or content_of(f"{folder}/memory.oom_control")
    return number_after(counts, b"oom_kill ")


class Hierarchies:
    """The mounted hierarchies of control groups, as ``mountinfo`` lists them."""

    def __init__(self, root: str) -> None:
        self._root = root
        lines = content_of(f"{root}/self/mountinfo").decode(errors="surrogateescape").splitlines()
        self._mounts = [line.split() for line in lines]

    def group_of(self, pid: int) -> ControlGroup | None:
        """Return the group that accounts the memory of a process; None when we may read no such group."""
        return self.group_named(content_of(f"{self._root}/{pid}/cgroup"))

    def group_named(self, cgroup: bytes) -> ControlGroup | None:
        """Return the same by the content of the process's ``cgroup`` file."""
        lines = cgroup.decode(errors="surrogateescape").splitlines()
        groups = [fields for line in lines if len(fields := line.split(":", 2)) == len("abc")]
        v1 = [group for _, controllers, group in groups if "memory" in controllers.split(",")]
        v2 = [group for number, _, group in groups if number == "0"]
        if not (v1 or v2):
            return None
        for folder, top in self._folders((v1 or v2)[0], is_v2=not v1):
            group = ControlGroup(folder, top, is_v2=not v1)
            if os.access(group.usage_file, os.R_OK):
                return group
        return None

    def _folders(self, group: str, *, is_v2: bool) -> Iterator[tuple[str, str]]:
        """Yield a group's possible folders, one for each mount of its hierarchy, which may show only a part of it."""
        kind = "cgroup2" if is_v2 else "cgroup"
        for fields in self._mounts:
            after = fields.index("-")
            mounted, point = _unescaped(fields[3]).rstrip("/"), _unescaped(fields[4])
            right = fields[after + 1] == kind and (is_v2 or "memory" in fields[after + 3].split(","))
            if right and f"{group}/".startswith(f"{mounted}/"):
                yield f"{point}{group[len(mounted) :]}".rstrip("/"), point


def _unescaped(path: str) -> str:
    """Return a path from mountinfo, which has blanks and backslashes as octal escapes (proc(5)), without escapes."""
    raw = path.encode(errors="surrogateescape").decode("unicode_escape")
    return raw.encode("latin-1").decode(errors="surrogateescape")


_AGAIN_FROM = (16 << 20) // PAGE
"""A process is looked at again when it has twice the RSS of the last time, and this many pages."""
_EVERY_S = 10.0
_FIRST_S = 0.05
"""The limits of the largest process are read again so soon, later less often: a command often sets limits at first."""
_RLIMITS = ((b"Max address space", ADDRESS_SPACE), (b"Max data size", DATA))
_SOFT = 26
"""The column of the soft limit (proc(5)): the names of limits are shorter."""


class LimitWatch:
    """Writes limits to the journal as they are found, and each rise of a group's count of killed processes."""

    def __init__(self, root: str, write_line: WriteLine) -> None:
        self._write_line = write_line
        self._hierarchies = Hierarchies(root)
        self._again_at: dict[Process, int] = {}
        """In pages."""
        self._known: set[tuple[str, int, str]] = set()
        self._kills: dict[str, int | None] = {}
        """By folder of the groups of the processes: the last count."""
        self._checked_s = 0.0
        self._after_s = _FIRST_S

    def look(self, restless: Iterable[Process]) -> list[Process]:
        """Read the limits of those processes that have doubled, and return them."""
        doubled = [process for process in restless if process.rss >= self._again_at.get(process, 0)]
        for process in doubled:
            self._read(process)
        return doubled

    def look_again(self, processes: Iterable[Process], now_s: float) -> float:
        """Read the limits of the largest process; return when that is due again."""
        again_s = now_s + self._after_s
        self._after_s = min(_EVERY_S, 4 * self._after_s)
        largest = max(processes, key=lambda process: process.rss, default=None)
        if largest is not None:
            self._read(largest, groups_too=self._after_s >= _EVERY_S)
        return again_s

    def _read(self, process: Process, *, groups_too: bool = True) -> None:
        """Read the limits of a process; those of a known group take 50 µs."""
        self._again_at[process] = max(_AGAIN_FROM, 2 * process.rss)
        try:
            group = self._hierarchies.group_named(process.read("cgroup"))
            limits = _rlimits(process.read("limits"))
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
            if limit not in self._known:
                self._known.add(limit)
                facts = dict(zip(("kind", "size", "set_by"), limit, strict=True))
                self._write_line("memory_limit", {**facts, "process": process.number})

    def ended(self, process: Process) -> None:
        """Forget a process."""
        self._again_at.pop(process, None)

    def check(self, now_s: float) -> None:
        """Write how many processes of each group were killed since the last call."""
        for folder, before in self._kills.items():
            kills = oom_kills_in(folder)
            if kills is not None and before is not None and kills > before:
                facts = {"group": folder, **span(self._checked_s, now_s), "count": kills - before}
                self._write_line("oom_kills", facts)
                self._kills[folder] = kills
        self._checked_s = now_s


def _rlimits(data: bytes) -> list[tuple[str, int, str]]:
    return [
        (kind, int(soft), "ulimit or setrlimit(2)")
        for line in data.splitlines()
        for name, kind in _RLIMITS
        if line.startswith(name) and (soft := line[_SOFT:].split(None, 1)[0]).isdigit()
    ]
