"""How much CPU time the helper may spend, by a fake clock."""

from __future__ import annotations

import math
import statistics
import time

import pytest

from nncftools.snapshots import helper
from nncftools.snapshots.helper import Budget, Pace

MIB = 1 << 20


class Clock:
    """A clock and a CPU meter that a test sets, in place of the helper's ``time``."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.cpu_s = 0.0
        self.monotonic_ns = time.monotonic_ns

    def monotonic(self) -> float:
        """Return the time."""
        return self.now_s

    def process_time(self) -> float:
        """Return the CPU time."""
        return self.cpu_s

    def budget(self) -> Budget:
        """Return a budget of 1 % of a core, half a CPU second in any case."""
        return Budget(0.01, 0.5)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return a clock that stands."""
    clock = Clock()
    monkeypatch.setattr(helper, "time", clock)
    return clock


@pytest.mark.parametrize("elapsed_s, left_s", [(0.0, 0.5), (50.0, 0.5), (3_600.0, 36.0)])
def test_share_or_least(clock: Clock, elapsed_s: float, left_s: float) -> None:
    """It is the share of the time, or the least CPU time where that is more."""
    budget = clock.budget()

    clock.now_s += elapsed_s

    assert budget.left_s == pytest.approx(left_s)


def test_polls_at_rest_spend_little(clock: Clock) -> None:
    """Polls of 0.1 ms are at most 5 ms apart at first, 100 ms when nothing is left; costly ones are farther apart."""
    budget = clock.budget()

    assert budget.distance_s(0.0001) < 0.005

    clock.cpu_s = 0.5
    assert budget.distance_s(0.0001) == pytest.approx(0.1)
    assert budget.distance_s(0.001) == 0.5
    assert budget.distance_s(0.01) == pytest.approx(4)


GROWS, RESTS = 20 * MIB, 0


def mean_rest_s(clock: Clock, rise: int) -> float:
    """Return the mean distance of 50 polls of 1 ms while memory rises by so many bytes every 20 ms."""
    pace, held, rests = Pace(clock.budget()), 300 * MIB, []
    now_ns = time.monotonic_ns()
    for number in range(50):
        clock.cpu_s += 0.001
        held += rise
        poll_ns = now_ns + number * 20_000_000
        rests.append(pace.rest_s(poll_ns, now_ns, rise, held, number) + (time.monotonic_ns() - poll_ns) / 1e9)
    return statistics.mean(rests[25:])


def test_growth_is_followed(clock: Clock) -> None:
    """Where memory grows fast, polls are near each other; at rest they are far apart."""
    growing_s = mean_rest_s(clock, GROWS)
    clock.cpu_s = 0.0

    assert growing_s < mean_rest_s(clock, RESTS) / 3


def late_pace(clock: Clock) -> tuple[Pace, int]:
    """Return the pace when little is left, after a reading of stacks at 300 MiB; and its time."""
    clock.cpu_s = 0.44
    pace, now_ns = Pace(clock.budget()), time.monotonic_ns()
    pace.rest_s(now_ns, now_ns, GROWS, 300 * MIB, 1)
    return pace, now_ns


def test_below_the_maximum(clock: Clock) -> None:
    """When little is left, memory that is freed and taken again is read from time to time; a new maximum at once."""
    pace, now_ns = late_pace(clock)

    assert pace.step(300 * MIB, now_ns) == math.inf
    assert pace.step(300 * MIB, now_ns + 10**9) == 0
    assert pace.step(301 * MIB, now_ns) < 16 * MIB


def test_distances_are_uneven(clock: Clock) -> None:
    """Polls at even distances could always meet the same function of a loop."""
    pace, now_ns = Pace(clock.budget()), time.monotonic_ns()
    rests = [pace.rest_s(now_ns + number, now_ns, 0, 300 * MIB, 0) for number in range(20)]

    assert max(rests) > 1.5 * min(rests)
