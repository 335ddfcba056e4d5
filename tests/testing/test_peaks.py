from __future__ import annotations

from typing import Any

import pytest

from nncftools.testing.meter import (
    KERNEL,
    SAMPLED,
    UNKNOWN,
    UNSAMPLED,
    Measurement,
    Memory,
    Peak,
    Row,
    peak_of,
    put,
    taken,
)

ALONE = Memory(rss=30, mark=30, children_mark=20, has_children=False)
BESIDE_ANOTHER = Memory(rss=30, mark=30, children_mark=20, has_children=True)


def after(mark: int, children_mark: int = 20) -> Memory:
    """Return the kernel's figures at the end of a test."""
    return Memory(rss=35, mark=mark, children_mark=children_mark, has_children=False)


def row(rss: int, processes: int) -> Row:
    """Return a sample."""
    return Row(0, rss, processes)


def peak_with(
    *,
    before: Memory = ALONE,
    after: Memory = after(50),  # noqa: B008 — never changed
    was_reset: bool = True,
    is_sampled: bool = True,
    **samples: Row,
) -> Peak:
    """Return the peak of a test, by default a sampled one, after a reset, with no sample during it."""
    return peak_of(Measurement(before=before, was_reset=was_reset, **samples), after, is_sampled=is_sampled)


@pytest.mark.parametrize(
    ("known", "peak"),
    [
        ({}, Peak(50, 20, KERNEL)),
        ({"largest": row(51, 1)}, Peak(50, 20, KERNEL)),
        ({"largest": row(70, 2)}, Peak(70, 40, SAMPLED)),
        ({"largest": row(40, 2)}, Peak(50, 20, KERNEL)),
        ({"after": after(50, 90)}, Peak(90, 60, KERNEL)),
        ({"after": after(50, 45)}, Peak(50, 20, KERNEL)),
        ({"before": BESIDE_ANOTHER, "after": after(50, 90)}, Peak(50, 20, KERNEL)),
        ({"before": BESIDE_ANOTHER, "held": row(60, 2), "largest": row(90, 2)}, Peak(90, 30, SAMPLED)),
        ({"before": BESIDE_ANOTHER, "held": row(60, 2)}, Peak(50, 0, KERNEL)),
        ({"was_reset": False}, Peak(50, 20, KERNEL)),
        ({"was_reset": False, "after": after(30)}, Peak(35, 5, SAMPLED)),
        ({"was_reset": False, "after": after(30), "largest": row(40, 1)}, Peak(40, 10, SAMPLED)),
        ({"is_sampled": False}, Peak(50, 20, UNSAMPLED)),
        ({"before": Memory(), "after": Memory(), "held": row(10, 1), "largest": row(15, 1)}, Peak(15, 5, SAMPLED)),
        ({"before": Memory(), "after": Memory(), "is_sampled": False}, Peak(None, None, UNKNOWN)),
    ],
)
def test_peak(known: dict[str, Any], peak: Peak) -> None:
    """The largest certain figure is the peak, with how it is known."""
    assert peak_with(**known) == peak


def test_peak_of_a_test_that_runs_again() -> None:
    """A peak replaces that of an earlier run in the properties of a test; unknown figures are left out."""
    of_test: list[tuple[str, object]] = [("own", "value")]
    put(Peak(5, 1, KERNEL), of_test)
    put(Peak(7, None, SAMPLED), of_test)

    assert of_test == [("own", "value"), ("memory_peak_bytes", 7), ("memory_known", "sampled")]
    assert taken(of_test) == Peak(7, None, SAMPLED)


def test_a_test_that_was_not_measured() -> None:
    """A test without our properties has no peak."""
    assert taken([("own", "value")]) is None
