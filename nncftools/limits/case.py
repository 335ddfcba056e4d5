"""The evidence of a session about deaths, and the words for it."""

from __future__ import annotations

from itertools import pairwise
from math import isnan
from typing import TYPE_CHECKING, Any

from nncftools.limits.deaths import command_of, deaths
from nncftools.limits.effective import effective_limit
from nncftools.limits.last_state import last_state
from nncftools.limits.verdict import CERTAIN, LIKELY, Verdict
from nncftools.metrics import cpu_counters
from nncftools.units import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.limits.deaths import Death
    from nncftools.session.model import Failure, Process
    from nncftools.session.session import Session
    from nncftools.units import MemoryUnit

_HUNG_S, _IDLE = 2.0, 0.05
"""After the death of another process, the command hangs if it uses less than this part of a core for so long."""
NEAR, VERY_NEAR = 0.6, 0.9
"""Shares of a limit."""
_NAME = 40
_SIGNIFICANT, _SMALL = 0.1, 16 << 20
_LATELY_S = 0.3


class Case:
    """A session in which something may have died."""

    def __init__(self, session: Session, unit: MemoryUnit) -> None:
        self.session = session
        self.deaths = deaths(session)
        self.command = command_of(session)
        self.limit = effective_limit(session)
        """The limit that RSS would have met next."""
        self._unit = unit

    @property
    def has_failed(self) -> bool:
        """Whether the command ended by itself with another exit status than 0."""
        return self.session.exit is not None and bool(self.session.exit.code)

    @property
    def end_s(self) -> float:
        """When the command ended."""
        known = None if self.command is None else self.command.end_s
        return self.session.duration_s if known is None else known

    def death_by(self, *numbers: int, of_command: bool | None = None) -> Death | None:
        """Return the first death by one of these signals; of the command, or only of other processes."""
        found = (death for death in self.deaths if death.number in numbers)
        return next((death for death in found if of_command in {None, death.is_command or death.by_status}), None)

    def is_significant(self, process: Process | None) -> bool:
        """Return whether a process held a noticeable part of the memory: programs kill small helpers of their own."""
        peak = self.session.peaks.get("rss")
        most = 0 if peak is None else peak.low or 0
        own = 0 if process is None else max(process.peak_rss or 0, process.high_water_mark or 0)
        return process is None or own >= max(most * _SIGNIFICANT, _SMALL)

    @property
    def has_other_reason(self) -> bool:
        """Whether the command's own exception, which says of nothing that it ran out, ended it."""
        pid = None if self.command is None else self.command.pid
        fatal = [failure for failure in self.session.failures if failure.fatal and failure.pid == pid]
        return bool(fatal) and all(failure.cause is None for failure in fatal)

    def failure(self, cause: str) -> Failure | None:
        """Return the exception that says that this ran out, rather one that ended its program."""
        found = [failure for failure in self.session.failures if failure.cause == cause]
        return min(found, key=lambda failure: (not failure.fatal, failure.at_s), default=None)

    def by_exception(self, ran_out: str, cause: str, says: str, evidence: Sequence[str], **more: Any) -> Verdict | None:  # noqa: ANN401 — further fields of the verdict
        """Return which program ended because something ran out, by its exception; None for none."""
        failure = self.failure(ran_out)
        if failure is None or not (failure.fatal or self.has_failed):
            return None
        process = self.process_of(failure.pid)
        return self.verdict(
            cause,
            CERTAIN if failure.fatal else LIKELY,
            f"{self.who(process)} {says} ({printable(failure.error)})",
            failure.at_s,
            process=process,
            evidence=["the exception, as the hook of `profile` saw it", *evidence],
            **more,
        )

    def process_of(self, pid: int) -> Process | None:
        """Return the process with this PID."""
        return next((process for process in self.session.processes if process.pid == pid), None)

    def share_at(self, at_s: float) -> float | None:
        """Return how much of its limit RSS had reached just before a moment; None for unknown."""
        state = last_state(self.session, at_s)
        return None if self.limit is None or state.at_s is None else state.rss / self.limit.size

    def who(self, process: Process | None) -> str:
        """Return a process as the subject of a sentence."""
        if process is None:
            return "a process of the command"
        name = f"{shortened(printable(process.name), _NAME) or 'a process'} (pid {process.pid})"
        return f"the command {name}" if process is self.command else name

    def size(self, size: float) -> str:
        """Return bytes as text."""
        return f"{self._unit.brief(size)} {self._unit}"

    def verdict(  # noqa: PLR0913 — what every verdict has
        self,
        cause: str,
        certainty: str,
        text: str,
        at_s: float,
        *,
        death: Death | None = None,
        process: Process | None = None,
        until_s: float | None = None,
        **more: Any,  # noqa: ANN401 — further fields of the verdict
    ) -> Verdict:
        """Return a verdict, with what the run held and did before it, or at the last sample before ``until_s``."""
        if death is not None:
            process, more["signal"] = death.process, death.signal_name
        more.setdefault("limit", self.limit)
        return Verdict(
            cause=cause,
            certainty=certainty,
            text=text,
            at_s=at_s,
            state=last_state(self.session, self._last_alive_s(process, at_s) if until_s is None else until_s),
            process=process,
            hung_s=None if process is self.command else self._hung_s(at_s),
            **more,
        )

    def not_for_memory(self, at_s: float) -> list[str]:
        """Return that memory was far from its limit, if it was."""
        share = self.share_at(at_s)
        return ["not for want of memory"] if share is not None and share < VERY_NEAR else []

    def _last_alive_s(self, process: Process | None, at_s: float) -> float:
        """Return a moment at which a process still lived that died soon after its largest sample.

        The end of a child is known a sample or two later.
        """
        late_s = max(_LATELY_S, 3 * (self.session.sampler.spacing_s or 0.0))
        is_late = process is not None and process is not self.command
        if not is_late or process is None or process.peak_s is None or not 0 <= at_s - process.peak_s <= late_s:
            return at_s
        return min(at_s, process.peak_s + 1e-6)

    def _hung_s(self, since_s: float) -> float | None:
        """Return for how long the command did nothing after a moment, until its end or that of the recording."""
        samples = self.session.samples
        names = cpu_counters(samples.metrics)
        if not names:
            return None
        rows = zip(samples.time_s, *(samples[name] for name in names), strict=True)
        spent = [(at_s, sum(values)) for at_s, *values in rows if at_s >= since_s and not isnan(sum(values))]
        if not spent or spent[-1][0] - since_s < _HUNG_S:
            return None
        busy_s = [
            at_s for (before_s, before), (at_s, now) in pairwise(spent) if now - before > _IDLE * (at_s - before_s)
        ]
        idle_s = spent[-1][0] - max(busy_s, default=since_s)
        return idle_s if idle_s >= max(_HUNG_S, (spent[-1][0] - since_s) / 2) else None
