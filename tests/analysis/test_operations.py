from __future__ import annotations

import io
import json
import time
from typing import Any

import msgspec
import pytest

from nncftools.analysis.peaks import narrow, peaks
from nncftools.analysis.session import Session, unmarked
from nncftools.intake import Redaction
from nncftools.reading_marks.collecting import take_log
from nncftools.render.sentences import where_text
from nncftools.session.model import END_UNKNOWN, LateReadings, Mark, OwnMemory, Rise
from nncftools.session.nesting import renumbered, with_ends
from tests.conftest import HANGING_S
from tests.made_up import MIB, mib, process, session


def marked(*marks: Mark, **columns: Any) -> Session:  # noqa: ANN401 — columns
    """Return a session of one sample each half second with marks."""
    of = session(columns or {"rss": mib(100, 300, 200)})
    of.marks = list(marks)
    return of


def mark(name: str, start_s: float, **fields: Any) -> Mark:  # noqa: ANN401 — any field
    """Return a mark."""
    return Mark(name=name, start_s=start_s, **fields)


@pytest.mark.parametrize(
    ("marks", "ends"),
    [
        ([mark("a", 0), mark("b", 0.5)], [0.5, 1.0]),
        ([mark("a", 0, end_s=0.2), mark("b", 0.5)], [0.2, 1.0]),
        ([mark("a", 0), mark("in", 0.2, depth=1), mark("b", 0.5)], [0.5, 0.5, 1.0]),
        ([mark("a", 0, pid=1), mark("b", 0.5, pid=2)], [1.0, 1.0]),
        ([mark("a", 0), mark("a", 0.5)], [0.5, 1.0]),
        ([mark("late", 5)], [5]),
    ],
    ids=["next mark", "own end", "nested", "other process", "same name", "after the end"],
)
def test_ends(marks: list[Mark], ends: list[float]) -> None:
    """An operation ends by itself, at the next mark of its process on its level or above, or with the session."""
    assert [phase.end_s for phase in marked(*marks).operations] == ends


def test_the_end_is_unknown() -> None:
    """Without its end, only the start of an operation is known; what ran inside of it, or after it, has the peak."""
    lost = mark("lost", 0.1, end_s=0.6, error=END_UNKNOWN)
    columns = {"rss": mib(100, 300, 200), "cpu_user": [0, 1, 2], "cpu_system": [0, 0, 0]}
    phase, inner, at_once = marked(
        lost, mark("inner", 0.4, end_s=0.6, depth=1), mark("too", 0.5, end_s=0.5, error=END_UNKNOWN), **columns
    ).operations
    rss = phase.of("rss")

    assert (phase.duration_s, phase.known_duration_s, inner.known_duration_s) == (0.5, None, pytest.approx(0.2))
    assert (rss.start, rss.end, rss.delta, rss.peak, phase.cpu_s) == (100 * MIB, None, None, None, None)
    assert (at_once.of("rss").start, at_once.of("rss").peak) == (300 * MIB, None)
    assert [of.has_peak for of in (phase, inner, at_once)] == [False, True, False]
    assert where_text(marked(lost, mark("inner", 0.4, end_s=0.6, depth=1))) == "during inner"


def test_an_operation_without_end_may_not_hold_the_peak() -> None:
    """Where the peak may belong to several operations, one whose end is unknown is none of them."""
    rises = [Rise(from_s=0.1, to_s=0.9, high_water_mark=400 * MIB)]
    of = marked(mark("lost", 0.2, end_s=0.8, error=END_UNKNOWN), mark("a", 0.3, end_s=0.5), mark("b", 0.6, end_s=0.7))
    of.processes = [process(rises=rises, high_water_mark=400 * MIB)]
    of.peaks = peaks(of)

    assert [phase.has_peak for phase in of.operations] == [False, None, None]


def test_in_time_order() -> None:
    """Operations are in the order of their starts, the outer one first."""
    of = marked(mark("b", 0.5), mark("in", 0.0, depth=1), mark("a", 0.0))

    assert [phase.name for phase in of.operations] == ["a", "in", "b"]


