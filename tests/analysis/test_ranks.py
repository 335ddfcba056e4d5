"""Tests of the one clock on which recordings of a job are lined up.

Tests of a job merged from the recordings of its ranks.
"""

from __future__ import annotations

import pytest

from nncftools.analysis.ranks import merge_ranks, start_times
from nncftools.analysis.session import Session
from nncftools.errors import NncfToolsError
from nncftools.session.model import Exit, Host, Peak, Rank, SamplerFacts, Start
from tests.made_up import MIB, mib, process, session

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


def warning_on(*runs: Session) -> str:
    """Return the only warning on the starts of the recordings a, b and c."""
    _, (found,) = start_times(dict(zip("abc", runs, strict=False)))
    return found


def test_machines_of_one_name() -> None:
    """Machines, or containers on several machines, may share a name: the boot ID distinguishes them."""
    at_s, _ = start_times({"a": recorded("10", 1), "b": recorded("10.5", 9000, "other")})

    assert at_s == pytest.approx({"a": 0, "b": 0.5})


def test_a_clock_that_was_set() -> None:
    """A wall clock that was set between two starts does not shift them, and causes a warning."""
    at_s, (warning,) = start_times({"a": recorded("10", 100), "b": recorded("50", 100.25)})

    assert at_s == pytest.approx({"a": 0, "b": 0.25})
    assert "the wall clock of box was set by 39.75 s between the starts of a and b" in warning


def test_a_clock_that_nothing_keeps() -> None:
    """Clocks of several machines are not comparable when nothing keeps one of them."""
    found = warning_on(recorded("10", 1), recorded("10", 1, "other", "node", error_s=None))

    assert found.startswith("the clocks may not be comparable: no time service such as NTP synchronizes the clock of")
    assert ("node" in found, "box" in found) == (True, False)


def test_clocks_that_may_differ_much() -> None:
    """Clock errors whose sum is longer than the interval cause a warning."""
    found = warning_on(recorded("10", 1, error_s=0.4), recorded("10", 1, "other", "node", error_s=0.2))

    assert found.startswith("the clocks of the machines may differ by 0.600 s, more than the sampling interval:")


def test_recordings_that_do_not_overlap() -> None:
    """A recording during which no other one ran is named."""
    found = warning_on(recorded("10", 10), recorded("10.5", 10.5), recorded("30", 30))

    assert found.startswith("by the wall clock nothing else ran at the time of c:")


def test_an_unknown_start() -> None:
    """A recording without a start time is refused."""
    with pytest.raises(NncfToolsError, match="b: has no start time, so it cannot be aligned with the others"):
        start_times({"a": recorded("10"), "b": recorded(None, None)})


LEFT_OUT = "not recorded for every rank, so there is no sum: vms"


def rank(number: int, *sizes: float | None, at_s: float = 0, machine: str = "box", **fields: object) -> Session:
    """Return the recording of a rank of three: one sample each half second, of so many MiB."""
    columns = {"rss": mib(*sizes), **fields.pop("columns", {})}  # type: ignore[dict-item]
    given = {
        "rank": Rank(number=number, size=3, job="tune", launcher="torchrun"),
        "start": Start(utc=f"2026-11-21T07:00:{10 + at_s:09.6f}Z", monotonic_ns=int(at_s * SECOND), utc_error_s=0.0),
        "host": Host(name=machine, boot_id=machine, cpus=2, memory=8 * MIB),
    }
    return session(columns, **{**given, **fields})


def merge(*ranks: Session) -> Session:
    """Return the job of some ranks."""
    return merge_ranks(dict(zip("abc", ranks, strict=False)))


def held(job: Session, name: str = "rss") -> str:
    """Return a metric in MiB, one value each half second."""
    assert job.samples.time_s.tolist() == [number / 2 for number in range(len(job.samples))]
    return " ".join(f"{value / MIB:.0f}" for value in job.samples[name])


class TestSum:
    """What the ranks held together."""

    def test_gap(self) -> None:
        """While samples of a rank are missing, the sum is unknown."""
        gapped = rank(1, 10, 20, columns={"time_s": [0, 3]})
        job = merge(rank(0, *[100] * 7), gapped)

        assert held(job) == "110 110 110 nan nan nan 120"

    def test_a_figure_that_is_taken_seldom(self) -> None:
        """A figure with a longer interval of its own, as PSS, counts with the last one that is known."""
        seldom = rank(0, *[100] * 5, columns={"pss": mib(50, None, None, None, 60)})
        other = rank(1, *[10] * 5, columns={"pss": mib(5, None, None, None, 6)})

        assert held(merge(seldom, other), "pss") == "55 55 55 55 66"

    def test_machine_recorded_by_some(self) -> None:
        """One rank of a machine is enough to know of it, also while another one does not run."""
        job = merge(
            rank(0, 1, 1, at_s=0.5, columns={"system": mib(1000, 1100)}),
            rank(1, 1, 1, columns={"system": mib(900, 950)}),
            rank(2, 1, 1, 1),
        )

        assert held(job, "system") == "900 1000 1100"

    def test_devices(self) -> None:
        """Each rank holds memory of its own devices: ranks that share one are added, the others hold nothing of it."""
        job = merge(
            rank(0, 1, 1, columns={"device_memory@nvidia0": mib(10, 20), "device_used@nvidia0": mib(50, 60)}),
            rank(1, 1, 1, columns={"device_memory@nvidia0": mib(5, 5), "device_used@nvidia0": mib(50, 60)}),
            rank(2, 1, 1, columns={"device_memory@nvidia1": mib(7, 8)}),
        )

        assert held(job, "device_memory@nvidia0") == "15 25"
        assert held(job, "device_memory@nvidia1") == "7 8"
        assert held(job, "device_used@nvidia0") == "50 60"
        assert job.warnings == []

    def test_broken_off(self) -> None:
        """After a rank's recording breaks off, its memory and the sum are unknown."""
        job = merge(rank(0, 1, 2, 3), rank(1, 10, 20, finished=False))

        assert held(job) == "11 22 nan"
        assert job.finished is False
        assert job.peaks["rss"].high is None

    def test_a_rank_without_a_sample(self) -> None:
        """A rank that ended before its first sample makes the sum unknown while it ran."""
        job = merge(rank(0, 1, 2), rank(1, duration_s=0.2))

        assert held(job) == "nan 2"

    def test_a_metric_of_some(self) -> None:
        """What one rank did not record is unknown of all."""
        job = merge(rank(0, 1, 1, columns={"vms": mib(5, 5)}), rank(1, 1, 1))

        assert job.samples.metrics == ["rss"]
        assert job.warnings == [
            "1 of 3 ranks are missing in all sums: there is no recording of rank 2",
            LEFT_OUT,
        ]


