"""The verdict on a run: the first cause that the evidence of its session shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nncftools.limits import allocation, full_disk, out_of_memory, signals
from nncftools.limits.case import Case
from nncftools.limits.ranks import judge_ranks
from nncftools.session.session import STILL_RUNS

if TYPE_CHECKING:
    from nncftools.limits.verdict import Verdict
    from nncftools.session.session import Session
    from nncftools.units import MemoryUnit

_JUDGES = (
    signals.judge_max_memory,
    out_of_memory.judge,
    signals.judge_lost,
    allocation.judge,
    full_disk.judge,
    signals.judge_killed,
    allocation.judge_by_limit,
    full_disk.judge_by_room,
    signals.judge_crashed,
    signals.judge_terminated,
    signals.judge_killed_child,
    signals.judge_crashed_child,
)
"""What the kernel and exceptions say comes first, then the command's own end, then what other processes did."""


def verdict(session: Session, unit: MemoryUnit) -> Verdict | None:
    """Return why the command or a process of its tree died.

    Of a job of several ranks it is the first one that failed. It is None when nothing died, and for a recording that
    still runs.
    """
    if session.ranks:
        return judge_ranks(session)
    if any(text.startswith(STILL_RUNS) for text in session.warnings):
        return None
    case = Case(session, unit)
    return next((found for judge in _JUDGES if (found := judge(case)) is not None), None)
