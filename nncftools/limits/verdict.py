"""A verdict on a run: the processes that died, the state of the run just before, and the evidence.

In a job of several ranks, the verdict is about the rank that failed first. After that, the launcher ends the other
ranks, so their ends are no evidence.

Some evidence remains on the machine, even if the sampler was killed. The kernel's log, which only root can read, has
two lines for each process that the kernel killed because memory ran out (mm/oom_kill.c).
``oom-kill:constraint=CONSTRAINT_MEMCG,…,oom_memcg=/job,…,task=python3,pid=4711,uid=0`` names the control group that
reached the limit. ``Memory cgroup out of memory: Killed process 4711 (python3) total-vm:…kB, anon-rss:…kB,
file-rss:…kB, shmem-rss:…kB`` has the memory of the process.
"""

from __future__ import annotations

import os
import pathlib
import re
import signal
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from math import isnan
from operator import attrgetter
from typing import Any, NamedTuple

from nncftools.analysis.code_places import SEPARATOR
from nncftools.analysis.session import Session
from nncftools.limits.needs import Effective, effective_limit
from nncftools.sampler.control_groups import read_oom_kills
from nncftools.session.model import Failure, KernelKill, OomKills, Process, SessionData, signal_name
from nncftools.units import MemoryUnit, printable, shortened

SHELL = 128
"""If a signal kills the command of a shell, the shell's exit status is this number plus the signal (POSIX, Shell
Command Language)."""
_SIGNALS_IN_STATUS = {signal.SIGKILL, signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGTERM}
"""Only these signals are recognised in an exit status: programs use other values above 128 for ordinary failures."""


class Death(NamedTuple):
    """A process that died by a signal."""

    number: int
    """Number of the signal, such as 9."""
    at_s: float
    process: Process | None
    """The dead process; None if unknown."""
    is_command: bool
    by_status: bool = False
    """Whether the signal is known only from the exit status of the command."""

    @property
    def signal_name(self) -> str:
        """Name of the signal, such as ``SIGKILL``."""
        return signal_name(self.number)


def deaths(session: SessionData) -> list[Death]:
    """Return all processes that died by a signal, in the order of their deaths."""
    command = command_of(session)
    dead = []
    for process in session.processes:
        if process is not command and process.exit is not None and process.exit.signal is not None:
            at_s = session.duration_s if process.end_s is None else process.end_s
            dead.append(Death(process.exit.signal, at_s, process, is_command=False))
    if session.exit is not None:
        at_s = session.duration_s if command is None or command.end_s is None else command.end_s
        if session.exit.signal is not None:
            dead.append(Death(session.exit.signal, at_s, command, is_command=True))
        number = (session.exit.code or 0) - SHELL
        if number in _SIGNALS_IN_STATUS and all(death.number != number for death in dead):
            dead.append(Death(number, at_s, None, is_command=False, by_status=True))
    return sorted(dead, key=lambda death: (death.at_s, not death.is_command))


def command_of(session: SessionData) -> Process | None:
    """Return the command's process. None if no sample has it, or if the recording was attached to a process."""
    if session.attached_to is not None:
        return None
    return next((process for process in session.processes if process.id == 0), None)


_TREND_S = 0.5
_FEWEST = 3
"""Growth is only computed from at least this many samples."""
_SLOWEST = 1 << 20
"""Growth in bytes per second; slower growth is not reported."""
_ENDING_S = 0.3
"""A process that is about to end may be missing from the samples up to this many seconds before the recorded end."""
_NAMED = 3


class LastState(NamedTuple):
    """The state of the run just before a death. Sizes are bytes; times are seconds."""

    at_s: float | None
    """Time of the last sample before the death; None if there is no such sample."""
    rss: int
    growth_per_s: float | None
    """Growth of RSS just before the death, in bytes per second; None if growth was slow or is unknown."""
    largest: Sequence[Process]
    """Processes that were alive, highest peak first."""
    operation: str
    """Names of the running operations, outermost first; empty if there were none."""
    running: str
    """The code that was running, from stacks; empty if unknown."""


UNKNOWN = LastState(None, 0, None, (), operation="", running="")


