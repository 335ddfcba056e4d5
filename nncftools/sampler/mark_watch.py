"""Wakes the sampler when an operation is marked, so that there is a sample at its start and its end."""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_IN_MODIFY = 0x2
_MANY_EVENTS = 1 << 16
_SHARE = 10
"""Samples for marks take at most one part in this many of the time."""


class MarkWatch:
    """Any write to the marks log triggers a sample (inotify(7), Linux only)."""

    def __init__(self, path: str, sample: Callable[[], None]) -> None:
        """Watch an existing file. Raises OSError; AttributeError where there is no inotify."""
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.descriptor < 0 or libc.inotify_add_watch(self.descriptor, os.fsencode(path), _IN_MODIFY) < 0:
            raise OSError(ctypes.get_errno(), "inotify")
        self._sample = sample
        self._rests_until_ns = 0
        self.is_due = False
        """Whether marks wait for the next sample."""

    def take(self) -> None:
        """Take a sample for new marks; if such samples have just taken too much time, the next sample is for them."""
        os.read(self.descriptor, _MANY_EVENTS)
        begun_ns = time.monotonic_ns()
        self.is_due = begun_ns < self._rests_until_ns
        if self.is_due:
            return
        self._sample()
        ended_ns = time.monotonic_ns()
        self._rests_until_ns = ended_ns + (ended_ns - begun_ns) * _SHARE
