"""The figures of a ``QEffMemoryProfiler``: views over its recordings, with the names that QEfficient's users know."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from nncftools.api.qeff_recorded import BEFORE_ALL, MB, ProfileSample, Recorded, local
from nncftools.errors import NncfToolsError

if TYPE_CHECKING:
    import datetime as dt

    from nncftools.api.profiler import Profiler
    from nncftools.api.qeff_collector import ProfilerConfig
    from nncftools.api.session import Session
    from nncftools.session.operation import Operation

DEFAULT_PICTURE = "qeff_memory_profile.png"
_SYNCHRONIZED = {
    "rss_memory": "rss_mb",
    "vms_memory": "vms_mb",
    "cpu_usage": "cpu_percent",
    "disk_read_bytes": "disk_read_mb",
    "disk_write_bytes": "disk_write_mb",
    "disk_read_rate": "disk_read_rate",
    "disk_write_rate": "disk_write_rate",
}
"""Keys of ``get_synchronized_data``, and the fields of a sample."""


class _Values:
    """An attribute of a profiler: one field of all samples."""

    def __set_name__(self, _: type[QEffFigures], name: str) -> None:
        self._field = _SYNCHRONIZED.get(name, name)

    def __get__(self, figures: QEffFigures, _: type[QEffFigures]) -> list[float]:
        return [getattr(sample, self._field) for sample in figures.samples]


class QEffFigures:
    """What can be read of a profiler at any time: the figures up to now."""

    def __init__(self, config: ProfilerConfig) -> None:
        """Begin without a recording."""
        self.config = config
        self._created_ns = time.monotonic_ns()
        self._profiler: Profiler | None = None
        self._ended: list[Session] = []
        self._outside: list[tuple[int, str]] = []
        """Marks made while nothing was recorded: CLOCK_MONOTONIC in nanoseconds, and the name."""
        self._known: Recorded | None = None
        """What was recorded, while nothing is added to it."""

    @property
    def monitoring(self) -> bool:
        """Whether a recording is running."""
        return self._profiler is not None and self._profiler.is_running

    @property
    def sampling_interval(self) -> float:
        """The seconds from one sample to the next, as in ``config``."""
        return self.config.sampling_interval

    @property
    def output_file(self) -> str:
        """The picture's default path, as in ``config``."""
        return self.config.output_file or DEFAULT_PICTURE

    @property
    def verbose(self) -> bool:
        """Whether marks are logged, as in ``config``."""
        return self.config.verbose

    @property
    def session(self) -> Session:
        """The last recording, up to now. Raises NncfToolsError before the start."""
        if self._profiler is None:
            raise NncfToolsError("nothing was recorded: start the profiler first")
        return self._profiler.session

    @property
    def samples(self) -> list[ProfileSample]:
        """All samples."""
        recorded = self._recorded()
        return [] if recorded is None else list(recorded.samples)

    @property
    def timestamps(self) -> list[dt.datetime]:
        """The local time of each sample."""
        return [sample.timestamp for sample in self.samples]

    rss_memory = _Values()
    """RSS of each sample in MB."""
    vms_memory = _Values()
    """Virtual size in MB."""
    cpu_usage = _Values()
    """CPU usage over 0.2 s in percent of all cores, from 0 to 100."""
    disk_read_bytes = _Values()
    """MB read by system calls since the start, also from the page cache and pipes."""
    disk_write_bytes = _Values()
    """MB written by system calls since the start."""
    disk_read_rate = _Values()
    """MB/s read by system calls since the previous sample."""
    disk_write_rate = _Values()
    """MB/s written by system calls since the previous sample."""
    storage_read_mb = _Values()
    """MB that storage delivered since the start."""
    storage_write_mb = _Values()
    """MB sent to storage since the start."""

    def get_synchronized_data(self) -> dict[str, list[float]]:
        """Return lists of equal length with a value per sample; an empty dict if nothing was recorded.

        ``timestamps`` are seconds since the first sample; the others are the properties of the same names.
        """
        recorded = self._recorded()
        if recorded is None:
            return {}
        values = {name: [getattr(each, field) for each in recorded.samples] for name, field in _SYNCHRONIZED.items()}
        return {"timestamps": list(recorded.seconds), **values}

    @property
    def peak_rss(self) -> float:
        """The RSS peak in MB: a lower bound, from the samples and the kernel's high-water marks."""
        return self._peak("rss")[0]

    @property
    def peak_vms(self) -> float:
        """The largest sample of the virtual size in MB."""
        return self._peak("vms")[0]

    @property
    def peak_rss_time(self) -> dt.datetime | None:
        """The local time of the largest sample of RSS."""
        return self._peak("rss")[1]

    @property
    def peak_vms_time(self) -> dt.datetime | None:
        """The local time of the largest sample of the virtual size."""
        return self._peak("vms")[1]

    @property
    def peak_operation(self) -> str | None:
        """The operation with the largest sample of RSS; ``Initialization`` before any, None if there is no sample."""
        recorded = self._recorded()
        return None if recorded is None else recorded.peak_operation

    @property
    def operations(self) -> list[tuple[dt.datetime, str]]:
        """The marks in order, also those before the start: local time and name."""
        recorded = self._recorded()
        if recorded is None:
            return [(_moment(t_ns), name) for t_ns, name in self._outside]
        return [(recorded.local(mark.start_s), mark.name) for mark in recorded.session.marks]

    @property
    def current_operation(self) -> str:
        """The last mark; ``Initialization`` before any."""
        marks = self.operations
        return marks[-1][1] if marks else BEFORE_ALL

    @property
    def operation_start_time(self) -> dt.datetime:
        """The local time of the last mark; before any, of the construction."""
        marks = self.operations
        return marks[-1][0] if marks else _moment(self._created_ns)

    @property
    def operation_durations(self) -> dict[str, float]:
        """The seconds that each operation took; of a name marked twice, the last one."""
        return {operation.name: operation.duration_s for operation in self._measured()}

    @property
    def operation_memory_deltas(self) -> dict[str, float]:
        """The MB by which RSS grew in each operation; of a name marked twice, the last one."""
        return {of.name: MB.of(of.delta) for of in self._measured() if of.delta is not None}

    def _peak(self, metric: str) -> tuple[float, dt.datetime | None]:
        recorded = self._recorded()
        return (0.0, None) if recorded is None else recorded.peak(metric)

    def _measured(self) -> list[Operation]:
        recorded = self._recorded()
        return [] if recorded is None else recorded.measured

    def _recorded(self) -> Recorded | None:
        """Return what was recorded up to now; None if there is nothing."""
        if self._known is not None and not self.monitoring:
            return self._known
        sessions = [*self._ended, *([self.session] if self.monitoring else [])]
        if not any(len(session.samples) for session in sessions):
            return None
        on = self.config
        self._known = Recorded(sessions, self._outside, cpu=on.enable_cpu_monitoring, disk=on.enable_disk_monitoring)
        return self._known


def _moment(t_ns: int) -> dt.datetime:
    """Return a moment of CLOCK_MONOTONIC as local time."""
    return local(time.time() - (time.monotonic_ns() - t_ns) / 1e9)
