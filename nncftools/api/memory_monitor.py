"""``MemoryMonitor`` and ``memory_monitor_context``: memory of this program over time, or now."""

from __future__ import annotations

import atexit
import contextlib
import os
import pathlib
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from queue import Queue
from typing import TYPE_CHECKING

from nncftools import metrics
from nncftools.analysis.session import Session as Recorded
from nncftools.api.recorder import SHORTEST_S, Recorder, check_interval
from nncftools.backports import StrEnum
from nncftools.metrics import MEMORY, OF_DEVICES
from nncftools.session import launcher
from nncftools.units import MemoryUnit

if TYPE_CHECKING:
    import psutil
    from _typeshed import StrPath
    from typing_extensions import Self

    from nncftools.api.recorder import Session


class MemoryType(StrEnum):
    """A type of memory; the value is the name of the metric. ``nncf-tools metrics`` explains each metric.

    NNCF's monitor has only RSS and SYSTEM. Here, every other memory metric is a member, too, such as
    ``MemoryType.PSS``. Only memory of devices (GPUs) has no member, because a recording has a separate column for each
    device.
    """

    RSS = "rss"
    SYSTEM = "system"
    _ignore_ = ["name"]  # noqa: RUF012 — keeps the loop variable out of the members
    for name in MEMORY:
        if name.upper() not in vars() and name not in OF_DEVICES:
            vars()[name.upper()] = name

    def __str__(self) -> str:
        """Return a text like ``MemoryType.RSS``, as NNCF's type does."""
        return f"{type(self).__name__}.{self.name}"

    def __format__(self, specification: str) -> str:
        """Return the same text as ``str`` in every version of Python."""
        return format(str(self), specification)


def memory_now(process: psutil.Process, *, children: bool) -> tuple[int, int]:
    """Return RSS and VMS in bytes, with all descendants if ``children`` is true. An ended process counts as 0."""
    import psutil

    family = [process]
    with contextlib.suppress(psutil.Error):
        family += process.children(recursive=True) if children else []
    rss = vms = 0
    for member in family:
        with contextlib.suppress(psutil.Error):
            memory = member.memory_info()
            rss += memory.rss
            vms += memory.vms
    return rss, vms


_INTERVAL_S = 0.1


