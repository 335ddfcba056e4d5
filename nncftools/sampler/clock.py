"""The wall clock at the start of a recording, and its accuracy."""

from __future__ import annotations

import contextlib
import time

from nncftools.sampler.loop import NANOSECONDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_TIMEX_BYTES = 256
_MAXERROR_AT = 24
"""Offset in ``struct timex`` on 64-bit Linux (linux/timex.h): modes and padding, offset and freq come before."""
_UNSYNCHRONISED = 5


def start(at_ns: int) -> dict[str, Any]:
    """Return a moment of CLOCK_MONOTONIC as a session keeps it."""
    seconds, rest = divmod(time.time_ns() - (time.monotonic_ns() - at_ns), NANOSECONDS)
    utc = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest // 1000:06d}Z"
    return {"utc": utc, "monotonic_ns": at_ns, "utc_error_s": _utc_error_s()}


def _utc_error_s() -> float | None:
    """Return the kernel's bound on the wall clock's error, None when nothing synchronises the clock (adjtimex(2))."""
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        timex = ctypes.create_string_buffer(_TIMEX_BYTES)
        state = ctypes.CDLL(None).adjtimex(timex)
        if 0 <= state < _UNSYNCHRONISED:
            return ctypes.c_long.from_buffer(timex, _MAXERROR_AT).value / 1e6
    return None
