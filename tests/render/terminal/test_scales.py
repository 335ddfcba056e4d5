from __future__ import annotations

import pytest

from nncftools.render.terminal_plot import axis_for, clock


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 9, 23, 47])
@pytest.mark.parametrize("largest", [0.001, 1, 7, 99.9, 100, 1311, 1e15])
def test_axis(largest: float, rows: int) -> None:
    """The largest value fits with at most a half of the height left, and ticks are whole numbers of rows apart."""
    found = axis_for(largest, rows, min(3, rows))

    assert largest <= found.top * 1.0001
    assert found.top <= max(2 * largest, found.step)
    assert found.top * found.rows == pytest.approx(found.step * rows)
    assert min(3, rows) <= found.rows <= rows


def test_round_steps() -> None:
    """Steps are round numbers."""
    assert [axis_for(largest, 9, 3).step for largest in (100, 300, 700, 1000)] == [50, 100, 250, 500]


def test_little_is_left_where_there_is_room() -> None:
    """Of several round steps, the one whose axis ends soonest above the largest value is taken."""
    assert axis_for(1024, 40, 3).top < 1.1 * 1024


def test_axis_of_nothing() -> None:
    """There is an axis when all values are 0."""
    assert axis_for(0, 5, 3).top == 1


@pytest.mark.parametrize(("seconds", "expected"), [(0.5, "0.5 s"), (7, "0:07"), (750, "12:30"), (3723, "1:02:03")])
def test_clock(seconds: float, expected: str) -> None:
    """Parts of a second have their unit; hours are shown when there are some."""
    assert clock(seconds) == expected
