"""The texts and numbers of the live view, and the user's settings for the view.

The drawn view and the plain status lines use the same texts. ``Machine`` reads values that the recording lacks: memory
and CPU time of processes, and available memory.
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
from nncftools.render.terminal_plot import MOST_LINES, write_clock
from nncftools.render.view import label
from nncftools.units import (
    MemoryUnit,
    about_text,
    brief_size,
    cores_text,
    count_text,
    part_text,
    printable,
    shortened,
    size_text,
)

if TYPE_CHECKING:
    import psutil

_MOST = 200
"""Memory and CPU are read for at most this many processes."""
_MOSTLY_FREE = 0.9
_HALF_FREE = 0.5
_SOON_S = 60.0
_FEWEST = 20
_SHORTEST_S = 5.0
_RECENT_S = 30.0
_LATEST_S = 900.0


def time_until_full(time_s: Floats, used: Floats, available: float, size: float | None) -> float | None:
    """Return the seconds until ``available`` bytes of ``size`` are used up; None if there is no clear trend.

    The trend is a least-squares line through the used bytes of the last 30 seconds (through the last 20 figures if
    these 30 seconds have fewer). The trend is clear if all of these are true:

    - The figures span at least 5 seconds.
    - The line rises by more than 16 MiB, and by more than three times the standard deviation of the residuals.
    - The last figure is above the mean of the second half.
    - The line rises by more than ten times the difference between the largest and the last figure. A larger difference
      means that the program frees memory at times, and perhaps does not need more.
    - The memory will be used up within 15 minutes, and within thirty times the span of the figures. If at least half of
      the memory is free, the memory must be used up within a minute. If at least nine tenths are free, the trend is
      never clear.
    """
    is_known = ~np.isnan(used)
    time = time_s[is_known]
    value = used[is_known]
    free = 0.0 if not size else available / size
    if len(time) < _FEWEST or free >= _MOSTLY_FREE:
        return None
    recent = int(np.searchsorted(time, time[-1] - _RECENT_S))
    begin = min(recent, len(time) - _FEWEST)
    time = time[begin:] - time[-1]
    value = value[begin:]
    span_s = -float(time[0])
    if span_s < _SHORTEST_S:
        return None
    slope, level = np.polyfit(time, value, 1)
    deviation = float(np.std(value - (level + slope * time)))
    freed = value.max() - value[-1]
    is_falling = value[len(time) // 2 :].mean() >= value[-1]
    if is_falling or slope * span_s <= max(16 << 20, 3 * deviation, 10 * freed):
        return None
    left_s = available / float(slope)
    most_s = _SOON_S if free >= _HALF_FREE else min(30 * span_s, _LATEST_S)
    return left_s if left_s <= most_s else None


_SCROLLS = {"j": 1, "k": -1, "J": 10, "K": -10}


@dataclass(frozen=True)
class ViewSettings:
    """The user's choices for the live view: metrics, unit, colours, and the effects of pressed keys."""

    metrics: Sequence[str] = ()
    """The requested memory metrics; empty for all recorded metrics."""
    unit: MemoryUnit = MemoryUnit.MiB
    unicode: bool = True
    colours: ColorSystem | None = ColorSystem.EIGHT_BIT
    """The colours that the terminal can show; None for no colours."""
    choice: int = 0
    """Number of the shown chart: an index of ``charts``."""
    paused: bool = False
    listing: bool = False
    """Whether the list of processes takes all the available space."""
    keys: bool = False
    """Whether the view obeys keys, and lists them."""
    moves: bool = False
    """Whether there are also keys for moving in time, as in a replay."""
    first: int = 0
    """How far the list of processes is scrolled: the index of the process in the first row."""
    helping: bool = False
    """Whether the keys are explained above the chart."""
    state: str = ""
    """The state that the title shows: ``recording`` or ``replay x10``."""

    def charts(self, columns: Sequence[str]) -> list[list[str]]:
        """Return the metrics of each chart.

        The first chart has several metrics on a shared axis; each further chart has a single metric.
        """
        recorded = [name for name in columns if is_memory(name)]
        asked = metrics.columns_of(self.metrics, recorded) or recorded
        whole: list[str] = []
        parts: list[str] = []
        for name in asked:
            metric = metrics.of(name)
            if metric is None or metric.is_virtual:
                continue
            if metric.scope == metrics.TREE or metric.name == metrics.DEVICE_MEMORY:
                (parts if metric.part_of else whole).append(name)
        together = [*whole, *parts][:MOST_LINES]
        alone = [[name] for name in dict.fromkeys((*asked, *recorded))]
        return [together, *alone] if len(together) > 1 else alone

    def chart(self, columns: Sequence[str]) -> list[str]:
        """Return the metrics of the shown chart."""
        charts = self.charts(columns)
        return charts[self.choice % len(charts)] if charts else []


