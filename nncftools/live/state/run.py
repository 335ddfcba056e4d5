"""The state of a run up to now; it takes the same memory after a minute and after a day."""

from __future__ import annotations

import shlex
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nncftools.limits.needs import MACHINE, smallest
from nncftools.live.state.history import History
from nncftools.live.state.operations import LiveOperations, RecordedOperations
from nncftools.metrics import cpu_counters, is_memory
from nncftools.session.peaks import noise
from nncftools.units import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nncftools.journal.lines import ProcessFields
    from nncftools.limits.needs import Effective
    from nncftools.session.model import Exit, Frame, Host, MemoryLimit

RECENT_S = 30.0
"""How far back a trend looks."""
_RECENT_STEP_S = 0.25
_WORDS, _CHARACTERS = 64, 400
"""So much of a command is kept: it tells processes apart."""


@dataclass
class LiveProcess:
    """A process that is alive; ``rss`` in bytes, None for unknown."""

    pid: int | None = None
    name: str = ""
    rss: int | None = None
    command: Sequence[str] = ()


class SampledPeak(NamedTuple):
    """The largest value of a metric so far, and when it was reached, apart from a small drift."""

    value: float
    at_s: float
    reached: float
    """The value at that time, or a little more."""
    operation: str | None = None
    """The outermost operation that holds it, empty for none; None where only the time says which one it was."""


@dataclass
class Run:
    """A run up to now."""

    command: str
    """As it could be typed. For a process that was attached to, it becomes known during the run."""
    columns: Sequence[str]
    interval_s: float
    host: Host
    attached_to: int | None = None
    operations: LiveOperations | RecordedOperations = field(default_factory=LiveOperations)
    processes: dict[int, LiveProcess] = field(default_factory=dict)
    """The processes that are alive, by their number in the session."""
    latest: dict[str, float] = field(default_factory=dict)
    """The last known value of every metric."""
    latest_s: float = 0.0
    peaks: dict[str, SampledPeak] = field(default_factory=dict)
    recent: deque[tuple[float, float]] = field(default_factory=deque)
    """Seconds and bytes of the last half minute: of what will be exhausted first, as far as it was recorded."""
    limits: list[MemoryLimit] = field(default_factory=list)
    """Those that processes were seen with."""
    max_memory: int | None = None
    """The limit of the recording itself."""
    _recent_of: str = ""
    """The metric of ``recent``."""
    grown: tuple[Frame, float] | None = None
    """Where the program stood when memory last grew, and when; None for unknown."""
    ended: bool = False
    exit: Exit | None = None

    def __post_init__(self) -> None:
        """Begin without samples."""
        self.take_columns(self.columns)

    def take_columns(self, columns: Sequence[str]) -> None:
        """Set the columns of the samples, before the first one."""
        self.columns = columns
        self.history = History(columns, self.interval_s)

    def take_rows(self, time_s: NDArray[np.float64], rows: NDArray[np.float64]) -> None:
        """Take samples in the order of their times, a column for each metric; NaN is unknown."""
        kept = time_s >= np.maximum.accumulate(np.append(self.latest_s, time_s))[:-1]
        time_s, rows = time_s[kept], rows[kept]
        if not len(time_s):
            return
        self.history.add(time_s, rows)
        self.latest_s = float(time_s[-1])
        for name, column in zip(self.columns, rows.T, strict=True):
            known = np.flatnonzero(~np.isnan(column))
            if not len(known):
                continue
            self.latest[name] = float(column[known[-1]])
            if is_memory(name):
                highest = float(column[known].max())
                first = known[np.argmax(column[known] >= highest - noise(highest))]
                self._reach(name, highest, float(time_s[first]))
        self._remember(time_s, rows)

    @property
    def limit(self) -> Effective | None:
        """The limit that RSS meets first; None when the machine's memory is the limit."""
        peak = self.peaks.get("rss")
        held = 0.0 if peak is None else peak.value
        found = smallest(self.limits, held, self.max_memory, self.host.memory)
        return None if found is None or found.kind == MACHINE else found

    def take_peak(self, name: str, peak: SampledPeak) -> None:
        """Take the peak of the whole run, of a metric."""
        self.peaks[name] = peak

    def take_rise(self, level: float, from_s: float, to_s: float) -> None:
        """Take a level of RSS that a high-water mark proves between two moments."""
        self._reach("rss", level, (from_s + to_s) / 2)

    def _reach(self, name: str, value: float, at_s: float) -> None:
        before = self.peaks.get(name)
        if before is None or value - noise(value) > before.reached:
            self.peaks[name] = SampledPeak(value, at_s, value)
        elif value > before.value:
            self.peaks[name] = before._replace(value=value)

    def _remember(self, time_s: NDArray[np.float64], rows: NDArray[np.float64]) -> None:
        columns = list(self.columns)
        name = "system" if "system" in columns and self.host.memory and self.limit is None else "rss"
        if name not in columns:
            return
        if name != self._recent_of:
            self.recent.clear()
            self._recent_of = name
        begin = int(np.searchsorted(time_s, self.latest_s - RECENT_S))
        for at_s, level in zip(time_s[begin:].tolist(), rows[begin:, columns.index(name)].tolist(), strict=True):
            if not self.recent or at_s - self.recent[-1][0] >= _RECENT_STEP_S:
                self.recent.append((at_s, level))
        while self.recent and self.recent[0][0] < self.latest_s - RECENT_S:
            self.recent.popleft()

    def take_process(self, fields: ProcessFields) -> None:
        """Take facts of a process; a process that has ended is forgotten."""
        number = fields["id"]
        mark = fields.get("high_water_mark")
        if mark and "rss" in self.columns and not fields.get("left_out"):
            self._reach("rss", mark, self.latest_s)
        if fields.get("end_s") is not None or fields.get("left_out"):
            gone = self.processes.pop(number, None)
            if gone is not None and gone.pid is not None and isinstance(self.operations, LiveOperations):
                self.operations.process_ended(gone.pid, float(fields.get("end_s") or self.latest_s))
            return
        process = self.processes.setdefault(number, LiveProcess())
        process.pid = fields.get("pid", process.pid)
        process.name = fields.get("name", process.name)
        if "command" in fields:
            process.command = [word[:_CHARACTERS] for word in fields["command"][:_WORDS]]
        if number == 0 and self.attached_to is not None and fields.get("command"):
            self.command = printable(shlex.join(fields["command"]))

    def cpu(self) -> float | None:
        """Return how many cores are busy, on average over the last second."""
        return self.rate(cpu_counters(self.columns))

    def rate(self, counters: Sequence[str]) -> float | None:
        """Return at which rate the sum of some counters rose, on average over the last second; None for unknown."""
        span_s = max(1.0, 2 * self.interval_s)
        begin_s = max(0.0, self.latest_s - span_s)
        found = [self.history.rates(name, begin_s, self.latest_s, 1) for name in counters]
        return float(sum(rates[0] for rates in found)) if found and all(len(rates) for rates in found) else None
