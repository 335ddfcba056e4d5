from __future__ import annotations

from typing import Any

import pytest

from nncftools.sampler.high_water_marks import Unseen
from nncftools.sampler.tree import PAGE, Allowance, Exit, Process
from tests.sampler.fake_proc import FakeProc, Told

BIG = 10_000
"""Pages: a change of as many is not noise."""
SPAN_S = (1.0, 1.5)
UNKNOWN = "unknown"


class Tree:
    """Processes that a test moves from sample to sample, and what is written; sizes are pages."""

    def __init__(self, proc: FakeProc) -> None:
        self.proc = proc
        self.told: Told = []
        self.unseen = Unseen(lambda *line: self.told.append(line))
        self.processes: list[Process] = []
        self.unseen.begin(0)

    def add(self, rss: int = BIG, mark: int = 9 * BIG, **fields: Any) -> Process:  # noqa: ANN401 — any attribute
        """Add a process that this many pages and the next sample find."""
        process = Process(str(self.proc.root), 1, None, len(self.processes), (), allowance=Allowance())
        process.mark.size = mark * PAGE
        process.rss = process.faults = rss
        for name, value in fields.items():
            setattr(process, name, value)
        self.processes.append(process)
        return process

    def grow(self, process: Process, rss: int, faults: int) -> Process:
        """Give a process another RSS by so many faults."""
        process.rss_before, process.faults_before = process.rss, process.faults
        process.rss, process.faults = rss, process.faults + faults
        return process

    def sample(self, *restless: Process, fresh: Any = (), unread: Any = (), huge: int | None = 0) -> Any:  # noqa: ANN401 — anything that JSON has
        """Take a sample and return the most that is written of the time before, in pages; None for nothing."""
        counted = [process for process in self.processes if process.counted and process.rss]
        for process in counted:
            process.samples += 1
        rss = sum(process.rss for process in counted) * PAGE
        self.told.clear()
        self.unseen.begin(huge)
        self.unseen.read(rss if counted else None, restless, fresh, unread, SPAN_S)
        self.unseen.settle(huge)
        if not self.told:
            return None
        ((_, line),) = self.told
        assert (line["from_s"], line["to_s"]) == SPAN_S
        return UNKNOWN if line["rss"] is None else line["rss"] // PAGE

    def settled(self, *sizes: int, **fields: Any) -> list[Process]:  # noqa: ANN401 — any attribute
        """Return processes that several samples contain."""
        found = [self.add(size, **fields) for size in sizes]
        self.sample(*found, fresh=found)
        for _ in range(3):
            self.sample()
        return found


@pytest.fixture
def tree(proc: FakeProc) -> Tree:
    """Return a tree without processes."""
    return Tree(proc)


def exit_of(*, mark: int, faults: int) -> Exit:
    """Return the kernel's report of an end; in pages."""
    of = Exit(1)
    of.high_water_mark, of.faults = mark * PAGE, faults
    return of


def test_at_rest(tree: Tree) -> None:
    """Where nothing changes, and where growth is seen, nothing is written."""
    (process,) = tree.settled(BIG)

    assert tree.sample() is None
    assert tree.sample(tree.grow(process, 2 * BIG, BIG)) is None


def test_came_and_went(tree: Tree) -> None:
    """What faults can have added and the sample does not show is written, up to the mark."""
    first, second = tree.settled(BIG, BIG)

    assert tree.sample(tree.grow(first, BIG, BIG)) == 3 * BIG
    assert tree.sample(tree.grow(first, BIG, 50 * BIG)) == 10 * BIG
    assert tree.sample(tree.grow(second, BIG, 100)) is None


def test_unread_mark(tree: Tree) -> None:
    """A mark that was not read since bounds nothing."""
    (process,) = tree.settled(BIG, mark=2 * BIG)

    assert tree.sample(tree.grow(process, BIG, 50 * BIG), unread=[process]) == 51 * BIG


def test_two_that_follow_each_other(tree: Tree) -> None:
    """What one freed and another took may have been held at once."""
    first, second = tree.settled(5 * BIG, BIG)

    assert tree.sample(tree.grow(first, BIG, 1), tree.grow(second, 5 * BIG, 4 * BIG)) == 10 * BIG + 1


@pytest.mark.parametrize(("huge", "expected"), [(0, None), (20_000, 30_000), (10**9, 90_000), (None, 90_000)])
def test_huge_pages(tree: Tree, huge: int | None, expected: int | None) -> None:
    """A fault can have added a huge page as far as the machine mapped some, or where nobody knows."""
    (process,) = tree.settled(BIG)

    assert tree.sample(tree.grow(process, BIG, 200), huge=None if huge is None else huge * PAGE) == (
        None if expected is None else expected + (200 if huge == 20_000 else 0)
    )


