"""The levels of a process's memory at a moment: which rises brought what is still there.

Each rise of RSS is a level. A fall ends the rises whose addresses went, as far as these were read. What no address
explains is taken to be what came last; then the other rises without addresses of their own are in doubt.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import NamedTuple

from nncftools.session.model import RangeChange, WatchedProcess

_PAGE = 4096
_LEAST_FALL = 4 << 20
"""A fall that nothing explains puts earlier rises in doubt from so many bytes on."""
_MOSTLY = 0.5
IN_NO_DOUBT = -1

Span = tuple[int, int]
"""The first page of a range of addresses, and the one behind the last."""


class RssBand(NamedTuple):
    """Bytes from ``low`` to ``high`` of a process, through which its RSS rose evenly between two moments."""

    low: float
    high: float
    from_s: float
    to_s: float
    apart_s: float = 0.0
    """The longest time between two readings of RSS in this time."""
    epoch: int = IN_NO_DOUBT
    """How many of the process's falls came before it: all later ones put it in doubt. ``IN_NO_DOUBT``: none does."""
    file_share: float = 0.0
    """The share of the bytes that are pages of files or of shared memory, from 0 to 1."""

    def below(self, high: float) -> RssBand:
        """Return the part below a level."""
        return self._replace(high=high, to_s=self._reached_s(high))

    def above(self, low: float) -> RssBand:
        """Return the part above a level."""
        return self if low <= self.low else self._replace(low=low, from_s=self._reached_s(low))

    def _reached_s(self, rss: float) -> float:
        return self.from_s + (self.to_s - self.from_s) * (rss - self.low) / (self.high - self.low)


class Fall(NamedTuple):
    """Memory that was given back, and nobody can say which."""

    size: float
    """In bytes."""
    removed: Sequence[RssBand]
    """The rises that came last: they are taken to be gone."""


class Levels(NamedTuple):
    """What a process held at a moment."""

    bands: list[RssBand]
    """One above the other, the lowest first."""
    falls: Sequence[Fall]


@dataclass(eq=False)
class _Rise:
    """A rise, and how much of it is left."""

    size: float
    from_s: float
    to_s: float
    apart_s: float
    file_share: float
    epoch: int = 0
    is_mapped: bool = False
    """Whether its addresses are known."""

    def take_last(self, size: float) -> RssBand:
        """Remove what came last of it, and return that."""
        whole = self.band(0.0)
        self.size -= size
        self.to_s = whole.below(self.size).to_s
        return whole.above(self.size)

    def band(self, low: float) -> RssBand:
        """Return it as a level."""
        epoch = IN_NO_DOUBT if self.is_mapped else self.epoch
        return RssBand(low, low + self.size, self.from_s, self.to_s, self.apart_s, epoch, self.file_share)


@dataclass(eq=False)
class _Mapping:
    """Addresses that came at one reading, and the rises that filled them."""

    spans: list[Span]
    rises: list[_Rise] = field(default_factory=list)

    @property
    def pages(self) -> int:
        return sum(end - begin for begin, end in self.spans)

    @property
    def room(self) -> float:
        """The bytes that no rise has filled yet."""
        return self.pages * _PAGE - sum(rise.size for rise in self.rises)

    def remove(self, went: Sequence[Span]) -> float:
        """Remove addresses, with their part of the rises; return how many bytes these lost."""
        before = self.pages
        self.spans = _without(self.spans, went)
        if not before or self.pages == before:
            return 0.0
        lost = 0.0
        part = 1 - self.pages / before
        for rise in self.rises:
            lost += rise.size * part
            rise.size -= rise.size * part
        return lost


