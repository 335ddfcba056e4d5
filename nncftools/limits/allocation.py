"""Whether a program could not get memory: by its exception, or by a limit of its address space."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from nncftools.journal.limit_kinds import ADDRESS_SPACE, DATA
from nncftools.limits.case import NEAR
from nncftools.limits.effective import Effective
from nncftools.limits.verdict import ALLOCATION, CERTAIN, LIKELY, POSSIBLE
from nncftools.session.model import MEMORY
from nncftools.text import printable

if TYPE_CHECKING:
    from nncftools.limits.case import Case
    from nncftools.limits.verdict import Verdict
    from nncftools.session.model import MemoryLimit, SessionData


def judge(case: Case) -> Verdict | None:
    """Return which program could not get memory; None for none."""
    failure = case.failure(MEMORY)
    death = case.death_by(signal.SIGABRT, signal.SIGSEGV)
    limit = _limit(case.session)
    if not (case.has_failed or death is not None):
        return None
    if failure is not None:
        process = case.process_of(failure.pid)
        return case.verdict(
            ALLOCATION,
            CERTAIN if failure.fatal else LIKELY,
            f"{case.who(process)} could not allocate memory ({printable(failure.error)})",
            failure.at_s,
            process=process,
            evidence=["the exception, as the hook of `profile` saw it", *_of_limit(case, limit)],
            limit=_as_effective(limit),
            is_for_memory=True,
        )
    if limit is None:
        return None
    share = max((process.peak_rss or 0 for process in case.session.processes), default=0) / limit.size
    if death is not None:
        return case.verdict(
            ALLOCATION,
            LIKELY if death.number == signal.SIGABRT else POSSIBLE,
            f"{case.who(death.process)} was ended by {death.signal_name}, as std::bad_alloc does",
            death.at_s,
            death=death,
            evidence=_of_limit(case, limit),
            limit=_as_effective(limit),
            is_for_memory=True,
        )
    return case.verdict(
        ALLOCATION,
        LIKELY if share >= NEAR else POSSIBLE,
        f"{case.who(case.command)} failed, as after a failed allocation (MemoryError)",
        case.end_s,
        process=case.command,
        evidence=_of_limit(case, limit),
        limit=_as_effective(limit),
        is_for_memory=True,
    )


def _limit(session: SessionData) -> MemoryLimit | None:
    """Return the smallest limit of address space or data, unless it is larger than the machine."""
    found = [limit for limit in session.memory_limits if limit.kind in {ADDRESS_SPACE, DATA}]
    smallest = min(found, key=lambda limit: limit.size, default=None)
    return None if smallest is None or smallest.size > (session.host.memory or smallest.size) else smallest


def _of_limit(case: Case, limit: MemoryLimit | None) -> list[str]:
    if limit is None:
        return []
    held = max((process.peak_rss or 0 for process in case.session.processes), default=0)
    allows = f"{limit.kind} allows each process {case.size(limit.size)} ({limit.set_by})"
    return [f"{allows}; the largest held {case.size(held)}, without what it only reserved"]


def _as_effective(limit: MemoryLimit | None) -> Effective | None:
    return None if limit is None else Effective(limit.kind, limit.size, limit.set_by)
