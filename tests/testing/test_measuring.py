from __future__ import annotations

import pytest

from nncftools.testing.measuring import Limit, excess
from nncftools.testing.meter import KERNEL, SAMPLED, UNSAMPLED, Peak
from nncftools.units import MemoryUnit
from tests.made_up import MIB

LIMIT = Limit(200 * MIB, MemoryUnit.MiB, from_zero=False)
FROM_ZERO = Limit(50 * MIB, MemoryUnit.MiB, from_zero=True)
LARGEST = ("python server.py", 150 * MIB)


@pytest.mark.parametrize(
    ("limit", "peak"),
    [
        (LIMIT, Peak(200 * MIB, 0, KERNEL)),
        (LIMIT, Peak()),
        (FROM_ZERO, Peak(900 * MIB, 50 * MIB, KERNEL)),
        (FROM_ZERO, Peak(900 * MIB, None, SAMPLED)),
    ],
)
def test_kept(limit: Limit, peak: Peak) -> None:
    """A peak equal to the limit does not exceed it, nor does an unknown peak."""
    assert excess(limit, peak, None) is None


@pytest.mark.parametrize(
    ("limit", "peak", "line"),
    [
        (
            LIMIT,
            Peak(264 * MIB, 9, KERNEL),
            "264.0 MiB exceeds the limit of 200.0 MiB (the kernel's maximum of one process)",
        ),
        (
            LIMIT,
            Peak(264 * MIB, 9, SAMPLED),
            "264.0 MiB exceeds the limit of 200.0 MiB (sampled; the largest process held 150.0 MiB: python server.py)",
        ),
        (
            FROM_ZERO,
            Peak(900 * MIB, 51 * MIB, UNSAMPLED),
            "51.0 MiB from zero exceeds the limit of 50.0 MiB (the test's process only)",
        ),
        (
            LIMIT,
            Peak(200 * MIB + 1, 9, KERNEL),
            "209,715,201 B exceeds the limit of 209,715,200 B (the kernel's maximum",
        ),
    ],
)
def test_exceeded(limit: Limit, peak: Peak, line: str) -> None:
    """The message has the limit, the peak in the limit's unit, and how the peak is known."""
    told = excess(limit, peak, LARGEST)

    assert told is not None
    assert told.startswith(f"memory peak {line}")
