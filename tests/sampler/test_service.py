"""Tests of the wall clock at a recording's start."""

from __future__ import annotations

import datetime as dt
import subprocess
import time

import pytest

from nncftools.backports import moment_of
from nncftools.journal.writing import Plan
from nncftools.sampler import service
from tests.sampler.fake_proc import Told, facts

NANOSECONDS = 1_000_000_000


def test_the_same_moment_on_both_clocks() -> None:
    """A moment of CLOCK_MONOTONIC is converted to wall-clock time."""
    ten_s_ago_ns = time.monotonic_ns() - 10 * NANOSECONDS
    before = dt.datetime.now(dt.timezone.utc)
    start = service.describe_start(ten_s_ago_ns)
    after = dt.datetime.now(dt.timezone.utc)
    moment = moment_of(start["utc"])
    error_s = start["utc_error_s"]

    assert error_s is None or 0 <= error_s <= 16  # the kernel's largest bound
    assert start["monotonic_ns"] == ten_s_ago_ns
    assert before - dt.timedelta(seconds=11) < moment < after - dt.timedelta(seconds=9)


@pytest.mark.process
def test_start_of_the_command() -> None:
    """A command that was started after the recording began is not older than it, however late it is looked at."""
    told: Told = []
    opened = service.prepare_source(Plan(["rss"]), lambda *line: told.append(line), None)
    with subprocess.Popen(["sleep", "60"]) as child:
        time.sleep(0.05)
        source = opened(child.pid)
        source.sample(0.05)
        child.kill()
    source.close(0.1)
    found = facts(told)[0]

    assert found["start_s"] >= 0
    assert (found["high_water_mark"] > 0, found["high_water_limit"]) == (True, None)
