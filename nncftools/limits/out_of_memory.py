"""Whom the kernel killed because memory ran out: by its log, or by its counts and the ends of processes."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from nncftools.journal.limit_kinds import GROUP
from nncftools.limits.effective import Effective
from nncftools.limits.verdict import CERTAIN, LIKELY, OUT_OF_MEMORY
from nncftools.units import seconds_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nncftools.limits.case import Case
    from nncftools.limits.verdict import Verdict
    from nncftools.session.model import MemoryLimit, Process, SessionData

_AROUND_S = 0.15
"""The end of a process is known at the sample after it; its group's count may be read before."""
_FULL = 0.8
"""From this share of its limit on, a group was short of memory and not the machine."""


def judge(case: Case) -> Verdict | None:
    """Return whom the kernel killed; None for nothing."""
    session = case.session
    if not (session.oom_kills or session.kernel_kills):
        return None
    known = [death for death in case.deaths if death.number == signal.SIGKILL]
    logged = {kill.pid for kill in session.kernel_kills}
    dead = [death.process for death in known if death.process is not None]
    if logged:
        victims = [process for process in session.processes if process.pid in logged and _may_be(process)]
    else:
        victims = [process for process in dead if process.end_s is None or _ended_within(process, session)]
    is_seen = bool(victims or known)
    if not is_seen:
        count = sum(rise.count for rise in session.oom_kills)
        ended = [process for process in session.processes if process.exit is None and _ended_within(process, session)]
        victims = _by_size(ended)[:count]
        if not victims:
            return None
    limit = _limit(session)
    is_of_group = _is_of_group(session, limit)
    ran_out = "its control group ran out of memory" if is_of_group else "the machine ran out of memory"
    return case.verdict(
        OUT_OF_MEMORY,
        CERTAIN if is_seen else LIKELY,
        f"{_who(case, _by_size(victims))} killed by the kernel: {ran_out}",
        min((process.end_s for process in victims if process.end_s is not None), default=case.end_s),
        process=next(iter(_by_size(victims)), None),
        limit=Effective(limit.kind, limit.size, limit.set_by) if limit is not None and is_of_group else None,
        signal="SIGKILL",
        evidence=list(_evidence(session, limit, in_log=bool(logged))),
        is_for_memory=True,
    )


def _may_be(process: Process) -> bool:
    """Return False for another process with a PID that the log names: it ended otherwise."""
    return process.exit is None or process.exit.signal == signal.SIGKILL


def _ended_within(process: Process, session: SessionData) -> bool:
    end_s = process.end_s
    return end_s is not None and any(
        rise.from_s - _AROUND_S <= end_s <= rise.to_s + _AROUND_S for rise in session.oom_kills
    )


def _by_size(processes: Sequence[Process]) -> list[Process]:
    return sorted(processes, key=lambda one: max(one.peak_rss or 0, one.high_water_mark or 0), reverse=True)


def _limit(session: SessionData) -> MemoryLimit | None:
    found = [limit for limit in session.memory_limits if limit.kind == GROUP]
    return min(found, key=lambda limit: limit.size, default=None)


def _is_of_group(session: SessionData, limit: MemoryLimit | None) -> bool:
    """Return whether a control group ran out of memory, and not the machine."""
    if session.kernel_kills:
        return any(kill.group is not None for kill in session.kernel_kills)
    peak = session.peaks.get("rss")
    return limit is not None and peak is not None and (peak.low or 0) >= limit.size * _FULL


def _who(case: Case, victims: Sequence[Process]) -> str:
    if len(victims) > 1:
        return f"{case.who(victims[0])} and {len(victims) - 1} more were"
    return f"{case.who(next(iter(victims), None))} was"


def _evidence(session: SessionData, limit: MemoryLimit | None, *, in_log: bool) -> Iterator[str]:
    if in_log:
        yield "the kernel's log names it"
    for group in dict.fromkeys(rise.group for rise in session.oom_kills):
        rises = [rise for rise in session.oom_kills if rise.group == group]
        times = f"between {seconds_text(rises[0].from_s)} and {seconds_text(rises[-1].to_s)}"
        yield f"oom_kill of {group} rose by {sum(rise.count for rise in rises)} {times}"
    if limit is not None:
        yield f"the limit is set by {limit.set_by}"
