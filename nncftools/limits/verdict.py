"""What a verdict on a run is made of: the processes that were killed, what the run held and did then, the evidence.

Of a job of several ranks, the first one that failed counts: a launcher ends the others, so their ends say nothing.

Some evidence is left on the machine after the recording, also when the sampler died. The kernel's log (for root only)
says which processes it killed because memory ran out (mm/oom_kill.c). Two lines name a victim.
``oom-kill:constraint=CONSTRAINT_MEMCG,…,oom_memcg=/job,…,task=python3,pid=4711,uid=0`` has the control group whose
limit was reached. ``Memory cgroup out of memory: Killed process 4711 (python3) total-vm:…kB, anon-rss:…kB,
file-rss:…kB, shmem-rss:…kB`` has what it held.
"""

from __future__ import annotations

import os
import pathlib
import re
import signal
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from math import inf, isnan
from operator import attrgetter
from typing import Any, NamedTuple

from nncftools.analysis.code_places import SEPARATOR
from nncftools.analysis.operation import Operation
from nncftools.analysis.session import Session
from nncftools.limits.needs import Effective, effective_limit
from nncftools.sampler.control_groups import oom_kills_in
from nncftools.session.model import Failure, KernelKill, OomKills, Process, SessionData
from nncftools.units import MemoryUnit, printable, shortened

SHELL = 128
"""A shell ends with this plus the number of the signal that killed its command (POSIX, Shell Command Language)."""
_TOLD = {signal.SIGKILL, signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGTERM}
"""Of other statuses above 128, programs use some for ordinary failures."""


class Death(NamedTuple):
    """The end of a process by a signal."""

    number: int
    """Of the signal."""
    at_s: float
    process: Process | None
    """None if it is not known which process it was."""
    is_command: bool
    by_status: bool = False
    """Whether only the command's exit status says so."""

    @property
    def signal_name(self) -> str:
        """``SIGKILL``."""
        try:
            return signal.Signals(self.number).name
        except ValueError:
            return f"signal {self.number}"


def deaths(session: SessionData) -> list[Death]:
    """Return them in the order of their ends."""
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
        of_children = {process.exit.signal for process in session.processes if process.exit is not None}
        if number in _TOLD and number not in of_children:
            dead.append(Death(number, at_s, None, is_command=False, by_status=True))
    return sorted(dead, key=lambda death: (death.at_s, not death.is_command))


def command_of(session: SessionData) -> Process | None:
    """Return the process of the command; None when it was not seen, or when the recording was attached to a process."""
    if session.attached_to is not None:
        return None
    return next((process for process in session.processes if process.id == 0), None)


_TREND_S = 0.5
_FEWEST = 3
"""Samples that make a trend."""
_SLOWEST = 1 << 20
"""Bytes a second: slower growth is not named."""
_ENDING_S = 0.3
"""How long before its end is known a process may be missing from the samples."""
_NAMED = 3


class LastState(NamedTuple):
    """Bytes and seconds."""

    at_s: float | None
    """The time of the last sample before the moment; None if there was none."""
    rss: int
    growth_per_s: float | None
    """How fast RSS rose before it; None if it did not."""
    largest: Sequence[Process]
    """The processes that lived then, the one with the highest peak of its own first."""
    operation: str
    """The operations that ran, the outermost first; empty for none."""
    running: str
    """Where the program stood, by its stack; empty for unknown."""


UNKNOWN = LastState(None, 0, None, (), "", "")


def last_state(session: Session, before_s: float) -> LastState:
    """Return the state at the last sample before ``before_s``; what died then is not in the sample at that time."""
    samples = session.samples
    times = samples.time_s
    row = bisect_left(times, before_s) - 1
    values = samples["rss"] if "rss" in samples.metrics else []
    while row >= 0 and (not len(values) or isnan(values[row])):
        row -= 1
    at_s = None if row < 0 else times[row]
    rss = 0 if row < 0 else int(values[row])
    first = min(row - _FEWEST + 1, bisect_right(times, -inf if at_s is None else at_s - _TREND_S))
    span_s = 0.0 if at_s is None or first < 0 else at_s - times[first]
    growth = (rss - values[first]) / span_s if span_s > 0 and not isnan(values[first]) else 0.0
    begun = [process for process in session.processes if (process.start_s or 0.0) <= before_s]
    lived = [process for process in begun if process.end_s is None or process.end_s >= before_s - _ENDING_S]
    return LastState(
        at_s,
        rss,
        growth if growth >= _SLOWEST else None,
        sorted(lived, key=attrgetter("most_memory"), reverse=True)[:_NAMED],
        SEPARATOR.join(_operations(session, before_s)),
        "" if at_s is None or session.snapshots is None else _running(session, at_s),
    )


def _running(session: Session, at_s: float) -> str:
    from nncftools.analysis import build_up  # a run without stacks does without them

    rise = build_up.at(session, at_s)
    return "" if rise is None or rise.top is None else build_up.running_text(rise.top)


