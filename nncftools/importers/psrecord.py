"""psrecord (1.4): a header, then one row per sample, plain or CSV.

Memory is in units of 2^20 bytes, CPU in per cent of one core since the previous row (psutil's ``cpu_percent``: 0 in a
process's first row). Read and write bytes are storage I/O of the live processes. The text that psrecord prints around
the rows on standard output is read, too.
"""

from __future__ import annotations

import re
from typing import Any

from nncftools.importers.source import Head, Source
from nncftools.importers.table import RowLog, words
from nncftools.session.samples import TIME
from nncftools.session.session import Session
from nncftools.units import MemoryUnit

_HEAD = re.compile(
    rb"(.*\n){0,2}(# *Elapsed time  +CPU \(%\)  +Real \(MB\)  +Virtual \(MB\)|elapsed_time,nproc,cpu,mem_real,)"
)
"""Two lines may precede the header."""
_COLUMNS = {
    "elapsed time": TIME,
    "real": "rss",
    "mem real": "rss",
    "virtual": "vms",
    "mem virtual": "vms",
    "cpu": "cpu",
    "nproc": "processes",
    "read bytes": "read_bytes",
    "write bytes": "write_bytes",
}
"""Metrics by column name, without unit; other columns are ignored."""


def recognises(head: Head) -> bool:
    """Return whether one of the first lines is the header."""
    return _HEAD.match(head.text) is not None


def read(source: Source) -> Session:
    """Return the session of the log. Raises SessionFileError."""
    return _Log(source).read()


class _Log(RowLog):
    recorder = "psrecord"
    metrics = tuple(dict.fromkeys(_COLUMNS.values()))
    unit = MemoryUnit.MiB.factor

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._known: dict[str, Any] = {}

    def reset(self) -> None:
        super().reset()
        self._cpu_s = 0.0

    def take(self, row: dict[str, Any]) -> None:
        if "cpu" in row:  # of the time since the row before, in per cent of one core
            self._cpu_s += (row[TIME] - self.table.last_s) * row["cpu"] / 100 if self.table.taken else 0.0
            row["cpu"] = self._cpu_s
        super().take(row)

    def _begin(self, header: re.Match[str], number: int) -> None:
        self.separator = b"," if "," in header[0] else None
        names = re.split(r" {2,}|,", header[0].strip("# "))
        plain = [re.sub(r" \(.*\)$", "", name.lower().replace("_", " ")) for name in names]
        self.begin_again(number, [_COLUMNS.get(name, f"?{name}") for name in plain])

    def _take_command(self, match: re.Match[str], _number: int) -> None:
        self._known["command"] = words(match[1])

    def _take_pid(self, match: re.Match[str], _number: int) -> None:
        self._known["attached_to"] = int(match[1])

    def _take_duration(self, match: re.Match[str], _number: int) -> None:
        self._known["duration_s"] = float(match[1])

    def known(self) -> dict[str, Any]:
        duration_s = max(self._known.get("duration_s", 0.0), self.table.last_s)
        return {**self._known, "duration_s": duration_s}

    others = (
        (r"# *Elapsed time  .*|elapsed_time,.*", _begin),
        (r"Starting up command '(.*)' and attaching to process", _take_command),
        (r"Attaching to process (\d{1,9})", _take_pid),
        (r"Process finished \((\d{1,9}\.\d+) seconds\)", _take_duration),
    )
