from __future__ import annotations

import pytest

from nncftools.sampler import loop
from nncftools.sampler.loop import NANOSECONDS, Loop


class Clock:
    """A monotonic clock that moves only when it is told to."""

    def __init__(self) -> None:
        self.now_ns = 5 * NANOSECONDS

    def monotonic_ns(self) -> int:
        """Return the time."""
        return self.now_ns

    def pass_(self, seconds: float) -> None:
        """Let time pass."""
        self.now_ns += round(seconds * NANOSECONDS)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Replace the loop's clock."""
    fake = Clock()
    monkeypatch.setattr(loop, "time", fake)
    return fake


def run(of: Loop, clock: Clock, *, until_s: float, costs: dict[int, float] | None = None) -> list[float]:
    """Run a loop whose n-th tick takes ``costs[n]`` seconds; return the times of its ticks."""
    ticks: list[float] = []

    def tick(now_s: float) -> None:
        clock.pass_((costs or {}).get(len(ticks), 0))
        ticks.append(round(now_s, 6))

    def sleep(timeout_s: float | None) -> None:
        clock.pass_(until_s if timeout_s is None else timeout_s)

    of.run(tick, sleep, lambda: of.elapsed_s() < until_s)
    return ticks


def test_ticks_on_multiples_of_the_interval(clock: Clock) -> None:
    """The first tick comes at once, the others on absolute deadlines, whatever a tick takes."""
    ticks = run(Loop(0.1, None), clock, until_s=0.45, costs={1: 0.03, 2: 0.09})

    assert ticks == [0.0, 0.1, 0.2, 0.3, 0.4]


def test_missed_deadlines_are_counted_and_not_made_up_for(clock: Clock) -> None:
    """A tick that takes 2.5 intervals costs two samples and leaves a gap, after which deadlines are as before."""
    of = Loop(0.1, None)
    ticks = run(of, clock, until_s=0.65, costs={1: 0.25})

    assert ticks == [0.0, 0.1, 0.35, 0.4, 0.5, 0.6]
    assert of.punctuality()["missed"] == 1
    assert of.punctuality()["longest_gap_s"] == pytest.approx(0.25)


def test_duration_ends_the_ticks(clock: Clock) -> None:
    """No tick comes after the duration."""
    ticks = run(Loop(0.1, 0.2), clock, until_s=0.5)

    assert ticks == [0.0, 0.1, 0.2]


def test_stopped_loop_ticks_no_more(clock: Clock) -> None:
    """After ``stop`` the loop only waits for the end."""
    of = Loop(0.1, None)
    of.stop()

    assert run(of, clock, until_s=0.5) == []


def test_punctuality_of_one_tick_is_unknown(clock: Clock) -> None:
    """One sample has no interval."""
    of = Loop(0.1, None)
    run(of, clock, until_s=0.05)

    assert of.punctuality() == {"achieved_interval_s": None, "taken": 1, "missed": 0, "longest_gap_s": None}
