from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from math import isnan

import pytest
from msgspec.structs import replace

from nncftools.analysis.session import Session
from nncftools.api.qeff_recorded import Recorded, join, report
from nncftools.session.model import Host, Mark, OwnMemory, Start
from tests.made_up import MIB, UTC, mib, session

LATER_NS = 10_000_000_005
"""The start of the later recording: 10 s after that of the earlier one."""


def earlier() -> Session:
    """Return a recording of 1 s, whose operation was open at its end."""
    columns = {"rss": mib(100, 300, 200), "cpu_user": (0, 0.2, 0.4)}
    return session(columns, totals={"cpu_user": 0.5}, marks=[Mark(name="load", start_s=0.25)], warnings=["slow"])


def later(*rss_mib: float) -> Session:
    """Return a recording that began 10 s after the earlier one."""
    columns = {"rss": mib(*rss_mib), "cpu_user": [0.0] * len(rss_mib)}
    marks = [Mark(name="export", start_s=0.5, end_s=1.0)]
    of = session(columns, totals={"cpu_user": 0.1}, marks=marks, warnings=["slow", "late"])
    return replace(of, start=Start(utc=UTC, monotonic_ns=LATER_NS))


def test_joined() -> None:
    """Times keep their distance from the first start; counters go on, and totals are sums; a warning is there once."""
    both = join(earlier(), later(50, 60, 70))

    assert both.samples.time_s.tolist() == [0.0, 0.5, 1.0, 10.0, 10.5, 11.0]
    assert (both.duration_s, both.start) == (11.0, earlier().start)
    assert [(mark.name, mark.start_s, mark.end_s) for mark in both.marks] == [
        ("load", 0.25, 1.0),
        ("export", 10.5, 11.0),
    ]
    assert both.samples["cpu_user"].tolist() == [0.0, 0.2, 0.4, 0.5, 0.5, 0.5]
    assert both.totals == {"cpu_user": 0.6}
    assert both.warnings == ["slow", "late"]


@pytest.mark.parametrize("size_mib, expected", [(60, (300, 0.5)), (600, (600, 10.5))], ids=["earlier", "later"])
def test_higher_peak(size_mib: float, expected: tuple[float, float]) -> None:
    """The higher peak counts, with its time from the first start."""
    peak = join(earlier(), later(50, size_mib, 70)).peaks["rss"]

    assert ((peak.low or 0) / MIB, peak.at_s) == expected


PID = 100
Column = Sequence[float | None]
START = dt.datetime.fromisoformat("2026-11-21T07:00:00+00:00").astimezone().replace(tzinfo=None)
"""The local time of the start of a made-up session."""
COLUMNS: dict[str, Column] = {
    "rss": mib(100, 300, 200),
    "vms": mib(1000, 1000, 1200),
    "cpu_user": (0, 0.5, 1.5),
    "cpu_system": (0, 0.5, 0.5),
    "read_bytes": mib(0, 0, 1),
    "write_bytes": mib(0, 0, 0),
    "read_chars": mib(0, 10, 50),
    "write_chars": mib(0, 2, 2),
}


def marked(name: str, start_s: float, end_s: float | None = None, source: str = "api") -> Mark:
    """Return a mark of the recorded process."""
    return Mark(name=name, start_s=start_s, end_s=end_s, pid=PID, source=source)


def run(*marks: Mark, **columns: Column) -> Session:
    """Return a recording of three samples, half a second apart, on four cores."""
    host = Host(name="box", cpus=4)
    return session({**COLUMNS, **columns}, marks=list(marks), attached_to=PID, host=host)


def recorded(*marks: Mark, before_s: float | None = None, **columns: Column) -> Recorded:
    """Return what is recorded of a run, with a mark that was made before it began."""
    outside = [] if before_s is None else [(5 - int(before_s * 1e9), "Setup")]
    return Recorded([run(*marks, **columns)], outside, cpu=True, disk=True)


def test_samples() -> None:
    """A sample has local time, MB of 2^20 bytes, percent of all cores, and rates per second; the first rate is 0."""
    first, second, third = (tuple(vars(sample).values()) for sample in recorded().samples)

    assert first == (START, 100, 1000, 0, 0, 0, 0, 0, 0, 0)
    assert second[1:] == (300, 1000, 50, 10, 2, 20, 4, 0, 0)
    assert third == (START + dt.timedelta(seconds=1), 200, 1200, 50, 50, 2, 80, 0, 1, 0)


def test_cpu_is_at_most_all_cores() -> None:
    """What the kernel's tick adds to full load is not shown."""
    assert max(sample.cpu_percent for sample in recorded(cpu_user=(0, 0.5, 2.6)).samples) == 100


def test_unknown_is_a_number() -> None:
    """An unknown figure is 0, an unknown counter what was last known: no figure is NaN."""
    of = recorded(rss=mib(100, None, 200), read_chars=mib(0, 10, None), write_chars=(None, None, None))

    assert [sample.rss_mb for sample in of.samples] == [100, 0, 200]
    assert [sample.disk_read_mb for sample in of.samples] == [0, 10, 10]
    assert [sample.disk_write_rate for sample in of.samples] == [0, 0, 0]
    assert not [value for sample in of.samples for value in list(vars(sample).values())[1:] if isnan(value)]


