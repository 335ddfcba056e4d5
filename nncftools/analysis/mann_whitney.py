"""Whether two groups of runs differ by more than their spread: an exact rank test for small groups."""

from __future__ import annotations

from math import comb
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence


def p_value(one: Sequence[float], other: Sequence[float]) -> float:
    """Return how likely ranks at least as uneven as these are, if both groups come from one distribution.

    This is the two-sided test of Mann and Whitney (Ann. Math. Statist. 18 (1947) 50-60), exact even with ties. It
    counts all ways to deal the observed mid-ranks to groups of these sizes, by the shift algorithm of Streitberg and
    Röhmel (Statistical Software Newsletter 12 (1986) 10-17). Neither group may be empty.
    """
    _, places, counts = np.unique([*one, *other], return_inverse=True, return_counts=True)
    ranks = (2 * np.cumsum(counts) - counts + 1)[places].tolist()  # twice the mid-ranks: whole numbers
    size, total = len(one), len(ranks)
    ways = np.zeros((size + 1, sum(ranks) + 1))
    ways[0, 0] = 1
    for rank in ranks:
        ways[1:, rank:] += ways[:-1, :-rank]
    expected = size * (total + 1)
    uneven = abs(np.arange(ways.shape[1]) - expected) >= abs(sum(ranks[:size]) - expected)
    return float(ways[size, uneven].sum() / comb(total, size))


def smallest_p(one: int, other: int) -> float:
    """Return the smallest p that groups of these sizes can reach: when every value of one is above all of the other."""
    return min(1.0, 2 / comb(one + other, one))