def apply_key(settings: ViewSettings, key: str, processes: int) -> ViewSettings:
    """Return the settings after a key was pressed. An unknown key changes nothing.

    ``processes`` is the length of the list of processes, because some keys scroll this list.
    """
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
"""If memory grew in the last few seconds, the view says "grows"; after that, the view says "grew"."""


class Machine:
    """Reads current values from this machine: available memory, and the memory and CPU use of processes.

    If the run is on another machine, nothing is read.
    """

    def __init__(self, *, is_here: bool, proc: str = "/proc") -> None:
        self._is_here = is_here
        self._proc = proc
        self._asked_s = -_ASK_EVERY_S
        self._available = Available()
        self._processes: dict[int, psutil.Process] = {}
        """Maps the ``id`` of a process (a number in the recording, not the PID) to the psutil object for this
        process."""
        self._readings: dict[int, tuple[int, float | None]] = {}
        """Maps the ``id`` of a process to (RSS in bytes, busy CPU cores since the previous reading). The number of
        cores is None after the first reading.
        """

    def _ask(self, run: Run) -> None:
        """Read all values again, at most once a second."""
        if self._is_here and time.monotonic() >= self._asked_s + _ASK_EVERY_S:
            self._asked_s = time.monotonic()
            alive = {} if run.ended else run.processes
            pids = (process.pid for process in alive.values() if process.pid is not None)
            self._available = available(self._proc, next(pids, None))
            self._read(alive)

    def available(self, run: Run) -> float | None:
        """Return how many bytes the run can still get.

        This is the least of the bytes left on the machine, in the control group, and up to the limit. The bytes left on
        the machine are computed from the recorded metric ``system``. Without this metric, they are the kernel's current
        figure.
        """
        self._ask(run)
        machine: float | None = self._available.machine
        used = run.latest.get("system")
        if used is not None and run.host.memory:
            machine = max(0.0, run.host.memory - used)
        sizes = [machine, self._available.group]
        limit = run.limit
        rss = run.latest.get("rss")
        if limit is not None and rss is not None and rss < limit.size:
            sizes.append(limit.size - rss)
        return min((size for size in sizes if size is not None), default=None)

    def processes(self, run: Run) -> list[LiveProcess]:
        """Return the running processes, largest first.

        A process is left out if both the current RSS and the peak RSS are unknown.
        """
        self._ask(run)
        processes = []
        for number, process in run.processes.items():
            rss, cpu = self._readings.get(number, (None, None))
            if process.rss is not None:
                rss = process.rss
            if rss is not None or process.most is not None:
                processes.append(replace(process, rss=rss, cpu=cpu))
        return sorted(processes, key=lambda process: -process.size)

    def _read(self, alive: Mapping[int, LiveProcess]) -> None:
        """Read RSS and CPU use of the first 200 processes of ``alive``.

        CPU use is the average since the previous call for the same process. At the first call, CPU use is None.
        """
        import psutil

        earlier = self._processes
        self._processes = {}
        self._readings = {}
        for number, process in islice(alive.items(), _MOST):
            with contextlib.suppress(psutil.Error):
                reader = earlier.get(number) or psutil.Process(process.pid or 0)
                self._processes[number] = reader
                cpu = reader.cpu_percent() / 100
                self._readings[number] = (reader.memory_info().rss, cpu if number in earlier else None)


def time_left(run: Run, available: float | None) -> float | None:
    """Return the seconds until the memory is used up or the limit is reached; None if memory does not grow steadily."""
    if available is None or run.ended:
        return None
    name = "rss"
    size: float | None = run.host.memory
    if run.limit is not None:
        size = run.limit.size
    elif size and "system" in run.columns:
        name = "system"
    return time_until_full(*run.history.points(name), available, size)


def at(moment_s: float) -> str:
    """Return a time as text in whole seconds."""
    return write_clock(float(int(moment_s)))


