"""psrecord (1.4): a header, then one row per sample, plain or CSV.

Memory is in units of 2^20 bytes, CPU in per cent of one core since the previous row (psutil's ``cpu_percent``: 0 in a
process's first row). Read and write bytes are storage I/O of the live processes. The text that psrecord prints around
the rows on standard output is read, too.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from nncftools.importers.children import words
from nncftools.importers.counting import CpuTime, MonotonicTotal
from nncftools.importers.merged import Table
from nncftools.importers.row_log import RowLog
from nncftools.importers.session import session_of
from nncftools.session.samples import TIME
from nncftools.units import MemoryUnit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.importers.source import Head, Source
    from nncftools.session.session import Session

_PLAIN = re.compile(rb"# *Elapsed time  +CPU \(%\)  +Real \(MB\)  +Virtual \(MB\)")
_CSV = b"elapsed_time,"
_CSV_BEGINS = b"elapsed_time,nproc,cpu,mem_real,mem_virtual"
_PREAMBLE = 3
"""Lines that may precede the header."""
_CPU = "cpu"
_MEMORY = ("rss", "vms")
_COUNTERS = ("read_bytes", "write_bytes")
_METRICS = (*_MEMORY, _CPU, "processes", *_COUNTERS)
_NAMES = {
    "elapsed time": TIME,
    "elapsed_time": TIME,
    "cpu (%)": _CPU,
    "cpu": _CPU,
    "real (mb)": "rss",
    "mem_real": "rss",
    "virtual (mb)": "vms",
    "mem_virtual": "vms",
    "nproc": "processes",
    "read bytes": "read_bytes",
    "read_bytes": "read_bytes",
    "write bytes": "write_bytes",
    "write_bytes": "write_bytes",
}
"""Metrics by column name; other columns are ignored."""
_COMMAND = re.compile(r"Starting up command '(.*)' and attaching to process")
_PROCESS = re.compile(r"Attaching to process (\d{1,18})")
_FINISHED = re.compile(r"Process finished \((\d{1,9}\.\d+) seconds\)")


def recognises(head: Head) -> bool:
    """Return whether one of the first lines is the header."""
    return any(
        _PLAIN.match(line) is not None or line.startswith(_CSV_BEGINS) for line in map(head.line, range(_PREAMBLE))
    )


def read(source: Source) -> Session:
    """Return the session of the log. Raises SessionFileError."""
    log = _Log(source)
    log.read()
    return log.session()


class _Log(RowLog):
    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._metrics: list[str] = []
        """The metrics of the columns, in order."""
        self._known: dict[str, Any] = {}
        self.reset()

    def reset(self) -> None:
        self._table = Table([name for name in _METRICS if name in self._metrics])
        self._cpu_time = CpuTime()
        self._counters = {name: MonotonicTotal() for name in _COUNTERS}

    def take(self, columns: Sequence[list[float]]) -> None:
        found = dict(zip(self._metrics, columns, strict=True))
        if _CPU in found:
            found[_CPU] = self._cpu_time.take(found[TIME], found[_CPU])
        for name, counter in self._counters.items():
            if name in found:
                found[name] = counter.take(found[name])
        self._table.extend(found)

    def take_line(self, number: int, line: bytes) -> bool:
        if _PLAIN.match(line):
            return self._begin(number, re.split(r" {2,}", line.decode("ascii", "replace").strip("# ")), None)
        if line.startswith(_CSV):
            return self._begin(number, line.decode("ascii", "replace").strip().split(","), b",")
        return self._take_printed(line.decode("utf-8", "backslashreplace"))

    def _begin(self, number: int, names: list[str], separator: bytes | None) -> bool:
        """Read a header; return whether it is one."""
        metrics = [_NAMES.get(name.lower(), f"?{name}") for name in names]
        if TIME not in metrics:
            return False
        self.begin_again(number)
        self._metrics = metrics
        self.width = len(metrics)
        self.time_at = metrics.index(TIME)
        self.separator = separator
        self.reset()
        return True

    def _take_printed(self, line: str) -> bool:
        """Read a line that psrecord prints around the log."""
        if found := _COMMAND.fullmatch(line):
            self._known["command"] = words(found[1])
        elif found := _PROCESS.fullmatch(line):
            self._known["attached_to"] = int(found[1])
        elif found := _FINISHED.fullmatch(line):
            self._known["duration_s"] = max(float(found[1]), self._table.last_s)
        else:
            return False
        return True

    def session(self) -> Session:
        return session_of(self._source, "psrecord", self._table, unit=MemoryUnit.MiB.factor, **self._known)
