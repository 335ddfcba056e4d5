"""Reads which addresses of a process hold anonymous memory, when its memory has changed by much.

A large block of memory is a mapping of its own (mmap(2)), and goes with it. So the addresses that went tell which of
all rises was given back.
"""

from __future__ import annotations

import contextlib
import time

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nncftools.journal.writing import Writer
    from nncftools.snapshots.budget import Budget
    from nncftools.snapshots.tree_watch import Watched

    Range = tuple[int, int]
    """The first address, and the one behind the last."""

_LEAST, _SHARE = 8 << 20, 0.02
"""A change that is smaller, in bytes or as a part of RSS, is not worth a reading."""
_MOST_READINGS = 150
_PAGE_BITS = 12
_SHARED = b"/dev/zero"
"""The name of anonymous memory that processes share."""


def anonymous_ranges(maps: bytes) -> list[Range]:
    """Return where writable memory without a file lies (``/proc/PID/maps``, proc(5)); neighbours are one range."""
    ranges: list[Range] = []
    for line in maps.split(b"\n"):
        words = line.split(None, 5)
        if len(words) < 5 or words[1][1:2] != b"w":  # noqa: PLR2004 — up to the inode
            continue
        name = b"".join(words[5:])
        if name.startswith(b"[stack") or (words[4] != b"0" and not name.startswith(_SHARED)):
            continue
        first, _, end = words[0].partition(b"-")
        begin, behind = int(first, 16), int(end, 16)
        if ranges and ranges[-1][1] == begin:
            ranges[-1] = ranges[-1][0], behind
        else:
            ranges.append((begin, behind))
    return ranges


def without(ranges: Iterable[Range], others: Sequence[Range]) -> list[Range]:
    """Return what of some ranges is in none of the others; both are sorted."""
    left: list[Range] = []
    number = 0
    for begin, end in ranges:
        at = begin
        while number < len(others) and others[number][1] <= at:
            number += 1
        place = number
        while at < end and place < len(others) and others[place][0] < end:
            if others[place][0] > at:
                left.append((at, others[place][0]))
            at = max(at, others[place][1])
            place += 1
        if at < end:
            left.append((at, end))
    return left


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
            if abs(rss - before) < max(_LEAST, rss * _SHARE) or not watched.is_introduced:
                continue
            if self._left <= 0 or self._budget.left_s <= 0:
                return
            with contextlib.suppress(OSError):  # it has ended, or belongs to another user
                now = anonymous_ranges(watched.process.read("maps"))
                self._left -= 1
                self._known[watched] = rss, now
                self._write(watched, without(now, ranges), without(ranges, now))

    def _write(self, watched: Watched, came: Sequence[Range], went: Sequence[Range]) -> None:
        facts = {"process": watched.process.number, "t_ns": time.monotonic_ns()}
        self._writer.line("ranges", {**facts, "came": _in_pages(came), "went": _in_pages(went)})

    def forget(self, living: Iterable[Watched]) -> None:
        """Forget the processes that have ended."""
        self._known = {watched: self._known[watched] for watched in living if watched in self._known}


def _in_pages(ranges: Iterable[Range]) -> list[int]:
    """Return the first page of each range and its number of pages, one after the other."""
    pages = []
    for begin, end in ranges:
        pages += [begin >> _PAGE_BITS, (end - begin) >> _PAGE_BITS]
    return pages
