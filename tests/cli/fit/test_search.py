"""Searches on simulated programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from nncftools.cli.fit_search import WORKED, Fit, Free, Trial
from tests.made_up import MIB

MOST_RUNS = 8
GIVE_UP = 5.0
Curve = Callable[[float], float]
"""The time under a limit of so many MiB, in multiples of the free time."""


def flat(_: float) -> float:
    """Return the time of a program without files."""
    return 1.0


def cliff(at: float, slow: float = 3.0) -> Curve:
    """Return the times of a program that reads a file again and again: below its size, all of it comes from storage."""
    return lambda limit: 1.0 if limit >= at else slow


def slope(of: float, most: float) -> Curve:
    """Return times that rise the less there is."""
    return lambda limit: 1.0 + max(0.0, of - limit) / of * most


def begun(floor: float, comfortable: float, peak: float, free_s: float, charged: int | None = None) -> Fit:
    """Return a search whose free run took this; MiB."""
    sizes = [round(size * MIB) for size in (floor, comfortable, peak)]
    free = Free(duration_s=free_s, floor=sizes[0], comfortable=sizes[1], peak_rss=sizes[2], charged=charged)
    return Fit(command=["work"], free=free)


def searched(fit: Fit, least: float, curve: Curve, most: int = 40) -> list[Trial]:
    """Search with a program that works from ``least`` MiB; return the runs under limits."""
    assert fit.free is not None
    trials = fit.trials
    while len(trials) < most and (limit := fit.next_limit()) is not None:
        times = curve(limit / MIB)
        has_room, gave_up = limit >= least * MIB, times > GIVE_UP
        works = has_room and not gave_up
        trials.append(
            Trial(
                limit=limit,
                worked=works,
                ended=WORKED if works else "out of memory",
                gave_up=has_room and gave_up,
                duration_s=times * fit.free.duration_s,
                slower=times,
            )
        )
    return trials


def measured(limit: float) -> float:
    """Return the times of 200 MiB of anonymous memory beside a file of 300 MiB that is read five times."""
    steps = ((500, 1.0), (410, 1.5), (300, 1.7), (250, 2.8), (232, 3.5))
    return next((times for least, times in steps if limit >= least), 20.0)


def measured_cliff(limit: float) -> float:
    """Return the times of a file of 600 MiB that is read ten times."""
    return 1.0 if limit >= 600 else 2.2 if limit >= 24 else 9.0


def measured_writing(limit: float) -> float:
    """Return the times of a file of 300 MiB that is mapped and written, which is given up too late to matter."""
    return 1.0 if limit >= 50 else 1.4 if limit >= 34 else 4.0


class Program(NamedTuple):
    """A simulated program; MiB."""

    floor: float
    """What the free run seems to need."""
    comfortable: float
    peak: float
    least: float
    """It is killed with less."""
    curve: Curve
    works: float
    """What the search should find."""
    fast: float


PROGRAMS = {
    "copied": Program(307, 610, 312, 304, flat, 304, 304),
    "read, as measured": Program(210.4, 518.5, 512, 205, measured, 232, 500),
    "spike, as measured": Program(406, 712, 512, 406.6, cliff(500, 1.4), 406.6, 500),
    "dirty, as measured": Program(6, 366, 312, 8.5, measured_writing, 8.5, 50),
    "cliff where slow runs are given up": Program(9, 612, 16, 12, cliff(600, 20), 600, 600),
    "cliff, as measured": Program(6.9, 612.9, 13, 10, measured_cliff, 24, 600),
    "a model": Program(5300, 7200, 7200, 5310, slope(5900, 8), 5310, 5826),
    "floor slightly too low": Program(9000, 9000, 9000, 9100, flat, 9100, 9100),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_few_runs(program: Program) -> None:
    """Both limits are found within 3 % and 5 %, or nearly where there is no cliff, in at most 8 runs in all."""
    search = begun(*program[:3], free_s=10.0)
    trials = searched(search, program.least, program.curve)
    works = (search.works_from or 0) / MIB
    fast = (search.fast_from or 0) / MIB

    slope_room = program.fast + program.comfortable / 10 if program.fast < program.comfortable / 2 else 0
    tried = [f"{trial.limit / MIB:.0f}{'' if trial.worked else ' failed'}" for trial in trials]
    assert program.works <= works <= max(program.works * 1.031, program.works + 4), tried
    assert program.fast <= fast <= max(program.fast * 1.053, program.fast + 4, slope_room), tried
    assert len(trials) < MOST_RUNS, tried


def test_full_speed_above_the_comfortable_amount() -> None:
    """The page cache of what is written counts, too: with what was charged to the free run's group, nothing changes."""
    search = begun(647, 1311, 1300, free_s=18.0, charged=2600 * MIB)
    trials = searched(search, 660, lambda limit: 1.0 if limit >= 2200 else 1.15)

    assert 2200 <= (search.fast_from or 0) / MIB <= 2200 * 1.1
    assert len(trials) < MOST_RUNS


def test_never_works() -> None:
    """What works with no limit ends the search: nothing was found."""
    search = begun(100, 200, 100, free_s=1.0)
    trials = searched(search, 10_000, flat)

    assert search.works_from is search.fast_from is None
    assert max(trial.limit for trial in trials) == 400 * MIB


@pytest.mark.parametrize("free_s, has_fast", [(1.0, False), (0.1, True)])
def test_always_slow(free_s: float, *, has_fast: bool) -> None:
    """What is slow with every limit has no limit of full speed, but less than a tenth of a second is not slow."""
    search = begun(100, 200, 100, free_s=free_s)
    searched(search, 100, lambda _: 1.95)

    assert 100 * MIB < (search.works_from or 0) <= 103 * MIB
    assert search.fast_from == (search.works_from if has_fast else None)


def test_slow_storage() -> None:
    """A run that read nothing twice was not slow for want of memory, unless it was very slow."""
    search = begun(100, 200, 100, free_s=10.0)
    fast = []
    for duration_s, refaults in ((24, 0), (26, 0), (14, 100 * MIB), (14, None)):
        trial = Trial(limit=200 * MIB, worked=True, ended=WORKED, duration_s=duration_s, slower=1.0, refaults=refaults)
        fast.append(search.is_fast(trial))

    assert fast == [True, False, False, False]
