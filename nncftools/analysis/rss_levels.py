"""Follows the memory of processes: the remaining part of each rise at a moment, and the kinds of mapped memory.

A rise is a time in which RSS grew. A fall of RSS frees memory of earlier rises. Each large block of memory has a
separate range of addresses, so the freed addresses show which rises' memory was freed. Pages of files are followed
separately from all other memory. If no reading shows the freed addresses, the newest rises are assumed to be freed. All
earlier rises of this kind of memory are then in doubt: the fall may have freed these rises instead.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from math import inf
from operator import add, attrgetter
from pathlib import PurePath
from typing import NamedTuple

from msgspec.structs import astuple

from nncftools.session.model import (
    MappingGroup,
    MappingsMoment,
    RangeChange,
    SessionData,
    WatchedProcess,
)
from nncftools.snapshot_rules import Range, subtract_ranges
from nncftools.units import printable, shortened

_PAGE = 4096
_LEAST_FALL = 4 << 20
"""If no reading explains a fall, earlier rises are in doubt (may have been freed). A fall of fewer bytes than this does
not put rises in doubt."""
_LEAST_ROOM = 8 << 20
"""A block with at least this many unfilled bytes may be filled by a rise."""
FILE = "file"
"""A kind of memory: pages of files, and shared memory."""
HEAP = "heap"
"""A kind of memory: all memory except ``FILE`` and ``BLOCK``."""
BLOCK = "block"
"""A kind of memory: large blocks, each in a separate range of addresses."""


@dataclass(eq=False)
class Rise:
    """A rise of a process's memory, without the bytes that were freed later.

    RSS rose evenly from ``from_s`` to ``to_s``.
    """

    size: float
    from_s: float
    to_s: float
    apart_s: float = 0.0
    """The longest time between two readings of RSS during the rise."""
    memory: str = HEAP
    """The kind of memory: ``FILE``, ``HEAP`` or ``BLOCK``."""
    epoch: int = 0
    """The number of earlier falls of this kind of memory. Each later fall may have freed the rise."""
    is_replaced: bool = False
    """Whether other memory may have replaced a part of the rise."""
    moved: tuple[tuple[float, float], ...] = ()
    """Times in which the memory moved to other addresses, or in which other memory replaced a part: ``((start_s,
    end_s), …)``.
    """

    def cut_last(self, size: float) -> Rise:
        """Remove the newest bytes; return the removed bytes as a rise."""
        middle_s = self.to_s
        if self.size > 0:
            middle_s -= (self.to_s - self.from_s) * min(1.0, size / self.size)
        last = replace(self, size=min(size, self.size), from_s=middle_s)
        self.size -= last.size
        self.to_s = middle_s
        return last

    def cut_share(self, share: float) -> Rise:
        """Remove a share of the bytes, evenly over the time of the rise; return the removed bytes as a rise."""
        part = replace(self, size=self.size * share)
        self.size -= part.size
        return part


class Fall(NamedTuple):
    """Memory that was freed. No reading shows which memory was freed."""

    size: float
    removed: Sequence[Rise]
    """The newest rises, which are assumed to be freed."""


class Levels(NamedTuple):
    """The memory of a process at a moment."""

    rises: list[Rise]
    """Rises of memory, the earliest rise first."""
    falls: Mapping[str, Sequence[Fall]]
    """Falls by kind of memory."""


@dataclass(eq=False)
class _Block:
    """A block: addresses that a reading showed for the first time, and the rises of RSS that filled the block."""

    spans: list[Range]
    rises: list[Rise] = field(default_factory=list)
    rivals: list[_Block] = field(default_factory=list)
    """Other blocks that had room at the same time. Each rise in ``rises`` may have filled these blocks instead."""

    @property
    def pages(self) -> int:
        return sum(end - begin for begin, end in self.spans)

    @property
    def room(self) -> float:
        """The bytes that no rise has filled yet."""
        return max(0.0, self.pages * _PAGE - _sum_sizes(self.rises))

    def add_rivals(self, blocks: Sequence[_Block]) -> None:
        for block in blocks:
            if block is not self and block not in self.rivals:
                self.rivals.append(block)
                block.rivals.append(self)

    def remove(self, went: Sequence[Range]) -> list[Rise]:
        """Remove addresses; return the removed part of the rises."""
        pages = self.pages
        self.spans = subtract_ranges(self.spans, went)
        if self.pages == pages:
            return []
        share = 1 - self.pages / pages
        lost = [rise.cut_share(share) for rise in self.rises]
        for block in (self, *self.rivals):
            for rise in block.rises:
                rise.is_replaced = True  # no reading shows which part is gone
        return lost


def _sum_sizes(rises: Iterable[Rise]) -> float:
    return sum(rise.size for rise in rises)


class _Process:
    """Follows the rises and falls of a process."""

    def __init__(self, watched: WatchedProcess) -> None:
        threads = chain.from_iterable(window.threads for window in watched.windows)
        self._has_ranges = bool(watched.ranges)
        self._has_threads = len({thread.thread for thread in threads}) > 1
        kinds = (FILE, HEAP, BLOCK)
        self._rises = {kind: list[Rise]() for kind in kinds}
        self._falls = {kind: list[Fall]() for kind in kinds}
        self._blocks: list[_Block] = []
        self._read_s = 0.0
        """The time of the last reading of addresses."""
        self._heap = 0
        """The size of malloc's heap at the last reading of addresses."""
        self._waiting: list[Rise] = []
        """Rises since the last reading of addresses. A rise below 0 bytes is a fall."""
        self._going: list[Rise] = []
        """Memory whose addresses were gone at the last reading, although RSS had not fallen yet. The kernel frees the
        pages later."""

    def change(self, rise: Rise) -> None:
        """Follow a rise. A rise below 0 bytes is a fall."""
        if rise.memory != FILE:
            self._waiting.append(rise)
        elif rise.size > 0:
            self._keep(rise, FILE)
        elif rise.size < 0:
            removed = self._take_last((FILE,), -rise.size, is_ordered=True)
            self._doubt(FILE, -rise.size, removed)

    def _keep(self, rise: Rise, memory: str) -> None:
        rise.memory = memory
        rise.epoch = len(self._falls[memory])
        self._rises[memory].append(rise)

    def _count_pages(self) -> int:
        return sum(block.pages for block in self._blocks)

    def read(self, change: RangeChange) -> None:
        """Update the blocks by a reading of addresses. Freed addresses explain the falls since the previous reading."""
        went = _to_ranges(change.went)
        pages = self._count_pages()
        lost: list[Rise] = []
        for block in self._blocks:
            lost += block.remove(went)
        unfilled = (pages - self._count_pages()) * _PAGE - _sum_sizes(lost)
        fallen = -_sum_sizes(rise for rise in self._waiting if rise.size < 0)
        size = _sum_sizes(lost)
        rises = self._settle(min(fallen, size), in_blocks=unfilled)
        self._going = []
        if size > fallen:  # other memory replaced the lost memory, or RSS will fall later
            self._going = [part.cut_share(1 - fallen / size) for part in lost]
            for part in self._going:
                part.moved = (*part.moved, (self._read_s, change.time_s))
                self._keep(part, HEAP)
            rises = [*self._going, *rises]
        self._read_s = change.time_s
        self._place(rises, _Block(_to_ranges(change.came)), change.heap)

    def _place(self, rises: Sequence[Rise], came: _Block, heap: int) -> None:
        """Put rises, without the growth of malloc's heap, into the new block, or into earlier blocks with room."""
        remaining = _sum_sizes(rises) - max(0, heap - self._heap)
        self._heap = heap
        self._blocks.append(came)
        unfilled = [block for block in self._blocks if block.room >= _LEAST_ROOM]
        for block in reversed(self._blocks):
            part = min(remaining, block.room)
            remaining -= part
            if part > 0 and self._has_threads:
                block.add_rivals(unfilled)
            for rise in reversed(rises):  # the reading came after the largest rise, which is the last
                if part > 0 and rise.size > 0:
                    piece = rise.cut_last(part)
                    part -= piece.size
                    block.rises.append(piece)
                    self._keep(piece, BLOCK)
        self._blocks = [block for block in self._blocks if block.spans]

    def _settle(self, explained: float, in_blocks: float) -> list[Rise]:
        """Apply the rises and falls since the last reading of addresses. Return the rises that were not freed since.

        Freed addresses show the position of ``explained`` bytes that the falls freed. The position of the remaining
        freed bytes is unknown: up to ``in_blocks`` bytes may have been in large blocks. ``in_blocks`` is infinite if no
        addresses were read after the falls.
        """
        waiting = self._waiting
        self._waiting = []
        rises = []
        unexplained = 0.0
        removed: dict[str, list[Rise]] = {HEAP: [], BLOCK: []}
        for rise in waiting:
            if rise.size > 0:
                self._keep(rise, HEAP)
                rises.append(rise)
                continue
            size = -rise.size
            for part in self._going:
                size -= part.cut_last(size).size
            explained_part = min(size, explained)
            explained -= explained_part
            unexplained += size - explained_part
            for part in self._take_last((HEAP, BLOCK), size - explained_part, is_ordered=in_blocks < inf):
                removed[part.memory].append(part)
        self._doubt(HEAP, unexplained, removed[HEAP])
        in_blocks = max(in_blocks, _sum_sizes(removed[BLOCK]))
        self._doubt(BLOCK, min(unexplained, in_blocks), removed[BLOCK])
        return [rise for rise in rises if rise.size > 0]

    def _take_last(self, kinds: Sequence[str], size: float, *, is_ordered: bool) -> list[Rise]:
        """Remove and return the newest bytes of several kinds of memory.

        If ``is_ordered``, empty the first kind of memory first.
        """
        removed: list[Rise] = []
        while size > 0:
            stacks = [self._rises[kind] for kind in kinds if self._rises[kind]]
            if not stacks:
                break
            rises = stacks[0]
            if not is_ordered:
                rises = max(stacks, key=lambda stack: stack[-1].to_s)
            part = rises[-1].cut_last(size)
            size -= part.size
            removed.append(part)
            if rises[-1].size <= 0:
                rises.pop()
        return removed

    def _doubt(self, memory: str, size: float, removed: Sequence[Rise]) -> None:
        if self._has_ranges and size >= _LEAST_FALL:
            self._falls[memory].append(Fall(size, removed))

    def levels(self) -> Levels:
        """Return the rises whose memory was not freed, and the falls."""
        self._settle(0.0, in_blocks=inf)
        every = chain.from_iterable(self._rises.values())
        rises = [rise for rise in every if rise.size > 0]
        rises.sort(key=attrgetter("from_s", "to_s"))
        return Levels(rises, self._falls)


