from __future__ import annotations

import os
import pathlib
import random
from math import log2
from types import SimpleNamespace
from typing import Any

import pytest

from nncftools.journal import writing
from nncftools.journal.writing import Counters, Thinner
from nncftools.sampler import service
from nncftools.sampler.proc_source import Schedule, Stillness
from nncftools.sampler.service import NANOSECONDS, Loop

COLUMNS = ("rss", "cpu_user", "system", "read_bytes")


def settled(*rows: list[float | None], from_now: bool = False) -> list[list[float | None]]:
    """Return rows as a session holds them."""
    counters = Counters(COLUMNS, from_now=from_now)
    found = [list(row) for row in rows]
    for row in found:
        counters.settle(row)
    return found


def test_gauges_are_left_alone() -> None:
    """A level may fall, and may be unknown."""
    assert settled([9, 0, 5, 0], [3, 0, None, 0]) == [[9, 0, 5, 0], [3, 0, None, 0]]


def test_counters_never_fall() -> None:
    """While an ended process is not yet folded into its parent, the last level is held."""
    levels = [row[1] for row in settled(*([1, level, 1, 0] for level in (0, 5, 3, 4, 6)))]

    assert levels == [0, 5, 5, 5, 6]


def test_unknown_in_between() -> None:
    """What is unknown at one sample is unknown there, and goes on from the level before."""
    levels = [row[3] for row in settled(*([1, 0, 1, level] for level in (5, None, 3, 8)))]

    assert levels == [5, None, 5, 8]


def test_from_now() -> None:
    """Attached to a running process, what it did before does not count."""
    rows = settled([7, 100, 1, 50], [8, 103, 1, 50], from_now=True)

    assert rows == [[7, 0, 1, 0], [8, 3, 1, 0]]


def test_from_now_unknown_at_first() -> None:
    """When it is not known what was before, the total stays unknown."""
    levels = [row[3] for row in settled([1, 0, 1, None], [1, 0, 1, 90], from_now=True)]

    assert levels == [None, None]


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


def test_duration_ends_the_ticks(clock: Clock) -> None:
    """No tick comes after the duration."""
    ticks = run(Loop(0.1, 0.2), clock, until_s=0.5)

    assert ticks == [0.0, 0.1, 0.2]


def test_stopped_loop_ticks_no_more(clock: Clock) -> None:
    """After ``stop`` the loop only waits for the end."""
    of = Loop(0.1, None)
    of.sampling = False

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