def test_memory() -> None:
    """Start and end are the last samples before them or those taken for them, the peak is the largest one meanwhile."""
    (phase,) = marked(mark("a", 0.1, end_s=0.9)).operations

    assert (phase.rss_start, phase.rss_peak, phase.rss_end) == tuple(mib(100, 300, 200))
    assert phase.delta == mib(100)[0]


@pytest.mark.parametrize(("read_until_s", "expected"), [(0.41, 300), (0.46, 100)], ids=["at once", "too late"])
def test_a_sample_that_was_read_late(read_until_s: float, expected: int) -> None:
    """A sample that was still read when the operation had ended may show what came after it."""
    read = OwnMemory(rss=MIB, tree=100 * MIB)
    of = marked(
        mark("A", 0.1, end_s=0.45, own_start=read, own_end=read),
        rss=mib(100, 100, 300, 300),
        time_s=[0.0, 0.2, 0.4, 0.6],
    )
    of.late = LateReadings(from_s=[0.4], to_s=[read_until_s])

    assert [operation.rss_peak for operation in of.operations] == mib(expected)


def test_no_sample_meanwhile() -> None:
    """An operation between two samples held at least what was held at its ends, which lies between the two."""
    (phase,) = marked(mark("a", 0.1, end_s=0.2)).operations

    assert (phase.rss_peak, phase.delta) == (100 * MIB, 0)
    assert phase.of("rss").delta_is_estimate


def test_counters_are_interpolated() -> None:
    """What was spent is read from straight lines between samples, and never more than was spent in all."""
    of = marked(
        mark("half", 0.25, end_s=0.75), mark("all", 0, end_s=9), cpu_user=[0, 1, 2], cpu_system=[0, 0, 2], rss=[1, 1, 1]
    )
    half, whole = sorted(of.operations, key=lambda phase: phase.duration_s)

    assert half.cpu_s == pytest.approx(2)
    assert whole.cpu_s == 4


def test_unknown() -> None:
    """What was not recorded is unknown."""
    (phase,) = marked(mark("a", 0)).operations

    assert (phase.cpu_s, phase.read_bytes) == (None, None)


def test_ends_with_its_process() -> None:
    """An operation that never ended lasts no longer than its process."""
    of = marked(mark("a", 0.0, pid=100))
    of.processes = [process(end_s=0.25)]

    assert [phase.end_s for phase in of.operations] == [0.25]


def test_ends_with_its_own_process() -> None:
    """Of two processes with one PID, an operation ends with the one that performed it."""
    of = marked(mark("a", 0.0, pid=100), mark("b", 0.5, pid=100))
    of.processes = [process(end_s=0.25), process(1, pid=100, start_s=0.45, end_s=0.75)]

    assert [phase.end_s for phase in of.operations] == [0.25, 0.75]


def test_peak_read_at_the_end() -> None:
    """What was read at its end belongs to the operation; without a reading, the sample that the end triggered does."""
    read = marked(mark("a", 0.1, end_s=0.48, pid=100, own_end=OwnMemory(rss=300 * MIB, tree=300 * MIB)))
    narrow(read)
    (phase,) = read.operations
    (not_read,) = marked(mark("a", 0.1, end_s=0.48)).operations

    assert (phase.rss_peak, phase.has_peak) == (300 * MIB, True)
    assert (not_read.rss_peak, not_read.has_peak) == (300 * MIB, False)


def test_which_holds_the_peak() -> None:
    """The operations in which the largest sample was taken are known, inner ones too."""
    of = marked(mark("a", 0, end_s=0.4), mark("b", 0.4, end_s=0.6), mark("in", 0.45, end_s=0.6, depth=1))

    assert [phase.has_peak for phase in of.operations] == [False, True, True]


def test_a_sample_taken_for_a_mark_holds() -> None:
    """Where a sample follows a mark at once, counters are its, not a straight line's."""
    of = marked(
        mark("a", 0, end_s=0.49), mark("b", 0.49, end_s=1.0), cpu_user=[0, 5, 9], cpu_system=[0, 0, 0], rss=[1, 1, 1]
    )

    assert [phase.cpu_s for phase in of.operations] == [5, 4]


