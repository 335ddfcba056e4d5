"""What is known of a run up to now; it takes the same memory after a minute and after a day."""

from __future__ import annotations

import shlex
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from nncftools.live.state.history import History
from nncftools.live.state.operations import Noted, Operations
from nncftools.metrics import cpu_counters, is_memory
from nncftools.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nncftools.journal.lines import ProcessFields
    from nncftools.session.model import Exit, Host

RECENT_S = 30.0
"""How far back a trend looks."""
_RECENT_STEP_S = 0.25


@dataclass(frozen=True)
class Facts:
    """What does not change while a run goes on."""

    command: str
    """As one could type it."""
    columns: Sequence[str]
    interval_s: float
    host: Host
    attached_to: int | None = None


@dataclass
class Lived:
    """A process that is alive; ``rss`` in bytes, None for unknown."""

    pid: int | None = None
    name: str = ""
    rss: int | None = None


@dataclass(frozen=True)
class Top:
    """The largest sample of a metric, and when it was."""

    value: float
    at_s: float


@dataclass
class Run:
    """A run up to now."""

    facts: Facts
    operations: Operations = field(default_factory=Noted)
    processes: dict[int, Lived] = field(default_factory=dict)
    """Those that are alive, by their number in the session."""
    latest: dict[str, float] = field(default_factory=dict)
    """The last known value of every metric."""
    latest_s: float = 0.0
    tops: dict[str, Top] = field(default_factory=dict)
    recent: deque[tuple[float, dict[str, float]]] = field(default_factory=deque)
    """Seconds, RSS and system of the last half minute."""
    ended: bool = False
    exit: Exit | None = None
    command: str = ""
    """As one could type it; of a process that was attached to, it becomes known."""

    def __post_init__(self) -> None:
        """Begin without samples."""
        self.command = self.command or self.facts.command
        self.take_columns(self.facts.columns)

    def take_columns(self, columns: Sequence[str]) -> None:
        """Take what samples hold, before the first one."""
        self.facts = replace(self.facts, columns=columns)
        self.history = History(columns, self.facts.interval_s)
        self._levels = [(place, name) for place, name in enumerate(columns) if is_memory(name)]

    def take_rows(self, time_s: NDArray[np.float64], rows: NDArray[np.float64]) -> None:
        """Take samples in the order of their times, a column for each metric; NaN is unknown."""
        kept = time_s >= self.latest_s
        if not kept.all():
            time_s, rows = time_s[kept], rows[kept]
        if not len(time_s):
            return
        self.history.add(time_s, rows)
        self.latest_s = float(time_s[-1])
        for place, name in self._levels:
            column = rows[:, place]
            if np.isnan(column).all():
                continue
            highest = int(np.nanargmax(column))
            top = self.tops.get(name)
            if top is None or column[highest] > top.value:
                self.tops[name] = Top(float(column[highest]), float(time_s[highest]))
        for place, name in enumerate(self.facts.columns):
            known = np.flatnonzero(~np.isnan(rows[-4096:, place]))
            if len(known):
                self.latest[name] = float(rows[-4096:][known[-1], place])
        self._remember(time_s, rows)

    def _remember(self, time_s: NDArray[np.float64], rows: NDArray[np.float64]) -> None:
        wanted = [(place, name) for place, name in self._levels if name in {"rss", "system"}]
        begin = int(np.searchsorted(time_s, self.latest_s - RECENT_S))
        last_s = self.recent[-1][0] if self.recent else -RECENT_S
        for row in range(begin, len(time_s)):
            if time_s[row] - last_s >= _RECENT_STEP_S:
                last_s = float(time_s[row])
                self.recent.append((last_s, {name: float(rows[row, place]) for place, name in wanted}))
        while self.recent and self.recent[0][0] < self.latest_s - RECENT_S:
            self.recent.popleft()

    def take_process(self, fields: ProcessFields) -> None:
        """Take what became known of a process; those that have ended are forgotten."""
        number = fields["id"]
        if fields.get("end_s") is not None or fields.get("left_out"):
            gone = self.processes.pop(number, None)
            if gone is not None and gone.pid is not None and isinstance(self.operations, Noted):
                self.operations.process_ended(gone.pid, float(fields.get("end_s") or self.latest_s))
            return
        lived = self.processes.setdefault(number, Lived())
        lived.pid = fields.get("pid", lived.pid)
        lived.name = fields.get("name", lived.name)
        if number == 0 and self.facts.attached_to is not None and fields.get("command"):
            self.command = printable(shlex.join(fields["command"]))

    def cpu(self) -> float | None:
        """Return how many cores are busy, on average over the last second."""
        span_s = max(1.0, 2 * self.facts.interval_s)
        begin_s = max(0.0, self.latest_s - span_s)
        found = [self.history.rates(name, begin_s, self.latest_s, 1) for name in cpu_counters(self.facts.columns)]
        return float(sum(rates[0] for rates in found)) if found and all(len(rates) for rates in found) else None
