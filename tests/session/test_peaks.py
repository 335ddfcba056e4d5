from __future__ import annotations

import pytest

from nncftools.session.model import Peak
from nncftools.session.peaks import peaks
from tests.made_up import process, samples


@pytest.mark.parametrize(
    ("rss", "mark", "expected"),
    [
        pytest.param([1, 5, 3], None, Peak(sampled=5, at_s=1, low=5, low_from="sampled"), id="no mark"),
        pytest.param([1, 5, 3], 4, Peak(sampled=5, at_s=1, low=5, low_from="sampled"), id="mark below"),
        pytest.param([1, 5, 3], 5, Peak(sampled=5, at_s=1, low=5, low_from="sampled"), id="mark equal"),
        pytest.param([1, 5, 3], 9, Peak(sampled=5, at_s=1, low=9, low_from="high_water_mark"), id="mark above"),
        pytest.param([5, 1, 5], None, Peak(sampled=5, at_s=0, low=5, low_from="sampled"), id="twice"),
        pytest.param([None, 2, 3], None, Peak(sampled=3, at_s=2, low=3, low_from="sampled"), id="unknown in between"),
        pytest.param([], 9, Peak(sampled=None, at_s=None, low=9, low_from="high_water_mark"), id="only a mark"),
        pytest.param([None], None, Peak(sampled=None, at_s=None, low=None), id="nothing known"),
        pytest.param([], None, Peak(sampled=None, at_s=None, low=None), id="no sample"),
        pytest.param([0, 0], None, Peak(sampled=0, at_s=0, low=0, low_from="sampled"), id="zero is a figure"),
    ],
)
def test_rss(rss: list[float | None], mark: int | None, expected: Peak) -> None:
    """The peak is the largest sample at its first moment, raised to the kernel's high-water mark."""
    of = samples(range(len(rss)), rss=rss)

    assert peaks(of, [process(high_water_mark=mark)]) == {"rss": expected}


def test_mark_is_the_largest_of_one_process() -> None:
    """High-water marks of processes that may have followed each other are not added."""
    of = samples([0], rss=[1])

    assert peaks(of, [process(0, high_water_mark=3), process(1, high_water_mark=4)])["rss"].low == 4


def test_mark_says_nothing_of_other_metrics() -> None:
    """A process's high-water mark is of RSS, not of the system's memory."""
    of = samples([0], rss=[1], system=[2])

    assert peaks(of, [process(high_water_mark=9)])["system"] == Peak(sampled=2, at_s=0, low=2, low_from="sampled")


def test_only_memory_has_peaks() -> None:
    """Counters and metrics that this version does not know have none."""
    assert list(peaks(samples([0], cpu_user=[1], made_up=[1], rss=[1]), [])) == ["rss"]