def test_cores_on_average_and_at_most() -> None:
    """CPU time is told as busy cores: on average, and in the busiest window of at least 0.2 s."""
    times = [0, 0.1, 0.2, 0.3, 0.4]
    of = marked(
        mark("a", 0, end_s=0.4),
        mark("short", 0.3, end_s=0.4),
        time_s=times,
        rss=[1] * 5,
        cpu_user=[0, 0.1, 0.1, 0.5, 0.6],
        cpu_system=[0] * 5,
    )
    long, short = of.operations

    assert (long.cpu_average, long.cpu_peak) == (pytest.approx(1.5), pytest.approx(2.5))
    assert (short.cpu_average, short.cpu_peak) == (None, None)


def test_time_without_a_mark() -> None:
    """What was not marked is told by its times and figures, where it is long enough."""
    of = marked(mark("a", 0.1, end_s=0.4), mark("in", 0.2, end_s=0.3, depth=1), mark("b", 0.45, end_s=0.5))
    first, last = unmarked(of, 0.1)

    assert [(phase.name, phase.start_s, phase.end_s) for phase in (first, last)] == [("", 0, 0.1), ("", 0.5, 1.0)]
    assert last.delta == mib(-100)[0]


def test_unmarked_ends_as_its_neighbours_begin() -> None:
    """What was read at the marks around it is what the tree held at its start and its end."""
    first = mark("a", 0, end_s=0.2, own_end=OwnMemory(rss=MIB, tree=150 * MIB))
    of = marked(first, mark("b", 0.8, own_start=OwnMemory(rss=MIB, tree=250 * MIB, is_estimate=True)))
    (gap,) = unmarked(of, 0.1)

    assert (gap.rss_start, gap.rss_end, gap.own_peak) == (150 * MIB, 250 * MIB, None)
    assert (gap.of("rss").start_is_estimate, gap.of("rss").end_is_estimate) == (False, True)


def test_ten_thousand_marks() -> None:
    """Marks by the thousand, each ended by the next, are as many phases."""
    of = marked(*(mark(f"{number}", number / 10_000) for number in range(10_000)))

    assert len(of.operations) == 10_000
    assert of.operations[17].end_s == of.operations[18].start_s


def test_former_name() -> None:
    """``phases`` is the same list by its former name."""
    of = marked(mark("a", 0))

    assert of.phases == of.operations


class TestReadings:
    """What was read at a mark is what the tree held there; without a reading, samples are estimates."""

    def test_read(self) -> None:
        """A reading is the figure, whatever the samples beside it say."""
        own = {"own_start": OwnMemory(tree=120 * MIB), "own_end": OwnMemory(tree=150 * MIB)}
        rss = marked(mark("a", 0.49, end_s=0.51, **own)).operations[0].of("rss")

        assert (rss.start, rss.end, rss.delta) == tuple(mib(120, 150, 30))
        assert not rss.delta_is_estimate

    def test_not_read(self) -> None:
        """Without a reading, the sample before is an estimate where the sample after differs."""
        rss = marked(mark("a", 0.1, end_s=0.6)).operations[0].of("rss")

        assert (rss.start, rss.start_is_estimate) == (100 * MIB, True)
        assert (rss.end, rss.end_is_estimate, rss.delta_is_estimate) == (300 * MIB, True, True)

    def test_samples_that_agree(self) -> None:
        """Between two samples of the same size, their size is no estimate."""
        rss = marked(mark("a", 0.1, end_s=0.6), rss=mib(100, 100, 100)).operations[0].of("rss")

        assert (rss.start, rss.delta, rss.delta_is_estimate) == (100 * MIB, 0, False)

    @pytest.mark.parametrize("fields", [{"is_estimate": True}, {"tree_low": 80 * MIB}], ids=["now", "before"])
    def test_estimate(self, fields: dict[str, Any]) -> None:
        """A reading may be an estimate; one that had bounds in an earlier version is an estimate, too."""
        own = {"own_start": OwnMemory(tree=90 * MIB, **fields), "own_end": OwnMemory(tree=95 * MIB)}
        rss = marked(mark("a", 0.1, end_s=0.4, **own)).operations[0].of("rss")

        assert (rss.start, rss.start_is_estimate, rss.end_is_estimate) == (90 * MIB, True, False)
        assert (rss.delta, rss.delta_is_estimate) == (5 * MIB, True)

    def test_peak_is_never_below(self) -> None:
        """The peak is not below what was read at both ends."""
        own = OwnMemory(tree=900 * MIB)
        for fields in ({"own_start": own}, {"own_end": own}):
            peak = marked(mark("a", 0.1, end_s=0.9, **fields)).operations[0].of("rss").peak

            assert peak is not None
            assert (peak.low, peak.likely) == (own.tree, own.tree)

    def test_estimates_are_no_peak(self) -> None:
        """An estimate proves no peak."""
        own = OwnMemory(tree=900 * MIB, is_estimate=True)
        peak = marked(mark("a", 0.1, end_s=0.9, own_start=own)).operations[0].of("rss").peak

        assert peak is not None
        assert peak.low == 300 * MIB

    def test_rises_in_any_order(self) -> None:
        """What the high-water marks of several processes prove belongs to the operation in which each of them rose."""
        of = marked(mark("a", 0.1, end_s=0.4), mark("b", 0.5, end_s=0.95))
        times = ((0.6, 0.9, 500), (0.2, 0.3, 700))
        rises = [Rise(from_s=begin, to_s=end, high_water_mark=size * MIB) for begin, end, size in times]
        of.processes = [process(number, rises=[rise]) for number, rise in enumerate(rises)]

        assert [operation.rss_peak for operation in of.operations] == mib(700, 500)

    def test_mark_inside(self) -> None:
        """What was read at the marks of inner operations was held in the outer one, too."""
        inner = mark("in", 0.2, end_s=0.3, depth=1, own_end=OwnMemory(tree=400 * MIB))
        of = marked(mark("a", 0.1, end_s=0.9), inner)

        assert [operation.rss_peak for operation in of.operations] == mib(400, 400)


