from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from nncftools.analysis.peaks import Bracket, narrow
from nncftools.analysis.session import Session, find_unmarked
from nncftools.render.sentences import where_text
from nncftools.session.model import END_UNKNOWN, LateReadings, Mark, OwnMemory
from nncftools.session.nesting import add_ends, renumber_marks
from tests.conftest import HANGING_S
from tests.made_up import MIB, marks, mib, process, read_numbers, session


def marked(*of: str | list[Mark], **columns: Any) -> Session:  # noqa: ANN401 — columns
    """Return a session of one sample each half second with operations."""
    found = session(columns or {"rss": mib(100, 300, 200)})
    for part in of:
        found.marks += marks(part) if isinstance(part, str) else part
    return found


def rss_peak(of: Session) -> Bracket:
    """Return the peak of RSS of the first operation, which must be known."""
    found = of.operations[0].of("rss").peak
    assert found is not None
    return found


@pytest.mark.parametrize(
    "operations, ends",
    [
        ("a 0, b 0.5", [0.5, 1.0]),
        ("a 0-0.2, b 0.5", [0.2, 1.0]),
        ("a 0, a/in 0.2, b 0.5", [0.5, 0.5, 1.0]),
        ("a 0, a 0.5", [0.5, 1.0]),
        ("late 5", [5]),
    ],
    ids=["next mark", "own end", "nested", "same name", "after the end"],
)
def test_ends(operations: str, ends: list[float]) -> None:
    """An operation ends by itself, at the next mark of its process on its level or above, or with the session."""
    assert [phase.end_s for phase in marked(operations).operations] == ends


def test_ends_in_another_process() -> None:
    """A mark of another process does not end an operation."""
    of = marked(marks("a 0", pid=1), marks("b 0.5", pid=2))

    assert [phase.end_s for phase in of.operations] == [1.0, 1.0]


def test_the_end_is_unknown() -> None:
    """Without its end, only the start of an operation is known; what ran inside of it, or after it, has the peak."""
    lost = marks("lost 0.1-0.6", error=END_UNKNOWN)
    of = marked(lost, "lost/inner 0.4-0.6", marks("at once 0.5-0.5", error=END_UNKNOWN))
    operation = of.operations[0]
    rss = operation.of("rss")

    assert (operation.duration_s, operation.known_duration_s) == (0.5, None)
    assert (rss.start, rss.end, rss.delta, rss.peak) == (100 * MIB, None, None, None)
    assert [one.has_peak for one in of.operations] == [False, True, False]
    assert where_text(of) == "during inner"


@pytest.mark.parametrize("read_until_s, expected", [(0.41, 300), (0.46, 100)], ids=["at once", "too late"])
def test_a_sample_that_was_read_late(read_until_s: float, expected: int) -> None:
    """A sample that was still read when the operation had ended may show what came after it."""
    read = OwnMemory(rss=MIB, tree=100 * MIB)
    of = marked(
        marks("A 0.1-0.45", own_start=read, own_end=read),
        rss=mib(100, 100, 300, 300),
        time_s=[0.0, 0.2, 0.4, 0.6],
    )
    of.late = LateReadings(from_s=[0.4], to_s=[read_until_s])

    assert [operation.rss_peak for operation in of.operations] == mib(expected)


def test_ends_with_its_process() -> None:
    """An operation that never ended lasts no longer than its process, also of two processes with one PID."""
    of = marked(marks("a 0.0", pid=100), marks("b 0.445", pid=100))
    of.processes = [process(end_s=0.25), process(1, pid=100, start_s=0.45, end_s=0.75)]

    assert [phase.end_s for phase in of.operations] == [0.25, 0.75]


def test_peak_read_at_the_end() -> None:
    """What was read at its end belongs to the operation; without a reading, the sample that the end triggered does."""
    read = marked(marks("a 0.1-0.48", pid=100, own_end=OwnMemory(rss=300 * MIB, tree=300 * MIB)))
    narrow(read)
    (phase,) = read.operations
    (not_read,) = marked("a 0.1-0.48").operations

    assert (phase.rss_peak, phase.has_peak) == (300 * MIB, True)
    assert (not_read.rss_peak, not_read.has_peak) == (300 * MIB, False)


