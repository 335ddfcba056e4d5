from __future__ import annotations

import pytest

from nncftools.sampler import loop
from nncftools.sampler.loop import NANOSECONDS, Loop


class Clock:
    """A monotonic clock that moves only on request."""

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

    def sleep(timeout_s: float | None) -> bool:
        clock.pass_(until_s if timeout_s is None else timeout_s)
        return True

    of.run(tick, sleep, lambda: of.elapsed_s() < until_s)
    return ticks


def test_ticks_on_multiples_of_the_interval(clock: Clock) -> None:
    """The first tick comes at once, the others on absolute deadlines, even if a tick takes long."""
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


def stopped_at(clock: Clock, interval_s: float, duration_s: float | None, end_s: float) -> Loop:
    """Run a loop that ticks to 0.3 s, is stopped by SIGSTOP there, and finds at ``end_s`` that all is over."""
    of = Loop(interval_s, duration_s)
    run(of, clock, until_s=0.35)
    clock.now_ns = of.start_ns + round(end_s * NANOSECONDS)
    of.close()
    return of


@pytest.mark.parametrize(
    ("end_s", "missed", "gap_s"), [(0.39, 0, 0.1), (0.45, 0, 0.1), (0.5, 1, 0.2), (2.35, 19, 2.05)]
)
def test_deadlines_before_the_end(clock: Clock, end_s: float, missed: int, gap_s: float) -> None:
    """Deadlines that passed without a tick before the end are missed; the last one is not."""
    facts = stopped_at(clock, 0.1, None, end_s).punctuality()

    assert facts["missed"] == missed
    assert facts["longest_gap_s"] == pytest.approx(gap_s)


def test_deadlines_after_the_duration(clock: Clock) -> None:
    """Deadlines after the duration are not missed, no matter how late the loop continues."""
    assert stopped_at(clock, 0.1, 0.6, 9).punctuality()["missed"] == 3


def test_late_tick_at_the_duration(clock: Clock) -> None:
    """A tick that comes after the duration is the last one, and counts for the last deadline."""
    of = Loop(0.1, 0.5)
    ticks = run(of, clock, until_s=3, costs={1: 2.0})

    assert ticks == [0.0, 0.1, 2.1]
    assert of.punctuality()["missed"] == 3


def test_closed_before_the_first_tick(clock: Clock) -> None:
    """A loop that never ticked has missed all deadlines, in one gap from the start."""
    of = Loop(0.1, None)
    clock.pass_(1)
    of.close()

    assert of.punctuality() == {"achieved_interval_s": None, "taken": 0, "missed": 10, "longest_gap_s": 1.0}


def test_lost_samples_are_missed(clock: Clock) -> None:
    """Samples that were taken and lost count as missed, and their gap reaches to the samples around them."""
    of = Loop(0.1, None)
    run(of, clock, until_s=0.95)
    facts = of.punctuality(lost=4, longest_lost_s=0.3)

    assert (facts["taken"], facts["missed"]) == (6, 4)
    assert facts["longest_gap_s"] == pytest.approx(0.5)


def test_more_samples_lost_than_ticks(clock: Clock) -> None:
    """Samples that were taken for marks may be lost as well: no more are missed than there were deadlines."""
    of = Loop(0.1, None)
    run(of, clock, until_s=0.35)
    facts = of.punctuality(lost=100, longest_lost_s=0.1)

    assert (facts["taken"], facts["missed"]) == (0, 4)
