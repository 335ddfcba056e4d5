"""The main program of the sampler, which receives the order for a recording, records, and writes the journal.

- ``Loop`` keeps the deadlines of the samples, and counts missed deadlines. There is no other loop in the sampler.
- ``Recording`` has the target, the source of the figures and the journal.
"""

from __future__ import annotations

import errno
import gc
import os
import signal
import time
from contextlib import suppress

from nncftools.journal.writing import Plan, Thinner, Writer
from nncftools.metrics import is_counter, is_memory
from nncftools.sampler import link, target
from nncftools.sampler.link import DeviceRelay, Link, MarkWatch, OutputRelay
from nncftools.sampler.target import ENDING, LimitGuard, SignalForwarder, Signals
from nncftools.sampler.tree import detach, find_size, open_exit_watch, read_small_file

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from nncftools.journal.reading import ExitStatus
    from nncftools.sampler.proc_source import ProcSource
    from nncftools.sampler.psutil_source import PsutilSource
    from nncftools.sampler.tree import WriteLine


NANOSECONDS = 1_000_000_000


class Loop:
    """Takes a sample at each deadline, and does other work between the deadlines.

    The method ``run`` gets two functions: ``tick`` takes a sample, and ``step`` does the other work. If ``step``
    returns False, the recording is over. The deadlines are the start plus 0, 1, 2, … intervals. If a deadline has
    passed while a sample was taken, the deadline counts as missed, and its sample is never taken.
    """

    sampling = True
    """Whether samples are still taken. False after the last deadline, and after an error."""
    _next = 0
    """The index of the next deadline, from 0."""
    missed = 0
    """The number of deadlines without a sample."""
    _longest_gap_ns = 0
    _first_ns = 0
    _latest_ns = 0

    def __init__(self, interval_s: float, duration_s: float | None) -> None:
        """Begin the recording now. ``interval_s`` is the time between two deadlines of samples.

        The last deadline is at most ``duration_s`` after now. If ``duration_s`` is None, there is no last deadline.
        """
        self.start_ns = time.monotonic_ns()
        self._interval_ns = max(1, round(interval_s * NANOSECONDS))
        self._last_deadline = None if duration_s is None else int(duration_s * NANOSECONDS) // self._interval_ns
        self._next_ns = self.start_ns

    def elapsed_s(self) -> float:
        """Return the seconds since the start."""
        return (time.monotonic_ns() - self.start_ns) / NANOSECONDS

    def close(self) -> None:
        """Count the missed deadlines since the last sample. A deadline that is due right now is not missed."""
        if not self.sampling:
            return
        now_ns = time.monotonic_ns()
        trailing = self._find_deadline(now_ns, beyond=1) - self._next
        if trailing > 0:
            self.missed += trailing
            self._next += trailing
            self._longest_gap_ns = max(self._longest_gap_ns, now_ns - (self._latest_ns or self.start_ns))

    def punctuality(self, lost: int = 0, longest_lost_s: float = 0.0) -> dict[str, float | None]:
        """Return how punctual the samples were, as fields of the journal's last line.

        The fields are the mean interval, the number of samples taken, the number of missed deadlines, and the longest
        gap between two samples. The parameter ``lost`` is the number of samples that could not be written; they count
        as missed. ``longest_lost_s`` is the time in seconds of the longest series of lost samples.
        """
        ticks = self._next - self.missed
        interval_s = None
        if ticks > 1:
            interval_s = round((self._latest_ns - self._first_ns) / (ticks - 1) / NANOSECONDS, 9)
        gap_s = self._longest_gap_ns / NANOSECONDS
        if lost:
            gap_s = max(gap_s, longest_lost_s + 2 * self._interval_ns / NANOSECONDS)
            lost = min(lost, ticks)  # the lost samples may include samples for marks, and these are not ticks
        return {
            "achieved_interval_s": interval_s,
            "taken": ticks - lost,
            "missed": self.missed + lost,
            "longest_gap_s": gap_s if ticks > 1 or gap_s else None,
        }

    def run(
        self, tick: Callable[[float], None], sleep: Callable[[float | None], bool], step: Callable[[], bool]
    ) -> None:
        """Call ``tick`` (take a sample) at each deadline, and ``sleep`` in between.

        ``step`` does other work. It is called first, and after each ``sleep`` that returns True. If ``step`` returns
        False, the loop ends.
        """
        clock_ns = time.monotonic_ns
        start_ns = self.start_ns
        has_news = True
        while not has_news or step():
            now_ns = clock_ns()
            if self.sampling and now_ns >= self._next_ns:
                self._note(now_ns)
                tick((now_ns - start_ns) / NANOSECONDS)
            if self.sampling:
                wait_ns = self._next_ns - clock_ns()
                has_news = sleep(wait_ns / NANOSECONDS if wait_ns > 0 else 0)
            elif not step():
                return
            else:
                has_news = sleep(None)

    def _find_deadline(self, now_ns: int, beyond: int = 0) -> int:
        """Return the index of the latest deadline that has passed.

        The result is at most the index of the last deadline of the recording, plus ``beyond``.
        """
        number = (now_ns - self.start_ns) // self._interval_ns
        return number if self._last_deadline is None else min(number, self._last_deadline + beyond)

    def _note(self, now_ns: int) -> None:
        """Count a sample, and plan the next sample for the first deadline that has not passed yet."""
        gap_ns = now_ns - self._latest_ns
        self._latest_ns = now_ns
        if self._next == 0:
            self._first_ns = now_ns
        elif gap_ns > self._longest_gap_ns:
            self._longest_gap_ns = gap_ns
        self._next += 1
        self._next_ns += self._interval_ns
        if now_ns >= self._next_ns:
            late = self._find_deadline(now_ns) + 1 - self._next
            self.missed += late
            self._next += late
            self._next_ns += late * self._interval_ns
        if self._last_deadline is not None and self._next > self._last_deadline:
            self.sampling = False


