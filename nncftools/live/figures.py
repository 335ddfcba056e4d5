"""The words and figures of a live view, the same for the drawn view and for plain lines, and how its user sees them.

``Machine`` asks this machine what the recording does not hold: memory and CPU time of processes, and available memory.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from rich.color import ColorSystem

from nncftools import metrics
from nncftools.analysis.code_places import brief_label
from nncftools.limits.needs import Available, available
from nncftools.live.run import Floats, LiveProcess, Run
from nncftools.metrics import is_memory
from nncftools.render.terminal_plot import MOST_LINES, clock
from nncftools.render.view import label
from nncftools.units import MemoryUnit, about_text, brief_size, cores_text, part_text, printable, shortened, size_text

if TYPE_CHECKING:
    import psutil

_MOST = 200
"""The most processes that one reading looks at."""
_MOSTLY_FREE, _HALF_FREE, _SOON_S = 0.9, 0.5, 60.0
_FEWEST = 20
_SHORTEST_S, _RECENT_S, _LATEST_S = 5.0, 30.0, 900.0


def time_until_full(time_s: Floats, used: Floats, available: float, size: float | None) -> float | None:
    """Return the seconds until ``available`` bytes of ``size`` are used up, or None when there is no such trend.

    The trend is the least-squares line through the used bytes of the last half minute, at least 20.
    It counts if

    - it rises, over at least 5 seconds, by more than 16 MiB and by more than three times the standard deviation of the
      residuals;
    - the last figure is above the mean of the second half, and less than a tenth of the rise below the highest one:
      memory that is freed now and then need not grow further;
    - the memory is used up within a quarter of an hour, and within thirty times the span of the figures. With half of
      it free, only the next minute is foretold; with nine tenths free, nothing.
    """
    known = ~np.isnan(used)
    time, value = time_s[known], used[known]
    free = 0.0 if not size else available / size
    if len(time) < _FEWEST or free >= _MOSTLY_FREE:
        return None
    begin = min(int(np.searchsorted(time, time[-1] - _RECENT_S)), len(time) - _FEWEST)
    time, value = time[begin:] - time[-1], value[begin:]
    span_s = -float(time[0])
    if span_s < _SHORTEST_S:
        return None
    slope, level = np.polyfit(time, value, 1)
    risen = slope * span_s
    deviation = float(np.std(value - (level + slope * time)))
    freed = value.max() - value[-1]
    if risen <= max(16 << 20, 3 * deviation, 10 * freed) or value[len(time) // 2 :].mean() >= value[-1]:
        return None
    left_s = available / float(slope)
    most_s = _SOON_S if free >= _HALF_FREE else min(30 * span_s, _LATEST_S)
    return left_s if left_s <= most_s else None


_SCROLLS = {"j": 1, "k": -1, "J": 10, "K": -10}
_OF_DEVICE = metrics.DEVICE_MEMORY


@dataclass(frozen=True)
class ViewSettings:
    """The choices of a viewer."""

    metrics: Sequence[str] = ()
    """The requested memory metrics; empty: those that were recorded."""
    unit: MemoryUnit = MemoryUnit.MiB
    unicode: bool = True
    colours: ColorSystem | None = ColorSystem.EIGHT_BIT
    """None: no colours."""
    choice: int = 0
    """Which of ``charts`` is shown."""
    paused: bool = False
    listing: bool = False
    """Whether the list of processes is as long as there is room."""
    keys: bool = False
    """Whether keys work and are listed."""
    moves: bool = False
    """Whether keys also move in time, as in a replay."""
    first: int = 0
    """How many processes are above the list."""
    helping: bool = False
    """Whether the keys and what they do are shown above the chart."""
    state: str = ""
    """What the title calls this: ``recording``, ``replay x10``."""

    def charts(self, columns: Sequence[str]) -> list[list[str]]:
        """Return what can be charted: the metrics of the run on one axis, then each metric by itself."""
        here = [name for name in columns if is_memory(name)]
        asked = metrics.columns_of(self.metrics, here) or here
        known = {name: metric for name in asked if (metric := metrics.of(name)) is not None and not metric.is_virtual}
        of_run = [name for name, metric in known.items() if metric.scope == metrics.TREE or metric.name == _OF_DEVICE]
        together = sorted(of_run, key=lambda name: known[name].part_of != "")[:MOST_LINES]
        alone = [[name] for name in dict.fromkeys((*asked, *here))]
        return [together, *alone] if len(together) > 1 else alone

    def chart(self, columns: Sequence[str]) -> list[str]:
        """Return the metrics in the chart."""
        charts = self.charts(columns)
        return charts[self.choice % len(charts)] if charts else []


def after(settings: ViewSettings, key: str, processes: int) -> ViewSettings:
    """Return the settings after a key was pressed; with so many processes to scroll. Unknown keys change nothing."""
    if key in {"p", " "}:
        return replace(settings, paused=not settings.paused)
    if key == "m":
        return replace(settings, choice=settings.choice + 1)
    if key == "l":
        return replace(settings, listing=not settings.listing)
    if key == "?":
        return replace(settings, helping=not settings.helping)
    first = settings.first + _SCROLLS.get(key, 0)
    return replace(settings, first=max(0, min(first, processes - 1)))


_NAME = 40
_MINUTE = 60
_ASK_EVERY_S = 1.0
_FEW = 20
_STILL_S = 3.0
"""Growth that was seen this recently is shown as going on."""


class Machine:
    """What the machine of a run reports at the moment of drawing; nothing if the run is on another machine."""

    def __init__(self, *, is_here: bool, proc: str = "/proc") -> None:
        """Ask this machine only if the run is here."""
        self._is_here = is_here
        self._proc = proc
        self._asked_s = -_ASK_EVERY_S
        self._answer = Available()
        self._known: dict[int, psutil.Process] = {}
        """By number in the session."""
        self._readings: dict[int, tuple[int, float | None]] = {}
        """By number in the session: RSS, and busy cores since the reading before."""

    def ask(self, run: Run) -> None:
        """Ask the kernel, at most once a second."""
        if self._is_here and time.monotonic() >= self._asked_s + _ASK_EVERY_S:
            self._asked_s = time.monotonic()
            alive = {} if run.ended else run.processes
            pids = (process.pid for process in alive.values() if process.pid is not None)
            self._answer = available(self._proc, next(pids, None))
            self._read(alive)

    def available(self, run: Run) -> float | None:
        """Return the bytes that the run can still get: the least of machine, control group and limit.

        Of the machine, the recorded figure counts before that of the kernel.
        """
        self.ask(run)
        used, memory = run.latest.get("system"), run.host.memory
        of_machine = max(0.0, memory - used) if used is not None and memory else self._answer.machine
        limit, rss = run.limit, run.latest.get("rss")
        of_limit = limit.size - rss if limit is not None and rss is not None and rss < limit.size else None
        return min((size for size in (of_machine, self._answer.group, of_limit) if size is not None), default=None)

    def processes(self, run: Run) -> list[LiveProcess]:
        """Return the processes that are alive and whose RSS, or the most of it, is known; the largest first."""
        self.ask(run)
        processes = []
        for number, process in run.processes.items():
            rss, cpu = self._readings.get(number, (None, None))
            if process.rss is not None:
                rss = process.rss
            if rss is not None or process.most is not None:
                processes.append(replace(process, rss=rss, cpu=cpu))
        return sorted(processes, key=lambda process: -process.size)

    def _read(self, alive: Mapping[int, LiveProcess]) -> None:
        """Read memory and CPU of the first 200 processes; the CPU of a new one is known from the next reading on."""
        import psutil

        before, self._known, self._readings = self._known, {}, {}
        for number, process in islice(alive.items(), _MOST):
            with contextlib.suppress(psutil.Error):
                known = before.get(number) or psutil.Process(process.pid or 0)
                self._known[number] = known
                cpu = known.cpu_percent() / 100
                self._readings[number] = known.memory_info().rss, cpu if number in before else None


def time_left(run: Run, available: float | None) -> float | None:
    """Return the seconds until the memory or the limit is exhausted; None if the trend does not lead there."""
    if available is None or run.ended:
        return None
    limit, total = run.limit, run.host.memory
    name = "system" if limit is None and total and "system" in run.columns else "rss"
    return time_until_full(*run.history.points(name), available, total if limit is None else limit.size)


def at(moment_s: float) -> str:
    """Return a moment in whole seconds."""
    return clock(float(int(moment_s)))


def charted(run: Run, settings: ViewSettings) -> list[str]:
    """Return the metrics in the chart, without those that would lie on the axis: less than 1/200 of its height."""
    first, *others = settings.chart(run.columns) or [""]
    highest = run.peaks[first].value if first in run.peaks else 0.0
    seen = (name for name in others if name in run.peaks and run.peaks[name].value >= highest / 200)
    return [first, *seen] if first else []


def peak_words(run: Run, settings: ViewSettings, name: str) -> list[str]:
    """Return the peak of a metric, its moment and its operation, as far as they are known; the shortest text first."""
    peak = run.peaks.get(name)
    if peak is None:
        return []
    words = [f"peak {settings.unit.label(peak.value)}", f" at {at(peak.at_s)}"]
    operation = peak.operation
    if operation is None:
        around = (span for span in run.outermost_operations if span.holds(peak.at_s))
        operation = next((span.name for span in around), "")
    return [*words, f" in {shortened(printable(operation), _NAME)}"] if operation else words


def activity(run: Run) -> list[str]:
    """Return how busy the run is: CPU and processes; nothing when it has ended."""
    if run.ended:
        return []
    cores = run.cpu()
    alive = run.latest.get("processes")
    words = [] if cores is None else [f"CPU {cores_text(cores)}"]
    if alive is not None:
        words.append("1 process" if alive == 1 else f"{alive:,.0f} processes")
    return words


def operation_words(run: Run) -> list[str]:
    """Return the names of the open operations, and since when the last one is open; nothing if none is open."""
    spans = [] if run.ended else run.open_operations
    if not spans:
        return []
    names = [shortened(printable(span.name), _NAME) for span in spans]
    if len(names) > 3:  # noqa: PLR2004 — as many as a reader takes in
        names = [names[0], "…", names[-1]]
    return [" › ".join(names), f", for {about_text(max(0.0, run.latest_s - spans[-1].start_s))}"]


def growth(run: Run, room: int | None = None) -> str:
    """Return which code made memory grow last, in at most ``room`` characters; empty if it is unknown."""
    if run.grown is None or run.ended:
        return ""
    frame, at_s = run.grown
    ago_s = max(0.0, run.latest_s - at_s)
    verb, when = ("grows in", "") if ago_s < _STILL_S else ("grew in", f", {at(ago_s)} ago")
    code = brief_label(frame)
    texts = (f"{verb} {name}{when}" for name in (code, code.rpartition("/")[2], code.rpartition(" ")[2]))
    return next((text for text in texts if room is None or len(text) <= room), "")


class MemoryLeft(NamedTuple):
    """How much memory there still is."""

    name: str
    """``limit`` or ``machine``: which memory is meant."""
    amount: str
    exhausted: str
    """When it will be exhausted at this rate; empty for no time soon."""
    used: float | None
    """Which part of it is in use."""


def memory_left(run: Run, available: float | None) -> MemoryLeft:
    """Return which memory is limited, how much of it is available, and for how long."""
    limit, rss, total = run.limit, run.latest.get("rss"), run.host.memory
    left_s = time_left(run, available)
    exhausted = ""
    if left_s is not None:
        exhausted = f"exhausted in about {left_s:.0f} s"
        if left_s >= 2 * _MINUTE:
            exhausted = f"exhausted in about {left_s / _MINUTE:.0f} min"
    if limit is not None and rss is not None:
        amount = f"{part_text(rss, limit.size)}, {limit.share_text(rss)}"
        if available is not None:
            amount += f"; {brief_size(available)} available"
        return MemoryLeft("limit", amount, exhausted, rss / limit.size)
    of_whole = [size_text(total)] if total else []
    if available is None:
        return MemoryLeft("machine", "".join(of_whole), exhausted, None)
    amount = " of ".join([f"{size_text(available)} available", *of_whole])
    return MemoryLeft("machine", amount, exhausted, 1 - available / total if total else None)


def ending(run: Run) -> str:
    """Return how the run ended."""
    if run.exit is None:
        return "ended"
    signal = run.exit.signal
    return f"ended, exit status {run.exit.code if signal is None else 128 + signal}"


def status_line(run: Run, settings: ViewSettings, here: Machine) -> str:
    """Return one plain line for logs."""
    available = here.available(run)
    left = memory_left(run, available)
    memory = ["no memory metric"]
    for name in charted(run, settings)[:1]:
        peak = "".join(peak_words(run, settings, name))
        memory = [f"{label(name)} {settings.unit.label(run.latest.get(name))}", *filter(None, [peak])]
    words = [
        at(run.latest_s),
        ", ".join(memory),
        ", ".join(activity(run)),
        "".join(operation_words(run)),
        growth(run),
    ]
    if available is not None or left.name == "limit":
        amount = f"limit {left.amount}" if left.name == "limit" else left.amount
        words.append(", ".join(filter(None, [amount, left.exhausted])))
    if run.ended:
        words.append(ending(run))
    return "; ".join(filter(None, words))
