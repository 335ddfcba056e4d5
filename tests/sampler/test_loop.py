from __future__ import annotations

import pytest

from nncftools.journal import writing
from nncftools.journal.writing import Thinner
from nncftools.sampler import service
from nncftools.sampler.service import NANOSECONDS, Loop


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
    monkeypatch.setattr(service, "time", fake)
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


@pytest.mark.parametrize(
    "duration_s, end_s, missed, gap_s",
    [(None, 0.39, 0, 0.1), (None, 0.45, 0, 0.1), (None, 0.5, 1, 0.2), (None, 2.35, 19, 2.05), (0.6, 9, 3, 8.7)],
)
def test_deadlines_before_the_end(
    clock: Clock, duration_s: float | None, end_s: float, missed: int, gap_s: float
) -> None:
    """Deadlines before the end and the duration are missed after a SIGSTOP at 0.35 s; the last one is not."""
    of = Loop(0.1, duration_s)
    run(of, clock, until_s=0.35)
    clock.now_ns = of.start_ns + round(end_s * NANOSECONDS)
    of.close()

    assert of.punctuality()["missed"] == missed
    assert of.punctuality()["longest_gap_s"] == pytest.approx(gap_s)


@pytest.mark.parametrize("cost_s, ticks", [(0, [0.0, 0.1, 0.2]), (2.0, [0.0, 0.1, 2.1])])
def test_duration(clock: Clock, cost_s: float, ticks: list[float]) -> None:
    """No tick comes after the duration, except a late last one."""
    assert run(Loop(0.1, 0.2), clock, until_s=3, costs={1: cost_s}) == ticks


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


Row = tuple[float, list[float | None], dict[int, int]]


def thinned(rows: list[Row], limit: int, gauges: tuple[int, ...] = (0,), devices: int = 0) -> list[Row]:
    """Return the rows that are kept."""
    kept: list[Row] = []
    thinner = Thinner(limit, kept.append)  # type: ignore[arg-type]
    thinner.gauges = gauges
    thinner.devices = devices
    for row in rows:
        thinner.add(row)
    thinner.flush()
    return kept


BUCKETS = {
    "extremes and the last of a bucket": (1, "0 0 5 9 3 1 4 2", "3 5 7"),
    "bucket that is not full": (1, "0 0 5 9 3", "3 4"),
    "all the same": (1, "0 0 5 5 5 5 5 5", "2 7"),
    "the last is the largest": (1, "0 0 1 2 3 4 5 6", "2 7"),
    "nothing known": (1, "0 0 - - - - - -", "7"),
    "some known": (1, "0 0 - 7 3 - 9 -", "4 6 7"),
    "zero is a value": (1, "0 0 0 7 3 5 9 4", "2 6 7"),
    "below the limit": (1, "0", ""),
    "no gauges": (0, "0 0 5 9 3 1 4 2", "3 7"),
}
"""By case: the number of gauges, the value of each row, and the rows that are kept beyond the first two."""


@pytest.mark.parametrize("gauges, values, kept", BUCKETS.values(), ids=BUCKETS)
def test_bucket_keeps_extremes_and_its_last(
    monkeypatch: pytest.MonkeyPatch, gauges: int, values: str, kept: str
) -> None:
    """Beyond the limit of two rows, a bucket keeps the smallest and the largest known value, and the last row."""
    monkeypatch.setattr(writing, "COARSER", 2)
    known = [None if value == "-" else float(value) for value in values.split()]
    rows: list[Row] = [(place, [value], {0: place}) for place, value in enumerate(known)]

    assert thinned(rows, 2, tuple(range(gauges))) == [*rows[:2], *(rows[int(place)] for place in kept.split())]


@pytest.mark.parametrize("devices, processes", [(320, 1), (0, 160)], ids=["320 devices", "160 processes"])
def test_long_rows_count_several_times(devices: int, processes: int) -> None:
    """A journal with so many figures in each row merges 11 times as early."""
    rows: list[Row] = [(number, [number], dict.fromkeys(range(processes), 1)) for number in range(1_100)]
    kept = thinned(rows, 1_100, devices=devices)

    assert 100 < len(kept) < 250
    assert kept[:100] == rows[:100]
