"""Figures of memory that are known within bounds only, as short texts."""

from __future__ import annotations

from math import isinf
from typing import TYPE_CHECKING

from nncftools.units import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from nncftools.session.operation import Bounds, Figures, Operation
    from nncftools.units import MemoryUnit

NOTE = "352–391, ≥352, -90 to +40: bounds, where RSS at a mark is not known more closely"


def has_brackets(operations: Iterable[Operation]) -> bool:
    """Return whether RSS at the start or at the end of any of the operations is known within bounds only."""
    return any((of := one.of("rss")).start_bounds or of.end_bounds for one in operations)


def level_text(size: float | None, bounds: Bounds | None, unit: MemoryUnit, write: Callable[[float], str]) -> str:
    """Return a size as ``write`` gives it, or its bounds: ``352–391``, ``≥352`` when the upper one is unknown."""
    if size is None or bounds is None:
        return UNKNOWN if size is None else write(size)
    return bounds_text(bounds, unit.brief, "–")


def change_text(of: Figures, unit: MemoryUnit, write: Callable[[float], str]) -> str:
    """Return with its sign by how much memory grew, or between which bounds: ``-90 to +40``."""
    if of.delta is None or of.delta_bounds is None:
        return UNKNOWN if of.delta is None else signed(write, of.delta)
    return bounds_text(of.delta_bounds, lambda value: signed(unit.brief, value), " to ")


def bounds_text(bounds: Bounds, write: Callable[[float], str], between: str) -> str:
    """Return both bounds, or the one that is known."""
    low, high = bounds
    if isinf(low):
        return UNKNOWN if high is None else f"≤{write(high)}"
    return f"≥{write(low)}" if high is None else f"{write(low)}{between}{write(high)}"


def signed(write: Callable[[float], str], change: float) -> str:
    """Return a change with its sign."""
    return f"{'+' if change > 0 else ''}{write(change)}"


def finite(bounds: Bounds | None) -> list[int | None] | None:
    """Return bounds as whole bytes for exported documents: None for an unknown one, and for a known figure."""
    return None if bounds is None else [None if end is None or isinf(end) else round(end) for end in bounds]
