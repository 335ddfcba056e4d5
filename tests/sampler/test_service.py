"""Tests of the wall clock at a recording's start."""

from __future__ import annotations

import datetime as dt
import time

import pytest

from nncftools.backports import moment_of
from nncftools.journal.writing import Plan
from nncftools.sampler import process_records, service

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


def refused() -> None:
    """Refuse a subscription, as the kernel does without CAP_NET_ADMIN."""
    raise PermissionError(1, "Operation not permitted")


def accounting(source: str) -> object:
    """Return the exit accounting of a recording."""
    return service.source_of(Plan([], source=source), lambda *_: None, None)[1]


def test_without_the_privilege(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the privilege for exit accounting, a recording works without it."""
    monkeypatch.setattr(process_records, "Exits", refused)

    assert accounting("proc") is None


def test_on_another_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source for other systems asks no kernel."""
    monkeypatch.setattr(process_records, "Exits", lambda: pytest.fail("asked"))

    assert accounting("psutil") is None


def test_with_the_privilege(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the privilege, a recording uses exit accounting."""
    made = object()
    monkeypatch.setattr(process_records, "Exits", lambda: made)

    assert accounting("proc") is made
