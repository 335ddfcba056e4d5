from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from nncftools.sampler.proc_source import ProcSource
from nncftools.sampler.tree import PAGE, TICKS_PER_S, Exit
from tests.sampler.fake_proc import FakeProc, Told

MIB = 2**20
PAGES = MIB // PAGE
"""In a MiB."""


class Watched:
    """A tree of process 1 that is sampled each second, and the rises that were recorded."""

    def __init__(self, proc: FakeProc, **plan: Any) -> None:  # noqa: ANN401 — any field of the plan
        self.proc = proc
        self.faults: dict[int, int] = {}
        self.source: ProcSource
        self.told: Told
        self.source, self.told = proc.source("rss", **plan)

    def set(self, pid: int, mib: int, mark: int | None = None, *, faults: int = 0, **fields: Any) -> None:  # noqa: ANN401 — any field of a process
        """Set RSS and high-water mark of a process in MiB; ``faults`` more page faults than before."""
        self.faults[pid] = self.faults.get(pid, 1) + faults
        pages = None if mark is None else mark * PAGES
        self.proc.add(pid, pages=mib * PAGES, mark=pages, faults=(self.faults[pid], 0, 0, 0), **fields)

    def sample(self, *times_s: float, **how: bool) -> None:
        """Take samples."""
        for now_s in times_s:
            self.source.sample(now_s, **how)

    def rise_together(self, pids: Sequence[int]) -> None:
        """Sample children of process 1 twice, then let the marks of all of them rise to 300 MiB."""
        for pid in pids:
            self.set(pid, 10 + pid)
        self.proc.add(1, pages=10 * PAGES, threads={1: list(pids)}, faults=(1, 0, 0, 0))
        self.sample(1.0, 1.1)
        for pid in pids:
            self.set(pid, 10 + pid, 300, faults=500)

    @property
    def rises(self) -> list[tuple[int, float, float, float]]:
        """Number, seconds before, seconds after and MiB of each rise; moments are rounded down to seconds."""
        found = [value for key, value in self.told if key == "rise"]
        return [(of["id"], of["from_s"], int(of["to_s"]), of["high_water_mark"] / MIB) for of in found]

    @property
    def others(self) -> list[float]:
        """The MiB that the other processes held during each rise."""
        return [value["others"] / MIB for key, value in self.told if key == "rise"]


@pytest.fixture
def watched(proc: FakeProc) -> Watched:
    """Return a tree of one process of 10 MiB."""
    proc.add(1, pages=10 * PAGES, faults=(1, 0, 0, 0))
    return Watched(proc)


class TestRises:
    """When a rise is recorded."""

    def test_between_two_samples(self, watched: Watched) -> None:
        """A mark above both samples rose between them."""
        watched.sample(1.0, 2.0)
        watched.set(1, 10, 600, faults=500)
        watched.sample(3.0)

        assert watched.rises == [(0, 2.0, 3, 600)]

    def test_that_a_sample_shows(self, watched: Watched) -> None:
        """A mark that is close to one of the samples needs no record: the samples show the moment."""
        watched.sample(1.0)
        watched.set(1, 600, 600, faults=500)
        watched.sample(2.0)
        watched.set(1, 10, 600, faults=1)
        watched.sample(3.0)

        assert watched.rises == []

    def test_before_the_first_sample(self, proc: FakeProc) -> None:
        """Between the start of a process and its first sample, the mark may have risen, too."""
        proc.add(1, pages=10 * PAGES, mark=300 * PAGES)
        watched = Watched(proc)
        watched.sample(1.0)

        assert watched.rises == []  # it is older than the recording: the mark may be, too

    def test_of_a_new_process(self, watched: Watched, proc: FakeProc) -> None:
        """The first mark of a process rose after its start."""
        watched.sample(1.0)
        proc.started = boot_ticks()
        watched.set(5, 10, 300)
        proc.add(1, pages=10 * PAGES, threads={1: [5]}, faults=(1, 0, 0, 0))
        watched.sample(2.0)

        assert [rise[0::3] for rise in watched.rises] == [(1, 300)]

    def test_twice(self, watched: Watched) -> None:
        """Each higher mark is another rise; the same mark is none."""
        watched.sample(1.0)
        for second, mark in ((2.0, 100), (3.0, 100), (4.0, 200)):
            watched.set(1, 10, mark, faults=500)
            watched.sample(second)

        assert watched.rises == [(0, 1.0, 2, 100), (0, 3.0, 4, 200)]

    def test_after_exec(self, watched: Watched) -> None:
        """The mark of a new program begins below that of the one before; it counts when it is the highest so far."""
        watched.sample(1.0)
        watched.set(1, 10, 600, faults=500)
        watched.sample(2.0)
        watched.set(1, 5, 5, faults=500)
        watched.sample(3.0)
        watched.set(1, 5, 400, faults=500)
        watched.sample(4.0)
        watched.set(1, 5, 700, faults=500)
        watched.sample(5.0)

        assert watched.rises == [(0, 1.0, 2, 600), (0, 4.0, 5, 700)]

    @pytest.mark.parametrize("ends", [True, False], ids=["ended", "ended unseen"])
    def test_at_the_end(self, proc: FakeProc, *, ends: bool) -> None:
        """The mark that the kernel reports with the end of a process rose after its last sample, or in its life."""
        exits = Reports()
        proc.add(1, pages=10 * PAGES, faults=(1, 0, 0, 0), threads={1: [5]} if ends else {1: []})
        if ends:
            proc.add(5, pages=10 * PAGES)
        watched = Watched(proc, exits=exits)
        watched.source.account(1.0)
        watched.sample(1.0)
        exits.waiting = [report(5, 300 * MIB)]
        proc.fork()
        watched.source.account(1.75)
        watched.source.ended(5, 1.75, {"code": 0, "signal": None}, None)
        watched.sample(2.0)

        (rise,) = watched.rises
        assert rise[0::3] == (1, 300)
        assert rise[1] == (1.0 if ends else 0.5)  # it lived for half a second, and had not ended at 1.0 s


