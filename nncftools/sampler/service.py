"""One recording, from the plan in the journal's first line to its last line."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import signal
import sys
import time

from nncftools.metrics import COUNTERS, METRICS
from nncftools.sampler import clock, target
from nncftools.sampler.journal import Journal
from nncftools.sampler.loop import Loop
from nncftools.sampler.signals import CAUGHT, Signals
from nncftools.sampler.thinner import Thinner
from nncftools.sampler.tree import NAME_BESIDE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Protocol

    from nncftools.sampler.exits import Exits
    from nncftools.sampler.limit import Limit
    from nncftools.sampler.mark_watch import MarkWatch
    from nncftools.sampler.plan import Plan

    class Source(Protocol):
        """Where the figures of a process tree come from; see ``ProcSource``."""

        def start(self, pid: int) -> bool:
            """Make ``pid`` the root of the tree; return whether it is there."""

        def sample(self, now_s: float) -> Sequence[float | None]:
            """Return one value per column."""

        def each(self) -> dict[int, int]:
            """Return the RSS of every process at the last sample."""

        def account(self, now_s: float) -> None:
            """Take what the kernel has told of processes that ended."""

        def retire(self, pid: int, now_s: float) -> None:
            """Read an ended child for the last time."""

        def ended(self, pid: int, now_s: float, status: dict[str, int | None], high_water_limit: int | None) -> None:
            """Take a reaped child out of the tree."""

        def is_empty(self, now_s: float) -> bool:
            """Return whether no process of the tree is left."""

        def alive(self, now_s: float) -> Sequence[int]:
            """Return the PIDs of the processes that run."""

        def totals(self) -> Sequence[float | None]:
            """Return the counters' totals, None for gauges."""

        def close(self, now_s: float) -> None:
            """Tell the last figures of all processes."""


NOT_FOUND = 127
NOT_EXECUTABLE = 126
_STANDARD_ERROR = 2
_LOOK_EVERY_S = 0.25
_URGENT = -10
_CHILD = getattr(signal, "SIGCHLD", None)
_SAME_SIGNAL_S = 0.5
"""A SIGTERM that arrives twice within this time (for the process group, and passed on by the CLI) counts once."""


def main(path: str) -> int:
    """Record as the journal at ``path`` plans; return the exit status of the command, or 0 when attached."""
    _occupy_standard_descriptors()
    signals = Signals()
    journal = Journal(path)
    plan = journal.plan()
    if plan["channel"] is not None:
        _detach()
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_SETMASK, plan["signal_mask"])
    interrupted = [number for number in signals.take() if number in CAUGHT]
    if interrupted:
        journal.event("end", {"error": "interrupted before the command began"})
        journal.flush()
        return 128 + interrupted[0]
    return Recording(plan, journal, signals).run()


