"""psrecord (1.4): a header, then one row per sample, plain or CSV.

Memory is in units of 2^20 bytes, CPU in per cent of one core since the previous row (psutil's ``cpu_percent``: 0 in a
process's first row). Read and write bytes are storage I/O of the live processes. The text that psrecord prints around
the rows on standard output is read, too.
"""

from __future__ import annotations

import re
from itertools import accumulate
from math import isnan, nan
from typing import Any

from nncftools.importers.source import Head, Source
from nncftools.importers.table import RowLog, words
from nncftools.intake import is_pid
from nncftools.session.samples import TIME
from nncftools.session.session import Session
from nncftools.units import MemoryUnit

_PLAIN = re.compile(rb"# *Elapsed time  +CPU \(%\)  +Real \(MB\)  +Virtual \(MB\)")
_CSV = b"elapsed_time,"
_CSV_BEGINS = b"elapsed_time,nproc,cpu,mem_real,mem_virtual"
_PREAMBLE = 3
"""Lines that may precede the header."""
_NAMES = {
    **dict.fromkeys(("elapsed time", "elapsed_time"), TIME),
    **dict.fromkeys(("real (mb)", "mem_real"), "rss"),
    **dict.fromkeys(("virtual (mb)", "mem_virtual"), "vms"),
    **dict.fromkeys(("cpu (%)", "cpu"), "cpu"),
    "nproc": "processes",
    **dict.fromkeys(("read bytes", "read_bytes"), "read_bytes"),
    **dict.fromkeys(("write bytes", "write_bytes"), "write_bytes"),
}
"""Metrics by column name; other columns are ignored."""
_COMMAND = re.compile(r"Starting up command '(.*)' and attaching to process")
_PROCESS = re.compile(r"Attaching to process (\d+)")
_FINISHED = re.compile(r"Process finished \((\d{1,9}\.\d+) seconds\)")


def recognises(head: Head) -> bool:
    """Return whether one of the first lines is the header."""
    lines = map(head.line, range(_PREAMBLE))
    return any(_PLAIN.match(line) is not None or line.startswith(_CSV_BEGINS) for line in lines)


def read(source: Source) -> Session:
    """Return the session of the log. Raises SessionFileError."""
    return _Log(source).read()


class _Log(RowLog):
    recorder = "psrecord"
    metrics = tuple(dict.fromkeys(_NAMES.values()))
    unit = MemoryUnit.MiB.factor

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._known: dict[str, Any] = {}

    def reset(self) -> None:
        super().reset()
        self.counters.pop("cpu", None)
        self._cpu_s, self._before_s = 0.0, nan

    def take(self, columns: dict[str, list[float]]) -> None:
        if "cpu" in columns:
            columns["cpu"] = self._cpu_seconds(columns[TIME], columns["cpu"])
        super().take(columns)

    def _cpu_seconds(self, time_s: list[float], percent: list[float]) -> list[float]:
        """Return the CPU time up to each row; 100 % is one core, and the first row covers no time."""
        before = [time_s[0] if isnan(self._before_s) else self._before_s, *time_s[:-1]]
        seconds = ((now - then) * busy / 100 for now, then, busy in zip(time_s, before, percent, strict=True))
        _, *totals = accumulate(seconds, initial=self._cpu_s)
        self._before_s, self._cpu_s = time_s[-1], totals[-1]
        return totals

    def take_line(self, number: int, line: bytes) -> bool:
        if _PLAIN.match(line):
            return self._begin(number, re.split(r" {2,}", line.decode("ascii", "replace").strip("# ")), None)
        if line.startswith(_CSV):
            return self._begin(number, line.decode("ascii", "replace").strip().split(","), b",")
        text = line.decode("utf-8", "backslashreplace")  # what psrecord prints around the log
        if match := _COMMAND.fullmatch(text):
            self._known["command"] = words(match[1])
        elif (match := _PROCESS.fullmatch(text)) and is_pid(match[1]):
            self._known["attached_to"] = int(match[1])
        elif match := _FINISHED.fullmatch(text):
            self._known["duration_s"] = max(float(match[1]), self.table.last_s)
        else:
            return False
        return True

    def _begin(self, number: int, names: list[str], separator: bytes | None) -> bool:
        """Read a header; return whether it is one."""
        columns = [_NAMES.get(name.lower(), f"?{name}") for name in names]
        if TIME not in columns:
            return False
        self.begin_again(number, columns)
        self.separator = separator
        return True

    def known(self) -> dict[str, Any]:
        return self._known
