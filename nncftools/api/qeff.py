"""``QEffMemoryProfiler``: the interface of QEfficient's memory profiler, over our recorder."""

from __future__ import annotations

import datetime as dt
import logging
from dataclasses import dataclass
from math import isnan, nan
from typing import TYPE_CHECKING

from nncftools.api.profiler import Profiler
from nncftools.backports import moment_of
from nncftools.units import MemoryUnit, seconds_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.session.operations import Operation
    from nncftools.session.session import Session

_MB = MemoryUnit.MB
_MUCH_MB = 2000
_COMPLETION = "Completion"
_BEFORE_ALL = "Initialization"
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ProfileSample:
    """One sample; an MB is 10^6 bytes, NaN means unknown or not monitored."""

    timestamp: dt.datetime
    """Local time."""
    rss_mb: float
    vms_mb: float
    cpu_percent: float
    """Percent of one core since the previous sample; NaN for the first sample."""
    disk_read_mb: float
    """MB read from storage since the start."""
    disk_write_mb: float
    disk_read_rate: float
    """MB/s since the previous sample."""
    disk_write_rate: float


class QEffMemoryProfiler:
    """Records memory, CPU and disk I/O of this program and its descendants, and the operations that it marks.

    It is used like QEfficient's own profiler but measures differently. Native code never delays sampling. A name
    marked twice is two operations. An operation's cost comes from the samples at its start and end. CPU usage is not
    smoothed. The I/O of child processes counts, even after they have ended.
    """

    def __init__(  # noqa: PLR0913, PLR0917 — the signature that users of QEfficient's profiler know
        self,
        sampling_interval: float = 0.05,
        output_file: str = "qeff_memory_profile.png",
        verbose: bool = False,  # noqa: FBT001, FBT002 — the same
        enable_cpu_monitoring: bool = True,  # noqa: FBT001, FBT002 — the same
        enable_disk_monitoring: bool = True,  # noqa: FBT001, FBT002 — the same
        track_child_processes: bool = True,  # noqa: FBT001, FBT002 — the same
    ) -> None:
        """Prepare to sample every ``sampling_interval`` seconds.

        ``output_file`` is the picture's default path; ``verbose`` logs marks. Metrics that are not enabled are NaN.
        Raises ValueError for an interval that is not from 1 ms to a year.
        """
        self.sampling_interval = sampling_interval
        self.output_file = output_file
        self.verbose = verbose
        self._cpu = enable_cpu_monitoring
        self._disk = enable_disk_monitoring
        self._profiler = Profiler(sampling_interval, include_children=track_child_processes)

    def start_monitoring(self) -> None:
        """Start, and return after the first sample; does nothing if already running. Raises NncfToolsError."""
        if not self._profiler.is_running:
            self._profiler.start()

    def stop_monitoring(self) -> None:
        """End the recording and the last operation; does nothing if none is running."""
        if self._profiler.is_running:
            self.mark_operation(_COMPLETION)
            self._profiler.stop()

    def mark_operation(self, name: str) -> None:
        """Start an operation and end the previous one."""
        self._profiler.mark(name)
        if self.verbose:
            _logger.info("operation: %s", name)

    def mark_segment(self, name: str) -> None:
        """Call ``mark_operation``."""
        self.mark_operation(name)

    def generate_memory_graph(self, filename: str | None = None) -> None:
        """Draw memory over time with the operations, as .png, .svg or .pdf by the file name's extension.

        Raises OSError, and NncfToolsError if nothing was recorded.
        """
        self._profiler.plot(filename or self.output_file)

    def stop_and_save(self, filename: str | None = None) -> str:
        """End the recording, draw the picture and return the report."""
        self.stop_monitoring()
        self.generate_memory_graph(filename)
        return self.get_memory_report()

    @property
    def session(self) -> Session:
        """The recording so far. Raises NncfToolsError before the start."""
        return self._profiler.session

    @property
    def operations(self) -> list[tuple[dt.datetime, str]]:
        """The marks in order: local time and name."""
        session = self.session
        return [(_local(session, mark.start_s), mark.name) for mark in session.marks]

    @property
    def peak_rss(self) -> float:
        """The RSS peak in MB (10^6 bytes): a lower bound, from the samples and the kernel's high-water marks."""
        return _MB.of(self.session.peaks["rss"].low or 0)

    @property
    def peak_operation(self) -> str | None:
        """The operation with the largest sample of RSS; None if there is no sample."""
        session = self.session
        at_s = session.peaks["rss"].at_s
        if at_s is None:
            return None
        inside = [operation.name for operation in session.operations if operation.start_s <= at_s < operation.end_s]
        return inside[-1] if inside else _BEFORE_ALL

    @property
    def samples(self) -> list[ProfileSample]:
        """All samples."""
        session = self.session
        data = _synchronized(session, cpu=self._cpu, disk=self._disk)
        moments = [_local(session, time_s) for time_s in data.pop("timestamps")]
        return [ProfileSample(*row) for row in zip(moments, *data.values(), strict=True)]

    def get_synchronized_data(self) -> dict[str, list[float]]:
        """Return lists of equal length with a value per sample.

        ``timestamps`` are seconds since the start; ``rss_memory``, ``vms_memory``, ``disk_read_bytes`` and
        ``disk_write_bytes`` are MB (10^6 bytes), the last two since the start. ``cpu_usage`` is percent of one core;
        ``disk_read_rate`` and ``disk_write_rate`` are MB/s. All three are since the previous sample, NaN for the first.
        """
        return _synchronized(self.session, cpu=self._cpu, disk=self._disk)

    def get_memory_report(self) -> str:
        """Return peak, statistics and the operations' timeline as text. Raises NncfToolsError before the start."""
        session = self.session
        peak_s = session.peaks["rss"].at_s
        at = "" if peak_s is None else f" at {_local(session, peak_s):%H:%M:%S}"
        first, last = session.samples["rss"][0], session.samples["rss"][-1]
        lines = [
            "QEFFICIENT PERFORMANCE MONITORING REPORT",
            "=" * 60,
            "Peak Memory Usage:",
            f"   • RSS (Physical): {_size(self.peak_rss)}{at}",
            f"   • Peak during:    {self.peak_operation}",
            "",
            "Memory Statistics:",
            f"   • Current RSS:    {_size(_MB.of(last))} (Delta: {_size(_MB.of(last - first), sign='+')})",
            f"   • Duration:       {session.duration_s:.1f} seconds",
            f"   • Operations:     {len(session.marks)}",
            "",
            "QEfficient Operations Timeline:",
            *(self._timeline(place, operation, peak_s) for place, operation in enumerate(session.operations, start=1)),
        ]
        return "\n".join(lines) + "\n"

    def _timeline(self, place: int, operation: Operation, peak_s: float | None) -> str:
        grown = "unknown" if operation.delta is None else _size(_MB.of(operation.delta), sign="+")
        peak = " <- Peak" if peak_s is not None and operation.start_s <= peak_s < operation.end_s else ""
        lasts = seconds_text(operation.duration_s)
        return f"   {place:2}. {operation.start_s:6.1f}s - {operation.name} ({lasts}) [{grown}]{peak}"


