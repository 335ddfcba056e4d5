"""Tests of the one clock on which recordings of a job are lined up."""

from __future__ import annotations

import pytest

from nncftools.analysis.ranks import start_times
from nncftools.errors import NncfToolsError
from nncftools.session.model import Host, SamplerFacts, Start
from nncftools.session.session import Session
from tests.made_up import session

SECOND = 1_000_000_000


def recorded(
    utc: str | None, monotonic_s: float | None = 0, boot: str = "boot", name: str = "box", error_s: float | None = 0.001
) -> Session:
    """Return a run of a second that began at this second of the minute by both clocks."""
    return session(
        start=Start(
            utc=None if utc is None else f"2026-11-21T07:00:{utc}Z",
            monotonic_ns=None if monotonic_s is None else int(monotonic_s * SECOND),
            utc_error_s=error_s,
        ),
        host=Host(name=name, boot_id=boot),
        sampler=SamplerFacts(interval_s=0.5),
    )


def test_one_machine() -> None:
    """On one machine, CLOCK_MONOTONIC gives the time between the starts."""
    at_s, warnings = start_times({"a": recorded("10.00", 100.25), "b": recorded("09.80", 100)})

    assert at_s == pytest.approx({"a": 0.25, "b": 0})
    assert warnings == []


def test_several_machines() -> None:
    """Between machines, the wall clock gives the time between the starts."""
    at_s, warnings = start_times({"a": recorded("10.5", 7), "b": recorded("10", 5000, "other", "node")})

    assert at_s == pytest.approx({"a": 0.5, "b": 0})
    assert warnings == []


def test_machines_of_one_name() -> None:
    """Machines, or containers on several machines, may share a name: the boot ID distinguishes them."""
    at_s, _ = start_times({"a": recorded("10", 1), "b": recorded("10.5", 9000, "other")})

    assert at_s == pytest.approx({"a": 0, "b": 0.5})


def test_a_clock_that_was_set() -> None:
    """A wall clock that was set between two starts does not shift them, and causes a warning."""
    at_s, warnings = start_times({"a": recorded("10", 100), "b": recorded("50", 100.25)})

    assert at_s == pytest.approx({"a": 0, "b": 0.25})
    assert len(warnings) == 1
    assert "the wall clock of box was set by 39.75 s between the starts of a and b" in warnings[0]


def test_a_clock_that_nothing_keeps() -> None:
    """Clocks of several machines are not comparable when nothing keeps one of them."""
    _, warnings = start_times({"a": recorded("10", 1), "b": recorded("10", 1, "other", "node", error_s=None)})

    assert len(warnings) == 1
    assert warnings[0].startswith("the clocks may not be comparable: nothing, such as NTP, synchronizes that of")
    assert "node" in warnings[0]
    assert "box" not in warnings[0]


def test_clocks_that_may_differ_much() -> None:
    """Clock errors whose sum is longer than the interval cause a warning."""
    _, warnings = start_times(
        {"a": recorded("10", 1, error_s=0.4), "b": recorded("10", 1, "other", "node", error_s=0.2)}
    )

    assert len(warnings) == 1
    assert warnings[0].startswith("the clocks of the machines may differ by 0.600 s, more than the interval:")


def test_recordings_that_do_not_overlap() -> None:
    """A recording during which no other one ran is named."""
    _, warnings = start_times({"a": recorded("10", 10), "b": recorded("10.5", 10.5), "c": recorded("30", 30)})

    assert len(warnings) == 1
    assert warnings[0].startswith("by the wall clock nothing else ran at the time of c:")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (recorded(None, None), "b: has no start time: it cannot be lined up with the others"),
        (recorded("soon", None), "b: began at '2026-11-21T07:00:soonZ', which is not a time"),
    ],
)
def test_an_unknown_start(given: Session, message: str) -> None:
    """A recording without a start time is refused."""
    with pytest.raises(NncfToolsError, match=message):
        start_times({"a": recorded("10"), "b": given})
