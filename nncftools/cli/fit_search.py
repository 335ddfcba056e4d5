"""The options and the state of a search for memory limits, and the rules for the next limit to try.

The search finds the smallest limit with which a command works, and the smallest limit with full speed. The rules assume
that more memory never hurts: a command that works with a limit also works with every larger limit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec

from nncftools.cli import options
from nncftools.cli.parameters import RUN, option

FORMAT = "nncf-tools-fit"
VERSION = 1
"""Version of the format of ``fit.json``. 1: first version (2026-11)."""
WORKED = "worked"
"""The value of ``Trial.ended`` after success."""
OUT_OF_MEMORY = "out of memory"
"""The beginning of ``Trial.ended`` if the kernel killed a process."""


@dataclass(frozen=True, kw_only=True)
class FitOptions(options.SeriesRequest):
    """The options of `fit`."""

    runs: Annotated[int, option("--runs N", RUN, "Largest number of runs, including runs without a limit.", min=2)] = 10
    success: Annotated[
        str | None,
        option("--success COMMAND", RUN, "Shell command after each run; the run worked only if this command succeeds."),
    ] = None
    before: Annotated[str | None, option("--before COMMAND", RUN, "The former name of --prepare.", hidden=True)] = None
    free_only: Annotated[
        bool, option("--free-only", RUN, "Make only the run without a limit; needs no control group.")
    ] = False
    interval: options.Interval = 0.1
    shell: options.Shell = False

    @property
    def recorded(self) -> options.Request:
        """The options for the recording of each run."""
        return options.Request(
            words=self.words,
            shell=self.shell,
            types=["rss"],
            interval=self.interval,
            no_auto=True,
            stacks=False,
        )


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """A run with a limit. Sizes are bytes and times are seconds; null is unknown."""

    limit: int
    worked: bool
    ended: str
    """The outcome in words: ``worked``, ``out of memory``, ``exit status 1``, ``given up after 12 s``."""
    gave_up: bool = False
    """Whether the search ended the run because the run took too long.

    False if the kernel had killed a process.
    """
    duration_s: float
    slower: float
    """The duration as a multiple of the duration without a limit."""
    refaults: int | None = None
    """Bytes that the kernel dropped from memory and read again."""
    stall_s: float | None = None
    """Time during which at least one thread waited for memory (PSI)."""
    session: str = ""
    """File name of the recording; empty if there is no recording."""


class Free(msgspec.Struct, frozen=True, kw_only=True):
    """The run without a limit. Sizes are bytes and times are seconds; null is unknown."""

    duration_s: float
    floor: int
    """Memory that the kernel can neither drop nor share. With less, the command does not work."""
    comfortable: int
    """The floor plus all mapped and read files. With this memory, no file has to be read twice."""
    is_short: bool = False
    """Whether memory was short during the run, so that ``comfortable`` is too small."""
    peak_rss: int
    charged: int | None = None
    """Largest memory use of the control group, page cache included. A limit of this size has no effect. Null if
    unknown.
    """
    session: str = ""
    files: list[str] = []
    """The files that the run read or mapped."""


class Fit(msgspec.Struct, kw_only=True):
    """The state of a search, as saved in ``fit.json``."""

    format: str = FORMAT
    version: int = VERSION
    command: list[str]
    success: str | None = None
    """The shell command of ``--success``. A run worked only if this command succeeds after the run."""
    free: Free | None = None
    free_runs: int = 0
    """Number of runs without a limit so far: 0, 1 or 2. If the first run read most files from the page cache, there is
    a second run, without the files in the page cache.
    """
    trials: list[Trial] = []
    is_finished: bool = False
    works_from: int | None = None
    """The smallest limit with which the command worked; null if none is known."""
    fast_from: int | None = None
    """The smallest limit with about the same duration as without a limit; null if none is known."""

    @property
    def unlimited(self) -> Free:
        """The result of the run without a limit; the run must have ended."""
        assert self.free is not None
        return self.free

    @property
    def runs(self) -> int:
        """Number of runs that have ended."""
        return self.free_runs + len(self.trials)

    @property
    def is_smallest(self) -> bool:
        """Whether ``works_from`` is the smallest limit that works.

        True if the command failed with a limit that is at most 3 % smaller, or at most 4 MiB smaller.
        """
        works = self.works_from or 0
        return works - self._largest_failed() <= _step(works)

    @property
    def fast(self) -> list[Trial]:
        """The runs whose limit is ``fast_from`` or larger.

        Empty if there is only one such run, or if one of the runs failed or was too slow.
        """
        runs = [trial for trial in self.trials if trial.limit >= (self.fast_from or math.inf)]
        are_fast = len(runs) > 1 and all(trial.worked and trial.slower <= _SLOWER for trial in runs)
        return runs if are_fast else []

    def next_limit(self) -> int | None:
        """Update ``works_from`` and ``fast_from``; return the next limit to try, None at the end of the search."""
        worked = [trial.limit for trial in self.trials if trial.worked]
        fast = [trial.limit for trial in self.trials if self.is_fast(trial)]
        self.works_from = min(worked, default=None)
        self.fast_from = min(fast, default=None)
        limit = self._next_working(worked) or self._next_fast(fast)
        self.is_finished = limit is None
        return None if limit is None else max(_MIB, round(limit))

    def is_fast(self, trial: Trial) -> bool:
        """Return whether a run took about as long as the run without a limit.

        A run without refaults (file pages that were dropped and read again) had enough memory. For such a run, 2.5
        times the duration is accepted, because slow storage may have delayed the run.
        """
        few = max(self.unlimited.comfortable * _FEW, _LEAST_STEP)
        has_refaults = trial.refaults is None or trial.refaults > few
        factor = _SLOWER if has_refaults else _SLOW_STORAGE
        free_s = self.unlimited.duration_s
        return trial.worked and trial.duration_s <= max(free_s * factor, free_s + _NOISE_S)

    def _largest_failed(self) -> int:
        """Return the largest limit below ``works_from`` with which the command failed; 0 if there is none."""
        works = self.works_from or math.inf
        failed = [trial.limit for trial in self.trials if not trial.worked]
        return max((limit for limit in failed if limit < works), default=0)

    def _next_working(self, worked: Sequence[int]) -> float | None:
        free = self.unlimited
        failed = self._largest_failed()
        if worked:
            return _choose_between(failed, worked, _step(min(worked)))
        limits = [free.comfortable * factor for factor in _ABOVE_COMFORTABLE]
        if not any(trial.gave_up and trial.limit == failed for trial in self.trials):
            limits += [free.floor * factor for factor in _ABOVE_FLOOR]
        elif len(self.trials) < _TRIES_WITH_FILES:
            limits.append(failed * (2 if free.comfortable > free.floor * _MANY_FILES else _SLIGHTLY_MORE))
        least = failed + max(failed * _TOLERANCE / 2, _LEAST_STEP) if failed else 0
        return _choose_from(least, limits)

    def _next_fast(self, good: Sequence[int]) -> float | None:
        comfortable = self.unlimited.comfortable
        fast = min(good, default=math.inf)
        limits = [trial.limit for trial in self.trials]
        slow = max((limit for limit in limits if limit < fast), default=0)
        if not good:
            largest = max(self.unlimited.charged or 0, comfortable * _ABOVE_COMFORTABLE[-1])
            return _choose_from(slow * (1 + _NEAR), [self.unlimited.peak_rss, comfortable, largest])
        is_steep = comfortable / 2 < fast <= comfortable
        near = comfortable * _NEAR if is_steep else max(fast, comfortable) * _NEAR_ON_SLOPE
        return _choose_between(slow, good, near) if slow else None


_MIB = 1 << 20
_TOLERANCE = 0.03
"""Tolerance of ``works_from`` (the smallest limit with which the command works), as a share of this limit. The search
ends if the command failed with a limit that is smaller by 3 % or less.
"""
_SLOWER = 1.1
"""A run has full speed if its duration is at most this multiple of the duration without a limit."""
_LEAST_STEP = 4 * _MIB
"""Smallest tolerance of a limit, in bytes: the search does not look for limits closer together. The memory that a
Python program needs differs by almost this much from run to run.
"""
_ABOVE_FLOOR = (1.005, 1.034, 1.064, 1.125, 1.3, 2.0, 4.0)
"""Limits to try one after another until the command works, as multiples of the floor (memory that the kernel can
neither drop nor share).
"""
_ABOVE_COMFORTABLE = (1.0, 1.15, 1.5)
_SLIGHTLY_MORE = 1.125
"""Factor for the next limit after a run that took too long, but did not run out of memory, if the command reads few
files.
"""
_MANY_FILES = 4
"""If ``Free.comfortable`` (memory with which no file is read twice) is above this multiple of ``Free.floor`` (memory
that the kernel can neither drop nor share), the command reads many files.

