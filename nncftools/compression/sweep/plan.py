"""What a sweep would run, and how much time and memory it may take by runs before."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nncftools.compression.sweep.grid import Configuration
    from nncftools.compression.sweep.row import Row


class Expected(NamedTuple):
    """What is expected of a configuration; None is unknown."""

    seconds: float | None
    is_measured: bool
    """Whether ``seconds`` is of this configuration; else it is estimated from others."""
    peak: int | None
    """The largest memory of compression and of inference in a run before, in bytes."""


def expected(configuration: Configuration, grid: Sequence[Configuration], before: Mapping[str, Row]) -> Expected:
    """Return what to expect by the rows of runs before, by name.

    The time of a configuration that never ran is its usual effort in the unit of those that ran.
    """
    row = before.get(configuration.name)
    if row is not None and row.is_complete:
        peaks = [size for size in (row.peak, row.inference_peak) if size is not None]
        return Expected(row.wall_s, is_measured=True, peak=max(peaks, default=None))
    known = [
        (before[one.name].wall_s, one.effort) for one in grid if one.name in before and before[one.name].is_complete
    ]
    effort = sum(of for _, of in known)
    unit_s = sum(wall_s for wall_s, _ in known) / effort if effort else None
    return Expected(None if unit_s is None else unit_s * configuration.effort, is_measured=False, peak=None)


def left_s(todo: Sequence[Configuration], grid: Sequence[Configuration], before: Mapping[str, Row]) -> float | None:
    """Return the seconds that configurations may still take; None for unknown."""
    times = [expected(one, grid, before).seconds for one in todo]
    known = [time_s for time_s in times if time_s is not None]
    return sum(known) if len(known) == len(times) else None
