from __future__ import annotations

import datetime as dt
import logging
import pathlib
import subprocess
import sys
from math import isnan
from typing import NamedTuple

import pytest

from nncftools import QEffMemoryProfiler
from tests.api.sampled import wait_for_sample, wait_for_samples
from tests.api.test_profiler import touch
from tests.conftest import HANGING_S

pytestmark = pytest.mark.process

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


def test_data_is_synchronized(profiler: QEffMemoryProfiler) -> None:
    """All lists have a value per sample; the first rate is unknown."""
    data = profiler.get_synchronized_data()

    assert list(data) == [
        "timestamps",
        "rss_memory",
        "vms_memory",
        "cpu_usage",
        "disk_read_bytes",
        "disk_write_bytes",
        "disk_read_rate",
        "disk_write_rate",
    ]
    assert {len(values) for values in data.values()} == {len(profiler.samples)}
    assert isnan(data["cpu_usage"][0])
    assert data["timestamps"] == sorted(data["timestamps"])


def test_child_io_counts(recorded: Recorded) -> None:
    """What a child process wrote is counted, and stays after the child has ended."""
    written = recorded.profiler.get_synchronized_data()["disk_write_bytes"]

    assert written == sorted(written)
    assert written[-1] * 1e6 >= recorded.written_by_child - 1


def test_peak(profiler: QEffMemoryProfiler) -> None:
    """The peak is in MB and belongs to the operation that reached it."""
    assert profiler.peak_rss == pytest.approx(max(sample.rss_mb for sample in profiler.samples), rel=0.02)
    assert profiler.peak_operation == "Model Loading"


def test_repeated_names_are_two_operations(profiler: QEffMemoryProfiler) -> None:
    """Marks keep their order; each operation has its own growth."""
    first, second = (phase for phase in profiler.session.operations if phase.name == "Export")

    assert [name for _, name in profiler.operations] == ["Model Loading", "Export", "Export", "Completion"]
    assert (first.delta or 0) > (second.delta or 0) + 10e6


def test_samples(profiler: QEffMemoryProfiler) -> None:
    """Each sample has its time and figures by name."""
    sample = profiler.samples[1]

    assert abs((dt.datetime.now(dt.timezone.utc) - sample.timestamp).total_seconds()) < 600
    assert 5 < sample.rss_mb < sample.vms_mb


def test_report_and_graph(profiler: QEffMemoryProfiler) -> None:
    """The report has peak, statistics and timeline; the picture goes to the requested file."""
    report = profiler.stop_and_save()

    assert "Peak during:    Model Loading" in report
    assert "Model Loading (" in report
    assert report.count("- Export (") == 2
    assert "<- Peak" in report
    assert pathlib.Path(profiler.output_file).read_bytes().startswith(b"\x89PNG")


def test_what_is_not_monitored_is_unknown() -> None:
    """CPU and disk that are not monitored are NaN, not 0."""
    of = QEffMemoryProfiler(sampling_interval=0.01, enable_cpu_monitoring=False, enable_disk_monitoring=False)
    of.start_monitoring()
    of.start_monitoring()
    wait_for_samples(of, 2)
    of.stop_monitoring()
    of.stop_monitoring()
    data = of.get_synchronized_data()

    assert all(isnan(value) for name in ("cpu_usage", "disk_read_bytes", "disk_write_rate") for value in data[name])


def test_verbose(caplog: pytest.LogCaptureFixture) -> None:
    """With verbose, marks are logged."""
    with caplog.at_level(logging.INFO):
        QEffMemoryProfiler(verbose=True).mark_operation("Export")

    assert "operation: Export" in caplog.text
