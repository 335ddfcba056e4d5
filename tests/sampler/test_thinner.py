from __future__ import annotations

import random
from math import log2

import pytest

from nncftools.sampler.loop import Thinner

Row = tuple[float, list[float | None], dict[int, int]]

GAUGES = (0, 2)
"""Of three columns the one in the middle is a counter."""


def rows_of(*values: float | None) -> list[Row]:
    """Return one row per value of a single gauge, each with the RSS of a process."""
    return [(place / 10, [value], {0: place}) for place, value in enumerate(values)]


def thinned(rows: list[Row], limit: int, gauges: tuple[int, ...] = (0,), *, flush: bool = True) -> list[Row]:
    """Return what is left of rows."""
    kept: list[Row] = []
    thinner = Thinner(limit, gauges, kept.append)  # type: ignore[arg-type]
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


def test_bucket_keeps_extremes_and_its_last() -> None:
    """Beyond the limit, a bucket leaves the rows of the smallest and the largest value, and the last, in time order."""
    rows = rows_of(0, 0, 5, 9, 3, 1, 4, 2)

    assert thinned(rows, 2, flush=False) == [*rows[:2], rows[3], rows[5], rows[7]]


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


def test_other_columns_have_no_extremes() -> None:
    """Of a counter nothing is kept but what is in the rows of the gauges: its last value is its largest."""
    rows: list[Row] = [(place, [7, 10 * place, 7], {}) for place in range(12)]

    assert [row[0] for row in thinned(rows, 2, GAUGES, flush=False)[2:]] == [2, 11]


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

        assert min(limit, length) <= len(kept) <= limit * (1 + log2(length / limit) / 2) + 2 * len(GAUGES) + 1


def test_very_long_recording() -> None:
    """Of two hundred times the limit, less than five times the limit is left."""
    kept = 0

    def count(_: object) -> None:
        nonlocal kept
        kept += 1

    thinner = Thinner(1_000, (0,), count)
    for place in range(200_000):
        thinner.add((place, [place % 977], {}))
    thinner.flush()

    assert kept < 1_000 * (1 + log2(200) / 2) + 3
