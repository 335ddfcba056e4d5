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


def merging_told(taken: int, left: int, option: str = "") -> str:
    """Return the warning that neighbours were merged; ``option`` says what asked for it."""
    return (
        f"{taken:,} samples were taken, and neighbours merged to {left:,} that keep the smallest and the largest "
        f"values{option}: averages are those of what was kept"
    )


def usual_distance(time_s: array[float]) -> float | None:
    """Return the distance of two samples that only one in a hundred exceeds, in seconds."""
    distances = sorted(after - before for before, after in pairwise(time_s))
    return distances[len(distances) * 99 // 100] if distances else None


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