class TestPeak:
    """The peak as a bracket."""

    def test_high_water_marks(self) -> None:
        """One rank's high-water mark can exceed the sampled sum; the sum of the ranks' marks is the upper bound."""
        marked = process(high_water_mark=900 * MIB, high_water_limit=900 * MIB)
        small = process(high_water_mark=50 * MIB, high_water_limit=50 * MIB)
        job = merge(rank(0, 100, 300, 200, processes=[marked]), rank(1, 1, 2, 3, processes=[small]))

        assert job.peaks["rss"] == Peak(
            sampled=302 * MIB,
            at_s=0.5,
            low=900 * MIB,
            high=950 * MIB,
            low_from="high_water_mark",
            rose_from_s=0.0,
            rose_to_s=1.0,
        )


class TestRanks:
    """The figures and warnings of each rank."""

    def test_twice_the_same(self) -> None:
        """Two recordings of one rank are refused."""
        with pytest.raises(NncfToolsError, match=r"a and b are both rank 1: name the recordings of one job"):
            merge(rank(1, 1), rank(1, 1))

    def test_put_together_before(self) -> None:
        """A job among its recordings would count twice: it is refused."""
        job = merge(rank(0, 1), rank(1, 1))

        with pytest.raises(NncfToolsError, match="job was merged from 2 recordings: name the recordings instead"):
            merge_ranks({"job": job, "a": rank(0, 1)})

    def test_different_jobs(self) -> None:
        """Recordings of different jobs cause a warning."""
        other = Rank(number=1, size=2, job="other", launcher="slurm")
        job = merge(rank(0, 1, 1, rank=Rank(number=0, size=2, job="tune")), rank(1, 1, 1, rank=other))

        assert job.warnings == ["the recordings are of different jobs: other, tune"]


class TestJob:
    """The operations, processes and other facts of the job."""

    @pytest.mark.parametrize(
        "ends, expected",
        [
            ([Exit(code=0), Exit(code=0)], Exit(code=0)),
            ([Exit(code=0), Exit(code=7)], Exit(code=7)),
            ([Exit(signal=9), None], Exit(signal=9)),
            ([Exit(code=0), None], None),
        ],
    )
    def test_exit(self, ends: list[Exit | None], expected: Exit | None) -> None:
        """A job ends as the first rank that failed; where one is unknown and none failed, it is unknown."""
        job = merge_ranks({str(number): rank(number, 1, 1, exit=end) for number, end in enumerate(ends)})

        assert job.exit == expected

    def test_the_first_that_failed(self) -> None:
        """A rank that a launcher ended later is a consequence, also one with a lower number."""
        ended = rank(0, 1, 1, 1, 1, exit=Exit(signal=15))
        failed = rank(1, 1, 1, 1, at_s=0.25, exit=Exit(code=3))

        assert merge(ended, failed).exit == Exit(code=3)

    def test_machines(self) -> None:
        """Several machines are one of all their cores and memory; one machine stays itself."""
        one = merge(rank(0, 1, 1), rank(1, 1, 1))
        two = merge(rank(0, 1, 1), rank(1, 1, 1, machine="node"))

        assert one.host.name == "box"
        assert two.host == Host(name="2 machines", cpus=4, memory=16 * MIB)

    def test_processes(self) -> None:
        """Processes keep their parents under new numbers, and have the job's times."""
        family = [process(0), process(1, parent=0)]
        job = merge(rank(0, 1, 1, processes=family), rank(1, 1, 1, at_s=0.25, processes=family))

        assert [(of.id, of.parent, of.start_s) for of in job.processes] == [
            (0, None, 0),
            (1, 0, 0),
            (2, None, 0.25),
            (3, 2, 0.25),
        ]


def test_a_job_of_very_many_ranks() -> None:
    """A file may say that its job has any number of ranks: they are not listed one by one."""
    one = rank(0, 100, rank=Rank(number=0, size=10**15, job="tune"))
    job = merge(one, rank(1, 100))

    assert job.warnings[0].startswith("999999999999998 of 1000000000000000 ranks are missing in all sums: there is no")
