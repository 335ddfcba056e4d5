"""Whom the kernel killed because memory ran out: by its log, or by its counts and the ends of processes."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from nncftools.journal.writing import GROUP
from nncftools.limits.effective import smallest_of
from nncftools.limits.verdict import CERTAIN, LIKELY, OUT_OF_MEMORY, POSSIBLE
from nncftools.units import seconds_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nncftools.limits.case import Case
    from nncftools.limits.effective import Effective
    from nncftools.limits.verdict import Verdict
    from nncftools.session.model import Process, SessionData

_AROUND_S = 0.15
"""The end of a process is known at the sample after it; its group's count may be read before."""
_FULL = 0.95
"""From this share of its memory on, the machine is full."""
_LARGE = 0.3
"""Of its group's limit: the kernel chooses the largest process."""
_MUCH_MORE = 2.0


def judge(case: Case) -> Verdict | None:
    """Return whom the kernel killed; None for nothing."""
    session = case.session
    limit = smallest_of(session, GROUP)
    victims, certainty = _victims(case, limit)
    if certainty is None:
        return None
    is_of_group = _is_of_group(session, limit)
    ran_out = f"{'their' if len(victims) > 1 else 'its'} control group ran out of memory"
    largest = next(iter(victims), None)
    return case.verdict(
        OUT_OF_MEMORY,
        certainty,
        f"{_who(case, victims)} killed by the kernel: {ran_out if is_of_group else 'the machine ran out of memory'}",
        min((process.end_s for process in victims if process.end_s is not None), default=case.end_s),
        process=largest,
        limit=_reached(session, limit) if is_of_group else case.limit,
        signal="SIGKILL",
        evidence=list(_evidence(session, limit)),
        is_for_memory=True,
    )


def _victims(case: Case, limit: Effective | None) -> tuple[list[Process], str | None]:
    """Return the victims, the largest first, and how sure that is; None for no victim.

    A log that can be read and names nobody of the run says that the kernel killed none of it.
    """
    session = case.session
    if session.kernel_kills is not None:
        logged = {kill.pid for kill in session.kernel_kills}
        named = [process for process in session.processes if process.pid in logged and _may_be(process)]
        return _by_size(named), CERTAIN if named else None
    killed = [death for death in case.deaths if death.number == signal.SIGKILL and _is_within(death.at_s, session)]
    known = [death.process for death in killed if death.process is not None]
    if killed:
        return _by_size(known), CERTAIN if known else LIKELY
    count = sum(rise.count for rise in session.oom_kills)
    ended = [process for process in session.processes if process.exit is None and _is_within(process.end_s, session)]
    unsure = _by_size(ended)[:count]
    if not unsure or (not case.has_failed and not case.is_significant(unsure[0])):
        return [], None
    is_large = limit is not None and (unsure[0].peak_rss or 0) >= limit.size * _LARGE
    return unsure, LIKELY if is_large else POSSIBLE


def _may_be(process: Process) -> bool:
    """Return False for another process with a PID that the log names: it ended otherwise."""
    return process.exit is None or process.exit.signal == signal.SIGKILL


def _is_within(at_s: float | None, session: SessionData) -> bool:
    """Return whether the kernel killed something at a moment; None is an unknown one."""
    if at_s is None:
        return False
    return any(rise.from_s - _AROUND_S <= at_s <= rise.to_s + _AROUND_S for rise in session.oom_kills)


def _by_size(processes: Sequence[Process]) -> list[Process]:
    return sorted(processes, key=lambda one: max(one.peak_rss or 0, one.high_water_mark or 0), reverse=True)


def _is_of_group(session: SessionData, limit: Effective | None) -> bool:
    """Return whether a control group ran out of memory, and not the machine."""
    if session.kernel_kills:
        return any(kill.group is not None for kill in session.kernel_kills)
    used = session.samples.figures("system").highest if "system" in session.samples.metrics else 0.0
    machine_was_full = bool(session.host.memory) and used >= (session.host.memory or 0) * _FULL
    return limit is not None and not machine_was_full


def _reached(session: SessionData, limit: Effective | None) -> Effective | None:
    """Return the limit that was reached, unless the run is known to have held more: then it is another group's."""
    peak = session.peaks.get("rss")
    if limit is None or (peak is not None and (peak.sampled or 0) > limit.size * _MUCH_MORE):
        return None
    return limit


def _who(case: Case, victims: Sequence[Process]) -> str:
    if len(victims) > 1:
        return f"{case.who(victims[0])} and {len(victims) - 1} more were"
    return f"{case.who(next(iter(victims), None))} was"


def _evidence(session: SessionData, limit: Effective | None) -> Iterator[str]:
    if session.kernel_kills:
        yield "the kernel's log names it"
    for group in dict.fromkeys(rise.group for rise in session.oom_kills):
        rises = [rise for rise in session.oom_kills if rise.group == group]
        times = f"between {seconds_text(rises[0].from_s)} and {seconds_text(rises[-1].to_s)}"
        yield f"oom_kill of {group} rose by {sum(rise.count for rise in rises)} {times}"
    if limit is not None:
        yield f"the limit is set by {limit.set_by}"
