"""Measures one test after another in this process: one recording, and the kernel's mark that begins anew with each."""

from __future__ import annotations

import os
import time
import warnings
from typing import TYPE_CHECKING

from nncftools.errors import NncfToolsError
from nncftools.marks.line import VARIABLE
from nncftools.testing import kernel
from nncftools.testing.peaks import Course, Peak, peak_of
from nncftools.testing.tap import Tap

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterable

    from nncftools.testing.kernel import Memory
    from nncftools.testing.tap import Row

_ANSWER_WITHIN_S = 10.0
"""A sample that is asked for comes within 3 ms; a busy machine takes longer, and without it the figure is too low."""


class Meter:
    """Is started once, measures tests, and is dropped or saved, all in the process that it was made in."""

    def __init__(self, interval_s: float, *, is_kept: bool) -> None:
        """Plan to take a sample every ``interval_s`` seconds; only a recording that ``is_kept`` can be saved.

        Raises ValueError for an interval that is not from 1 ms to a year.
        """
        self._names_tests = is_kept or VARIABLE in os.environ
        self._tap = Tap(interval_s)
        self._pid = os.getpid()
        self.is_started = False
        self._resets = False
        self._own_mark = 0
        self._begun: Course | None = None

    @property
    def is_here(self) -> bool:
        """Whether this is the process that it was made in, and not a forked copy."""
        return self._pid == os.getpid()

    def start(self) -> None:
        """Start the sampler. Raises NncfToolsError; peaks are known of this process alone then."""
        self.is_started = True
        self._resets = VARIABLE not in os.environ and kernel.reset_mark()  # a recorder around it reads the mark, too
        try:
            self._tap.start()
        except OSError as error:
            raise NncfToolsError(f"the recording could not be started: {error}") from error

    def begin(self, name: str) -> None:
        """Begin a test."""
        for _ in self._tap.rows():  # before the mark begins anew: reading takes memory
            pass
        self._note_mark(self._memory())
        was_reset = self._resets and kernel.reset_mark()
        operation = self._tap.begin(name) if self._names_tests else None
        begun = Course(before=self._memory(), was_reset=was_reset, at_ns=time.monotonic_ns(), operation=operation)
        self._begun = begun
        if begun.before.has_children:  # what is held at the begin is known by a sample only
            self._take(begun, self._tap.rows_to_now(_ANSWER_WITHIN_S))
        begun.held = self._tap.latest if self._tap.lives else None

    def peak(self) -> Peak:
        """Return the peak since the test began."""
        return self._peak(self._memory())

    def end(self, error: str | None) -> Peak:
        """End the test, which the exception named ``error`` made fail, and return its peak."""
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
        self._take(begun, self._tap.rows_to_now(_ANSWER_WITHIN_S) if asks else self._tap.rows())
        return peak_of(begun, after, is_sampled=self._tap.lives)

    @staticmethod
    def _take(begun: Course, rows: Iterable[Row]) -> None:
        for row in rows:
            if row.at_ns >= begun.at_ns and (begun.largest is None or row.rss > begun.largest.rss):
                begun.largest = row

    def largest_process(self) -> tuple[str, int] | None:
        """Return command and RSS of the process that was the largest at the test's largest sample."""
        largest = None if self._begun is None else self._begun.largest
        return None if largest is None else self._tap.largest_process(largest)

    def drop(self) -> None:
        """End the recording."""
        self._tap.drop()

    def save(self, path: pathlib.Path) -> list[str]:
        """End the recording and write it; return what went wrong with it. Raises OSError."""
        self._note_mark(self._memory())
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            self._tap.stop()
        session = self._tap.session
        if session is not None:
            from nncftools.session.peaks import peaks

            if self._resets:  # the sampler, which looks once a second, has not seen every mark before it was reset
                for process in session.processes[:1]:
                    process.high_water_mark = max(process.high_water_mark or 0, self._own_mark) or None
                session.peaks = peaks(session.samples, session.processes, session.sampler.peak_rss)
            session.save(path)
        return [str(warning.message) for warning in told]

    def _memory(self) -> Memory:
        return kernel.memory(besides=self._tap.sampler_pid)

    def _note_mark(self, memory: Memory) -> None:
        self._own_mark = max(self._own_mark, memory.mark or 0)