def test_a_sample_taken_for_a_mark_holds() -> None:
    """Where a sample follows a mark at once, counters are its, not a straight line's."""
    of = marked("a 0-0.49, b 0.49-1.0", cpu_user=[0, 5, 9], cpu_system=[0, 0, 0], rss=[1, 1, 1])

    assert [phase.cpu_s for phase in of.operations] == [5, 4]


def test_unmarked_ends_as_its_neighbours_begin() -> None:
    """What was read at the marks around it is what the tree held at its start and its end."""
    first = marks("a 0-0.2", own_end=OwnMemory(rss=MIB, tree=150 * MIB))
    of = marked(first, marks("b 0.8", own_start=OwnMemory(rss=MIB, tree=250 * MIB, is_estimate=True)))
    (gap,) = find_unmarked(of, 0.1)

    assert (gap.rss_start, gap.rss_end, gap.own_peak) == (150 * MIB, 250 * MIB, None)
    assert (gap.of("rss").start_is_estimate, gap.of("rss").end_is_estimate) == (False, True)


def test_former_name() -> None:
    """``phases`` is the same list by its former name."""
    of = marked("a 0")

    assert of.phases == of.operations


def readings(text: str) -> dict[str, OwnMemory]:
    """Return readings at the ends of a mark in MiB; ``-`` is none, ``≈`` an estimate, ``≈-`` unknown memory."""
    sizes = zip(("own_start", "own_end"), text.split(), strict=False)
    known = {name: size for name, size in sizes if size != "-"}
    return {name: tree(*read_numbers(size.strip("≈")), is_estimate="≈" in size) for name, size in known.items()}


def tree(size_mib: float | None, **fields: Any) -> OwnMemory:  # noqa: ANN401 — any field
    """Return a reading of the whole tree."""
    return OwnMemory(tree=mib(size_mib)[0], **fields)


def written(*figures: tuple[float | None, bool]) -> str:
    """Return sizes in MiB, -1 if unknown; those that are estimates have a sign."""
    return " ".join(
        f"{'≈' if is_estimate else ''}{(-MIB if size is None else size) / MIB:.0f}" for size, is_estimate in figures
    )


class TestReadings:
    """The readings at both ends of an operation are its figures; without a reading, samples are estimates."""

    @pytest.mark.parametrize(
        "times, read, expected",
        [
            ("0.49-0.51", "120 150", "120 150 30"),
            ("0.1-0.6", "", "≈100 ≈300 ≈200"),
            ("0.1-0.2", "", "≈100 ≈100 ≈0"),
            ("0.1-0.9", "90 900", "90 900 810"),
            ("0.1-0.4", "≈90 95", "≈90 95 ≈5"),
            ("0.6-0.8", "≈- ≈-", "≈-1 ≈-1 ≈-1"),
            ("0.6-0.8", "150", "150 ≈150 ≈0"),
        ],
        ids=["read", "not read", "no sample in it", "above", "estimate", "unknown", "older samples"],
    )
    def test_ends(self, times: str, read: str, expected: str) -> None:
        """A change is an estimate where an end is."""
        rss = marked(marks(f"a {times}", **readings(read))).operations[0].of("rss")
        ends = [(rss.start, rss.start_is_estimate), (rss.end, rss.end_is_estimate)]

        assert written(*ends, (rss.delta, rss.delta_is_estimate)) == expected

    def test_reading_with_bounds(self) -> None:
        """A reading with bounds, as earlier versions have, is an estimate."""
        rss = marked(marks("a 0.1-0.4", own_start=tree(90, tree_low=MIB), own_end=tree(95))).operations[0].of("rss")

        assert (rss.start_is_estimate, rss.end_is_estimate) == (True, False)

    @pytest.mark.parametrize(
        "read, low",
        [("", 300), ("900", 900), ("- 900", 900), ("≈900", 300)],
        ids=["sample", "start", "end", "estimate"],
    )
    def test_peak(self, read: str, low: float) -> None:
        """The peak is not below a reading, but an estimate proves no peak."""
        assert rss_peak(marked(marks("a 0.1-0.9", **readings(read)))).low == low * MIB


