from __future__ import annotations

from typing import Any

import pytest

from nncftools.analysis.session import Session
from nncftools.analysis.summary import (
    count_samples,
    is_between_samples,
    largest_process,
    pss_near_peak,
)
from nncftools.render.sentences import hints
from nncftools.session.model import Host, Peak, Process, Rise, SamplerFacts
from nncftools.units import MemoryUnit
from tests.made_up import MIB, mib, process, read_numbers, session

RSS = mib(100, 300, 290, 200)


@pytest.mark.parametrize(
    "pss, age, expected, is_at_peak",
    [
        ("- 150 - 90", "", "150 300 0", True),
        ("- - 140 90", "", "140 290 0.5", True),
        ("80 - - 90", "", "80 100 0.5", False),
        ("- - 140 -", "- - 0.25 -", "140 300 0.25", True),
    ],
    ids=["at the peak", "near it", "away", "by age"],
)
def test_near_peak(pss: str, age: str, expected: str, *, is_at_peak: bool) -> None:
    """The nearest count of PSS is that whose moment, not its sample, is nearest; near in RSS comes first."""
    columns: dict[str, Any] = {"pss": mib(*read_numbers(pss))}
    if age:
        columns["pss_age"] = read_numbers(age)
    *sizes, distance_s = read_numbers(expected)

    assert pss_near_peak(session({"rss": RSS, **columns})) == (*mib(*sizes), distance_s, is_at_peak)
    assert pss_near_peak(session({"rss": RSS})) is None


@pytest.mark.parametrize(
    "sampled, low, expected",
    [
        (1000, 1001, False),
        (1000, 1002, True),
        (10, 10.25, False),
        (10, 10.5, True),
        (None, 5, True),
    ],
)
def test_is_between_samples(sampled: int | None, low: float | None, *, expected: bool) -> None:
    """A peak is between the samples when its lower bound is more than 0.1 % and 256 KiB above the largest."""
    peak = Peak(sampled=mib(sampled)[0], at_s=None, low=mib(low)[0])

    assert is_between_samples(peak) == expected


@pytest.mark.parametrize(
    "sampled, mark, size, by_kernel",
    [(5, 7, 7, True), (7, 5, 7, False), (None, 7, 7, True), (5, None, 5, False)],
)
def test_size_of_the_largest_process(sampled: int | None, mark: int | None, size: int, *, by_kernel: bool) -> None:
    """What a process held at most is the larger of sample and high-water mark, as far as known."""
    found = largest_process(session(processes=[process(peak_rss=sampled, high_water_mark=mark)]))

    assert found is not None
    assert (found.size, found.by_kernel) == (size, by_kernel)


@pytest.mark.parametrize(
    "limit, others, expected",
    [(9, [], 9), (9, [process(1, peak_rss=4)], 5), (3, [], 5)],
    ids=["alone", "may be a descendant's", "the sampler's own"],
)
def test_limit_of_the_command(limit: int, others: list[Process], expected: int) -> None:
    """The command's ru_maxrss is its own mark if it ran alone and ru_maxrss is above the sampler's memory."""
    first = process(0, peak_rss=5, high_water_limit=limit)
    found = largest_process(session(processes=[first, *others], sampler=SamplerFacts(peak_rss=6)))

    assert found is not None
    assert found.size == expected


@pytest.mark.parametrize("told, expected", [(None, 3), (2, 3), (1_000, 1_000)])
def test_taken(told: int | None, expected: int) -> None:
    """Samples that were merged were taken, and no fewer than are there."""
    assert count_samples(session(sampler=SamplerFacts(taken=told))) == expected


@pytest.mark.parametrize("finished, known", [(True, True), (False, False)])
def test_old_figures_of_a_killed_recording(*, finished: bool, known: bool) -> None:
    """When the sampler was killed, a size that is too small to be the largest process's is old, and not shown."""
    of = session({"rss": mib(100, 300, 200)}, processes=[process(high_water_mark=MIB)], finished=finished)

    assert (largest_process(of) is not None) == known


def said(of: Session) -> list[str]:
    """Return the hints, in MiB."""
    return hints(of, MemoryUnit.MiB)


def copies(*lives: tuple[float, float | None], largest_mib: int = 200) -> list[Process]:
    """Return a process and one forked copy of it for each life."""
    parent = process(0, peak_rss=largest_mib * MIB)
    return [parent, *(process(1, forked_copy=True, start_s=start, end_s=end) for start, end in lives)]


LEFT_OUT = (
    "RSS on this machine may be off by up to 32.0 MiB for each process: Linux 6.8.0 leaves out the latest changes "
    "on each of 64 CPUs; Linux 6.16 and later count exactly"
)


@pytest.mark.parametrize(
    "release, cpus, expected",
    [("6.8.0", 64, [LEFT_OUT]), ("6.8.0", 8, []), ("6.16.1", 64, [])],
    ids=["many cores", "few cores", "a newer kernel"],
)
def test_many_cores(release: str, cpus: int, expected: list[str]) -> None:
    """Where the kernel's RSS may be off by more than 1 % of the peak, here 300 MiB, that is said."""
    host = Host(system="Linux", release=release, cpus=cpus)

    assert said(session(host=host, processes=[process(peak_rss=300 * MIB)])) == expected


def test_forked_copies() -> None:
    """Copies that live at the peak, here at 0.5 s, share pages that the sum counts once for each."""
    (found,) = [hint for hint in said(session(processes=copies((0.1, 0.9), (0.5, None)))) if "forked" in hint]

    assert "2 of the processes at the RSS peak are forked copies of their parent" in found
    assert found.endswith("the largest single process held 200.0 MiB")


