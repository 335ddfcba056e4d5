from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from nncftools.analysis import peaks as of_session
from nncftools.session.model import LateReadings, Peak, Process, SamplerFacts
from nncftools.session.samples import TIME, Samples
from tests.made_up import MIB, mib, process, samples, session

IN_TIME: Mapping[float, float] = {}


def peaks(
    taken: Samples, processes: list[Process], floor: int | None = None, late: Mapping[float, float] = IN_TIME
) -> dict[str, Peak]:
    """Return the peaks, by default of samples that were read in time."""
    recorded = session({TIME: taken.time_s}, processes=processes, samples=taken)
    recorded.sampler = SamplerFacts(peak_rss=floor)
    recorded.late = LateReadings(from_s=[*late], to_s=[*late.values()])
    return of_session.peaks(recorded)


@pytest.mark.parametrize(
    ("rss", "mark", "expected"),
    [
        pytest.param([1, 5, 3], None, (5, 1, 5, "sampled"), id="no mark"),
        pytest.param([1, 5, 3], 4, (5, 1, 5, "sampled"), id="mark below"),
        pytest.param([1, 5, 3], 9, (5, 1, 9, "high_water_mark"), id="mark above"),
        pytest.param([5, 1, 5], None, (5, 0, 5, "sampled"), id="twice"),
        pytest.param([None, 20, 30], None, (30, 2, 30, "sampled"), id="unknown before"),
        pytest.param([], 9, (None, None, 9, "high_water_mark"), id="only a mark"),
        pytest.param([None], None, (None, None, None, None), id="nothing known"),
        pytest.param([0, 0], None, (0, 0, 0, "sampled"), id="zero is a figure"),
    ],
)
def test_rss(rss: list[float | None], mark: int | None, expected: tuple[int | None, ...]) -> None:
    """The peak is the largest sample at its first moment, raised to the kernel's high-water mark."""
    peak = peaks(samples(range(len(rss)), rss=mib(*rss)), [process(high_water_mark=mib(mark)[0])])["rss"]
    sizes = [None if size is None else size / MIB for size in (peak.sampled, peak.low)]

    assert (sizes[0], peak.at_s, sizes[1], peak.low_from) == expected


def test_moment_on_a_plateau() -> None:
    """Samples had reached the peak when they came within the drift of it, not where the plateau is highest."""
    of = samples([0.0, 0.15, 1.0, 1.95], file=[0, 60 * MIB, 60 * MIB, 60 * MIB + 4096])
    peak = peaks(of, [])["file"]

    assert (peak.sampled, peak.at_s, peak.rose_to_s) == (60 * MIB + 4096, 0.15, 0.15)


def lived(number: int, start_s: float, end_s: float | None, **fields: Any) -> Process:  # noqa: ANN401 — any field
    """Return a process with a life."""
    return process(number, start_s=start_s, end_s=end_s, **fields)


@pytest.mark.parametrize(
    ("processes", "high"),
    [
        pytest.param([lived(0, 0, None, high_water_mark=7)], 7, id="still running at the end"),
        pytest.param([lived(0, 0, 9, high_water_mark=7)], None, id="may have grown after the mark was read"),
        pytest.param([lived(0, 0, 9, high_water_mark=7, high_water_limit=8)], 8, id="limit of the reaped"),
        pytest.param(
            [lived(0, 0, 9, high_water_limit=8), lived(1, 1, 2, parent=0), lived(2, 2.5, 3, parent=1)],
            16,
            id="descendants hold at most what the reaped ancestor's limit says, and two followed each other",
        ),
        pytest.param([lived(n, n, n + 1.5, high_water_limit=4) for n in range(5)], 8, id="two at a time"),
        pytest.param([lived(0, 0, 9, high_water_limit=2)], 5, id="never below the lower bound"),
        pytest.param([lived(0, 0, 9, high_water_mark=2 << 20, high_water_limit=8 << 20)], 10 << 20, id="an unseen one"),
        pytest.param([lived(0, 0, 9, parent=1), lived(1, 0, 9, parent=0)], None, id="a circle of parents"),
    ],
)
def test_upper_bound(processes: list[Process], high: int | None) -> None:
    """The upper bound is the largest sum of what processes that lived at the same time can have held."""
    assert peaks(samples([0], rss=[5]), processes)["rss"].high == high


@pytest.mark.parametrize(("limit", "low"), [(9, 9), (6, 5)])
def test_limit_of_the_command(limit: int, low: int) -> None:
    """The command's ru_maxrss is that of one process of the tree, unless it is the sampler's own, kept over exec."""
    found = peaks(samples([0], rss=[5]), [process(0, high_water_limit=limit)], floor=6)

    assert found["rss"].low == low


def test_moment_of_pss() -> None:
    """PSS reached its peak when it was counted, which is earlier than the sample that shows it."""
    of = samples([0.0, 0.5, 1.0], rss=[MIB, 9 * MIB, 9 * MIB], pss=[None, None, 5 * MIB], pss_age=[None, None, 0.375])
    peak = peaks(of, [])["pss"]

    assert (peak.at_s, peak.rose_from_s, peak.rose_to_s) == (0.625, 0.625, 0.625)


def test_moment_of_a_sample_that_was_read_late() -> None:
    """Processes of a sample that is read late are read after its time: so may memory have risen."""
    peak = peaks(samples([0.0, 0.5, 1.0], rss=[MIB, 9 * MIB, 9 * MIB]), [], late={0.5: 0.75})["rss"]

    assert (peak.at_s, peak.rose_from_s, peak.rose_to_s) == (0.5, 0.5, 0.75)
