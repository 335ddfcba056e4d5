"""The verdict on a run: one judge for each cause of death. They are asked in turn; the first with evidence decides.

Causes are memory that a program could not get, a full disk, the kernel's killing when memory ran out, other signals,
and recordings that break off.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from functools import partial
from math import isnan
from operator import attrgetter

from nncftools.analysis.session import Session
from nncftools.analysis.summary import end_of, failed_in_order
from nncftools.journal.writing import ADDRESS_SPACE, DATA, GROUP
from nncftools.limits.needs import Effective, smallest_of
from nncftools.limits.verdict import UNKNOWN, Cause, Certainty, Death, Evidence, Verdict
from nncftools.session.model import DEVICE, DISK, MEMORY, FileSystem, Process, SessionData
from nncftools.session.session import STILL_RUNS
from nncftools.units import MemoryUnit, printable, seconds_text


def judge_allocation(case: Evidence) -> Verdict | None:
    """Return which program could not get memory, by its exception; None for none."""
    limit = smallest_of(case.session, ADDRESS_SPACE, DATA)
    if limit is None:
        evidence, reached = [], case.limit
    else:
        evidence = [f"{limit.kind} allows each process {case.size(limit.size)} ({limit.set_by})"]
        reached = None  # a limit of address space, not of RSS
    says = "could not allocate memory"
    return case.by_exception(MEMORY, Cause.ALLOCATION, says, evidence, limit=reached, is_for_memory=True)


def judge_device(case: Evidence) -> Verdict | None:
    """Return which program could not get memory of a GPU, by its exception; None for none."""
    failure = case.failure(DEVICE)
    if failure is None:
        return None
    name = failure.device or "a device"
    says, evidence = f"could not allocate memory of {name}", list(_of_device(case, name, failure.at_s))
    return case.by_exception(DEVICE, Cause.ALLOCATION, says, evidence, limit=None)


def _of_device(case: Evidence, name: str, at_s: float) -> Iterator[str]:
    """Yield what the run and others held of a device in the last reading before a moment."""
    device = next((device for device in case.session.devices if device.device == name), None)
    if device is not None and device.memory:
        yield f"{name} has {case.size(device.memory)} ({printable(device.model)})"
    samples, columns = case.session.samples, (f"device_memory@{name}", f"device_used@{name}")
    if not all(column in samples for column in columns):
        return
    rows = zip(samples.time_s, *(samples[column] for column in columns), strict=True)
    known = [(read_s, held, used) for read_s, held, used in rows if read_s <= at_s and not isnan(used)]
    if known:
        read_s, held, used = known[-1]
        parts = f"everyone together held {case.size(used)}"
        if not isnan(held):
            parts = f"the run held {case.size(held)}, others {case.size(max(0.0, used - held))}"
        yield f"at {seconds_text(read_s)}, the last reading, {parts}"


_LEAST, _MOST, _LEAST_SHARE = 1 << 20, 16 << 20, 0.005
_FELL = 1 << 20
"""A disk that was full before the run says nothing."""


def judge_full_disk(case: Evidence) -> Verdict | None:
    """Return which program failed because a disk was full, by its exception; None for none."""
    full = fullest(case.session)
    room = [] if full is None else [_room(case, full)]
    return case.by_exception(DISK, Cause.DISK_FULL, "failed because a disk was full", room)


def judge_by_room(case: Evidence) -> Verdict | None:
    """Return whether the command probably failed because a disk was full."""
    death = case.death_by(signal.SIGBUS, of_command=True)
    if case.has_other_reason or not (case.has_failed or death is not None):
        return None
    full = fullest(case.session)
    if full is None:
        return None
    at_s = case.end_s if death is None else death.at_s
    text = f"{case.who(case.command)} failed after the disk of {place(full)} was full"
    evidence = [_room(case, full)]
    return case.verdict(Cause.DISK_FULL, Certainty.LIKELY, text, at_s, process=case.command, evidence=evidence)


def fullest(session: SessionData) -> FileSystem | None:
    """Return the file system that had the least room, if that came to next to nothing during the run."""
    known = [disk for disk in session.file_systems if disk.size and disk.first and disk.lowest is not None]
    disk = min(known, key=lambda disk: disk.lowest or 0, default=None)
    if disk is None:
        return None
    lowest, first = disk.lowest or 0, disk.first or 0
    next_to_nothing = max(_LEAST, min(_MOST, (disk.size or 0) * _LEAST_SHARE))
    return disk if lowest <= next_to_nothing and first - lowest >= _FELL else None


def place(file_system: FileSystem) -> str:
    """Return a file system as part of a sentence."""
    role = " (TMPDIR)" if file_system.role == "TMPDIR" else ""
    return f"{printable(file_system.path)}{role}"


def _room(case: Evidence, disk: FileSystem) -> str:
    lowest = case.size(disk.lowest) if disk.lowest else "nothing"
    return f"free on {place(disk)}: {case.size(disk.first or 0)} at first, {lowest} at {seconds_text(disk.lowest_s)}"


_AROUND_S = 0.15
"""The end of a process is known at the next sample; the count of its group may be read before that."""
_FULL = 0.95
"""From this share of its memory on, the machine is full."""
_LARGE = 0.3
"""Of its group's limit: the kernel chooses the largest process."""
_MUCH_MORE = 2.0


