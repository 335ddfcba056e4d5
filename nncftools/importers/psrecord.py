"""psrecord (1.4): a header, then one row per sample, plain or CSV.

Memory is in units of 2^20 bytes, CPU in per cent of one core since the previous row (psutil's ``cpu_percent``: 0 in a
process's first row). Read and write bytes are storage I/O of the live processes. The text that psrecord prints around
the rows on standard output is read, too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate
from operator import mul, sub
from typing import Any

from nncftools.importers.source import Columns, RowLog, split_command
from nncftools.metrics import is_counter
from nncftools.session.samples import TIME
from nncftools.units import MemoryUnit

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


class Log(RowLog):
    """The header before the rows names their columns."""

    head = re.compile(
        rb"(.*\n){1,3}(# *Elapsed time  +CPU \(%\)  +Real \(MB\)  +Virtual \(MB\)|elapsed_time,nproc,cpu,mem_real,)"
    )
    """Two lines may precede the header."""
    recorder = "psrecord"
    columns: Sequence[str] = (TIME, "cpu", "rss", "vms")
    unit = MemoryUnit.MiB.factor
    first = "header"
    others = (
        r"(?P<header># *Elapsed time  .*|elapsed_time,.*)|Attaching to process (?P<pid>\d{1,9})|"
        r"Starting up command '(?P<command>.*)' and attaching to process|"
        r"Process finished \((?P<duration>\d{1,9}\.\d+) seconds\)"
    )

    def reset(self) -> None:
        """Drop all rows."""
        super().reset()
        self._last: Columns = {}
        """The last row, as in the log."""

    def take(self, columns: Columns) -> None:
        """Add rows, with CPU time and bytes counted from the first row."""
        rises = {}
        for name, values in columns.items():
            previous = [*self._last.get(name, values[:1]), *values]
            rises[name] = list(map(sub, values, previous))
        self._last = {name: values[-1:] for name, values in columns.items()}
        for name in filter(is_counter, columns):
            gains = [max(0.0, rise) for rise in rises[name]]
            if name == "cpu":  # per cent of a core since the previous row
                products = map(mul, columns[name], rises[TIME])
                gains = [product / 100 for product in products]
            total = self.table.columns[name][-1:] or [0.0]
            columns[name] = list(accumulate(gains, initial=total[0]))[1:]
        super().take(columns)

    def take_other(self, found: dict[str, str]) -> None:
        """Take the columns that a header names, or a fact that psrecord printed."""
        super().take_other(found)
        if "header" in found:
            header = found["header"].strip("# ").lower().replace("_", " ")
            names = re.split(r" {2,}|,", header)
            self.columns = [_COLUMNS.get(name, f"?{name}") for name in names]
            self.reset()

    def known(self) -> dict[str, Any]:
        """Return the facts that psrecord printed."""
        return {
            "command": split_command(self.found.get("command", "")),
            "attached_to": int(self.found.get("pid", 0)) or None,
            "duration_s": float(self.found.get("duration", 0)),
        }
