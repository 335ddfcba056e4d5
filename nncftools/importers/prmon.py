"""prmon (1.0 to 3.1): a header of names, then one row per sample, both tab-separated.

The columns and their order depend on the version and on the active monitors. ``Time`` is in Unix seconds, ``wtime`` in
seconds since the first process started, memory in units of 1024 bytes, CPU time in seconds, I/O in bytes. Values that
``prmon_compress_output.py`` dropped are missing. The summary, ``prmon.json``, holds no samples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nncftools.errors import SessionFileError
from nncftools.importers.counting import MonotonicTotal
from nncftools.importers.merged import Table
from nncftools.importers.row_log import RowLog
from nncftools.importers.session import session_of
from nncftools.metrics import is_counter
from nncftools.session.samples import TIME
from nncftools.units import MemoryUnit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.importers.source import Head, Source
    from nncftools.session.session import Session

_CLOCK = "time"
_SINCE_START = "wtime"
_METRICS = {
    "pss": "pss",
    "rss": "rss",
    "swap": "swap",
    "vmem": "vms",
    "cgroup_mem_current": "cgroup",
    "utime": "cpu_user",
    "stime": "cpu_system",
    "read_bytes": "read_bytes",
    "write_bytes": "write_bytes",
    "rchar": "read_chars",
    "wchar": "write_chars",
    "nprocs": "processes",
    "nthreads": "threads",
}
"""Metrics by column name; other columns are ignored."""


def recognises(head: Head) -> bool:
    """Return whether it begins with the header, or is the summary."""
    return _names(head.line(0)) is not None or _is_summary(head)


def read(source: Source) -> Session:
    """Return the session of the log. Raises SessionFileError, also for the summary."""
    if _is_summary(source.head):
        raise SessionFileError(
            f"{source.path}: prmon's summary, which holds no samples; its text file (prmon.txt) does"
        )
    log = _Log(source)
    log.read()
    return log.session()


def _is_summary(head: Head) -> bool:
    return head.text.lstrip().startswith(b"{") and all(key in head.text for key in (b'"Avg"', b'"Max"', b'"wtime"'))


def _names(line: bytes) -> list[str] | None:
    """Return the column names of a header, in lower case (the first versions had VMEM, PSS, RSS, Swap)."""
    names = line.decode("utf-8", "replace").lower().split("\t")
    return names if names[0] == _CLOCK and _SINCE_START in names else None


class _Log(RowLog):
    separator = b"\t"
    unknown = b""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._names: list[str] = []
        self._began: float | None = None
        self.reset()

    def reset(self) -> None:
        self._began = None
        self._table = Table([metric for name, metric in _METRICS.items() if name in self._names])
        self._counters = {metric: MonotonicTotal(0.0) for metric in _METRICS.values() if is_counter(metric)}

    def take_line(self, number: int, line: bytes) -> bool:
        names = _names(line)
        if names is None:
            return False
        self.begin_again(number)
        self._names = names
        self.width = len(names)
        self.time_at = names.index(_SINCE_START)
        self.reset()
        return True

    def take(self, columns: Sequence[list[float]]) -> None:
        by_name = dict(zip(self._names, columns, strict=True))
        found = {TIME: by_name[_SINCE_START]}
        if self._began is None:
            self._began = by_name[_CLOCK][0] - found[TIME][0]
        for name, metric in _METRICS.items():
            if name in by_name:
                counter = self._counters.get(metric)
                found[metric] = by_name[name] if counter is None else counter.take(by_name[name])
        self._table.extend(found)

    def session(self) -> Session:
        return session_of(self._source, "prmon", self._table, unit=MemoryUnit.KiB.factor, began=self._began)