def judge_out_of_memory(case: Evidence) -> Verdict | None:
    """Return whom the kernel killed; None for nothing."""
    session = case.session
    limit = smallest_of(session, GROUP)
    victims, certainty = _victims(case, limit)
    if certainty is None:
        return None
    is_of_group = _is_of_group(session, limit)
    held_more = limit is None or (session.rss_peak.sampled or 0) > limit.size * _MUCH_MORE
    reached = None if held_more else limit  # of a run that held more, it is another group's
    ran_out = f"{'their' if len(victims) > 1 else 'its'} control group ran out of memory"
    largest = next(iter(victims), None)
    who = f"{case.who(largest)} and {len(victims) - 1} more were" if len(victims) > 1 else f"{case.who(largest)} was"
    return case.verdict(
        Cause.OUT_OF_MEMORY,
        certainty,
        f"{who} killed by the kernel: {ran_out if is_of_group else 'the machine ran out of memory'}",
        min((process.end_s for process in victims if process.end_s is not None), default=case.end_s),
        process=largest,
        limit=reached if is_of_group else case.limit,
        signal="SIGKILL",
        evidence=list(_evidence(session, limit)),
        is_for_memory=True,
    )


def _victims(case: Evidence, limit: Effective | None) -> tuple[list[Process], str | None]:
    """Return the victims, the largest first, and how certain they are; None for no victim.

    If the kernel's log can be read and names no process of the run, the kernel killed none.
    """
    session = case.session
    if session.kernel_kills is not None:
        logged = {kill.pid for kill in session.kernel_kills}  # a process that ended otherwise has the PID of another
        named = [process for process in session.processes if process.pid in logged]
        named = [process for process in named if process.exit is None or process.exit.signal == signal.SIGKILL]
        return _by_size(named), Certainty.CERTAIN if named else None
    killed = [death for death in case.deaths if death.number == signal.SIGKILL and _is_within(death.at_s, session)]
    known = [death.process for death in killed if death.process is not None]
    if killed:
        return _by_size(known), Certainty.CERTAIN if known else Certainty.LIKELY
    count = sum(rise.count for rise in session.oom_kills)
    ended = [process for process in session.processes if process.exit is None and _is_within(process.end_s, session)]
    unsure = _by_size(ended)[:count]
    if not unsure or (not case.has_failed and not case.is_significant(unsure[0])):
        return [], None
    is_large = limit is not None and (unsure[0].peak_rss or 0) >= limit.size * _LARGE
    return unsure, Certainty.LIKELY if is_large else Certainty.POSSIBLE


def _is_within(at_s: float | None, session: SessionData) -> bool:
    """Return whether the kernel killed a process at a moment; None is an unknown moment."""
    if at_s is None:
        return False
    return any(rise.from_s - _AROUND_S <= at_s <= rise.to_s + _AROUND_S for rise in session.oom_kills)


def _by_size(processes: Sequence[Process]) -> list[Process]:
    return sorted(processes, key=attrgetter("most_memory"), reverse=True)


