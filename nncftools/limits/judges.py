"""The verdict on a run: why the command or another process died.

There is a function (judge) for each cause of death; the first judge that finds evidence decides. Causes: a program
could not allocate memory, a disk was full, the kernel killed a process because memory ran out, another signal, the
recording stopped early.
"""

from __future__ import annotations

import signal
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import partial
from math import isnan
from operator import attrgetter

from nncftools.analysis.session import Session
from nncftools.analysis.summary import end_of, failed_in_order
from nncftools.journal.writing import ADDRESS_SPACE, DATA, GROUP
from nncftools.limits.needs import Effective, smallest_of
from nncftools.limits.verdict import UNKNOWN, Cause, Certainty, Death, Evidence, Verdict, last_state
from nncftools.session.model import DEVICE, DISK, MEMORY, FileSystem, Process, SessionData
from nncftools.session.session import STILL_RUNS
from nncftools.units import MemoryUnit, printable, seconds_text

_EXCEPTION = "an exception, reported by the hook of `profile`"


def judge_allocation(case: Evidence) -> Verdict | None:
    """Judge, by a reported exception, whether a program could not allocate memory."""
    evidence = [_EXCEPTION]
    limit = smallest_of(case.session, ADDRESS_SPACE, DATA)
    if limit is not None:
        evidence.append(f"{limit.kind} limits each process to {case.size(limit.size)} ({limit.set_by})")
    return case.judge_exception(
        case.failure(MEMORY),
        Cause.ALLOCATION,
        "could not allocate memory",
        evidence=evidence,
        limit=case.limit if limit is None else None,  # a limit on the address space is not a limit on RSS
        is_for_memory=True,
    )


def judge_device(case: Evidence) -> Verdict | None:
    """Judge, by a reported exception, whether a program could not allocate memory of a GPU."""
    failure = case.failure(DEVICE)
    if failure is None:
        return None
    name = failure.device or "a device"
    evidence = [_EXCEPTION, *_describe_device(case, name, failure.at_s)]
    problem = f"could not allocate memory of {name}"
    return case.judge_exception(failure, Cause.ALLOCATION, problem, evidence=evidence, limit=None)


def _describe_device(case: Evidence, name: str, at_s: float) -> Iterator[str]:
    """Yield the size of a device, and the memory in use when the device was last read before ``at_s``."""
    for device in case.session.devices:
        if device.device == name and device.memory:
            yield f"{name} has {case.size(device.memory)} ({printable(device.model)})"
    samples = case.session.samples
    if not {f"device_memory@{name}", f"device_used@{name}"} <= samples.keys():
        return
    row = bisect_right(samples.time_s, at_s) - 1
    while row >= 0 and isnan(samples[f"device_used@{name}"][row]):
        row -= 1
    if row >= 0:
        held = samples[f"device_memory@{name}"][row]
        used = samples[f"device_used@{name}"][row]
        holders = f"the run held {case.size(held)}, others {case.size(max(0.0, used - held))}"
        if isnan(held):
            holders = f"all programs together held {case.size(used)}"
        yield f"at {seconds_text(samples.time_s[row])}, the last reading, {holders}"


_LEAST = 1 << 20
_MOST = 16 << 20
_LEAST_SHARE = 0.005
_FELL = 1 << 20
"""Least decrease of the free space during the run, in bytes, for the verdict that a disk was full."""


def judge_full_disk(case: Evidence) -> Verdict | None:
    """Judge, by a reported exception, whether a program failed because a disk was full."""
    evidence = [_EXCEPTION]
    full = fullest(case.session)
    if full is not None:
        evidence.append(_describe_room(case, full))
    problem = "failed because a disk was full"
    return case.judge_exception(case.failure(DISK), Cause.DISK_FULL, problem, evidence=evidence)


def judge_by_room(case: Evidence) -> Verdict | None:
    """Judge, by the free space, whether the command probably failed because a disk was full."""
    death = case.death_by(signal.SIGBUS, of_command=True)
    full = fullest(case.session)
    if full is None or case.has_other_reason or not (case.has_failed or death is not None):
        return None
    at_s = case.end_s if death is None else death.at_s
    text = f"{case.describe(case.command)} failed after a disk was full: {describe_place(full)}"
    judged = case.verdict(Cause.DISK_FULL, Certainty.LIKELY, text, at_s, process=case.command)
    return judged._replace(evidence=[_describe_room(case, full)])