def choose_metrics(run: Run, settings: ViewSettings) -> list[str]:
    """Return the metrics of the shown chart, without metrics that are too small to see.

    A curve below 1/200 of the first metric could not be told apart from the time axis.
    """
    first, *others = settings.chart(run.columns) or [""]
    sizes = {name: peak.value for name, peak in run.peaks.items()}
    least = sizes.get(first, 0.0) / 200
    seen = [name for name in others if sizes.get(name, -1.0) >= least]
    return [first, *seen] if first else []


def peak_words(run: Run, settings: ViewSettings, name: str) -> list[str]:
    """Return the peak of a metric as words, with time and operation if known."""
    peak = run.peaks.get(name)
    if peak is None:
        return []
    words = [f"peak {settings.unit.label(peak.value)}"]
    if peak.at_s is None:
        return words
    words.append(f" at {at(peak.at_s)}")
    operation = peak.operation
    if operation is None:
        names = (span.name for span in run.outermost_operations if span.holds(peak.at_s))
        operation = next(names, "")
    if operation:
        words.append(f" in {shortened(printable(operation), _NAME)}")
    return words


def activity(run: Run) -> list[str]:
    """Return CPU and number of processes as words; empty after the end of the run."""
    if run.ended:
        return []
    cores = run.cpu()
    alive = run.latest.get("processes")
    words = [] if cores is None else [f"CPU {cores_text(cores)}"]
    if alive is not None:
        words.append(count_text(alive, "process"))
    return words


def operation_words(run: Run) -> list[str]:
    """Return the names of the running operations, and the time since the innermost began; empty if none is running."""
    spans = [] if run.ended else run.open_operations
    if not spans:
        return []
    names = [shortened(printable(span.name), _NAME) for span in spans]
    if len(names) > 3:  # noqa: PLR2004 — as many as a reader takes in
        names = [names[0], "…", names[-1]]
    open_s = max(0.0, run.latest_s - spans[-1].start_s)
    return [" › ".join(names), f", for {about_text(open_s)}"]


def growth(run: Run, room: int | None = None) -> str:
    """Return a text about the code that ran when memory last grew; at most ``room`` characters, empty if unknown."""
    if run.grown is None or run.ended:
        return ""
    frame, at_s = run.grown
    ago_s = max(0.0, run.latest_s - at_s)
    code = brief_label(frame)
    file = code.rpartition("/")[2]
    function = code.rpartition(" ")[2]
    for name in (code, file, function):
        text = f"grows in {name}" if ago_s < _STILL_S else f"grew in {name}, {at(ago_s)} ago"
        if room is None or len(text) <= room:
            return text
    return ""


class MemoryLeft(NamedTuple):
    """Texts about the memory that is still available."""

    name: str
    """What limits the memory: ``limit`` or ``machine``."""
    amount: str
    exhausted: str
    """When the memory will be exhausted at the present rate; empty if not soon."""
    used: float | None
    """Share of the memory that is in use, from 0 to 1; None if unknown."""


def memory_left(run: Run, available: float | None) -> MemoryLeft:
    """Return what limits the memory, how much is available, and when the memory will be exhausted."""
    limit = run.limit
    rss = run.latest.get("rss")
    total = run.host.memory
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
    texts = []
    if available is not None:
        texts.append(f"{size_text(available)} available")
    if total:
        texts.append(size_text(total))
    used = None if available is None or not total else 1 - available / total
    return MemoryLeft("machine", " of ".join(texts), exhausted, used)


def describe_ending(run: Run) -> str:
    """Return how the run ended, as words."""
    if run.exit is None:
        return "ended"
    signal = run.exit.signal
    return f"ended, exit status {run.exit.code if signal is None else 128 + signal}"


def status_line(run: Run, settings: ViewSettings, here: Machine) -> str:
    """Return the state of the run as a plain line."""
    available = here.available(run)
    left = memory_left(run, available)
    memory = ["no memory metric"]
    names = choose_metrics(run, settings)
    if names:
        size = settings.unit.label(run.latest.get(names[0]))
        memory = [f"{label(names[0])} {size}", "".join(peak_words(run, settings, names[0]))]
    words = [
        at(run.latest_s),
        ", ".join(filter(None, memory)),
        ", ".join(activity(run)),
        "".join(operation_words(run)),
        growth(run),
    ]
    if available is not None or left.name == "limit":
        amount = f"limit {left.amount}" if left.name == "limit" else left.amount
        words.append(", ".join(filter(None, [amount, left.exhausted])))
    if run.ended:
        words.append(describe_ending(run))
    return "; ".join(filter(None, words))
