"""Deaths by signals that have nothing to do with a lack of memory or disk space, and recordings that break off."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from nncftools.limits.case import NEAR, VERY_NEAR
from nncftools.limits.verdict import (
    CERTAIN,
    CRASHED,
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
    from nncftools.limits.verdict import Verdict

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
    share = case.share_at(end_s)
    text = (
        f"the recording breaks off at {seconds_text(end_s)}: recorder and command were killed, or the machine stopped"
    )
    if share is None or share < NEAR:
        return case.verdict(LOST, CERTAIN, text, end_s, is_not=case.not_for_memory(end_s))
    certainty = LIKELY if share >= VERY_NEAR else POSSIBLE
    return case.verdict(OUT_OF_MEMORY, certainty, f"{text}, for want of memory", end_s, is_for_memory=True)


def judge_killed(case: Case) -> Verdict | None:
    """Return what was killed by SIGKILL, of what the kernel did not kill for want of memory."""
    death = case.death_by(signal.SIGKILL)
    if death is None:
        return None
    is_counted = any(group.oom_kills is not None for group in case.session.control_groups)
    is_counted |= case.session.totals.get("oom_kills") is not None
    who = case.who(death.process)
    share = case.share_at(death.at_s) or 0.0
    if not is_counted and share >= VERY_NEAR:
        text = f"{who} was killed by SIGKILL when memory was almost used up"
        return case.verdict(OUT_OF_MEMORY, LIKELY, text, death.at_s, death=death, is_for_memory=True)
    is_not = ["not by the kernel: oom_kill did not rise"] if is_counted else []
    return case.verdict(
        KILLED,
        CERTAIN if is_counted else LIKELY,
        f"{who} was killed by another process (SIGKILL)",
        death.at_s,
        death=death,
        is_not=[*is_not, *case.not_for_memory(death.at_s)],
    )


def judge_crashed(case: Case) -> Verdict | None:
    """Return what ended by a fault."""
    death = case.death_by(*_FAULTS)
    if death is None:
        return None
    text = f"{case.who(death.process)} crashed: {_FAULTS[signal.Signals(death.number)]} ({death.signal_name})"
    return case.verdict(CRASHED, CERTAIN, text, death.at_s, death=death, is_not=case.not_for_memory(death.at_s))


def judge_terminated(case: Case) -> Verdict | None:
    """Return which other signal ended the command."""
    death = next((death for death in case.deaths if death.is_command or death.process is None), None)
    if death is None or death.number in _UNREMARKABLE:
        return None
    why = "its CPU time was used up" if death.number == signal.SIGXCPU else "sent by a scheduler, `timeout` or a user"
    text = f"{case.who(death.process)} was ended by {death.signal_name}, {why}"
    return case.verdict(TERMINATED, CERTAIN, text, death.at_s, death=death, is_not=case.not_for_memory(death.at_s))