_TIMEX_BYTES = 256
_MAXERROR_AT = 24
"""The offset of ``maxerror`` in ``struct timex`` on 64-bit Linux (linux/timex.h), after modes, padding, offset and
freq.
"""
_UNSYNCHRONISED = 5


def describe_start(at_ns: int) -> dict[str, Any]:
    """Return the start of a recording: UTC time, CLOCK_MONOTONIC, and the greatest error of the UTC time in seconds.

    ``at_ns`` is the start on CLOCK_MONOTONIC, in nanoseconds.
    """
    seconds, rest = divmod(time.time_ns() - (time.monotonic_ns() - at_ns), NANOSECONDS)
    utc = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest // 1000:06d}Z"
    return {"utc": utc, "monotonic_ns": at_ns, "utc_error_s": _read_utc_error()}


def _read_utc_error() -> float | None:
    """Return the greatest error of the wall clock in seconds (adjtimex(2)). None if the clock is not synchronised."""
    with suppress(ImportError, OSError, AttributeError):
        import ctypes

        timex = ctypes.create_string_buffer(_TIMEX_BYTES)
        state = ctypes.CDLL(None).adjtimex(timex)
        if 0 <= state < _UNSYNCHRONISED:
            return ctypes.c_long.from_buffer(timex, _MAXERROR_AT).value / 1e6
    return None


_STANDARD_ERROR = 2
_URGENT = -10


