"""Whether a program could not get memory: by its exception, or by a limit of its address space."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from nncftools.journal.writing import ADDRESS_SPACE, DATA
from nncftools.limits.case import NEAR, VERY_NEAR
from nncftools.limits.effective import smallest_of
from nncftools.limits.verdict import ALLOCATION, LIKELY, POSSIBLE
from nncftools.session.model import MEMORY

if TYPE_CHECKING:
    from nncftools.limits.case import Case
    from nncftools.limits.effective import Effective
    from nncftools.limits.verdict import Verdict
    from nncftools.session.model import SessionData


def judge(case: Case) -> Verdict | None:
    """Return which program could not get memory, by its exception; None for none."""
    limit = _limit(case.session)
    of_limit = {"limit": limit or case.limit, "is_for_memory": True}
    return case.by_exception(MEMORY, ALLOCATION, "could not allocate memory", _of_limit(case, limit), **of_limit)


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
        limit=limit,
        evidence=_of_limit(case, limit),
        is_for_memory=True,
    )


def _largest(session: SessionData) -> int:
    return max((process.peak_rss or 0 for process in session.processes), default=0)


def _limit(session: SessionData) -> Effective | None:
    """Return the smallest limit of address space or data, unless it is larger than the machine."""
    smallest = smallest_of(session, ADDRESS_SPACE, DATA)
    return None if smallest is None or smallest.size > (session.host.memory or smallest.size) else smallest


def _of_limit(case: Case, limit: Effective | None) -> list[str]:
    if limit is None:
        return []
    allows = f"{limit.kind} allows each process {case.size(limit.size)} ({limit.set_by})"
    return [f"{allows}; the largest held {case.size(_largest(case.session))}, without what it only reserved"]
