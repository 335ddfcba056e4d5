"""What a ``QEffMemoryProfiler`` recorded in QEfficient's terms: MB are 2^20 bytes, times are naive local times.

Recordings made one after the other are one session. The report is text.
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
from nncftools.analysis.peaks import RATE_WINDOW_S, SAMPLED, moved
from nncftools.analysis.session import Session
from nncftools.backports import moment_of
from nncftools.marks.operations import SOURCE
from nncftools.metrics import is_counter
from nncftools.session.model import Mark, Peak
from nncftools.session.nesting import in_order, kind_of, renumbered, with_ends
from nncftools.session.samples import TIME, Samples
from nncftools.units import MemoryUnit


def joined(earlier: Session, later: Session) -> Session:
    """Return both recordings as one, with times from the start of the earlier one.

    Counters go on from where the earlier recording ended. What happened between the two is unknown: no sample is there,
    and no counter rises. Processes are left out, because one that lived through both would be there twice.
    """
    distance_s = ((later.start.monotonic_ns or 0) - (earlier.start.monotonic_ns or 0)) / _NANOSECONDS
    begin_s = max(distance_s, earlier.duration_s)
    ended = [replace(mark, end_s=end_s) for mark, end_s in with_ends(earlier.marks, earlier)]
    afterwards = [
        replace(mark, start_s=mark.start_s + begin_s, end_s=None if mark.end_s is None else mark.end_s + begin_s)
        for mark in renumbered(later.marks, earlier.marks)
    ]
    return replace(
        later,
        start=earlier.start,
        duration_s=begin_s + later.duration_s,
        samples=_samples(earlier, later, begin_s),
        totals={name: (earlier.totals.get(name) or 0) + (total or 0) for name, total in later.totals.items()},
        peaks={name: _higher(earlier.peaks.get(name), peak, begin_s) for name, peak in later.peaks.items()},
        processes=[],
        marks=[*ended, *afterwards],
        warnings=list(dict.fromkeys([*earlier.warnings, *later.warnings])),
    )


def _samples(earlier: Session, later: Session, begin_s: float) -> Samples:
    columns = {}
    for name in (name for name in later.samples if name in earlier.samples):
        more = begin_s if name == TIME else (earlier.totals.get(name) or 0.0) if is_counter(name) else 0.0
        columns[name] = earlier.samples[name] + array("d", (value + more for value in later.samples[name]))
    return Samples(columns)


def _higher(earlier: Peak | None, later: Peak, begin_s: float) -> Peak:
    """Return the higher peak; its moment is that of the larger sample, which may be in the other recording."""
    both = [replace(peak, process=None) for peak in (earlier, moved(later, begin_s)) if peak is not None]
    higher = max(both, key=lambda peak: peak.low or 0)
    larger = max(both, key=lambda peak: peak.sampled or 0)
    return replace(higher, sampled=larger.sampled, at_s=larger.at_s)


MB = MemoryUnit.MiB
BEFORE_ALL = "Initialization"
COMPLETION = "Completion"
_NANOSECONDS = 1e9


@dataclass
class ProfileSample:
    """One sample; an MB is 2^20 bytes. What is unknown or not monitored is 0.0."""

    timestamp: dt.datetime
    """Local time, without a time zone."""
    rss_mb: float
    vms_mb: float
    cpu_percent: float = 0.0
    """Percent of all cores, from 0 to 100."""
    disk_read_mb: float = 0.0
    """MB read by system calls, also from the page cache and pipes."""
    disk_write_mb: float = 0.0
    """MB written by system calls."""
    disk_read_rate: float = 0.0
    """MB/s read by system calls since the previous sample."""
    disk_write_rate: float = 0.0
    """MB/s written by system calls since the previous sample."""
    storage_read_mb: float = 0.0
    """MB that storage delivered."""
    storage_write_mb: float = 0.0
    """MB that were sent to storage."""


class Recorded:
    """A view of the recordings of one profiler as one session."""

    def __init__(
        self, sessions: Iterable[Session], outside: Iterable[tuple[int, str]], *, cpu: bool, disk: bool
    ) -> None:
        """Join recordings, and add the marks made outside of them: CLOCK_MONOTONIC in nanoseconds, and the name.

        In samples, CPU and disk are 0.0 unless they are asked for.
        """
        self._cpu, self._disk = cpu, disk
        whole = functools.reduce(joined, sessions)
        self._start = moment_of(whole.start.utc or "").timestamp()
        begin_ns, pid = whole.start.monotonic_ns or 0, whole.attached_to
        marks = [mark for mark in whole.marks if mark.source == SOURCE]
        for t_ns, name in outside:
            start_s = (t_ns - begin_ns) / _NANOSECONDS
            marks.append(Mark(name=name, start_s=start_s, pid=pid, source=SOURCE, kind=kind_of(name)))
        self.session: Session = replace(whole, marks=in_order(marks))

    def local(self, at_s: float) -> dt.datetime:
        """Return seconds since the start as local time."""
        return local(self._start + at_s)

    @property
    def drawn(self) -> Session:
        """The session with those operations only that took some time of it."""
        parts = [
            replace(mark, start_s=max(0.0, mark.start_s), end_s=end_s)
            for mark, end_s in with_ends(self.session.marks, self.session)
            if end_s > max(0.0, mark.start_s)
        ]
        return replace(self.session, marks=parts)

    @property
    def measured(self) -> list[Operation]:
        """The operations that took some time of the recording, apart from the initialization."""
        operations = (operation for operation in self.session.operations if operation.name != BEFORE_ALL)
        return [operation for operation in operations if operation.end_s > max(0.0, operation.start_s)]

    def peak(self, metric: str) -> tuple[float, dt.datetime | None]:
        """Return the peak of a metric in MB, and the time of its sample or when it was certainly reached.

        0.0 and None if it is unknown.
        """
        peak = self.session.peaks.get(metric)
        if peak is None or peak.low is None:
            return 0.0, None
        span_s = peak.span_s
        at_s = peak.at_s if peak.low_from == SAMPLED or span_s is None else span_s[1]
        return MB.of(peak.low), None if span_s is None or at_s is None else self.local(at_s)

    @functools.cached_property
    def at_peak(self) -> Operation | None:
        """The innermost operation that holds the RSS peak, or may hold it, or ended just before it."""
        peak = self.session.peak_place
        if peak is None:
            return None
        if peak.either or peak.path:
            return [*peak.path, *peak.either[:1]][-1]
        is_after = peak.nearest is not None and peak.nearest.end_s <= peak.from_s
        return peak.nearest if is_after else None

    @property
    def peak_operation(self) -> str | None:
        """The name of this operation; None if RSS was never sampled."""
        if self.at_peak is not None:
            return self.at_peak.name
        return None if self.peak("rss")[1] is None else BEFORE_ALL

    @functools.cached_property
    def seconds(self) -> list[float]:
        """The seconds of each sample since the first one."""
        time_s = self.session.samples.time_s
        return [at_s - time_s[0] for at_s in time_s]

    @functools.cached_property
    def samples(self) -> list[ProfileSample]:
        """All samples."""
        columns = self.session.samples
        read, written = self._total("read_chars"), self._total("write_chars")
        rows = zip(
            map(self.local, columns.time_s),
            *([0.0 if isnan(value) else MB.of(value) for value in columns[name]] for name in ("rss", "vms")),
            self._cpu_percent(),
            read,
            written,
            self._rates(read, 0),
            self._rates(written, 0),
            self._total("read_bytes"),
            self._total("write_bytes"),
            strict=True,
        )
        return [ProfileSample(*row) for row in rows]

    def _cpu_percent(self) -> list[float]:
        """Return percent of all cores over 0.2 s, as QEfficient does."""
        percent = 100 / (self.session.host.cpus or 1) if self._cpu else 0.0
        columns = self.session.samples
        spent = [user + system for user, system in zip(columns["cpu_user"], columns["cpu_system"], strict=True)]
        return [min(100.0, rate * percent) for rate in self._rates(spent, RATE_WINDOW_S)]

    def _total(self, counter: str) -> list[float]:
        """Return a counter in MB; where it is unknown, what was known before."""
        last = 0.0
        totals = []
        for value in self.session.samples[counter]:
            last = value if self._disk and not isnan(value) else last
            totals.append(MB.of(last))
        return totals

    def _rates(self, totals: Sequence[float], window_s: float) -> list[float]:
        """Return for each sample the rise per second up to it, over ``window_s``; 0.0 for the first one."""
        import numpy as np

        from nncftools.analysis.summary import rates

        time_s = self.session.samples.time_s
        moments, per_second = rates(time_s, totals, window_s)
        after = np.minimum(np.searchsorted(moments, time_s), len(per_second))
        rising: list[float] = np.append(0.0, per_second)[after].tolist()
        return rising


def local(epoch_s: float) -> dt.datetime:
    """Return seconds since 1970 as local time without a time zone."""
    return dt.datetime.fromtimestamp(epoch_s)  # noqa: DTZ006 — as QEfficient's users expect it


_MANY_MB = 2048
_MB_IN_GB = 1024


def report(recorded: Recorded, interval_s: float) -> str:
    """Return peaks, statistics and the operations as text, in the sections and with the labels of QEfficient's report.

    Sizes are in GB (2^30 bytes) if RSS exceeds 2048 MB (2^20 bytes). ``interval_s`` is the one that was asked for.
    """
    samples, length_s = recorded.samples, recorded.seconds[-1]
    rss = [sample.rss_mb for sample in samples]
    unit = _Unit(max(rss))
    first, last = samples[0], samples[-1]
    lines = [
        "QEFFICIENT PERFORMANCE MONITORING REPORT",
        "=" * 60,
        "Peak Memory Usage:",
        f"   • RSS (Physical): {unit.peak(*recorded.peak('rss'))}",
        f"   • VMS (Virtual):  {unit.peak(*recorded.peak('vms'))}",
        f"   • Peak during:    {recorded.peak_operation}",
        "",
        "Memory Statistics:",
        f"   • Current RSS:    {unit.text(last.rss_mb)} (Delta: {unit.text(last.rss_mb - first.rss_mb, '+')})",
        f"   • Current VMS:    {unit.text(last.vms_mb)} (Delta: {unit.text(last.vms_mb - first.vms_mb, '+')})",
        f"   • Average RSS:    {unit.text(sum(rss) / len(rss))}",
        f"   • Min/Max RSS:    {unit.number(min(rss))} / {unit.text(max(rss))}",
        f"   • Memory Range:   {unit.text(max(rss) - min(rss))}",
    ]
    if length_s:
        lines += _disk(samples, length_s)
    lines += [
        "",
        "Monitoring Info:",
        f"   • Duration:       {length_s:.1f} seconds",
        f"   • Data Points:    {len(samples)}",
        f"   • Operations:     {len(recorded.session.marks)}",
        f"   • Sampling Rate:  {interval_s:g}s",
    ]
    lines += ["", "QEfficient Operations Timeline:"]
    for number, operation in enumerate(recorded.session.operations, start=1):
        lines.append(_row(number, operation, unit) + (" <- Peak" if operation is recorded.at_peak else ""))
    return "\n".join(lines)


def _disk(samples: Sequence[ProfileSample], length_s: float) -> list[str]:
    first, last = samples[0], samples[-1]
    read, written = last.disk_read_mb - first.disk_read_mb, last.disk_write_mb - first.disk_write_mb
    delivered, sent = last.storage_read_mb - first.storage_read_mb, last.storage_write_mb - first.storage_write_mb
    return [
        "Disk I/O Statistics:",
        f"   • Total Read:     {read:.2f} MB ({delivered:.2f} MB from storage)",
        f"   • Total Write:    {written:.2f} MB ({sent:.2f} MB to storage)",
        f"   • Peak Read Rate: {max(sample.disk_read_rate for sample in samples):.2f} MB/s",
        f"   • Peak Write Rate:{max(sample.disk_write_rate for sample in samples):.2f} MB/s",
        f"   • Avg Read Rate:  {read / length_s:.2f} MB/s",
        f"   • Avg Write Rate: {written / length_s:.2f} MB/s",
    ]


def _row(number: int, operation: Operation, unit: _Unit) -> str:
    row = f"   {number:2}. {operation.start_s:6.1f}s - {operation.name}"
    if operation.duration_s:
        row += f" ({operation.duration_s:.1f}s)"
        if operation.delta is not None:
            about = "≈" if operation.of("rss").delta_is_estimate else ""
            row += f" [{about}{unit.text(MemoryUnit.MiB.of(operation.delta), '+', decimals=1)}]"
    return row


class _Unit:
    """MB, or GB for a large program."""

    def __init__(self, largest_mb: float) -> None:
        self._factor, self.name = (_MB_IN_GB, "GB") if largest_mb > _MANY_MB else (1, "MB")

    def number(self, megabytes: float, sign: str = "", decimals: int = 2) -> str:
        return f"{megabytes / self._factor:{sign}.{decimals}f}"

    def text(self, megabytes: float, sign: str = "", decimals: int = 2) -> str:
        return f"{self.number(megabytes, sign, decimals)} {self.name}"

    def peak(self, megabytes: float, at: dt.datetime | None) -> str:
        moment = "N/A" if at is None else f"{at:%H:%M:%S}"
        return f"{self.text(megabytes)} at {moment}"
