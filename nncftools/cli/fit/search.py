"""The runs of a search under memory limits, and which limit to try next.

The search finds the smallest limit with which a command works, and the smallest with which it is fast. More memory
never hurts: what works with a limit works with any larger one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from nncftools.units import MemoryUnit

FORMAT = "nncf-tools-fit"
VERSION = 1
"""1: first version (2026-11)."""
WORKED = "worked"
"""How a run ended that did what it should."""
OUT_OF_MEMORY = "out of memory"
"""How the end of a run begins of which the kernel killed a process."""


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
    peak_rss: int | None = None
    session: str = ""
    """The file of its recording."""
    is_warm: bool = False
    """Whether many of its files were in the page cache before: these pages are charged to another group."""


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
    tolerance: float
    slower: float
    swap: int = 0
    give_up: float = 5.0
    """The multiple of the free run's duration after which a run was ended."""
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
    def runs(self) -> int:
        """How many runs have ended."""
        return self.free_runs + len(self.trials)

    @property
    def is_smallest(self) -> bool:
        """Whether the command failed with a limit that is hardly below the smallest with which it worked."""
        works = self.works_from or 0
        failed = max((trial.limit for trial in self.trials if trial.limit < works), default=0)
        return _is_close(failed, works, self.tolerance)

    @property
    def slow(self) -> list[Trial]:
        """The runs that worked with less than full speed needs."""
        return [trial for trial in self.trials if trial.worked and trial.limit < (self.fast_from or math.inf)]

    @property
    def fast(self) -> list[Trial]:
        """The runs from the limit of full speed on, if at least two show full speed, and none does not."""
        runs = [trial for trial in self.trials if trial.limit >= (self.fast_from or math.inf)]
        are_fast = len(runs) > 1 and all(trial.worked and trial.slower <= self.slower for trial in runs)
        return runs if are_fast else []


_MIB = 1 << 20
_LEAST_STEP = 4 * _MIB
"""Two runs of the same Python program differ by almost as much."""
_ABOVE_FLOOR = (1.005, 1.034, 1.064, 1.125, 1.3, 2.0, 4.0)
"""Multiples of the floor that are tried until the command works."""
_ABOVE_SLOW = (1.125, 1.3, 1.6, 2.0)
"""The same, while the command only takes too long."""
_MANY_FILES, _UP, _TRIES_WITH_FILES = 4, 2, 3
"""If the comfortable amount is at least 4 floors, a limit that was too slow is doubled, up to the third run."""
_FAR = 5
_ABOVE_COMFORTABLE = (1.0, 1.15, 1.5)
_DOWN = (0.01, 0.03, 0.25, 0.25)
"""The shares by which the limit falls while the command works below the floor, which is right within about 1 %."""
_NEAR_FULL = 0.05
_NO_CLIFF, _NEAR_ON_SLOPE = 0.5, 0.1
"""Below half of the comfortable amount, time rises slowly: a tenth of that amount is exact enough. Above the whole
amount, a tenth of the limit is.
"""
_JUST_BELOW = 0.9
"""The share of the tolerance by which a smaller limit is tried: if that one fails, the limit is found."""
_FEW, _SLOW_STORAGE = 0.02, 2.5
_NOISE_S = 0.1
"""Durations that differ by less are equal."""