def last_state(session: Session, before_s: float) -> LastState:
    """Return the state at the last sample before ``before_s``.

    A sample at ``before_s`` itself no longer has the dead process.
    """
    begun = [process for process in session.processes if (process.start_s or 0.0) <= before_s]
    alive = [process for process in begun if process.end_s is None or process.end_s >= before_s - _ENDING_S]
    state = UNKNOWN._replace(
        largest=sorted(alive, key=attrgetter("most_memory"), reverse=True)[:_NAMED],
        operation=SEPARATOR.join(_running_operations(session, before_s)),
    )
    if "rss" not in session.samples:
        return state
    times = session.samples.time_s
    values = session.samples["rss"]
    row = bisect_left(times, before_s) - 1
    while row >= 0 and isnan(values[row]):
        row -= 1
    if row < 0:
        return state
    return state._replace(
        at_s=times[row],
        rss=int(values[row]),
        growth_per_s=_measure_growth(times[: row + 1], values[: row + 1]),
        running="" if session.snapshots is None else _running_code(session, times[row]),
    )


def _measure_growth(times: Sequence[float], values: Sequence[float]) -> float | None:
    """Return how fast the last values grew, in bytes per second; None if growth was slow or samples were too few."""
    first = min(len(times) - _FEWEST, bisect_right(times, times[-1] - _TREND_S))
    if first < 0 or times[first] == times[-1]:
        return None
    span_s = times[-1] - times[first]
    growth = (values[-1] - values[first]) / span_s
    return growth if growth >= _SLOWEST else None


def _running_code(session: Session, at_s: float) -> str:
    from nncftools.analysis import build_up  # imported late: a run without stacks does not need this module

    rise = build_up.at(session, at_s)
    return "" if rise is None or rise.top is None else build_up.running_text(rise.top)


def _running_operations(session: Session, at_s: float) -> list[str]:
    """Return the names of nested running operations, outermost first.

    At each level, only the operation that started last is included.
    """
    latest = {}
    """Maps each operation to the last operation that started inside. The key None stands for the outermost level."""
    for operation in session.operations:
        if operation.start_s <= at_s <= operation.end_s + _ENDING_S:
            latest[operation.parent] = operation
    names = []
    innermost = latest.get(None)
    while innermost is not None:
        names.append(shortened(printable(innermost.name), _NAME))
        innermost = latest.get(innermost)
    return names


class Certainty:
    """How certain a verdict is."""

    CERTAIN = "certain"
    LIKELY = "likely"
    POSSIBLE = "possible"


class Cause:
    """Why a process died, or why the recording stopped."""

    OUT_OF_MEMORY = "out_of_memory"
    """The kernel killed a process because the control group or the machine had no memory left."""
    MAX_MEMORY = "max_memory"
    """nncf-tools ended the run, because of ``--max-memory``."""
    ALLOCATION = "allocation_failed"
    """The program could not allocate memory, as reported by MemoryError or std::bad_alloc."""
    DISK_FULL = "disk_full"
    KILLED = "killed"
    """Another process or a user sent SIGKILL."""
    CRASHED = "crashed"
    """The program crashed with a signal such as SIGSEGV or SIGABRT."""
    TERMINATED = "terminated"
    """A signal such as SIGTERM ended the command. SIGKILL and signals of crashes are ``KILLED`` and ``CRASHED``."""
    RANK_FAILED = "rank_failed"
    """A rank of a job failed; the verdict is about the rank that failed first."""
    LOST = "recorder_lost"
    """The recording stops early, so the end of the command is unknown."""


class Verdict(NamedTuple):
    """Why a run or a process died, with the evidence. Sizes are bytes; times are seconds since the start."""

    cause: str
    certainty: str
    """``certain``, ``likely`` or ``possible``."""
    text: str
    """The verdict in one sentence, without a full stop."""
    at_s: float
    state: LastState
    process: Process | None = None
    """The dead process; None if unknown, or if the verdict is about the whole run."""
    signal: str | None = None
    evidence: Sequence[str] = ()
    is_not: Sequence[str] = ()
    """Causes that the evidence excludes, such as "not because memory ran out"."""
    limit: Effective | None = None
    """The memory limit that was reached. If no limit was reached, the smallest limit on RSS. None if unknown."""
    is_for_memory: bool = False
    """Whether the run would have needed more memory."""


_NEAR = 0.9
"""Memory may have run out if RSS was above this share of the limit."""
_NAME = 40
_SIGNIFICANT = 0.1
_SMALL = 16 << 20
_LATELY_S = 0.3


