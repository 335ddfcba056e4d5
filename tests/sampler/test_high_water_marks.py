from __future__ import annotations

import pathlib
import select
import sys
import time
from collections.abc import Sequence
from typing import Any

import pytest

from nncftools.sampler import link
from nncftools.sampler.link import MarkWatch
from nncftools.sampler.proc_source import ProcSource
from nncftools.sampler.process_records import Floor, HeldAtMarks
from nncftools.sampler.tree import PAGE, TICKS_PER_S, Common, MemoryKinds, Process
from tests.sampler.fake_proc import FakeProc, Told


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


class FloorWatched:
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
    watched = FloorWatched(one, other)
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
    watched = FloorWatched(one)
    for now_s, size in ((1.0, 1000), (2.0, 1004), (3.0, 1010)):
        one.hold(size)
        watched.sample(now_s)

    assert watched.lines == [(1000, 1.0, 0), (1010, 3.0, 0)]


def test_shared_memory_counts_once() -> None:
    """Shared memory is what the process with the most of it has."""
    watched = FloorWatched(FakeProcess(10, shmem=50), FakeProcess(10, shmem=40))
    watched.sample(1.0)

    assert watched.lines == [(70, 1.0, 0)]


def test_forked_copy() -> None:
    """A forked copy counts what it took itself."""
    watched = FloorWatched(FakeProcess(100), FakeProcess(100, parents=100))
    watched.sample(1.0)

    assert watched.lines == [(100, 1.0, 0)]


def test_files_are_no_part_of_it() -> None:
    """Mapped files can be dropped: of each program, the process with the most of them counts beside the floor."""
    same = [FakeProcess(10, file=size) for size in (30, 20)]
    watched = FloorWatched(*same, FakeProcess(10, name="other", file=5))
    watched.sample(1.0)
    watched.floor.close(watched.processes, 2.0)

    assert watched.lines[-1] == (30, 1.0, 35)


def test_memory_that_was_freed() -> None:
    """Before a new maximum is written, all processes are read: freeing takes no page fault."""
    one, other = FakeProcess(100), FakeProcess(50)
    watched = FloorWatched(one, other)
    watched.sample(1.0)
    one.hold(10)
    other.hold(120)
    watched.sample(2.0, other)

    assert watched.lines == [(150, 1.0, 0)]


def test_ended_process() -> None:
    """What an ended process held counts no longer."""
    one, other = FakeProcess(100), FakeProcess(50)
    watched = FloorWatched(one, other)
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
    watched = FloorWatched(*processes)
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
    watched = FloorWatched(one)
    watched.sample(1.0)
    one.hold(mib)
    watched.sample(2.0)

    assert one.reads == reads


def test_reading_for_marks() -> None:
    """What was read for its high-water mark at the same sample is not read again."""
    one = FakeProcess(100)
    one.read_memory()
    watched = FloorWatched(one)
    watched.sample(1.0)

    assert (one.reads, watched.lines) == (1, [(100, 1.0, 0)])


def test_readings_for_marks_of_many() -> None:
    """What was read for the marks costs nothing more, so it counts of all processes, also of those that rest since."""
    read = [FakeProcess(50), FakeProcess(60), FakeProcess(70)]
    work = FakeProcess(10)
    watched = FloorWatched(work, *read)
    for process in read:
        process.read_memory()
    watched.sample(0.1, work)

    assert watched.lines[-1][0] == 190
    assert [process.reads for process in read] == [1, 1, 1]


def test_counted_later() -> None:
    """A process that was read before it counts is part of the sum as soon as it does."""
    work, copy = FakeProcess(10), FakeProcess(50)
    watched = FloorWatched(work, copy)
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
    watched = FloorWatched(gone, unknown)
    watched.sample(1.0)
    gone.is_readable = False
    gone.hold(900)
    watched.sample(2.0)

    assert watched.lines == [(100, 1.0, 0)]


def test_close() -> None:
    """At the end, all processes are read once more."""
    one = FakeProcess(100)
    watched = FloorWatched(one)
    watched.sample(1.0)
    one.hold(130)
    watched.floor.close(watched.processes, 2.5)

    assert watched.lines == [(100, 1.0, 0), (130, 2.5, 0)]


SPAN_S = (1.0, 1.5)


