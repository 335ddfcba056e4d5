"""Sessions with stacks, made by hand.

Stacks are texts such as ``main>load>read``. Levels are bytes at seconds: ``0@0 100@1.5 3M@2``, with M for MiB. Changes
of a thread are stacks at seconds: ``main>load@0 main@1.5 -@2``, with ``-`` where the thread has ended.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import takewhile

from nncftools.analysis.build_up import SEEN, BuildUp, Moment, build_ups
from nncftools.analysis.session import Session
from nncftools.session.model import (
    Frame,
    Host,
    PageFaults,
    Process,
    SamplerFacts,
    Snapshots,
    StackWindow,
    Start,
    ThreadStacks,
    WatchedProcess,
)
from nncftools.session.samples import Samples
from tests.made_up import MIB
from tests.made_up_stacks import reading_times

MAIN = 1
Change = tuple[float, str | None]


def read_levels(text: str) -> list[tuple[float, int]]:
    """Return seconds and bytes."""
    levels = []
    for word in text.split():
        size, _, time_s = word.partition("@")
        factor = MIB if size.endswith("M") else 1
        levels.append((float(time_s), int(size.removesuffix("M")) * factor))
    return levels


def read_changes(text: str) -> list[Change]:
    """Return seconds, and the stack that a thread has from then on; None after its end."""
    pairs = (word.split("@") for word in text.split())
    return [(float(time_s), None if stack == "-" else stack) for stack, time_s in pairs]


def same_calls(before: str | None, text: str | None) -> int:
    """Return how many outer functions two stacks share, as if these were the same calls."""
    both = zip(*(re.sub(r":\d+", "", of or "").split(">") for of in (before, text)), strict=False)
    return len(list(takewhile(lambda names: names[0] == names[1], both))) if before and text else 0


class Made:
    """Snapshots that a test fills."""

    def __init__(self) -> None:
        self.snapshots = Snapshots()
        self.processes: list[Process] = []

    def stack(self, text: str) -> int:
        """Return the index of a stack."""
        numbers = []
        for name in text.split(">"):
            function, _, line = name.partition(":")
            frame = Frame(function, f"/app/{function}.py", int(line or 1))
            if frame not in self.snapshots.frames:
                self.snapshots.frames.append(frame)
            numbers.append(self.snapshots.frames.index(frame))
        if numbers not in self.snapshots.stacks:
            self.snapshots.stacks.append(numbers)
        return self.snapshots.stacks.index(numbers)

    def process(self, levels: str, changes: str = "", *, inherited: int = 0, every_s: float = 0.01) -> WatchedProcess:
        """Add a process with one thread, by its levels, and its stacks up to its last level."""
        watched = self.threads(levels, {MAIN: changes} if changes else {}, every_s=every_s)
        watched.inherited = inherited
        return watched

    def threads(
        self,
        levels: str,
        threads: Mapping[int, str],
        *faults: tuple[float, Mapping[int, int], int],
        every_s: float = 0.01,
    ) -> WatchedProcess:
        """Add a process with the stacks of its threads, and its page faults: by thread, and of those that ended."""
        points = read_levels(levels)
        number = len(self.snapshots.processes)
        watched = WatchedProcess(process=number, pid=MAIN, apart_s=[0.0] * len(points))
        watched.time_s, watched.rss = [time_s for time_s, _ in points], [rss for _, rss in points]
        watched.faults = [PageFaults(time_s, sorted(of.items()), lost) for time_s, of, lost in faults]
        seen = []
        for thread, text in threads.items():
            times, stacks = zip(*read_changes(text), strict=True)
            numbers = [None if stack is None else self.stack(stack) for stack in stacks]
            seen.append(ThreadStacks(thread, list(times), numbers, [0, *map(same_calls, stacks, stacks[1:])]))
        if seen:
            from_s = min(thread.time_s[0] for thread in seen)
            changes = [time_s for thread in seen for time_s in thread.time_s]
            times = reading_times(from_s, max(points[-1][0], *changes), every_s, *changes)
            watched.windows = [StackWindow(time_s=times, threads=seen)]
        self.snapshots.processes.append(watched)
        self.processes.append(Process(id=number, pid=MAIN, counted_s=0.0))
        return watched

    def session(self) -> Session:
        """Return a session with these snapshots."""
        return Session(
            start=Start(),
            duration_s=100.0,
            host=Host(),
            sampler=SamplerFacts(),
            samples=Samples({"time_s": []}, "made"),
            processes=self.processes,
            snapshots=self.snapshots,
        )

    def build_up(self, from_s: float, size: int = -1, to_s: float | None = None, process: int | None = None) -> BuildUp:
        """Return the build-up of a moment; of what was held then without ``size``."""
        (found,) = build_ups(self.session(), [Moment(from_s, from_s if to_s is None else to_s, size, process)])
        assert found is not None
        assert sum(part.size for part in found.parts) == found.size
        return found


def by_kind(found: BuildUp) -> dict[str, int]:
    """Return the bytes of each kind that is there."""
    kinds = dict.fromkeys(part.kind for part in found.parts)
    return {kind: found.sum_of(kind) for kind in sorted(kinds)}


def by_function(found: BuildUp, *, certain: bool = False) -> dict[str, int]:
    """Return the bytes of each innermost function; with ``certain``, only those that certainly belong to it."""
    sums: dict[str, int] = {}
    for part in found.parts:
        if part.kind == SEEN and (not certain or part.certain == len(part.stack)):
            name = part.stack[-1].function
            sums[name] = sums.get(name, 0) + part.size
    return sums
