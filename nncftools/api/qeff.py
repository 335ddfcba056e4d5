"""``QEffMemoryProfiler`` has the interface of QEfficient's memory profiler, and records with nncf-tools.

``MetricsCollector`` measures this process each time a method is called, like QEfficient's class.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import os
import pathlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import psutil

from nncftools.analysis.operation import Operation
from nncftools.api.memory_monitor import memory_now
from nncftools.api.qeff_recorded import BEFORE_ALL, COMPLETION, MB, ProfileSample, Recorded, local, report
from nncftools.api.recorder import SHORTEST_S, Profiler, Session
from nncftools.errors import NncfToolsError, __version__
from nncftools.marks.operations import SOURCE
from nncftools.render.listing import FILLS, REST
from nncftools.session.model import Mark
from nncftools.session.nesting import KINDS


@dataclass
class ProfilerConfig:
    """The settings of a ``QEffMemoryProfiler``. A new interval or choice of processes applies from the next start."""

    sampling_interval: float = 0.2
    """Seconds between samples."""
    output_file: str | None = None
    """The path of the picture if no other path is given."""
    verbose: bool = False
    """Whether to log start, marks, stop and picture with the logger ``QEfficient``, as QEfficient does."""
    enable_cpu_monitoring: bool = True
    enable_disk_monitoring: bool = True
    track_child_processes: bool = True
    child_scan_interval: float = 1.0
    """No effect: each sample finds all processes. QEfficient's profiler uses this setting."""


class MetricsCollector:
    """Measures this process. Each method returns the values at the time of the call.

    Memory includes all descendants, unless ``config`` excludes them. An MB is 2^20 bytes. An unknown value is 0.0. The
    samples of a profiler come from the recording, not from this class.
    """

    def __init__(self, config: ProfilerConfig) -> None:
        """Measure memory, and the CPU usage and disk I/O if ``config`` enables them."""
        self.config = config
        self.process = psutil.Process()
        self._last: tuple[float, float, float] | None = None
        """``(time in seconds, MB read, MB written)`` at the previous call; None before the first call."""

    def initialize_cpu_monitoring(self) -> None:
        """Start to measure CPU usage. The first CPU figure covers the time since this call."""
        self.get_cpu_usage()

    def get_memory_usage(self) -> tuple[float, float]:
        """Return RSS and VMS in MB, with all descendants unless ``config`` excludes them."""
        rss, vms = memory_now(self.process, children=self.config.track_child_processes)
        return MB.of(rss), MB.of(vms)

    def get_cpu_usage(self) -> float:
        """Return the CPU usage since the previous call, in percent of all cores; 0.0 at the first call."""
        if not self.config.enable_cpu_monitoring:
            return 0.0
        try:
            percent = self.process.cpu_percent()  # of one core
        except psutil.Error:
            return 0.0
        return min(100.0, percent / (os.cpu_count() or 1))

    def get_disk_io_stats(self) -> tuple[float, float, float, float]:
        """Return MB read, MB written, MB/s read and MB/s written.

        The first two figures count since the process began. The rates are averages since the previous call; 0.0 at the
        first call. The figures include the I/O of all system calls, also from the page cache and pipes. On systems
        without such counters, they include only I/O with storage.
        """
        if not self.config.enable_disk_monitoring:
            return 0.0, 0.0, 0.0, 0.0
        try:
            counters = self.process.io_counters()
        except (psutil.Error, AttributeError):  # macOS does not count the I/O of a process
            return 0.0, 0.0, 0.0, 0.0
        read = MB.of(getattr(counters, "read_chars", counters.read_bytes))
        written = MB.of(getattr(counters, "write_chars", counters.write_bytes))
        now_s = time.monotonic()
        before_s, read_before, written_before = self._last or (now_s, read, written)
        self._last = now_s, read, written
        passed_s = now_s - before_s
        if passed_s <= 0:
            return read, written, 0.0, 0.0
        return read, written, (read - read_before) / passed_s, (written - written_before) / passed_s

    def collect_sample(self) -> ProfileSample:
        """Return a sample: the current local time, memory, CPU usage and disk I/O, each from its method."""
        now = local(time.time())
        return ProfileSample(now, *self.get_memory_usage(), self.get_cpu_usage(), *self.get_disk_io_stats())


_INTERVAL_S = 0.05
DEFAULT_PICTURE = "qeff_memory_profile.png"
_FIELDS = {
    "rss_memory": "rss_mb",
    "vms_memory": "vms_mb",
    "cpu_usage": "cpu_percent",
    "disk_read_bytes": "disk_read_mb",
    "disk_write_bytes": "disk_write_mb",
    "disk_read_rate": "disk_read_rate",
    "disk_write_rate": "disk_write_rate",
}
"""``{key of get_synchronized_data: field of ProfileSample}``."""