class _Process:
    """Follows the rises and falls of one process."""

    def __init__(self, *, has_ranges: bool) -> None:
        self._has_ranges = has_ranges
        self._rises: list[_Rise] = []
        self._mappings: list[_Mapping] = []
        self._waiting: list[_Rise | float] = []
        """Rises, and bytes of falls, since the last reading of addresses."""
        self.falls: list[Fall] = []

    def change(self, rise: _Rise) -> None:
        """Take a rise; one of less than 0 bytes is a fall."""
        if rise.size > 0:
            self._waiting.append(rise)
        elif rise.size < 0:
            self._waiting.append(-rise.size)

    def read(self, change: RangeChange) -> None:
        """Take a reading of addresses: it explains the falls since the reading before."""
        went = _spans(change.went)
        lost = sum(mapping.remove(went) for mapping in self._mappings)
        self._mappings = [mapping for mapping in self._mappings if mapping.spans]
        came = _Mapping(_spans(change.came))
        fallen = sum(of for of in self._waiting if isinstance(of, float))
        rises = self.settle(min(fallen, lost))
        if lost > fallen and rises:  # what went was replaced before RSS was read
            rises[-1].size += lost - fallen
        self._place(rises, came)

    def _place(self, rises: Sequence[_Rise], came: _Mapping) -> None:
        """Find the addresses of rises: those that came, or earlier ones with room."""
        size = sum(rise.size for rise in rises)
        if came.spans:
            self._mappings.append(came)
        for mapping in reversed(self._mappings):
            if size and mapping.room >= size * _MOSTLY:
                mapping.rises += rises
                for rise in rises:
                    rise.is_mapped = True
                return

    def settle(self, explained: float = 0.0) -> list[_Rise]:
        """Take the waiting rises and falls, of which so many bytes are explained; return these rises."""
        rises = []
        for of in self._waiting:
            if isinstance(of, _Rise):
                of.epoch = len(self.falls)
                self._rises.append(of)
                rises.append(of)
                continue
            known = min(of, explained)
            explained -= known
            self._remove_last(of - known)
        self._waiting = []
        return [rise for rise in rises if rise.size > 0]

    def _remove_last(self, size: float) -> None:
        """Remove what came last: first of all rises without addresses."""
        left = size
        removed = []
        for is_mapped in (False, True):
            for rise in reversed(self._rises):
                if left > 0 and rise.size > 0 and rise.is_mapped == is_mapped:
                    part = min(left, rise.size)
                    left -= part
                    removed.append(rise.take_last(part))
        self._rises = [rise for rise in self._rises if rise.size > 0]
        if self._has_ranges and size >= _LEAST_FALL:
            self.falls.append(Fall(size, removed))

    def levels(self) -> Levels:
        """Return what is left, the earliest rise first."""
        self.settle()
        bands: list[RssBand] = []
        for rise in self._rises:
            if rise.size > 0:
                bands.append(rise.band(bands[-1].high if bands else 0.0))
        return Levels(bands, self.falls)


def levels_at(watched: WatchedProcess, at_s: float) -> Levels:
    """Return the levels of a process at a moment."""
    process = _Process(has_ranges=bool(watched.ranges))
    readings = iter(watched.ranges)
    reading = next(readings, None)
    before_s, before = watched.time_s[0] if watched.time_s else 0.0, 0.0
    file_before = 0.0
    times = watched.time_s[: bisect_right(watched.time_s, at_s) + 1]
    points = zip(times, watched.rss, watched.shared or repeat(0), watched.apart_s, strict=False)
    for time_s, rss, file_size, apart_s in points:
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
            file_share = min(1.0, max(0.0, file_change / max(1.0, change)))
            process.change(_Rise(change, before_s, now_s, apart_s, file_share))
            file_before += file_change
            before_s, before = now_s, before + change
            if reading is not None and not is_there:
                process.read(reading)
                reading = next(readings, None)
    bands, falls = process.levels()
    # A process that unmapped a file, or wrote to a private mapping of it, holds fewer pages of files than it read.
    read = sum((band.high - band.low) * band.file_share for band in bands)
    share = min(1.0, file_before / max(1.0, read))
    return Levels([band._replace(file_share=band.file_share * share) for band in bands], falls)


def _spans(pages: Sequence[int]) -> list[Span]:
    return [(first, first + count) for first, count in zip(pages[::2], pages[1::2], strict=False)]


def _without(spans: Sequence[Span], others: Sequence[Span]) -> list[Span]:
    """Return what of some sorted ranges is in none of the others."""
    return [part for span in spans for part in _parts_outside(span, others)]


def _parts_outside(span: Span, others: Sequence[Span]) -> Iterator[Span]:
    at, end = span
    number = max(0, bisect_right(others, (at, at)) - 1)
    while number < len(others) and others[number][0] < end:
        begin, behind = others[number]
        if begin > at:
            yield at, begin
        at = max(at, behind)
        number += 1
    if at < end:
        yield at, end
