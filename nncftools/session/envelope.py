"""The most that a process tree can have held between samples."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from math import isnan
from typing import TYPE_CHECKING

from nncftools.session.peaks import MostHeld, held_at_most, noise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.session.model import SessionData

_PAGE = 4096
_LARGEST = 512 * _PAGE
_HUGE = "huge_pages"


class Envelope:
    """The most that was held at any moment, by the samples around it and what the sampler says of the time between."""

    def __init__(self, session: SessionData) -> None:
        """Take the samples of a session; without ``unseen``, nothing is known."""
        samples = session.samples
        self._times: Sequence[float] = samples.time_s
        self._unseen = session.unseen
        self._unsampled = MostHeld(held_at_most(session.processes, unsampled=True))
        self._rss: Sequence[float] = samples["rss"] if "rss" in samples and session.unseen is not None else ()
        known = (
            [(at_s, size) for at_s, size in zip(self._times, samples[_HUGE], strict=True) if not isnan(size)]
            if _HUGE in samples
            else []
        )
        last = session.totals.get(_HUGE)
        if last is not None:
            known.append((session.duration_s, last))
        self._huge_s, self._huge = [at_s for at_s, _ in known], [size for _, size in known]

    def most(self, start_s: float, end_s: float) -> float | None:
        """Return the most between two moments, in bytes; None for unknown."""
        if self._unseen is None or not self._rss or start_s < self._times[0] or end_s > self._times[-1]:
            return None
        sampled = self._rss[bisect_right(self._times, start_s) - 1 : bisect_left(self._times, end_s) + 1]
        highest = max((size for size in sampled if not isnan(size)), default=0.0)  # without RSS: only zombies were left
        first, after = bisect_right(self._unseen.to_s, start_s), bisect_left(self._unseen.from_s, end_s)
        unseen = self._unseen.most[first:after]
        highs = [size for size in unseen if size is not None]
        unsampled = self._unsampled.most(start_s, end_s)
        if len(highs) < len(unseen) or unsampled is None:
            return None
        return max([highest + noise(highest), *highs]) + unsampled

    def grown(self, faults: int, start_s: float, end_s: float) -> float | None:
        """Return by how much page faults can have raised RSS between two moments, in bytes; None for unknown."""
        before, after = bisect_right(self._huge_s, start_s) - 1, bisect_left(self._huge_s, end_s)
        if before < 0 or after >= len(self._huge):
            return None
        return faults * _PAGE + min(self._huge[after] - self._huge[before], faults * _LARGEST)