class TestUpperBound:
    """At most as much as all processes together can have held."""

    def test_sum_of_marks(self) -> None:
        """The bound is the sum of the marks of the processes that lived during the operation."""
        of = marked(mark("a", 0, end_s=0.4), mark("b", 0.6, end_s=1.0))
        of.processes = [
            process(0, high_water_mark=mib(400)[0], end_s=None),
            process(1, start_s=0.5, high_water_mark=mib(50)[0], end_s=None),
        ]
        first, second = (operation.of("rss").peak for operation in of.operations)

        assert first is not None
        assert second is not None
        assert (first.high, second.high) == tuple(mib(400, 450))

    def test_mark_that_rose_later(self) -> None:
        """The process's own mark at the end of the operation is an upper bound, too."""
        of = marked(mark("a", 0, end_s=0.3, pid=100, own_end=OwnMemory(high_water_mark=120 * MIB)))
        of.processes = [process(0, high_water_mark=mib(400)[0], end_s=None)]
        bracket = of.operations[0].of("rss").peak

        assert bracket is not None
        assert (bracket.low, bracket.high) == tuple(mib(100, 120))


@pytest.mark.parametrize(("total_s", "expected"), [(None, 2.0), (0.95, 2.0), (0.5, None)])
def test_cores_of_calls_that_were_logged_together(total_s: float | None, expected: float | None) -> None:
    """Where much time passed between the calls, the CPU time inside of them is unknown."""
    of = marked(mark("a", 0, end_s=1.0, count=3, total_s=total_s), rss=[1] * 3, cpu_user=[0, 1, 2], cpu_system=[0] * 3)

    assert of.operations[0].cpu_average == expected


@pytest.mark.parametrize(("pid", "end_s"), [(555, 0.9), (100, 1.5)], ids=["not recorded", "after the recording"])
def test_own_reading_that_does_not_count(pid: int, end_s: float) -> None:
    """What a process read of itself counts only if it was recorded, and within the recording."""
    own = {"own_start": OwnMemory(high_water_mark=MIB), "own_end": OwnMemory(high_water_mark=900 * MIB)}
    of = marked(mark("a", 0.1, end_s=end_s, pid=pid, **own))

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
    found = with_ends(of.marks, of)
    places = of.peak_place
    text = where_text(of)

    assert len(found) == number
    assert {end_s for _, end_s in found} == ({1 - place * 1e-6 for place in range(number)} if ends else {1.0})
    assert places is not None
    assert len(text) < 1000
    assert time.process_time() - began_s < HANGING_S