class Evidence:
    """A session, with facts that the functions of ``judges`` use as evidence."""

    def __init__(self, session: Session, unit: MemoryUnit) -> None:
        self.session = session
        self.deaths = deaths(session)
        self.command = command_of(session)
        self.limit = effective_limit(session)
        """The smallest limit on RSS; None if unknown."""
        self._unit = unit

    @property
    def has_failed(self) -> bool:
        """Whether the command ended with an exit status other than 0."""
        return self.session.exit is not None and bool(self.session.exit.code)

    @property
    def end_s(self) -> float:
        """Time when the command ended; if unknown, the end of the recording."""
        if self.command is None or self.command.end_s is None:
            return self.session.duration_s
        return self.command.end_s

    def death_by(self, *numbers: int, of_command: bool) -> Death | None:
        """Return the first death by any of these signals.

        If ``of_command`` is true, return only a death of the command, or a death known only from the command's exit
        status. If false, return only a death of another process.
        """
        for death in self.deaths:
            if death.number in numbers and of_command == (death.is_command or death.by_status):
                return death
        return None

    def is_significant(self, process: Process | None) -> bool:
        """Return whether a process had a large part of the run's memory. Programs often kill small helpers."""
        highest = self.session.rss_peak.low or 0
        return process is None or process.most_memory >= max(highest * _SIGNIFICANT, _SMALL)

    @property
    def has_other_reason(self) -> bool:
        """Whether the command ended by an exception that is not about memory or disk space."""
        pid = None if self.command is None else self.command.pid
        causes = {failure.cause for failure in self.session.failures if failure.fatal and failure.pid == pid}
        return causes == {None}

    def failure(self, resource: str) -> Failure | None:
        """Return the exception that reports that ``resource`` (memory, disk, device) ran out; None if there is none."""
        failures = [failure for failure in self.session.failures if failure.cause == resource]
        return min(failures, key=lambda failure: (not failure.fatal, failure.at_s), default=None)

    def judge_exception(self, failure: Failure | None, cause: str, problem: str, **fields: Any) -> Verdict | None:  # noqa: ANN401 — further fields of the verdict
        """Return a verdict on a program that failed with the exception ``failure``.

        None if there is no exception, or if the program caught the exception and the command did not fail.
        """
        if failure is None or not (failure.fatal or self.has_failed):
            return None
        processes = {process.pid: process for process in self.session.processes[::-1]}
        process = processes.get(failure.pid)
        certainty = Certainty.CERTAIN if failure.fatal else Certainty.LIKELY
        text = f"{self.describe(process)} {problem} ({printable(failure.error)})"
        return self.verdict(cause, certainty, text, failure.at_s, process=process, **fields)

    def describe(self, process: Process | None) -> str:
        """Return text about a process, for use as the subject of a sentence."""
        if process is None:
            return "a process of the command"
        name = shortened(printable(process.name), _NAME)
        if process is self.command:
            name = f"the command {name}".rstrip()
        return f"{name or 'a process'} (pid {process.pid})"

    def size(self, size: float) -> str:
        """Return a size as text with the unit."""
        return f"{self._unit.brief(size)} {self._unit}"

    def verdict(
        self,
        cause: str,
        certainty: str,
        text: str,
        at_s: float,
        *,
        process: Process | None = None,
        **fields: Any,  # noqa: ANN401 — further fields of the verdict
    ) -> Verdict:
        """Return a verdict that includes the state of the run just before ``at_s``."""
        return Verdict(
            cause=cause,
            certainty=certainty,
            text=text,
            at_s=at_s,
            state=last_state(self.session, self._last_alive_s(process, at_s)),
            process=process,
            **{"limit": self.limit, **fields},
        )

    def exclude_memory(self, at_s: float) -> list[str]:
        """If RSS was far below the limit, return a note that memory did not run out; otherwise return an empty list."""
        state = last_state(self.session, at_s)
        if self.limit is None or state.at_s is None or state.rss >= self.limit.size * _NEAR:
            return []
        return ["not because memory ran out"]

    def _last_alive_s(self, process: Process | None, at_s: float) -> float:
        """Return the last time when a process was certainly alive.

        The sampler notices the end of a child one or two samples late. So if a child died soon after the child's RSS
        peak, return the time just after the peak.
        """
        if process is None or process is self.command or process.peak_s is None:
            return at_s
        late_s = max(_LATELY_S, 3 * (self.session.sampler.spacing_s or 0.0))
        is_late = 0 <= at_s - process.peak_s <= late_s
        return min(at_s, process.peak_s + 1e-6) if is_late else at_s


