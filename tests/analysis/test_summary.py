from __future__ import annotations

from typing import Any

import pytest

from nncftools.analysis.summary import (
    MetricSummary,
    NearPeak,
    cpu_s,
    is_between_samples,
    largest_process,
    level,
    pss_near_peak,
    short_lived,
    taken,
)
from nncftools.session.model import Peak, Process, Rise, SamplerFacts
from tests.made_up import MIB, mib, process, session

RSS = mib(100, 300, 290, 200)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"pss": mib(None, 150, None, 90)}, NearPeak(150 * MIB, 300 * MIB, 0.0, is_at_peak=True)),
        ({"pss": mib(None, None, 140, 90)}, NearPeak(140 * MIB, 290 * MIB, 0.5, is_at_peak=True)),
        ({"pss": mib(80, None, None, 90)}, NearPeak(80 * MIB, 100 * MIB, 0.5, is_at_peak=False)),
        (
            {"pss": mib(None, None, 140, None), "pss_age": [None, None, 0.25, None]},
            NearPeak(140 * MIB, 300 * MIB, 0.25, is_at_peak=True),
        ),
        ({"pss": mib(None, None, None, None)}, None),
        ({}, None),
    ],
    ids=["at the peak", "near it", "away", "by age", "unknown", "not recorded"],
)
def test_near_peak(columns: dict[str, Any], expected: NearPeak | None) -> None:
    """The nearest count of PSS is that whose moment, not its sample, is nearest; near in RSS comes first."""
    assert pss_near_peak(session({"rss": RSS, **columns})) == expected


def level_of(rss: list[float | None], mark: int | None = None) -> MetricSummary:
    """Return the RSS level of a session."""
    of = session({"rss": rss}, processes=[process(high_water_mark=mark)])
    return level(of.samples, "rss", of.peaks)


def test_level() -> None:
    """Every figure of a column, from the known samples."""
    assert level_of([100, None, 300, 200, None]) == MetricSummary(
        peak=300, span_s=(0.0, 0.0), final=200, average=200, lowest=100, first=100
    )


@pytest.mark.parametrize("rss", [[], [None, None]], ids=str)
def test_level_of_nothing(rss: list[float | None]) -> None:
    """Without a known sample everything is unknown, not 0."""
    nothing = MetricSummary(peak=None, span_s=None, final=None, average=None, lowest=None, first=None)

    assert level_of(rss) == nothing
    assert level_of(rss).from_zero() == nothing
    assert level_of(rss).delta is None


@pytest.mark.parametrize(
    ("rss", "rises", "span_s"),
    [
        ([100, 300, 200], [], (0.5, 0.5)),
        ([100, 298, 300], [], (0.5, 0.5)),
        ([100, 296, 300], [], (1.0, 1.0)),
        ([100, 300, 200], [Rise(from_s=0.5, to_s=0.9, high_water_mark=400 * MIB)], (0.5, 0.9)),
    ],
    ids=["a sample", "a plateau that drifts", "a rise", "a mark"],
)
def test_moment_of_the_peak(rss: list[float], rises: list[Rise], span_s: tuple[float, float]) -> None:
    """Memory reached the peak when it came within 1 % of it, or while the high-water mark rose."""
    mark = max((rise.high_water_mark for rise in rises), default=None)
    of = session({"rss": mib(*rss)}, processes=[process(high_water_mark=mark, rises=rises)])

    assert level(of.samples, "rss", of.peaks).span_s == span_s


@pytest.mark.parametrize(("rss", "expected"), [([1, 5, 3], 2), ([3, 5, 1], -2), ([4], 0)], ids=str)
def test_delta(rss: list[float | None], expected: float) -> None:
    """The delta is from the first sample to the last, and may be negative."""
    assert level_of(rss).delta == expected


def test_from_zero() -> None:
    """From zero, every level is above the first sample; moments stay."""
    assert level_of([100, 50, 300, 200]).from_zero() == MetricSummary(
        peak=200, span_s=(0.0, 0.0), final=100, average=62.5, lowest=-50, first=0
    )


def test_from_zero_keeps_delta() -> None:
    """The delta does not depend on where zero is."""
    of = level_of([100, 300, 200])

    assert of.from_zero().delta == of.delta


def test_level_without_peak() -> None:
    """A metric without a recorded peak has samples but no peak."""
    of = session({"rss": [1, 2]})

    assert level(of.samples, "rss", {}).peak is None


