from __future__ import annotations

from typing import Any

from nncftools.sampler.high_water_marks import HeldAtMarks
from nncftools.sampler.tree import PAGE, Allowance, Process
from tests.sampler.fake_proc import FakeProc, Told

SPAN_S = (1.0, 1.5)
_HUGE = 2 << 20


class Tree:
    """Processes that a test moves from sample to sample, and what is written of them; sizes are pages."""

    def __init__(self, proc: FakeProc, number: int = 2) -> None:
        self.told: Told = []
        self.held = HeldAtMarks(lambda *line: self.told.append(line))
        self.processes = [self.new(proc, place) for place in range(number)]

    def new(self, proc: FakeProc, number: int) -> Process:
        """Return a process of 100 pages that several samples contain."""
        process = Process(str(proc.root), 1, None, number, (), allowance=Allowance())
        process.rss, process.faults, process.samples, process.mark.size = 100, 100, 9, 150 * PAGE
        return process

    def mark(self, *, restless: Any = (), vforked: Any = (), huge: int | None = 0, **now: tuple[int, int]) -> Any:  # noqa: ANN401 — anything that JSON has
        """Return the entries of a mark at which processes have another RSS and more faults; in pages."""
        self.held.begin(self.processes, restless, huge)
        for name, (rss, faults) in now.items():
            process = self.processes[int(name[1:])]
            process.rss_before, process.faults_before = process.rss, process.faults
            process.rss, process.faults = rss, process.faults + faults
        return self.write(vforked, huge)

    def write(self, vforked: Any = (), huge: int | None = 0) -> Any:  # noqa: ANN401 — anything that JSON has
        """Write, and return the entries in pages."""
        self.told.clear()
        self.held.write(self.processes, vforked, SPAN_S, huge)
        rss = self.told[0][1]["rss"]
        return None if rss is None else [[one[0], *(size // PAGE for size in one[1:])] for one in rss]


def test_one_process(proc: FakeProc) -> None:
    """A single process is written, too: a shell may have made the mark."""
    assert Tree(proc, 1).mark() == [[0, 100]]


def test_only_what_changed(proc: FakeProc) -> None:
    """Each process is written once, then when it changed."""
    tree = Tree(proc)

    assert tree.mark() == [[0, 100], [1, 100]]
    assert tree.told == [("held", {"from_s": 1.0, "to_s": 1.5, "rss": [[0, 100 * PAGE], [1, 100 * PAGE]]})]
    assert tree.mark() == []
    assert tree.mark(p1=(120, 20)) == [[1, 120, 100, 120]]
    assert tree.mark() == []


def test_grown(proc: FakeProc) -> None:
    """Between two samples a process held at least the smaller and at most the larger, if each fault explains a page."""
    tree = Tree(proc)
    tree.mark()

    assert tree.mark(p0=(110, 10)) == [[0, 110, 100, 110]]


def test_came_and_went(proc: FakeProc) -> None:
    """What faults added and is not there any more was there for a while, up to the high-water mark."""
    tree = Tree(proc)
    tree.mark()

    assert tree.mark(p0=(100, 30)) == [[0, 100, 70, 130]]
    assert tree.mark(p0=(100, 90)) == [[0, 100, 10, 150]]


def test_freed(proc: FakeProc) -> None:
    """What is not there any more was there until then."""
    tree = Tree(proc)
    tree.mark()

    assert tree.mark(p0=(60, 0)) == [[0, 60, 60, 100]]


def test_huge_pages(proc: FakeProc) -> None:
    """A fault may have added a huge page where the machine mapped one, or where nobody knows."""
    tree = Tree(proc)
    for process in tree.processes:
        process.mark.size = 9000 * PAGE
    tree.mark(huge=0)

    assert tree.mark(p0=(100, 10), huge=_HUGE) == [[0, 100, 0, 622]]
    assert tree.mark(p0=(100, 1), huge=None) == [[0, 100, 0, 613]]


def test_during_the_sample_before(proc: FakeProc) -> None:
    """A mark may have been made while the sample before was read: what restless processes held then counts."""
    tree = Tree(proc)
    tree.mark()
    tree.mark(p0=(140, 40))

    assert tree.mark(restless=[tree.processes[0]]) == [[0, 140, 100, 140]]


def test_found_in_this_sample(proc: FakeProc) -> None:
    """A process that the sample has just found may have held anything up to its mark before."""
    tree = Tree(proc)
    tree.mark()
    tree.held.begin(tree.processes, (), 0)
    new = tree.new(proc, 2)
    new.samples, new.rss, new.faults = 1, 40, 40
    tree.processes.append(new)

    assert tree.write() == [[2, 40, 0, 150]]


def test_ended(proc: FakeProc) -> None:
    """A process that ended in the sample holds nothing, and another one with its number begins anew."""
    tree = Tree(proc)
    tree.mark()
    tree.held.begin(tree.processes, (), 0)
    gone = tree.processes.pop()

    assert tree.write() == [[1, 0]]
    assert gone not in tree.held._written


def test_ended_between_marks(proc: FakeProc) -> None:
    """What ended between two marks is forgotten."""
    tree = Tree(proc, 3)
    tree.mark()
    gone = tree.processes.pop()

    assert tree.mark() == []
    assert gone not in tree.held._written


def test_vforked(proc: FakeProc) -> None:
    """A child of vfork(2) holds nothing before its exec, although it shows its parent's memory."""
    tree = Tree(proc)
    tree.mark()
    tree.held.begin(tree.processes, (), 0)
    child = tree.new(proc, 2)
    child.samples, child.faults, child.mark.size = 0, 0, 0
    tree.processes.append(child)

    assert tree.write(vforked=[child]) == [[2, 0]]


def test_too_many(proc: FakeProc) -> None:
    """More than 64 processes that changed are not written; those that changed later are."""
    tree = Tree(proc, 65)

    assert tree.mark() is None
    assert tree.mark(p7=(90, 0)) == [[7, 90, 90, 100]]


def test_of_a_source(proc: FakeProc) -> None:
    """The sample for a mark writes the line; without a metric of ``/proc/PID/stat`` there is none."""
    proc.add(9, pages=30)
    proc.set_children(1, 9)
    for columns, expected in ((("rss",), 1), (("pss",), 0)):
        source, told = proc.source(*columns)
        source.sample(0.0)
        source.sample(1.0, for_mark=True)

        assert len([key for key, _ in told if key == "held"]) == expected
