"""The options and runs of a search under memory limits, and which limit to try next.

The search finds the smallest limit with which a command works, and the smallest with which it is fast. More memory
never hurts: what works with a limit works with any larger one.
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
"""1: first version (2026-11)."""
WORKED = "worked"
"""How a run ended that did what it should."""
OUT_OF_MEMORY = "out of memory"
"""How the end of a run begins of which the kernel killed a process."""


@dataclass(frozen=True, kw_only=True)
class FitOptions(options.SeriesRequest):
    """What to search, and how exactly."""

    runs: Annotated[int, option("--runs N", RUN, "The most runs, with the one without a limit.", min=2)] = 10
    success: Annotated[
        str | None, option("--success COMMAND", RUN, "Shell command after each run; it fails if the run failed.")
    ] = None
    before: Annotated[str | None, option("--before COMMAND", RUN, "Shell command before each run, to clean up.")] = None
    free_only: Annotated[bool, option("--free-only", RUN, "Only run without a limit: no control group.")] = False
    interval: options.Interval = 0.1
    shell: options.Shell = False

    @property
    def recorded(self) -> options.Request:
        """How each run is recorded."""
        return options.Request(
            words=self.words, shell=self.shell, types=["rss"], interval=self.interval, no_auto=True, stacks=False
        )


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One run; bytes and seconds, null for unknown."""

    limit: int
    worked: bool
    ended: str
    """How it ended, in words: ``worked``, ``out of memory``, ``exit status 1``, ``given up after 12 s``."""
    gave_up: bool = False
    """Whether it was ended because it took too long, while the kernel had killed none of its processes."""
    duration_s: float
    slower: float
    """Its duration as a multiple of the free run's."""
    refaults: int | None = None
    """The size of what was dropped from memory and read again."""
    stall_s: float | None = None
    """For how long a task waited for memory (PSI)."""
    session: str = ""
    """The file of its recording."""


class Free(msgspec.Struct, frozen=True, kw_only=True):
    """The run without a limit; bytes and seconds."""

    duration_s: float
    floor: int
    comfortable: int
    peak_rss: int
    charged: int | None = None
    """The most that was charged to its group, page cache included: a limit of this size changes nothing."""
    session: str = ""
    files: list[str] = []
    """The files that it read or mapped."""


class Fit(msgspec.Struct, kw_only=True):
    """A search, as far as it went: the file ``fit.json``."""

    format: str = FORMAT
    version: int = VERSION
    command: list[str]
    success: str | None = None
    """The shell command that had to exit with 0 after each run."""
    free: Free | None = None
    free_runs: int = 0
    """How many runs had no limit: 2 if the first one found its files in the page cache."""
    trials: list[Trial] = []
    is_finished: bool = False
    works_from: int | None = None
    """The smallest limit with which the command worked."""
    fast_from: int | None = None
    """The smallest limit with which it took about as long as without one."""

    @property
    def unlimited(self) -> Free:
        """The run without a limit, which is the first."""
        assert self.free is not None
        return self.free

    @property
    def runs(self) -> int:
        """The number of runs that have ended."""
        return self.free_runs + len(self.trials)

    @property
    def is_smallest(self) -> bool:
        """Whether the command failed with a limit that is hardly below the smallest with which it worked."""
        works = self.works_from or 0
        return works - self._largest_failed() <= _step(works)

    @property
    def fast(self) -> list[Trial]:
        """The runs from the limit of full speed on, if at least two show full speed, and none does not."""
        runs = [trial for trial in self.trials if trial.limit >= (self.fast_from or math.inf)]
        are_fast = len(runs) > 1 and all(trial.worked and trial.slower <= _SLOWER for trial in runs)
        return runs if are_fast else []

    def next_limit(self) -> int | None:
        """Return the limit to try next, by all runs so far; None when both limits are found, or cannot be found."""
        worked = [trial.limit for trial in self.trials if trial.worked]
        fast = [trial.limit for trial in self.trials if self.is_fast(trial)]
        self.works_from = min(worked, default=None)
        self.fast_from = min(fast, default=None)
        limit = self._next_working(worked) or self._next_fast(fast)
        self.is_finished = limit is None
        return None if limit is None else max(_MIB, round(limit))

    def is_fast(self, trial: Trial) -> bool:
        """Return whether a trial took about as long as the free run.

        A run that read nothing twice did not lack memory: up to 2.5 times the duration, slow storage explains it.
        """
        has_refaults = trial.refaults is None or trial.refaults > max(self.unlimited.comfortable * _FEW, _LEAST_STEP)
        factor = _SLOWER if has_refaults else _SLOW_STORAGE
        free_s = self.unlimited.duration_s
        return trial.worked and trial.duration_s <= max(free_s * factor, free_s + _NOISE_S)

    def _largest_failed(self) -> int:
        """Return the largest limit that failed below all limits with which the command worked; 0 if none did."""
        works = self.works_from or math.inf
        return max((trial.limit for trial in self.trials if not trial.worked and trial.limit < works), default=0)

    def _next_working(self, worked: Sequence[int]) -> float | None:
        free = self.unlimited
        failed = self._largest_failed()
        if worked:
            return _between(failed, worked, _step(min(worked)))
        limits = [free.comfortable * by for by in _ABOVE_COMFORTABLE]
        if not any(trial.gave_up and trial.limit == failed for trial in self.trials):
            limits += [free.floor * by for by in _ABOVE_FLOOR]
        elif len(self.trials) < _TRIES_WITH_FILES:
            limits.append(failed * (2 if free.comfortable > free.floor * _MANY_FILES else _SLIGHTLY_MORE))
        return _first_from(failed + max(failed * _TOLERANCE / 2, _LEAST_STEP) if failed else 0, limits)

    def _next_fast(self, good: Sequence[int]) -> float | None:
        comfortable = self.unlimited.comfortable
        fast = min(good, default=math.inf)
        slow = max((trial.limit for trial in self.trials if trial.limit < fast), default=0)
        if not good:
            most = max(self.unlimited.charged or 0, comfortable * _ABOVE_COMFORTABLE[-1])
            return _first_from(slow * (1 + _NEAR), [self.unlimited.peak_rss, comfortable, most])
        is_steep = comfortable / 2 < fast <= comfortable
        near = comfortable * _NEAR if is_steep else max(fast, comfortable) * _NEAR_ON_SLOPE
        return _between(slow, good, near) if slow else None