class MemoryMonitor:
    """Record one type of memory of this program. A separate process takes the samples: no native call delays a sample.

    Use ``start`` and ``stop``, or a ``with`` block. Several monitors may run at once. No figure includes the memory of
    the processes that take the samples. ``memory_unit`` may be set at any time. ``interval``, ``memory_type`` and
    ``include_child_processes`` may be set for the next start.
    """

    def __init__(
        self,
        interval: float | None = _INTERVAL_S,
        memory_type: MemoryType = MemoryType.RSS,
        memory_unit: MemoryUnit | None = MemoryUnit.MiB,
        include_child_processes: bool | None = None,  # noqa: FBT001 — the signature that users of NNCF's monitor know
    ) -> None:
        """Prepare to sample every ``interval`` seconds.

        If ``include_child_processes`` is False, descendants do not count.

        SYSTEM and CGROUP always cover the whole machine or control group. An argument of None means the default. Raises
        ValueError if the type or the unit is unknown, if the interval is not a number, or if the interval is longer
        than a year.
        """
        self.interval = interval
        self.memory_type = memory_type
        self.memory_unit = memory_unit
        self.include_child_processes = include_child_processes
        """Whether descendants count; None for memory of the machine or the control group."""
        metric = metrics.of(self.memory_type.value)
        if include_child_processes is None and metric is not None and metric.scope == metrics.TREE:
            self.include_child_processes = True
        self.timestamp = int(time.time())
        """Unix time in whole seconds when the recording started; before the first recording, when the monitor was made.
        """
        self._recorder: Recorder | None = None
        self._recorded_type = self.memory_type
        self._replaced: Queue[tuple[float, int]] | None = None
        self._at_exit: tuple[int, Callable[[], object]] | None = None

    @property
    def interval(self) -> float:
        """Seconds between samples. A value below 1 ms means 1 ms."""
        return self._interval

    @interval.setter
    def interval(self, seconds: float | None) -> None:
        self._interval = _INTERVAL_S if seconds is None else seconds
        check_interval(max(self._interval, SHORTEST_S))

    @property
    def memory_type(self) -> MemoryType:
        """The recorded type of memory. Names of files contain the type."""
        return self._memory_type

    @memory_type.setter
    def memory_type(self, memory_type: MemoryType | str) -> None:
        self._memory_type = MemoryType(memory_type)

    @property
    def memory_unit(self) -> MemoryUnit:
        """The unit of values in data and logs."""
        return self._memory_unit

    @memory_unit.setter
    def memory_unit(self, unit: MemoryUnit | str | None) -> None:
        self._memory_unit = MemoryUnit.MiB if unit is None else MemoryUnit(unit)

    def start(self, at_exit_fn: Callable[[], object] | None = None) -> Self:
        """Start to record. Return after the first sample, which is the baseline.

        If the interpreter exits before ``stop``, the recordings of all monitors end first; then ``at_exit_fn`` is
        called. Several such functions are called in reverse order, as ``atexit`` does. Raises RuntimeError if the
        monitor is already running, NncfToolsError if nothing can be recorded.
        """
        _start([self])
        atexit.unregister(self._finish)  # a forked child has inherited the parent's function
        if at_exit_fn is not None:
            self._at_exit = os.getpid(), at_exit_fn
            atexit.register(self._finish)
        return self

    @property
    def is_running(self) -> bool:
        """Whether this process is recording."""
        return self._recorder is not None and self._recorder.is_running

    def take_from(self, recorder: Recorder) -> None:
        """Take samples from ``recorder``, which is recording this monitor's type of memory."""
        self._recorder = recorder
        _running[self] = recorder
        self._recorded_type = self.memory_type
        self._replaced = None
        self.timestamp = int(time.time())

    def stop(self) -> None:
        """End the recording. Do nothing if no recording is running."""
        if self._recorder is not None:
            self._recorder.stop()
        _running.pop(self, None)
        atexit.unregister(self._finish)
        self._at_exit = None

    def _finish(self) -> None:
        """Call ``at_exit_fn``, but not in a forked child: the recording belongs to the parent."""
        if self._at_exit is not None and self._at_exit[0] == os.getpid():
            _end_all()
            self._at_exit[1]()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def session(self) -> Session | None:
        """The recording so far; None if no recording was started."""
        return None if self._recorder is None else self._recorder.session

    @property
    def measurements(self) -> list[tuple[float, int]]:
        """The samples so far: ``(seconds since the first sample, bytes)``. Samples with unknown memory are left out."""
        from nncftools.render.samples import known_rows

        if self._replaced is not None:
            return list(self._replaced.queue)
        session = self.session  # reads the journal of a running recording
        if session is None:
            return []
        times, values = known_rows(session, self._recorded_type.value, MemoryUnit.B, from_zero=False)
        return list(zip(times, map(int, values), strict=True))

    @property
    def _memory_values_queue(self) -> Queue[tuple[float, int]]:
        """The ``measurements`` as a queue. llm_bench reads this attribute, and NNCF's tests replace the queue."""
        values: Queue[tuple[float, int]] = Queue()
        values.queue.extend(self.measurements)
        return values

    @_memory_values_queue.setter
    def _memory_values_queue(self, values: Queue[tuple[float, int]]) -> None:
        self._replaced = values

    def get_data(self, memory_from_zero: bool = False) -> tuple[list[float], list[float]]:  # noqa: FBT001, FBT002 — the signature that users know
        """Return two lists: seconds since the first sample, and memory in the monitor's unit.

        The monitor may be running.

        Both lists are empty if nothing was recorded. Samples with unknown memory are left out. If ``memory_from_zero``
        is true, the first value is subtracted from all values.
        """
        measured = self.measurements
        times = [time_s - measured[0][0] for time_s, _ in measured]
        zero = measured[0][1] if measured and memory_from_zero else 0
        values = [self.memory_unit.of(size - zero) for _, size in measured]
        return times, values

    @staticmethod
    def get_rss_memory(include_child_processes: bool = True) -> int:  # noqa: FBT001, FBT002 — the signature that users of llm_bench know
        """Return the current RSS of this process in bytes, with all descendants unless they are excluded."""
        import psutil

        return memory_now(psutil.Process(), children=include_child_processes)[0]

    @staticmethod
    def get_system_memory() -> int:
        """Return how many bytes of the machine's memory are not available now. SYSTEM records the same figure."""
        import psutil

        memory = psutil.virtual_memory()
        return int(memory.total - memory.available)

    def save_memory_logs(
        self,
        time_values: Sequence[float],
        memory_values: Sequence[float],
        save_dir: StrPath,
        plot_title: str | None = "",
        filename_suffix: str | None = "",
    ) -> None:
        """Write ``{type}_memory_usage{suffix}.txt`` and ``.png`` to the folder ``save_dir``.

        A missing folder is made. In a job, the rank comes before the suffix: ``rss_memory_usage-rank0_from-zero.txt``.

        The text has a row ``time value`` per sample, then ``Total time`` in seconds and ``Max memory`` in the monitor's
        unit. If ``time_values`` and ``memory_values`` have different lengths, the rest of the longer list is ignored.
        If there is no data, the text says so, and no picture is drawn. Raises OSError.
        """
        from nncftools.render import samples
        from nncftools.render.view import log_stem

        folder = pathlib.Path(save_dir)
        folder.mkdir(parents=True, exist_ok=True)
        number = min(len(time_values), len(memory_values))
        times = time_values[:number]
        values = memory_values[:number]
        rank = launcher.make_suffix(os.environ)
        stem = f"{log_stem(self._type, from_zero=False, rank=rank)}{filename_suffix or ''}"
        samples.write_rows(times, values, self.memory_unit, folder / f"{stem}.txt")
        if number:
            session = _make_session(self._type, self.memory_unit, times, values)
            self._draw(session, folder / f"{stem}.png", plot_title)

    def save_memory_plot(
        self, log_filepath: StrPath, plot_title: str | None = "", filename_suffix: str | None = ""
    ) -> None:
        """Draw a log that ``save_memory_logs`` wrote. The picture is ``{name of the log}{suffix}.png``, beside the log.

        Unreadable lines are skipped. Raises NncfToolsError if the file is not a memory log, and OSError, such as
        FileNotFoundError.
        """
        from nncftools.importers.logs import Nncf
        from nncftools.importers.source import Source

        log = pathlib.Path(log_filepath)
        log.stat()
        picture = log.with_name(f"{log.name.removesuffix('.txt')}{filename_suffix or ''}.png")
        with Source(log) as source:
            self._draw(Nncf(source, self._type, self.memory_unit).read(), picture, plot_title)

    @property
    def _type(self) -> str:
        return str(self.memory_type.value)

    def _draw(self, session: Recorded, picture: pathlib.Path, title: str | None) -> None:
        from nncftools.render import plot
        from nncftools.render.view import View, label

        view = View([self._type], self.memory_unit, title=title or label(self._type))
        plot.draw(session, view, picture)