class TestWhichAreRead:
    """Reading a mark takes time, so marks that cannot have risen are not read."""

    def test_without_page_faults(self, watched: Watched) -> None:
        """Without a page fault, RSS cannot have grown: the file is not read."""
        watched.sample(1.0)
        watched.set(1, 10, 600)
        watched.sample(2.0)

        assert watched.rises == []

    def test_too_few_page_faults(self, watched: Watched) -> None:
        """One fault maps a huge page at most: so few cannot have reached the mark. The proof moves the moment on."""
        watched.set(1, 300, 300)
        watched.sample(1.0)
        watched.set(1, 10, 300, faults=1)
        watched.sample(2.0)
        watched.set(1, 10, 300, faults=100)  # 200 MiB
        watched.sample(3.0)
        watched.set(1, 10, 500, faults=200)
        watched.sample(4.0)

        assert watched.rises == [(0, 3.0, 4, 500)]

    def test_most_at_one_sample(self, watched: Watched) -> None:
        """Of many processes, the largest is read at each sample, and the one that waited longest."""
        watched.rise_together(range(5, 15))
        watched.sample(1.2)
        at_once = len(watched.rises)
        watched.sample(1.3, 1.4, 1.5, 1.6, 1.7, 1.8)

        assert at_once == 2
        assert len({rise[0] for rise in watched.rises}) == 10

    def test_all_for_a_mark(self, watched: Watched) -> None:
        """When an operation begins or ends, all are read."""
        watched.rise_together(range(5, 15))
        watched.sample(1.2, for_mark=True)

        assert len(watched.rises) == 10


class TestOthers:
    """What the other processes held meanwhile is part of the proof."""

    def test_still(self, watched: Watched, proc: FakeProc) -> None:
        """A process without page faults held what it still holds."""
        watched.set(5, 50)
        proc.add(1, pages=10 * PAGES, threads={1: [5]}, faults=(1, 0, 0, 0))
        watched.sample(1.0, 2.0)
        watched.set(5, 50, 600, faults=500)
        watched.sample(3.0)

        assert (watched.rises, watched.others) == ([(1, 2.0, 3, 600)], [10])

    def test_less_than_its_faults(self, watched: Watched, proc: FakeProc) -> None:
        """A process may have gained a huge page with each fault: only the rest is certain."""
        watched.set(5, 50)
        proc.add(1, pages=100 * PAGES, threads={1: [5]}, faults=(1, 0, 0, 0))
        watched.sample(1.0, 2.0)
        watched.set(5, 50, 600, faults=500)
        proc.add(1, pages=100 * PAGES, threads={1: [5]}, faults=(11, 0, 0, 0))
        watched.sample(3.0)

        assert watched.others == [100 - 10 * PAGE * PAGE / 8 / MIB]

    def test_not_at_the_sample_before(self, watched: Watched) -> None:
        """What a process held that was not there before is unknown, and counts as nothing."""
        watched.sample(1.0, 2.0)
        watched.set(1, 10, 600, faults=500, threads={1: [5]})
        watched.set(5, 50)
        watched.sample(3.0)

        assert watched.others == [0]


class Reports:
    """An exit accounting whose messages a test gives."""

    def __init__(self) -> None:
        self.waiting: list[Exit] = []

    def read(self) -> list[Exit]:
        """Return the messages."""
        found, self.waiting = self.waiting, []
        return found


def report(pid: int, mark: int) -> Exit:
    """Return the kernel's report of the end of a child of process 1, which lived for half a second."""
    of = Exit(pid)
    of.parent_pid, of.cpu_s, of.name, of.elapsed_s, of.high_water_mark = 1, 0.5, "child", 0.5, mark
    return of


def boot_ticks() -> int:
    """Return the present in the kernel's ticks."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * TICKS_PER_S)
