"""Bounds the rows of a session: neighbours merge into buckets, and no peak is lost."""

from __future__ import annotations

from itertools import pairwise
from math import isnan
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence


def kept_rows(gauges: Sequence[array[float]], rows: int, limit: int) -> list[int]:
    """Return the rows to keep, at most about ``limit``.

    Of each of equally long buckets these are the rows with the smallest and the largest value of each gauge, and the
    last.
    """
    buckets = max(1, limit // (2 * len(gauges) + 1))
    edges = [bucket * rows // buckets for bucket in range(buckets + 1)]
    return [row for begin, end in pairwise(edges) if end > begin for row in _extremes(gauges, begin, end)]


def _extremes(gauges: Sequence[array[float]], begin: int, end: int) -> list[int]:
    kept = {end - 1}
    for gauge in gauges:
        values = gauge[begin:end]
        if isnan(sum(values)):
            known = [place for place, value in enumerate(values) if not isnan(value)]
            if known:  # min and max return the first of equal ones
                kept |= {begin + min(known, key=values.__getitem__), begin + max(known, key=values.__getitem__)}
        else:
            kept |= {begin + values.index(min(values)), begin + values.index(max(values))}
    return sorted(kept)
