"""What runs are compared by: peaks, times, sizes and counters, by the names that gates use, and their differences.

A difference says by how much a figure changed, and whether that is more than noise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb
from statistics import median
from typing import NamedTuple

from nncftools import metrics

DURATION = "duration"
CPU_TIME = "cpu"
MODEL_SIZE = "model_size"
PEAK = "peak_"
"""Before the name of a memory metric."""


@dataclass(frozen=True)
class Figure:
    """What is compared: its name in a gate, its label, and its unit (``"B"``, ``"s"`` or ``""``)."""

    name: str
    label: str
    unit: str

    @property
    def is_peak(self) -> bool:
        """Whether it is the peak of a memory metric."""
        return self.name.startswith(PEAK)


_OF_EVERY_RUN = {
    DURATION: Figure(DURATION, "Duration", "s"),
    CPU_TIME: Figure(CPU_TIME, "CPU time", "s"),
    MODEL_SIZE: Figure(MODEL_SIZE, "Model size", "B"),
}


@lru_cache(maxsize=1024)
def figure_of(name: str) -> Figure | None:
    """Return the figure of this name; None for an unknown name."""
    if name in _OF_EVERY_RUN:
        return _OF_EVERY_RUN[name]
    if (metric := metrics.of(name.removeprefix(PEAK))) is None:
        return None
    if name.startswith(PEAK):
        return Figure(name, f"Peak {metric.label}", metric.unit) if metric.is_memory else None
    is_compared = metric.is_counter and metric.per_operation and metric.family != metrics.CPU_TIME
    return Figure(name, metric.short_label, metric.unit) if is_compared else None


def in_order(names: Iterable[str]) -> list[str]:
    """Return names of figures once each, in the order of display: peaks, duration, CPU time, counters."""
    known = dict.fromkeys(names)
    peaks = metrics.in_order(name.removeprefix(PEAK) for name in known if name.startswith(PEAK))
    counters = metrics.in_order(name for name in known if not name.startswith(PEAK) and name not in _OF_EVERY_RUN)
    return [*(PEAK + name for name in peaks), *(name for name in _OF_EVERY_RUN if name in known), *counters]


_EVERY = in_order([*map(PEAK.__add__, metrics.MEMORY), *_OF_EVERY_RUN, *metrics.METRICS])
FIGURES = [name for name in _EVERY if figure_of(name)]
"""The names of all figures except those of single devices."""


class Value(NamedTuple):
    """One figure of one run, in bytes or seconds."""

    low: float
    """The figure; for a peak, the lower end of its bracket."""
    high: float | None = None
    """The upper end of the bracket; None without a bracket, and for an unknown one."""


Values = dict[str, Value]


def recorded(figures: Iterable[Values]) -> Sequence[str]:
    """Return the names of figures that one of several runs has, in the order of display."""
    return _cached_order(tuple(dict.fromkeys(name for of in figures for name in of)))


@lru_cache(maxsize=1024)
def _cached_order(names: tuple[str, ...]) -> Sequence[str]:
    return tuple(in_order(names))


def known_figure(name: str) -> Figure:
    """Return the figure of a name that there is."""
    figure = figure_of(name)
    assert figure is not None
    return figure


SIGNIFICANT = 0.05
"""Up to this p, the difference exceeds the spread."""
_LEAST = {"B": (0.01, 1 << 20), "s": (0.05, 0.1), "": (0.05, 1.0)}
"""By unit: a change below this share of the figure, or below this amount, is noise, however often it was measured."""


class Side(NamedTuple):
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

        It is large enough to matter, the brackets do not overlap, and between groups it is beyond the spread.
        """
        share, least = _LEAST[self.figure.unit]
        if abs(self.change) < max(least, share * abs(self.base.median)) or self.is_within_brackets:
            return False
        return self.is_beyond_spread is not False

    @property
    def is_beyond_spread(self) -> bool | None:
        """Whether the difference exceeds the spread; None for one run each.

        Where the groups are too small to show that, no run of one side lies between those of the other.
        """
        if self.p is None or smallest_p(len(self.base.values), len(self.new.values)) <= SIGNIFICANT:
            return self.exceeds_spread
        return max(min(self.base.values), min(self.new.values)) > min(max(self.base.values), max(self.new.values))

    @property
    def exceeds_spread(self) -> bool | None:
        """Whether the difference is larger than the spread of the runs explains; None for one run each."""
        return None if self.p is None else self.p <= SIGNIFICANT


def differences(base: Sequence[Values], new: Sequence[Values]) -> dict[str, Difference]:
    """Return the figures that both sides have, by name; a side is one run or several."""
    known = {}
    for name in recorded([*base, *new]):
        sides = [[values[name] for values in group if name in values] for group in (base, new)]
        if all(sides):
            of_base, of_new = map(_side, sides)
            is_of_runs = len(of_base.values) == len(of_new.values) == 1
            p = None if is_of_runs else p_value(of_base.values, of_new.values)
            known[name] = Difference(known_figure(name), of_base, of_new, p)
    return known


def _side(values: Sequence[Value]) -> Side:
    lows, highs = zip(*values, strict=True)
    return Side(lows, None if None in highs else median(highs))


def p_value(first: Sequence[float], second: Sequence[float]) -> float:
    """Return how likely ranks at least as uneven as these are, if both groups come from one distribution.

    This is the two-sided test of Mann and Whitney (Ann. Math. Statist. 18 (1947) 50-60), exact even with ties. It
    counts all ways to deal the observed mid-ranks to groups of these sizes, by the shift algorithm of Streitberg and
    Röhmel (Statistical Software Newsletter 12 (1986) 10-17). Neither group may be empty.
    """
    import numpy as np  # 70 ms that a comparison of two runs can do without

    _, places, counts = np.unique([*first, *second], return_inverse=True, return_counts=True)
    ranks = (2 * np.cumsum(counts) - counts + 1)[places].tolist()  # twice the mid-ranks: whole numbers
    size, total = len(first), len(ranks)
    ways = np.zeros((size + 1, sum(ranks) + 1))
    ways[0, 0] = 1
    for rank in ranks:
        ways[1:, rank:] += ways[:-1, :-rank]
    expected = size * (total + 1)
    uneven = abs(np.arange(ways.shape[1]) - expected) >= abs(sum(ranks[:size]) - expected)
    return float(ways[size, uneven].sum() / comb(total, size))


def smallest_p(first: int, second: int) -> float:
    """Return the smallest p that groups of these sizes can reach: when every value of one is above all of the other."""
    return min(1.0, 2 / comb(first + second, first))