@pytest.mark.parametrize(
    ("sampled", "low", "expected"),
    [
        (200, 200, False),
        (1000, 1001, False),
        (1000, 1002, True),
        (10, 10.25, False),
        (10, 10.5, True),
        (None, 5, True),
        (None, None, False),
    ],
)
def test_is_between_samples(sampled: int | None, low: float | None, *, expected: bool) -> None:
    """A peak is between the samples when its lower bound is more than 0.1 % and 256 KiB above the largest."""
    peak = Peak(sampled=mib(sampled)[0], at_s=None, low=mib(low)[0])

    assert is_between_samples(peak) == expected


@pytest.mark.parametrize(
    ("sampled", "mark", "size", "by_kernel"),
    [(5, 7, 7, True), (7, 5, 7, False), (None, 7, 7, True), (5, None, 5, False)],
)
def test_size_of_the_largest_process(sampled: int | None, mark: int | None, size: int, *, by_kernel: bool) -> None:
    """What a process held at most is the larger of sample and high-water mark, as far as known."""
    found = largest_process(session(processes=[process(peak_rss=sampled, high_water_mark=mark)]))

    assert found is not None
    assert (found.size, found.by_kernel) == (size, by_kernel)


@pytest.mark.parametrize(
    ("limit", "others", "expected"),
    [(9, [], 9), (9, [process(1, peak_rss=4)], 5), (3, [], 5)],
    ids=["alone", "may be a descendant's", "the sampler's own"],
)
def test_limit_of_the_command(limit: int, others: list[Process], expected: int) -> None:
    """The command's ru_maxrss is its own mark if it ran alone and ru_maxrss is above the sampler's memory."""
    first = process(0, peak_rss=5, high_water_limit=limit)
    found = largest_process(session(processes=[first, *others], sampler=SamplerFacts(peak_rss=6)))

    assert found is not None
    assert found.size == expected


def test_largest_process() -> None:
    """The largest process is found by what each held by itself."""
    of = session(processes=[process(0, peak_rss=5), process(1, high_water_mark=9), process(2)])
    found = largest_process(of)

    assert found is not None
    assert found.process.id == 1


def test_limit_of_an_accounted_command() -> None:
    """If the kernel reported the command's own mark, its ru_maxrss, which may be a child's, is ignored."""
    of = session(processes=[process(0, peak_rss=5, high_water_mark=7, accounted=True, high_water_limit=9)])
    found = largest_process(of)

    assert found is not None
    assert (found.size, found.by_kernel) == (7, True)


@pytest.mark.parametrize(("told", "expected"), [(None, 3), (2, 3), (1_000, 1_000)])
def test_taken(told: int | None, expected: int) -> None:
    """Samples that were merged were taken, and no fewer than are there."""
    assert taken(session(sampler=SamplerFacts(taken=told))) == expected


def test_short_lived() -> None:
    """Processes that were seen in fewer than two samples are counted."""
    assert short_lived(session(processes=[process(0, samples=2), process(1, samples=1), process(2)])) == 2


@pytest.mark.parametrize("sizes", [[], [None, None]], ids=str)
def test_largest_process_unknown(sizes: list[None]) -> None:
    """Without any size there is no largest process."""
    assert largest_process(session(processes=[process(peak_rss=size) for size in sizes])) is None


@pytest.mark.parametrize(
    ("totals", "expected"),
    [
        ({"cpu_user": 0.5, "cpu_system": 0.25}, 0.75),
        ({"cpu_user": 0.0, "cpu_system": 0.0}, 0.0),
        ({"cpu_user": 0.5, "cpu_system": None}, None),
        ({"cpu_user": 0.5}, None),
    ],
)
def test_cpu_s(totals: dict[str, float | None], expected: float | None) -> None:
    """CPU time is user and system together, unknown unless both are known."""
    assert cpu_s(session(totals=totals)) == expected


@pytest.mark.parametrize(("finished", "known"), [(True, True), (False, False)])
def test_old_figures_of_a_killed_recording(*, finished: bool, known: bool) -> None:
    """When the sampler was killed, a size that is too small to be the largest process's is old, and not shown."""
    of = session({"rss": mib(100, 300, 200)}, processes=[process(high_water_mark=MIB)], finished=finished)

    assert (largest_process(of) is not None) == known
