"""Bounds the rows of a session: neighbours merge into buckets (``nncftools.journal.bucket``)."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from nncftools.journal.bucket import kept_of_bucket

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence


def kept_rows(gauges: Sequence[array[float]], rows: int, limit: int) -> list[int]:
    """Return the rows that equally long buckets keep, at most about ``limit``."""
    buckets = max(1, limit // (2 * len(gauges) + 1))
    edges = [bucket * rows // buckets for bucket in range(buckets + 1)]
    return [row for begin, end in pairwise(edges) if end > begin for row in kept_of_bucket(gauges, begin, end)]


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