In that case, the limit is doubled after a run that took too long, but did not run out of memory.
"""
_TRIES_WITH_FILES = 3
"""If the command took too long, and this number of limits was tried, the next limit is at least ``Free.comfortable``
(memory with which no file is read twice).
"""
_FAR = 5
"""The next limit is the geometric mean of the smallest good limit and the largest bad limit, if the good limit is more
than this multiple of the bad limit.
"""
_MOST_DOWN = 5
"""If more limits than this worked and none failed, the search ends. In that case, the measured floor is far too high.
"""
_NEAR = 0.05
"""Tolerance of ``fast_from`` (the smallest limit with full speed), if this limit is between 50 % and 100 % of
``Free.comfortable`` (memory with which no file is read twice). The tolerance is this share of ``Free.comfortable``.
"""
_NEAR_ON_SLOPE = 0.1
"""Tolerance of ``fast_from`` (the smallest limit with full speed), if ``fast_from`` is below 50 % or above 100 % of
``Free.comfortable`` (memory with which no file is read twice).

The tolerance is this share of ``fast_from`` or of ``Free.comfortable``, whichever is larger. Less precision than with
``_NEAR`` is enough. Below 50 %, a slightly smaller limit makes the run only slightly slower. Above 100 %, the written
bytes also need memory, so ``fast_from`` is less certain.
"""
_JUST_BELOW = 0.9
"""After the first limit that works, the next limit is smaller by this share of the tolerance. If the command fails with
the smaller limit, the search ends.
"""
_FEW = 0.02
"""Refaults (bytes that were dropped from memory and read again) are ignored below this share of ``Free.comfortable``
(memory with which no file is read twice).
"""
_SLOW_STORAGE = 2.5
_NOISE_S = 0.1
"""Two durations count as equal if their difference in seconds is smaller."""


def _choose_from(least: float, limits: Sequence[float]) -> float | None:
    return min((limit for limit in limits if limit >= least), default=None)


def _step(limit: float) -> float:
    """Return the tolerance of the limit in bytes.

    The search ends if the command failed with a limit that is smaller by the tolerance or less.
    """
    return max(limit * _TOLERANCE, _LEAST_STEP)


def _choose_between(bad: float, good: Sequence[int], near: float) -> float | None:
    """Return a limit between ``bad`` (0 if no limit failed) and the smallest good limit; None if the search can end.

    The search can end if the smallest good limit is at most ``near`` bytes above ``bad``. The first step down is a
    little shorter than ``near``, and each further step is twice as long. Reason: files that are read repeatedly either
    fit into memory or do not fit, so the limit is often just below the first guess.
    """
    smallest, *others = sorted(good)
    if smallest - bad <= near or (not bad and len(others) >= _MOST_DOWN):
        return None
    if bad and others and smallest > bad * _FAR:
        return math.sqrt(bad * smallest)
    step = near * _JUST_BELOW
    if others:
        step = max(step, 2 * (others[0] - smallest))
    return max(smallest - step, (bad + smallest) / 2)