def test_huge_pages_that_were_mapped_during_the_sample_before(tree: Tree) -> None:
    """What was mapped after a process had been read and before huge pages were counted belongs to the next time."""
    (process,) = tree.settled(BIG)
    tree.unseen.begin(0)
    tree.unseen.read(BIG * PAGE, (), (), (), SPAN_S)
    tree.unseen.settle(20_000 * PAGE)

    assert tree.sample(tree.grow(process, BIG, 200), huge=20_000 * PAGE) == BIG + 20_000 + 200


class TestFresh:
    """Processes that the sample before does not contain."""

    def test_found(self, tree: Tree) -> None:
        """A new process is counted once."""
        tree.settled(BIG)
        new = tree.add(BIG, mark=BIG)

        assert tree.sample(new, fresh=[new]) is None
        assert tree.sample(fresh=[new]) is None

    def test_had_more(self, tree: Tree) -> None:
        """A new process can have held its mark."""
        tree.settled(BIG)
        new = tree.add(BIG, mark=3 * BIG)

        assert tree.sample(new, fresh=[new]) == 4 * BIG

    def test_not_counted(self, tree: Tree) -> None:
        """A process that is not counted yet may have held what it shows; once it is counted, the sample shows it."""
        tree.settled(BIG)
        young = tree.add(BIG, mark=BIG, counted=False, forked_copy=True)

        assert tree.sample(young, fresh=[young]) == 2 * BIG
        assert tree.sample(fresh=[young]) == 2 * BIG
        young.counted = True
        assert tree.sample(fresh=[young]) is None

    def test_two_samples_at_once(self, tree: Tree) -> None:
        """A process that the sample before contains is not counted again, though it is young."""
        (process,) = tree.settled(BIG)

        assert tree.sample(fresh=[process, process]) is None


class TestEnded:
    """Processes that left the tree since the sample before."""

    def test_with_what_it_had(self, tree: Tree) -> None:
        """Without faults, it held what the sample before shows."""
        first, second = tree.settled(BIG, BIG)
        second.exit = exit_of(mark=9 * BIG, faults=second.faults)
        tree.processes.remove(second)
        tree.unseen.ended(second)

        assert tree.sample(tree.grow(first, BIG, 1)) is None

    def test_grew(self, tree: Tree) -> None:
        """What its last faults can have added is added, up to its mark."""
        _, second, third = tree.settled(BIG, BIG, BIG)
        for process, mark in ((second, 4 * BIG), (third, 99 * BIG)):
            process.exit = exit_of(mark=mark, faults=process.faults + 5 * BIG)
            tree.processes.remove(process)
            tree.unseen.ended(process)

        assert tree.sample() == 3 * BIG + 3 * BIG + 5 * BIG
        assert tree.sample() is None

    def test_without_accounting(self, tree: Tree) -> None:
        """Without the kernel's report, as for an ordinary user, it is unknown."""
        _, second = tree.settled(BIG, BIG)
        tree.processes.remove(second)
        tree.unseen.ended(second)

        assert tree.sample() == UNKNOWN
        assert tree.sample() is None

    @pytest.mark.parametrize("is_accounted", [True, False])
    def test_never_sampled(self, tree: Tree, *, is_accounted: bool) -> None:
        """What no sample shows is not added here: a session does so from its record."""
        tree.settled(BIG)
        new = tree.add(0, counted=False)
        new.exit = exit_of(mark=9 * BIG, faults=9 * BIG) if is_accounted else None
        tree.processes.remove(new)
        tree.unseen.ended(new)

        assert tree.sample() is None

    def test_zombie(self, tree: Tree) -> None:
        """A zombie in a sample counts there, by its last faults, and not again when it is reaped."""
        _, second = tree.settled(BIG, BIG)
        second.exit = exit_of(mark=4 * BIG, faults=second.faults + 5 * BIG)

        assert tree.sample(tree.grow(second, 0, 5 * BIG)) == 5 * BIG
        tree.processes.remove(second)
        tree.unseen.ended(second)
        assert tree.sample() is None


def test_only_zombies(tree: Tree) -> None:
    """A sample without RSS holds nothing."""
    (process,) = tree.settled(BIG)
    process.exit = exit_of(mark=BIG, faults=process.faults)

    assert tree.sample(tree.grow(process, 0, 1)) is None


@pytest.mark.parametrize("columns", [("threads",), ("rss",), ("huge_pages",)])
def test_plan_without_rss_or_huge_pages(proc: FakeProc, columns: tuple[str, ...]) -> None:
    """Without both columns, nothing is recorded, and nothing waits."""
    source, told = proc.source(*columns)
    for place in range(10):
        proc.add(1, faults=(10**place, 0, 0, 0))
        source.sample(place / 10)
    source.close(1.0)

    assert not [key for key, _ in told if key == "unseen"]
    assert source._unseen._waiting == []
