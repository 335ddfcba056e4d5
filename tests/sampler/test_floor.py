from __future__ import annotations

from typing import Any

import pytest

from nncftools.sampler.high_water_marks import Floor
from nncftools.sampler.tree import PAGE, MemoryKinds

MIB = 2**20
PAGES = MIB // PAGE


class FakeProcess:
    """A process whose kinds of memory a test sets, in MiB."""

    def __init__(self, anon: int = 0, *, name: str = "work", parents: int = 0, **kinds: int) -> None:
        self.kinds = MemoryKinds()
        self.name = name
        self.counted = True
        self.faults = 0
        self.reads = 0
        self.is_readable = True
        self._parents = parents * MIB
        self.hold(anon, **kinds)

    def hold(self, anon: int, *, shmem: int = 0, file: int = 0) -> None:
        """Set what it holds."""
        self._status = "".join(
            f"\n{key}:\t{size * 1024} kB" for key, size in (("RssAnon", anon), ("RssFile", file), ("RssShmem", shmem))
        ).encode()
        self.rss = (anon + shmem + file) * PAGES

    def read_memory(self) -> None:
        """Read it. Raises OSError when it has ended."""
        self.reads += 1
        if not self.is_readable:
            raise ProcessLookupError
        self.kinds.take(self._status, self.rss, self._parents)


class Watched:
    """A floor of some processes, in MiB."""

    def __init__(self, *processes: FakeProcess) -> None:
        self.processes = list(processes)
        self.told: list[tuple[str, Any]] = []
        self.floor: Any = Floor(lambda *line: self.told.append(line))

    def sample(self, now_s: float, *restless: FakeProcess) -> None:
        """Take a sample in which these processes had page faults; by default all."""
        self.floor.read(self.processes, restless or self.processes, now_s)

    @property
    def lines(self) -> list[tuple[float, float, float]]:
        """The written floors: size, moment, and what was mapped."""
        return [(line["size"] / MIB, line["at_s"], line["mapped"] / MIB) for _, line in self.told]


def test_highest_sum() -> None:
    """The floor is the largest sum at one moment, not the sum of the largest."""
    one, other = FakeProcess(100), FakeProcess(50)
    watched = Watched(one, other)
    watched.sample(1.0)
    one.hold(20)
    other.hold(90)
    watched.sample(2.0)
    one.hold(80)
    watched.sample(3.0)

    assert watched.lines == [(150, 1.0, 0), (170, 3.0, 0)]


def test_small_rise() -> None:
    """A rise of less than half a per cent is not written."""
    one = FakeProcess(1000)
    watched = Watched(one)
    for now_s, size in ((1.0, 1000), (2.0, 1004), (3.0, 1010)):
        one.hold(size)
        watched.sample(now_s)

    assert watched.lines == [(1000, 1.0, 0), (1010, 3.0, 0)]


def test_shared_memory_counts_once() -> None:
    """Shared memory is what the process with the most of it has."""
    watched = Watched(FakeProcess(10, shmem=50), FakeProcess(10, shmem=40))
    watched.sample(1.0)

    assert watched.lines == [(70, 1.0, 0)]


def test_forked_copy() -> None:
    """A forked copy counts what it took itself."""
    watched = Watched(FakeProcess(100), FakeProcess(100, parents=100))
    watched.sample(1.0)

    assert watched.lines == [(100, 1.0, 0)]


def test_files_are_no_part_of_it() -> None:
    """Mapped files can be dropped: of each program, the process with the most of them counts beside the floor."""
    same = [FakeProcess(10, file=size) for size in (30, 20)]
    watched = Watched(*same, FakeProcess(10, name="other", file=5))
    watched.sample(1.0)
    watched.floor.close(watched.processes, 2.0)

    assert watched.lines[-1] == (30, 1.0, 35)


def test_memory_that_was_freed() -> None:
    """Before a new maximum is written, all processes are read: freeing takes no page fault."""
    one, other = FakeProcess(100), FakeProcess(50)
    watched = Watched(one, other)
    watched.sample(1.0)
    one.hold(10)
    other.hold(120)
    watched.sample(2.0, other)

    assert watched.lines == [(150, 1.0, 0)]


def test_ended_process() -> None:
    """What an ended process held counts no longer."""
    one, other = FakeProcess(100), FakeProcess(50)
    watched = Watched(one, other)
    watched.sample(1.0)
    watched.processes.remove(one)
    watched.floor.ended(one)
    watched.floor.ended(one)
    other.hold(140)
    watched.sample(2.0)
    other.hold(170)
    watched.sample(3.0)

    assert watched.lines == [(150, 1.0, 0), (170, 3.0, 0)]


def test_few_readings() -> None:
    """At one sample, the two processes that changed most are read; unchanged ones are not."""
    processes = [FakeProcess(size) for size in (10, 90, 80, 20)]
    watched = Watched(*processes)
    watched.floor._highest = 1000 * MIB
    watched.sample(1.0)
    first = [process.reads for process in processes]
    watched.sample(2.0)
    watched.sample(3.0)

    assert first == [0, 1, 1, 0]
    assert [process.reads for process in processes] == [1, 1, 1, 1]


@pytest.mark.parametrize(("mib", "reads"), [(100, 1), (101, 1), (103, 2)])
def test_change(mib: int, reads: int) -> None:
    """RSS has changed if it did by more than 1 MiB."""
    one = FakeProcess(100)
    watched = Watched(one)
    watched.sample(1.0)
    one.hold(mib)
    watched.sample(2.0)

    assert one.reads == reads


def test_reading_for_marks() -> None:
    """What was read for its high-water mark at the same sample is not read again."""
    one = FakeProcess(100)
    one.read_memory()
    watched = Watched(one)
    watched.sample(1.0)

    assert (one.reads, watched.lines) == (1, [(100, 1.0, 0)])


def test_readings_for_marks_of_many() -> None:
    """What was read for the marks costs nothing more, so it counts of all processes, also of those that rest since."""
    read = [FakeProcess(50), FakeProcess(60), FakeProcess(70)]
    work = FakeProcess(10)
    watched = Watched(work, *read)
    for process in read:
        process.read_memory()
    watched.sample(0.1, work)

    assert watched.lines[-1][0] == 190
    assert [process.reads for process in read] == [1, 1, 1]


def test_counted_later() -> None:
    """A process that was read before it counts is part of the sum as soon as it does."""
    work, copy = FakeProcess(10), FakeProcess(50)
    watched = Watched(work, copy)
    copy.counted = False
    copy.read_memory()
    watched.sample(0.1, work)
    copy.counted = True
    watched.sample(0.2, work)

    assert [size for size, *_ in watched.lines] == [10, 60]


def test_process_that_cannot_be_read() -> None:
    """A process that ended just now counts as before; one that is not counted yet is left out."""
    gone, unknown = FakeProcess(100), FakeProcess(50)
    unknown.counted = False
    watched = Watched(gone, unknown)
    watched.sample(1.0)
    gone.is_readable = False
    gone.hold(900)
    watched.sample(2.0)

    assert watched.lines == [(100, 1.0, 0)]


def test_close() -> None:
    """At the end, all processes are read once more."""
    one = FakeProcess(100)
    watched = Watched(one)
    watched.sample(1.0)
    one.hold(130)
    watched.floor.close(watched.processes, 2.5)

    assert watched.lines == [(100, 1.0, 0), (130, 2.5, 0)]
