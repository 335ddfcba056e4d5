from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

import nncftools
from nncftools import QEffMemoryProfiler
from nncftools.api import qeff
from nncftools.api.qeff import MetricsCollector
from nncftools.api.qeff import ProfilerConfig as qeff_ProfilerConfig
from nncftools.errors import NncfToolsError
from tests.api.sampled import touch, wait_for_sample, wait_for_samples
from tests.conftest import HANGING_S

WRITES = """
import os, sys
input()
with open(sys.argv[1], "wb") as file:
    file.write(b"x" * (8 << 20))
    file.flush()
    os.fsync(file.fileno())
print(open("/proc/self/io").read().partition("\\nwrite_bytes: ")[2].split()[0])
"""


class Recorded(NamedTuple):
    """A recording, and the figures that its child reports of itself."""

    profiler: QEffMemoryProfiler
    written_by_child: int


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Record three operations: two share a name, the first has the peak, and a child writes in the last."""
    folder = tmp_path_factory.mktemp("qeff")
    of = QEffMemoryProfiler(
        sampling_interval=0.01,
        output_file=str(folder / "my_profile.png"),
        verbose=True,
        enable_cpu_monitoring=True,
        enable_disk_monitoring=True,
    )
    words = [sys.executable, "-S", "-c", WRITES, str(folder / "written")]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as child:
        of.start_monitoring()
        of.mark_operation("Model Loading")
        held = touch(120)
        wait_for_sample(of)
        del held
        wait_for_sample(of)
        of.mark_operation("Export")
        wait_for_sample(of)
        kept = touch(40)  # more than malloc takes from its heap
        wait_for_sample(of)
        of.mark_segment("Export")
        written, _ = child.communicate("\n", timeout=HANGING_S)
    wait_for_sample(of)
    of.stop_monitoring()
    del kept
    return Recorded(of, int(written))


@pytest.fixture
def profiler(recorded: Recorded) -> QEffMemoryProfiler:
    """Return the profiler of the recording."""
    return recorded.profiler


@pytest.mark.process
def test_data_is_synchronized(profiler: QEffMemoryProfiler) -> None:
    """All lists have a value per sample, which JSON can hold; the first rate is 0."""
    data = profiler.get_synchronized_data()

    assert list(data) == [
        *("timestamps", "rss_memory", "vms_memory", "cpu_usage"),
        *("disk_read_bytes", "disk_write_bytes", "disk_read_rate", "disk_write_rate"),
    ]
    assert {len(values) for values in data.values()} == {len(profiler.samples)}
    assert [values[0] for name, values in data.items() if name in {"timestamps", "cpu_usage", "disk_read_rate"}] == [
        0
    ] * 3
    assert data["timestamps"] == sorted(data["timestamps"])
    assert json.loads(json.dumps(data, allow_nan=False)) == data


@pytest.mark.process
def test_child_io_counts(recorded: Recorded) -> None:
    """What a child process wrote is counted, to storage and by system calls, and stays after the child has ended."""
    calls, storage = recorded.profiler.disk_write_bytes, recorded.profiler.storage_write_mb

    assert (calls, storage) == (sorted(calls), sorted(storage))
    assert calls[-1] >= 8
    assert storage[-1] * 2**20 >= recorded.written_by_child - 1


@pytest.mark.process
def test_peak(profiler: QEffMemoryProfiler) -> None:
    """The peak is in MB and belongs to the operation that reached it; its moment is known to a sample, or better."""
    place = profiler.rss_memory.index(max(profiler.rss_memory))
    near = next(i for i, rss in enumerate(profiler.rss_memory) if rss >= 0.98 * profiler.rss_memory[place])

    assert profiler.peak_rss == pytest.approx(profiler.rss_memory[place], rel=0.02)
    assert profiler.timestamps[max(0, near - 1)] <= profiler.peak_rss_time <= profiler.timestamps[place]
    assert profiler.peak_vms == pytest.approx(max(profiler.vms_memory))
    assert profiler.peak_vms_time in profiler.timestamps
    assert profiler.peak_operation == "Model Loading"


@pytest.mark.process
def test_repeated_names_are_two_operations(profiler: QEffMemoryProfiler) -> None:
    """Marks keep their order; each operation has its own growth."""
    first, second = (phase for phase in profiler.session.operations if phase.name == "Export")

    assert [name for _, name in profiler.operations] == ["Model Loading", "Export", "Export", "Completion"]
    assert (first.delta or 0) > (second.delta or 0) + 10e6
    assert list(profiler.operation_durations) == ["Model Loading", "Export"]
    assert profiler.operation_durations["Export"] == second.duration_s
    assert profiler.operation_memory_deltas["Export"] == (second.delta or 0) / 2**20


@pytest.mark.process
def test_report_and_graph(profiler: QEffMemoryProfiler) -> None:
    """The report has peak, statistics and timeline; the picture goes to the requested file."""
    report = profiler.stop_and_save()

    assert "Peak during:    Model Loading" in report
    assert "Model Loading (" in report
    assert report.count("- Export (") == 2
    assert "<- Peak" in report
    assert Path(profiler.output_file).read_bytes().startswith(b"\x89PNG")


@pytest.mark.process
def test_what_is_not_monitored_is_0() -> None:
    """CPU and disk that are not monitored are 0; a second call of start or stop does nothing."""
    of = QEffMemoryProfiler(sampling_interval=0.01, enable_cpu_monitoring=False, enable_disk_monitoring=False)
    of.start_monitoring()
    of.start_monitoring()
    sum(range(1_000_000))
    wait_for_samples(of, 2)
    of.stop_monitoring()
    of.stop_monitoring()

    assert {*of.cpu_usage, *of.disk_read_bytes, *of.disk_write_rate, *of.storage_read_mb} == {0}
    assert [name for _, name in of.operations] == ["Completion"]


@pytest.mark.process
def test_while_it_runs() -> None:
    """A running profiler has the figures up to now, each time that they are read."""
    of = QEffMemoryProfiler(sampling_interval=0)
    of.config.sampling_interval = 0.01
    of.start_monitoring()
    of.mark_operation(operation_name="Export")
    before = len(of.samples)
    wait_for_sample(of)
    seen = (of.monitoring, of.current_operation, list(of.operation_durations), len(of.samples) > before)
    interval_s = of.session.sampler.interval_s
    of.stop_monitoring()

    assert seen == (True, "Export", ["Export"], True)
    assert (of.monitoring, interval_s) == (False, 0.01)


NONE = dict.fromkeys(
    ["output_file", "verbose", "enable_cpu_monitoring", "enable_disk_monitoring", "child_scan_interval"]
)


@pytest.mark.process
@pytest.mark.parametrize(
    "settings, interval_s",
    [
        ({"sampling_interval": None, "track_child_processes": None}, 0.05),
        pytest.param({"sampling_interval": 0, **NONE}, 0.001, marks=pytest.mark.long),
    ],
)
def test_none(settings: dict[str, Any], interval_s: float) -> None:
    """None is accepted where QEfficient's profiler accepts it; an interval below 1 ms is 1 ms."""
    of = QEffMemoryProfiler(**settings)
    of.start_monitoring()
    of.stop_monitoring()

    assert of.session.sampler.interval_s == interval_s
    assert "Monitoring Info:" in of.get_memory_report()


