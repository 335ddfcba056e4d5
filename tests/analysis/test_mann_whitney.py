from __future__ import annotations

import pytest

from nncftools.analysis.figures import p_value, smallest_p


@pytest.mark.parametrize(
    "one, other, expected",
    [
        ([1, 2, 2], [2, 3, 4], 6 / 20),
        ([0, 0, 1, 1], [1, 1, 2, 5, 5], 10 / 126),
        ([3], [3, 3, 3], 4 / 4),
        ([1, 1, 2, 3, 3], [0, 0, 3], 22 / 56),
        ([5, 2, 2, 2], [2], 5 / 5),
        ([4, 4, 1, 0, 2], [4, 4, 4, 5, 2], 52 / 252),
        ([1, 2, 3], [1, 2, 3], 20 / 20),
        ([0, 5], [1, 1, 2, 2], 15 / 15),
    ],
)
def test_equal_values(one: list[float], other: list[float], expected: float) -> None:
    """With equal values, p is the share of the ways to deal the values that are at least as uneven."""
    assert p_value(one, other) == pytest.approx(expected)


@pytest.mark.long
def test_groups_of_a_hundred() -> None:
    """Groups of a hundred runs, far apart, have a p that is tiny and not negative."""
    assert 0 < p_value(range(100), range(100, 200)) < 1e-50


@pytest.mark.parametrize("one, other, expected", [(5, 5, 2 / 252), (3, 3, 0.1), (4, 4, 2 / 70), (1, 1, 1.0)])
def test_smallest(one: int, other: int, expected: float) -> None:
    """The smallest p is reached by groups that do not overlap."""
    assert smallest_p(one, other) == pytest.approx(expected)
    assert p_value(range(one), range(one, one + other)) == pytest.approx(expected)
