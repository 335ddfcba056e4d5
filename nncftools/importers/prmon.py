"""prmon (1.0 to 3.1): a header of names, then one row per sample, both tab-separated.

The columns and their order depend on the version and on the active monitors. ``Time`` is in Unix seconds, ``wtime`` in
seconds since the first process started, memory in units of 1024 bytes, CPU time in seconds, I/O in bytes. Values that
``prmon_compress_output.py`` dropped are missing. The summary, ``prmon.json``, holds no samples.
"""

from __future__ import annotations

from nncftools.errors import SessionFileError
from nncftools.importers.source import Head, Source
from nncftools.importers.table import RowLog
from nncftools.session.samples import TIME
from nncftools.session.session import Session
from nncftools.units import MemoryUnit

_CLOCK = "time"
_METRICS = {
    "wtime": TIME,
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
        why = "prmon's summary, which holds no samples; its text file (prmon.txt) does"
        raise SessionFileError(f"{source.path}: {why}")
    return _Log(source).read()


def _is_summary(head: Head) -> bool:
    return head.text.lstrip().startswith(b"{") and all(key in head.text for key in (b'"Avg"', b'"Max"', b'"wtime"'))


def _names(line: bytes) -> list[str] | None:
    """Return the column names of a header, in lower case (the first versions had VMEM, PSS, RSS, Swap)."""
    names = line.decode("utf-8", "replace").lower().split("\t")
    return names if names[0] == _CLOCK and "wtime" in names else None


class _Log(RowLog):
    recorder = "prmon"
    metrics = tuple(_METRICS.values())
    unit = MemoryUnit.KiB.factor
    counted_before = 0.0
    separator = b"\t"
    unknown = b""

    def take_line(self, number: int, line: bytes) -> bool:
        names = _names(line)
        if names is None:
            return False
        self.begin_again(number, [_METRICS.get(name, name) for name in names])
        return True

    def take(self, columns: dict[str, list[float]]) -> None:
        if self.began is None:
            self.began = columns[_CLOCK][0] - columns[TIME][0]
        super().take(columns)
