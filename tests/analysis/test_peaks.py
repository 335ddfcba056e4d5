from __future__ import annotations

from collections.abc import Mapping

import pytest

from nncftools.analysis import peaks as of_session
from nncftools.session.model import Floor, LateReadings, Peak, Process, SamplerFacts
from nncftools.session.samples import TIME, Samples
from tests.made_up import MIB, mib, process, read_numbers, samples, session

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
    "rss, mark, expected, low_from",
    [
        ("1 5 3", None, "5 1 5", "sampled"),
        ("1 5 3", 4, "5 1 5", "sampled"),
        ("1 5 3", 9, "5 1 9", "high_water_mark"),
        ("5 1 5", None, "5 0 5", "sampled"),
        ("- 20 30", None, "30 2 30", "sampled"),
        ("", 9, "- - 9", "high_water_mark"),
        ("-", None, "- - -", None),
        ("0 0", None, "0 0 0", "sampled"),
    ],
    ids=[
        *("no mark", "mark below", "mark above", "twice", "unknown before"),
        *("only a mark", "nothing known", "zero is a figure"),
    ],
)
def test_rss(rss: str, mark: int | None, expected: str, low_from: str | None) -> None:
    """The peak is the largest sample at its first moment, raised to the kernel's high-water mark."""
    sizes = mib(*read_numbers(rss))
    peak = peaks(samples(range(len(sizes)), rss=sizes), [process(high_water_mark=mib(mark)[0])])["rss"]
    sampled, at_s, low = read_numbers(expected)

    assert [peak.sampled, peak.at_s, peak.low] == [*mib(sampled), at_s, *mib(low)]
    assert peak.low_from == low_from


def test_moment_on_a_plateau() -> None:
    """Samples had reached the peak when they came within the drift of it, not where the plateau is highest."""
    of = samples([0.0, 0.15, 1.0, 1.95], file=[0, 60 * MIB, 60 * MIB, 60 * MIB + 4096])
    peak = peaks(of, [])["file"]

    assert (peak.sampled, peak.at_s, peak.rose_to_s) == (60 * MIB + 4096, 0.15, 0.15)


FIELDS = {"mark": "high_water_mark", "limit": "high_water_limit", "parent": "parent"}


def read_processes(text: str) -> list[Process]:
    """Return processes from a text such as ``0-9 limit=8, 1-2 parent=0``: start, end, and what is known of each."""
    found = []
    for number, words in enumerate(text.split(", ")):
        life, *facts = words.split()
        start_s, _, end_s = life.partition("-")
        pairs = (fact.split("=") for fact in facts)
        fields = {FIELDS[name]: int(value) for name, value in pairs}
        found.append(process(number, start_s=float(start_s), end_s=float(end_s) if end_s else None, **fields))
    return found


@pytest.mark.parametrize(
    "processes, high",
    [
        ("0- mark=7", 7),
        ("0-9 mark=7", None),
        ("0-9 mark=7 limit=8", 8),
        ("0-9 limit=8, 1-2 parent=0, 2.5-3 parent=1", 16),
        (", ".join(f"{number}-{number + 1.5} limit=4" for number in range(5)), 8),
        ("0-9 limit=2", 5),
        (f"0-9 mark={2 * MIB} limit={8 * MIB}", 10 * MIB),
        ("0-9 parent=1, 0-9 parent=0", None),
    ],
    ids=[
        "still running at the end",
        "may have grown after the mark was read",
        "limit of the reaped",
        "descendants hold at most what the reaped ancestor's limit says, and two followed each other",
        *("two at a time", "never below the lower bound", "an unseen one", "a circle of parents"),
    ],
)
def test_upper_bound(processes: str, high: int | None) -> None:
    """The upper bound is the largest sum of what processes that lived at the same time can have held."""
    assert peaks(samples([0], rss=[5]), read_processes(processes))["rss"].high == high


@pytest.mark.parametrize("limit, low", [(9, 9), (6, 5)])
def test_limit_of_the_command(limit: int, low: int) -> None:
    """The command's ru_maxrss is that of one process of the tree, unless it is the sampler's own, kept over exec."""
    found = peaks(samples([0], rss=[5]), [process(0, high_water_limit=limit)], floor=6)

    assert found["rss"].low == low


def test_reading_for_the_floor() -> None:
    """RSS that was read for the floor, as after the last sample, was held."""
    peak = session(floor=Floor(size=5, at_s=1.5, rss=400 * MIB)).rss_peak

    assert (peak.low, peak.rose_to_s) == (400 * MIB, 1.5)


def test_moment_of_pss() -> None:
    """PSS reached its peak when it was counted, which is earlier than the sample that shows it."""
    of = samples([0.0, 0.5, 1.0], rss=[MIB, 9 * MIB, 9 * MIB], pss=[None, None, 5 * MIB], pss_age=[None, None, 0.375])
    peak = peaks(of, [])["pss"]

    assert (peak.at_s, peak.rose_from_s, peak.rose_to_s) == (0.625, 0.625, 0.625)


def test_moment_of_a_sample_that_was_read_late() -> None:
    """Processes of a sample that is read late are read after its time: so may memory have risen."""
    peak = peaks(samples([0.0, 0.5, 1.0], rss=[MIB, 9 * MIB, 9 * MIB]), [], late={0.5: 0.75})["rss"]

    assert (peak.at_s, peak.rose_from_s, peak.rose_to_s) == (0.5, 0.5, 0.75)