def occupy_standard_descriptors() -> None:
    """Open the descriptors 0, 1 and 2 if they are closed, so that no file of ours gets these numbers.

    In the command, these descriptors are closed again.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STANDARD_ERROR:
        pass
    os.close(descriptor)


def set_descriptor_limit(soft: int | None = None) -> None:
    """Set the soft limit of open files, by default to the hard limit. Do nothing if the system refuses the limit."""
    import resource

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard if soft is None else soft, hard))


def warn(text: str) -> None:
    """Write a line to standard error. Ignore a failure."""
    with suppress(OSError):
        os.write(_STANDARD_ERROR, f"nncf-tools: {text}\n".encode())


NOT_FOUND = 127
NOT_EXECUTABLE = 126
_POLL_EVERY_S = 0.25
_FULL_DISK_PATIENCE_S = 2.0
"""If the disk is full, the sampler tries to write the last lines of a recording for this many seconds."""
_PAUSE_S = 0.05


def main(journal: int, incoming: int, outgoing: int) -> int:
    """Make the recording that the starter (the process that started the sampler) orders.

    Return the exit status of the command, or 0 without a command.
    """
    occupy_standard_descriptors()
    os.set_inheritable(journal, False)
    starter = Link(incoming, outgoing)
    order: link.Order = starter.order()
    if order["detached"]:
        detach()
    recording = Recording(order, Writer(journal, warn), starter)
    try:
        return recording.run()
    finally:
        recording.relay.finish()


class Recording:
    """A running recording: the target, the source of the figures and the journal."""

    _polls = False
    """Whether the loop must check from time to time if the attached process has ended, because no event reports the
    end.
    """
    _status: ExitStatus | None = None
    _figures: dict[str, object] | None = None
    _over = False
    _target_ended = False
    _failed = False
    _has_sampled = False
    _is_urgent = False
    _is_calm = False
    """Whether the loop may sleep until a deadline, a signal or a readable descriptor, because no other work can become
    due.
    """
    _marks: MarkWatch | None = None
    _limit: LimitGuard | None = None
    _devices: DeviceRelay | None = None

    def __init__(self, order: link.Order, writer: Writer, starter: Link) -> None:
        self._order = order
        self._plan = plan = Plan(**order["plan"])
        self._writer = writer
        self._signals = Signals(order["blocked"])
        self._starter = starter
        self.relay = OutputRelay(order["relays"])
        self._attached = plan.pid is not None or order["detached"]
        self._pid = plan.pid or 0
        self._handlers: dict[int, Callable[[], None]] = {}
        """Maps a descriptor to the function to call when the descriptor can be read."""
        self._handlers[starter.descriptor] = self._listen
        self._signals.ready = [starter.descriptor]  # the reader of the order may have read further messages, too
        self._forwarder = SignalForwarder(self._deliver, lambda: starter.send(link.ASK), self._deliver_outside_group)
        self._starter_leads = os.getpgrp() == os.getppid()
        reaper = os.getpid() if not self._attached and target.adopt_orphans() else None
        if order["marks"] is not None:
            with suppress(OSError, AttributeError):  # inotify allows no further watch, or the system is not Linux
                self._marks = MarkWatch(order["marks"], self._sample_for_mark)
                self._handlers[self._marks.descriptor] = self._marks.take
        self._open_source = prepare_source(plan, writer.line, reaper)
        self._source: ProcSource | PsutilSource
        if plan.limit is not None:
            self._limit = LimitGuard(plan.limit, self._list_alive, self._warn, writer.line)
        self._thinner = Thinner(plan.max_samples, writer.sample)
        self._loop = Loop(plan.interval_s, plan.duration_s)
        readings = order.get("devices")
        if readings is not None:
            self._devices = DeviceRelay(readings, writer.line, self._loop.start_ns)
            self._handlers[readings] = self._take_readings

    def run(self) -> int:
        """Record until the target ends. Return the exit status of the command, or 0 without a command."""
        if self._attached:
            self._exit_watch = open_exit_watch(self._pid)
            self._polls = self._exit_watch < 0
            if not self._polls:
                self._handlers[self._exit_watch] = self._note_end
        else:
            interrupted = [number for number in self._signals.take() if number in ENDING]
            if interrupted:
                self._write_end({"error": "interrupted before the command began"})
                return 128 + interrupted[0]
            try:
                self._spawn()
            except OSError as error:
                self._write_end({"error": f"cannot run {self._order['argv'][0]!r}: {os.strerror(error.errno or 0)}"})
                return NOT_FOUND if error.errno == errno.ENOENT else NOT_EXECUTABLE
        set_descriptor_limit()  # not earlier, because the command would inherit the limit
        start = {
            **describe_start(self._loop.start_ns),
            "pid": self._pid,
            "sampler_pid": os.getpid(),
        }
        self._protect(self._writer.line, "start", start)
        if not self._order["detached"]:  # a program that records itself expects the first sample as the first message
            self._starter.send(link.START, start)
        self._protect(self._begin)
        self._signals.watch(list(self._handlers))
        gc.disable()  # the sampler makes no reference cycles, and a garbage collection would delay a tick
        self._loop.run(self._sample, self._sleep, self._step)
        self._finish()
        return 0 if self._status is None else target.exit_code(self._status)

    def _begin(self) -> None:
        """Open the source of figures.

        If its columns differ from the planned columns, write its columns to the journal.
        """
        self._source = self._open_source(self._pid)
        columns = self._source.columns
        if columns != self._plan.columns:
            self._writer.line("columns", columns)
        self._thinner.gauges = [position for position, column in enumerate(columns) if is_memory(column)]
        self._writer.flush()

    def _list_alive(self, now_s: float) -> list[int]:
        return self._source.alive(now_s)

    def _spawn(self) -> None:
        """Start the command, and send the PID to the process that started the sampler, before anything can fail.

        Raises OSError.
        """
        if self._order["descriptors"] is not None:
            set_descriptor_limit(self._order["descriptors"])
        argv = [word.encode("latin-1") for word in self._order["argv"]]
        self._pid = target.spawn(argv, self._order["blocked"], self._order["ignored"])
        self._starter.send(link.STARTED, self._pid)

    def _sample_for_mark(self) -> None:
        if self._loop.sampling:
            self._sample(self._loop.elapsed_s(), for_mark=True)

    def _sample(self, now_s: float, *, for_mark: bool = False) -> None:
        """Take a sample. If the sample fails, the recording stops, and the command goes on."""
        if self._marks is not None and self._marks.is_due:
            for_mark = True
            self._marks.is_due = False
        try:
            values = self._source.sample(now_s, for_mark=for_mark)
            sizes = self._source.each() if self._plan.per_process else {}
            self._thinner.add((now_s, values, sizes))
            if self._limit is not None:
                self._limit.check(values[self._source.columns.index("rss")], now_s)
            if for_mark or self._writer.is_urgent:
                self._writer.flush()
        except Exception as error:  # noqa: BLE001 — no failure here may harm the measured command
            self._fail(error)
        if not (self._has_sampled or self._failed):
            self._has_sampled = True
            self._starter.send(link.SAMPLED)
        if self._loop.missed and not self._is_urgent:
            self._is_urgent = True
            with suppress(OSError):  # at normal priority, the sampler is late on a busy machine
                os.setpriority(os.PRIO_PROCESS, 0, _URGENT)

    def _unwatch(self, descriptor: int) -> None:
        """Stop watching a descriptor. A descriptor whose other end is closed would stay readable for ever."""
        del self._handlers[descriptor]
        self._signals.watch(list(self._handlers))

    def _sleep(self, timeout_s: float | None) -> bool:
        """Sleep until a deadline or other work is due, a signal arrives, or a descriptor can be read.

        Other work is the decision about a signal, SIGKILL after the memory limit was exceeded, or the next check
        whether the attached process still runs. Return whether there is work besides sampling.
        """
        if timeout_s is None or not self._is_calm:
            timeout_s = self._find_timeout(timeout_s)
        return self._signals.sleep(timeout_s) or not self._is_calm

    def _find_timeout(self, timeout_s: float | None) -> float | None:
        timeouts_s = [timeout_s, self._forwarder.remaining_s(time.monotonic())]
        if self._polls:
            timeouts_s.append(_POLL_EVERY_S)
        if self._limit is not None:
            timeouts_s.append(self._limit.remaining_s(self._loop.elapsed_s()))
        return min((seconds for seconds in timeouts_s if seconds is not None), default=None)

    def _step(self) -> bool:
        """Do all work between two ticks. Return whether the recording goes on."""
        now_s = time.monotonic()
        arrived = self._signals.take()  # after reading the clock, so that all signals before now_s are included
        for descriptor in self._signals.ready:
            if descriptor in self._handlers:
                self._handlers[descriptor]()
        if signal.SIGCHLD in arrived:
            self._reap()
        for number in arrived:
            self._take_signal(number, self._forwarder.note_ours)
        self._forwarder.settle(now_s, alone=not self._starter.is_open)
        waits = self._plan.wait_all and not self._attached
        if self._limit is not None:
            self._protect(self._limit.enforce, self._loop.elapsed_s())
            waits = waits or self._limit.is_ending
        if self._polls and not target.is_running(self._pid):
            self._target_ended = True
        ended = self._target_ended or (self._attached and not self._loop.sampling)
        waits = waits and ended and not self._failed
        if ended and not (waits and self._list_alive(self._loop.elapsed_s())):
            self._over = True
        if self._figures is None and (self._over or not self._loop.sampling):
            self._protect(self._close)
        polls = self._limit is not None or self._polls
        self._is_calm = not (polls or ended or self._over or self._forwarder.is_waiting)
        return not self._over

    def _reap(self) -> None:
        # A process that ends after --duration adds nothing to the recording.
        is_recording = self._figures is None and not self._failed
        for pid, status, high_water_limit in target.reap_ended():
            if pid == self._pid and not self._target_ended:
                self._starter.send(link.EXIT, status)
                self._target_ended = True
            if is_recording and high_water_limit is None:
                self._protect(self._source.retire, pid)
            elif is_recording:
                facts = (pid, self._loop.elapsed_s(), status, high_water_limit)
                self._protect(self._source.ended, *facts)
            if pid == self._pid and high_water_limit is not None:
                self._status = status

    def _listen(self) -> None:
        """Read the messages of the starter (the process that started the sampler).

        If the starter is gone, relay the output. End the recording if the order says so.
        """
        for message in self._starter.messages():
            if link.SIGNAL in message:
                self._take_signal(message[link.SIGNAL], self._forwarder.note_theirs)
            if link.ANSWER in message:
                self._forwarder.take_answer()
            if link.RELEASE in message:
                self.relay.release(message[link.RELEASE])
            if link.STOP in message:
                self._over = True
        if not self._starter.is_open:
            self._unwatch(self._starter.descriptor)
            self.relay.begin()
            self._over |= self._order["ends_with_starter"]

    def _take_signal(self, number: int, note: Callable[[int, float], None]) -> None:
        """Call ``note`` with a signal while a command runs. If no command runs, the signal may end the recording."""
        if number == signal.SIGCHLD:
            return
        if not (self._attached or self._status is not None or self._over):
            note(number, time.monotonic())
        elif number in ENDING:
            self._over = True

    def _deliver(self, number: int) -> None:
        if self._status is None:
            target.send_signal([self._pid], number)

    def _deliver_outside_group(self, number: int) -> None:
        """Forward a signal of our process group to the command, if the command has moved to another process group.

        Without nncf-tools, the command would lead our group and would get the signal.
        """
        with suppress(OSError):
            has_left = os.getpgid(self._pid) != os.getpgrp()
            if self._starter_leads and has_left and os.getsid(self._pid) == os.getsid(0):
                self._deliver(number)

    def _note_end(self) -> None:
        self._target_ended = True
        self._unwatch(self._exit_watch)

    def _take_readings(self) -> None:
        assert self._devices is not None
        self._protect(self._devices.take, self._loop.elapsed_s())
        self._thinner.devices = len(self._devices.columns)
        if self._failed or not self._devices.is_open:
            self._unwatch(self._devices.descriptor)

    def _close(self) -> None:
        """Read the final figures at the end of the recording: the duration, and the totals of the counters."""
        self._loop.close()
        duration_s = self._loop.elapsed_s()
        totals = zip(self._source.columns, self._source.close(duration_s), strict=True)
        if self._devices is not None:
            self._devices.finish(duration_s)
        self._writer.flush()
        self._figures = {
            "duration_s": round(duration_s, 6),
            "totals": {name: value for name, value in totals if is_counter(name)},
        }

    def _finish(self) -> None:
        self._thinner.flush()
        self._writer.flush()
        self._writer.warn_of_lost()
        # VmHWM, because ru_maxrss includes the starter's size at the fork, even after exec (getrusage(2))
        sampler = {
            "cpu_s": round(time.process_time(), 6),
            "peak_rss": find_size(read_small_file("/proc/self/status"), b"\nVmHWM:"),
            "interval_s": self._plan.interval_s,
            **self._loop.punctuality(self._writer.lost, self._writer.longest_lost_s),
            "rows": self._writer.rows - self._writer.lost,
        }
        end = {**(self._figures or {}), "exit": self._status}
        self._write_end({**end, "sampler": sampler})

    def _write_end(self, end: dict[str, object]) -> None:
        """Write the journal's last line, and send this line to the process that started the sampler.

        If the disk is full, also send the lines that could not be written.
        """
        self._writer.line("end", end)
        until_s = time.monotonic() + _FULL_DISK_PATIENCE_S
        while not self._writer.flush() and time.monotonic() < until_s:
            time.sleep(_PAUSE_S)
        # A program that records itself reads only the journal.
        if self._writer.unwritten and not self._order["detached"]:
            end = {**end, "unwritten": self._writer.unwritten}
        self._starter.send(link.END, end)

    def _protect(self, work: Callable[..., object], *arguments: object) -> None:
        """Call ``work``, a part of the recording. If the call fails, the recording stops, and the command goes on."""
        if self._failed:
            return
        try:
            work(*arguments)
        except Exception as error:  # noqa: BLE001 — no failure here may harm the measured command
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._failed = True
        self._loop.sampling = False
        text = f"the recording stopped early: {error}"
        self._writer.line("warning", text)
        self._writer.flush()
        warn(f"{text}; the command goes on")

    def _warn(self, text: str) -> None:
        """Write a warning to standard error and to the journal."""
        self._writer.line("warning", text)
        warn(text)


def prepare_source(
    plan: Plan, write_line: WriteLine, reaper: int | None
) -> Callable[[int], ProcSource] | Callable[[int], PsutilSource]:
    """Import the class that reads the process tree, ``ProcSource`` or ``PsutilSource``, as ``plan.source`` says.

    Return a function that gets the PID of the command, and makes an object of this class. The import happens before the
    command starts. The function is called after the start. ``plan`` has the settings of the recording.
    """
    if plan.source != "proc":
        from nncftools.sampler.psutil_source import PsutilSource

        return lambda pid: PsutilSource(plan, pid, write_line)
    from nncftools.sampler.probes import list_references, load_probe
    from nncftools.sampler.proc_source import ProcSource

    probes = [load_probe(reference) for reference in list_references(plan.columns)]
    begun_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    return lambda pid: ProcSource(plan, pid, probes, write_line, reaper=reaper, begun_s=begun_s)
