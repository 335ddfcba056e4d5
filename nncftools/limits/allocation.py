"""Whether a program could not get memory: by its exception, or by a limit of its address space."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from nncftools.journal.limit_kinds import ADDRESS_SPACE, DATA
from nncftools.limits.case import NEAR, VERY_NEAR
from nncftools.limits.effective import Effective
from nncftools.limits.verdict import ALLOCATION, CERTAIN, LIKELY, POSSIBLE
from nncftools.session.model import MEMORY
from nncftools.text import printable

if TYPE_CHECKING:
    from nncftools.limits.case import Case
    from nncftools.limits.verdict import Verdict
    from nncftools.session.model import MemoryLimit, SessionData


def judge(case: Case) -> Verdict | None:
    """Return which program could not get memory, by its exception; None for none."""
    failure = case.failure(MEMORY)
    if failure is None or not (failure.fatal or case.has_failed):
        return None
    process, limit = case.process_of(failure.pid), _limit(case.session)
    return case.verdict(
        ALLOCATION,
        CERTAIN if failure.fatal else LIKELY,
        f"{case.who(process)} could not allocate memory ({printable(failure.error)})",
        failure.at_s,
        process=process,
        limit=case.limit if limit is None else _as_effective(limit),
        evidence=["the exception, as the hook of `profile` saw it", *_of_limit(case, limit)],
        is_for_memory=True,
    )


def judge_by_limit(case: Case) -> Verdict | None:
    """Return whether the command probably could not get memory, because much of its address space was used."""
    limit = _limit(case.session)
    death = case.death_by(signal.SIGABRT, signal.SIGSEGV, of_command=True)
    if limit is None or case.has_other_reason or not (case.has_failed or death is not None):
        return None
    share = _largest(case.session) / limit.size
    if share < NEAR:
        return None
    how = "failed"
    certainty = LIKELY if share >= VERY_NEAR else POSSIBLE
    if death is not None:
        how = f"was ended by {death.signal_name}"
        certainty = LIKELY if death.number == signal.SIGABRT else POSSIBLE
    signs = {signal.SIGABRT: "std::bad_alloc", signal.SIGSEGV: "an allocation whose failure is ignored"}
    sign = "MemoryError" if death is None else signs[signal.Signals(death.number)]
    return case.verdict(
        ALLOCATION,
        certainty,
        f"{case.who(case.command)} {how}, as after {sign}",
        case.end_s if death is None else death.at_s,
        process=case.command,
        signal=None if death is None else death.signal_name,
        limit=_as_effective(limit),
        evidence=_of_limit(case, limit),
        is_for_memory=True,
    )


def _largest(session: SessionData) -> int:
    return max((process.peak_rss or 0 for process in session.processes), default=0)


def _limit(session: SessionData) -> MemoryLimit | None:
    """Return the smallest limit of address space or data, unless it is larger than the machine."""
    found = [limit for limit in session.memory_limits if limit.kind in {ADDRESS_SPACE, DATA} and limit.size > 0]
    smallest = min(found, key=lambda limit: limit.size, default=None)
    return None if smallest is None or smallest.size > (session.host.memory or smallest.size) else smallest


def _of_limit(case: Case, limit: MemoryLimit | None) -> list[str]:
    if limit is None:
        return []
    allows = f"{limit.kind} allows each process {case.size(limit.size)} ({limit.set_by})"
    return [f"{allows}; the largest held {case.size(_largest(case.session))}, without what it only reserved"]


def _as_effective(limit: MemoryLimit) -> Effective:
    return Effective(limit.kind, limit.size, limit.set_by)