class Tree:
    """Processes that a test moves from sample to sample, and what is written of them; sizes are pages."""

    def __init__(self, proc: FakeProc, number: int = 2) -> None:
        self.told: Told = []
        self.held = HeldAtMarks(lambda *line: self.told.append(line))
        self.processes = [self.new(proc, place) for place in range(number)]

    def new(self, proc: FakeProc, number: int, rss: int = 100) -> Process:
        """Return a process."""
        process = Process(str(proc.root), 1, None, number, files=(), common=Common())
        process.rss = rss
        return process

    def mark(self, **now: int) -> Any:  # noqa: ANN401 — anything that JSON has
        """Return the entries of a mark at which processes have another RSS; in pages."""
        self.held.begin(self.processes)
        for name, rss in now.items():
            self.processes[int(name[1:])].rss = rss
        return self.write()

    def write(self, vforked: Any = ()) -> Any:  # noqa: ANN401 — anything that JSON has
        """Write, and return the entries in pages."""
        self.told.clear()
        self.held.write(self.processes, vforked, SPAN_S)
        rss = self.told[0][1]["rss"]
        return None if rss is None else [[one[0], *(size // PAGE for size in one[1:])] for one in rss]


def test_one_process(proc: FakeProc) -> None:
    """A single process is written, too: a shell may have made the mark."""
    assert Tree(proc, 1).mark() == [[0, 100]]


def test_only_what_changed(proc: FakeProc) -> None:
    """Each process is written once, then when it changed, with its RSS in the sample before."""
    tree = Tree(proc)

    assert tree.mark() == [[0, 100], [1, 100]]
    assert tree.told == [("held", {"from_s": 1.0, "to_s": 1.5, "rss": [[0, 100 * PAGE], [1, 100 * PAGE]]})]
    assert tree.mark() == []
    assert tree.mark(p1=120) == [[1, 120, 100]]
    assert tree.mark() == []
    assert tree.mark(p0=60) == [[0, 60, 100]]


def test_changed_between_marks(proc: FakeProc) -> None:
    """A process that changed after the mark before, and not since the sample before, is known."""
    tree = Tree(proc)
    tree.mark()
    tree.processes[0].rss = 130

    assert tree.mark() == [[0, 130]]


def test_found_in_this_sample(proc: FakeProc) -> None:
    """A process that the sample has just found had nothing before."""
    tree = Tree(proc)
    tree.mark()
    tree.held.begin(tree.processes)
    tree.processes.append(tree.new(proc, 2, 40))

    assert tree.write() == [[2, 40, 0]]


def test_ended(proc: FakeProc) -> None:
    """A process that ended in the sample holds nothing, and another one with its number begins anew."""
    tree = Tree(proc)
    tree.mark()
    tree.held.begin(tree.processes)
    gone = tree.processes.pop()

    assert tree.write() == [[1, 0, 100]]

    tree.processes.append(gone)
    assert tree.mark() == [[1, 100]]


def test_ended_between_marks(proc: FakeProc) -> None:
    """What ended between two marks is forgotten."""
    tree = Tree(proc, 3)
    tree.mark()
    gone = tree.processes.pop()

    assert tree.mark() == []

    tree.processes.append(gone)
    assert tree.mark() == [[2, 100]]


def test_vforked(proc: FakeProc) -> None:
    """A child of vfork(2) holds nothing before its exec, although it shows its parent's memory."""
    tree = Tree(proc)
    tree.mark()
    child = tree.new(proc, 2)
    child.counted = False
    tree.processes.append(child)
    tree.held.begin(tree.processes)

    assert tree.write(vforked=[child]) == [[2, 0]]


def test_too_many(proc: FakeProc) -> None:
    """More than 64 processes that changed are not written; those that changed later are."""
    tree = Tree(proc, 65)

    assert tree.mark() is None
    assert tree.mark(p7=90) == [[7, 90, 100]]


def test_of_a_source(proc: FakeProc) -> None:
    """The sample for a mark writes the line."""
    proc.add(9, pages=30)
    proc.set_children(1, 9)
    source, told = proc.source("rss")
    source.sample(0.0)
    source.sample(1.0, for_mark=True)

    assert len([key for key, _ in told if key == "held"]) == 1


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


def boot_ticks() -> int:
    """Return the present in the kernel's ticks."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * TICKS_PER_S)


class Clock:
    """A monotonic clock that moves only when a test moves it."""

    def __init__(self) -> None:
        self.now_ns = 10**9

    def monotonic_ns(self) -> int:
        """Return the time."""
        return self.now_ns


def wakes(watch: MarkWatch) -> bool:
    """Return whether the sampler would wake up now: the kernel notes a write before the write returns."""
    return bool(select.select([watch.descriptor], [], [], 0)[0])


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
def test_an_appended_line_is_answered_by_a_sample(tmp_path: pathlib.Path) -> None:
    """A write to the log wakes the sampler, which takes one sample and sleeps again."""
    log = tmp_path / "ä log"
    log.touch()
    samples: list[int] = []
    watch = MarkWatch(str(log), lambda: samples.append(1))
    before = wakes(watch)
    with log.open("a") as file:
        file.write("mark\n")
    after = wakes(watch)
    watch.take()

    assert (before, after, wakes(watch)) == (False, True, False)
    assert samples == [1]


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
def test_many_marks_cost_little(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a sample has just cost time, marks wait for the next one until ten times that time has gone by."""
    log = tmp_path / "log"
    log.touch()
    clock = Clock()
    monkeypatch.setattr(link, "time", clock)
    samples: list[int] = []

    def slow() -> None:
        clock.now_ns += 1_000
        samples.append(clock.now_ns)

    watch = MarkWatch(str(log), slow)
    due = []
    for pause_ns in (0, 0, 9_999, 1):
        clock.now_ns += pause_ns
        with log.open("a") as file:
            file.write("mark\n")
        watch.take()
        due.append(watch.is_due)

    assert len(samples) == 2
    assert due == [False, True, True, False]


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
def test_a_log_that_is_not_there(tmp_path: pathlib.Path) -> None:
    """Without the file there is nothing to watch."""
    with pytest.raises(OSError, match="inotify"):
        MarkWatch(str(tmp_path / "none"), lambda: None)
