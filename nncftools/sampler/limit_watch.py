"""Which memory limits the processes of a run have, and how many of them the kernel killed.

A process may get its limits at any time, by ``ulimit``, ``prlimit`` or by entering a control group. So they are read
when its memory has doubled since the last time: whatever meets a limit has grown.
"""

from __future__ import annotations

from nncftools.journal.lines import ADDRESS_SPACE, DATA
from nncftools.sampler.control_groups import Hierarchies, counted_kills, opened_counts
from nncftools.sampler.kernel_file import PAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from nncftools.sampler.control_groups import ControlGroup
    from nncftools.sampler.tree import Process

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

    def __init__(self, root: str, write_line: Callable[[str, object], None]) -> None:
        self._write_line = write_line
        self._hierarchies = Hierarchies(root)
        self._again_at: dict[Process, int] = {}
        """In pages."""
        self._known: set[tuple[str, int, str]] = set()
        self._groups: dict[str, tuple[int | None, int | None]] = {}
        """By folder of the groups of the processes: the file with the count, kept open, and the last count."""
        self._checked_s = 0.0
        self._after_s = _FIRST_S
        self.at_s = 0.0
        """When ``look_again`` is due."""

    def look(self, restless: Iterable[Process]) -> list[Process]:
        """Read the limits of those processes that have doubled, and return them."""
        doubled = [process for process in restless if process.rss >= self._again_at.get(process, 0)]
        for process in doubled:
            self._read(process)
        return doubled

    def look_again(self, processes: Iterable[Process], now_s: float) -> None:
        """Read the limits of the largest process."""
        self.at_s = now_s + self._after_s
        self._after_s = min(_EVERY_S, 4 * self._after_s)
        is_settled = self._after_s >= _EVERY_S
        self._read(max(processes, key=lambda process: process.rss), groups_too=is_settled)

    def _read(self, process: Process, *, groups_too: bool = True) -> None:
        """Read the limits of a process; those of a known group take 50 µs."""
        self._again_at[process] = max(_AGAIN_FROM, 2 * process.rss)
        try:
            group = self._hierarchies.group_named(process.read("cgroup"))
            limits = _rlimits(process.read("limits"))
        except OSError:
            return
        if group is not None:
            is_new = group.folder not in self._groups
            if is_new:
                self._add(group, process)
            if is_new or groups_too:
                limits += group.limits()
        for limit in limits:
            if limit not in self._known:
                self._known.add(limit)
                kind, size, set_by = limit
                self._write_line(
                    "memory_limit", {"kind": kind, "size": size, "set_by": set_by, "process": process.number}
                )

    def ended(self, process: Process) -> None:
        """Forget a process."""
        self._again_at.pop(process, None)

    def _add(self, group: ControlGroup, process: Process) -> None:
        file = opened_counts(group.folder)
        kills = None if file is None else counted_kills(file)
        self._groups[group.folder] = file, kills
        self._write_line("group", {"folder": group.folder, "oom_kills": kills, "process": process.number})

    def check(self, now_s: float) -> None:
        """Write how many processes of each group were killed since the last call."""
        for folder, (file, before) in self._groups.items():
            kills = None if file is None else counted_kills(file)
            if kills is None or before is None:  # the group is gone
                continue
            if kills > before:
                span = {"from_s": round(self._checked_s, 6), "to_s": round(now_s, 6)}
                self._write_line("oom_kills", {"group": folder, **span, "count": kills - before})
                self._groups[folder] = file, kills
        self._checked_s = now_s


def _rlimits(data: bytes) -> list[tuple[str, int, str]]:
    """Return the limits of address space and data that are set."""
    found = []
    for line in data.splitlines():
        for name, kind in _RLIMITS:
            if line.startswith(name):
                soft = line[_SOFT:].split(None, 1)[0]
                if soft.isdigit():
                    found.append((kind, int(soft), "ulimit or setrlimit(2)"))
    return found
