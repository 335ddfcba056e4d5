"""Measures tests one after another in this process: one recording, and a high-water mark reset for each test."""

from __future__ import annotations

import os
import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nncftools.errors import NncfToolsError
from nncftools.marks.line import VARIABLE
from nncftools.testing import kernel
from nncftools.testing.peaks import Measurement, Peak, peak_of
from nncftools.testing.tap import Tap

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterable

    from nncftools.testing.kernel import Memory
    from nncftools.testing.tap import Row

_ANSWER_WITHIN_S = 10.0
"""A requested sample comes within 3 ms, later on a busy machine; without it the figure is too low."""


@dataclass
class _Begun:
    """A running test."""

    before: Memory
    was_reset: bool
    at_ns: int
    operation: int | None
    held: Row | None = None
    largest: Row | None = None


class Meter:
    """Is started, measures tests, and is dropped or saved, all in the process that created it."""

    def __init__(self, interval_s: float, *, is_kept: bool) -> None:
        """Prepare to sample every ``interval_s`` seconds; only with ``is_kept`` can the recording be saved.

        Raises ValueError for an interval that is not from 1 ms to a year.
        """
        self._names_tests = is_kept or _is_recorded()
        self._tap = Tap(interval_s)
        self._pid = os.getpid()
        self.is_started = False
        self._resets = False
        self._own_mark = 0
        self._begun: _Begun | None = None

    @property
    def is_own_process(self) -> bool:
        """Whether this is the process that created the meter, and not a forked copy."""
        return self._pid == os.getpid()

    def start(self) -> None:
        """Start the sampler. Raises NncfToolsError; then only the peaks of this process are known."""
        self.is_started = True
        self._resets = not _is_recorded() and kernel.reset_mark()  # an outer recorder reads the mark, too
        try:
            self._tap.start()
        except OSError as error:
            raise NncfToolsError(f"the recording could not be started: {error}") from error

    def begin(self, name: str) -> None:
        """Start a test."""
        for _ in self._tap.rows():  # before the mark is reset, because reading takes memory
            pass
        self._note_mark(self._memory())
        was_reset = self._resets and kernel.reset_mark()
        operation = self._tap.begin(name) if self._names_tests else None
        self._begun = _Begun(self._memory(), was_reset, time.monotonic_ns(), operation)
        if self._begun.before.has_children:  # only a sample shows what is held at the start
            self._take(self._tap.rows_to_now(_ANSWER_WITHIN_S))
        self._begun.held = self._tap.latest if self._tap.is_alive else None

    def peak(self) -> Peak:
        """Return the peak since the test began."""
        return self._peak(self._memory())

    def end(self, error: str | None) -> Peak:
        """End the test and return its peak; ``error`` names the exception that failed it."""
        assert self._begun is not None
        after = self._memory()
        if self._begun.operation is not None:
            self._tap.end(self._begun.operation, error)
        return self._peak(after)

    def _peak(self, after: Memory) -> Peak:
        begun = self._begun
        assert begun is not None
        self._note_mark(after)
        asks = after.has_children or not begun.was_reset
        self._take(self._tap.rows_to_now(_ANSWER_WITHIN_S) if asks else self._tap.rows())
        return peak_of(
            Measurement(
                before=begun.before,
                after=after,
                was_reset=begun.was_reset,
                held=begun.held,
                largest=begun.largest,
                is_sampled=self._tap.is_alive,
            )
        )

    def _take(self, rows: Iterable[Row]) -> None:
        assert self._begun is not None
        for row in rows:
            if row.at_ns >= self._begun.at_ns and (self._begun.largest is None or row.rss > self._begun.largest.rss):
                self._begun.largest = row

    def largest_process(self) -> tuple[str, int] | None:
        """Return command and RSS of the largest process in the test's largest sample."""
        largest = None if self._begun is None else self._begun.largest
        return None if largest is None else self._tap.largest_process(largest)

    def drop(self) -> None:
        """End the recording."""
        self._tap.drop()

    def save(self, path: pathlib.Path) -> list[str]:
        """End the recording and write it; return its warnings. Raises OSError."""
        self._note_mark(self._memory())
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self._tap.stop()
        session = self._tap.session
        if session is not None:
            from nncftools.session.peaks import peaks

            if self._resets:  # the sampler reads marks once a second and misses some before they are reset
                for process in session.processes[:1]:
                    process.high_water_mark = max(process.high_water_mark or 0, self._own_mark) or None
                session.peaks = peaks(session.samples, session.processes, session.sampler.peak_rss)
            session.save(path)
        return [str(warning.message) for warning in caught]

    def _memory(self) -> Memory:
        return kernel.memory(excluded_child=self._tap.sampler_pid)

    def _note_mark(self, memory: Memory) -> None:
        self._own_mark = max(self._own_mark, memory.mark or 0)


def _is_recorded() -> bool:
    """Return whether an outer recording includes this process."""
    return VARIABLE in os.environ
