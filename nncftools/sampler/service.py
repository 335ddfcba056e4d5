"""One recording, from the order to the journal's last line."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import signal
import sys
import time

from nncftools.journal.plan import Plan
from nncftools.journal.writer import Writer
from nncftools.metrics import is_counter, is_memory
from nncftools.sampler import clock, link, own_process, target
from nncftools.sampler.link import Link
from nncftools.sampler.loop import Loop
from nncftools.sampler.passing_on import PassingOn
from nncftools.sampler.signals import ENDING, Signals
from nncftools.sampler.takeover import Takeover
from nncftools.sampler.thinner import Thinner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Protocol

    from nncftools.journal.lines import ExitStatus
    from nncftools.sampler.exits import Exits
    from nncftools.sampler.limit import Limit
    from nncftools.sampler.link import Order
    from nncftools.sampler.mark_watch import MarkWatch

    class Source(Protocol):
        """Where the figures of a process tree come from; see ``ProcSource``."""

        columns: list[str]
        """In the order of the values of a sample; known once it is started."""

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

        def ended(self, pid: int, now_s: float, status: ExitStatus, high_water_limit: int | None) -> None:
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
_FULL_DISK_PATIENCE_S = 2.0
"""So long the last lines of a recording are tried again."""
_PAUSE_S = 0.05


def main(journal: int, incoming: int, outgoing: int) -> int:
    """Record as the order through the link says; return the exit status of the command, or 0 when attached."""
    own_process.occupy_standard_descriptors()
    os.set_inheritable(journal, False)
    ways = Link(incoming, outgoing)
    order = ways.order()
    if order["beside"]:
        own_process.detach()
    signals = Signals(order["blocked"])
    writer = Writer(journal, _tell_user)
    takeover = Takeover(order["relays"])
    try:
        return Recording(order, writer, signals, ways, takeover).run()
    finally:
        takeover.finish()


def _end(writer: Writer, ways: Link, end: dict[str, object], *, beside: bool = False) -> None:
    """Write the journal's last line, and tell it to the starter, with what a disk that stays full does not take."""
    writer.line("end", end)
    until_s = time.monotonic() + _FULL_DISK_PATIENCE_S
    while not writer.flush() and time.monotonic() < until_s:
        time.sleep(_PAUSE_S)
    if writer.unwritten and not beside:  # a program that records itself reads the journal alone
        end = {**end, "unwritten": writer.unwritten}
    ways.tell(link.END, end)


