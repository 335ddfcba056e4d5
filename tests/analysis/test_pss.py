from __future__ import annotations

from typing import Any

import pytest

from nncftools.analysis.summary import NearPeak, pss_near_peak
from tests.made_up import MIB, mib, session

RSS = mib(100, 300, 290, 200)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"pss": mib(None, 150, None, 90)}, NearPeak(150 * MIB, 300 * MIB, 0.0, is_at_peak=True)),
        ({"pss": mib(None, None, 140, 90)}, NearPeak(140 * MIB, 290 * MIB, 0.5, is_at_peak=True)),
        ({"pss": mib(80, None, None, 90)}, NearPeak(80 * MIB, 100 * MIB, 0.5, is_at_peak=False)),
        (
            {"pss": mib(None, None, 140, None), "pss_age": [None, None, 0.25, None]},
            NearPeak(140 * MIB, 300 * MIB, 0.25, is_at_peak=True),
        ),
        ({"pss": mib(None, None, None, None)}, None),
        ({}, None),
    ],
    ids=["at the peak", "near it", "away", "by age", "unknown", "not recorded"],
)
def test_near_peak(columns: dict[str, Any], expected: NearPeak | None) -> None:
    """The nearest count of PSS is that whose moment, not its sample, is nearest; near in RSS comes first."""
    assert pss_near_peak(session({"rss": RSS, **columns})) == expected
