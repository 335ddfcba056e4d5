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
    "real (mb)": "rss",
    "mem real": "rss",
    "virtual (mb)": "vms",
    "mem virtual": "vms",
    "cpu (%)": "cpu",
    "cpu": "cpu",
    "nproc": "processes",
    "read bytes": "read_bytes",
    "write bytes": "write_bytes",
}
"""Metrics by column name; other columns are ignored."""


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
    others = (
        r"(?P<header># *Elapsed time  .*|elapsed_time,.*)|Attaching to process (?P<pid>\d{1,9})|"
        r"Starting up command '(?P<command>.*)' and attaching to process|"
        r"Process finished \((?P<duration>\d{1,9}\.\d+) seconds\)"
    )

    def reset(self) -> None:
        super().reset()
        self._cpu_s = 0.0

    def take(self, row: dict[str, Any]) -> None:
        if "cpu" in row:  # of the time since the row before, in per cent of one core
            self._cpu_s += (row[TIME] - self.table.last_s) * row["cpu"] / 100 if self.table.taken else 0.0
            row["cpu"] = self._cpu_s
        super().take(row)

    def take_other(self, found: dict[str, str], number: int) -> None:
        super().take_other(found, number)
        if "header" in found:
            self.separator = b"," if "," in found["header"] else None
            names = re.split(r" {2,}|,", found["header"].strip("# ").lower().replace("_", " "))
            self.begin_again(number, [_COLUMNS.get(name, f"?{name}") for name in names])

    def known(self) -> dict[str, Any]:
        return {
            "command": words(self.found.get("command", "")),
            "attached_to": int(self.found.get("pid", 0)) or None,
            "duration_s": max(float(self.found.get("duration", 0)), self.table.last_s),
        }