def fullest(session: SessionData) -> FileSystem | None:
    """Return the file system with the least free space, if it became almost full during the run; otherwise None."""
    disks = [disk for disk in session.file_systems if disk.size and disk.lowest is not None]
    disk = min(disks, key=lambda disk: disk.lowest or 0, default=None)
    if disk is None:
        return None
    lowest = disk.lowest or 0
    almost_nothing = max(_LEAST, min(_MOST, (disk.size or 0) * _LEAST_SHARE))
    return disk if lowest <= almost_nothing and (disk.first or 0) - lowest >= _FELL else None


def describe_place(file_system: FileSystem) -> str:
    """Return the folder of a file system as part of a sentence: ``/tmp (TMPDIR)``."""
    role = " (TMPDIR)" if file_system.role == "TMPDIR" else ""
    return f"{printable(file_system.path)}{role}"


def _describe_room(case: Evidence, disk: FileSystem) -> str:
    lowest = case.size(disk.lowest) if disk.lowest else "nothing"
    first = case.size(disk.first or 0)
    return f"free on {describe_place(disk)}: {first} at first, {lowest} at {seconds_text(disk.lowest_s)}"


_AROUND_S = 0.15
"""If a process ended at most this many seconds before or after the control group's counter of kills rose, the kernel
may have killed the process. The end of a process is only seen at the next sample."""
_FULL = 0.95
"""The machine counts as full if more than this share of memory is in use."""
_LARGE = 0.3
"""A killed process usually had at least this share of the group's limit, because the kernel kills the largest
process."""
_MUCH_MORE = 2.0


def judge_out_of_memory(case: Evidence) -> Verdict | None:
    """Judge whether the kernel killed processes because memory ran out."""
    limit = smallest_of(case.session, GROUP)
    victims, certainty = _find_victims(case, limit)
    if certainty is None:
        return None
    largest = next(iter(victims), None)
    who = f"{case.describe(largest)} was"
    group = "its control group"
    if len(victims) > 1:
        who = f"{case.describe(largest)} and {len(victims) - 1} more were"
        group = "their control group"
    reached = case.limit
    if not _is_of_group(case.session, limit):
        group = "the machine"
    elif limit is None or (case.session.rss_peak.sampled or 0) > limit.size * _MUCH_MORE:
        reached = None  # the limit that was reached is in another group
    else:
        reached = limit
    ends_s = [process.end_s for process in victims if process.end_s is not None]
    return case.verdict(
        Cause.OUT_OF_MEMORY,
        certainty,
        f"{who} killed by the kernel: {group} ran out of memory",
        min(ends_s, default=case.end_s),
        process=largest,
        limit=reached,
        signal="SIGKILL",
        evidence=list(_describe_kills(case.session, limit)),
        is_for_memory=True,
    )


def _find_victims(case: Evidence, limit: Effective | None) -> tuple[list[Process], str | None]:
    """Return the processes that the kernel killed, largest first, and the certainty.

    The certainty is ``certain``, ``likely`` or ``possible``; None if the kernel killed no process. If the kernel's log
    is readable, only processes that are named in the log were killed by the kernel.
    """
    session = case.session
    if session.kernel_kills is not None:
        logged = {kill.pid for kill in session.kernel_kills}
        victims = [process for process in session.processes if process.pid in logged and _may_be_killed(process)]
        return _sort_by_size(victims), Certainty.CERTAIN if victims else None
    killed = [death for death in case.deaths if death.number == signal.SIGKILL]
    killed = [death for death in killed if _is_within(death.at_s, session)]
    if killed:
        victims = [death.process for death in killed if death.process is not None]
        return _sort_by_size(victims), Certainty.CERTAIN if victims else Certainty.LIKELY
    count = sum(rise.count for rise in session.oom_kills)
    ended = [process for process in session.processes if process.exit is None]
    ended = [process for process in ended if _is_within(process.end_s, session)]
    victims = _sort_by_size(ended)[:count]
    if not victims or (not case.has_failed and not case.is_significant(victims[0])):
        return [], None
    is_large = limit is not None and (victims[0].peak_rss or 0) >= limit.size * _LARGE
    return victims, Certainty.LIKELY if is_large else Certainty.POSSIBLE


def _may_be_killed(process: Process) -> bool:
    """Return whether SIGKILL may have ended a process.

    If not, the PID in the kernel's log belongs to another process.
    """
    return process.exit is None or process.exit.signal == signal.SIGKILL


