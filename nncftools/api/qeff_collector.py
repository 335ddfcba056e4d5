"""``MetricsCollector``: figures of this process at this moment, with the interface of QEfficient's memory profiler."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import NamedTuple

import psutil

from nncftools.api.memory_now import memory_now
from nncftools.api.qeff_recorded import MB, ProfileSample, local


@dataclass
class ProfilerConfig:
    """The settings of a ``QEffMemoryProfiler``; the interval and the processes are read when it starts."""

    sampling_interval: float = 0.2
    """In seconds."""
    output_file: str | None = None
    """The picture's default path."""
    verbose: bool = False
    """Whether to log marks."""
    enable_cpu_monitoring: bool = True
    enable_disk_monitoring: bool = True
    track_child_processes: bool = True
    child_scan_interval: float = 1.0
    """Known to QEfficient's profiler only: here each sample finds the processes that there are."""


class _Counters(NamedTuple):
    at_s: float
    read_mb: float
    written_mb: float


class MetricsCollector:
    """Measures this process when it is asked, its memory with its descendants'; an MB is 2^20 bytes.

    What the system does not tell is 0.0. A profiler's own samples come from its recording, not from here.
    """

    def __init__(self, config: ProfilerConfig) -> None:
        """Measure what ``config`` enables."""
        self.config = config
        self.process = psutil.Process()
        self._last: _Counters | None = None

    def initialize_cpu_monitoring(self) -> None:
        """Begin the time of the first CPU figure."""
        self.get_cpu_usage()

    def get_memory_usage(self) -> tuple[float, float]:
        """Return RSS and VMS in MB, with those of the descendants unless ``config`` leaves them out."""
        rss, vms = memory_now(self.process, children=self.config.track_child_processes)
        return MB.of(rss), MB.of(vms)

    def get_cpu_usage(self) -> float:
        """Return CPU usage since the previous call in percent of all cores; 0.0 for the first call."""
        if not self.config.enable_cpu_monitoring:
            return 0.0
        try:
            of_one_core = self.process.cpu_percent()
        except psutil.Error:
            return 0.0
        return min(100.0, of_one_core / (os.cpu_count() or 1))

    def get_disk_io_stats(self) -> tuple[float, float, float, float]:
        """Return MB read and written since the process began, and MB/s since the previous call, 0.0 for the first.

        System calls count, also to the page cache and pipes; where the system does not count them, storage.
        """
        counters = self._counters() if self.config.enable_disk_monitoring else None
        if counters is None:
            return 0.0, 0.0, 0.0, 0.0
        before = self._last or counters
        self._last = counters
        passed_s = counters.at_s - before.at_s
        if passed_s <= 0:
            return counters.read_mb, counters.written_mb, 0.0, 0.0
        read_rate = (counters.read_mb - before.read_mb) / passed_s
        write_rate = (counters.written_mb - before.written_mb) / passed_s
        return counters.read_mb, counters.written_mb, read_rate, write_rate

    def collect_sample(self) -> ProfileSample:
        """Return all figures, and the local time."""
        return ProfileSample(
            local(time.time()), *self.get_memory_usage(), self.get_cpu_usage(), *self.get_disk_io_stats()
        )

    def _counters(self) -> _Counters | None:
        try:
            counters = self.process.io_counters()
        except (psutil.Error, AttributeError):  # macOS does not count the I/O of a process
            return None
        read = getattr(counters, "read_chars", counters.read_bytes)
        written = getattr(counters, "write_chars", counters.write_bytes)
        return _Counters(time.monotonic(), MB.of(read), MB.of(written))
