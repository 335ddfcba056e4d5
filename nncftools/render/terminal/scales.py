"""Round numbers for axes, and times as text."""

from __future__ import annotations

import math
from typing import NamedTuple

_STEPS = (1, 2, 2.5, 5, 10)
_FEWEST = 3
_TIME_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


class Axis(NamedTuple):
    """An axis from 0 to ``top``, with a tick every ``rows`` rows, which is ``step`` more."""

    top: float
    step: float
    rows: int


def axis(largest: float, rows: int, least: int) -> Axis:
    """Return an axis of ``rows`` rows for values up to ``largest``, with a round step every ``least`` rows or more.

    A larger step is taken when less of the height is left then, as long as there are three ticks or more.
    """
    if largest <= 0:
        return Axis(1.0, 1.0, rows)
    power = 10.0 ** math.floor(math.log10(largest * least / rows))
    steps = [factor * ten * power for ten in (1, 10) for factor in _STEPS]
    possible = [(step, math.floor(step * rows / largest + 1e-9)) for step in steps]
    first, *others = [(step, min(between, rows)) for step, between in possible if between >= least]
    fitting = [first, *(one for one in others if one[1] <= rows // _FEWEST)]
    step, between = min(fitting, key=lambda one: one[0] / one[1])
    return Axis(step * rows / between, step, between)


def rounded_up(value: float) -> float:
    """Return a round number of at least ``value``: 12, 25, 300."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if step * power >= value * 0.999999)


def ticks(end: float, most: int) -> list[float]:
    """Return about ``most`` round numbers from 0 to ``end``."""
    rough = max(end, 1e-9) / max(most, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(step * power for step in _STEPS if step * power >= rough * 0.999999)
    return [number * step for number in range(int(end / step + 1e-6) + 1)]


def time_ticks(begin_s: float, end_s: float, most: int) -> list[float]:
    """Return about ``most`` round moments from ``begin_s`` to ``end_s``."""
    span = end_s - begin_s
    step: float = next((step for step in _TIME_STEPS if span / step <= max(most, 1)), _TIME_STEPS[-1])
    if span / step > max(most, 1):
        step *= math.ceil(span / step / max(most, 1))
    if span < 2:  # noqa: PLR2004 — below two seconds, whole ones are too few
        step = ticks(span, most)[1] if len(ticks(span, most)) > 1 else span
    first = math.ceil(begin_s / step - 1e-9)
    return [number * step for number in range(first, int(end_s / step + 1e-9) + 1)]


def clock(seconds: float) -> str:
    """Return a time as ``0.5 s``, ``0:07``, ``12:30`` or ``1:02:03``."""
    if seconds != int(seconds):
        return f"{seconds:g} s"
    minutes, left = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{left:02d}" if hours else f"{minutes}:{left:02d}"
