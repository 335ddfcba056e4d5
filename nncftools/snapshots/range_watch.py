"""Reads which addresses of a process hold anonymous memory, when its memory has changed by much.

A large block of memory is a mapping of its own (mmap(2)), and goes with it. So the addresses that went tell which of
all rises was given back.
"""

from __future__ import annotations

import contextlib
import time

from nncftools.snapshot_rules import subtract_ranges

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nncftools.journal.writing import Writer
    from nncftools.snapshot_rules import Range
    from nncftools.snapshots.budget import Budget
    from nncftools.snapshots.tree_watch import Watched

_LEAST, _RISE, _FALL = 8 << 20, 0.04, 0.02
"""A change that is smaller, in bytes or as a part of RSS, is not worth a reading."""
_MOST_READINGS = 150
_PAGE_BITS = 12
_SHARED = b"/dev/zero"
"""The name of anonymous memory that processes share."""
_ARENA = 64 << 20
"""An arena of malloc(3) is so large, lies at a multiple of that, and is writable at its beginning."""
_LARGEST_GUARD = 64 << 10
"""The stack of a thread lies above pages that nobody may touch; these are fewer bytes."""


def anonymous_ranges(maps: bytes) -> tuple[list[Range], int]:
    """Return the blocks of anonymous memory in ``/proc/PID/maps`` (proc(5)), and the size of the heap in bytes.

    A block is writable memory without a file; neighbours are one range. Memory from the heap is used again without a
    change of addresses, so the heap and malloc's arenas are no blocks. Stacks are left out.
    """
    ranges: list[Range] = []
    heap = 0
    guard_ends = 0
    for line in maps.split(b"\n"):
        words = line.split(None, 5)
        if len(words) < 5:  # noqa: PLR2004 — up to the inode
            continue
        name = b"".join(words[5:])
        is_file = words[4] != b"0" and not name.startswith(_SHARED)
        if is_file or name.startswith(b"[stack") or b"-" not in words[0]:
            continue
        begin, behind = [int(address, 16) for address in words[0].split(b"-")]
        if name == b"[heap]":
            heap += behind - begin
        elif words[1][1:2] == b"w" and begin != guard_ends:
            _add(ranges, begin, behind)
        elif words[1].startswith(b"---") and behind % _ARENA == 0:
            heap += _remove_from(ranges, behind - _ARENA, begin)
        elif words[1].startswith(b"---") and behind - begin <= _LARGEST_GUARD:
            guard_ends = behind
    return ranges, heap


def _add(ranges: list[Range], begin: int, behind: int) -> None:
    if ranges and ranges[-1][1] == begin:
        begin, _ = ranges.pop()
    ranges.append((begin, behind))


def _remove_from(ranges: list[Range], begin: int, behind: int) -> int:
    """Remove what lies from ``begin`` on, if it reaches to ``behind``; return how many bytes these are."""
    if not ranges or ranges[-1][1] != behind:
        return 0
    first, _ = ranges.pop()
    if first < begin:
        ranges.append((first, begin))
    return behind - max(first, begin)


class RangeWatch:
    """Writes which addresses came and went, for each process whose memory changed by much."""

    def __init__(self, writer: Writer, budget: Budget) -> None:
        self._writer = writer
        self._budget = budget
        self._left = _MOST_READINGS
        self._known: dict[Watched, tuple[int, list[Range]]] = {}
        """The RSS at the last reading of each process, and its ranges then."""

    def look(self, processes: Iterable[Watched]) -> None:
        """Read the addresses of processes whose memory has risen or fallen by much since the last reading."""
        for watched in processes:
            rss = watched.growth.rss
            before, ranges = self._known.get(watched, (0, []))
            share = _RISE if rss > before else _FALL
            if abs(rss - before) < max(_LEAST, rss * share) or not watched.is_introduced:
                continue
            if self._left <= 0 or self._budget.left_s <= 0:
                return
            with contextlib.suppress(OSError):  # it has ended, or belongs to another user
                now, heap = anonymous_ranges(watched.process.read("maps"))
                self._left -= 1
                self._known[watched] = rss, now
                facts = {"process": watched.process.number, "t_ns": time.monotonic_ns(), "heap": heap}
                changes = {
                    "came": _in_pages(subtract_ranges(now, ranges)),
                    "went": _in_pages(subtract_ranges(ranges, now)),
                }
                self._writer.line("ranges", {**facts, **changes})

    def forget(self, living: Iterable[Watched]) -> None:
        """Forget the processes that have ended."""
        self._known = {watched: self._known[watched] for watched in living if watched in self._known}


def _in_pages(ranges: Iterable[Range]) -> list[int]:
    """Return the first page of each range and its number of pages, one after the other."""
    pages = []
    for begin, end in ranges:
        pages += [begin >> _PAGE_BITS, (end - begin) >> _PAGE_BITS]
    return pages
