from __future__ import annotations

import pytest

from nncftools.sampler.loop import Counters

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


@pytest.mark.parametrize("row", [[1, 2, 3, 4], [None, None, None, None]])
def test_only_counters(row: list[float | None]) -> None:
    """The counters of a row are what is left for the totals."""
    assert Counters(COLUMNS, from_now=False).only(row) == [None, row[1], None, row[3]]
