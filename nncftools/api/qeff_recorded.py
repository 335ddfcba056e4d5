"""What a ``QEffMemoryProfiler`` recorded in QEfficient's terms: MB are 2^20 bytes, times are naive local times."""

from __future__ import annotations

import datetime as dt
import functools
from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING

from msgspec.structs import replace

from nncftools.analysis.joined import joined
from nncftools.backports import moment_of
from nncftools.marks.operations import SOURCE
from nncftools.session.model import Mark
from nncftools.session.operation import RATE_WINDOW_S, kind_of
from nncftools.session.operations import in_order, with_ends
from nncftools.session.peak_place import span_of
from nncftools.units import MemoryUnit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nncftools.session.operation import Operation
    from nncftools.session.session import Session

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
        begin_ns = whole.start.monotonic_ns or 0
        marks = [mark for mark in whole.marks if mark.source == SOURCE]
        marks += [
            Mark(
                name=name,
                start_s=(t_ns - begin_ns) / _NANOSECONDS,
                pid=whole.attached_to,
                source=SOURCE,
                kind=kind_of(name),
            )
            for t_ns, name in outside
        ]
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
        return [
            operation
            for operation in self.session.operations
            if operation.end_s > max(0.0, operation.start_s) and operation.name != BEFORE_ALL
        ]

    def peak(self, metric: str) -> tuple[float, dt.datetime | None]:
        """Return the peak of a metric in MB and when it was certainly reached; 0.0 and None if it is unknown."""
        peak = self.session.peaks.get(metric)
        if peak is None or peak.low is None:
            return 0.0, None
        span_s = span_of(peak)
        return MB.of(peak.low), None if span_s is None else self.local(span_s[1])

    @functools.cached_property
    def at_peak(self) -> Operation | None:
        """The innermost operation that holds the RSS peak, or may hold it, or ended just before it."""
        place = self.session.peak_place
        if place is None:
            return None
        if place.either or place.path:
            return [*place.path, *place.either[:1]][-1]
        is_after = place.nearest is not None and place.nearest.end_s <= place.from_s
        return place.nearest if is_after else None

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
            [_known(MB.of(value)) for value in columns["rss"]],
            [_known(MB.of(value)) for value in columns["vms"]],
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
        found = []
        for value in self.session.samples[counter]:
            last = value if self._disk and not isnan(value) else last
            found.append(MB.of(last))
        return found

    def _rates(self, totals: Sequence[float], window_s: float) -> list[float]:
        """Return for each sample the rise per second up to it, over ``window_s``; 0.0 for the first one."""
        import numpy as np

        from nncftools.analysis.series import rates

        time_s = self.session.samples.time_s
        moments, found = rates(time_s, totals, window_s)
        after = np.minimum(np.searchsorted(moments, time_s), len(found))
        rising: list[float] = np.append(0.0, found)[after].tolist()
        return rising


def local(epoch_s: float) -> dt.datetime:
    """Return seconds since 1970 as local time without a time zone."""
    return dt.datetime.fromtimestamp(epoch_s)  # noqa: DTZ006 — as QEfficient's users expect it


def _known(value: float) -> float:
    return 0.0 if isnan(value) else value
