"""Joins the recordings of a ``QEffMemoryProfiler`` to one session, and makes the report as text.

As in QEfficient, an MB is 2^20 bytes, and times are local times without a time zone.
"""

from __future__ import annotations

import datetime as dt
import functools
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isnan

from msgspec.structs import replace

from nncftools.analysis.operation import Operation
from nncftools.analysis.peaks import RATE_WINDOW_S, SAMPLED, shift_moments
from nncftools.analysis.session import Session
from nncftools.backports import moment_of
from nncftools.marks.operations import SOURCE
from nncftools.metrics import is_counter
from nncftools.session.model import UNKNOWN_PEAK, Mark, Peak
from nncftools.session.nesting import add_ends, in_order, kind_of, renumber_marks
from nncftools.session.samples import TIME, Samples
from nncftools.units import MemoryUnit


def join(earlier: Session, later: Session) -> Session:
    """Return two recordings as one session, with times from the start of the earlier recording.

    Counters of the later recording continue from the end of the earlier recording. Between the recordings, there are no
    samples, and counters do not rise. Processes are left out, because a process that lived through both recordings
    would appear twice.
    """
    distance_s = ((later.start.monotonic_ns or 0) - (earlier.start.monotonic_ns or 0)) / _NANOSECONDS
    begin_s = max(distance_s, earlier.duration_s)
    marks = [replace(mark, end_s=end_s) for mark, end_s in add_ends(earlier.marks, earlier)]
    for mark in renumber_marks(later.marks, earlier.marks):
        end_s = None if mark.end_s is None else mark.end_s + begin_s
        marks.append(replace(mark, start_s=mark.start_s + begin_s, end_s=end_s))
    totals = dict[str, int | float | None]()
    for name, total in later.totals.items():
        totals[name] = (earlier.totals.get(name) or 0) + (total or 0)
    peaks = {}
    for name, peak in later.peaks.items():
        peaks[name] = _higher_peak(earlier.peaks.get(name), peak, begin_s)
    return replace(
        later,
        start=earlier.start,
        duration_s=begin_s + later.duration_s,
        samples=_join_samples(earlier, later, begin_s),
        totals=totals,
        peaks=peaks,
        processes=[],
        marks=marks,
        warnings=list(dict.fromkeys([*earlier.warnings, *later.warnings])),
    )


def _join_samples(earlier: Session, later: Session, begin_s: float) -> Samples:
    columns = {}
    for name in later.samples:
        if name not in earlier.samples:
            continue
        offset = 0.0
        if name == TIME:
            offset = begin_s
        elif is_counter(name):
            offset = earlier.totals.get(name) or 0.0
        values = array("d", (value + offset for value in later.samples[name]))
        columns[name] = earlier.samples[name] + values
    return Samples(columns)


def _higher_peak(earlier: Peak | None, later: Peak, begin_s: float) -> Peak:
    """Return the higher of two peaks of a metric, with the size and time of the largest sample of both recordings.

    The largest sample may be in the recording with the lower peak, because a peak can be higher than all samples.
    ``begin_s`` is the time from the start of the earlier recording to the start of the later recording.
    """
    later = shift_moments(later, begin_s)
    peaks = [later] if earlier is None else [earlier, later]
    higher = max(peaks, key=lambda peak: peak.low or 0)
    larger = max(peaks, key=lambda peak: peak.sampled or 0)
    return replace(higher, sampled=larger.sampled, at_s=larger.at_s, process=None)


MB = MemoryUnit.MiB
BEFORE_ALL = "Initialization"
COMPLETION = "Completion"
_NANOSECONDS = 1e9


@dataclass
class ProfileSample:
    """A sample. An MB is 2^20 bytes; a figure that is unknown or not monitored is 0.0."""

    timestamp: dt.datetime
    """Local time, without a time zone."""
    rss_mb: float
    vms_mb: float
    cpu_percent: float = 0.0
    """Percent of all cores, from 0 to 100."""
    disk_read_mb: float = 0.0
    """MB that system calls have read since the first recording began. Reads from the page cache and from pipes count.
    In a sample of ``MetricsCollector``, MB since the process began.
    """
    disk_write_mb: float = 0.0
    """MB that system calls have written since the first recording began. In a sample of ``MetricsCollector``, MB since
    the process began.
    """
    disk_read_rate: float = 0.0
    """MB/s read by system calls since the previous sample."""
    disk_write_rate: float = 0.0
    """MB/s written by system calls since the previous sample."""
    storage_read_mb: float = 0.0
    """MB read from storage since the first recording began."""
    storage_write_mb: float = 0.0
    """MB written to storage since the first recording began."""