_running: dict[MemoryMonitor, Recorder] = {}
_starting = threading.Lock()


@atexit.register
def _end_all() -> None:
    """At exit, end all recordings before any function draws a picture, because drawing takes memory."""
    for recorder in _running.values():
        try:
            recorder.stop()
        except Exception as error:  # noqa: BLE001 — at exit, Python would print a traceback and go on
            sys.stderr.write(f"nncf-tools: error: a recording is lost: {error}\n")
    _running.clear()


def _start(monitors: Iterable[MemoryMonitor]) -> None:
    """Start monitors. Monitors with the same interval and the same processes share a sampler.

    If a monitor cannot start, all others are stopped. Raises RuntimeError if a monitor is already running.
    """
    groups: dict[tuple[float, bool], list[MemoryMonitor]] = {}
    for monitor in monitors:
        key = max(monitor.interval, SHORTEST_S), monitor.include_child_processes is not False
        groups.setdefault(key, []).append(monitor)
    started = []
    with _starting:
        if any(monitor.is_running for monitor in chain.from_iterable(groups.values())):
            raise RuntimeError("the monitor is already running; stop it first, or use another monitor")
        try:
            for (interval_s, children), group in groups.items():
                recorder = Recorder([monitor.memory_type.value for monitor in group], interval_s, children=children)
                recorder.start()
                for monitor in group:
                    monitor.take_from(recorder)
                    started.append(monitor)
        except BaseException:
            for monitor in started:
                monitor.stop()
            raise