class TestUpperBound:
    """At most as much as all processes together can have held."""

    def test_mark_that_rose_later(self) -> None:
        """The process's own mark at the end of the operation is an upper bound, too."""
        of = marked(marks("a 0-0.3", pid=100, own_end=OwnMemory(high_water_mark=120 * MIB)))
        of.processes = [process(0, high_water_mark=mib(400)[0], end_s=None)]
        bracket = rss_peak(of)

        assert (bracket.low, bracket.high) == tuple(mib(100, 120))


@pytest.mark.parametrize("total_s, expected", [(None, 2.0), (0.95, 2.0), (0.5, None)])
def test_cores_of_calls_that_were_logged_together(total_s: float | None, expected: float | None) -> None:
    """Where much time passed between the calls, the CPU time inside of them is unknown."""
    of = marked(marks("a 0-1.0", count=3, total_s=total_s), rss=[1] * 3, cpu_user=[0, 1, 2], cpu_system=[0] * 3)

    assert of.operations[0].cpu_average == expected


@pytest.mark.parametrize("pid, end_s", [(555, 0.9), (100, 1.5)], ids=["not recorded", "after the recording"])
def test_own_reading_that_does_not_count(pid: int, end_s: float) -> None:
    """What a process read of itself counts only if it was recorded, and within the recording."""
    own = {"own_start": OwnMemory(high_water_mark=MIB), "own_end": OwnMemory(high_water_mark=900 * MIB)}
    of = marked(marks("a 0.1", end_s=end_s, pid=pid, **own))

    assert of.operations[0].rss_peak == mib(300)[0]


@pytest.mark.long
@pytest.mark.parametrize("ends", [True, False])
def test_very_many_levels(*, ends: bool) -> None:
    """Time grows with the number of operations, not with its square: 20,000 levels took 18 s, and take 1 s."""
    number = 20_000
    marks = [
        Mark(name="a", start_s=place * 1e-6, end_s=1 - place * 1e-6 if ends else None, depth=place, pid=100)
        for place in range(number)
    ]
    of = session(marks=marks)
    began_s = time.process_time()
    found = add_ends(of.marks, of)
    text = where_text(of)

    assert len(found) == number
    assert len(text) < 1000
    assert time.process_time() - began_s < HANGING_S


def run(operations: str, **fields: Any) -> Session:  # noqa: ANN401 — any field of a mark
    """Return a run of ten seconds with operations of one process."""
    of = session(duration_s=10.0, processes=[process(end_s=10.0)])
    of.marks = marks(operations, **{"pid": 100, **fields})
    return of


def parallel(of: Session) -> str:
    """Return the names of the parallel operations."""
    return " ".join(operation.name for operation in of.operations if operation.is_parallel)


@pytest.mark.parametrize(
    "operations, expected",
    [
        ("a 0-9, a/b 1-5, a/c 5-9, a/c/d 6-7", ""),
        ("a 0-5, b 4-9", "a b"),
        ("a 0-9, a/b 1-5, a/c 4-9", "b c"),
        ("a 0-9, a/b 1-5, c 2-3", "a b c"),
        ("a 0-2, a/b 1-9, c 3-5, d 9-10", "b c"),
        ("a 0-9, b 3-3, c 9-10", ""),
        ("a 0-9, b 1-2, c 3-4, c/d 3-4", "a b c d"),
    ],
)
def test_which_are_parallel(operations: str, expected: str) -> None:
    """Two that share some time are parallel unless one is around the other; a moment without a time is not."""
    assert parallel(run(operations)) == expected


