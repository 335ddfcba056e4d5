from __future__ import annotations

import pytest

from nncftools.live.state.machine import time_left

GIB = 2**30
TIME = [step / 4 for step in range(120)]


def rising(per_s: float, noise: float = 0.0) -> list[float]:
    """Return a level that rises so many bytes a second, with a saw-tooth on top."""
    return [GIB + per_s * at_s + noise * (place % 2) for place, at_s in enumerate(TIME)]


def test_steady_growth() -> None:
    """10 MiB a second meet the end of 1 GiB in 102 s."""
    assert time_left(zip(TIME, rising(10 << 20), strict=True), GIB) == pytest.approx(102.4, rel=0.01)


@pytest.mark.parametrize(
    "used",
    [
        rising(0),
        rising(-1e7),
        rising(1e5),
        rising(1e7, noise=4e8),
        [GIB + 1e7 * min(at_s, 14) for at_s in TIME],
        [float("nan")] * len(TIME),
    ],
    ids=["flat", "falling", "slow", "noisy", "levelled off", "unknown"],
)
def test_no_trend(used: list[float]) -> None:
    """Memory use that does not clearly rise gives no estimate of the time left."""
    assert time_left(zip(TIME, used, strict=True), GIB) is None


def test_far_away() -> None:
    """Half a minute of samples gives no estimate half an hour ahead."""
    assert time_left(zip(TIME, rising(10 << 20), strict=True), 18 * GIB) is None


def test_too_short() -> None:
    """A second of growth is no trend."""
    assert time_left(zip(TIME[:4], rising(10 << 20), strict=False), GIB) is None
