"""The parts of a verdict on a run: killed processes, the state of the run at that time, and evidence.

In a job of several ranks, the first failed rank counts: a launcher ends the other ranks, so their ends say nothing.

Some evidence is left on the machine after the recording, even if the sampler died. The kernel's log (for root only)
names processes that the kernel killed because memory ran out (mm/oom_kill.c). Two lines name a victim.
``oom-kill:constraint=CONSTRAINT_MEMCG,…,oom_memcg=/job,…,task=python3,pid=4711,uid=0`` names the control group that
reached the limit. ``Memory cgroup out of memory: Killed process 4711 (python3) total-vm:…kB, anon-rss:…kB,
file-rss:…kB, shmem-rss:…kB`` has the memory of the victim.
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
"""A shell ends with this plus the number of the signal that killed the command (POSIX, Shell Command Language)."""
_SIGNALS_IN_STATUS = {signal.SIGKILL, signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGTERM}
"""Programs use other statuses above 128 for ordinary failures."""


class Death(NamedTuple):
    """The end of a process by a signal."""

    number: int
    """Number of the signal."""
    at_s: float
    process: Process | None
    """None if unknown."""
    is_command: bool
    by_status: bool = False
    """Whether the signal is known only from the command's exit status."""

    @property
    def signal_name(self) -> str:
        """``SIGKILL``."""
        return signal_name(self.number)


def deaths(session: SessionData) -> list[Death]:
    """Return all deaths by signals in order."""
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
    """Return the process of the command; None if not seen, or if the recording was attached to a process."""
    if session.attached_to is not None:
        return None
    return next((process for process in session.processes if process.id == 0), None)


_TREND_S = 0.5
_FEWEST = 3
"""Samples that make a trend."""
_SLOWEST = 1 << 20
"""Slower growth, in bytes a second, is not reported."""
_ENDING_S = 0.3
"""A process may be missing from the samples for this time before its end is known."""
_NAMED = 3


class LastState(NamedTuple):
    """The run just before a death; bytes and seconds."""

    at_s: float | None
    """Time of the last sample before the death; None without a sample."""
    rss: int
    growth_per_s: float | None
    """Growth of RSS just before the death; None without growth."""
    largest: Sequence[Process]
    """Living processes, the highest peak first."""
    operation: str
    """Running operations, outermost first; empty for none."""
    running: str
    """The running code, from stacks; empty for unknown."""


UNKNOWN = LastState(None, 0, None, (), operation="", running="")


def last_state(session: Session, before_s: float) -> LastState:
    """Return the state at the last sample before ``before_s``; a sample at that time lacks the dead process."""
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
    """Return the growth at the end in bytes a second; None for slow growth, and for too few samples."""
    first = min(len(times) - _FEWEST, bisect_right(times, times[-1] - _TREND_S))
    if first < 0 or times[first] == times[-1]:
        return None
    span_s = times[-1] - times[first]
    growth = (values[-1] - values[first]) / span_s
    return growth if growth >= _SLOWEST else None


def _running_code(session: Session, at_s: float) -> str:
    from nncftools.analysis import build_up  # a run without stacks does not need this module

    rise = build_up.at(session, at_s)
    return "" if rise is None or rise.top is None else build_up.running_text(rise.top)


def _running_operations(session: Session, at_s: float) -> list[str]:
    """Return the names of the running operations: the latest outermost operation, the latest inside, and so on."""
    latest = {}
    """The latest operation in each operation."""
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
    """How sure a verdict is."""

    CERTAIN = "certain"
    LIKELY = "likely"
    POSSIBLE = "possible"


class Cause:
    """Why something died."""

    OUT_OF_MEMORY = "out_of_memory"
    """The kernel killed a process because the control group or the machine had no memory left."""
    MAX_MEMORY = "max_memory"
    """Our own limit ended the run."""
    ALLOCATION = "allocation_failed"
    """The program itself could not allocate memory: MemoryError, std::bad_alloc."""
    DISK_FULL = "disk_full"
    KILLED = "killed"
    """SIGKILL from another process."""
    CRASHED = "crashed"
    """A fault of the program: SIGSEGV, SIGABRT."""
    TERMINATED = "terminated"
    """Another signal from outside."""
    RANK_FAILED = "rank_failed"
    """The first failed rank of a job."""
    LOST = "recorder_lost"
    """The recording stops early, and the end of the command is unknown."""


class Verdict(NamedTuple):
    """A conclusion with evidence; bytes, and seconds since the start."""

    cause: str
    certainty: str
    """``certain``, ``likely`` or ``possible``."""
    text: str
    """The conclusion in one sentence, without a full stop."""
    at_s: float
    state: LastState
    process: Process | None = None
    """The dead process; None for the whole run, and for an unknown process."""
    signal: str | None = None
    evidence: Sequence[str] = ()
    is_not: Sequence[str] = ()
    """Causes that the evidence excludes."""
    limit: Effective | None = None
    """The limit that was reached, or the nearest limit; None for unknown."""
    is_for_memory: bool = False
    """Whether more memory would have helped."""


_NEAR = 0.9
"""Above this share of the limit, RSS does not show that memory was left."""
_NAME = 40
_SIGNIFICANT = 0.1
_SMALL = 16 << 20
_LATELY_S = 0.3