def test_peaks() -> None:
    """Each peak has its size and its local time."""
    of = recorded()

    assert of.peak("rss") == (300, START + dt.timedelta(seconds=0.5))
    assert of.peak("vms") == (1200, START + dt.timedelta(seconds=1))
    assert of.peak("pss") == (0, None)


def test_peak_in_a_sample_that_took_long() -> None:
    """The time of a peak that a sample shows is that of the sample, also if reading it took until later."""
    of = recorded()
    of.session.peaks["vms"] = replace(of.session.peaks["vms"], rose_to_s=1.02)

    assert of.peak("vms") == (1200, START + dt.timedelta(seconds=1))


def test_operations() -> None:
    """Marks of the hook do not count. The time before all marks is not measured, as upstream, but may hold the peak."""
    of = recorded(marked("Initialization", 0.1), marked("Export", 0.75), marked("convert", 0.8, 0.9, "auto"))

    assert [mark.name for mark in of.session.marks] == ["Initialization", "Export"]
    assert [operation.name for operation in of.measured] == ["Export"]
    assert recorded(marked("Export", 0.75)).peak_operation == "Initialization"


def test_peak_at_the_end() -> None:
    """A peak in the last sample belongs to the last operation, not to its completion."""
    of = recorded(marked("Export", 0.5), marked("Completion", 1.0, 1.0), rss=mib(100, 200, 300))

    assert of.peak_operation == "Export"


def test_mark_before_the_start() -> None:
    """The last mark before the start is the operation that the recording begins in."""
    of = recorded(marked("Export", 0.75), before_s=2.0)
    (setup, _) = of.measured

    assert [(mark.name, mark.start_s) for mark in of.session.marks] == [("Setup", -2.0), ("Export", 0.75)]
    assert (setup.duration_s, setup.delta, of.peak_operation) == (2.75, 200 * MIB, "Setup")
    assert [(mark.name, mark.start_s, mark.end_s) for mark in of.drawn.marks] == [
        ("Setup", 0.0, 0.75),
        ("Export", 0.75, 1.0),
    ]


REPORT = """\
QEFFICIENT PERFORMANCE MONITORING REPORT
============================================================
Peak Memory Usage:
   • RSS (Physical): 300.00 MB at HH:MM:00
   • VMS (Virtual):  1200.00 MB at HH:MM:01
   • Peak during:    Model Loading

Memory Statistics:
   • Current RSS:    200.00 MB (Delta: +100.00 MB)
   • Current VMS:    1200.00 MB (Delta: +200.00 MB)
   • Average RSS:    200.00 MB
   • Min/Max RSS:    100.00 / 300.00 MB
   • Memory Range:   200.00 MB
Disk I/O Statistics:
   • Total Read:     50.00 MB (1.00 MB from storage)
   • Total Write:    22.00 MB (18.00 MB to storage)
   • Peak Read Rate: 80.00 MB/s
   • Peak Write Rate:20.00 MB/s
   • Avg Read Rate:  25.00 MB/s
   • Avg Write Rate: 11.00 MB/s

Monitoring Info:
   • Duration:       2.0 seconds
   • Data Points:    3
   • Operations:     3
   • Sampling Rate:  0.5s

QEfficient Operations Timeline:
    1.    0.2s - Model Loading (0.3s) [+200.0 MB] <- Peak
    2.    0.6s - Export (0.4s) [≈-100.0 MB]
    3.    1.0s - Completion
"""


def test_report() -> None:
    """The report has the sections, labels and columns of QEfficient's, both kinds of I/O, and the operations' growth.

    By how much memory grew is known for the first operation, which read it, and estimated for the second. I/O after the
    last sample counts.
    """
    loading = marked("Model Loading", 0.25)
    loading.own_start, loading.own_end = (OwnMemory(tree=size * MIB) for size in (100, 300))
    of = recorded(loading, marked("Export", 0.6), marked("Completion", 1.0, 1.0))
    of.session.duration_s = 2.0
    of.session.totals = {"write_chars": 22 * MIB, "write_bytes": 18 * MIB}

    assert report(of, 0.5).replace(f"{START:%H:%M}", "HH:MM").splitlines() == REPORT.splitlines()


def test_report_of_a_large_program() -> None:
    """Above 2048 MB of RSS, sizes of memory are in GB of 2^30 bytes."""
    export = marked("Export", 0.25)
    export.own_start = OwnMemory(tree=1024 * MIB)
    text = report(recorded(export, rss=mib(1024, 3072, 2048)), 0.05)

    assert "RSS (Physical): 3.00 GB at" in text
    assert "Min/Max RSS:    1.00 / 3.00 GB" in text
    assert "- Export (0.8s) [+1.0 GB] <- Peak" in text


def test_report_of_one_sample() -> None:
    """A single sample has no disk I/O, as in QEfficient's report; an unknown time is N/A."""
    columns = {name: column[:1] for name, column in COLUMNS.items()}
    text = report(Recorded([session(columns, attached_to=PID)], [], cpu=True, disk=True), 0.05)

    assert "Data Points:    1" in text
    assert "Disk" not in text
    assert "Memory Range:   0.00 MB\n\nMonitoring Info:\n" in text