@pytest.mark.parametrize(
    "processes",
    [
        copies((0.0, 0.4)),
        copies((0.6, 0.9)),
        copies((0.1, 0.9), largest_mib=300),
        [process(0, peak_rss=MIB), process(1, peak_rss=MIB)],
    ],
    ids=["gone before the peak", "born after the peak", "the sum is one process's", "no copies"],
)
def test_no_forked_copies(processes: list[Process]) -> None:
    """Copies that have no part in the peak are not mentioned."""
    assert said(session(processes=processes)) == []


def survivors(number: int) -> list[Process]:
    """Return a process that ended and ``number`` that did not."""
    return [process(0), *(process(place, name=f"p{place}", end_s=None) for place in range(1, number + 1))]


@pytest.mark.parametrize(
    "number, names",
    [
        (1, "p1 (pid 101)"),
        (3, "p1 (pid 101), p2 (pid 102), p3 (pid 103)"),
        (5, "p1 (pid 101), p2 (pid 102), p3 (pid 103) and 2 more"),
    ],
)
def test_survivors(number: int, names: str) -> None:
    """Processes that outlived the command are named, three at most."""
    assert said(session(processes=survivors(number))) == [
        f"still running when the command ended, and not recorded further: {names}"
    ]


@pytest.mark.parametrize(
    "of",
    [
        session(processes=survivors(1), finished=False),
        session(processes=survivors(1), attached_to=100),
        session(processes=[process(0, end_s=None)]),
    ],
    ids=["unfinished", "attached", "the command itself"],
)
def test_no_survivors(of: Session) -> None:
    """While the command itself may go on, nothing has outlived it."""
    assert said(of) == []


def missing(missed: int | None, taken: int) -> Session:
    """Return a session that missed some of its samples."""
    facts = SamplerFacts(interval_s=0.5, missed=missed, longest_gap_s=2.5)
    return session({"rss": mib(*[1] * taken)}, sampler=facts)


@pytest.mark.parametrize("missed, taken", [(5, 95), (0, 3), (None, 3), (0, 0)])
def test_few_missed(missed: int | None, taken: int) -> None:
    """Up to 5 % of missed samples cause no hint."""
    assert said(missing(missed, taken)) == []


@pytest.mark.parametrize(
    "columns",
    [
        {"rss": mib(100, 110, 100), "pss": mib(None, 100, None)},
        {"rss": mib(100, 300, 200), "pss": mib(50, None, 120)},
        {"rss": mib(None, 300, 200), "pss": mib(100, None, None)},
        {"pss": mib(1, 1, 1)},
    ],
    ids=["a tenth", "not at the peak", "never in one sample", "nothing to compare"],
)
def test_not_much_is_shared(columns: dict[str, list[int | None]]) -> None:
    """If no sample holds both RSS and PSS, or if they are close, there is no hint."""
    assert said(session(columns)) == []


def test_lost_to_a_full_disk() -> None:
    """A full disk that loses samples causes one warning, from the recorder."""
    told = "the journal could not be written for a while (No space left on device): 50 samples are lost"
    facts = SamplerFacts(interval_s=0.5, missed=50, longest_gap_s=25.0)

    assert said(session(sampler=facts, warnings=[told])) == [told]


@pytest.mark.parametrize(
    "duration_s, interval_s, missed, gap_s, expected",
    [
        (0.032, 0.01, 3, 0.032, ""),
        (1.5, 0.05, 15, 0.8, "the longest gap is 0.800 s: use a longer --interval or leave a core free"),
        (4.0, 0.1, 12, 1.3, "in one gap of 1.30 s: the run was suspended, or the machine slept or was busy"),
        (60.0, 10.0, 1, 20.0, "in one gap of 20.00 s: the run was suspended, or the machine slept or was busy"),
    ],
)
def test_what_a_gap_says(duration_s: float, interval_s: float, missed: int, gap_s: float, expected: str) -> None:
    """Only a gap of a second says that the run was suspended; a run that is shorter than that has no warning."""
    taken = round(duration_s / interval_s) - missed
    facts = SamplerFacts(interval_s=interval_s, missed=missed, taken=taken, longest_gap_s=gap_s)
    found = said(session(sampler=facts, duration_s=duration_s))

    assert [text.partition(" were missed, ")[2] for text in found] == [expected] * bool(expected)


@pytest.mark.parametrize("module", ["resource_tracker", "forkserver"])
def test_helpers_of_multiprocessing(module: str) -> None:
    """A helper of multiprocessing ends by itself just after its program; a worker that runs its command survives."""
    command = ["python", "-c", f"from multiprocessing.{module} import main; main(5)"]
    helper = process(1, command=command, end_s=None)
    worker = process(2, command=command, end_s=None, parent=1, forked_copy=True)

    assert said(session(processes=[process(0), helper])) == []
    assert len(said(session(processes=[process(0), helper, worker]))) == 1


def test_whose_mark_it_was() -> None:
    """Of several processes, the one whose mark proves a peak between two samples is named."""
    rise = Rise(from_s=0.1, to_s=0.2, high_water_mark=400 * MIB)
    child = process(1, name="worker", high_water_mark=400 * MIB, rises=[rise])
    (found,) = said(session(processes=[process(0), child]))

    assert "the kernel's high-water mark of worker (pid 101) proves 400.0 MiB" in found
