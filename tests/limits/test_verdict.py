from __future__ import annotations

import pytest

from nncftools.limits.judges import verdict
from nncftools.limits.verdict import UNKNOWN, Cause, Verdict, is_consequence, last_state
from nncftools.session.model import Exit, Host, Mark, RankRun
from nncftools.session.session import Session
from nncftools.units import MemoryUnit
from tests import made_up
from tests.limits.deaths import child, run
from tests.made_up import MIB, mib, session


def test_sample_before() -> None:
    """The sample at the moment itself does not count: what died is gone in it."""
    state = last_state(run(), 1.0)

    assert (state.at_s, state.rss) == (0.5, 200 * MIB)


def test_growth() -> None:
    """The growth is that of the last half second, and of at least three samples."""
    assert last_state(run(), 2.0).growth_per_s == 200 * MIB
    assert last_state(run(), 1.0).growth_per_s is None


def test_unknown_samples() -> None:
    """Samples without a value are passed over."""
    session = made_up.session({"rss": mib(100, 200, None, None)})

    assert last_state(session, 9.0).at_s == pytest.approx(0.5)


def test_no_sample() -> None:
    """Without a sample, nothing is known."""
    state = last_state(run(), 0.0)

    assert (state.at_s, state.rss, state.growth_per_s, state.running) == (None, 0, None, "")


def test_falling_memory() -> None:
    """Memory that fell has no growth."""
    assert last_state(made_up.session({"rss": mib(300, 200, 100)}), 2.0).growth_per_s is None


def test_largest_processes() -> None:
    """Processes that lived then are listed, the largest first, at most three."""
    others = [child(number, peak_rss=number * MIB, end_s=end_s) for number, end_s in ((1, 0.2), (2, 0.9), (3, 1.0))]
    state = last_state(run(made_up.Exit(code=0), *others), 1.0)

    assert [process.id for process in state.largest] == [0, 3, 2]


def test_operations() -> None:
    """The operations that ran are named, the outermost first."""
    marks = [
        Mark(name="Export", start_s=0.1, end_s=1.0),
        Mark(name="Load", start_s=0.2, end_s=0.3, depth=1),
        Mark(name="Compress", start_s=0.6, end_s=1.0, depth=1),
    ]

    assert last_state(run(marks=marks), 0.9).operation == "Export › Compress"


def test_parallel_operations() -> None:
    """Of parallel operations, the latest one is named with what is inside of it, not with what is inside of another."""
    marks = [
        Mark(name="first", start_s=0.1, end_s=2, op=1),
        Mark(name="second", start_s=0.2, end_s=2),
        Mark(name="in first", start_s=0.3, end_s=2, depth=1, inside=1),
    ]

    assert last_state(run(marks=marks), 0.9).operation == "second"


DONE, FAILED, ENDED = Exit(code=0), Exit(code=3), Exit(signal=15)


def job(*ends: tuple[float, Exit | None], machines: tuple[str, ...] = ("box",)) -> Session:
    """Return a job whose ranks ended at these moments in these ways."""
    runs = [
        RankRun(
            name=f"rank {number}",
            host=Host(boot_id=machines[number % len(machines)]),
            start_s=0.5,
            duration_s=at_s - 0.5,
            exit=exit_,
        )
        for number, (at_s, exit_) in enumerate(ends)
    ]
    return session(ranks=runs)


def judged(of: Session) -> tuple[str, str, list[str]] | None:
    """Return text, certainty and evidence."""
    found = verdict(of, MemoryUnit.MiB)
    return None if found is None else (found.text, found.certainty, list(found.evidence))


def test_ended_after_another_had_failed() -> None:
    """The first one that failed is named, and what followed."""
    expected = "the first rank that failed was rank 1: exit status 3"

    assert judged(job((3.0, ENDED), (2.0, FAILED))) == (
        expected,
        "certain",
        ["rank 0: killed by SIGTERM, 1.00 s later"],
    )


def test_many_that_followed() -> None:
    """Of many ranks, the first few are named."""
    found = judged(job((1.0, FAILED), *((2.0, ENDED) for _ in range(5))))

    assert found is not None
    assert found[2][0].startswith("rank 1: ")
    assert found[2][3:] == ["2 more ranks failed after that"]


@pytest.mark.parametrize(
    ("of", "certainty"),
    [
        (job((1.0, FAILED), (2.0, DONE)), "certain"),
        (job((2.0, ENDED), (2.01, ENDED)), "likely"),
        (job((2.0, FAILED), (3.0, ENDED), machines=("box", "other")), "likely"),
    ],
    ids=["alone", "all at once", "clocks of two machines"],
)
def test_how_sure(of: Session, certainty: str) -> None:
    """Ranks that end at once may do so for a common reason, and clocks of several machines may differ."""
    found = judged(of)

    assert found is not None
    assert found[1] == certainty


def test_none_failed() -> None:
    """There is no verdict on a job whose ranks did what they should, or whose ends are unknown."""
    assert judged(job((1.0, DONE), (2.0, None))) is None


def test_by_itself_at_the_same_moment() -> None:
    """Of ranks that ended at the same moment, one that ended by itself comes first."""
    found = judged(job((2.0, ENDED), (2.0, FAILED)))

    assert found is not None
    assert found[0].endswith("rank 1: exit status 3")


@pytest.mark.parametrize(
    ("cause", "name", "expected"),
    [(Cause.TERMINATED, "rank 0", True), (Cause.TERMINATED, "rank 1", False), (Cause.ALLOCATION, "rank 0", False)],
)
def test_consequence(cause: str, name: str, *, expected: bool) -> None:
    """That a later rank was ended is no cause; that it had no memory is one, and so is how the first one ended."""
    found = Verdict(cause=cause, certainty="certain", text="", at_s=0.0, state=UNKNOWN)

    assert is_consequence(found, name, job((3.0, ENDED), (2.0, FAILED))) is expected