@pytest.mark.long
@pytest.mark.process
def test_second_start_appends() -> None:
    """Samples and marks of a second recording follow those of the first, also marks made between both."""
    of = QEffMemoryProfiler(sampling_interval=0.01)
    of.mark_operation("Setup")
    for operation in ("Export", "Compilation"):
        of.start_monitoring()
        of.mark_segment(segment_name=operation)
        wait_for_sample(of)
        of.stop_monitoring()
        assert of.current_operation == "Completion"
        of.mark_operation("between")
    moments = of.timestamps

    assert [name for _, name in of.operations] == [
        *("Setup", "Export", "Completion", "between"),
        *("Compilation", "Completion", "between"),
    ]
    assert len(moments) > len(of.session.samples)
    assert moments == sorted(moments)
    assert of.operations == sorted(of.operations, key=lambda mark: mark[0])


@pytest.mark.process
def test_without_data(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Before the start there are empty values and texts, marks are kept, and no picture is written."""
    of = QEffMemoryProfiler(output_file=None, child_scan_interval=2.0)
    before = of.current_operation
    of.mark_operation("Setup")
    of.generate_memory_graph(str(tmp_path / "none.png"))

    assert (of.output_file, before, of.current_operation) == ("qeff_memory_profile.png", "Initialization", "Setup")
    assert [name for _, name in of.operations] == ["Setup"]
    assert [of.samples, of.timestamps, of.rss_memory] == [[]] * 3
    assert [of.get_synchronized_data(), of.operation_durations, of.operation_memory_deltas] == [{}] * 3
    assert (of.peak_rss, of.peak_vms, of.peak_rss_time, of.peak_operation) == (0, 0, None, None)
    assert of.stop_and_save(str(tmp_path / "none.png")) == "No memory data collected"
    assert ("No data to plot" in caplog.text, list(tmp_path.iterdir())) == (True, [])
    with pytest.raises(NncfToolsError, match="start the profiler first"):
        _ = of.session


@pytest.mark.process
def test_colours() -> None:
    """Usual operations have the colours of the pictures, by upstream's names."""
    colours = QEffMemoryProfiler.SEGMENT_COLORS

    assert colours["Model Export"] == colours["Export"] == "#E69F00"
    assert set(colours) == {
        *("Initialization", "Model Loading", "Export", "Model Export", "Compilation", "Model Compilation"),
        *("Generation", "Text Generation", "Cleanup", "Completion"),
    }


@pytest.mark.process
@pytest.mark.parametrize("name", qeff.__all__)
def test_names(name: str) -> None:
    """The module and the package have the same names of upstream."""
    assert getattr(nncftools, name) is getattr(qeff, name)


@pytest.mark.process
def test_verbose(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """With verbose, start, marks with the memory, stop and picture are logged where and as QEfficient does."""
    of = QEffMemoryProfiler(sampling_interval=0.05, output_file=str(tmp_path / "a.png"), verbose=True)
    with caplog.at_level(logging.INFO, "QEfficient"):
        of.start_monitoring()
        of.mark_operation("Export")
        of.stop_and_save()
    memory = r"\| Memory: [1-9]\d+\.\d MB RSS"
    expected = [
        r"QEff Memory monitoring started \(sampling every 0\.05s\)",
        f"Export {memory}",
        f"Completion {memory}",
        "QEff Memory monitoring stopped",
        f"QEfficient memory profile saved as: {tmp_path}/a.png",
    ]

    assert {record.name for record in caplog.records} == {"QEfficient"}
    assert [re.sub(pattern, "", text) for pattern, text in zip(expected, caplog.messages, strict=True)] == [""] * 5


def test_collector(tmp_path: Path) -> None:
    """Without a recording, a collector has the figures of this process: MB of 2^20 bytes, and rates since before."""
    collector = MetricsCollector(qeff_ProfilerConfig())
    collector.initialize_cpu_monitoring()
    first = collector.collect_sample()
    (tmp_path / "written").write_bytes(b"x" * (8 << 20))
    second = collector.collect_sample()

    assert 1 < first.rss_mb < first.vms_mb
    assert (first.disk_read_rate, first.disk_write_rate, first.timestamp.tzinfo) == (0, 0, None)
    assert 0 <= second.cpu_percent <= 100
    assert second.disk_write_mb - first.disk_write_mb == pytest.approx(8, abs=1)
    assert second.disk_write_rate > 8


def test_collector_that_cannot_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A figure that the system refuses is 0."""

    def refuse(*_: object) -> None:
        raise psutil.AccessDenied

    collector = MetricsCollector(qeff_ProfilerConfig())
    for method in ("memory_info", "cpu_percent", "io_counters"):
        monkeypatch.setattr(psutil.Process, method, refuse)

    assert list(vars(collector.collect_sample()).values())[1:] == [0] * 9
