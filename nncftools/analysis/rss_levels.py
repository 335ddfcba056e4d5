"""The memory at a moment: what is left of the rises of each process, and the kinds of memory that were mapped.

A fall of RSS ends earlier rises. A large block of memory has addresses of its own: the addresses that went tell which
rises ended. Pages of files rise and fall apart from all other memory. Where nothing tells, the rises that came last are
taken to be gone. Then all rises of such memory before the fall are in doubt.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from math import inf
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
"""A fall that nothing explains puts earlier rises in doubt from so many bytes on."""
_LEAST_ROOM = 8 << 20
"""A block that has so much room may be filled now."""
FILE, HEAP, BLOCK = "file", "heap", "block"
"""Kinds of memory: pages of files and shared memory, blocks with addresses of their own, and all else."""


@dataclass(eq=False)
class Rise:
    """Bytes by which the memory of a process rose evenly between two moments, as far as it still holds them."""

    size: float
    from_s: float
    to_s: float
    apart_s: float = 0.0
    """The longest time between two readings of RSS in this time."""
    memory: str = HEAP
    """The kind of memory."""
    epoch: int = 0
    """How many falls of this kind of memory came before: all later ones put the rise in doubt."""
    is_replaced: bool = False
    """Whether other memory may have taken its place."""
    moved: tuple[tuple[float, float], ...] = ()
    """Times, from second to second, in which it went to other addresses, or other memory took its place."""

    def cut_last(self, size: float) -> Rise:
        """Remove the bytes that came last, and return them."""
        middle_s = self.to_s
        if self.size > 0:
            middle_s -= (self.to_s - self.from_s) * min(1.0, size / self.size)
        last = replace(self, size=min(size, self.size), from_s=middle_s)
        self.size -= last.size
        self.to_s = middle_s
        return last

    def cut_share(self, share: float) -> Rise:
        """Remove a share of the bytes that came at each moment, and return them."""
        part = replace(self, size=self.size * share)
        self.size -= part.size
        return part


class Fall(NamedTuple):
    """Memory that was given back, and nobody can say which."""

    size: float
    """In bytes."""
    removed: Sequence[Rise]
    """The rises that came last: they are taken to be gone."""


class Levels(NamedTuple):
    """What a process held at a moment."""

    rises: list[Rise]
    """The earliest first."""
    falls: Mapping[str, Sequence[Fall]]
    """By kind of memory."""


@dataclass(eq=False)
class _Block:
    """Addresses that came at one reading, and the rises that filled them."""

    spans: list[Range]
    rises: list[Rise] = field(default_factory=list)
    rivals: list[_Block] = field(default_factory=list)
    """Blocks that were filled at the same time: nobody can say which rise filled which of these."""

    @property
    def pages(self) -> int:
        return sum(end - begin for begin, end in self.spans)

    @property
    def room(self) -> float:
        """The bytes that no rise has filled yet."""
        return max(0.0, self.pages * _PAGE - sum(rise.size for rise in self.rises))

    def add_rivals(self, blocks: Sequence[_Block]) -> None:
        """Take note of other blocks that may have been filled at the same time."""
        for block in blocks:
            if block is not self and block not in self.rivals:
                self.rivals.append(block)
                block.rivals.append(self)

    def remove(self, went: Sequence[Range]) -> list[Rise]:
        """Remove addresses; return the part of the rises that they had."""
        before = self.pages
        self.spans = subtract_ranges(self.spans, went)
        if self.pages == before:
            return []
        share = 1 - self.pages / before
        lost = [rise.cut_share(share) for rise in self.rises]
        for rise in chain.from_iterable(block.rises for block in (self, *self.rivals)):
            rise.is_replaced = True  # nobody knows which part of it went
        return lost


class _Process:
    """Follows the rises and falls of one process."""

    def __init__(self, watched: WatchedProcess) -> None:
        self._has_ranges = bool(watched.ranges)
        self._has_threads = len({thread.thread for window in watched.windows for thread in window.threads}) > 1
        self._rises: dict[str, list[Rise]] = {FILE: [], HEAP: [], BLOCK: []}
        self._falls: dict[str, list[Fall]] = {FILE: [], HEAP: [], BLOCK: []}
        self._blocks: list[_Block] = []
        self._read_s = 0.0
        """When the addresses were read last."""
        self._heap = 0
        """The size of malloc's heap at the last reading of addresses."""
        self._waiting: list[Rise] = []
        """Rises since then; those of less than 0 bytes are falls."""
        self._going: list[Rise] = []
        """What went at that reading, and RSS had not fallen yet: the kernel frees the pages after the addresses."""

    def change(self, rise: Rise) -> None:
        """Take a rise; one of less than 0 bytes is a fall."""
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

    def read(self, change: RangeChange) -> None:
        """Take a reading of addresses: it explains the falls since the reading before."""
        went = _spans(change.went)
        pages = sum(block.pages for block in self._blocks)
        lost = [part for block in self._blocks for part in block.remove(went)]
        pages -= sum(block.pages for block in self._blocks)
        fallen = -sum(rise.size for rise in self._waiting if rise.size < 0)
        size = sum(part.size for part in lost)
        rises = self._settle(min(fallen, size), of_blocks=pages * _PAGE - size)
        self._going = []
        if size > fallen:  # something took the place of what went, or RSS falls later
            self._going = [part.cut_share(1 - fallen / size) for part in lost]
            for part in self._going:
                part.moved = (*part.moved, (self._read_s, change.time_s))
                self._keep(part, HEAP)
            rises = [*self._going, *rises]
        self._read_s = change.time_s
        self._place(rises, _Block(_spans(change.came)), change.heap)

    def _place(self, rises: Sequence[Rise], came: _Block, heap: int) -> None:
        """Find the blocks of rises: the one that came, or earlier ones with room. What may be on the heap is on it."""
        grown = max(0, heap - self._heap)
        self._heap = heap
        left = sum(rise.size for rise in rises) - grown
        self._blocks.append(came)
        unfilled = [block for block in self._blocks if block.room >= _LEAST_ROOM]
        for block in reversed(self._blocks):
            part = min(left, block.room)
            left -= part
            if part > 0 and self._has_threads:
                block.add_rivals(unfilled)
            for rise in reversed(rises):  # the reading followed the largest rise, which was the last one
                if part > 0 and rise.size > 0:
                    piece = rise.cut_last(part)
                    part -= piece.size
                    block.rises.append(piece)
                    self._keep(piece, BLOCK)
        self._blocks = [block for block in self._blocks if block.spans]

    def _settle(self, explained: float, of_blocks: float) -> list[Rise]:
        """Take the waiting rises and falls, of which so many bytes are explained; return what is left of these rises.

        Other falls may have taken as many bytes ``of_blocks``: infinite if the addresses were not read after them.
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
            known = min(size, explained)
            explained -= known
            unexplained += size - known
            for part in self._take_last((HEAP, BLOCK), size - known, is_ordered=of_blocks < inf):
                removed[part.memory].append(part)
        self._doubt(HEAP, unexplained, removed[HEAP])
        of_blocks = max(of_blocks, sum(part.size for part in removed[BLOCK]))
        self._doubt(BLOCK, min(unexplained, of_blocks), removed[BLOCK])
        return [rise for rise in rises if rise.size > 0]

    def _take_last(self, kinds: Sequence[str], size: float, *, is_ordered: bool) -> list[Rise]:
        """Remove the bytes that came last, and return them: of the first kind of memory first, if it ``is_ordered``."""
        removed: list[Rise] = []
        while size > 0 and (left := [self._rises[kind] for kind in kinds if self._rises[kind]]):
            rises = left[0] if is_ordered else max(left, key=lambda rises: rises[-1].to_s)
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
        """Return what is left."""
        self._settle(0.0, of_blocks=inf)
        rises = [rise for of_memory in self._rises.values() for rise in of_memory if rise.size > 0]
        return Levels(sorted(rises, key=lambda rise: (rise.from_s, rise.to_s)), self._falls)


def levels_at(watched: WatchedProcess, at_s: float) -> Levels:
    """Return what is left at a moment of the rises of a process."""
    process = _Process(watched)
    readings = iter(watched.ranges)
    reading = next(readings, None)
    before_s = watched.time_s[0] if watched.time_s else 0.0
    before = file_before = 0.0
    times = watched.time_s[: bisect_right(watched.time_s, at_s) + 1]
    points = zip(times, watched.rss, watched.shared or repeat(0), watched.apart_s, strict=False)
    for time_s, rss, shared, apart_s in points:
        file_size = min(rss, shared)
        if at_s < time_s == before_s:
            break
        is_there = False
        while not is_there:  # memory changed evenly: it is divided at each reading of addresses
            now_s = min(time_s, at_s)
            is_there = reading is None or reading.time_s >= now_s
            if reading is not None and not is_there:
                now_s = max(before_s, reading.time_s)
            fraction = 1.0 if now_s >= time_s else (now_s - before_s) / (time_s - before_s)
            change = (rss - before) * fraction
            file_change = (file_size - file_before) * fraction
            process.change(Rise(file_change, before_s, now_s, apart_s, FILE))
            process.change(Rise(change - file_change, before_s, now_s, apart_s, HEAP))
            file_before += file_change
            before += change
            before_s = now_s
            if reading is not None and not is_there:
                process.read(reading)
                reading = next(readings, None)
    return process.levels()


def _spans(pages: Sequence[int]) -> list[Range]:
    return [(first, first + count) for first, count in zip(pages[::2], pages[1::2], strict=False)]


def rss_at(watched: WatchedProcess, time_s: float) -> float:
    """Return the RSS of a process at a moment; 0 before and after its life, as its last point is 0 when it ends."""
    return _value_at(watched.time_s, watched.rss, time_s)


def shared_at(watched: WatchedProcess, time_s: float) -> float:
    """Return the part of its RSS at a moment that is pages of files; 0 in earlier recordings."""
    return _value_at(watched.time_s, watched.shared, time_s) if watched.shared else 0.0


def _value_at(times: Sequence[float], values: Sequence[int], time_s: float) -> float:
    first, last = bisect_left(times, time_s), bisect_right(times, time_s)
    if first < last:
        return max(values[first:last])
    if not 0 < first < len(times):  # the helper ended before it, or the process was not there yet
        return float(values[-1]) if first else 0.0
    before_s, after_s = times[first - 1], times[first]
    return values[first - 1] + (values[first] - values[first - 1]) * (time_s - before_s) / (after_s - before_s)


_FAR_S = 10.0
"""Mappings that were read this long before or after the peak are as unlike it as those of twice its size."""
_SAME_SIZE, _SAME_TIME_S = 0.02, 0.2
"""Mappings that are nearer than both are those of the moment: reading them takes up to 0.1 s."""
_OTHER_SIZE = 0.25
_MOST_OF_FILE = 0.5
_LONGEST_FILE = 40
_WEIGHTS = ".safetensors", ".bin", ".pt", ".pth", ".gguf", ".onnx", ".onnx_data", ".onnx.data"
"""The endings of files with the weights of a model."""


class Kinds(NamedTuple):
    """The resident memory of the largest processes at one moment, in bytes."""

    at_s: float
    total: int
    """The RSS of all processes."""
    groups: Sequence[MappingGroup]
    """Each kind, and each large file, once for all processes; the largest first."""
    is_of_moment: bool
    """Whether it is so near to the moment asked for that it stands for it."""
    is_other_memory: bool
    """Whether there was so much more or less memory that it says nothing about that moment."""

    @property
    def not_read(self) -> int:
        """The bytes of processes whose mappings were not read."""
        return max(0, self.total - sum(group.rss for group in self.groups))


def kinds_near(session: SessionData, at_s: float, size: int) -> Kinds | None:
    """Return what memory was near a moment at which RSS was ``size`` bytes; None when no mappings were read."""
    moments = session.snapshots.mappings if session.snapshots is not None else []
    if not moments or size <= 0:
        return None

    def distance(moment: MappingsMoment) -> float:
        far_s = abs(moment.time_s - at_s)
        return abs(moment.total - size) / size + (far_s / _FAR_S if far_s > _SAME_TIME_S else 0.0)

    best = min(moments, key=distance)
    off, far_s = abs(best.total - size), abs(best.time_s - at_s)
    is_of_moment = off <= size * _SAME_SIZE and far_s <= _SAME_TIME_S
    return kinds_at(best)._replace(is_of_moment=is_of_moment, is_other_memory=off > size * _OTHER_SIZE)


def kinds_at(moment: MappingsMoment) -> Kinds:
    """Return what memory was at a moment at which mappings were read."""
    sums: dict[tuple[str, str], list[int]] = {}
    for kind, file, *sizes in (astuple(group) for process in moment.processes for group in process.groups):
        sums[kind, file] = [sum(both) for both in zip(sums.get((kind, file), [0] * len(sizes)), sizes, strict=True)]
    groups = sorted((MappingGroup(*key, *sizes) for key, sizes in sums.items()), key=lambda group: -group.rss)
    total = max(moment.total, sum(group.rss for group in groups))  # it may grow between the helper's poll and this
    return Kinds(moment.time_s, total, groups, is_of_moment=True, is_other_memory=False)


def file_held(session: SessionData, at_s: float, size: int, file_size: int) -> str:
    """Return the path of the mapped file that most of ``file_size`` bytes of files are pages of.

    They are a part of ``size`` bytes of RSS at a moment. Of the files, and of all libraries together, that hold at
    least half of the bytes, the one nearest in size counts. Empty if that is no single file, or if no mappings were
    read near the moment.
    """
    kinds = kinds_near(session, at_s, size)
    if kinds is None or kinds.is_other_memory or file_size <= 0:
        return ""
    large = [group for group in kinds.groups if group.pages_of_file >= file_size * _MOST_OF_FILE]
    nearest = min(large, key=lambda group: abs(group.pages_of_file - file_size), default=None)
    return "" if nearest is None else nearest.file


def mapped_file_text(file: str) -> str:
    """Return the name of a mapped file, and that its pages are not lost memory."""
    kind = "weights; Linux can free them" if file.lower().endswith(_WEIGHTS) else "a mapped file; Linux can free it"
    return f"{shortened(printable(PurePath(file).name), _LONGEST_FILE)} ({kind})"
