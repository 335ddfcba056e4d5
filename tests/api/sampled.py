"""Wait until a recording of this process has a current sample; tested programs use it, too."""

from __future__ import annotations

import time
from typing import Protocol

from nncftools import MemoryMonitor, Session
from tests.waiting import until

_NANOSECONDS = 1_000_000_000


class _Recording(Protocol):
    @property
    def session(self) -> Session | None:
        """What was recorded up to now."""


def begin_to_read() -> None:
    """Read a recording once, so that the memory of the imports is in no figure."""
    with MemoryMonitor(interval=0.01) as monitor:
        wait_for_sample(monitor)


def wait_for_sample(*recordings: _Recording) -> None:
    """Return when each recording has a sample that started after this call."""
    now_ns = time.monotonic_ns()
    for recording in recordings:
        until(lambda of=recording: _last_ns(of) > now_ns, "a sample of what is held now")  # type: ignore[misc]


def wait_for_samples(recording: _Recording, number: int) -> None:
    """Return when a recording has this many samples."""
    until(lambda: _number(recording) >= number, f"{number} samples")


def _last_ns(recording: _Recording) -> int:
    """Return the start of the last sample on CLOCK_MONOTONIC, 0 if there is none."""
    session = recording.session
    if session is None or not len(session.samples):
        return 0
    assert session.start.monotonic_ns is not None
    return session.start.monotonic_ns + int(session.samples.time_s[-1] * _NANOSECONDS)


def _number(recording: _Recording) -> int:
    session = recording.session
    return 0 if session is None else len(session.samples)


def touch(size_mib: int) -> bytearray:
    """Return resident memory."""
    held = bytearray(size_mib * 2**20)
    held[::4096] = b"x" * len(held[::4096])
    return held
