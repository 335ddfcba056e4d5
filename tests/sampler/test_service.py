"""Tests of the wall clock at a recording's start."""

from __future__ import annotations

import datetime as dt
import time

from nncftools.backports import moment_of
from nncftools.sampler import service

NANOSECONDS = 1_000_000_000


def test_the_same_moment_on_both_clocks() -> None:
    """A moment of CLOCK_MONOTONIC is converted to wall-clock time."""
    ten_s_ago_ns = time.monotonic_ns() - 10 * NANOSECONDS
    before = dt.datetime.now(dt.timezone.utc)
    start = service.recording_start(ten_s_ago_ns)
    after = dt.datetime.now(dt.timezone.utc)
    moment = moment_of(start["utc"])

    assert start["monotonic_ns"] == ten_s_ago_ns
    assert before - dt.timedelta(seconds=11) < moment < after - dt.timedelta(seconds=9)


def test_how_wrong_it_can_be() -> None:
    """The kernel's bound is at most 16 s, its largest, or unknown."""
    error_s = service.recording_start(0)["utc_error_s"]

    assert error_s is None or 0 <= error_s <= 16