def test_ends_by_the_next_mark() -> None:
    """A mark without an end ends with the next one of its process on its level or above."""
    marks = [
        Mark(name="a", start_s=0.0, pid=1),
        Mark(name="b", start_s=0.1, depth=1, pid=1),
        Mark(name="c", start_s=0.2, depth=2, pid=1),
        Mark(name="d", start_s=0.3, depth=2, pid=2),
        Mark(name="e", start_s=0.4, depth=1, pid=1),
        Mark(name="f", start_s=0.6, depth=3, pid=1),
        Mark(name="g", start_s=0.8, pid=1),
    ]
    of = session(marks=marks)

    assert {mark.name: end_s for mark, end_s in with_ends(of.marks, of)} == {
        "a": 0.8,
        "b": 0.4,
        "c": 0.4,
        "d": 1.0,
        "e": 0.8,
        "f": 0.8,
        "g": 1.0,
    }


Row = tuple[str, float, float, int]
"""Name, start, end and depth of an operation."""


def run(*rows: Row, **fields: Any) -> Session:  # noqa: ANN401 — any field of a mark
    """Return a run of ten seconds with operations of one process."""
    of = session(duration_s=10.0, processes=[process(end_s=10.0)])
    of.marks = [
        Mark(**{"name": name, "start_s": start_s, "end_s": end_s, "depth": depth, "pid": 100, **fields})
        for name, start_s, end_s, depth in rows
    ]
    return of


def parallel(of: Session) -> str:
    """Return the names of the parallel operations."""
    return " ".join(operation.name for operation in of.operations if operation.is_parallel)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([("a", 0, 5, 0), ("b", 5, 9, 0)], ""),
        ([("a", 0, 9, 0), ("b", 1, 5, 1), ("c", 5, 9, 1), ("d", 6, 7, 2)], ""),
        ([("a", 0, 5, 0), ("b", 4, 9, 0)], "a b"),
        ([("a", 0, 9, 0), ("b", 1, 5, 1), ("c", 4, 9, 1)], "b c"),
        ([("a", 0, 9, 0), ("b", 1, 5, 1), ("c", 2, 3, 0)], "a b c"),
        ([("a", 0, 2, 0), ("b", 1, 9, 1), ("c", 3, 5, 0), ("d", 9, 10, 0)], "b c"),
        ([("a", 0, 9, 0), ("b", 0, 9, 0), ("c", 9, 10, 0)], "a b"),
        ([("a", 0, 9, 0), ("b", 3, 3, 0), ("c", 9, 10, 0)], ""),
        ([("a", 0, 9, 0), ("b", 1, 2, 0), ("c", 3, 4, 0), ("d", 3, 4, 1)], "a b c d"),
    ],
)
def test_which_are_parallel(rows: list[Row], expected: str) -> None:
    """Two that share some time are parallel unless one is around the other; a moment without a time is not."""
    assert parallel(run(*rows)) == expected


def test_operations_that_are_not_parallel() -> None:
    """Operations of several processes, marks from outside, and calls that are counted together are not."""
    rows = [("a", 0.0, 9.0, 0), ("b", 1.0, 5.0, 0)]
    of = run(*rows)
    of.marks[1].pid = 101

    assert parallel(of) == ""
    assert parallel(run(*rows, pid=None)) == ""
    assert parallel(run(*rows, count=2)) == ""


@pytest.mark.long
def test_many_at_once() -> None:
    """Time grows with the number of operations, not with its square."""
    rows = [(f"{place}", place * 1e-4, 9.0 + place * 1e-5, 0) for place in range(30_000)]
    of = run(*rows)

    assert sum(operation.is_parallel for operation in of.operations) == 30_000


def test_named_encloser() -> None:
    """An operation that names what it is inside of is inside of that, although another one began later."""
    of = run(("a", 0, 5, 0), ("b", 1, 9, 0), ("in a", 2, 3, 1), ("in b", 2, 3, 1))
    of.marks[0].op, of.marks[2].inside = 7, 7
    operations = of.operations

    assert [one.parent and one.parent.name for one in operations[2:]] == ["a", "b"]


