from __future__ import annotations

from pathlib import Path

import pytest

from nncftools.analysis.operation import PeakPlace
from nncftools.analysis.peaks import narrow
from nncftools.analysis.session import Session, select_near_peak
from nncftools.render.sentences import brief_where_text, where_text
from nncftools.session.model import Mark, OwnMemory, Peak, Rise
from tests.made_up import MIB, marks, mib, process, session

TENTHS = [place / 10 for place in range(11)]
FLAT = "100*11"


def run(operations: str, rss: str, rises: str = "") -> Session:
    """Return a session of ten samples a second with operations.

    Samples of RSS are in MiB: ``10*4`` are four of 10 MiB. So are rises: ``0.4-0.5=300``.
    """
    found = []
    for rise in rises.split():
        span, _, size_mib = rise.partition("=")
        from_s, to_s = map(float, span.split("-"))
        found.append(Rise(from_s=from_s, to_s=to_s, high_water_mark=int(size_mib) * MIB))
    mark = max((rise.high_water_mark for rise in found), default=None)
    sizes = [float(size) for word in rss.split() for size in repeated(word)]
    processes = [process(high_water_mark=mark, rises=found)]
    return session({"rss": mib(*sizes), "time_s": TENTHS}, processes=processes, marks=marks(operations, pid=100))


def repeated(word: str) -> list[str]:
    """Return a text as often as it says."""
    text, _, times = word.partition("*")
    return [text] * int(times or 1)


def place(of: Session) -> PeakPlace:
    """Return where the peak is, which must be known."""
    found = of.peak_place
    assert found is not None
    return found


def names(of: Session) -> str:
    """Return the operations that hold the peak, those that may hold it with ``?``, and the nearest one with ``~``."""
    found = place(of)
    words = [one.name for one in found.path]
    words += [f"?{one.name}" for one in found.either]
    words += [f"~{one.name}" for one in (found.nearest,) if one is not None]
    return " ".join(words)


def marked(of: Session) -> str:
    """Return a sign for each operation: ``!`` if it holds the peak, ``?`` if it may hold it."""
    return "".join({True: "!", None: "?", False: "-"}[one.has_peak] for one in of.operations)


AB = "A 0.1-0.45, B 0.45-0.9"


def test_spike_before_a_plateau() -> None:
    """A mark that rose in one operation belongs to it, although another one held nearly as much in all samples."""
    of = run(AB, "10*5 592*4 10*2", "0.2-0.3=600")

    assert (names(of), place(of).from_s, place(of).to_s) == ("A", 0.2, 0.3)
    assert [one.rss_peak for one in of.operations] == mib(600, 592)


PARTS = "All 0-1, All/A 0.1-0.{}, All/B 0.{}-0.9"
APART = "A 0.05-0.45, B 0.45-0.85"


@pytest.mark.parametrize(
    "operations, rss, rises, expected, signs",
    [
        ("A 0.1-0.9, A/C 0.15-0.8, A/C/E 0.5-0.7, B 0.2-0.6", "10*4 600*5 10*2", "", "?C ?B", "???-"),
        (AB, "10*2 593*3 600*4 10*2", "", "B", "-!"),
        (AB, "10*2 595*3 600*4 10*2", "", "A", "!-"),
        (PARTS.format(45, 45), FLAT, "0.4-0.5=300", "All ?A ?B", "!??"),
        (PARTS.format(42, 48), FLAT, "0.4-0.5=300", "All", "!--"),
        (APART, "100*9 300 100", "", "~B", "--"),
        (APART, "100*10 300", "", "", "--"),
        (APART, "300 100*10", "", "~A", "--"),
        ("A 0.5-0.9", "10 300*8 10*2", "", "", "-"),
        ("A 0.1-0.99, End 0.99-0.99", "10*10 300", "", "~A", "--"),
        ("End 0.99-0.99", "10*10 300", "", "", "-"),
        ("A 0.1-0.4999, B 0.4999-0.9", "10*5 300 10*5", "", "A", "!-"),
    ],
    ids=[
        "parallel: the innermost, and those around",
        *("a level more than 1 % higher", "a level less than 1 % higher", "across a boundary inside", "between parts"),
        *("just after all", "long after all", "just before all", "stays at the peak"),
        *("the sample after the last operation", "a mark without a length"),
        "the sample that an end triggered",
    ],
)
def test_names(operations: str, rss: str, rises: str, expected: str, signs: str) -> None:
    """The operation that reached the peak holds it; the nearest one is at most 0.1 s or 1 % of the run away."""
    of = run(operations, rss, rises)

    assert (names(of), marked(of)) == (expected, signs)


@pytest.mark.parametrize(
    "start_s, mark, peak_s, rivals, expected",
    [
        (0.0, 900, None, "", "during A › B, or outside all operations"),
        (0.3, 900, None, "A", "during A › B, or in the rest of A"),
        (0.5, 900, None, "A", "during A › B, or in the rest of A"),
        (0.01, 895, 0.1, "", "during A › B, or outside all operations"),
        (0.3, 590, 0.4, "A", "during A › B, or in the rest of A"),
        (0.3, 590, 0.3, "", "during A › B"),
    ],
    ids=[
        "before all operations",
        "between inner operations",
        "in the operation itself",
        "at the limit",
        "grew",
        "stood still",
    ],
)
def test_more_may_have_been_held_elsewhere(
    start_s: float, mark: int, peak_s: float | None, rivals: str, expected: str
) -> None:
    """Where another process may have held much, time outside of the operation is named, too."""
    of = run(
        "A 0.15-0.95, A/B 0.45-0.75, A/C 0.82-0.88",
        "10*5 600*2 10*4",
    )
    helper = process(1, start_s=start_s, end_s=start_s + 0.14, peak_s=peak_s, samples=2)
    helper.high_water_mark = mark * MIB
    helper.high_water_limit = 900 * MIB
    of.processes = [process(0, high_water_mark=10 * MIB, end_s=None), helper]

    assert "".join(one.name for one in place(of).rivals) == rivals
    assert where_text(of) == expected