def _is_within(at_s: float | None, session: SessionData) -> bool:
    """Return whether the kernel killed any process of the run near the time ``at_s``; False if ``at_s`` is None."""
    if at_s is None:
        return False
    return any(rise.from_s - _AROUND_S <= at_s <= rise.to_s + _AROUND_S for rise in session.oom_kills)


def _sort_by_size(processes: Sequence[Process]) -> list[Process]:
    return sorted(processes, key=attrgetter("most_memory"), reverse=True)


def _is_of_group(session: SessionData, limit: Effective | None) -> bool:
    """Return whether memory ran out in a control group; False if memory ran out on the whole machine."""
    if session.kernel_kills:
        return any(kill.group is not None for kill in session.kernel_kills)
    if limit is None or not session.host.memory or "system" not in session.samples:
        return limit is not None
    return session.samples.figures("system").highest < session.host.memory * _FULL


def _describe_kills(session: SessionData, limit: Effective | None) -> Iterator[str]:
    if session.kernel_kills:
        yield "the kernel's log names the process"
    for group in dict.fromkeys(rise.group for rise in session.oom_kills):
        rises = [rise for rise in session.oom_kills if rise.group == group]
        count = sum(rise.count for rise in rises)
        times = f"between {seconds_text(rises[0].from_s)} and {seconds_text(rises[-1].to_s)}"
        yield f"the kernel killed {count} {'process' if count == 1 else 'processes'} of {group} {times}"
    if limit is not None:
        yield f"{limit.set_by} sets the limit"


_FAULTS = {
    signal.SIGSEGV: "segmentation fault",
    signal.SIGBUS: "bus error",
    signal.SIGILL: "illegal instruction",
    signal.SIGFPE: "arithmetic error",
    signal.SIGABRT: "aborted, often after a failed assertion or an uncaught C++ exception",
    signal.SIGSYS: "forbidden system call",
    signal.SIGTRAP: "trap",
}


def judge_max_memory(case: Evidence) -> Verdict | None:
    """Judge whether ``--max-memory`` ended the run."""
    reached = case.session.limit_reached
    if reached is None or reached.action != "kill":
        return None
    text = f"nncf-tools ended the command: RSS exceeded the limit of {case.size(reached.limit)}"
    judged = case.verdict(Cause.MAX_MEMORY, Certainty.CERTAIN, text, reached.at_s)
    return judged._replace(
        process=case.command,
        state=last_state(case.session, reached.at_s + 1e-6),
        signal=next((death.signal_name for death in case.deaths if death.is_command), None),
        evidence=[f"RSS was {case.size(reached.rss)} at {seconds_text(reached.at_s)}"],
        is_for_memory=True,
    )


def judge_lost(case: Evidence) -> Verdict | None:
    """Judge why a recording stops early. The end of the command is then unknown."""
    session = case.session
    if session.finished is not False or session.exit is not None:
        return None
    end_s = session.duration_s
    text = f"the recording stops at {seconds_text(end_s)}"
    full = fullest(session)
    if full is not None:
        text += f": a disk was full ({describe_place(full)})"
        return case.verdict(Cause.DISK_FULL, Certainty.LIKELY, text, end_s)
    text += ": the recorder was killed, the machine stopped, or this journal is a copy and the original still grows"
    is_not = case.exclude_memory(end_s)
    return case.verdict(Cause.LOST, Certainty.POSSIBLE, text, end_s, is_not=is_not)


def judge_killed(case: Evidence, *, of_command: bool) -> Verdict | None:
    """Judge whether SIGKILL ended the command or, if ``of_command`` is false, another process.

    Of the other processes, only large processes count, because programs kill small helpers.
    """
    death = case.death_by(signal.SIGKILL, of_command=of_command)
    if death is None or not (of_command or case.is_significant(death.process)):
        return None
    kills = case.session.totals.get("oom_kills")
    if kills and case.session.kernel_kills is None:
        problem = "was killed by SIGKILL, perhaps by the kernel because memory ran out"
        judged = _judge_death(case, death, Cause.OUT_OF_MEMORY, problem)
        return judged._replace(certainty=Certainty.POSSIBLE, is_not=(), is_for_memory=True)
    judged = _judge_death(case, death, Cause.KILLED, "was killed by SIGKILL from another program or a user")
    if kills == 0 or case.session.kernel_kills is not None:
        return judged._replace(is_not=["not by the kernel, which killed no process of the run", *judged.is_not])
    may_be_kernel = case.limit is not None and not judged.is_not
    return judged._replace(certainty=Certainty.POSSIBLE if death.by_status or may_be_kernel else Certainty.LIKELY)