def test_marks_of_two_files_keep_apart() -> None:
    """Numbers of marks that come together stay different; marks without any stay without."""
    first, second = ([Mark(name="a", start_s=0, op=1), Mark(name="b", start_s=0, inside=1)] for _ in range(2))

    assert [(mark.op, mark.inside) for mark in renumbered(second, first)] == [(2, None), (None, 2)]
    assert renumbered(second, []) == second


def test_saved_sessions_say_the_same() -> None:
    """Which operations are parallel, and inside of which, survives saving; it is a matter of the marks alone."""
    lines = [
        *(("begin", 1, 0, "a", 1), ("begin", 3, 0, "b", 2), ("begin", 5, 1, "in a", 3), ("begin", 7, 3, "in b", 4)),
        *(("end", 1, 0, "", 5), ("end", 5, 0, "", 6), ("end", 7, 0, "", 7), ("end", 3, 0, "", 8)),
    ]
    keys = ("event", "op", "in", "name", "start_s")
    rows = [dict(zip(keys, line, strict=True), pid=100, tid=100) for line in lines]
    log = "\n".join(map(json.dumps, rows)).encode()
    of = session({"rss": mib(1, 2, 3), "time_s": [0, 5, 10]}, processes=[process(end_s=10.0)])
    take_log(of, io.BytesIO(log), "log", Redaction())
    read = session({"rss": mib(1, 2, 3), "time_s": [0, 5, 10]}, processes=[process(end_s=10.0)])
    read.marks = msgspec.json.decode(msgspec.json.encode(of.marks), type=list[Mark])

    for one in (of, read):
        assert parallel(one) == "a b in a in b"
        assert [inner.parent and inner.parent.name for inner in one.operations if inner.depth] == ["a", "b"]


def test_no_time_as_a_process_begins() -> None:
    """An operation that begins and ends exactly when a process begins can have held what the process held."""
    of = session(
        marks=[Mark(name="A", start_s=0.5, end_s=0.5, pid=100)],
        processes=[process(start_s=0.5, high_water_mark=900 * MIB, end_s=None)],
    )
    bracket = of.operations[0].of("rss").peak

    assert bracket is not None
    assert (bracket.low, bracket.high) == (300 * MIB, 900 * MIB)


@pytest.mark.parametrize(
    ("samples", "forked_copy", "high"),
    [(2, False, 100 + 50 + 512), (0, False, 100 + 512), (0, True, 100 + 100 + 512)],
    ids=["sampled", "never sampled", "a forked copy, never sampled"],
)
def test_a_child_that_ended_between_samples(samples: int, forked_copy: bool, high: int) -> None:  # noqa: FBT001 — a parameter of a test
    """A process that ended may have taken memory after its last sample, but not any amount in a short time."""
    of = marked(mark("a", 0, end_s=1.0))
    child = process(1, parent=0, start_s=0.5, end_s=0.75, samples=samples, high_water_limit=9000 * MIB)
    child.forked_copy = forked_copy
    child.peak_rss = 50 * MIB if samples else None
    of.processes = [process(0, high_water_mark=100 * MIB, end_s=None), child]
    bracket = of.operations[0].of("rss").peak

    assert bracket is not None
    assert bracket.high == high * MIB


def test_a_process_that_no_sample_shows() -> None:
    """Where the command's own limit proves a process that no sample shows, it may have lived in any operation."""
    of = marked(mark("a", 0, end_s=1.0))
    of.processes = [process(0, high_water_mark=100 * MIB, high_water_limit=250 * MIB, end_s=1.0)]
    bracket = of.operations[0].of("rss").peak

    assert bracket is not None
    assert bracket.high == 500 * MIB


@pytest.mark.parametrize(("at_s", "high"), [(100, 101), (1023, 202), (1024, 202), (1900, 303), (2999, 400)])
def test_a_bound_of_a_long_run(at_s: int, high: int) -> None:
    """An operation held at most what any sample up to its end shows, however long before."""
    sizes = [100] * 500 + [200] + [100] * 799 + [300] + [100] * 1697 + [400, 400]
    of = marked(mark("a", at_s - 0.5, end_s=at_s + 0.5), rss=mib(*sizes), time_s=range(3000))
    of.processes = [process(0, high_water_mark=400 * MIB, peak_rss=400 * MIB, end_s=None)]
    bracket = of.operations[0].of("rss").peak

    assert bracket is not None
    assert bracket.high == high * MIB
