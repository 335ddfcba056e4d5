from __future__ import annotations

import io
import time
from typing import Any

import pytest

from nncftools.analysis.session import Session
from nncftools.analysis.summary import rss_error
from nncftools.reading_marks.collecting import TreeReader
from nncftools.reading_marks.entries import Entry
from nncftools.session.model import HeldLines, Host, OwnMemory, Process
from nncftools.session.recording import session_from
from tests.conftest import HANGING_S
from tests.made_up import END, MIB, journal, mib, process, session

OWN, CHILD, OTHER = 100, 101, 102
ALONE = Entry(rss=50 * MIB, descendants=[])


def line(from_s: float, to_s: float, *rss: list[int]) -> dict[str, Any]:
    """Return what the sampler wrote at a mark; sizes are in MiB."""
    return {"from_s": from_s, "to_s": to_s, "rss": [[one[0], *(size * MIB for size in one[1:])] for one in rss]}


def reader(*lines: dict[str, Any], processes: list[Process] | None = None, children: bool = True) -> TreeReader:
    """Return the reader of a run of a process, by default without others."""
    of = session(processes=processes or [process()])
    of.unsaved.of_marks = HeldLines(lines, children)  # type: ignore[arg-type] # made-up lines
    return TreeReader(of)


def tree(found: OwnMemory | None) -> tuple[int | None, bool]:
    """Return the memory of the tree in MiB, and whether it is an estimate."""
    assert found is not None
    return (None if found.tree is None else found.tree // MIB), found.is_estimate


class TestItself:
    """The process that marks, and its descendants, which it reads."""

    def test_alone(self) -> None:
        """A process without others held what it read of itself."""
        assert tree(reader().at(0.3, OWN, ALONE)) == (50, False)

    def test_children(self) -> None:
        """What its descendants held is added, also of a process that no sample shows."""
        reading = Entry(rss=50 * MIB, descendants=[(CHILD, 30 * MIB), (999, 7 * MIB)], listed=True)
        of = reader(processes=[process(), process(1, parent=0)])

        assert tree(of.at(0.3, OWN, reading)) == (87, False)

    def test_child_that_begins_after_the_mark(self) -> None:
        """A child that the reading lacks did not live yet, although the kernel's ticks of 10 ms say that it did."""
        child = process(1, parent=0, start_s=0.29, counted_s=0.31, samples=1)
        of = reader(line(0.2, 0.301, [1, 400, 0]), processes=[process(), child])

        assert tree(of.at(0.3, OWN, ALONE)) == (50, False)

    def test_child_that_ends_before_the_mark(self) -> None:
        """A child that the reading lacks had ended, although the sampler noticed that later."""
        child = process(1, parent=0, end_s=0.35, counted_s=0.0, samples=1)
        of = reader(line(0.2, 0.301, [1, 400]), processes=[process(), child])

        assert tree(of.at(0.3, OWN, ALONE)) == (50, False)

    def test_grandchild_of_a_child_that_had_not_begun(self) -> None:
        """Where a child begins after the mark, its children do, too."""
        family = [
            process(),
            process(1, parent=0, start_s=0.295, counted_s=0.31),
            process(2, parent=1, start_s=0.299, counted_s=0.31),
        ]
        of = reader(line(0.2, 0.31, [1, 400, 0], [2, 9, 0]), processes=family)

        assert tree(of.at(0.3, OWN, ALONE)) == (50, False)

    @pytest.mark.parametrize("counted_s", [None, 0.32])
    def test_orphan(self, counted_s: float | None) -> None:
        """A process lives on where its parent has just ended, and is no descendant any more; no sample saw it."""
        family = [process(), process(1, parent=0, start_s=0.28, end_s=0.32, counted_s=counted_s)]
        orphan = process(2, parent=1, start_s=0.285, counted_s=0.29, samples=9)
        of = reader(line(0.29, 0.31, [2, 9]), processes=[*family, orphan])

        assert tree(of.at(0.3, OWN, ALONE)) == (59, False)

    def test_crowd(self) -> None:
        """Where the process could not read its descendants, they count as others do."""
        of = reader(line(0.2, 0.301, [1, 400, 390]), processes=[process(), process(1, parent=0)])

        assert tree(of.at(0.3, OWN, Entry(rss=50 * MIB))) == (450, True)

    def test_without_children(self) -> None:
        """In a recording of the command alone, neither a child's own memory nor that of descendants counts."""
        of = reader(children=False)
        reading = Entry(rss=50 * MIB, descendants=[(CHILD, 30 * MIB)])

        assert tree(of.at(0.3, OWN, reading)) == (50, False)
        assert of.at(0.3, CHILD, ALONE) == OwnMemory(rss=50 * MIB)

    def test_nothing_read(self) -> None:
        """A mark without a reading, from a process beside others that nothing is known of, says nothing."""
        assert reader().at(0.3, None, Entry()) is None


class TestOthers:
    """Processes that a mark does not read: the sample after it says what they held."""

    TWO = (process(), process(2))

    @pytest.mark.parametrize(
        ("lines", "expected"),
        [
            ([line(0.2, 0.301, [2, 30])], (80, False)),
            ([line(0.2, 0.301, [2, 30, 20])], (80, True)),
            ([line(0.2, 0.301, [2, 30, 31])], (80, False)),
            ([line(0.2, 0.301, [2, 30, 20, 45])], (80, True)),
            ([line(0.2, 0.301, [2, 30, 30, 31])], (80, False)),
            ([line(0.0, 0.1, [2, 30]), line(0.2, 0.301)], (80, False)),
            ([line(0.0, 0.1, [2, 30]), line(0.5, 0.6, [2, 90])], (140, True)),
            ([line(0.0, 0.1, [2, 30])], (80, True)),
            ([line(0.2, 0.301, [2, 0, 30])], (50, True)),
        ],
        ids=[
            "the same in two samples",
            "another size in the sample before",
            "a small change",
            "bounds of an earlier version",
            "close bounds of an earlier version",
            "unchanged since the line before",
            "a line for a later mark",
            "after the last line",
            "ended since the sample before",
        ],
    )
    def test_sizes(self, lines: list[dict[str, Any]], expected: tuple[int, bool]) -> None:
        """The sample that a mark triggers has the size of others; it is an estimate where they changed."""
        assert tree(reader(*lines, processes=[*self.TWO]).at(0.3, OWN, ALONE)) == expected

    def test_mark_from_outside(self) -> None:
        """A mark of a shell is all others: the sample that it triggers."""
        of = reader(line(0.2, 0.301, [0, 50], [2, 30, 20]), processes=[*self.TWO])

        assert tree(of.at(0.3, None, Entry())) == (80, True)

    def test_too_many_for_a_line(self) -> None:
        """Where a line has no entries, the sum is that of the sample after the mark, and an estimate."""
        of = reader({"from_s": 0.2, "to_s": 0.5, "rss": None}, processes=[*self.TWO])

        assert tree(of.at(0.3, OWN, ALONE)) == (300, True)

    def test_no_line(self) -> None:
        """A recording without such lines, as by psutil, knows only what the process read of itself."""
        assert reader(processes=[*self.TWO]).at(0.3, OWN, ALONE) == OwnMemory(rss=50 * MIB)

    def test_order_does_not_matter(self) -> None:
        """Marks may come in any order."""
        family = [process(), process(2, start_s=0.4, end_s=0.8)]
        of = reader(line(0.0, 0.1), line(0.4, 0.501, [2, 30]), line(0.8, 0.9, [2, 0]), processes=family)

        assert [tree(of.at(at_s, OWN, ALONE))[0] for at_s in (0.5, 0.05, 0.5, 0.85, 0.05)] == [80, 50, 80, 50, 50]


def test_reused_pid() -> None:
    """A PID stands for the process that had begun last."""
    first = process(1, pid=7, end_s=0.2)
    second = process(2, pid=7, start_s=0.5)
    of = reader(
        line(0.0, 0.101, [0, 9], [1, 400]), line(0.5, 0.601, [0, 9], [2, 300]), processes=[process(), first, second]
    )

    assert tree(of.at(0.1, 7, ALONE)) == (59, False)
    assert tree(of.at(0.6, 7, ALONE)) == (59, False)


@pytest.mark.parametrize("entry", [[], [0], [7, 5], [0, -5], [0, -5, -9, -7]])
def test_damaged_line(entry: list[int]) -> None:
    """A line of marks that is damaged ends nothing, and adds nothing to what the process read itself."""
    held = {"held": {"from_s": 0.0, "to_s": 0.6, "rss": [entry]}}
    of = Session.of(session_from(io.BytesIO(journal([0.0, 5], [0.5, 7], held, END)), "run"))

    assert tree(TreeReader(of).at(0.55, OWN, ALONE)) == (50, False)
    TreeReader(of).at(0.55, None, Entry())


@pytest.mark.parametrize("first", [0, 2_999], ids=["a chain", "a circle"])
def test_many_generations(first: int) -> None:
    """Thousands of generations, and parents of a damaged journal that are a circle, take no more time than others."""
    number = 3_000
    family = [
        process(),
        process(1, parent=first, counted_s=0.6),
        *(process(of, parent=of - 1, counted_s=0.6) for of in range(2, number)),
    ]
    of = reader(line(0.0, 0.6), processes=family)
    began_s = time.process_time()
    found = [of.at(0.5, OWN, ALONE) for _ in range(10)]

    assert tree(found[0])[0] == 50
    assert time.process_time() - began_s < HANGING_S


def test_session_without_a_journal() -> None:
    """A session that was loaded from a file has no lines: marks of a process alone are known."""
    of: Session = session({"rss": mib(1, 2)})

    assert tree(TreeReader(of).at(0.1, OWN, ALONE)) == (50, False)


def linux(release: str, cpus: int | None = 128, machine: str = "x86_64") -> Host:
    """Return a machine with Linux."""
    return Host(name="box", system="Linux", release=release, machine=machine, cpus=cpus)


@pytest.mark.parametrize(
    ("host", "error"),
    [
        (linux("6.1.0-28-amd64"), 0),
        (linux("6.2.0"), 256 * 128 * 4096),
        (linux("6.8.0-45-generic"), 256 * 128 * 4096),
        (linux("6.8.0-45-generic", 4), 32 * 4 * 4096),
        (linux("6.8.0-45-generic-64k", machine="aarch64"), 256 * 128 * 65536),
        (linux("6.8.0", machine="ppc64le"), 256 * 128 * 65536),
        (linux("6.6.98"), 256 * 128 * 4096),
        (linux("6.6.99"), 0),
        (linux("6.12.38"), 256 * 128 * 4096),
        (linux("6.12.39-1.el10"), 0),
        (linux("6.15.7"), 0),
        (linux("6.16.0"), 0),
        (linux("6.16"), 0),
        (linux("7.0.1"), 0),
        (linux("5.14.0"), 0),
        (linux("6.8.0", None), 0),
        (linux("strange"), 0),
        (Host(), 0),
        (Host(system="Darwin", release="6.8.0", cpus=128), 0),
    ],
)
def test_rss_error(host: Host, error: int) -> None:
    """RSS is off by a batch of pages for each CPU, from Linux 6.2 to where /proc was made exact again."""
    assert rss_error(host) == error
