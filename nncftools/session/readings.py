"""What the process tree held when an operation was marked: read, not guessed. ``docs/metrics.md`` has the rule.

A process that marks reads itself and its descendants: that is exact. What the other processes held is known from the
sample that the mark triggers, within the bounds that their page faults leave since the sample before. On machines with
many cores, the kernel's own RSS of a process may be off (``rss_error``).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from math import inf
from typing import Annotated, NamedTuple, TypedDict

import msgspec

from nncftools.session.model import Host, OwnMemory, Process, SessionData
from nncftools.session.peaks import MostHeld, ProcessTable, held_at_most, most_held_by, noise

_SINCE, _EXACT_AGAIN = (6, 2), (6, 16)
"""Linux counts RSS on each CPU since commit f1a7941243c1. /proc adds these counts up again since 82241a83cd15."""
_ALSO_EXACT = {(6, 6): 99, (6, 12): 39, (6, 15): 7}
"""The stable releases that took 82241a83cd15: from this patch level on."""
_RELEASE = re.compile(r"(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?")


def rss_error(host: Host) -> int:
    """Return by how many bytes RSS in /proc may be off for one process; 0 where it is exact, or nothing is known.

    Each CPU adds its count to the sum when it has reached a batch, max(32, 2 × CPUs) pages (lib/percpu_counter.c).
    """
    version = _RELEASE.match(host.release)
    if host.system != "Linux" or host.cpus is None or version is None:
        return 0
    series, patch = (int(version[1]), int(version[2])), int(version[3] or 0)
    if not _SINCE <= series < _EXACT_AGAIN or patch >= _ALSO_EXACT.get(series, patch + 1):
        return 0
    has_large_pages = "64k" in host.release or host.machine.startswith("ppc64")
    return max(32, 2 * host.cpus) * host.cpus * (65536 if has_large_pages else 4096)


_LINES = "held"
_EARLY_S, _SURE_S = 0.01, 0.02
"""The start of a process is rounded to ticks of 10 ms (proc(5)): it began at most this much earlier or later."""
_ROUNDED_S = 2e-6
"""Times are rounded."""
_MOST = 64
"""Other processes that are looked at."""


class Level(NamedTuple):
    """A size in bytes and its bounds, which are equal to it when it is known."""

    rss: int
    low: int
    high: int | None


Whole = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A size, a count, or nanoseconds: the decoder itself checks it, for a log may hold millions."""
Size = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Reading(msgspec.Struct, kw_only=True):
    """What a process read when it marked an operation: bytes; None for unknown."""

    rss: Whole | None = None
    high_water_mark: Size | None = None
    faults: Whole | None = None
    descendants: list[tuple[Whole, Whole]] | None = None
    """PID and RSS of each; None when there were too many."""
    listed: bool = False
    """Whether ``descendants`` contains all children of the children."""
    devices: list[tuple[str, str, Whole, Whole]] | None = None
    """Of each GPU torch's name, its UUID, what torch's allocator had given out, and the most so far."""


class HeldBounds(TypedDict):
    """What processes held at the sample that a mark triggered, and what they can have held since the sample before."""

    from_s: float
    """When the sample before began."""
    to_s: float
    """When this sample began."""
    rss: list[list[int]] | None
    """For each process whose RSS is new or not certain: its ``id``, RSS in bytes, and, if these differ, the least and
    the most since ``from_s``. A process that is not listed holds what it held in the line before. Null: too many."""


class ExecLine(TypedDict):
    """Between two moments, a process began to run another program (execve(2))."""

    id: int
    from_s: float
    to_s: float


class HeldLines(NamedTuple):
    """What a journal says of marks, which a session does not keep."""

    lines: Sequence[HeldBounds] = ()
    with_descendants: bool = True
    execs: Sequence[ExecLine] = ()


def keep(session: SessionData, lines: HeldLines) -> None:
    """Keep what a journal says until the marks of its session are read."""
    session.__dict__[_LINES] = lines