def test_operations_that_are_not_parallel() -> None:
    """Operations of several processes, marks from outside, and calls that are counted together are not."""
    rows = "a 0.0-9.0, b 1.0-5.0"
    of = run(rows)
    of.marks[1].pid = 101

    assert parallel(of) == ""
    assert parallel(run(rows, pid=None)) == ""
    assert parallel(run(rows, count=2)) == ""


@pytest.mark.long
def test_many_at_once() -> None:
    """Time grows with the number of operations, not with its square."""
    rows = (f"{place} {place / 10_000:.4f}-{9 + place / 100_000:.5f}" for place in range(30_000))
    of = run(", ".join(rows))

    assert sum(operation.is_parallel for operation in of.operations) == 30_000


def test_named_encloser() -> None:
    """An operation that names what it is inside of is inside of that, although another one began later."""
    of = run("a 0-5, b 1-9, a/in a 2-3, b/in b 2-3")
    of.marks[0].op, of.marks[2].inside = 7, 7
    of.marks = msgspec.json.decode(msgspec.json.encode(of.marks), type=list[Mark])

    assert parallel(of) == "a b in a in b"
    assert [one.parent and one.parent.name for one in of.operations[2:]] == ["a", "b"]


def test_marks_of_two_files_keep_apart() -> None:
    """Numbers of marks that come together stay different; marks without any stay without."""
    first, second = ([Mark(name="a", start_s=0, op=1), Mark(name="b", start_s=0, inside=1)] for _ in range(2))

    assert [(mark.op, mark.inside) for mark in renumber_marks(second, first)] == [(2, None), (None, 2)]
    assert renumber_marks(second, []) == second


def test_no_time_as_a_process_begins() -> None:
    """An operation that begins and ends exactly when a process begins can have held what the process held."""
    of = session(
        marks=marks("A 0.5-0.5", pid=100),
        processes=[process(start_s=0.5, high_water_mark=900 * MIB, end_s=None)],
    )
    bracket = rss_peak(of)

    assert (bracket.low, bracket.high) == (300 * MIB, 900 * MIB)


@pytest.mark.parametrize(
    "samples, forked_copy, high",
    [(2, False, 100 + 50 + 512), (0, False, 100 + 512), (0, True, 100 + 100 + 512)],
    ids=["sampled", "never sampled", "a forked copy, never sampled"],
)
def test_a_child_that_ended_between_samples(samples: int, forked_copy: bool, high: int) -> None:  # noqa: FBT001 — a parameter of a test
    """A process that ended may have taken memory after its last sample, but not any amount in a short time."""
    of = marked("a 0-1.0")
    child = process(1, parent=0, start_s=0.5, end_s=0.75, samples=samples, high_water_limit=9000 * MIB)
    child.forked_copy = forked_copy
    child.peak_rss = samples * 25 * MIB
    of.processes = [process(0, high_water_mark=100 * MIB, end_s=None), child]

    assert rss_peak(of).high == high * MIB


def test_a_process_that_no_sample_shows() -> None:
    """Where the command's own limit proves a process that no sample shows, it may have lived in any operation."""
    of = marked("a 0-1.0")
    of.processes = [process(0, high_water_mark=100 * MIB, high_water_limit=250 * MIB, end_s=1.0)]

    assert rss_peak(of).high == 500 * MIB


@pytest.mark.parametrize("at_s, high", [(100, 101), (1024, 202), (1900, 303)])
def test_a_bound_of_a_long_run(at_s: int, high: int) -> None:
    """An operation held at most what any sample up to its end shows, however long before."""
    sizes = [100] * 500 + [200] + [100] * 799 + [300] + [100] * 1697 + [400, 400]
    of = marked(f"a {at_s - 0.5}-{at_s + 0.5}", rss=mib(*sizes), time_s=range(3000))
    of.processes = [process(0, high_water_mark=400 * MIB, peak_rss=400 * MIB, end_s=None)]

    assert rss_peak(of).high == high * MIB
