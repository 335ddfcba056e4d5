"""A session of the past, told again as if it went on."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

import numpy as np

from nncftools.live.state.operations import Told
from nncftools.live.state.run import Facts, Lived, Run
from nncftools.render.view import command_text

if TYPE_CHECKING:
    from nncftools.session.model import Process
    from nncftools.session.session import Session


class Replay:
    """What a session told up to a moment; time only goes on."""

    def __init__(self, session: Session) -> None:
        """Begin at the session's start."""
        self._session = session
        columns = session.samples.metrics
        self._time_s = np.asarray(session.samples.time_s)
        self._rows = [np.asarray(session.samples[name]) for name in columns]
        self._place = 0
        intervals = (session.sampler.achieved_interval_s, session.sampler.interval_s, session.sampler.merged_s)
        facts = Facts(
            command=command_text(session),
            columns=columns,
            interval_s=max((seconds for seconds in intervals if seconds), default=0.1),
            host=session.host,
            attached_to=session.attached_to,
        )
        self.run = Run(facts, Told(session), command=facts.command)

    def advance(self, now_s: float) -> None:
        """Tell what happened up to ``now_s`` seconds from the start."""
        place = max(self._place, int(np.searchsorted(self._time_s, now_s, side="right")))
        time_s = self._time_s[self._place : place]
        self.run.take_rows(time_s, np.stack([column[self._place : place] for column in self._rows], axis=1))
        self._place = place
        self.run.processes = {
            process.id: Lived(process.pid, process.name, _rss(process, now_s))
            for process in self._session.processes
            if (process.start_s or 0.0) <= now_s < (process.end_s if process.end_s is not None else np.inf)
        }
        if now_s >= self._session.duration_s:
            self.run.ended = True
            self.run.exit = self._session.exit


def _rss(process: Process, now_s: float) -> int | None:
    """Return what a process held, where its RSS over time was kept."""
    if process.series is None:
        return None
    place = bisect_right(process.series.time_s, now_s) - 1
    return process.series.rss[place] if place >= 0 else None
