from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from nncftools.analysis.summary import decimated_with_gaps, keep_extremes


def test_gap_breaks_the_line() -> None:
    """Where samples are missing, one NaN precedes the first sample after the gap."""
    time, value = decimated_with_gaps([0, 1, 2, 6, 7], [5, 6, 7, 8, 9], 1.0)

    assert_array_equal(time, [0, 1, 2, 6, 6, 7])
    assert_array_equal(value, [5, 6, 7, np.nan, 8, 9])


@pytest.mark.parametrize("interval_s, gaps", [(1.0, 1), (2.0, 0), (None, 0), (0.0, 0)])
def test_gap_is_measured_in_intervals(interval_s: float | None, gaps: int) -> None:
    """A distance of more than 2.5 intervals is a gap; without an interval there is none."""
    _, value = decimated_with_gaps([0, 1, 4], [5, 6, 7], interval_s)

    assert np.isnan(value).sum() == gaps


@pytest.mark.parametrize("length", [101, 1_000, 12_345])
@pytest.mark.parametrize("seed", range(3))
def test_decimation_keeps_what_matters(length: int, seed: int) -> None:
    """Few points stay: the smallest and the largest and every NaN among them, in time order and unchanged."""
    random = np.random.default_rng(seed)
    value = random.random(length)
    value[random.integers(0, length, 5)] = np.nan
    few_time, few = keep_extremes(np.arange(length, dtype=np.float64), value, 100)

    assert len(few) <= 100
    assert np.nanmin(few) == np.nanmin(value)
    assert np.nanmax(few) == np.nanmax(value)
    assert set(few_time[np.isnan(few)]) <= set(np.flatnonzero(np.isnan(value)))
    assert np.isnan(few).any()
    assert np.all(np.diff(few_time) > 0)
    assert_array_equal(few, value[few_time.astype(int)])


def test_seldom_known() -> None:
    """A figure that most samples do not hold (PSS) is drawn by its known points alone, without gaps between them."""
    nothing = np.nan
    values = [nothing, 5.0, nothing, nothing, nothing, 7.0, nothing, nothing, nothing, 6.0]
    time, value = decimated_with_gaps(range(10), values, 1.0)

    assert (time.tolist(), value.tolist()) == ([1, 5, 9], [5, 7, 6])


@pytest.mark.parametrize("known, points", [(5, 5), (6, 10), (10, 10)])
def test_mostly_known(known: int, points: int) -> None:
    """A figure that is unknown now and then keeps its unknown samples: there the line is broken."""
    values = [1.0] * known + [np.nan] * (10 - known)
    _, value = decimated_with_gaps(range(10), values, 1.0)

    assert len(value) == points
