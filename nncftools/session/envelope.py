"""The most that a process tree can have held between samples: RSS grows by page faults, forks and new programs only."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from itertools import pairwise, repeat
from math import inf, isnan, nan
from operator import add, mul, sub
from typing import TYPE_CHECKING

from nncftools.session.peaks import most_held_by

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nncftools.session.model import Process, SessionData

PAGE = 4096
_FAULTS, _HUGE = ("minor_faults", "major_faults"), "huge_pages"
_EARLY_S = 0.01
"""A process begins at most this much before its start (ticks of 10 ms, proc(5))."""


class Envelope:
    """The most that was held at any moment, by the samples around it.

    A page fault adds a page. A fault that maps a huge page adds more: these are counted for the whole machine, at marks
    and once a second. A process that begins adds what it holds until a sample contains it.
    """

    def __init__(self, session: SessionData) -> None:
        """Take the samples of a session; without page faults or huge pages, nothing is known."""
        samples = session.samples
        self._times = samples.time_s
        self._huge_at: list[int] = []
        self._huge: Sequence[float] = ()
        self._most: Sequence[float] = ()
        if len(samples) and all(name in samples for name in ("rss", *_FAULTS, _HUGE)):
            self._huge = huge = array("d", samples[_HUGE])
            if isnan(huge[-1]):
                last = session.totals.get(_HUGE)
                huge[-1] = nan if last is None else last
            self._huge_at = [place for place, size in enumerate(huge) if not isnan(size)]
            self._rss: Sequence[float] = samples["rss"]
            self._faults = array("d", map(add, *(samples[name] for name in _FAULTS)))
            self._most = self._computed(session.processes)

    def most(self, start_s: float, end_s: float) -> float | None:
        """Return the most between two moments, in bytes; None for unknown."""
        if not self._most or start_s < self._times[0] or end_s > self._times[-1]:
            return None
        pieces = self._most[bisect_right(self._times, start_s) - 1 : bisect_left(self._times, end_s)]
        found = max(pieces, default=nan)
        return None if isnan(sum(pieces)) or isnan(found) or found == inf else found

    def huge_between(self, start_s: float, end_s: float) -> float | None:
        """Return what the machine took in huge pages around two moments, in bytes; None for unknown."""
        places = self._huge_at
        before = bisect_right(places, bisect_right(self._times, start_s) - 1) - 1
        after = bisect_left(places, bisect_left(self._times, end_s))
        return self._huge[places[after]] - self._huge[places[before]] if 0 <= before and after < len(places) else None

    def _computed(self, processes: Sequence[Process]) -> array[float]:
        """Return the most between each sample and the next: what was held before, and all that was added since."""
        rss, faults = self._rss, self._faults
        added = map(mul, repeat(float(PAGE)), map(sub, faults[1:], faults))
        most = array("d", map(max, map(add, rss, added), rss[1:]))
        known = [0, *self._huge_at, len(rss) - 1]
        for place in (*range(known[1] if self._huge_at else len(most)), *range(known[-2], len(most))):
            most[place] = inf  # huge pages are not known there
        for before, after in pairwise(self._huge_at):
            if huge := self._huge[after] - self._huge[before]:
                for place in range(before, after):
                    since = rss[before] + (faults[place + 1] - faults[before]) * PAGE + huge
                    most[place] = max(rss[place + 1], min(most[place] + huge, since))
        by_id = {process.id: process for process in processes}
        for process in processes:
            self._add_begin(process, most, by_id)
        return most

    def _add_begin(self, process: Process, most: array[float], by_id: Mapping[int, Process]) -> None:
        """Add what a process can have held while samples do not contain it."""
        begin_s = (process.start_s or 0.0) - _EARLY_S
        until_s = process.end_s if process.counted_s is None else process.counted_s
        if begin_s < 0 or until_s is None:
            return
        held = most_held_by(process, by_id)
        first = max(0, bisect_right(self._times, begin_s) - 1)
        for place in range(first, min(bisect_left(self._times, until_s), len(most))):
            most[place] += inf if held is None else held