class Recording:
    """A running recording: the target, the source of its figures and the journal."""

    def __init__(self, order: Order, writer: Writer, signals: Signals, ways: Link, takeover: Takeover) -> None:
        self._order = order
        self._plan = plan = Plan(**order["plan"])
        self._writer = writer
        self._signals = signals
        self._link = ways
        self._takeover = takeover
        self._attached = plan.pid is not None or order["beside"]
        self._pid = plan.pid or 0
        self._exit_watch: list[int] = []
        self._ready = [ways.descriptor]  # what came with the order has been read, and wakes nobody
        self._status: ExitStatus | None = None
        self._figures: dict[str, object] | None = None
        self._over = False
        self._left = False
        self._failed = False
        self._is_urgent = False
        self._passing_on = PassingOn(self._deliver, lambda: ways.tell(link.ASK), self._spread)
        self._starter_leads = os.getpgrp() == os.getppid()
        reaper = os.getpid() if not self._attached and target.adopt_orphans() else None
        self._marks = _mark_watch(order["marks"], self._sample_for_mark)
        self._exits = _exit_accounting(plan)
        self._source = _source(plan, writer.line, reaper, self._exits)
        self._limit = _limit(plan, self._source, self._say)
        self._thinner = Thinner(plan.max_samples, [], writer.sample)
        self._loop = Loop(plan.interval_s, plan.duration_s)

    def run(self) -> int:
        """Record until the target ends; return its exit status, or 0 when attached."""
        if self._attached:
            self._watch_exit()
        else:
            interrupted = [number for number in self._signals.take() if number in ENDING]
            if interrupted:
                _end(self._writer, self._link, {"error": "interrupted before the command began"})
                return 128 + interrupted[0]
            try:
                self._spawn()
            except OSError as error:
                reason = f"cannot run {self._order['argv'][0]!r}: {os.strerror(error.errno or 0)}"
                _end(self._writer, self._link, {"error": reason})
                return NOT_FOUND if error.errno == errno.ENOENT else NOT_EXECUTABLE
        own_process.raise_descriptor_limit()
        start_ns = self._loop.start_ns
        start = {**clock.start(start_ns), "pid": self._pid, "sampler_pid": os.getpid()}
        self._protect(self._writer.line, "start", start)
        if not self._order["beside"]:  # a program that records itself waits for the first sample alone
            self._link.tell(link.START, start)
        self._protect(self._begin)
        gc.disable()  # nothing here makes cycles, and a collection delays a tick
        self._loop.run(self._tick, self._sleep, self._step)
        self._finish()
        return 0 if self._status is None else target.exit_code(self._status)

    def _begin(self) -> None:
        """Begin to read figures; what there is to read is known from here on."""
        self._source.start(self._pid)
        columns = self._source.columns
        if columns != self._plan.columns:
            self._writer.line("columns", columns)
        gauges = [place for place, column in enumerate(columns) if is_memory(column)]
        self._thinner = Thinner(self._plan.max_samples, gauges, self._writer.sample)
        self._writer.flush()

    def _spawn(self) -> None:
        """Start the command, and tell its PID before anything else can go wrong. Raises OSError."""
        if self._order["descriptors"] is not None:
            own_process.set_descriptor_limit(self._order["descriptors"])
        argv = [word.encode("latin-1") for word in self._order["argv"]]
        self._pid = target.spawn(argv, self._order["blocked"], self._order["ignored"])
        self._link.tell(link.STARTED, self._pid)

    def _watch_exit(self) -> None:
        """Have the kernel wake us at the end of a process that is not our child."""
        if sys.platform == "linux":
            with contextlib.suppress(OSError):
                self._exit_watch = [os.pidfd_open(self._pid)]

    def _tick(self, now_s: float) -> None:
        self._protect(self._sample, now_s)
        if self._loop.missed and not self._is_urgent:
            self._is_urgent = True
            own_process.raise_priority()

    def _sample_for_mark(self) -> None:
        if self._loop.sampling:
            self._protect(self._take, self._loop.elapsed_s())

    def _take(self, now_s: float) -> None:
        values = self._source.sample(now_s)
        self._thinner.add((now_s, values, self._source.each() if self._plan.per_process else {}))
        if self._limit is not None:
            self._limit.check(values[self._source.columns.index("rss")], now_s)
        self._writer.flush()

    def _sample(self, now_s: float) -> None:
        self._take(now_s)
        if self._loop.is_first_tick:
            self._link.tell(link.SAMPLED)

    def _sleep(self, timeout_s: float | None) -> None:
        if self._exits is not None or (self._attached and not self._exit_watch):
            timeout_s = _LOOK_EVERY_S if timeout_s is None else min(timeout_s, _LOOK_EVERY_S)
        remaining_s = [self._passing_on.remaining_s(time.monotonic())]
        if self._limit is not None:
            remaining_s.append(self._limit.remaining_s(self._loop.elapsed_s()))
        for remaining in remaining_s:
            if remaining is not None:
                timeout_s = remaining if timeout_s is None else min(timeout_s, remaining)
        starter = [self._link.descriptor] if self._link.is_open else []
        marks = [] if self._marks is None else [self._marks.descriptor]
        self._ready = self._signals.sleep(timeout_s, [*self._exit_watch, *starter, *marks])

    def _step(self) -> bool:
        """Do what is to be done between two ticks; return whether the run goes on."""
        now_s = time.monotonic()
        noted = self._signals.take()  # after the look at the clock: all that arrived before
        if self._marks is not None and self._marks.descriptor in self._ready:
            self._marks.take()
        self._protect(self._source.account, self._loop.elapsed_s())
        if signal.SIGCHLD in noted:
            self._reap()
        for number in noted:
            self._take_signal(number, is_ours=True)
        self._listen()
        self._passing_on.settle(now_s, alone=not self._link.is_open)
        waits = self._is_ending() or (self._plan.wait_all and not self._attached)
        has_ended = self._has_left if self._attached else self._has_exited
        ended = has_ended() or (self._attached and not self._loop.sampling)
        if ended and not (waits and self._has_descendants()):
            self._over = True
        if self._figures is None and (self._over or not self._loop.sampling):
            self._protect(self._close)
        return not self._over

    def _reap(self) -> None:
        now_s = self._loop.elapsed_s()

        def retire(pid: int, status: ExitStatus) -> None:
            if pid == self._pid:
                self._link.tell(link.EXIT, status)
            self._protect(self._source.retire, pid, now_s)

        for ended in target.reap_ended(before=retire):
            self._protect(self._source.ended, ended.pid, now_s, ended.status, ended.high_water_limit)
            if ended.pid == self._pid:
                self._status = ended.status

    def _listen(self) -> None:
        """Take what the starter says; when it is gone, its output is ours to pass on, or the recording is over."""
        if self._link.descriptor not in self._ready:
            return
        for message in self._link.messages():
            if link.SIGNAL in message:
                self._take_signal(message[link.SIGNAL], is_ours=False)
            if link.ANSWER in message:
                self._passing_on.answered()
            if link.RELEASE in message:
                self._takeover.release(message[link.RELEASE])
            if message.get(link.STOP):
                self._over = True
        if not self._link.is_open:
            self._takeover.begin()
            self._over |= self._order["beside"]

    def _take_signal(self, number: int, *, is_ours: bool) -> None:
        """Take a signal that arrived here or at the starter; end a recording that has no command of its own."""
        if number == signal.SIGCHLD:
            return
        if not (self._attached or self._status is not None or self._over):
            take = self._passing_on.take_ours if is_ours else self._passing_on.take_theirs
            take(number, time.monotonic())
        elif number in ENDING:
            self._over = True

    def _deliver(self, number: int) -> None:
        if self._status is None:
            with contextlib.suppress(OSError):  # it may have taken another user's identity
                os.kill(self._pid, number)

    def _spread(self, number: int) -> None:
        """Send the command what our group got, where it has left a group that would have been its own."""
        with contextlib.suppress(OSError):
            has_left = os.getpgid(self._pid) != os.getpgrp() and os.getsid(self._pid) == os.getsid(0)
            if self._starter_leads and has_left:
                self._deliver(number)

    def _is_ending(self) -> bool:
        """Return whether processes are being ended because they held too much; what is due is done."""
        if self._limit is None:
            return False
        self._protect(self._limit.enforce, self._loop.elapsed_s())
        return self._limit.is_ending and not self._failed

    def _has_descendants(self) -> bool:
        return not self._failed and not self._source.is_empty(self._loop.elapsed_s())

    def _has_exited(self) -> bool:
        return self._status is not None

    def _has_left(self) -> bool:
        """Return whether the process that we are attached to has ended."""
        if self._exit_watch and self._exit_watch[0] in self._ready:
            self._left = True
            os.close(self._exit_watch.pop())  # it stays readable, and would wake us for ever
        return self._left or not (self._exit_watch or target.is_running(self._pid))

    def _close(self) -> None:
        """Take the figures that belong to the whole of the recording, at its end."""
        self._loop.close()
        duration_s = self._loop.elapsed_s()
        totals = dict(zip(self._source.columns, self._source.totals(), strict=True))
        self._source.close(duration_s)
        self._figures = {
            "duration_s": round(duration_s, 6),
            "totals": {name: value for name, value in totals.items() if is_counter(name)},
        }

    def _finish(self) -> None:
        """Write the last lines."""
        self._thinner.flush()
        self._writer.flush()
        self._writer.warn_of_lost()
        sampler = {
            "cpu_s": round(time.process_time(), 6),
            "peak_rss": own_process.high_water_mark() or None,
            "interval_s": self._plan.interval_s,
            **self._loop.punctuality(self._writer.lost, self._writer.longest_lost_s),
            "exit_accounting": None if self._exits is None else "complete" if self._exits.complete else "incomplete",
            "rows": self._writer.rows - self._writer.lost,
        }
        end = {**(self._figures or {}), "exit": self._status, "sampler": sampler}
        _end(self._writer, self._link, end, beside=self._order["beside"])

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
            self._writer.line("warning", text)
            self._writer.flush()
            _tell_user(f"{text}; the command goes on")

    def _say(self, text: str) -> None:
        """Warn the user now, and the readers of the session."""
        self._writer.line("warning", text)
        _tell_user(text)