_Data = float | tuple[list[float], list[float]]


class memory_monitor_context(Mapping["MemoryType", _Data]):  # noqa: N801 — the name that users of NNCF know
    """Record RSS and SYSTEM during a ``with`` block, with a single sampler. A context can be used again.

    When the block ends, also by an exception, ``memory_data`` is filled. It has, for each ``MemoryType``, the largest
    rise above the first sample, in ``memory_unit``. If ``return_max_value`` is false, it has a pair of lists for each
    ``MemoryType``: seconds, and values above the first sample. The context is also a mapping, equal to ``memory_data``.
    """

    def __init__(
        self,
        interval: float | None = _INTERVAL_S,
        memory_unit: MemoryUnit | None = MemoryUnit.MiB,
        return_max_value: bool = True,  # noqa: FBT001, FBT002 — the signature that users of NNCF's monitor know
        save_dir: StrPath | None = None,
    ) -> None:
        """Prepare to sample RSS and SYSTEM every ``interval`` seconds.

        If ``save_dir`` is given, this folder gets four logs and four pictures: for RSS and for SYSTEM, one of the
        memory, and one of the memory minus the memory at the first sample. Raises ValueError if the unit is unknown, if
        the interval is not a number, or if the interval is longer than a year.
        """
        types = MemoryType.RSS, MemoryType.SYSTEM
        self.memory_monitors = {each: MemoryMonitor(interval, each, memory_unit) for each in types}
        self.return_max_value = return_max_value
        self.save_dir = save_dir
        self.memory_data: dict[MemoryType, _Data] = {}

    def __enter__(self) -> Self:
        """Start to record, and return after the first sample. Raises NncfToolsError if nothing can be recorded."""
        _start(self.memory_monitors.values())
        return self

    def __exit__(self, *_: object) -> None:
        for monitor in self.memory_monitors.values():
            monitor.stop()
        for memory_type, monitor in self.memory_monitors.items():
            times, values = monitor.get_data(memory_from_zero=True)
            self.memory_data[memory_type] = max(values, default=0.0) if self.return_max_value else (times, values)
            if self.save_dir:
                from nncftools.render.view import FROM_ZERO

                monitor.save_memory_logs(*monitor.get_data(), self.save_dir)
                monitor.save_memory_logs(times, values, self.save_dir, filename_suffix=FROM_ZERO)

    def __getitem__(self, memory_type: MemoryType) -> _Data:
        return self.memory_data[memory_type]

    def __iter__(self) -> Iterator[MemoryType]:
        return iter(self.memory_data)

    def __len__(self) -> int:
        return len(self.memory_data)

    def __bool__(self) -> bool:
        """Return True, even while the mapping is empty."""
        return True

    __hash__ = object.__hash__


def _make_session(metric: str, unit: MemoryUnit, time_s: Sequence[float], values: Sequence[float]) -> Recorded:
    """Return a session with only these samples.

    Values may be negative, because they may be relative to the first sample.
    """
    from nncftools.session.model import Host, SamplerFacts, SessionData, Start
    from nncftools.session.samples import TIME, Samples

    sizes = array("d", (value * unit.factor for value in values))
    span_s = time_s[-1] - time_s[0]
    interval_s = span_s / max(1, len(time_s) - 1)
    data = SessionData(
        start=Start(),
        duration_s=time_s[-1],
        host=Host(),
        sampler=SamplerFacts(achieved_interval_s=interval_s),
        samples=Samples({TIME: array("d", time_s), metric: sizes}, may_fall_below_zero=True),
    )
    return Recorded.of(data)
