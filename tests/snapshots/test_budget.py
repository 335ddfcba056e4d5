"""How much CPU time the helper may spend, by a fake clock."""

from __future__ import annotations

import pytest

from nncftools.snapshots.budget import Budget

MIB = 1 << 20


class Clock:
    """A clock and a CPU meter that a test sets."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.cpu_s = 0.0

    def budget(self) -> Budget:
        """Return a budget of 1 % of a core, half a CPU second in any case."""
        return Budget(0.01, 0.5, clock=lambda: self.now_s, own_cpu=lambda: self.cpu_s)


@pytest.fixture
def clock() -> Clock:
    """Return a clock that stands."""
    return Clock()


@pytest.mark.parametrize(("elapsed_s", "left_s"), [(0.0, 0.5), (50.0, 0.5), (3_600.0, 36.0)])
def test_share_or_least(clock: Clock, elapsed_s: float, left_s: float) -> None:
    """It is the share of the time, or the least CPU time where that is more."""
    budget = clock.budget()

    clock.now_s += elapsed_s

    assert budget.left_s == pytest.approx(left_s)


def test_children_count(clock: Clock) -> None:
    """What programs took that the helper started counts as its own."""
    budget = clock.budget()
    clock.cpu_s = 0.1

    budget.add(0.3)

    assert budget.spent_s == pytest.approx(0.4)
    assert budget.left_s == pytest.approx(0.1)


def test_polls_spend_little(clock: Clock) -> None:
    """Polls that take 0.1 ms are at most 15 ms apart at first, and 40 ms when nothing is left."""
    budget = clock.budget()

    assert budget.distance_s(0.0001) < 0.015

    budget.add(0.5)
    assert budget.distance_s(0.0001) == pytest.approx(0.04)


def test_speed(clock: Clock) -> None:
    """What is left is spent evenly in a time; what is overspent stops it."""
    budget = clock.budget()

    assert budget.speed(10.0) == pytest.approx(0.05)

    budget.add(1.0)
    assert budget.speed(10.0) == 0
