from __future__ import annotations

import random
from array import array
from itertools import pairwise
from math import isnan, nan

import pytest

from nncftools.session.samples import kept_rows


def column(*values: float | None) -> array[float]:
    """Return values as a session holds them."""
    return array("d", (nan if value is None else value for value in values))


def walk(seed: int, length: int, known: float = 1.0) -> array[float]:
    """Return a gauge that wanders and of which a part is known."""
    chance = random.Random(seed)  # noqa: S311 — the same each time
    level = 5_000.0
    values = array("d")
    for _ in range(length):
        level += chance.randint(-50, 50)
        values.append(level if chance.random() < known else nan)
    return values


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([3, 1, 2, 9, 5], [1, 3, 4], id="smallest, largest, last"),
        pytest.param([1, 2, 3, 4, 5], [0, 4], id="rising"),
        pytest.param([5, 4, 3, 2, 1], [0, 4], id="falling"),
        pytest.param([7, 7, 7, 7, 7], [0, 4], id="the same: the first, and the last"),
        pytest.param([None, 1, None, 9, None], [1, 3, 4], id="some unknown"),
        pytest.param([None, 4, None, None, None], [1, 4], id="one known"),
        pytest.param([None] * 5, [4], id="nothing known"),
        pytest.param([0, 3, 5, 0, 4], [0, 2, 4], id="zero is a value"),
    ],
)
def test_one_bucket(values: list[float | None], expected: list[int]) -> None:
    """Of a bucket the rows with the smallest and the largest known value are kept, and the last."""
    assert kept_rows([column(*values)], 5, 3) == expected


def test_several_gauges() -> None:
    """Every gauge has its own extremes, and a row that holds several is kept once."""
    first, second = column(9, 1, 5, 5, 5, 5), column(0, 9, 5, 5, 1, 5)

    assert kept_rows([first, second], 6, 5) == [0, 1, 5]


def test_several_buckets() -> None:
    """Buckets are of equal length, and each keeps its own extremes."""
    assert kept_rows([column(5, 1, 9, 5, 2, 8, 5, 5)], 8, 6) == [1, 2, 3, 4, 5, 7]


def test_without_gauges() -> None:
    """When no memory was recorded, rows at equal distances are kept, the last among them."""
    assert kept_rows([], 10, 5) == [1, 3, 5, 7, 9]


def test_more_buckets_than_rows() -> None:
    """A limit beyond the number of rows keeps each row once."""
    assert kept_rows([column(1, 2, 3)], 3, 1_000) == [0, 1, 2]


@pytest.mark.parametrize("limit", [1, 2])
def test_limit_below_one_bucket(limit: int) -> None:
    """However small the limit is, the extremes and the last row are kept."""
    assert kept_rows([column(3, 1, 9, 5)], 4, limit) == [1, 2, 3]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("rows", "limit"), [(1_000, 100), (5_000, 500), (997, 31), (5_000, 9)])
class TestRandomWalk:
    """A gauge that is always known, one that seldom is, and one that never is."""

    def kept(self, seed: int, rows: int, limit: int) -> tuple[list[array[float]], list[int]]:
        """Return the gauges and the rows that are kept of them."""
        gauges = [walk(seed, rows), walk(seed + 100, rows, known=0.05), column(*[None] * rows)]
        return gauges, kept_rows(gauges, rows, limit)

    def test_no_extreme_is_lost(self, seed: int, rows: int, limit: int) -> None:
        """The smallest and the largest known value of every gauge are kept."""
        gauges, kept = self.kept(seed, rows, limit)

        for gauge in gauges[:2]:
            known = [value for value in gauge if not isnan(value)]
            left = [gauge[row] for row in kept if not isnan(gauge[row])]
            assert (min(left), max(left)) == (min(known), max(known))

    def test_in_time_order(self, seed: int, rows: int, limit: int) -> None:
        """Every row is kept once at most and in its place, and the last is kept."""
        _, kept = self.kept(seed, rows, limit)

        assert all(before < after for before, after in pairwise(kept))
        assert kept[-1] == rows - 1

    def test_number(self, seed: int, rows: int, limit: int) -> None:
        """No more rows are kept than the limit, and not far fewer."""
        _, kept = self.kept(seed, rows, limit)

        assert limit / 4 <= len(kept) <= limit

    def test_no_long_gap(self, seed: int, rows: int, limit: int) -> None:
        """What is kept covers the whole recording: no gap is longer than two buckets."""
        _, kept = self.kept(seed, rows, limit)
        bucket = rows / max(1, limit // 7)

        assert max(after - before for before, after in pairwise([-1, *kept])) <= 2 * bucket + 1