class Recorded:
    """All recordings of a profiler as one session."""

    def __init__(
        self, sessions: Iterable[Session], outside: Iterable[tuple[int, str]], *, cpu: bool, disk: bool
    ) -> None:
        """Join recordings, and add ``outside``, the marks made while no recording was running.

        These marks are ``(CLOCK_MONOTONIC in nanoseconds, name)``. If ``cpu`` is false, all CPU figures in samples are
        0.0. If ``disk`` is false, all I/O figures in samples are 0.0.
        """
        self._cpu = cpu
        self._disk = disk
        session = functools.reduce(join, sessions)
        self._start = moment_of(session.start.utc or "").timestamp()
        begin_ns = session.start.monotonic_ns or 0
        marks = [mark for mark in session.marks if mark.source == SOURCE]
        for t_ns, name in outside:
            start_s = (t_ns - begin_ns) / _NANOSECONDS
            mark = Mark(name=name, start_s=start_s, source=SOURCE, kind=kind_of(name))
            mark.pid = session.attached_to
            marks.append(mark)
        self.session: Session = replace(session, marks=in_order(marks))

    def local(self, at_s: float) -> dt.datetime:
        """Convert seconds since the first recording began to local time."""
        return local(self._start + at_s)

    @property
    def drawn(self) -> Session:
        """The session for the picture, without the operations that took no time or ended before the recording."""
        marks = []
        for mark, end_s in add_ends(self.session.marks, self.session):
            start_s = max(0.0, mark.start_s)
            if end_s > start_s:
                marks.append(replace(mark, start_s=start_s, end_s=end_s))
        return replace(self.session, marks=marks)

    @property
    def measured(self) -> list[Operation]:
        """The operations, except the initialization.

        Operations that took no time, or ended before the first recording began, are left out.
        """
        operations = (operation for operation in self.session.operations if operation.name != BEFORE_ALL)
        return [operation for operation in operations if operation.end_s > max(0.0, operation.start_s)]

    def peak(self, metric: str) -> tuple[float, dt.datetime | None]:
        """Return the peak of a metric in MB, and a time by which memory had reached the peak.

        If the peak is unknown, return 0.0 and None.
        """
        peak = self.session.peaks.get(metric, UNKNOWN_PEAK)
        if peak.low is None:
            return 0.0, None
        at_s = peak.at_s
        if peak.span_s is None:
            at_s = None
        elif peak.low_from != SAMPLED:
            at_s = peak.span_s[1]
        return MB.of(peak.low), None if at_s is None else self.local(at_s)

    @functools.cached_property
    def at_peak(self) -> Operation | None:
        """The innermost operation that ran, or may have run, at the RSS peak.

        If none ran, the last operation before the peak.
        """
        place = self.session.peak_place
        if place is None:
            return None
        if place.either or place.path:
            return [*place.path, *place.either[:1]][-1]
        ends_before = place.nearest is not None and place.nearest.end_s <= place.from_s
        return place.nearest if ends_before else None

    @property
    def peak_operation(self) -> str | None:
        """The name of the operation at the RSS peak; None if RSS was never sampled."""
        if self.at_peak is not None:
            return self.at_peak.name
        return None if self.peak("rss")[1] is None else BEFORE_ALL

    @functools.cached_property
    def seconds(self) -> list[float]:
        """The seconds from the first sample to each sample."""
        time_s = self.session.samples.time_s
        return [at_s - time_s[0] for at_s in time_s]

    @functools.cached_property
    def samples(self) -> list[ProfileSample]:
        """The samples of all recordings."""
        columns = self.session.samples
        read = self.list_totals("read_chars")
        written = self.list_totals("write_chars")
        fields = [
            map(self.local, columns.time_s),
            map(_megabytes, columns["rss"]),
            map(_megabytes, columns["vms"]),
            self._cpu_percent(),
            read,
            written,
            self.list_rates(read, 0),
            self.list_rates(written, 0),
            self.list_totals("read_bytes"),
            self.list_totals("write_bytes"),
        ]
        return [ProfileSample(*row) for row in zip(*fields, strict=False)]

    def _cpu_percent(self) -> list[float]:
        """Return CPU usage in percent of all cores, over 0.2 s as in QEfficient."""
        percent = 100 / (self.session.host.cpus or 1) if self._cpu else 0.0
        columns = self.session.samples
        both = zip(columns["cpu_user"], columns["cpu_system"], strict=True)
        spent = [user + system for user, system in both]
        return [min(100.0, rate * percent) for rate in self.list_rates(spent, RATE_WINDOW_S)]

    def list_totals(self, counter: str) -> list[float]:
        """Return the values of a counter in MB, for each sample and for the end of the recording.

        If a value is unknown, repeat the previous value.
        """
        last = 0.0
        totals = []
        at_end = self.session.totals.get(counter)
        for value in (*self.session.samples[counter], at_end):
            if self._disk and value is not None and value > last:  # not if the value is NaN
                last = value
            totals.append(MB.of(last))
        return totals

    def list_rates(self, totals: Sequence[float], window_s: float) -> list[float]:
        """Return the rise of ``totals`` per second in the last ``window_s`` seconds, for each value in ``totals``.

        The rate for the first sample is 0.0.
        """
        import numpy as np

        from nncftools.analysis.summary import rates

        time_s = [*self.session.samples.time_s, self.session.duration_s][: len(totals)]
        moments, per_second = rates(time_s, totals, window_s)
        after = np.minimum(np.searchsorted(moments, time_s), len(per_second))
        result: list[float] = np.append(0.0, per_second)[after].tolist()
        return result


