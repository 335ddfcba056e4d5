"""Bounds on error, size, memory and time, and the smallest model within all of them. Pure functions."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from nncftools.compression.columns import FIGURES, MODEL_SIZE
from nncftools.compression.figures import measured
from nncftools.errors import UsageError
from nncftools.units import nearest, seconds_from, size_from

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nncftools.compression.columns import Figure
    from nncftools.compression.results import Comparison, Result

ERROR_NAME = "error"
_BY_NAME = {figure.name: figure for figure in (MODEL_SIZE, *FIGURES)}
_SHAPE = re.compile(r"\s*([^<>=≤≥]*[^<>=≤≥\s])\s*(<=?|≤)\s*([^<>=≤≥\s][^<>=≤≥]*)")
_FRACTION = re.compile(r"([0-9]*\.?[0-9]+)\s*(%?)", re.ASCII)
_OWN_UNIT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*Gb", re.ASCII)
"""The unit in the name of the column of sizes, which counts GiB; ``GB`` is decimal."""
_TOLERANCE = 1e-9
"""A computed 0.05 is rarely exactly 0.05."""


@dataclass(frozen=True)
class Bound:
    """The largest accepted figure of a row."""

    figure: Figure | None
    """None for the average relative error."""
    limit: float
    """A fraction, bytes or seconds."""
    is_inside: bool
    """Whether the limit itself is accepted."""
    text: str
    """The limit with its unit."""

    @property
    def name(self) -> str:
        """The word before the limit."""
        return self.figure.name if self.figure else ERROR_NAME

    def holds(self, result: Result) -> bool | None:
        """Return whether a result is accepted; None when its figure is unknown."""
        if self.figure is None:
            value = result.error
        elif (found := measured(result.row, self.figure)) is None:
            return None
        else:
            value = found.high
        if math.isclose(value, self.limit, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE / 2):
            return self.is_inside
        return value < self.limit

    def __str__(self) -> str:
        return f"{self.name} {'≤' if self.is_inside else '<'} {self.text}"


@dataclass(frozen=True)
class Bounds:
    """Bounds that must all hold, one for each figure."""

    each: Sequence[Bound]

    def __iter__(self) -> Iterator[Bound]:
        return iter(self.each)

    def hold(self, result: Result) -> bool | None:
        """Return whether a result is within all bounds; None when only figures that are unknown decide."""
        found = [bound.holds(result) for bound in self.each]
        return False if False in found else None if None in found else True

    @property
    def figures(self) -> list[Figure]:
        """The bounded figures beside the error."""
        return [bound.figure for bound in self.each if bound.figure]

    def __str__(self) -> str:
        return ", ".join(map(str, self.each))


class Choice(NamedTuple):
    """The smallest model within bounds, and what could not be judged."""

    best: Result | None
    """None when no row is within the bounds."""
    left_out: int
    """Rows within all bounds whose figure is known, and with a bounded figure that is unknown."""
    unknown: Sequence[str]
    """Which figures these rows lack."""


def bounds_of(text: str) -> Bounds:
    """Parse bounds joined by commas, like ``error<=5%, peak<=8GiB``. Raises UsageError."""
    each = [_bound(part) for part in text.split(",")]
    names = [bound.name for bound in each]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise UsageError(f"{text!r} bounds {twice!r} twice")
    return Bounds(each)


def _bound(text: str) -> Bound:
    match = _SHAPE.fullmatch(text)
    if match is None:
        raise UsageError(f"'error<=5%' or 'error<=5%, peak<=8GiB' expected, found {text.strip()!r}")
    name, value = " ".join(re.split(r"[\s_-]+", match[1].casefold())), match[3].strip()
    is_inside = match[2] != "<"
    if name == ERROR_NAME:
        limit = _fraction(text, value)
        return Bound(None, limit, is_inside, f"{limit * 100:.10g}%")
    if name not in _BY_NAME:
        raise UsageError(_unknown(match[1], name))
    figure = _BY_NAME[name]
    try:
        limit, shown = _limit(figure, value)
    except ValueError as error:
        raise UsageError(f"{text.strip()!r}: {error}") from error
    return Bound(figure, limit, is_inside, shown)


def _unknown(found: str, name: str) -> str:
    known = (ERROR_NAME, *_BY_NAME)
    near = nearest(name, known)
    what = f"did you mean {near!r}?" if near else f"one of {', '.join(known)} expected"
    return f"no bound is called {found!r}; {what}"


def _fraction(text: str, value: str) -> float:
    match = _FRACTION.fullmatch(value)
    if match is None:
        raise UsageError(f"'error<=5%' or 'error<0.05' expected, found {text.strip()!r}")
    limit = float(match[1]) / (100 if match[2] else 1)
    if limit > 1 and not match[2]:
        raise UsageError(f"{text.strip()!r} means {limit * 100:g}%; write 'error<={limit:g}%'")
    return limit


def _limit(figure: Figure, value: str) -> tuple[float, str]:
    """Return bytes or seconds, and the text of it. Raises ValueError."""
    if not figure.is_size:
        seconds = seconds_from(value)
        if not 0 < seconds < math.inf or value[-1].isdigit():
            raise ValueError(f"a time above 0 with its unit expected, such as 100ms, found {value!r}")
        return seconds, _spaced(value)
    own = _OWN_UNIT.fullmatch(value) if figure is MODEL_SIZE else None
    if own:
        return float(own[1]) * figure.factor, f"{float(own[1]):g} Gb"
    size, unit = size_from(value)
    return size, f"{unit.of(size):.10g} {unit}"


def _spaced(value: str) -> str:
    """Return a number and its unit with one space between them."""
    return re.sub(r"(?<=[0-9])\s*(?=[a-z])", " ", value.casefold())


def chosen(comparison: Comparison, bounds: Bounds) -> Choice:
    """Return the smallest model within all bounds, among equals the one with the least error."""
    within = [result for result in comparison.results if bounds.hold(result)]
    unjudged = [result for result in comparison.results if bounds.hold(result) is None]
    lacking = [bound.name for bound in bounds if any(bound.holds(result) is None for result in unjudged)]
    best = min(within, key=lambda result: (result.row.size, result.error), default=None)
    return Choice(best, len(unjudged), lacking)


def left_out_text(choice: Choice) -> str:
    """Return how many rows were left out for want of a figure: ``"2 rows left out, peak unknown"``, or nothing."""
    if not choice.left_out:
        return ""
    rows = "1 row" if choice.left_out == 1 else f"{choice.left_out:,} rows"
    return f"{rows} left out, {' or '.join(choice.unknown)} unknown"