def _is_of_group(session: SessionData, limit: Effective | None) -> bool:
    if session.kernel_kills:
        return any(kill.group is not None for kill in session.kernel_kills)
    used = session.samples.figures("system").highest if "system" in session.samples.metrics else 0.0
    machine_was_full = bool(session.host.memory) and used >= (session.host.memory or 0) * _FULL
    return limit is not None and not machine_was_full


def _evidence(session: SessionData, limit: Effective | None) -> Iterator[str]:
    if session.kernel_kills:
        yield "the kernel's log names it"
    for group in dict.fromkeys(rise.group for rise in session.oom_kills):
        rises = [rise for rise in session.oom_kills if rise.group == group]
        times = f"between {seconds_text(rises[0].from_s)} and {seconds_text(rises[-1].to_s)}"
        yield f"oom_kill of {group} rose by {sum(rise.count for rise in rises)} {times}"
    if limit is not None:
        yield f"the limit is set by {limit.set_by}"


_FAULTS = {
    signal.SIGSEGV: "segmentation fault",
    signal.SIGBUS: "bus error",
    signal.SIGILL: "illegal instruction",
    signal.SIGFPE: "arithmetic error",
    signal.SIGABRT: "aborted, as after a failed assertion or an uncaught C++ exception",
    signal.SIGSYS: "forbidden system call",
    signal.SIGTRAP: "trap",
}


def judge_max_memory(case: Evidence) -> Verdict | None:
    """Return whether ``--max-memory`` ended the run."""
    reached = case.session.limit_reached
    if reached is None or reached.action != "kill":
        return None
    return case.verdict(
        Cause.MAX_MEMORY,
        Certainty.CERTAIN,
        f"the command was ended by nncf-tools: RSS exceeded the limit of {case.size(reached.limit)}",
        reached.at_s,
        process=case.command,
        until_s=reached.at_s + 1e-6,
        signal=next((death.signal_name for death in case.deaths if death.is_command), None),
        evidence=[f"RSS was {case.size(reached.rss)} at {seconds_text(reached.at_s)}"],
        is_for_memory=True,
    )


def judge_lost(case: Evidence) -> Verdict | None:
    """Return why a recording breaks off: nobody is left who knows how the command ended."""
    session = case.session
    if session.finished is not False or session.exit is not None:
        return None
    end_s = session.duration_s
    if (full := fullest(session)) is not None:
        text = f"the recording breaks off at {seconds_text(end_s)}, and the disk of {place(full)} was full"
        return case.verdict(Cause.DISK_FULL, Certainty.LIKELY, text, end_s)
    text = f"the recording breaks off at {seconds_text(end_s)}: recorder and command were killed"
    text += ", the machine stopped, or this is a copy of a journal whose recording still runs"
    return case.verdict(Cause.LOST, Certainty.POSSIBLE, text, end_s, is_not=case.not_for_memory(end_s))


def judge_killed(case: Evidence, *, of_command: bool) -> Verdict | None:
    """Return whether the command, or which other process, was killed by SIGKILL for another reason than memory.

    Small processes do not count: programs kill helpers of their own.
    """
    death = case.death_by(signal.SIGKILL, of_command=of_command)
    if death is None or not (of_command or case.is_significant(death.process)):
        return None
    who = _subject(case, death)
    is_not = case.not_for_memory(death.at_s)
    may_be_kernel = case.limit is not None and not is_not
    certainty = Certainty.POSSIBLE if death.by_status or may_be_kernel else Certainty.LIKELY
    if case.session.kernel_kills is not None or case.session.totals.get("oom_kills") == 0:
        is_not.insert(0, "not by the kernel, which killed no process of the run")
        certainty = Certainty.POSSIBLE if death.by_status else Certainty.CERTAIN
    elif case.session.totals.get("oom_kills"):
        text = f"{who} was killed by SIGKILL, perhaps by the kernel because memory ran out"
        return case.verdict(Cause.OUT_OF_MEMORY, Certainty.POSSIBLE, text, death.at_s, death=death, is_for_memory=True)
    text = f"{who} was killed by SIGKILL, from a program or a user"
    return case.verdict(Cause.KILLED, certainty, text, death.at_s, death=death, is_not=is_not)


