from __future__ import annotations

import pytest

from nncftools.testing.measuring import Limit, excess
from nncftools.testing.meter import KERNEL, SAMPLED, UNSAMPLED, Peak
from nncftools.units import MemoryUnit
from tests.made_up import MIB

LIMIT = Limit(50 * MIB, MemoryUnit.MiB)
IN_ALL = Limit(200 * MIB, MemoryUnit.MiB, from_zero=False)
LARGEST = ("python server.py", 150 * MIB)
FROM_KERNEL = "peak RSS of one process, from the kernel"
ABOVE, HELD = "above the memory at the start of the test", "the largest process held 150.0 MiB: python server.py"


@pytest.mark.parametrize(
    "limit, peak",
    [
        (IN_ALL, Peak(200 * MIB, 0, KERNEL)),
        (IN_ALL, Peak()),
        (LIMIT, Peak(900 * MIB, 50 * MIB, KERNEL)),
        (LIMIT, Peak(900 * MIB, None, SAMPLED)),
    ],
)
def test_kept(limit: Limit, peak: Peak) -> None:
    """A peak equal to the limit does not exceed it, nor does an unknown peak."""
    assert excess(limit, peak, None) is None


@pytest.mark.parametrize(
    "limit, peak, line",
    [
        (
            LIMIT,
            Peak(900 * MIB, 51 * MIB, UNSAMPLED),
            f"memory rose by 51.0 MiB to 900.0 MiB; the limit is 50.0 MiB {ABOVE} (the test's process only)",
        ),
        (
            LIMIT,
            Peak(264 * MIB, 64 * MIB, SAMPLED),
            f"memory rose by 64.0 MiB to 264.0 MiB; the limit is 50.0 MiB {ABOVE} (sampled; {HELD})",
        ),
        (
            IN_ALL,
            Peak(264 * MIB, 9 * MIB, KERNEL),
            f"memory rose by 9.0 MiB to 264.0 MiB; the limit is 200.0 MiB in all ({FROM_KERNEL})",
        ),
        (
            IN_ALL,
            Peak(264 * MIB, None, UNSAMPLED),
            "memory rose to 264.0 MiB; the limit is 200.0 MiB in all (the test's process only)",
        ),
        (
            IN_ALL,
            Peak(200 * MIB + 1, 9, UNSAMPLED),
            "memory rose by 9 B to 209,715,201 B; the limit is 209,715,200 B in all (the test's process only)",
        ),
    ],
)
def test_exceeded(limit: Limit, peak: Peak, line: str) -> None:
    """The message has both figures, the limit in its unit, from where it counts, and how the peak is known."""
    assert excess(limit, peak, LARGEST) == line
