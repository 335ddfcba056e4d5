"""Recommends a model: the smallest whose error is within a bound."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nncftools.errors import UsageError

if TYPE_CHECKING:
    from nncftools.compression.results import Comparison, Result

_BOUND = re.compile(r"\s*error\s*(<=?|≤)\s*([0-9]*\.?[0-9]+)\s*(%?)\s*", re.IGNORECASE | re.ASCII)

_DIGITS = 9
"""Errors are compared after rounding: a computed 0.05 is rarely exactly 0.05."""


@dataclass(frozen=True)
class Bound:
    """The largest accepted average relative error, as a fraction."""

    limit: float
    is_inside: bool
    """Whether the limit itself is accepted."""

    def holds(self, error: float) -> bool:
        """Return whether an error is accepted."""
        above = round(error - self.limit, _DIGITS)
        return above < 0 or (self.is_inside and above == 0)

    def __str__(self) -> str:
        return f"error {'≤' if self.is_inside else '<'} {self.limit * 100:.10g}%"


def bound_of(text: str) -> Bound:
    """Parse a bound like ``error<=5%`` or ``error<0.05``. Raises UsageError."""
    match = _BOUND.fullmatch(text)
    if match is None:
        raise UsageError(f"'error<=5%' or 'error<0.05' expected, found {text!r}")
    limit = float(match[2]) / (100 if match[3] else 1)
    if limit > 1 and not match[3]:
        raise UsageError(f"{text!r} means {limit * 100:g}%; write 'error<={limit:g}%'")
    return Bound(limit, is_inside=match[1] != "<")


def recommended(comparison: Comparison, bound: Bound) -> Result | None:
    """Return the smallest model within the bound, among equals the one with the least error; None if there is none."""
    under = [result for result in comparison.results if bound.holds(result.error)]
    return min(under, key=lambda result: (result.row.size, result.error), default=None)
