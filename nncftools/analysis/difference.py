"""One figure on two sides: by how much it changed, and whether that is more than noise."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from statistics import median
from typing import TYPE_CHECKING

from nncftools.analysis.figures import known_figure, recorded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.analysis.figures import Figure, Value, Values

SIGNIFICANT = 0.05
"""Up to this p, the difference exceeds the spread."""
_LEAST = {"B": (0.01, 1 << 20), "s": (0.05, 0.1), "": (0.05, 1.0)}
"""By unit: a change below this share of the figure, or below this amount, is noise, however often it was measured."""


@dataclass(frozen=True)
class Side:
    """One figure of one run or group."""

    values: Sequence[float]
    """One for each run in which the figure is known."""
    high: float | None = None
    """The median of the upper ends of the brackets; None when one is unknown."""

    @property
    def median(self) -> float:
        """The median of the runs; of one run its value."""
        return median(self.values)


@dataclass(frozen=True)
class Difference:
    """One figure on both sides."""

    figure: Figure
    base: Side
    new: Side
    p: float | None = None
    """The probability of ranks at least as uneven by chance (exact Mann-Whitney test); None for one run each."""

    @property
    def change(self) -> float:
        """How much larger the figure of ``new`` is, by medians."""
        return self.new.median - self.base.median

    @property
    def percent(self) -> float | None:
        """The change in per cent of ``base``; None when that is zero."""
        return self.change / self.base.median * 100 if self.base.median else None

    @property
    def is_within_brackets(self) -> bool:
        """Whether the brackets overlap, so that the real peaks may be equal."""
        base, new = self.base, self.new
        if base.high is None or new.high is None or not self.change:
            return False
        return max(base.median, new.median) <= min(base.high, new.high)

    @property
    def stands_out(self) -> bool:
        """Whether the change is more than noise.

        It is large enough to matter, and not explained by the brackets. Of groups it also exceeds the spread, or where
        the groups are too small for that, no run of one side is among those of the other.
        """
        share, least = _LEAST[self.figure.unit]
        if abs(self.change) < max(least, share * abs(self.base.median)) or self.is_within_brackets:
            return False
        if self.p is None or smallest_p(len(self.base.values), len(self.new.values)) <= SIGNIFICANT:
            return self.exceeds_spread is not False
        return max(min(self.base.values), min(self.new.values)) > min(max(self.base.values), max(self.new.values))

    @property
    def exceeds_spread(self) -> bool | None:
        """Whether the difference is larger than the spread of the runs explains; None for one run each."""
        return None if self.p is None else self.p <= SIGNIFICANT


def differences(base: Sequence[Values], new: Sequence[Values]) -> dict[str, Difference]:
    """Return the figures that both sides have, by name; a side is one run or several."""
    found = {}
    for name in recorded([*base, *new]):
        sides = [[values[name] for values in group if name in values] for group in (base, new)]
        if all(sides):
            found[name] = _difference(known_figure(name), *map(_side, sides))
    return found


def _side(values: Sequence[Value]) -> Side:
    highs = [value.high for value in values if value.high is not None]
    return Side([value.low for value in values], median(highs) if len(highs) == len(values) else None)


def _difference(figure: Figure, base: Side, new: Side) -> Difference:
    is_of_runs = len(base.values) == len(new.values) == 1
    return Difference(figure, base, new, None if is_of_runs else p_value(base.values, new.values))


def p_value(one: Sequence[float], other: Sequence[float]) -> float:
    """Return how likely ranks at least as uneven as these are, if both groups come from one distribution.

    This is the two-sided test of Mann and Whitney (Ann. Math. Statist. 18 (1947) 50-60), exact even with ties. It
    counts all ways to deal the observed mid-ranks to groups of these sizes, by the shift algorithm of Streitberg and
    Röhmel (Statistical Software Newsletter 12 (1986) 10-17). Neither group may be empty.
    """
    import numpy as np  # 70 ms that a comparison of two runs can do without

    _, places, counts = np.unique([*one, *other], return_inverse=True, return_counts=True)
    ranks = (2 * np.cumsum(counts) - counts + 1)[places].tolist()  # twice the mid-ranks: whole numbers
    size, total = len(one), len(ranks)
    ways = np.zeros((size + 1, sum(ranks) + 1))
    ways[0, 0] = 1
    for rank in ranks:
        ways[1:, rank:] += ways[:-1, :-rank]
    expected = size * (total + 1)
    uneven = abs(np.arange(ways.shape[1]) - expected) >= abs(sum(ranks[:size]) - expected)
    return float(ways[size, uneven].sum() / comb(total, size))


def smallest_p(one: int, other: int) -> float:
    """Return the smallest p that groups of these sizes can reach: when every value of one is above all of the other."""
    return min(1.0, 2 / comb(one + other, one))