def judge_crashed(case: Evidence, *, of_command: bool) -> Verdict | None:
    """Return whether the command, or which other process, ended by a fault."""
    if (death := case.death_by(*_FAULTS, of_command=of_command)) is None:
        return None
    text = f"{_subject(case, death)} crashed: {_FAULTS[signal.Signals(death.number)]} ({death.signal_name})"
    certainty = Certainty.POSSIBLE if death.by_status else Certainty.CERTAIN
    return case.verdict(Cause.CRASHED, certainty, text, death.at_s, death=death, is_not=case.not_for_memory(death.at_s))


def judge_terminated(case: Evidence) -> Verdict | None:
    """Return which other signal ended the command."""
    death = next((death for death in case.deaths if death.is_command or death.by_status), None)
    if death is None or death.number in {signal.SIGINT, signal.SIGPIPE}:  # Ctrl-C, and a reader that has enough: `head`
        return None
    why = "its CPU time was used up" if death.number == signal.SIGXCPU else "from a scheduler, a program or a user"
    text = f"{_subject(case, death)} was ended by {death.signal_name}, {why}"
    certainty = Certainty.POSSIBLE if death.by_status else Certainty.CERTAIN
    is_not = case.not_for_memory(death.at_s)
    return case.verdict(Cause.TERMINATED, certainty, text, death.at_s, death=death, is_not=is_not)


def _subject(case: Evidence, death: Death) -> str:
    if not death.by_status:
        return case.who(death.process)
    status = None if case.session.exit is None else case.session.exit.code
    return f"the command ended with status {status}, as a shell does when a signal ends its command: a process of it"


_JUDGES = (
    judge_max_memory,
    judge_out_of_memory,
    judge_lost,
    judge_allocation,
    judge_device,
    judge_full_disk,
    partial(judge_killed, of_command=True),
    judge_by_room,
    partial(judge_crashed, of_command=True),
    judge_terminated,
    partial(judge_killed, of_command=False),
    partial(judge_crashed, of_command=False),
)
"""First what the kernel and exceptions say, then how the command ended, then what happened to other processes."""


def verdict(session: Session, unit: MemoryUnit) -> Verdict | None:
    """Return why the command or a process of its tree died.

    Of a job of several ranks it is the first one that failed. It is None when nothing died, and for a recording that
    still runs.
    """
    if session.ranks:
        return judge_ranks(session)
    if any(text.startswith(STILL_RUNS) for text in session.warnings):
        return None
    case = Evidence(session, unit)
    return next((judged for judge in _JUDGES if (judged := judge(case)) is not None), None)


_MOST_RANKS = 3
_SOON_S = 0.02
"""Ranks that fail so soon after one another may do so for a common reason."""


def judge_ranks(session: Session) -> Verdict | None:
    """Return the first rank that failed; None when none did."""
    if not (failed := failed_in_order(session.ranks)):
        return None
    first, *others = failed
    is_alone = all(end_of(run) - end_of(first) > _SOON_S for run in others)
    one_clock = len({run.host.boot_id or run.host.name for run in session.ranks}) == 1
    evidence = []
    for run in others[:_MOST_RANKS]:
        end, later_s = "" if run.exit is None else run.exit.text, end_of(run) - end_of(first)
        evidence.append(f"{run.name}: {end}, {seconds_text(later_s)} later")
    evidence += [f"{len(others) - _MOST_RANKS} more ranks failed after that"] if len(others) > _MOST_RANKS else []
    return Verdict(
        cause=Cause.RANK_FAILED,
        certainty=Certainty.CERTAIN if not others or (is_alone and one_clock) else Certainty.LIKELY,
        text=f"the first rank that failed was {first.name}: {'' if first.exit is None else first.exit.text}",
        at_s=end_of(first),
        state=UNKNOWN,
        evidence=evidence,
    )


def is_consequence(verdict: Verdict, name: str, job: Session) -> bool:
    """Return whether the verdict on the rank of this name only says that it was ended after another one had failed."""
    later = {run.name for run in failed_in_order(job.ranks)[1:]}
    return name in later and verdict.cause in {Cause.KILLED, Cause.TERMINATED}