class Holdings:
    """What the tree of a session held at a mark. Marks should come in the order of their times, more or less."""

    def __init__(self, session: SessionData) -> None:
        """Take what the session's journal says; without it, only marks of a process without others are known."""
        kept: HeldLines = session.__dict__.get(_LINES, HeldLines())
        self._is_recorded = bool(kept.lines) or session.unseen is not None
        self._with_descendants = kept.with_descendants
        self._execs = kept.execs
        self._lines = sorted(kept.lines, key=lambda line: line["to_s"])
        self._times = [line["to_s"] for line in self._lines]
        self._read_s = session.late.by_time()
        self._values: dict[int, tuple[list[float], list[int]]] = {}
        for line in self._lines:
            for number, rss, *_ in line["rss"] or ():
                times, values = self._values.setdefault(number, ([], []))
                times.append(line["to_s"])
                values.append(rss)
        self._table = ProcessTable(session.processes)
        self._children: dict[int | None, set[int]] = {}
        for process in session.processes:
            self._children.setdefault(process.parent, set()).add(process.id)
        self._families: dict[int, set[int]] = {}
        self._alive = _Alive(session.processes)
        self._most = MostHeld(held_at_most(session.processes))
        self._unsampled = MostHeld(held_at_most(session.processes, unsampled=True))
        self._samples = session.samples
        self._devices = session.devices
        self._error = rss_error(session.host)
        self.ended_s: dict[int, float] = {}
        """By process: a moment at which it had ended, if that is earlier than the sampler noticed."""
        self.begun_s: dict[int, float] = {}
        """The same of its begin, later than the kernel's ticks of 10 ms say."""
        self._entries: tuple[HeldBounds | None, dict[int, list[int]]] = (None, {})

    def at(self, at_s: float, pid: int | None, reading: Reading) -> OwnMemory | None:
        """Return what ``reading`` says, and what the whole tree held at ``at_s`` seconds; None for unknown."""
        own = OwnMemory(
            rss=reading.rss,
            high_water_mark=reading.high_water_mark,
            faults=reading.faults,
            devices=None if reading.devices is None else self._allocated(reading.devices),
        )
        mark = _Mark(at_s, self._table.at(pid, at_s + _EARLY_S), reading.listed, reading.descendants is not None)
        level, processes = self._level(mark, reading)
        if level is None:
            return None if reading.rss is None and reading.high_water_mark is None else own
        error = self._error * processes
        width = None if level.high is None else max(error, level.high - level.low)
        bounds: dict[str, int | None] = {}
        if width is None or width > noise(level.rss):
            high = None if level.high is None else level.high + error
            bounds = {"tree_low": max(0, level.low - error), "tree_high": high}
        before, after = self._sampled_around(at_s)
        bounds["others_before"] = self._others(mark, before, at_s)
        bounds["others_after"] = self._others(mark, at_s, after)
        return msgspec.structs.replace(own, tree=level.rss, **bounds)

    def execs(self, begun_s: Mapping[int | None, Sequence[float]]) -> Iterator[tuple[int, float]]:
        """Yield the PID of each process that began to run another program, and when.

        The sampler saw between which moments that was. If a program wrote its first line then (``begun_s``, by PID),
        all lines before are of the program before.
        """
        for line in self._execs:
            process = self._table.by_id.get(line["id"])
            if process is not None and process.pid is not None:
                times = begun_s.get(process.pid, ())
                first = times[bisect_right(times, line["from_s"]) : bisect_right(times, line["to_s"])]
                yield process.pid, min(first, default=line["to_s"])

    def _allocated(self, readings: Sequence[tuple[str, str, int, int]]) -> dict[str, tuple[int, int]]:
        """Return what torch's allocator had given out of each device, and the most so far."""
        from nncftools.session.devices import named

        return {named(name, uuid, self._devices): (held, most) for name, uuid, held, most in readings}

    def _level(self, mark: _Mark, reading: Reading) -> tuple[Level | None, int]:
        """Return what the tree held as the kernel says, and how many processes had memory."""
        at_s = mark.at_s
        levels = []
        if reading.rss is not None and (mark.process is not None or self._with_descendants):
            levels.append(Level(reading.rss, reading.rss, reading.rss))
        for child, rss in reading.descendants or ():
            if (process := self._table.at(child, at_s + _EARLY_S)) is not None:
                mark.covered.add(process.id)
                mark.absent[process.id] = not rss and process.samples > 0
            if process is not None or self._with_descendants:
                levels.append(Level(rss, rss, rss))
        known = sum(level.low for level in levels)
        line, alive = self._line(at_s), self._alive.at(at_s)
        others = [process for process in alive if process is not mark.process and process.id not in mark.covered]
        below = self._below(mark.process) if mark.process is not None and mark.is_complete else ()
        sampled_s = self._sampled_around(at_s)[1]
        absent = [process for process in others if process.id in below and self._is_absent(process, mark, sampled_s)]
        if absent:
            self._narrow(absent, at_s)
            others = [process for process in others if not mark.absent.get(process.id)]
        if others and not self._is_recorded:
            return None, 0
        if len(others) > _MOST or (line is not None and line["rss"] is None):
            return self._of_crowd(at_s, known), len(levels) + len(others)
        levels += [self._of_other(other, at_s, line) for other in others]
        highs = [level.high for level in levels]
        high = None if None in highs else sum(high for high in highs if high is not None)
        whole = Level(sum(level.rss for level in levels), sum(level.low for level in levels), high) if levels else None
        return whole, sum(level.rss > 0 for level in levels)

    def _line(self, at_s: float) -> HeldBounds | None:
        """Return what the sampler wrote after a mark."""
        number = bisect_left(self._times, at_s)
        return self._lines[number] if number < len(self._lines) else None

    def _sampled_around(self, at_s: float) -> tuple[float, float]:
        times = self._samples.time_s
        row = bisect_left(times, at_s)
        return times[row - 1] if row else -inf, times[row] if row < len(times) else inf

    def _others(self, mark: _Mark, from_s: float, to_s: float) -> int | None:
        """Return the most that the other processes held between a mark and the sample before or after it.

        It is None for unknown. The line of the sample after a mark says what each process held since the sample before.
        """
        line = self._line(mark.at_s)
        if mark.process is None or line is None or line["rss"] is None:
            return None
        if from_s < line["from_s"] - _ROUNDED_S or to_s > line["to_s"] + _ROUNDED_S:
            return None
        others = {process.id: process for at_s in (from_s, to_s) for process in self._alive.at(at_s) if process.samples}
        highs: list[int | None] = [self._unsampled.most(from_s, to_s)]
        for process in others.values():
            is_later = (process.counted_s or 0.0) > mark.at_s
            if process is mark.process or (mark.absent.get(process.id) and is_later == (from_s < mark.at_s)):
                continue
            was_sampled = process.counted_s is not None and process.counted_s <= line["from_s"] + _ROUNDED_S
            high = self._of_other(process, mark.at_s, line).high if was_sampled else most_held_by(process, self._table)
            highs.append(None if high is None else high + self._error)
        return None if None in highs else sum(high for high in highs if high is not None)

    def _is_absent(self, process: Process, mark: _Mark, to_s: float) -> bool:
        """Return whether a process did not live at a mark, because the reading of the mark does not list it.

        ``to_s`` is the time of the sample after the mark.
        """
        line = list(takewhile(lambda above: above.id not in mark.absent, self._table.upwards(process)))
        mark.absent.update((unknown.id, False) for unknown in line)
        for unknown in reversed(line):
            mark.absent[unknown.id] = self._is_missing(unknown, mark, to_s)
        return mark.absent[process.id]

    def _below(self, process: Process) -> set[int]:
        """Return the numbers of all descendants that a process ever had: others cannot be missing at its mark."""
        if (family := self._families.get(process.id)) is None:
            family, waiting = self._families.setdefault(process.id, set()), [process.id]
            while waiting:
                new = self._children.get(waiting.pop(), set()) - family
                family |= new
                waiting += new
        return family

    def _is_missing(self, process: Process, mark: _Mark, to_s: float) -> bool:
        """Return what ``_is_absent`` does; the answer for the parent process must be known."""
        above = None if process.parent is None else self._table.by_id.get(process.parent)
        if above is None:
            return False
        if above is mark.process:
            return True
        lives_after = process.end_s is None or process.end_s > to_s
        if above.id in mark.covered:  # the children of its main thread were read
            return mark.is_listed and not (lives_after and (process.start_s or 0.0) + _SURE_S <= mark.at_s)
        if not mark.absent[above.id]:
            return False
        was_sampled = process.samples > 0 and (process.counted_s or 0.0) <= mark.at_s  # the one above had begun
        is_yet_to_begin = not was_sampled and (above.end_s is None or above.end_s > to_s)
        return is_yet_to_begin or (process.end_s is not None and process.end_s <= (above.end_s or 0.0))  # no orphan

    def _narrow(self, absent: Sequence[Process], at_s: float) -> None:
        """Note that processes did not live at a mark: one that was seen before had ended, any other began later."""
        for process in absent:
            if process.counted_s is None or not process.samples:  # it was a zombie by then
                continue
            if process.counted_s <= at_s:
                self.ended_s[process.id] = min(at_s, self.ended_s.get(process.id, at_s))
            else:
                self.begun_s[process.id] = max(at_s, self.begun_s.get(process.id, at_s))

    def _of_other(self, process: Process, at_s: float, line: HeldBounds | None) -> Level:
        """Return what a process held at a mark; ``line`` is what the sampler wrote after it."""
        times, values = self._values.get(process.id, ((), ()))
        before = bisect_left(times, at_s)
        last = values[before - 1] if before else None
        read_s = inf if line is None else self._read_s.get(line["to_s"], line["to_s"])
        if line is None or line["from_s"] > at_s or (process.end_s is not None and process.end_s <= read_s):
            return Level(last or 0, 0, most_held_by(process, self._table))
        if self._entries[0] is not line:
            self._entries = line, {entry[0]: entry for entry in line["rss"] or ()}
        entry = self._entries[1].get(process.id)
        if entry is None and last is not None:
            return Level(last, last, last)
        is_sure = (process.start_s or 0.0) + _SURE_S <= at_s
        if entry is None:  # the sample did not find it: it had not begun
            return Level(0, 0, most_held_by(process, self._table) if is_sure else 0)
        rss, (low, high) = entry[1], entry[2:] or entry[1:2] * 2
        return Level(rss, low if is_sure else 0, high)

    def _of_crowd(self, at_s: float, known: int) -> Level | None:
        """Return what too many processes to look at held, by the sample after the mark."""
        times = self._samples.time_s
        if "rss" not in self._samples or not len(times):
            return None
        sampled = self._samples["rss"][min(bisect_left(times, at_s), len(times) - 1)]
        rss = known if sampled != sampled else max(known, int(sampled))  # noqa: PLR0124 — NaN
        high = self._most.most(at_s, at_s)
        return Level(rss, known, None if high is None else max(rss, high))


@dataclass
class _Mark:
    """A mark, and the processes that it read."""

    at_s: float
    process: Process | None
    is_listed: bool
    is_complete: bool
    covered: set[int] = field(default_factory=set)
    absent: dict[int, bool] = field(default_factory=dict)
    """Of each process whether it did not live at the mark, as far as that was looked at."""


class _Alive:
    """The processes that may live at a moment; cheap for moments near the last one."""

    def __init__(self, processes: Sequence[Process]) -> None:
        begins = [((process.start_s or 0.0) - _EARLY_S, True, process) for process in processes]
        ends = [(process.end_s, False, process) for process in processes if process.end_s is not None]
        self._changes = sorted([*begins, *ends], key=lambda change: (change[0], not change[1]))
        self._times = [change[0] for change in self._changes]
        self._place = 0
        self._alive: dict[int, Process] = {}

    def at(self, at_s: float) -> Iterator[Process]:
        number = bisect_left(self._times, at_s)
        is_later = number > self._place
        passed = self._changes[self._place : number] if is_later else self._changes[number : self._place][::-1]
        for _, begins, process in passed:
            if begins == is_later:
                self._alive[process.id] = process
            else:
                self._alive.pop(process.id, None)
        self._place = number
        yield from self._alive.values()
