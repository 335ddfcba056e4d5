"""Deaths by signals that have nothing to do with a lack of memory or disk space, and recordings that break off."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from nncftools.limits.case import NEAR, VERY_NEAR
from nncftools.limits.full_disk import fullest, place
from nncftools.limits.verdict import (
    CERTAIN,
    CRASHED,
    DISK_FULL,
    KILLED,
    LIKELY,
    LOST,
    MAX_MEMORY,
    OUT_OF_MEMORY,
    POSSIBLE,
    TERMINATED,
)
from nncftools.units import seconds_text

if TYPE_CHECKING:
    from nncftools.limits.case import Case
    from nncftools.limits.deaths import Death
    from nncftools.limits.verdict import Verdict

_LESS_SURE = POSSIBLE
"""Any program may choose its exit status."""
_FAULTS = {
    signal.SIGSEGV: "segmentation fault",
    signal.SIGBUS: "bus error",
    signal.SIGILL: "illegal instruction",
    signal.SIGFPE: "arithmetic error",
    signal.SIGABRT: "aborted, as after a failed assertion or an uncaught C++ exception",
    signal.SIGSYS: "forbidden system call",
    signal.SIGTRAP: "trap",
}
_UNREMARKABLE = {signal.SIGINT, signal.SIGPIPE}
"""Ctrl-C, and a reader such as ``head`` that has enough."""


def judge_max_memory(case: Case) -> Verdict | None:
    """Return whether ``--max-memory`` ended the run."""
    reached = case.session.limit_reached
    if reached is None or reached.action != "kill":
        return None
    return case.verdict(
        MAX_MEMORY,
        CERTAIN,
        f"the command was ended by nncf-tools: RSS exceeded the limit of {case.size(reached.limit)}",
        reached.at_s,
        process=case.command,
        until_s=reached.at_s + 1e-6,
        signal=next((death.signal_name for death in case.deaths if death.is_command), None),
        evidence=[f"RSS was {case.size(reached.rss)} at {seconds_text(reached.at_s)}"],
        is_for_memory=True,
    )


def judge_lost(case: Case) -> Verdict | None:
    """Return why a recording breaks off: nobody is left who knows how the command ended."""
    session = case.session
    if session.finished is not False or session.exit is not None:
        return None
    end_s = session.duration_s
    full = fullest(session)
    if full is not None:
        text = f"the recording breaks off at {seconds_text(end_s)}, and the disk of {place(full)} was full"
        return case.verdict(DISK_FULL, LIKELY, text, end_s)
    share = case.share_at(end_s)
    text = f"the recording breaks off at {seconds_text(end_s)}: recorder and command were killed"
    if share is None or share < NEAR:
        text += ", the machine stopped, or this is a copy of a journal that goes on"
        return case.verdict(LOST, POSSIBLE, text, end_s, is_not=case.not_for_memory(end_s))
    certainty = LIKELY if share >= VERY_NEAR else POSSIBLE
    return case.verdict(OUT_OF_MEMORY, certainty, f"{text} for want of memory", end_s, is_for_memory=True)


def judge_killed(case: Case) -> Verdict | None:
    """Return whether the command was killed by SIGKILL, if the kernel did not do that for want of memory."""
    return _killed(case, case.death_by(signal.SIGKILL, of_command=True))


def judge_killed_child(case: Case) -> Verdict | None:
    """Return which other process was killed by SIGKILL; programs end small helpers of their own so."""
    death = case.death_by(signal.SIGKILL, of_command=False)
    return _killed(case, death) if death is not None and case.is_significant(death.process) else None


def _killed(case: Case, death: Death | None) -> Verdict | None:
    if death is None:
        return None
    who = _subject(case, death)
    if case.session.kernel_kills is not None or case.session.totals.get("oom_kills") == 0:
        is_not = ["not by the kernel: it killed nothing of the run for want of memory"]
        certainty = _LESS_SURE if death.by_status else CERTAIN
    elif (is_near := (case.share_at(death.at_s) or 0.0) >= VERY_NEAR) or case.session.totals.get("oom_kills"):
        text = f"{who} was killed by SIGKILL, perhaps by the kernel for want of memory"
        certainty = LIKELY if is_near else POSSIBLE
        return case.verdict(OUT_OF_MEMORY, certainty, text, death.at_s, death=death, is_for_memory=True)
    else:
        is_not, certainty = [], _LESS_SURE if death.by_status else LIKELY
    text = f"{who} was killed by SIGKILL, from a program or a user"
    is_not += case.not_for_memory(death.at_s)
    return case.verdict(KILLED, certainty, text, death.at_s, death=death, is_not=is_not)


def judge_crashed(case: Case) -> Verdict | None:
    """Return whether the command ended by a fault."""
    return _crashed(case, case.death_by(*_FAULTS, of_command=True))


def judge_crashed_child(case: Case) -> Verdict | None:
    """Return which other process ended by a fault."""
    return _crashed(case, case.death_by(*_FAULTS, of_command=False))


def _crashed(case: Case, death: Death | None) -> Verdict | None:
    if death is None:
        return None
    text = f"{_subject(case, death)} crashed: {_FAULTS[signal.Signals(death.number)]} ({death.signal_name})"
    certainty = _LESS_SURE if death.by_status else CERTAIN
    return case.verdict(CRASHED, certainty, text, death.at_s, death=death, is_not=case.not_for_memory(death.at_s))


def judge_terminated(case: Case) -> Verdict | None:
    """Return which other signal ended the command."""
    death = next((death for death in case.deaths if death.is_command or death.by_status), None)
    if death is None or death.number in _UNREMARKABLE:
        return None
    why = "its CPU time was used up" if death.number == signal.SIGXCPU else "from a scheduler, a program or a user"
    text = f"{_subject(case, death)} was ended by {death.signal_name}, {why}"
    certainty = _LESS_SURE if death.by_status else CERTAIN
    return case.verdict(TERMINATED, certainty, text, death.at_s, death=death, is_not=case.not_for_memory(death.at_s))


def _subject(case: Case, death: Death) -> str:
    if not death.by_status:
        return case.who(death.process)
    status = None if case.session.exit is None else case.session.exit.code
    return f"the command ended with status {status}, as a shell does whose command dies so: a process of it"
