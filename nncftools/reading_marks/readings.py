"""The memory of the process tree when an operation was marked. ``docs/metrics.md`` has the rule.

A process that marks reads itself and its descendants: that is exact. The other processes are read by the sample that
the mark triggers. If they changed since the sample before, the sum is an estimate. On machines with many cores, the
kernel's own RSS of a process may be off (``rss_error``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from math import isnan

import msgspec

from nncftools.reading_marks.entries import Entry
from nncftools.session.model import OwnMemory, Process, ProcessTable, SessionData
from nncftools.session.samples import noise

_EARLY_S = 0.01
"""The start of a process is rounded to ticks of 10 ms (proc(5)): it began at most this much earlier."""
_MOST = 64
"""Other processes that are looked at."""


class TreeReader:
    """Adds up the memory of a session's process tree at marks, which come in the order of time, but for few."""

    def __init__(self, session: SessionData) -> None:
        """Take the lines of the session's journal; without them, other processes are unknown."""
        kept = session.unsaved.of_marks
        self._with_descendants = kept.with_descendants
        self._execs = kept.execs
        self._lines = sorted(kept.lines, key=lambda line: line["to_s"])
        self._times = [line["to_s"] for line in self._lines]
        self._sizes: dict[int, list[tuple[float, int, int]]] = {}
        """By process id: time of the line, RSS, and by how much it differed in the sample before."""
        for line in self._lines:
            for number, *sizes in line["rss"] or ():
                change = max(sizes) - min(sizes)
                self._sizes.setdefault(number, []).append((line["to_s"], sizes[0], change))
        self._table = ProcessTable(session.processes)
        begins = [((process.start_s or 0.0) - _EARLY_S, True, process) for process in session.processes]
        ends = [(process.end_s, False, process) for process in session.processes if process.end_s is not None]
        self._changes = deque(sorted([*begins, *ends], key=lambda change: (change[0], not change[1])))
        """Begins and ends of processes after the latest mark, by time."""
        self._alive: dict[int, Process] = {}
        self._samples = session.samples
        self._devices = session.devices

    def at(self, at_s: float, pid: int | None, reading: Entry) -> OwnMemory | None:
        """Return the reading of a process at a mark with the memory of the whole tree; None for unknown."""
        own = OwnMemory(
            rss=reading.rss,
            high_water_mark=reading.high_water_mark,
            devices=None if reading.devices is None else self._allocated(reading.devices),
        )
        process = self._table.at(pid, at_s + _EARLY_S)
        has_own = reading.rss is not None and (process is not None or self._with_descendants)
        known = reading.rss or 0 if has_own else 0
        covered = set[int]()
        for child, rss in reading.descendants or ():
            descendant = self._table.at(child, at_s + _EARLY_S)
            if descendant is not None:
                covered.add(descendant.id)
            if descendant is not None or self._with_descendants:
                known += rss
        others = self._others(at_s, process, covered, reading)
        if (others and not self._lines) or not (has_own or covered or others):
            return None if reading.rss is None and reading.high_water_mark is None else own
        tree, change = self._with_others(others, at_s, known)
        return msgspec.structs.replace(own, tree=tree, is_estimate=change is None or change > noise(tree))

    def execs(self) -> Iterator[tuple[int, float, float]]:
        """Yield the PID of each process that began to run another program, and between which moments that was."""
        for line in sorted(self._execs, key=lambda line: line["to_s"]):
            process = self._table.by_id.get(line["id"])
            if process is not None and process.pid is not None:
                yield process.pid, line["from_s"], line["to_s"]

    def _allocated(self, readings: Sequence[tuple[str, str, int, int]]) -> dict[str, tuple[int, int]]:
        """Return what torch's allocator had given out of each device, and the most so far."""
        from nncftools.session.nesting import find_device

        return {find_device(name, uuid, self._devices): (held, most) for name, uuid, held, most in readings}

    def _others(self, at_s: float, process: Process | None, covered: Collection[int], reading: Entry) -> list[Process]:
        """Return the processes that lived at a mark, and that its reading does not contain."""
        while self._changes and self._changes[0][0] < at_s:
            _, begins, changed = self._changes.popleft()
            if begins:
                self._alive[changed.id] = changed
            else:
                self._alive.pop(changed.id, None)
        others = []
        for other in self._alive.values():
            if other is process or other.id in covered:
                continue
            above = self._table.by_id.get(other.parent)
            if above is not None and reading.descendants is not None:
                is_listed = above is process or (above.id in covered and reading.listed)
                if is_listed or (above.id not in covered and (above.counted_s or 0.0) > at_s):
                    continue  # it would be in the list, or its parent had not begun
            others.append(other)
        return others

    def _with_others(self, others: Sequence[Process], at_s: float, known: int) -> tuple[int, int | None]:
        """Return the memory of all processes, and by how much that of the others changed; None for unknown."""
        number = bisect_left(self._times, at_s)
        line = self._lines[number] if number < len(self._lines) else None
        if len(others) > _MOST or (others and line is not None and line["rss"] is None):
            return max(known, self._sampled(at_s)), None
        total, changes = known, 0
        for other in others:
            sizes = self._sizes.get(other.id, [])
            place = bisect_left(sizes, (at_s,))
            if place < len(sizes) and line is not None and sizes[place][0] == line["to_s"]:
                _, rss, change = sizes[place]
                changes += change
            else:
                rss = sizes[place - 1][1] if place else 0
            total += rss
        is_triggered = line is not None and line["from_s"] <= at_s
        return total, changes if is_triggered or not others else None

    def _sampled(self, at_s: float) -> int:
        """Return RSS in the sample after a moment; 0 if it is unknown."""
        times = self._samples.time_s
        if "rss" not in self._samples or not len(times):
            return 0
        sampled = self._samples["rss"][min(bisect_left(times, at_s), len(times) - 1)]
        return 0 if isnan(sampled) else int(sampled)