def judge_crashed(case: Evidence, *, of_command: bool) -> Verdict | None:
    """Judge whether a crash, such as SIGSEGV, ended the command or, if ``of_command`` is false, another process."""
    death = case.death_by(*_FAULTS, of_command=of_command)
    if death is None:
        return None
    fault = _FAULTS[signal.Signals(death.number)]
    return _judge_death(case, death, Cause.CRASHED, f"crashed: {fault} ({death.signal_name})")


def judge_terminated(case: Evidence) -> Verdict | None:
    """Judge whether a signal such as SIGTERM ended the command.

    SIGKILL and the signals of crashes are judged earlier. SIGINT and SIGPIPE are normal ends.
    """
    death = next((death for death in case.deaths if death.is_command or death.by_status), None)
    if death is None or death.number in {signal.SIGINT, signal.SIGPIPE}:  # Ctrl-C, or `head` has ended
        return None
    sender = "from a scheduler, another program or a user"
    if death.number == signal.SIGXCPU:
        sender = "because the limit of CPU time was reached"
    return _judge_death(case, death, Cause.TERMINATED, f"was ended by {death.signal_name} {sender}")


def _judge_death(case: Evidence, death: Death, cause: str, problem: str) -> Verdict:
    """Return a verdict on a process that a signal ended.

    If only the command's exit status shows the signal, the certainty is ``possible``.
    """
    subject = case.describe(death.process)
    if death.by_status and case.session.exit is not None:
        subject = f"a process of the command (exit status {case.session.exit.code})"
    return case.verdict(
        cause,
        Certainty.POSSIBLE if death.by_status else Certainty.CERTAIN,
        f"{subject} {problem}",
        death.at_s,
        process=death.process,
        signal=death.signal_name,
        is_not=case.exclude_memory(death.at_s),
    )


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
"""All judges, in the order in which they decide. First are judges that use evidence of the kernel or an exception, then
judges of the command's end, and then judges of other processes."""


def verdict(session: Session, unit: MemoryUnit) -> Verdict | None:
    """Return why the command or another process of the run died; None if none died or if the recording still runs.

    If the session merges the ranks of a job, the verdict is about the rank that failed first.
    """
    if session.ranks:
        return judge_ranks(session)
    if any(text.startswith(STILL_RUNS) for text in session.warnings):
        return None
    case = Evidence(session, unit)
    for judge in _JUDGES:
        judged = judge(case)
        if judged is not None:
            return judged
    return None


_MOST_RANKS = 3
_SOON_S = 0.02
"""If another rank fails within this number of seconds after the first, both failures may have the same cause."""


def judge_ranks(session: Session) -> Verdict | None:
    """Return a verdict about the rank (a process of a distributed job) that failed first; None if no rank failed."""
    failed = failed_in_order(session.ranks)
    if not failed:
        return None
    first, *others = failed
    end_s = end_of(first)
    is_alone = all(end_of(run) - end_s > _SOON_S for run in others)
    clocks = {run.host.boot_id or run.host.name for run in session.ranks}
    is_certain = not others or (is_alone and len(clocks) == 1)
    evidence = []
    for run in others[:_MOST_RANKS]:
        ending = "" if run.exit is None else run.exit.text
        evidence.append(f"{run.name}: {ending}, {seconds_text(end_of(run) - end_s)} later")
    if len(others) > _MOST_RANKS:
        evidence.append(f"{len(others) - _MOST_RANKS} more ranks failed after that")
    return Verdict(
        cause=Cause.RANK_FAILED,
        certainty=Certainty.CERTAIN if is_certain else Certainty.LIKELY,
        text=f"the first rank that failed was {first.name}: {'' if first.exit is None else first.exit.text}",
        at_s=end_s,
        state=UNKNOWN,
        evidence=evidence,
    )


def is_consequence(verdict: Verdict, name: str, job: Session) -> bool:
    """Return whether a signal ended the rank ``name`` only because another rank of the job had failed before."""
    later = {run.name for run in failed_in_order(job.ranks)[1:]}
    return name in later and verdict.cause in {Cause.KILLED, Cause.TERMINATED}