_MIB = 1 << 20
_TOLERANCE = 0.03
"""How exactly the smallest limit is found."""
_SLOWER = 1.1
"""At full speed, a run takes up to this multiple of the free run's time."""
_LEAST_STEP = 4 * _MIB
"""Two runs of the same Python program differ by almost as much."""
_ABOVE_FLOOR = (1.005, 1.034, 1.064, 1.125, 1.3, 2.0, 4.0)
"""Multiples of the floor that are tried until the command works."""
_ABOVE_COMFORTABLE = (1.0, 1.15, 1.5)
_SLIGHTLY_MORE = 1.125
"""The same, of a limit with which the command only took too long."""
_MANY_FILES, _TRIES_WITH_FILES = 4, 3
"""If the comfortable amount is more than 4 floors, that limit is doubled instead; both end with the third run."""
_FAR = 5
"""From a limit so many times the one that is too small, the limit falls faster."""
_MOST_DOWN = 5
"""If the command works with so many limits, and fails with none, its floor is far too high: the search ends."""
_NEAR, _NEAR_ON_SLOPE = 0.05, 0.1
"""The shares of the comfortable amount within which the limit of full speed is found: below half of that amount, time
rises slowly, and above it, the limit depends on what the run writes."""
_JUST_BELOW = 0.9
"""The share of the tolerance by which a smaller limit is tried: if that one fails, the limit is found."""
_FEW, _SLOW_STORAGE = 0.02, 2.5
_NOISE_S = 0.1
"""Durations that differ by less are equal."""


def _first_from(least: float, limits: Sequence[float]) -> float | None:
    return min((limit for limit in limits if limit >= least), default=None)


def _step(limit: float) -> float:
    """Return within how many bytes a limit is found."""
    return max(limit * _TOLERANCE, _LEAST_STEP)


def _between(bad: float, good: Sequence[int], near: float) -> float | None:
    """Return a limit above the bad one and below the good ones; None if they are near.

    The first step down is within the tolerance, and each further one twice as long: files that are read repeatedly fit
    or do not fit, so the limit is often just below the first guess.
    """
    least, *others = sorted(good)
    if least - bad <= near or (not bad and len(others) >= _MOST_DOWN):
        return None
    if bad and others and least > bad * _FAR:
        return math.sqrt(bad * least)
    step = max([near * _JUST_BELOW, *(2 * (other - least) for other in others[:1])])
    return max(least - step, (bad + least) / 2)