def _megabytes(size: float) -> float:
    return 0.0 if isnan(size) else MB.of(size)


def local(epoch_s: float) -> dt.datetime:
    """Convert seconds since 1970 to local time without a time zone."""
    return dt.datetime.fromtimestamp(epoch_s)  # noqa: DTZ006 — as QEfficient's users expect


_MANY_MB = 2048
_MB_IN_GB = 1024


def report(recorded: Recorded, interval_s: float) -> str:
    """Return peaks, statistics and operations as text, with the sections and labels of QEfficient's report.

    Sizes are in GB (2^30 bytes) if the largest RSS exceeds 2 GB, and otherwise in MB (2^20 bytes). ``interval_s`` is
    the requested interval.
    """
    samples = recorded.samples
    length_s = recorded.session.duration_s - recorded.session.samples.time_s[0]
    rss = [sample.rss_mb for sample in samples]
    unit = _Unit(max(rss))
    first = samples[0]
    last = samples[-1]
    lines = [
        "QEFFICIENT PERFORMANCE MONITORING REPORT",
        "=" * 60,
        "Peak Memory Usage:",
        f"   • RSS (Physical): {unit.format_peak(*recorded.peak('rss'))}",
        f"   • VMS (Virtual):  {unit.format_peak(*recorded.peak('vms'))}",
        f"   • Peak during:    {recorded.peak_operation}",
        "",
        "Memory Statistics:",
        f"   • Current RSS:    {unit.format(last.rss_mb)} (Delta: {unit.format(last.rss_mb - first.rss_mb, '+')})",
        f"   • Current VMS:    {unit.format(last.vms_mb)} (Delta: {unit.format(last.vms_mb - first.vms_mb, '+')})",
        f"   • Average RSS:    {unit.format(sum(rss) / len(rss))}",
        f"   • Min/Max RSS:    {min(rss) / unit.factor:.2f} / {unit.format(max(rss))}",
        f"   • Memory Range:   {unit.format(max(rss) - min(rss))}",
    ]
    if length_s:
        lines += _describe_disk(recorded, length_s, interval_s / 2)
    lines += [
        "",
        "Monitoring Info:",
        f"   • Duration:       {length_s:.1f} seconds",
        f"   • Data Points:    {len(samples)}",
        f"   • Operations:     {len(recorded.session.marks)}",
        f"   • Sampling Rate:  {interval_s:g}s",
        "",
        "QEfficient Operations Timeline:",
    ]
    for number, operation in enumerate(recorded.session.operations, start=1):
        row = f"   {number:2}. {operation.start_s:6.1f}s - {operation.name}{_describe_cost(operation, unit)}"
        lines.append(f"{row} <- Peak" if operation is recorded.at_peak else row)
    return "\n".join(lines)


def _describe_disk(recorded: Recorded, length_s: float, window_s: float) -> list[str]:
    read = recorded.list_totals("read_chars")
    written = recorded.list_totals("write_chars")
    from_storage = recorded.list_totals("read_bytes")[-1]
    to_storage = recorded.list_totals("write_bytes")[-1]
    read_rate = read[-1] / length_s
    write_rate = written[-1] / length_s
    return [
        "Disk I/O Statistics:",
        f"   • Total Read:     {read[-1]:.2f} MB ({from_storage:.2f} MB from storage)",
        f"   • Total Write:    {written[-1]:.2f} MB ({to_storage:.2f} MB to storage)",
        f"   • Peak Read Rate: {max(read_rate, *recorded.list_rates(read, window_s)):.2f} MB/s",
        f"   • Peak Write Rate:{max(write_rate, *recorded.list_rates(written, window_s)):.2f} MB/s",
        f"   • Avg Read Rate:  {read_rate:.2f} MB/s",
        f"   • Avg Write Rate: {write_rate:.2f} MB/s",
    ]


def _describe_cost(operation: Operation, unit: _Unit) -> str:
    if not operation.duration_s:
        return ""
    duration = f" ({operation.duration_s:.1f}s)"
    if operation.delta is None:
        return duration
    about = "≈" if operation.of("rss").delta_is_estimate else ""
    return f"{duration} [{about}{unit.format(MB.of(operation.delta), '+', decimals=1)}]"


class _Unit:
    """The unit of sizes in the report: MB, or GB for a large program."""

    def __init__(self, largest_mb: float) -> None:
        is_large = largest_mb > _MANY_MB
        self.factor = _MB_IN_GB if is_large else 1
        self._name = "GB" if is_large else "MB"

    def format(self, megabytes: float, sign: str = "", decimals: int = 2) -> str:
        return f"{megabytes / self.factor:{sign}.{decimals}f} {self._name}"

    def format_peak(self, megabytes: float, at: dt.datetime | None) -> str:
        time = "N/A" if at is None else f"{at:%H:%M:%S}"
        return f"{self.format(megabytes)} at {time}"