LOG = "/dev/kmsg"
_RECORD = 8192
"""The largest size of a record in the kernel's log, in bytes (Documentation/ABI/testing/dev-kmsg)."""
_FIRST_NAMESPACE = 0xEFFFFFFC
"""Inode of the first PID namespace (PROC_PID_INIT_INO, include/linux/proc_ns.h)."""
_EARLIER_NS = 1_000_000_000
"""The kernel's log is read from this many nanoseconds before the start of the recording. The log's clock starts earlier
than CLOCK_MONOTONIC, and runs on while the machine sleeps.
"""
_CHOSEN = r"oom-kill:constraint=(\w+).*?(?:,oom_memcg=([^,]*))?,task_memcg=.*,pid=(\d+),uid="
_KILLED = r"[Kk]illed process (\d+) \((.*)\) total-vm:\d+kB, anon-rss:(\d+)kB, file-rss:(\d+)kB, shmem-rss:(\d+)kB"


def kernel_kills(pids: Collection[int], since_ns: int, log: str = LOG) -> list[KernelKill] | None:
    """Return each process in ``pids`` that the kernel killed since ``since_ns`` because memory ran out.

    ``since_ns`` is a time on CLOCK_MONOTONIC. None if the kernel's log is not readable.
    """
    try:
        if pathlib.Path("/proc/self/ns/pid").stat().st_ino != _FIRST_NAMESPACE:  # the log has other PIDs
            return None
        descriptor = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    return [kill for kill in _find_kills(_read_records(descriptor, since_ns - _EARLIER_NS)) if kill.pid in pids]


def _read_records(descriptor: int, since_ns: int) -> Iterator[str]:
    try:
        while True:
            try:
                data = os.read(descriptor, _RECORD)
            except BrokenPipeError:  # the next records were overwritten by newer records
                continue
            if not data:
                return
            for line in data.decode(errors="replace").splitlines():
                head, _, text = line.partition(";")
                microseconds = "".join(head.split(",")[2:3])
                if microseconds.isdigit() and int(microseconds) * 1000 >= since_ns:
                    yield text
    except OSError:  # EAGAIN means that there are no more records
        return
    finally:
        os.close(descriptor)


def _find_kills(records: Iterable[str]) -> Iterator[KernelKill]:
    groups = {}
    for text in records:
        if chosen := re.search(_CHOSEN, text):
            is_of_group = chosen[1] == "CONSTRAINT_MEMCG"
            groups[int(chosen[3])] = (chosen[2] or "") if is_of_group else None
        elif killed := re.search(_KILLED, text):
            pid, anon, file, shmem = map(int, killed.group(1, 3, 4, 5))
            yield KernelKill(
                pid=pid,
                name=killed[2],
                group=groups.get(pid, "" if "cgroup out of memory" in text else None),
                anon=anon * 1024,
                file=file * 1024,
                shmem=shmem * 1024,
            )


def take_kernel_log(session: Session) -> None:
    """If the cause of a death is unclear, add the kills that the kernel's log reports to ``session.kernel_kills``."""
    if session.start.monotonic_ns is None:
        return
    is_unsure = session.exit is None or bool(session.oom_kills)
    if is_unsure or any(death.number == signal.SIGKILL for death in deaths(session)):
        pids = {process.pid for process in session.processes if process.pid is not None}
        session.kernel_kills = kernel_kills(pids, session.start.monotonic_ns)


def take_counts(session: Session) -> None:
    """Add kills by the kernel that happened after the last sample to ``session.oom_kills``.

    The counters of the control groups show these kills.
    """
    last_s = max(session.samples.time_s, default=0.0)
    later = []
    for group in session.control_groups:
        total = read_oom_kills(group.folder)
        if total is None or group.oom_kills is None:
            continue
        seen = sum(rise.count for rise in session.oom_kills if rise.group == group.folder)
        count = total - group.oom_kills - seen
        if count > 0:
            kills = OomKills(group=group.folder, from_s=last_s, to_s=session.duration_s, count=count)
            later.append(kills)
    session.oom_kills = [*session.oom_kills, *later]