def levels_at(watched: WatchedProcess, at_s: float) -> Levels:
    """Return the rises whose memory a process still held at a moment, and the falls before this moment."""
    process = _Process(watched)
    readings = iter(watched.ranges)
    reading = next(readings, None)
    begin_s = watched.time_s[0] if watched.time_s else 0.0
    level = 0.0
    file_level = 0.0
    times = watched.time_s[: bisect_right(watched.time_s, at_s) + 1]
    shared_sizes = watched.shared or repeat(0)
    points = zip(times, watched.rss, shared_sizes, watched.apart_s, strict=False)
    for time_s, rss, shared, apart_s in points:
        file_size = min(rss, shared)
        if at_s < time_s == begin_s:
            break
        is_last = False
        while not is_last:  # memory changed evenly, so the change is divided at each reading of addresses
            end_s = min(time_s, at_s)
            is_last = reading is None or reading.time_s >= end_s
            if reading is not None and not is_last:
                end_s = max(begin_s, reading.time_s)
            fraction = 1.0 if end_s >= time_s else (end_s - begin_s) / (time_s - begin_s)
            change = (rss - level) * fraction
            file_change = (file_size - file_level) * fraction
            process.change(Rise(file_change, begin_s, end_s, apart_s, memory=FILE))
            process.change(Rise(change - file_change, begin_s, end_s, apart_s))
            file_level += file_change
            level += change
            begin_s = end_s
            if reading is not None and not is_last:
                process.read(reading)
                reading = next(readings, None)
    return process.levels()