@pytest.mark.parametrize("mark, rises", [(600, ""), (700, "0.45-0.5=700")], ids=["by a sample", "by a rise"])
def test_one_process_has_no_rivals(mark: int, rises: str) -> None:
    """The samples and rises of the largest process say how much it can have held before."""
    of = run("A 0.05-0.35, B 0.35-0.85", "10*3 100*2 600*2 10*4", rises)
    of.processes = [process(0, high_water_mark=mark * MIB, peak_rss=600 * MIB, rises=of.processes[0].rises, end_s=None)]

    assert (names(of), place(of).rivals) == ("B", [])


def test_last_mark() -> None:
    """A mark without a length holds nothing. What was read at it was held by the operation before."""
    of = run("A 0.1-0.99, End 0.99-0.99", "10*10 300")
    of.marks[0].own_end = of.marks[1].own_start = OwnMemory(tree=300 * MIB)
    narrow(of)

    assert names(of) == "A"


def test_processes_that_grow_together() -> None:
    """Where several processes had a peak with the run, the operation of the largest of them is named."""
    of = run("A 0.05-0.95, A/B 0.15-0.75, A/C 0.25-0.85", "10*2 20 30 50 300 290 10*4")
    rise = Rise(from_s=0.45, to_s=0.55, high_water_mark=250 * MIB)
    of.processes = [
        process(0, peak_s=0.5, peak_rss=10 * MIB),
        process(1, parent=None, peak_s=0.6, peak_rss=250 * MIB, rises=[rise]),
    ]
    of.marks[0].pid = None
    of.marks[2].pid = 101

    assert names(of) == "A C"


def test_operations_that_reached_it_one_after_the_other() -> None:
    """Of operations in two processes, the one in which memory reached the peak first holds it."""
    of = run("A 0.1-0.95, B 0.4-0.95", "10*6 300*4 10", "0.3-0.5=300")
    of.processes.append(process(1, parent=0))
    of.marks[1].pid = 101

    assert [one.figures["rss"].peak.to_s for one in of.operations if one.figures["rss"].peak] == [0.5, 0.6]
    assert names(of) == "A"


@pytest.mark.parametrize(
    "peak_s, size, expected",
    [(0.5, 250, "Outer Inner"), (0.5, 100, "Outer"), (0.3, 250, "Outer")],
    ids=["held most", "held less", "held it earlier"],
)
def test_operation_of_a_child(peak_s: float, size: int, expected: str) -> None:
    """A child's operation inside of its parent's holds the peak only if the child held most of it."""
    of = run("Outer 0.1-0.9, Outer/Inner 0.2-0.8", "10*5 300 10*5")
    child = process(1, parent=0, peak_s=peak_s, peak_rss=size * MIB)
    of.processes = [process(0, peak_s=0.5, peak_rss=200 * MIB), child]
    of.marks[1].pid = 101

    assert names(of) == expected


def test_process_that_was_not_recorded() -> None:
    """An operation of a process that does not belong to the recording holds nothing."""
    of = run("A 0.1-0.9", "10*2 300 10*8")
    of.marks[0].pid = 555

    assert names(of) == ""


def test_parallel_operations_of_one_process() -> None:
    """The memory of one process belongs to none of the operations that ran in it at the peak; only those are named."""
    of = run(
        "A 0.1-0.9, A/C 0.15-0.55, A/D 0.3-0.9, B 0.1-0.35",
        "10*4 600*5 10*2",
    )
    of.marks[0].op = of.marks[1].inside = of.marks[2].inside = 1

    assert (names(of), marked(of)) == ("A ?C ?D", "!-??")


def test_parallel_operations() -> None:
    """Of operations that ran at the same time, the one whose process reached the peak holds it."""
    of = run("A 0.1-0.9", FLAT)
    rise = Rise(from_s=0.4, to_s=0.5, high_water_mark=300 * MIB)
    of.processes = [process(0), process(1, high_water_mark=300 * MIB, rises=[rise])]
    of.marks = [Mark(name=f"P{pid}", start_s=0.1, end_s=0.9, pid=pid) for pid in (100, 101)]
    of.peaks = {"rss": Peak(sampled=1, at_s=0.0, low=300 * MIB, rose_from_s=0.4, rose_to_s=0.5, process=1)}

    assert names(of) == "P101"


RUNS = Path(__file__).parents[1] / "data" / "runs"


@pytest.mark.parametrize("name", ["recorded", "parallel", "operations", "odd_before", "facts", "stacks", "no_samples"])
def test_near_the_peak(name: str) -> None:
    """The marks near the peak are enough to know the operation that holds the peak."""
    of = Session.load(RUNS / f"{name}.json")

    assert brief_where_text(select_near_peak(of)) == brief_where_text(of)


def test_far_from_the_peak() -> None:
    """Of many operations, the few near the peak are left, with the ends that they had among all."""
    of = session({"rss": mib(*[10] * 50, 90, *[10] * 49), "time_s": list(range(100))})
    of.marks = [Mark(name=f"step {second}", start_s=float(second)) for second in range(100)]
    near = select_near_peak(of).operations

    assert [operation.name for operation in near] == [f"step {second}" for second in range(47, 53)]
    assert {operation.duration_s for operation in near} == {1.0}
    assert brief_where_text(select_near_peak(of)) == brief_where_text(of) == "during step 49"
