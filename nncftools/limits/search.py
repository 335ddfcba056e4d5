"""Which limit to try next, to find the smallest one with which a command works, and the smallest with which it is fast.

More memory never hurts: what works with a limit works with any larger one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.limits.trial import Trial

_MIB = 1 << 20
_ABOVE_FLOOR, _ABOVE_FILES = 1.005, 1.01
_UP = (1.03, 1.1, 1.3, 2.0, 4.0)
"""Multiples of the floor to try when it does not work with less."""
_DOWN = 0.75
_NEAR_FULL = 0.05
_NOTHING_S = 0.1
"""A difference of times that says nothing."""


@dataclass(frozen=True)
class Search:
    """What is known of a free run, and how exactly to search; bytes and seconds."""

    floor: int
    comfortable: int
    free_s: float
    tolerance: float = 0.03
    slower: float = 1.1

    def next_limit(self, trials: Sequence[Trial]) -> int | None:
        """Return the limit to try next; None when both limits are found, or cannot be found."""
        limit = self._next_working(trials) or self._next_fast(trials)
        return None if limit is None else max(_MIB, round(limit))

    def works_from(self, trials: Sequence[Trial]) -> Trial | None:
        """Return the trial with the smallest limit with which the command worked."""
        return min((trial for trial in trials if trial.worked), key=lambda trial: trial.limit, default=None)

    def fast_from(self, trials: Sequence[Trial]) -> Trial | None:
        """Return the trial with the smallest limit with which it took about as long as the free run."""
        return min((trial for trial in trials if self.is_fast(trial)), key=lambda trial: trial.limit, default=None)

    def is_fast(self, trial: Trial) -> bool:
        """Return whether a trial took about as long as the free run."""
        return trial.worked and trial.duration_s <= max(self.free_s * self.slower, self.free_s + _NOTHING_S)

    def _next_working(self, trials: Sequence[Trial]) -> float | None:
        works = self.works_from(trials)
        if works is None:
            failed = max((trial.limit for trial in trials), default=None)
            if failed is None:
                return self.floor * _ABOVE_FLOOR
            return next((self.floor * by for by in _UP if self.floor * by > failed * (1 + self.tolerance / 2)), None)
        failed = max((trial.limit for trial in trials if not trial.worked and trial.limit < works.limit), default=None)
        if failed is None:
            tried = sum(trial.worked for trial in trials if trial.limit <= self.floor * _ABOVE_FLOOR)
            return works.limit * (1 - self.tolerance * 0.9 if tried <= 1 else _DOWN) if works.limit > 2 * _MIB else None
        return None if _is_close(failed, works.limit, self.tolerance) else (failed * works.limit) ** 0.5

    def _next_fast(self, trials: Sequence[Trial]) -> float | None:
        fast = self.fast_from(trials)
        slow = max(
            (trial.limit for trial in trials if not self.is_fast(trial) and (fast is None or trial.limit < fast.limit)),
            default=None,
        )
        if fast is None:
            ways = (self.comfortable * by for by in (_ABOVE_FILES, 1.15, 1.5))
            return next((limit for limit in ways if slow is None or limit > slow * 1.02), None)
        near = max(self.tolerance, _NEAR_FULL)
        if slow is None or _is_close(slow, fast.limit, near):
            return None
        below = fast.limit * (1 - near * 0.9)
        is_guess = fast.limit <= self.comfortable * _ABOVE_FILES * 1.001 and below > slow
        nobody_below = not any(below * 0.99 <= trial.limit < fast.limit for trial in trials)
        return below if is_guess and nobody_below and fast.limit > self.floor * 1.2 else (slow * fast.limit) ** 0.5


def _is_close(failed: int, works: int, tolerance: float) -> bool:
    return works - failed <= max(works * tolerance, _MIB)