class Recording:
    """A running recording: the target, the source of its figures and the journal."""

    def __init__(self, plan: Plan, journal: Journal, signals: Signals) -> None:
        self._plan = plan
        self._journal = journal
        self._signals = signals
        self._attached = plan["pid"] is not None
        self._pid = plan["pid"] or 0
        self._exit_watch: list[int] = []
        self._told: int | None = None
        self._tell: int | None = None
        if plan["channel"] is not None:
            self._told, self._tell = plan["channel"]
        self._ready: list[int] = []
        self._status: dict[str, int | None] | None = None
        self._figures: dict[str, object] | None = None
        self._over = False
        self._left = False
        self._failed = False
        self._is_urgent = False
        self._passed_on_s = -_SAME_SIGNAL_S
        reaper = os.getpid() if not self._attached and target.adopt_orphans() else None
        self._marks = _mark_watch(plan, self._sample_for_mark)
        self._exits = _exit_accounting(plan)
        self._source = _source(plan, journal.event, reaper, self._exits)
        self._limit = _limit(plan, self._source, self._say)
        gauges = [place for place, name in enumerate(plan["columns"]) if METRICS[name].is_memory]
        self._thinner = Thinner(plan["max_samples"], gauges, journal.sample)
        self._loop = Loop(plan["interval_s"], plan["duration_s"])

    def run(self) -> int:
        """Record until the target ends; return its exit status, or 0 when attached."""
        if self._attached:
            self._watch_exit()
        else:
            try:
                self._pid = target.spawn([word.encode("latin-1") for word in self._plan["argv"]])
            except OSError as error:
                reason = f"cannot run {self._plan['argv'][0]!r}: {os.strerror(error.errno or 0)}"
                self._journal.event("end", {"error": reason})
                self._journal.flush()
                return NOT_FOUND if error.errno == errno.ENOENT else NOT_EXECUTABLE
        _raise_descriptor_limit()
        start_ns = self._loop.start_ns
        start = {**clock.start(start_ns), "pid": self._pid, "sampler_pid": os.getpid()}
        self._protect(self._journal.event, "start", start)
        self._protect(self._source.start, self._pid)
        self._protect(self._journal.flush)
        gc.disable()  # nothing here makes cycles, and a collection delays a tick
        self._loop.run(self._tick, self._sleep, self._step)
        self._finish()
        return 0 if self._status is None else target.exit_code(self._status)

    def _watch_exit(self) -> None:
        """Have the kernel wake us at the end of a process that is not our child."""
        if sys.platform == "linux":
            with contextlib.suppress(OSError):
                self._exit_watch = [os.pidfd_open(self._pid)]

    def _tick(self, now_s: float) -> None:
        self._protect(self._sample, now_s)
        if self._loop.missed and not self._is_urgent:
            self._is_urgent = True
            _raise_priority()

    def _sample_for_mark(self) -> None:
        if self._loop.sampling:
            self._protect(self._take, self._loop.elapsed_s())

    def _take(self, now_s: float) -> None:
        values = self._source.sample(now_s)
        self._thinner.add((now_s, values, self._source.each() if self._plan["per_process"] else {}))
        if self._limit is not None:
            self._limit.check(values[self._plan["columns"].index("rss")], now_s)
        self._journal.flush()

    def _sample(self, now_s: float) -> None:
        self._take(now_s)
        if self._tell is not None and self._loop.is_first_tick:
            os.write(self._tell, b"\n")

    def _sleep(self, timeout_s: float | None) -> None:
        if self._exits is not None or (self._attached and not self._exit_watch):
            timeout_s = _LOOK_EVERY_S if timeout_s is None else min(timeout_s, _LOOK_EVERY_S)
        remaining_s = None if self._limit is None else self._limit.remaining_s(self._loop.elapsed_s())
        if remaining_s is not None:
            timeout_s = remaining_s if timeout_s is None else min(timeout_s, remaining_s)
        told = [] if self._told is None else [self._told]
        marks = [] if self._marks is None else [self._marks.descriptor]
        self._ready = self._signals.sleep(timeout_s, [*self._exit_watch, *told, *marks])

    def _step(self) -> bool:
        """Do what is to be done between two ticks; return whether the run goes on."""
        noted = self._signals.take()
        if self._marks is not None and self._marks.descriptor in self._ready:
            self._marks.heed()
        self._protect(self._source.account, self._loop.elapsed_s())
        if _CHILD is None or _CHILD in noted:
            self._reap()
        for number in noted:
            self._heed(number)
        waits = self._is_ending() or (self._plan["wait_all"] and not self._attached)
        if self._attached:
            ended = self._has_left() or self._told in self._ready or not self._loop.sampling
        else:
            ended = self._status is not None
        if ended and not (waits and self._has_descendants()):
            self._over = True
        if self._figures is None and (self._over or not self._loop.sampling):
            self._protect(self._close)
        return not self._over

    def _reap(self) -> None:
        now_s = self._loop.elapsed_s()
        for ended in target.reap_ended(before=lambda pid: self._protect(self._source.retire, pid, now_s)):
            self._protect(self._source.ended, ended.pid, now_s, ended.status, ended.high_water_limit)
            if ended.pid == self._pid:
                self._status = ended.status

    def _is_ending(self) -> bool:
        """Return whether processes are being ended because they held too much; what is due is done."""
        if self._limit is None:
            return False
        self._protect(self._limit.enforce, self._loop.elapsed_s())
        return self._limit.is_ending and not self._failed

    def _has_descendants(self) -> bool:
        return not self._failed and not self._source.is_empty(self._loop.elapsed_s())

    def _heed(self, number: int) -> None:
        """Pass SIGTERM on to the command; end a recording when there is no command of ours (any more)."""
        if number not in CAUGHT:
            return
        if self._attached or self._status is not None:
            self._over = True
        elif number == signal.SIGTERM and not self._over:
            now_s = time.monotonic()
            if now_s - self._passed_on_s >= _SAME_SIGNAL_S:
                self._passed_on_s = now_s
                with contextlib.suppress(OSError):  # it may have taken another user's identity
                    os.kill(self._pid, signal.SIGTERM)

    def _has_left(self) -> bool:
        """Return whether the process that we are attached to has ended."""
        if self._exit_watch and self._exit_watch[0] in self._ready:
            self._left = True
            os.close(self._exit_watch.pop())  # it stays readable, and would wake us for ever
        return self._left or not (self._exit_watch or target.is_running(self._pid))

    def _close(self) -> None:
        """Take the figures that belong to the whole of the recording, at its end."""
        duration_s = self._loop.elapsed_s()
        totals = dict(zip(self._plan["columns"], self._source.totals(), strict=True))
        self._source.close(duration_s)
        self._figures = {
            "duration_s": round(duration_s, 6),
            "totals": {name: value for name, value in totals.items() if name in COUNTERS},
        }

    def _finish(self) -> None:
        """Write the last line."""
        sampler = {
            "cpu_s": round(time.process_time(), 6),
            "peak_rss": _own_high_water_mark() or None,
            "interval_s": self._plan["interval_s"],
            **self._loop.punctuality(),
            "exit_accounting": None if self._exits is None else "complete" if self._exits.complete else "incomplete",
        }
        end = {**(self._figures or {}), "exit": self._status, "sampler": sampler}
        with contextlib.suppress(OSError):
            self._thinner.flush()
            self._journal.event("end", end)
            self._journal.flush()

    def _protect(self, work: Callable[..., object], *arguments: object) -> None:
        """Do a part of the recording; when it fails, the recording stops and the command goes on."""
        if self._failed:
            return
        try:
            work(*arguments)
        except Exception as error:  # noqa: BLE001 — whatever fails here must not harm the measured command
            self._failed = True
            self._loop.stop()
            text = f"the recording stopped early: {error}"
            with contextlib.suppress(OSError):
                self._journal.event("warning", text)
                self._journal.flush()
            _tell_user(f"{text}; the command goes on")

    def _say(self, text: str) -> None:
        """Warn the user now, and the readers of the session."""
        self._journal.event("warning", text)
        _tell_user(text)