def _to_ranges(pages: Sequence[int]) -> list[Range]:
    pairs = zip(pages[::2], pages[1::2], strict=False)
    return [(first, first + count) for first, count in pairs]


def rss_at(watched: WatchedProcess, time_s: float) -> float:
    """Return the RSS of a process at a moment. The RSS is 0 before and after the life of the process."""
    return _value_at(watched.time_s, watched.rss, time_s)


def shared_at(watched: WatchedProcess, time_s: float) -> float:
    """Return the bytes of RSS in pages of files or shared memory at a moment.

    The result is 0 in recordings of older versions, which do not have this value.
    """
    return _value_at(watched.time_s, watched.shared, time_s) if watched.shared else 0.0


def _value_at(times: Sequence[float], values: Sequence[int], time_s: float) -> float:
    first = bisect_left(times, time_s)
    last = bisect_right(times, time_s)
    if first < last:
        return max(values[first:last])
    if not 0 < first < len(times):  # the helper ended earlier, or the process had not begun
        return float(values[-1]) if first else 0.0
    begin_s = times[first - 1]
    share = (time_s - begin_s) / (times[first] - begin_s)
    return values[first - 1] + (values[first] - values[first - 1]) * share


_FAR_S = 10.0
"""The best reading of mappings is near the peak in size and time. A distance of this many seconds counts as much as a
size difference of 100 %."""
_SAME_SIZE = 0.02
_SAME_TIME_S = 0.2
"""Mappings count as read at a moment if they were read at most this many seconds before or after, and if the size
differs by at most the share ``_SAME_SIZE``. A reading takes up to 0.1 s."""
_OTHER_SIZE = 0.25
_MOST_OF_FILE = 0.5
_LONGEST_FILE = 40
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".onnx", ".onnx_data", ".onnx.data")
"""File name endings of files with the weights of a model."""


