from __future__ import annotations

from msgspec.structs import replace

from nncftools.api.qeff_recorded import joined
from nncftools.session.model import Mark, Start
from nncftools.session.session import Session
from tests.made_up import MIB, UTC, mib, session

LATER_NS = 10_000_000_005
"""The start of the later recording: 10 s after that of the earlier one."""


def earlier() -> Session:
    """Return a recording of 1 s, whose operation was open at its end."""
    columns = {"rss": mib(100, 300, 200), "cpu_user": (0, 0.2, 0.4)}
    return session(columns, totals={"cpu_user": 0.5}, marks=[Mark(name="load", start_s=0.25)], warnings=["slow"])


def later(*rss_mib: float) -> Session:
    """Return a recording that began 10 s after the earlier one."""
    columns = {"rss": mib(*rss_mib), "cpu_user": [0.0] * len(rss_mib)}
    marks = [Mark(name="export", start_s=0.5, end_s=1.0)]
    of = session(columns, totals={"cpu_user": 0.1}, marks=marks, warnings=["slow", "late"])
    return replace(of, start=Start(utc=UTC, monotonic_ns=LATER_NS))


def test_times_count_from_the_first_start() -> None:
    """Samples and operations keep their distance in time, whatever lies between the recordings."""
    both = joined(earlier(), later(50, 60, 70))

    assert both.samples.time_s.tolist() == [0.0, 0.5, 1.0, 10.0, 10.5, 11.0]
    assert both.duration_s == 11.0
    assert both.start == earlier().start
    assert [(mark.name, mark.start_s, mark.end_s) for mark in both.marks] == [
        ("load", 0.25, 1.0),
        ("export", 10.5, 11.0),
    ]


def test_times_never_overlap() -> None:
    """A later recording does not begin before the earlier one has ended, even when its clock says so."""
    both = joined(earlier(), replace(later(50, 60, 70), start=Start(utc=UTC, monotonic_ns=5)))

    assert both.samples.time_s.tolist() == [0.0, 0.5, 1.0, 1.0, 1.5, 2.0]


def test_counters_go_on() -> None:
    """A counter begins where the earlier recording ended, and the totals are sums."""
    both = joined(earlier(), later(50, 60, 70))

    assert both.samples["cpu_user"].tolist() == [0.0, 0.2, 0.4, 0.5, 0.5, 0.5]
    assert both.totals == {"cpu_user": 0.6}


def test_peak_in_the_earlier() -> None:
    """The higher peak counts, with its time."""
    peak = joined(earlier(), later(50, 60, 70)).peaks["rss"]

    assert (peak.low, peak.at_s) == (300 * MIB, 0.5)


def test_peak_in_the_later() -> None:
    """The time of a peak of the later recording is from the first start."""
    peak = joined(earlier(), later(50, 600, 70)).peaks["rss"]

    assert (peak.low, peak.at_s) == (600 * MIB, 10.5)


def test_warnings_of_both() -> None:
    """A warning that both have is there once."""
    assert joined(earlier(), later(50, 60, 70)).warnings == ["slow", "late"]