def _tell_user(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(_STANDARD_ERROR, f"nncf-tools: {text}\n".encode())


def _detach() -> None:
    """Become nobody's child, in a session of our own.

    The starter is what is measured: a child would be in its tree, and its CPU time folded into the starter's. The name
    tells other recordings that this process is no part of what they measure.
    """
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as name:
        name.write(NAME_BESIDE)
    if os.fork():
        os._exit(0)
    os.setsid()


def _occupy_standard_descriptors() -> None:
    """Keep 0, 1 and 2 from becoming the journal where they were closed; the command still gets them closed."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STANDARD_ERROR:
        pass
    os.close(descriptor)


def _exit_accounting(plan: Plan) -> Exits | None:
    """Subscribe to the kernel's exit accounting; without the privilege, go on without."""
    if plan["source"] != "proc":
        return None
    from nncftools.sampler.exits import Exits

    try:
        return Exits()
    except (OSError, AttributeError):  # AttributeError: not on Linux
        return None


def _mark_watch(plan: Plan, sample: Callable[[], None]) -> MarkWatch | None:
    if plan["marks"] is None:
        return None
    from nncftools.sampler.mark_watch import MarkWatch

    try:
        return MarkWatch(plan["marks"], sample)
    except (OSError, AttributeError):  # not on Linux, or too many watches: phases then begin and end between samples
        return None


def _limit(plan: Plan, source: Source, say: Callable[[str], None]) -> Limit | None:
    limit = plan.get("limit")
    if limit is None:
        return None
    from nncftools.sampler.limit import Limit

    return Limit(limit, source.alive, say)


def _source(plan: Plan, tell: Callable[[str, object], None], reaper: int | None, exits: Exits | None) -> Source:
    if plan["source"] == "proc":
        from nncftools.sampler.proc_source import ProcSource

        return ProcSource(plan, tell, reaper=reaper, exits=exits)
    from nncftools.sampler.psutil_source import PsutilSource

    return PsutilSource(plan, tell)


def _raise_descriptor_limit() -> None:
    """Allow as many kept files as the system does; after the command was started, which inherits limits."""
    if sys.platform == "win32":
        return
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _raise_priority() -> None:
    """Come before the command where that is allowed: a late sampler says nothing of a busy machine."""
    if sys.platform != "win32":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, _URGENT)


def _own_high_water_mark() -> int:
    """Return this process's own VmHWM in bytes, or 0 where there is no /proc.

    Not ``ru_maxrss``, which holds what the starter had when it forked (getrusage(2) keeps it over exec).
    """
    try:
        with open("/proc/self/status", "rb") as file:
            return int(file.read().partition(b"\nVmHWM:")[2].split(None, 1)[0]) * 1024
    except OSError:
        return 0
