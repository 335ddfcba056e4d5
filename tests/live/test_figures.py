from __future__ import annotations

import os
from functools import reduce

import numpy as np
import psutil
import pytest

from nncftools.live.figures import Machine, ViewSettings, apply_key, time_until_full
from nncftools.live.run import LiveProcess
from tests.live.made_up import run

PLAIN = ViewSettings()
DEFAULT = ["rss", "swap", "device_memory@nvidia0", "anon"]


def pressed(keys: str, look: ViewSettings = PLAIN) -> ViewSettings:
    """Return the look after these keys."""
    return reduce(lambda look, key: apply_key(look, key, 8), keys, look)


def test_metrics_in_turn() -> None:
    """The key m shows the metrics of the run together, then each alone, those of the machine, too."""
    shown = [pressed("m" * times).chart(run().columns) for times in range(5)]

    assert shown == [["rss", "anon"], ["rss"], ["anon"], ["system"], ["rss", "anon"]]


@pytest.mark.parametrize(
    "asked, columns, shown",
    [
        ([], ["rss", "anon", "file", "shmem", "swap", "device_memory@nvidia0", "device_used@nvidia0"], DEFAULT),
        (["system"], ["rss", "system"], ["system"]),
    ],
    ids=["memory of devices before parts of RSS", "metric that was asked for"],
)
def test_chart(asked: list[str], columns: list[str], shown: list[str]) -> None:
    """The chart shows the most important metrics of the run, or those that were asked for."""
    assert ViewSettings(metrics=asked).chart(columns) == shown


GIB = 2**30
TIME = [step / 4 for step in range(120)]


def rising(per_s: float, noise: float = 0.0) -> list[float]:
    """Return a level that rises so many bytes a second, with a saw-tooth on top."""
    return [GIB + per_s * at_s + noise * (place % 2) for place, at_s in enumerate(TIME)]


def estimate(used: list[float], available: float, size: float | None) -> float | None:
    """Return the seconds until memory is used up."""
    return time_until_full(np.array(TIME[: len(used)]), np.array(used), available, size)


@pytest.mark.parametrize(
    "used",
    [
        rising(1e7)[:4],
        rising(0),
        rising(-1e7),
        rising(1e5),
        rising(1e7, noise=4e8),
        [GIB + 1e7 * min(at_s, 14) for at_s in TIME],
        [*rising(1e7)[:-1], GIB + 2.5e8],
        [float("nan")] * len(TIME),
    ],
    ids=["too short", "flat", "falling", "slow", "noisy", "levelled off", "just freed", "unknown"],
)
def test_no_trend(used: list[float]) -> None:
    """Memory use that does not clearly rise gives no estimate of the time left."""
    assert estimate(used, GIB, None) is None


@pytest.mark.parametrize(
    "per_s, free_gib, expected",
    [
        (10 << 20, 1, 102.4),
        (1 << 20, 1, None),
        (20 << 20, 4, 204.8),
        (20 << 20, 8, None),
        (200 << 20, 8, 41.0),
        (200 << 20, 9, None),
        (2000 << 20, 9, None),
    ],
)
def test_much_is_free(per_s: float, free_gib: int, expected: float | None) -> None:
    """While half of 10 GiB is free, only the next minute is foretold; while nine tenths are free, nothing is."""
    found = estimate(rising(per_s), free_gib * GIB, 10 * GIB)

    assert found == (expected if expected is None else pytest.approx(expected, rel=0.01))


def test_readings() -> None:
    """RSS and CPU of a process are those of the kernel; its CPU is known from the second reading on."""
    of, here = run(), Machine(is_here=True)
    of.processes = {0: LiveProcess(os.getpid()), 1: LiveProcess(2**22 - 1), 2: LiveProcess(None)}
    (first,) = here.processes(of)
    here._read(of.processes)
    (second,) = here.processes(of)

    assert Machine(is_here=False).processes(of) == []  # they may have the numbers of other processes here
    assert first.rss == pytest.approx(psutil.Process().memory_info().rss, rel=0.1)
    assert first.cpu is None
    assert second.cpu is not None
