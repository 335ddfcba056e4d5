from __future__ import annotations

from array import array
from math import nan

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from nncftools.analysis.summary import rates


def test_samples_closer_than_a_window_share_one() -> None:
    """A window begins at a sample and ends at the first one that is far enough from it."""
    moments, rate = rates([0, 0.1, 0.2, 0.3, 0.4], [0, 0, 0.1, 0.3, 0.4], 0.2)

    assert moments.tolist() == [0, 0.2, 0.4]
    assert_allclose(rate, [0.5, 1.5])


def test_gap() -> None:
    """Where samples are missing, the rate is unknown."""
    moments, rate = rates([0, 1, 2, 6, 7], [0, 1, 2, 6, 8], 0.2, 1.0)

    assert moments.tolist() == [0, 1, 2, 6, 7]
    assert_array_equal(rate, [1, 1, nan, 2])


@pytest.mark.parametrize("seed", range(3))
def test_rates_add_up_to_the_total(seed: int) -> None:
    """The rates times their windows are what the counter rose by."""
    random = np.random.default_rng(seed)
    time = array("d", np.cumsum(random.exponential(0.1, 5_000)))
    total = array("d", np.cumsum(random.random(5_000)))
    moments, rate = rates(time, total, 0.2)

    assert np.diff(moments).min() >= 0.2
    assert float(rate @ np.diff(moments)) == pytest.approx(total[-1] - total[0])