def _operations(session: Session, at_s: float) -> Sequence[str]:
    """Return the names of the operations that ran: the latest outermost one, and the latest one in each."""
    latest: dict[Operation | None, Operation] = {}
    """By what it is inside of."""
    for operation in session.operations:
        if operation.start_s <= at_s <= operation.end_s + _ENDING_S:
            latest[operation.parent] = operation
    names: list[str] = []
    innermost: Operation | None = None
    while (innermost := latest.get(innermost)) is not None:
        names.append(shortened(printable(innermost.name), _NAME))
    return names


class Certainty:
    """How sure a verdict is."""

    CERTAIN, LIKELY, POSSIBLE = "certain", "likely", "possible"


class Cause:
    """Why something died."""

    OUT_OF_MEMORY = "out_of_memory"
    """The kernel killed it because its control group or the machine had no memory left."""
    MAX_MEMORY = "max_memory"
    """Our own limit ended it."""
    ALLOCATION = "allocation_failed"
    """The program itself could not get memory: MemoryError, std::bad_alloc."""
    DISK_FULL = "disk_full"
    KILLED = "killed"
    """By SIGKILL of another process."""
    CRASHED = "crashed"
    """By a fault of the program: SIGSEGV, SIGABRT."""
    TERMINATED = "terminated"
    """By another signal from outside."""
    RANK_FAILED = "rank_failed"
    """Of a job of several ranks: the first one that failed."""
    LOST = "recorder_lost"
    """The recording breaks off, and nobody knows how the command ended."""


class Verdict(NamedTuple):
    """A conclusion with its evidence; bytes, and seconds since the start."""

    cause: str
    certainty: str
    """``certain``, ``likely`` or ``possible``."""
    text: str
    """The conclusion in one sentence, without a full stop."""
    at_s: float
    state: LastState
    process: Process | None = None
    """What died; None for the whole run, and for an unknown process."""
    signal: str | None = None
    evidence: Sequence[str] = ()
    is_not: Sequence[str] = ()
    """What the evidence excludes."""
    limit: Effective | None = None
    """The limit that was reached, or that would have been next; None for unknown."""
    is_for_memory: bool = False
    """Whether more memory would have helped."""


_NEAR = 0.9
"""From this share of its limit on, RSS does not show that memory was left."""
_NAME = 40
_SIGNIFICANT, _SMALL = 0.1, 16 << 20
_LATELY_S = 0.3


class Evidence:
    """A session in which something may have died."""

    def __init__(self, session: Session, unit: MemoryUnit) -> None:
        self.session = session
        self.deaths = deaths(session)
        self.command = command_of(session)
        self.limit = effective_limit(session)
        """The limit that RSS would have met next."""
        self._unit = unit

    @property
    def has_failed(self) -> bool:
        """Whether the command ended by itself with another exit status than 0."""
        return self.session.exit is not None and bool(self.session.exit.code)

    @property
    def end_s(self) -> float:
        """When the command ended."""
        known = None if self.command is None else self.command.end_s
        return self.session.duration_s if known is None else known

    def death_by(self, *numbers: int, of_command: bool | None = None) -> Death | None:
        """Return the first death by one of these signals; of the command, or only of other processes."""
        deaths = (death for death in self.deaths if death.number in numbers)
        return next((death for death in deaths if of_command in {None, death.is_command or death.by_status}), None)

    def is_significant(self, process: Process | None) -> bool:
        """Return whether a process held a noticeable part of the memory: programs kill small helpers of their own."""
        most = self.session.rss_peak.low or 0
        return process is None or process.most_memory >= max(most * _SIGNIFICANT, _SMALL)

    @property
    def has_other_reason(self) -> bool:
        """Whether an exception that is not about memory or disk space ended the command."""
        pid = None if self.command is None else self.command.pid
        fatal = [failure for failure in self.session.failures if failure.fatal and failure.pid == pid]
        return bool(fatal) and all(failure.cause is None for failure in fatal)

    def failure(self, ran_out: str) -> Failure | None:
        """Return the exception that says that memory or disk space ran out; None for none."""
        failures = [failure for failure in self.session.failures if failure.cause == ran_out]
        return min(failures, key=lambda failure: (not failure.fatal, failure.at_s), default=None)

    def by_exception(self, ran_out: str, cause: str, says: str, evidence: Sequence[str], **more: Any) -> Verdict | None:  # noqa: ANN401 — further fields of the verdict
        """Return which program ended because memory or disk space ran out, by its exception; None for none."""
        failure = self.failure(ran_out)
        if failure is None or not (failure.fatal or self.has_failed):
            return None
        process = next((process for process in self.session.processes if process.pid == failure.pid), None)
        return self.verdict(
            cause,
            Certainty.CERTAIN if failure.fatal else Certainty.LIKELY,
            f"{self.who(process)} {says} ({printable(failure.error)})",
            failure.at_s,
            process=process,
            evidence=["the exception, as the hook of `profile` saw it", *evidence],
            **more,
        )

    def who(self, process: Process | None) -> str:
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

    def verdict(  # noqa: PLR0913 — what every verdict has
        self,
        cause: str,
        certainty: str,
        text: str,
        at_s: float,
        *,
        death: Death | None = None,
        process: Process | None = None,
        until_s: float | None = None,
        **more: Any,  # noqa: ANN401 — further fields of the verdict
    ) -> Verdict:
        """Return a verdict, with what the run held and did before it, or at the last sample before ``until_s``."""
        if death is not None:
            process, more["signal"] = death.process, death.signal_name
        more.setdefault("limit", self.limit)
        return Verdict(
            cause=cause,
            certainty=certainty,
            text=text,
            at_s=at_s,
            state=last_state(self.session, self._last_alive_s(process, at_s) if until_s is None else until_s),
            process=process,
            **more,
        )

    def not_for_memory(self, at_s: float) -> list[str]:
        """Return that memory was far from its limit, if it was."""
        state = last_state(self.session, at_s)
        has_room = self.limit is not None and state.at_s is not None and state.rss < self.limit.size * _NEAR
        return ["not because memory ran out"] if has_room else []

    def _last_alive_s(self, process: Process | None, at_s: float) -> float:
        """Return the end of a process, or just after its largest sample if it died soon after that.

        The end of a child is known only a sample or two later.
        """
        late_s = max(_LATELY_S, 3 * (self.session.sampler.spacing_s or 0.0))
        is_late = process is not None and process is not self.command
        if not is_late or process is None or process.peak_s is None or not 0 <= at_s - process.peak_s <= late_s:
            return at_s
        return min(at_s, process.peak_s + 1e-6)