class Evidence:
    """A session in which something may have died."""

    def __init__(self, session: Session, unit: MemoryUnit) -> None:
        self.session = session
        self.deaths = deaths(session)
        self.command = command_of(session)
        self.limit = effective_limit(session)
        """The smallest limit of RSS."""
        self._unit = unit

    @property
    def has_failed(self) -> bool:
        """Whether the command ended with an exit status other than 0."""
        return self.session.exit is not None and bool(self.session.exit.code)

    @property
    def end_s(self) -> float:
        """When the command ended."""
        if self.command is None or self.command.end_s is None:
            return self.session.duration_s
        return self.command.end_s

    def death_by(self, *numbers: int, of_command: bool) -> Death | None:
        """Return the first death by one of these signals: of the command, or of another process."""
        for death in self.deaths:
            if death.number in numbers and of_command == (death.is_command or death.by_status):
                return death
        return None

    def is_significant(self, process: Process | None) -> bool:
        """Return whether a process held a large part of the memory: programs kill small helpers."""
        highest = self.session.rss_peak.low or 0
        return process is None or process.most_memory >= max(highest * _SIGNIFICANT, _SMALL)

    @property
    def has_other_reason(self) -> bool:
        """Whether an exception that is not about memory or disk space ended the command."""
        pid = None if self.command is None else self.command.pid
        causes = {failure.cause for failure in self.session.failures if failure.fatal and failure.pid == pid}
        return causes == {None}

    def failure(self, resource: str) -> Failure | None:
        """Return the exception that says that memory or disk space ran out; None for none."""
        failures = [failure for failure in self.session.failures if failure.cause == resource]
        return min(failures, key=lambda failure: (not failure.fatal, failure.at_s), default=None)

    def judge_exception(self, failure: Failure | None, cause: str, problem: str, **fields: Any) -> Verdict | None:  # noqa: ANN401 — further fields of the verdict
        """Return a verdict on a program that failed with an exception; None for none."""
        if failure is None or not (failure.fatal or self.has_failed):
            return None
        processes = {process.pid: process for process in self.session.processes[::-1]}
        process = processes.get(failure.pid)
        certainty = Certainty.CERTAIN if failure.fatal else Certainty.LIKELY
        text = f"{self.describe(process)} {problem} ({printable(failure.error)})"
        return self.verdict(cause, certainty, text, failure.at_s, process=process, **fields)

    def describe(self, process: Process | None) -> str:
        """Return a process as the subject of a sentence."""
        if process is None:
            return "a process of the command"
        name = shortened(printable(process.name), _NAME)
        if process is self.command:
            name = f"the command {name}".rstrip()
        return f"{name or 'a process'} (pid {process.pid})"

    def size(self, size: float) -> str:
        """Return bytes as text."""
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
        """Return a verdict, with the state of the run just before ``at_s``."""
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
        """Return a note that memory did not run out, if RSS was far from the limit."""
        state = last_state(self.session, at_s)
        if self.limit is None or state.at_s is None or state.rss >= self.limit.size * _NEAR:
            return []
        return ["not because memory ran out"]

    def _last_alive_s(self, process: Process | None, at_s: float) -> float:
        """Return the end of a process, or the time just after the largest sample, if the process died soon after.

        The end of a child is known only one or two samples later.
        """
        if process is None or process is self.command or process.peak_s is None:
            return at_s
        late_s = max(_LATELY_S, 3 * (self.session.sampler.spacing_s or 0.0))
        is_late = 0 <= at_s - process.peak_s <= late_s
        return min(at_s, process.peak_s + 1e-6) if is_late else at_s


LOG = "/dev/kmsg"
_RECORD = 8192
"""Longest record (Documentation/ABI/testing/dev-kmsg)."""
_FIRST_NAMESPACE = 0xEFFFFFFC
"""The inode of the first PID namespace (PROC_PID_INIT_INO, include/linux/proc_ns.h)."""
_EARLIER_NS = 1_000_000_000
"""The log's clock goes on when CLOCK_MONOTONIC stops, and begins a little earlier."""
_CHOSEN = r"oom-kill:constraint=(\w+).*?(?:,oom_memcg=([^,]*))?,task_memcg=.*,pid=(\d+),uid="
_KILLED = r"[Kk]illed process (\d+) \((.*)\) total-vm:\d+kB, anon-rss:(\d+)kB, file-rss:(\d+)kB, shmem-rss:(\d+)kB"


def kernel_kills(pids: Collection[int], since_ns: int, log: str = LOG) -> list[KernelKill] | None:
    """Return the victims among ``pids`` since a time on CLOCK_MONOTONIC; None if the log cannot be read."""
    try:
        if pathlib.Path("/proc/self/ns/pid").stat().st_ino != _FIRST_NAMESPACE:  # the log has other PIDs than we see
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
            except BrokenPipeError:  # older records have been overwritten
                continue
            if not data:
                return
            for line in data.decode(errors="replace").splitlines():
                head, _, text = line.partition(";")
                microseconds = "".join(head.split(",")[2:3])
                if microseconds.isdigit() and int(microseconds) * 1000 >= since_ns:
                    yield text
    except OSError:  # EAGAIN: no more records
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
    """Add processes of a run that may have been killed, from the kernel's log."""
    if session.start.monotonic_ns is None:
        return
    is_unsure = session.exit is None or bool(session.oom_kills)
    if is_unsure or any(death.number == signal.SIGKILL for death in deaths(session)):
        pids = {process.pid for process in session.processes if process.pid is not None}
        session.kernel_kills = kernel_kills(pids, session.start.monotonic_ns)


def take_counts(session: Session) -> None:
    """Add the processes that the kernel killed in control groups after the sampler was lost."""
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