def _synchronized(session: Session, *, cpu: bool, disk: bool) -> dict[str, list[float]]:
    times = session.samples.time_s.tolist()
    unknown = [nan] * len(times)
    column = session.samples
    spent = [user + system for user, system in zip(column["cpu_user"], column["cpu_system"], strict=True)]
    read = [_MB.of(value) for value in column["read_bytes"]] if disk else unknown
    written = [_MB.of(value) for value in column["write_bytes"]] if disk else unknown
    return {
        "timestamps": times,
        "rss_memory": [_MB.of(value) for value in column["rss"]],
        "vms_memory": [_MB.of(value) for value in column["vms"]],
        "cpu_usage": [rate * 100 for rate in _rates(times, spent)] if cpu else unknown,
        "disk_read_bytes": read,
        "disk_write_bytes": written,
        "disk_read_rate": _rates(times, read),
        "disk_write_rate": _rates(times, written),
    }


def _rates(times: Sequence[float], totals: Sequence[float]) -> list[float]:
    """Return the increase per second of a total since the previous sample; NaN for the first."""
    steps = zip(times, times[1:], totals, totals[1:], strict=False)
    rates = [(later - earlier) / (end - begin) if end > begin else nan for begin, end, earlier, later in steps]
    return [nan, *rates] if times else []


def _local(session: Session, at_s: float) -> dt.datetime:
    """Return seconds since a session's start as local time."""
    return (moment_of(session.start.utc or "") + dt.timedelta(seconds=at_s)).astimezone()


def _size(megabytes: float, sign: str = "") -> str:
    """Return MB as text, in GB from 2,000 MB on."""
    if isnan(megabytes):
        return "unknown"
    return f"{megabytes / 1000:{sign}.1f} GB" if abs(megabytes) >= _MUCH_MB else f"{megabytes:{sign}.1f} MB"
