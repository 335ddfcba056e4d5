"""Sessions with stacks, made by hand: stacks are texts such as ``main>load>read``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nncftools.analysis.build_up import BuildUp, Moment, build_ups
from nncftools.session.model import (
    Frame,
    Host,
    Look,
    Process,
    SamplerFacts,
    SessionData,
    Snapshots,
    Start,
    ThreadLook,
    WatchedProcess,
)
from nncftools.session.samples import Samples

MAIN = 1
Seen = tuple[float, Mapping[int, str | None]]
"""A moment, and the stack of each thread; None for a thread without Python code."""


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
        self,
        points: Sequence[tuple[float, int]],
        *looks: tuple[float, str],
        inherited: int = 0,
    ) -> WatchedProcess:
        """Add a process with one thread, by its points of seconds and bytes, and its looks."""
        watched = self.threads(points, *((time_s, {MAIN: (text, 1, 0.0)}) for time_s, text in looks))
        watched.inherited = inherited
        return watched

    def threads(
        self,
        points: Sequence[tuple[float, int]],
        *looks: tuple[float, Mapping[int, tuple[str | None, int, float]]],
        lost: Sequence[int] = (),
    ) -> WatchedProcess:
        """Add a process; its threads have a stack, page faults and CPU seconds at each look."""
        number = len(self.snapshots.processes)
        watched = WatchedProcess(process=number, pid=MAIN)
        watched.time_s, watched.rss = [time_s for time_s, _ in points], [rss for _, rss in points]
        for place, (time_s, threads) in enumerate(looks):
            seen = [
                ThreadLook(thread, None if text is None else self.stack(text), faults, cpu_s)
                for thread, (text, faults, cpu_s) in threads.items()
            ]
            watched.looks.append(Look(time_s, seen, lost[place] if place < len(lost) else 0))
        self.snapshots.processes.append(watched)
        self.processes.append(Process(id=number, pid=MAIN, counted_s=0.0))
        return watched

    def build_up(self, from_s: float, size: int = -1, to_s: float | None = None, process: int | None = None) -> BuildUp:
        """Return the build-up of a moment; of what was held then without ``size``."""
        session = SessionData(
            start=Start(),
            duration_s=100.0,
            host=Host(),
            sampler=SamplerFacts(),
            samples=Samples({"time_s": []}, "made"),
            processes=self.processes,
            snapshots=self.snapshots,
        )
        (found,) = build_ups(session, [Moment(from_s, from_s if to_s is None else to_s, size, process)])
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
        if part.stack and (not certain or part.shared == len(part.stack)):
            name = part.stack[-1].function
            sums[name] = sums.get(name, 0) + part.size
    return sums