@pytest.fixture
def _small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep every second row above the limit."""
    monkeypatch.setattr(writing, "COARSER", 2)


def test_stillness(tmp_path: pathlib.Path) -> None:
    """Files that say the same are still, until one of them changes or a process comes or goes."""
    file = tmp_path / "stat"
    file.write_bytes(b"1 2 3")
    descriptor = os.open(file, os.O_RDONLY)
    process: Any = SimpleNamespace(files=[descriptor], data=[b"1 2 3"])
    tree: Any = SimpleNamespace(changes=3)
    still = Stillness()
    found = [still.lasts(tree)]
    still.expect([process], tree)
    found.append(still.lasts(tree))
    tree.changes = 4
    found.append(still.lasts(tree))
    still.expect([process], tree)
    file.write_bytes(b"1 2 3 4")
    found.append(still.lasts(tree))
    process.data = [None]
    still.expect([process], tree)
    found.append(still.lasts(tree))
    os.close(descriptor)

    assert found == [False, True, False, False, False]


def test_schedule() -> None:
    """Work is done when it is due, and may be hastened but not put off."""
    done: list[tuple[str, float]] = []

    def often(now_s: float) -> float:
        done.append(("often", now_s))
        return now_s + 1

    def seldom(now_s: float) -> float:
        done.append(("seldom", now_s))
        return now_s + 10

    schedule = Schedule(often, seldom)
    schedule.run(0.0)
    first = schedule.next_s
    schedule.run(1.0)
    schedule.hasten(seldom, 1.5)
    schedule.hasten(often, 9.0)
    hastened = schedule.next_s
    due = schedule.is_due(seldom, 1.4), schedule.is_due(seldom, 1.5)
    schedule.run(1.5)

    assert done == [("often", 0.0), ("seldom", 0.0), ("often", 1.0), ("seldom", 1.5)]
    assert (first, hastened, due, schedule.next_s) == (1.0, 1.5, (False, True), 2.0)


Row = tuple[float, list[float | None], dict[int, int]]

GAUGES = (0, 2)
"""Of three columns the one in the middle is a counter."""


def rows_of(*values: float | None) -> list[Row]:
    """Return one row per value of a single gauge, each with the RSS of a process."""
    return [(place / 10, [value], {0: place}) for place, value in enumerate(values)]


def thinned(rows: list[Row], limit: int, gauges: tuple[int, ...] = (0,), *, flush: bool = True) -> list[Row]:
    """Return what is left of rows."""
    kept: list[Row] = []
    thinner = Thinner(limit, kept.append)  # type: ignore[arg-type]
    thinner.gauges = gauges
    for row in rows:
        thinner.add(row)
    if flush:
        thinner.flush()
    return kept


def walk(seed: int, length: int) -> list[Row]:
    """Return rows of two gauges that wander, of which the second is seldom known, with a counter between them."""
    chance = random.Random(seed)  # noqa: S311 — the same each time
    first, second, counter = 1_000, 5_000, 0
    rows: list[Row] = []
    for place in range(length):
        first = max(0, first + chance.randint(-50, 50))
        second = max(0, second + chance.randint(-50, 50))
        counter += chance.randint(0, 3)
        known = chance.random() < 0.1
        rows.append((place / 10, [first, counter, second if known else None], {0: first, 1: place}))
    return rows


def values_of(rows: list[Row], gauge: int) -> list[float]:
    """Return the known values of a gauge."""
    return [value for _, values, _ in rows if (value := values[gauge]) is not None]


def test_up_to_the_limit_nothing_changes() -> None:
    """Up to the limit every row is passed on at once and as it is."""
    rows = rows_of(*range(10))

    assert thinned(rows, 10, flush=False) == rows


@pytest.mark.usefixtures("_small_buckets")
def test_bucket_keeps_extremes_and_its_last() -> None:
    """Beyond the limit, a bucket leaves the rows of the smallest and the largest value, and the last, in time order."""
    rows = rows_of(0, 0, 5, 9, 3, 1, 4, 2)

    assert thinned(rows, 2, flush=False) == [*rows[:2], rows[3], rows[5], rows[7]]


@pytest.mark.usefixtures("_small_buckets")
@pytest.mark.parametrize(
    ("values", "kept"),
    [
        pytest.param([5, 5, 5, 5, 5, 5], 2, id="all the same"),
        pytest.param([1, 2, 3, 4, 5, 6], 2, id="the last is the largest"),
        pytest.param([None] * 6, 1, id="nothing known"),
        pytest.param([None, 7, None, None, None, None], 2, id="one known"),
        pytest.param([None, 7, 3, None, 9, None], 3, id="some known"),
        pytest.param([0, 7, 3, 5, 9, 4], 3, id="zero is a value"),
    ],
)
def test_rows_of_a_bucket(values: list[float | None], kept: int) -> None:
    """A row that is kept for several reasons is kept once, and an unknown value is no extreme."""
    rows = rows_of(0, 0, *values)
    left = thinned(rows, 2, flush=False)[2:]
    known = [value for value in values if value is not None]

    assert len(left) == kept
    assert left[-1] == rows[-1]
    assert {*values_of(left, 0)} >= ({min(known), max(known)} if known else set())


@pytest.mark.usefixtures("_small_buckets")
def test_unfinished_bucket() -> None:
    """What is in the bucket at the end is kept in the same way."""
    rows = rows_of(0, 0, 5, 9, 3)

    assert thinned(rows, 2, flush=False) == rows[:2]
    assert thinned(rows, 2) == [*rows[:2], rows[3], rows[4]]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_nothing_to_flush(number: int) -> None:
    """When no bucket is begun, the end leaves nothing, and nothing twice."""
    rows = rows_of(*range(number))

    assert thinned(rows, 2) == rows


@pytest.mark.usefixtures("_small_buckets")
def test_other_columns_have_no_extremes() -> None:
    """Of a counter nothing is kept but what is in the rows of the gauges: its last value is its largest."""
    rows: list[Row] = [(place, [7, 10 * place, 7], {}) for place in range(12)]

    assert [row[0] for row in thinned(rows, 2, GAUGES, flush=False)[2:]] == [2, 11]


@pytest.mark.usefixtures("_small_buckets")
def test_without_gauges() -> None:
    """When no memory is recorded, the last row of each bucket is kept."""
    rows = rows_of(*range(10))

    assert [row[0] for row in thinned(rows, 4, ())] == [0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("length", "limit"), [(1_000, 100), (10_000, 100), (5_000, 1_000), (777, 7)])
class TestLongRecording:
    """What is left of random walks."""

    def test_no_extreme_is_lost(self, seed: int, length: int, limit: int) -> None:
        """The smallest and the largest value of every gauge are among those that are kept."""
        rows = walk(seed, length)
        kept = thinned(rows, limit, GAUGES)

        for gauge in GAUGES:
            assert min(values_of(kept, gauge)) == min(values_of(rows, gauge))
            assert max(values_of(kept, gauge)) == max(values_of(rows, gauge))

    def test_rows_are_true(self, seed: int, length: int, limit: int) -> None:
        """Every row that is kept is one that was taken, whole, once, and in time order; the last is among them."""
        rows = walk(seed, length)
        kept = thinned(rows, limit, GAUGES)
        places = [round(row[0] * 10) for row in kept]

        assert places == sorted(set(places))
        assert kept == [rows[place] for place in places]
        assert kept[-1] == rows[-1]

    def test_number_of_rows(self, seed: int, length: int, limit: int) -> None:
        """The number of rows is bounded by the limit and the logarithm of the number of samples."""
        kept = thinned(walk(seed, length), limit, GAUGES)

        assert min(limit, length) <= len(kept) <= limit * (1 + log2(length / limit) / 8) + 2 * len(GAUGES) + 1


@pytest.mark.parametrize(("length", "most"), [(1_000, 1_000), (2_000, 1_130), (200_000, 2_000)])
def test_very_long_recording(length: int, most: int) -> None:
    """Of twice the limit, an eighth more than the limit is left, and of two hundred times the limit twice as much."""
    kept = 0

    def count(_: object) -> None:
        nonlocal kept
        kept += 1

    thinner = Thinner(1_000, count)
    thinner.gauges = (0,)
    for place in range(length):
        thinner.add((place, [place % 977], {}))
    thinner.flush()

    assert kept <= most


def test_rows_of_many_devices_count_several_times() -> None:
    """A journal with 320 columns of devices merges 11 times as early."""
    kept: list[Row] = []
    thinner = Thinner(1_100, kept.append)  # type: ignore[arg-type]
    thinner.devices = 320
    for row in rows_of(*range(1_100)):
        thinner.add(row)

    assert 100 < len(kept) < 250
    assert [row[0] for row in kept[:100]] == [place / 10 for place in range(100)]


def test_rows_of_many_processes_count_several_times() -> None:
    """A journal with the RSS of 160 processes in each row merges 11 times as early."""
    kept = thinned([(number, [number], dict.fromkeys(range(160), 1)) for number in range(1_100)], 1_100)

    assert 100 < len(kept) < 250
    assert [row[0] for row in kept[:100]] == list(range(100))
