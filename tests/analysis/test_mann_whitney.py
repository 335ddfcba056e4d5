from __future__ import annotations

import random
from itertools import combinations, product

import pytest

from nncftools.analysis.figures import p_value, smallest_p


def by_enumeration(one: list[float], other: list[float]) -> float:
    """Return p by trying every way to deal the values to the two groups; ranks counted by comparing pairs."""

    def unevenness(of: tuple[int, ...]) -> float:
        rest = [place for place in range(len(pool)) if place not in of]
        wins = sum((pool[a] > pool[b]) + (pool[a] == pool[b]) / 2 for a, b in product(of, rest))
        return abs(wins - len(of) * len(rest) / 2)

    pool = [*one, *other]
    observed = unevenness(tuple(range(len(one))))
    every = [unevenness(of) for of in combinations(range(len(pool)), len(one))]
    return sum(of >= observed for of in every) / len(every)


def test_equal_values() -> None:
    """With equal values, p is what trying all ways to deal them gives."""
    numbers = random.Random(1)  # noqa: S311 — repeatable, not secret
    for _ in range(100):
        one = [float(numbers.randrange(6)) for _ in range(numbers.randrange(1, 6))]
        other = [float(numbers.randrange(6)) for _ in range(numbers.randrange(1, 6))]

        assert p_value(one, other) == pytest.approx(by_enumeration(one, other))


@pytest.mark.long
def test_groups_of_a_hundred() -> None:
    """Groups of a hundred runs, far apart, have a p that is tiny and not negative."""
    assert 0 < p_value(range(100), range(100, 200)) < 1e-50


@pytest.mark.parametrize(("one", "other", "expected"), [(5, 5, 2 / 252), (3, 3, 0.1), (4, 4, 2 / 70), (1, 1, 1.0)])
def test_smallest(one: int, other: int, expected: float) -> None:
    """The smallest p is reached by groups that do not overlap."""
    assert smallest_p(one, other) == pytest.approx(expected)
    assert p_value(range(one), range(one, one + other)) == pytest.approx(expected)