class _Values:
    """A descriptor for attributes of a profiler: returns a list with the value of one field in each sample."""

    def __set_name__(self, _: type[QEffMemoryProfiler], name: str) -> None:
        self._field = _FIELDS.get(name, name)

    def __get__(self, figures: QEffMemoryProfiler, _: type[QEffMemoryProfiler]) -> list[float]:
        return [getattr(sample, self._field) for sample in figures.samples]


def _local_time(t_ns: int) -> dt.datetime:
    return local(time.time() - (time.monotonic_ns() - t_ns) / 1e9)


__all__ = ["MetricsCollector", "ProfileSample", "ProfilerConfig", "QEffMemoryProfiler", "QEffMemoryVisualizer"]
__all__ += ["__version__"]

_COLOURS = {kind: fill.colour for kind, fill in zip(KINDS, FILLS, strict=False)}
_UNNAMED = "(unnamed)"
_VECTOR_FORMATS = ("svg", "pdf")
_logger = logging.getLogger("QEfficient")


class QEffMemoryProfiler:
    """Record memory, CPU and disk I/O of this program and all descendants, and the operations that the program marks.

    The interface is the same as in QEfficient's profiler, but figures differ. Native code never delays a sample. If a
    name is marked twice, there are two operations. The cost of an operation comes from the samples at the start and at
    the end. The I/O of child processes counts, even after they have ended.

    Sizes are MB of 2^20 bytes, and times are local times without a time zone. An unknown figure is 0.0. Figures may be
    read at any time, also during a recording. After a second start, new samples are appended to the earlier samples.
    """

    SEGMENT_COLORS: ClassVar[Mapping[str, str]] = {
        BEFORE_ALL: REST.colour,
        "Model Loading": _COLOURS["Model Loading"],
        "Export": _COLOURS["Export"],
        "Model Export": _COLOURS["Export"],
        "Compilation": _COLOURS["Compilation"],
        "Model Compilation": _COLOURS["Compilation"],
        "Generation": _COLOURS["Generation"],
        "Text Generation": _COLOURS["Generation"],
        "Cleanup": _COLOURS["Cleanup"],
        COMPLETION: REST.colour,
    }
    """The colours of common operations as ``#rrggbb``."""

    def __init__(  # noqa: PLR0913, PLR0917 — the signature that users of QEfficient's profiler know
        self,
        sampling_interval: float | None = _INTERVAL_S,
        output_file: str | None = None,
        verbose: bool = False,  # noqa: FBT001, FBT002 — the same
        enable_cpu_monitoring: bool = True,  # noqa: FBT001, FBT002 — the same
        enable_disk_monitoring: bool = True,  # noqa: FBT001, FBT002 — the same
        track_child_processes: bool = True,  # noqa: FBT001, FBT002 — the same
        child_scan_interval: float = 1.0,
    ) -> None:
        """Prepare to sample every ``sampling_interval`` seconds; None means the default.

        ``output_file`` is the path of the picture, by default ``qeff_memory_profile.png``. If ``verbose`` is true,
        start, marks, stop and picture are logged. Metrics that are not enabled are 0.0. ``child_scan_interval`` has no
        effect: each sample finds all processes.
        """
        self.config = ProfilerConfig(
            sampling_interval=_INTERVAL_S if sampling_interval is None else sampling_interval,
            output_file=output_file or DEFAULT_PICTURE,
            verbose=verbose,
            enable_cpu_monitoring=enable_cpu_monitoring,
            enable_disk_monitoring=enable_disk_monitoring,
            track_child_processes=track_child_processes,
            child_scan_interval=child_scan_interval,
        )
        self.metrics_collector = MetricsCollector(self.config)
        self._created_ns = time.monotonic_ns()
        self._profiler: Profiler | None = None
        self._ended: list[Session] = []
        self._outside: list[tuple[int, str]] = []
        """Marks made while no recording was running: ``(CLOCK_MONOTONIC in nanoseconds, name)``."""
        self._cached: Recorded | None = None
        """All recordings as one session; None if a new recording or mark must still be added."""

    @property
    def monitoring(self) -> bool:
        """Whether a recording is running."""
        return self._profiler is not None and self._profiler.is_running

    @property
    def sampling_interval(self) -> float:
        """Seconds between samples, as set in ``config``."""
        return self.config.sampling_interval

    @property
    def output_file(self) -> str:
        """The path of the picture, as set in ``config``.

        ``generate_memory_graph`` uses this path if it gets no other path.
        """
        return self.config.output_file or DEFAULT_PICTURE

    @property
    def verbose(self) -> bool:
        """Whether start, marks, stop and picture are logged, as set in ``config``."""
        return self.config.verbose

    @property
    def session(self) -> Session:
        """The last recording, or the running recording so far. Raises NncfToolsError if no recording was started."""
        if self._profiler is None:
            raise NncfToolsError("nothing was recorded: start the profiler first")
        return self._profiler.session

    @property
    def samples(self) -> list[ProfileSample]:
        """The samples of all recordings."""
        return [] if (recorded := self._recorded()) is None else list(recorded.samples)

    @property
    def timestamps(self) -> list[dt.datetime]:
        """The local time of each sample."""
        return [sample.timestamp for sample in self.samples]

    rss_memory = _Values()
    """RSS of each sample in MB."""
    vms_memory = _Values()
    """Virtual size of each sample in MB."""
    cpu_usage = _Values()
    """CPU usage at each sample, over the last 0.2 s, in percent of all cores (0 to 100)."""
    disk_read_bytes = _Values()
    """MB (not bytes) that system calls have read since the first recording began, for each sample. Reads from the page
    cache and from pipes count.
    """
    disk_write_bytes = _Values()
    """MB (not bytes) that system calls have written since the first recording began, for each sample."""
    disk_read_rate = _Values()
    """MB/s read by system calls since the previous sample, for each sample."""
    disk_write_rate = _Values()
    """MB/s written by system calls since the previous sample, for each sample."""
    storage_read_mb = _Values()
    """MB read from storage since the first recording began, for each sample."""
    storage_write_mb = _Values()
    """MB written to storage since the first recording began, for each sample."""

    def get_synchronized_data(self) -> dict[str, list[float]]:
        """Return a dict of lists with a value per sample; an empty dict if nothing was recorded.

        ``timestamps`` has seconds since the first sample. Each other key, such as ``rss_memory``, is the name of a
        property of this class, and has the values of the property.
        """
        recorded = self._recorded()
        if recorded is None:
            return {}
        values = {"timestamps": list(recorded.seconds)}
        for name in _FIELDS:
            values[name] = getattr(self, name)
        return values

    @property
    def peak_rss(self) -> float:
        """The RSS peak in MB, from the samples and the kernel's high-water marks. The real peak may be higher."""
        return self._peak("rss")[0]

    @property
    def peak_vms(self) -> float:
        """The largest sample of the virtual size in MB."""
        return self._peak("vms")[0]

    @property
    def peak_rss_time(self) -> dt.datetime | None:
        """The local time by which RSS had reached the peak; None if unknown."""
        return self._peak("rss")[1]

    @property
    def peak_vms_time(self) -> dt.datetime | None:
        """The local time of the largest sample of the virtual size; None if unknown."""
        return self._peak("vms")[1]

    @property
    def peak_operation(self) -> str | None:
        """The operation at the RSS peak; ``Initialization`` if the peak was before any mark, None without a sample."""
        return None if (recorded := self._recorded()) is None else recorded.peak_operation

    @property
    def operations(self) -> list[tuple[dt.datetime, str]]:
        """``(local time, name)`` of all marks in order, also of marks made while no recording was running."""
        recorded = self._recorded()
        if recorded is None:
            return [(_local_time(t_ns), name) for t_ns, name in self._outside]
        return [(recorded.local(mark.start_s), mark.name) for mark in recorded.session.marks]

    @property
    def current_operation(self) -> str:
        """The name of the last mark; ``Initialization`` before any mark."""
        marks = self.operations
        return marks[-1][1] if marks else BEFORE_ALL

    @property
    def operation_start_time(self) -> dt.datetime:
        """The local time of the last mark; before any mark, the time when the profiler was made."""
        marks = self.operations
        return marks[-1][0] if marks else _local_time(self._created_ns)

    @property
    def operation_durations(self) -> dict[str, float]:
        """Duration of each operation in seconds, by name. If a name was marked twice, the last operation counts."""
        return {operation.name: operation.duration_s for operation in self._measured()}

    @property
    def operation_memory_deltas(self) -> dict[str, float]:
        """Growth of RSS in each operation in MB, by name. If a name was marked twice, the last operation counts."""
        measured = ((operation.name, operation.delta) for operation in self._measured())
        return {name: MB.of(delta) for name, delta in measured if delta is not None}

    def _peak(self, metric: str) -> tuple[float, dt.datetime | None]:
        return (0.0, None) if (recorded := self._recorded()) is None else recorded.peak(metric)

    def _measured(self) -> list[Operation]:
        return [] if (recorded := self._recorded()) is None else recorded.measured

    def _recorded(self) -> Recorded | None:
        """Return all recordings so far; None if there is no sample."""
        if self._cached is not None and not self.monitoring:
            return self._cached
        sessions = [*self._ended, self.session] if self.monitoring else self._ended
        if not any(len(session.samples) for session in sessions):
            return None
        self._cached = Recorded(
            sessions,
            self._outside,
            cpu=self.config.enable_cpu_monitoring,
            disk=self.config.enable_disk_monitoring,
        )
        return self._cached

    def start_monitoring(self) -> None:
        """Start to record, and return after the first sample. Do nothing if a recording is running.

        An interval below 1 ms means 1 ms. Raises ValueError if the interval is longer than a year, and NncfToolsError
        if nothing can be recorded.
        """
        if self.monitoring:
            return
        interval_s = max(self.config.sampling_interval, SHORTEST_S)
        self._profiler = Profiler(interval_s, include_children=bool(self.config.track_child_processes)).start()
        self._log(f"QEff Memory monitoring started (sampling every {self.config.sampling_interval}s)")

    def stop_monitoring(self) -> None:
        """End the recording, and add the mark ``Completion`` at the end. Do nothing if no recording is running."""
        if self._profiler is None or not self.monitoring:
            return
        self._profiler.stop()
        with contextlib.suppress(NncfToolsError):  # stop() has warned that the recording is lost
            session = self._profiler.session
            end_s = session.duration_s
            mark = Mark(name=COMPLETION, start_s=end_s, end_s=end_s, source=SOURCE)
            mark.pid = session.attached_to
            session.marks.append(mark)
            self._ended.append(session)
        self._cached = None
        self._log_mark(COMPLETION)
        self._log("QEff Memory monitoring stopped")

    def mark_operation(self, operation_name: str) -> None:
        """Start an operation, and end the previous operation.

        If no recording is running, the operation continues into the next recording, unless another mark ends it.
        """
        name = str(operation_name) or _UNNAMED
        if self._profiler is not None and self.monitoring:
            self._profiler.mark(name)
        else:
            self._outside.append((time.monotonic_ns(), name))
            self._cached = None
        self._log_mark(name)

    def _log(self, message: str) -> None:
        if self.config.verbose:
            _logger.info(message)

    def _log_mark(self, name: str) -> None:
        if self.config.verbose:
            _logger.info("%s | Memory: %.1f MB RSS", name, self.get_memory_usage()[0])

    def mark_segment(self, segment_name: str) -> None:
        """Call ``mark_operation``."""
        self.mark_operation(segment_name)

    def generate_memory_graph(self, filename: str | None = None) -> None:
        """Draw memory, CPU, I/O and operations over time.

        The picture is SVG or PDF if the file name ends in ``.svg`` or ``.pdf``; any other picture is PNG. If nothing
        was recorded, log a warning and draw nothing. Raises OSError.
        """
        recorded = self._recorded()
        if recorded is None:
            _logger.warning("No data to plot")
            return
        from nncftools.render import panels
        from nncftools.render.view import View

        path = pathlib.Path(filename or self.output_file)
        suffix = path.suffix[1:].lower()
        panels.draw(recorded.drawn, View(["rss"]), path, suffix if suffix in _VECTOR_FORMATS else "png")
        self._log(f"QEfficient memory profile saved as: {path}")

    def stop_and_save(self, filename: str | None = None) -> str:
        """End the recording, draw the picture and return the report."""
        self.stop_monitoring()
        self.generate_memory_graph(filename)
        return self.get_memory_report()

    def get_memory_report(self) -> str:
        """Return peaks, statistics and the timeline of operations as text."""
        recorded = self._recorded()
        return "No memory data collected" if recorded is None else report(recorded, self.config.sampling_interval)

    def get_memory_usage(self) -> tuple[float, float]:
        """Return the current RSS and VMS in MB, with all descendants if ``track_child_processes`` is true."""
        return self.metrics_collector.get_memory_usage()


class QEffMemoryVisualizer:
    """Draw the recordings of a profiler."""

    def __init__(self, profiler: QEffMemoryProfiler) -> None:
        """Draw the recordings of ``profiler``."""
        self.profiler = profiler

    def generate_professional_graph(self, filename: str) -> None:
        """Draw the same picture as ``QEffMemoryProfiler.generate_memory_graph``. Raises OSError."""
        self.profiler.generate_memory_graph(filename)
