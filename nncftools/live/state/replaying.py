"""Replays a recorded session as if it were running."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

import numpy as np

from nncftools.live.state.operations import RecordedOperations
from nncftools.live.state.run import LiveProcess, Run, SampledPeak
from nncftools.render.view import command_text
from nncftools.session.peak_place import span_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nncftools.session.model import Process
    from nncftools.session.session import Session


class Replay:
    """A session up to a moment that only moves forward."""

    def __init__(self, session: Session) -> None:
        """Begin at the session's start."""
        self._session = session
        samples, sampler = session.samples, session.sampler
        self._time_s = np.asarray(samples.time_s)
        self._columns = [np.asarray(samples[name]) for name in samples.metrics]
        self._place = 0
        rises = (rise for process in session.processes for rise in process.rises)
        self._rises = sorted(rises, key=lambda rise: rise.to_s, reverse=True)
        self._peaks = sorted(_peaks(session), key=lambda reached: reached[0], reverse=True)
        intervals = filter(None, (sampler.achieved_interval_s, sampler.interval_s, sampler.merged_s))
        self.run = Run(
            command=command_text(session),
            columns=samples.metrics,
            interval_s=max(intervals, default=0.1),
            host=session.host,
            attached_to=session.attached_to,
            operations=RecordedOperations(session),
            limits=session.memory_limits,
            max_memory=None if session.limit_reached is None else session.limit_reached.limit,
        )

    def advance(self, now_s: float) -> None:
        """Take what happened up to ``now_s`` seconds from the start."""
        place = max(self._place, int(np.searchsorted(self._time_s, now_s, side="right")))
        new = slice(self._place, place)
        self.run.take_rows(self._time_s[new], np.stack([column[new] for column in self._columns], axis=1))
        self._place = place
        while self._rises and self._rises[-1].to_s <= now_s:
            rise = self._rises.pop()
            self.run.take_rise(rise.high_water_mark + rise.others, rise.from_s, rise.to_s)
        while self._peaks and self._peaks[-1][0] <= now_s:
            self.run.take_peak(*self._peaks.pop()[1:])
        self.run.processes = {
            process.id: LiveProcess(process.pid, process.name, _rss(process, now_s), process.command)
            for process in self._session.processes
            if (process.start_s or 0.0) <= now_s < (process.end_s if process.end_s is not None else np.inf)
        }
        if now_s >= self._session.duration_s:
            self.run.ended = True
            self.run.exit = self._session.exit


def _peaks(session: Session) -> Iterator[tuple[float, str, SampledPeak]]:
    """Yield when the peak of each metric was reached, and the peak as every report names it."""
    place = session.peak_place
    for name, peak in session.peaks.items():
        from_s, to_s = span_of(peak) or (session.duration_s, session.duration_s)
        if peak.low is not None:
            path = None if name != "rss" or place is None else place.path
            operation = None if path is None else path[0].name if path else ""
            yield to_s, name, SampledPeak(peak.low, (from_s + to_s) / 2, peak.low, operation)


def _rss(process: Process, now_s: float) -> int | None:
    """Return what a process held, if its RSS over time was kept."""
    if process.series is None:
        return None
    place = bisect_right(process.series.time_s, now_s) - 1
    return process.series.rss[place] if place >= 0 else None
