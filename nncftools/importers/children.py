"""The processes that a log lists one by one, each with its RSS over time, in bounded memory."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from nncftools.importers.merged import MAX_ROWS, Merged
from nncftools.session.model import Process, Series
from nncftools.session.samples import TIME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.importers.problems import Problems

MAX_PROCESSES = 10_000
_RSS = "rss"


class Children:
    """Collects samples by process. Samples with the same PID belong to the same process."""

    def __init__(self) -> None:
        """Start without processes."""
        self._left_out = False
        self._known: dict[int | None, _Child] = {}
        self._values = 0

    def __bool__(self) -> bool:
        return bool(self._known)

    def take(self, pid: int | None, time: float, rss: float, command: Sequence[str] = ()) -> None:
        """Add a sample, in the log's units; PID None is the one process whose PID is unknown."""
        child = self._known.get(pid)
        if child is None:
            if len(self._known) == MAX_PROCESSES:
                self._left_out = True
                return
            child = self._known[pid] = _Child(command)
        child.take(time, rss)
        self._values += 1
        if self._values > MAX_ROWS:
            for child in self._known.values():
                child.series.halve()
            self._values = sum(len(child.series) for child in self._known.values())

    def warn(self, problems: Problems) -> None:
        """Warn if processes were left out."""
        if self._left_out:
            problems.warn(f"only the first {MAX_PROCESSES:,} processes are listed; RSS is the sum of all")

    def processes(self, end: float, *, unit: int = 1, zero: float = 0.0) -> list[Process]:
        """Return the processes; those with a row at ``end``, the time of the last row, had not ended.

        ``unit`` is the size of the log's unit in bytes, ``zero`` the time of the start.
        """
        known = enumerate(self._known.items())
        return [child.process(number, pid, end - zero, unit, zero) for number, (pid, child) in known]


class _Child:
    def __init__(self, command: Sequence[str]) -> None:
        self.series = Merged([_RSS])
        self._command = list(command)
        self._samples = 0

    def take(self, time_s: float, rss: float) -> None:
        self._samples += 1
        self.series.new[TIME].append(time_s)
        self.series.new[_RSS].append(rss)

    def process(self, number: int, pid: int | None, end_s: float, unit: int, zero: float) -> Process:
        columns = self.series.columns()
        time_s = [time - zero for time in columns[TIME]]
        rss = [round(value * unit) for value in columns[_RSS]]
        return Process(
            id=number,
            pid=pid,
            name=os.path.basename(self._command[0]) if self._command else "",  # noqa: PTH119 — not a path of this machine
            command=self._command,
            start_s=time_s[0],
            end_s=time_s[-1] if time_s[-1] < end_s else None,
            samples=self._samples,
            peak_rss=max(rss),
            series=Series(time_s=time_s, rss=rss),
        )


def words(command: str) -> list[str]:
    """Split a command that a log stores as one text into words; return it whole when that fails."""
    try:
        return shlex.split(command)
    except ValueError:
        return [command]