class Kinds(NamedTuple):
    """The resident memory of the largest processes by kind of mapping, in bytes."""

    at_s: float
    """The time at which the mappings were read, in seconds since the start."""
    total: int
    """The RSS of all processes."""
    groups: Sequence[MappingGroup]
    """The memory of each kind, and of each large file, summed over all processes; the largest sum first."""
    is_of_moment: bool
    """Whether the mappings count as read at the time given to ``kinds_near``: time and RSS are almost equal."""
    is_other_memory: bool
    """Whether RSS at the time given to ``kinds_near`` differs from RSS at ``at_s`` by more than 25 %."""

    @property
    def not_read(self) -> int:
        """The bytes of processes whose mappings were not read."""
        return max(0, self.total - sum(group.rss for group in self.groups))


def kinds_near(session: SessionData, at_s: float, size: int) -> Kinds | None:
    """Return the kinds of memory near a moment at which RSS was ``size`` bytes; None if no mappings were read."""
    moments = session.snapshots.mappings if session.snapshots is not None else []
    if not moments or size <= 0:
        return None

    def distance(moment: MappingsMoment) -> float:
        far_s = abs(moment.time_s - at_s)
        return abs(moment.total - size) / size + (far_s / _FAR_S if far_s > _SAME_TIME_S else 0.0)

    best = min(moments, key=distance)
    difference = abs(best.total - size)
    is_of_moment = difference <= size * _SAME_SIZE and abs(best.time_s - at_s) <= _SAME_TIME_S
    return kinds_at(best)._replace(is_of_moment=is_of_moment, is_other_memory=difference > size * _OTHER_SIZE)


def kinds_at(moment: MappingsMoment) -> Kinds:
    """Return the kinds of memory at a moment at which mappings were read."""
    sums: dict[tuple[str, str], list[int]] = {}
    for process in moment.processes:
        for group in process.groups:
            kind, file, *sizes = astuple(group)
            earlier = sums.get((kind, file), [0] * len(sizes))
            sums[kind, file] = list(map(add, earlier, sizes))
    groups = [MappingGroup(*key, *sizes) for key, sizes in sums.items()]
    groups.sort(key=lambda group: -group.rss)
    total = sum(group.rss for group in groups)  # memory may grow after the helper has read RSS
    total = max(moment.total, total)
    return Kinds(moment.time_s, total, groups, is_of_moment=True, is_other_memory=False)


def file_held(session: SessionData, at_s: float, size: int, file_size: int) -> str:
    """Return the path of the mapped file that most likely has ``file_size`` bytes in RSS at a moment.

    RSS was ``size`` bytes at this moment. The candidates are single files, and all libraries together. A candidate must
    hold at least half of ``file_size``. The candidate with the nearest size is chosen. Empty if the libraries are
    chosen, or if no mappings were read near the moment.
    """
    kinds = kinds_near(session, at_s, size)
    if kinds is None or kinds.is_other_memory or file_size <= 0:
        return ""
    large = [group for group in kinds.groups if group.pages_of_file >= file_size * _MOST_OF_FILE]
    nearest = min(large, key=lambda group: abs(group.pages_of_file - file_size), default=None)
    return "" if nearest is None else nearest.file


def mapped_file_text(file: str) -> str:
    """Return the name of a mapped file, with the remark that Linux can free the pages of the file."""
    kind = "weights; Linux can free them" if file.lower().endswith(_WEIGHTS) else "a mapped file; Linux can free it"
    return f"{shortened(printable(PurePath(file).name), _LONGEST_FILE)} ({kind})"