LOG = "/dev/kmsg"
_RECORD = 8192
"""A record is at most this long (Documentation/ABI/testing/dev-kmsg)."""
_FIRST_NAMESPACE = 0xEFFFFFFC
"""The inode of the first PID namespace (PROC_PID_INIT_INO, include/linux/proc_ns.h)."""
_EARLIER_NS = 1_000_000_000
"""The log's clock does not stop where CLOCK_MONOTONIC does, and begins a little earlier."""
_CHOSEN = r"oom-kill:constraint=(\w+).*?(?:,oom_memcg=([^,]*))?,task_memcg=.*,pid=(\d+),uid="
_KILLED = r"[Kk]illed process (\d+) \((.*)\) total-vm:\d+kB, anon-rss:(\d+)kB, file-rss:(\d+)kB, shmem-rss:(\d+)kB"


def kernel_kills(pids: Collection[int], since_ns: int, log: str = LOG) -> list[KernelKill] | None:
    """Return the victims among ``pids`` since a moment on CLOCK_MONOTONIC; None when the log cannot be read."""
    try:
        if pathlib.Path("/proc/self/ns/pid").stat().st_ino != _FIRST_NAMESPACE:  # the log has other PIDs than we see
            return None
        descriptor = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    return list(_kills(_records(descriptor, since_ns - _EARLIER_NS), pids))


def _records(descriptor: int, since_ns: int) -> Iterator[str]:
    try:
        while True:
            try:
                data = os.read(descriptor, _RECORD)
            except BrokenPipeError:  # older records were overwritten meanwhile
                continue
            if not data:
                return
            for line in data.decode(errors="replace").splitlines():
                head, _, text = line.partition(";")
                fields = head.split(",")
                if len(fields) > 2 and fields[2].isdigit() and int(fields[2]) * 1000 >= since_ns:  # noqa: PLR2004 — µs are third
                    yield text
    except OSError:  # EAGAIN: no more records
        return
    finally:
        os.close(descriptor)


def _kills(records: Iterable[str], pids: Collection[int]) -> Iterator[KernelKill]:
    groups: dict[int, str | None] = {}
    for text in records:
        if chosen := re.search(_CHOSEN, text):
            is_of_group = chosen[1] == "CONSTRAINT_MEMCG"
            groups[int(chosen[3])] = (chosen[2] or "") if is_of_group else None
        elif (killed := re.search(_KILLED, text)) and int(killed[1]) in pids:
            anon, file, shmem = (int(size) * 1024 for size in killed.groups()[2:])
            pid = int(killed[1])
            group = groups.get(pid, "" if "cgroup out of memory" in text else None)
            yield KernelKill(pid=pid, name=killed[2], group=group, anon=anon, file=file, shmem=shmem)


def take_kernel_log(session: Session) -> None:
    """Add what the kernel's log says of processes of a run that may have been killed."""
    is_unsure = session.exit is None or bool(session.oom_kills)
    if session.start.monotonic_ns is None:
        return
    if is_unsure or any(death.number == signal.SIGKILL for death in deaths(session)):
        pids = {process.pid for process in session.processes if process.pid is not None}
        session.kernel_kills = kernel_kills(pids, session.start.monotonic_ns)


def take_counts(session: Session) -> None:
    """Add the processes that the kernel killed in control groups after the sampler was lost."""
    last_s = max(session.samples.time_s, default=0.0)
    later = []
    for group in session.control_groups:
        now = oom_kills_in(group.folder)
        known = sum(rise.count for rise in session.oom_kills if rise.group == group.folder)
        if now is not None and group.oom_kills is not None and now > group.oom_kills + known:
            count = now - group.oom_kills - known
            later.append(OomKills(group=group.folder, from_s=last_s, to_s=session.duration_s, count=count))
    session.oom_kills = [*session.oom_kills, *later]
