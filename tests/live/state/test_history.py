from __future__ import annotations

import numpy as np
import pytest

from nncftools.live.run import History


def history(seconds: int, buckets: int = 64) -> History:
    """Return one hundred samples a second of a level and a counter, with one spike, taken piece by piece."""
    found = History(["rss", "cpu_user"], 0.01, buckets)
    time_s = np.arange(seconds * 100) / 100
    level = np.full(len(time_s), 5.0)
    level[len(level) // 2] = 99.0
    rows = np.stack([level, time_s * 2], axis=1)
    for begin in range(0, len(time_s), 37):
        found.add(time_s[begin : begin + 37], rows[begin : begin + 37])
    return found


@pytest.mark.parametrize("seconds", [1, 10, 1000])
def test_no_peak_is_lost(seconds: int) -> None:
    """However long the run is, the largest of all samples is among the points, and the smallest, too."""
    _, values = history(seconds).points("rss", 0, seconds, 20)

    assert (values.min(), values.max()) == (5.0, 99.0)


@pytest.mark.parametrize("seconds", [10, 1000])
def test_peak_stays_in_its_place(seconds: int) -> None:
    """A peak is drawn where it was, to the width of a bucket."""
    of = history(seconds)
    time_s, values = of.points("rss", 0, seconds, 64)

    assert time_s[values.argmax()] == pytest.approx(seconds / 2, abs=2 * of.width_s)


def test_number_of_points_is_bounded() -> None:
    """A column of the screen gets at most two points."""
    time_s, _ = history(1000, buckets=4096).points("rss", 0, 1000, 50)

    assert len(time_s) <= 100


def test_points_are_in_order() -> None:
    """Time never goes back."""
    time_s, _ = history(100).points("rss", 10, 60, 30)

    assert list(time_s) == sorted(time_s)


def test_unknown_values_are_left_out() -> None:
    """Where a figure is unknown there is no point."""
    of = History(["pss"], 1.0)
    of.add(np.array([0.0, 1.0, 2.0]), np.array([[np.nan], [7.0], [np.nan]]))
    _, values = of.points("pss", 0, 3, 10)

    assert values.tolist() == [7.0]


def test_window_shows_only_itself() -> None:
    """What was before the window is not in it."""
    _, values = history(100, buckets=4096).points("rss", 60, 100, 20)

    assert values.max() == 5.0


@pytest.mark.parametrize("seconds", [1, 10, 1000])
def test_rates(seconds: int) -> None:
    """A counter that rises steadily has the same rate everywhere, also after buckets were merged."""
    of = history(seconds)
    rates = of.rates("cpu_user", 0, of.last_s, 10)

    assert rates == pytest.approx(np.full(10, 2.0), rel=0.1)


def test_metric_that_was_not_recorded() -> None:
    """There are neither points nor rates of it."""
    of = history(1)

    assert len(of.points("swap", 0, 1, 10)[0]) == 0
    assert len(of.rates("read_bytes", 0, 1, 10)) == 0
