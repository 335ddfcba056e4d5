from __future__ import annotations

import pytest

from nncftools.limits.judges import verdict
from nncftools.limits.verdict import UNKNOWN, Cause, Verdict, is_consequence
from nncftools.session.model import Exit, Host, RankRun
from nncftools.session.session import Session
from nncftools.units import MemoryUnit
from tests.made_up import session

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