def _tell_user(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(_STANDARD_ERROR, f"nncf-tools: {text}\n".encode())


def _exit_accounting(plan: Plan) -> Exits | None:
    """Subscribe to the kernel's exit accounting; without the privilege, go on without."""
    if plan.source != "proc":
        return None
    from nncftools.sampler.exits import Exits

    try:
        return Exits()
    except (OSError, AttributeError):  # AttributeError: not on Linux
        return None


def _mark_watch(marks: str | None, sample: Callable[[], None]) -> MarkWatch | None:
    if marks is None:
        return None
    from nncftools.sampler.mark_watch import MarkWatch

    try:
        return MarkWatch(marks, sample)
    except (
        OSError,
        AttributeError,
    ):  # not on Linux, or too many watches: operations begin and end between samples
        return None


def _limit(plan: Plan, source: Source, say: Callable[[str], None]) -> Limit | None:
    if plan.limit is None:
        return None
    from nncftools.sampler.limit import Limit

    return Limit(plan.limit, source.alive, say)


def _source(plan: Plan, tell: Callable[[str, object], None], reaper: int | None, exits: Exits | None) -> Source:
    if plan.source == "proc":
        from nncftools.sampler.proc_source import ProcSource

        return ProcSource(plan, tell, reaper=reaper, exits=exits)
    from nncftools.sampler.psutil_source import PsutilSource

    return PsutilSource(plan, tell)
