"""What the resident memory of a process is: its mappings (``/proc/PID/smaps``, proc(5)) in a few groups.

Decides when to read the mappings of the largest processes: near each new maximum of the tree.
"""

from __future__ import annotations

import re
import time

from nncftools.snapshots.budget import Budget

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Collection

    from nncftools.journal.writing import Writer
    from nncftools.snapshots.tree_watch import Watched


_MAPPING = re.compile(
    rb"^[0-9a-f]+-[0-9a-f]+ (?P<rights>\S+) \S+ \S+ \d+ *(?P<name>[^\n]*)\n"
    rb".*?^Rss: +(\d+) kB\n"
    rb".*?^Shared_Clean: +(\d+) kB\n"
    rb"Shared_Dirty: +(\d+) kB\n"
    rb"Private_Clean: +(\d+) kB\n"
    rb"Private_Dirty: +(\d+) kB\n"
    rb".*?^Anonymous: +(\d+) kB\n",
    re.MULTILINE | re.DOTALL,
)
_KIB = 1024
_DELETED = b" (deleted)"
_SHARED = (b"/dev/shm/", b"/memfd:", b"/SYSV", b"/dev/zero", b"/anon_hugepage")
_MOST_FILES = 20
_SMALLEST_FILE = 1 << 20
ANONYMOUS, FILE, OTHER_FILES, LIBRARIES, STACK, SHARED = (
    "anonymous",
    "file",
    "other_files",
    "libraries",
    "stack",
    "shared",
)


def groups(smaps: bytes) -> list[tuple[str, str, list[int]]]:
    """Return kind, name and bytes of each group: RSS, shared clean and dirty, private clean and dirty, anonymous.

    Large files have a group of their own, named by their path. In a group of files, anonymous pages are copies: the
    process has written to its private mapping.
    """
    found: dict[tuple[str, bytes], list[int]] = {}
    executable = set()
    for match in _MAPPING.finditer(smaps):
        rights, name, *sizes = match.groups()
        if b"x" in rights and name.startswith(b"/"):
            executable.add(name)
        if sizes[0] == b"0":
            continue
        key = _kind(name), name
        sums = found.setdefault(key, [0] * len(sizes))
        for place, size in enumerate(sizes):
            sums[place] += int(size) * _KIB
    return _merged(found, executable)


def _kind(name: bytes) -> str:
    if name.startswith(_SHARED):
        return SHARED
    if name.startswith(b"/"):
        return LIBRARIES if b".so" in name.rpartition(b"/")[2] else FILE
    return STACK if name.startswith(b"[stack") else ANONYMOUS


def _merged(found: dict[tuple[str, bytes], list[int]], executable: set[bytes]) -> list[tuple[str, str, list[int]]]:
    sizes = sorted((of[0] for (kind, _), of in found.items() if kind == FILE), reverse=True)
    least = max(_SMALLEST_FILE, sizes[_MOST_FILES - 1] if len(sizes) >= _MOST_FILES else 0)
    merged: dict[tuple[str, str], list[int]] = {}
    for (kind, name), of in found.items():
        key = kind, ""
        if kind == FILE and name in executable:
            key = LIBRARIES, ""
        elif kind == FILE:
            path = name.removesuffix(_DELETED).decode(errors="backslashreplace")
            key = (FILE, path) if of[0] >= least else (OTHER_FILES, "")
        sums = merged.setdefault(key, [0] * len(of))
        for place, size in enumerate(of):
            sums[place] += size
    return [(*key, of) for key, of in sorted(merged.items(), key=lambda item: -item[1][0])]


_STEP = 2.5
_STEP_AT_REST = 1.4
_MORE_WHEN_USED = 0.3
"""Steps grow with the used part of the budget: each reading takes longer than the one before."""
_SMALLEST = 128 << 20
_HELD = 0.9
"""If the tree still holds this part of its maximum, and much of it became anonymous, mapped files were copied."""
_AT_REST_NS = 30_000_000
_COVERED = 0.95
_MOST_PROCESSES = 8


class MappingWatch:
    """Reads mappings when the tree holds clearly more than at the last reading, or a little more and stays there."""

    def __init__(self, writer: Writer, share: float, least_s: float) -> None:
        self.spent_s = 0.0
        """CPU seconds so far."""
        self._writer = writer
        self._budget = Budget(share, least_s, own_cpu=lambda: self.spent_s)
        self._highest = _SMALLEST
        self._most_anonymous = 0
        self._expected_s = 0.005

    def look(self, watched: Collection[Watched], now_ns: int, rose_ns: int) -> None:
        """Read the mappings if it is time to; ``rose_ns`` is when the memory of the tree last rose."""
        total = sum([one.growth.rss for one in watched])
        at_rest = now_ns - rose_ns >= _AT_REST_NS
        step = _STEP_AT_REST if at_rest else _STEP + _MORE_WHEN_USED * self._budget.used
        anonymous = sum([one.anonymous for one in watched])
        is_copied = (
            at_rest and anonymous >= (self._most_anonymous + _SMALLEST) * step and total >= self._highest * _HELD
        )
        if total < self._highest * step and not is_copied:
            return
        if not self._budget.allows(self._expected_s):
            return
        self._budget.begin(self._expected_s)
        before_s = time.process_time()
        self._highest, self._most_anonymous = max(total, self._highest), anonymous
        self._write(watched, total)
        cost_s = time.process_time() - before_s
        self.spent_s += cost_s
        self._expected_s = (self._expected_s + cost_s) / 2

    def _write(self, watched: Collection[Watched], total: int) -> None:
        t_ns, covered, found = time.monotonic_ns(), 0, []
        for one in sorted(watched, key=lambda one: -one.growth.rss)[:_MOST_PROCESSES]:
            if covered >= total * _COVERED:
                break
            try:
                found.append((one.process.number, groups(one.process.read("smaps"))))
            except OSError:  # it has ended, or belongs to another user
                continue
            covered += one.growth.rss
        if found:
            self._writer.line("mappings", {"t_ns": t_ns, "total": total, "processes": found})