@dataclass(frozen=True)
class Search:
    """What is known of a free run, and how exactly to search; bytes and seconds."""

    floor: int
    comfortable: int
    peak: int
    free_s: float
    tolerance: float = 0.03
    slower: float = 1.1
    charged: int | None = None
    """The most that was charged to the free run's group; None for unknown."""

    def next_limit(self, trials: Sequence[Trial]) -> int | None:
        """Return the limit to try next; None when both limits are found, or cannot be found."""
        limit = self._next_working(trials) or self._next_fast(trials)
        return None if limit is None else max(_MIB, round(limit))

    def works_from(self, trials: Sequence[Trial]) -> int | None:
        """Return the smallest limit with which the command worked."""
        return min((trial.limit for trial in trials if trial.worked), default=None)

    def fast_from(self, trials: Sequence[Trial]) -> int | None:
        """Return the smallest limit with which it took about as long as in the free run."""
        return min((trial.limit for trial in trials if self.is_fast(trial)), default=None)

    def is_fast(self, trial: Trial) -> bool:
        """Return whether a trial took about as long as the free run.

        A run that read nothing twice did not lack memory: up to 2.5 times the duration, slow storage explains it.
        """
        has_refaults = trial.refaults is None or trial.refaults > max(self.comfortable * _FEW, _LEAST_STEP)
        factor = self.slower if has_refaults else max(self.slower, _SLOW_STORAGE)
        return trial.worked and trial.duration_s <= max(self.free_s * factor, self.free_s + _NOISE_S)

    def _next_working(self, trials: Sequence[Trial]) -> float | None:
        works = self.works_from(trials)
        below = (trial for trial in trials if not trial.worked and (works is None or trial.limit < works))
        failed = max(below, key=lambda trial: trial.limit, default=None)
        if works is None:
            return next(self._upwards(failed, trials), None)
        if failed is None:
            return self._next_below(works, trials)
        if _is_close(failed.limit, works, self.tolerance):
            return None
        if failed.gave_up and works > failed.limit * _FAR:
            return _down([trial.limit for trial in trials if trial.worked], failed.limit, self.tolerance)
        return _middle(failed.limit, works)

    def _upwards(self, failed: Trial | None, trials: Sequence[Trial]) -> Iterator[float]:
        """Return limits above the one that failed. After a run that was only slow, they leave room for its files."""
        limits = [self.comfortable * by for by in _ABOVE_COMFORTABLE]
        if failed is None or not failed.gave_up:
            limits += [self.floor * by for by in _ABOVE_FLOOR]
        elif self.comfortable < self.floor * _MANY_FILES:
            limits += [self.floor * by for by in _ABOVE_SLOW]
        elif len(trials) < _TRIES_WITH_FILES:
            limits.append(failed.limit * _UP)
        least = 0.0 if failed is None else failed.limit + max(failed.limit * self.tolerance / 2, _LEAST_STEP)
        return (limit for limit in sorted(limits) if limit >= least)

    def _next_below(self, works: float, trials: Sequence[Trial]) -> float | None:
        """Return a limit below all that worked, which may fail; None after enough of them."""
        tried = len([trial for trial in trials if trial.limit < self.floor * _ABOVE_FLOOR[0]])
        if works <= _LEAST_STEP or tried >= len(_DOWN):
            return None
        step = max(works * _DOWN[tried], 0 if tried > 1 else _LEAST_STEP * _JUST_BELOW)
        return max(works - step, works / 2)

    def _next_fast(self, trials: Sequence[Trial]) -> float | None:
        fast = self.fast_from(trials)
        below = (trial.limit for trial in trials if not self.is_fast(trial) and (fast is None or trial.limit < fast))
        slow = max(below, default=None)
        if fast is None:
            limits = self._enough_for_files()
            if self.floor * (1 + _NEAR_FULL) < self.peak < self.comfortable * (1 - _NEAR_FULL):
                limits[:0] = [self.peak, self.peak * (1 + _NEAR_FULL)]
            return next((limit for limit in limits if slow is None or limit > slow * 1.02), None)
        near = max(self.tolerance, _NEAR_FULL)
        if slow is None or _is_close(slow, fast, near):
            return None
        between = fast - slow
        if slow >= self.comfortable:
            return None if between <= fast * _NEAR_ON_SLOPE else _middle(slow, fast)
        if fast < self.comfortable * _NO_CLIFF and between <= self.comfortable * _NEAR_ON_SLOPE:
            return None
        good = [trial.limit for trial in trials if self.is_fast(trial)]
        is_flat = len(good) > 1 and fast > slow * _FAR
        return _middle(slow, fast) if is_flat else _down(good, slow, near)

    def _enough_for_files(self) -> list[float]:
        """Return limits that may allow full speed; the last one does, if the charged amount is known.

        The comfortable amount leaves out the page cache of files that were read once, and of written files.
        """
        if self.charged is None or self.charged < self.comfortable * _ABOVE_COMFORTABLE[1]:
            return [self.comfortable * by for by in _ABOVE_COMFORTABLE]
        return [self.comfortable, _middle(self.comfortable, self.charged), self.charged]


def _down(good: list[int], bad: float, tolerance: float) -> float:
    """Return a limit below the good ones. The first step is within the tolerance: if it is bad, the limit is found.

    Files that are read repeatedly fit or do not fit: the limit is often just below the first guess.
    """
    least, *others = sorted(good)
    step = max(least * tolerance, _LEAST_STEP) * _JUST_BELOW
    return max(least - max([step, *(2 * (other - least) for other in others[:1])]), _middle(bad, least))


def _middle(failed: float, works: float) -> float:
    return math.sqrt(failed * works) if works > failed * _FAR else (failed + works) / 2


def _is_close(failed: float, works: float, tolerance: float) -> bool:
    return works - failed <= max(works * tolerance, _LEAST_STEP)


def limit_text(size: float, unit: MemoryUnit) -> str:
    """Return a limit as it is set: in whole MiB, rounded up."""
    return f"{unit.brief(whole_mib(size) * _MIB)} {unit}"


def whole_mib(size: float) -> int:
    """Return the MiB of a limit, rounded up."""
    return math.ceil(size / _MIB)
