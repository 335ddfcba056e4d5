"""Sessions with stacks, made by hand: stacks are texts such as ``main>load>read``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise, takewhile

from nncftools.analysis.build_up import SEEN, BuildUp, Moment, build_ups
from nncftools.session.model import (
    Frame,
    Host,
    PageFaults,
    Process,
    SamplerFacts,
    SessionData,
    Snapshots,
    StackWindow,
    Start,
    ThreadStacks,
    WatchedProcess,
)
from nncftools.session.samples import Samples
from tests.made_up_stacks import reading_times

MAIN = 1
Change = tuple[float, str | None]
"""A moment, and the stack that a thread has from then on; None for none."""


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

    def process(
        self, points: Sequence[tuple[float, int]], *changes: Change, inherited: int = 0, every_s: float = 0.01
    ) -> WatchedProcess:
        """Add a process with one thread, by its points of seconds and bytes, and its stacks up to its last point."""
        watched = self.threads(points, {MAIN: changes} if changes else {}, every_s=every_s)
        watched.inherited = inherited
        return watched

    def threads(
        self,
        points: Sequence[tuple[float, int]],
        threads: Mapping[int, Sequence[Change]],
        *faults: tuple[float, Mapping[int, int], int],
        every_s: float = 0.01,
    ) -> WatchedProcess:
        """Add a process with the stacks of its threads, and its page faults: by thread, and of those that ended."""
        number = len(self.snapshots.processes)
        watched = WatchedProcess(process=number, pid=MAIN, apart_s=[0.0] * len(points))
        watched.time_s, watched.rss = [time_s for time_s, _ in points], [rss for _, rss in points]
        watched.faults = [PageFaults(time_s, sorted(of.items()), lost) for time_s, of, lost in faults]
        seen = [
            ThreadStacks(
                thread,
                [at for at, _ in of],
                [None if text is None else self.stack(text) for _, text in of],
                [0, *(same_calls(before, text) for (_, before), (_, text) in pairwise(of))],
            )
            for thread, of in threads.items()
        ]
        if seen:
            from_s = min(thread.time_s[0] for thread in seen)
            changes = [time_s for thread in seen for time_s in thread.time_s]
            times = reading_times(from_s, max(points[-1][0], *changes), every_s, *changes)
            watched.windows = [StackWindow(time_s=times, threads=seen)]
        self.snapshots.processes.append(watched)
        self.processes.append(Process(id=number, pid=MAIN, counted_s=0.0))
        return watched

    def session(self) -> SessionData:
        """Return a session with these snapshots."""
        return SessionData(
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
