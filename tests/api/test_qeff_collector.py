from __future__ import annotations

import os
import time
import types

import psutil
import pytest

from nncftools.api import qeff
from nncftools.api.qeff import MetricsCollector, ProfilerConfig, ProfileSample

MIB = 2**20


class MadeUpProcess:
    """A process whose figures a test sets."""

    def __init__(self) -> None:
        self.cpu = 150.0
        self.io = types.SimpleNamespace(read_bytes=MIB, write_bytes=2 * MIB, read_chars=3 * MIB, write_chars=4 * MIB)

    def memory_info(self) -> object:
        """Return RSS and VMS."""
        return types.SimpleNamespace(rss=5 * MIB, vms=50 * MIB)

    def children(self, *, recursive: bool) -> list[MadeUpProcess]:
        """Return two descendants."""
        return [MadeUpProcess(), MadeUpProcess()] if recursive else []

    def cpu_percent(self) -> float:
        """Return percent of one core."""
        return self.cpu

    def io_counters(self) -> object:
        """Return bytes."""
        return self.io


@pytest.fixture
def process() -> MadeUpProcess:
    """Return the measured process."""
    return MadeUpProcess()


@pytest.fixture
def collector(process: MadeUpProcess, monkeypatch: pytest.MonkeyPatch) -> MetricsCollector:
    """Return a collector on a machine of four cores, one second after each look at the clock."""
    seconds = iter(range(100))
    clock = types.SimpleNamespace(monotonic=lambda: next(seconds), time=time.time)
    monkeypatch.setattr(qeff, "time", clock)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    made = MetricsCollector(ProfilerConfig())
    made.process = process  # type: ignore[assignment]
    return made


def test_measures_this_process() -> None:
    """Without a recording, a collector has the figures of this process."""
    sample = MetricsCollector(ProfilerConfig()).collect_sample()

    assert 1 < sample.rss_mb < sample.vms_mb
    assert (sample.cpu_percent, sample.disk_read_rate) == (0, 0)
    assert sample.timestamp.tzinfo is None


def test_memory(collector: MetricsCollector) -> None:
    """Memory is in MB of 2^20 bytes, with that of the descendants unless they are left out."""
    family = collector.get_memory_usage()
    collector.config.track_child_processes = False

    assert (family, collector.get_memory_usage()) == ((15, 150), (5, 50))


def test_cpu(collector: MetricsCollector, process: MadeUpProcess) -> None:
    """CPU usage is percent of all cores, at most 100."""
    collector.initialize_cpu_monitoring()
    usual = collector.get_cpu_usage()
    process.cpu = 404.0

    assert (usual, collector.get_cpu_usage()) == (37.5, 100)


def test_disk(collector: MetricsCollector, process: MadeUpProcess) -> None:
    """System calls count; the first rate is 0, the next one is since the previous call."""
    first = collector.get_disk_io_stats()
    process.io.read_chars += 6 * MIB
    process.io.write_chars += MIB

    assert first == (3, 4, 0, 0)
    assert collector.get_disk_io_stats() == (9, 5, 6, 1)


def test_disk_without_system_calls(collector: MetricsCollector, process: MadeUpProcess) -> None:
    """Where the system does not count the bytes of system calls, storage counts."""
    del process.io.read_chars, process.io.write_chars

    assert collector.get_disk_io_stats() == (1, 2, 0, 0)


def test_not_enabled(collector: MetricsCollector) -> None:
    """What is not enabled is 0."""
    collector.config = ProfilerConfig(enable_cpu_monitoring=False, enable_disk_monitoring=False)

    assert (collector.get_cpu_usage(), collector.get_disk_io_stats()) == (0, (0, 0, 0, 0))


def test_what_cannot_be_read(collector: MetricsCollector, monkeypatch: pytest.MonkeyPatch) -> None:
    """A figure that the system refuses is 0."""

    def refuse(*_: object) -> None:
        raise psutil.AccessDenied

    for method in ("memory_info", "cpu_percent", "io_counters"):
        monkeypatch.setattr(MadeUpProcess, method, refuse)
    sample = collector.collect_sample()

    assert list(vars(sample).values())[1:] == [0] * 9


def test_sample_of_three_figures() -> None:
    """A sample is made of its time and its memory; the rest is 0 and may be set."""
    sample = ProfileSample(MetricsCollector(ProfilerConfig()).collect_sample().timestamp, 10.0, 20.0)
    sample.cpu_percent = 5.0

    assert list(vars(sample).values())[1:] == [10, 20, 5, 0, 0, 0, 0, 0, 0]


def test_settings_may_be_changed() -> None:
    """A configuration has upstream's defaults and can be changed."""
    config = ProfilerConfig()
    config.verbose = True

    assert (config.sampling_interval, config.output_file, config.verbose) == (0.2, None, True)
    assert (config.enable_cpu_monitoring, config.enable_disk_monitoring) == (True, True)
