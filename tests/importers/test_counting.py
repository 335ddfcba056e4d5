from __future__ import annotations

from math import isnan, nan

import pytest

from nncftools.importers.table import MonotonicTotal


@pytest.mark.parametrize(("before", "expected"), [(None, [0, 3, 3, 4]), (0.0, [5, 8, 8, 9])])
def test_a_counter_that_falls(before: float | None, expected: list[float]) -> None:
    """Counts of a process that ended are kept, and counting continues from there."""
    assert MonotonicTotal(before).take([5, 8, 2, 3]) == expected


def test_an_unknown_count() -> None:
    """An unknown value stays unknown, and the next one counts from the last known value."""
    found = MonotonicTotal().take([5, nan, 7])

    assert (found[0], isnan(found[1]), found[2]) == (0, True, 2)


def test_a_counter_over_pieces() -> None:
    """Rising and falling chunks are read as one sequence."""
    counter = MonotonicTotal()

    assert [counter.take(piece) for piece in ([5.0], [5.0, 9.0], [2.0, 4.0], [6.0, 6.0])] == [
        [0],
        [0, 4],
        [4, 6],
        [8, 8],
    ]
