"""The figures of a run that services for the history of benchmarks keep, with their bounds."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from nncftools import metrics
from nncftools.analysis.comparison import matched, unique_names
from nncftools.analysis.figures import CPU_TIME, DURATION, Figure, figure_of
from nncftools.units import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nncftools.analysis.comparison import Run
    from nncftools.analysis.figures import Value, Values

SEPARATOR = " › "
_LONGEST = 1000
"""Bencher takes names of up to 1,024 characters."""
_MOST_OPERATIONS = 50
_OF_OPERATIONS = ("peak_rss", DURATION, CPU_TIME)


class Tracked(NamedTuple):
    """One figure of one benchmark in bytes, seconds or as a number, with bounds where they are known."""

    benchmark: str
    """The run, or an operation of it."""
    figure: Figure
    value: float
    """Of several runs the median."""
    lower: float | None
    upper: float | None
    runs: int


def tracked(name: str, runs: Sequence[Run]) -> Iterator[Tracked]:
    """Yield the figures of one run or a group of repeated runs, then those of its longest operations.

    The bounds of a peak are its bracket. Of several runs, all bounds are the smallest and the largest one.
    """
    yield from _figures(name, [run.figures for run in runs], None)
    functions = [dict(run.functions) for run in runs]
    everywhere = [names for names in matched(functions) if len(names) == len(runs)]
    titles = unique_names(functions[0][names[0]] for names in everywhere)
    found = []
    for title, names in zip(titles, everywhere, strict=True):
        values = [runs[place].operations[of] for place, of in names.items()]
        longest_s = max((of[DURATION].low for of in values if DURATION in of), default=0.0)
        found.append((longest_s, title, values))
    kept = {title for _, title, _ in sorted(found, key=lambda of: of[0], reverse=True)[:_MOST_OPERATIONS]}
    for _, title, values in found:
        if title in kept:
            yield from _figures(f"{name}{SEPARATOR}{title}", values, _OF_OPERATIONS)


def _figures(name: str, runs: Sequence[Values], wanted: Sequence[str] | None) -> Iterator[Tracked]:
    benchmark = shortened(printable(name), _LONGEST)
    for key in runs[0]:
        figure = figure_of(key)
        values = [of[key] for of in runs if key in of]
        if figure is None or len(values) < len(runs) or not (_is_tracked(figure) if wanted is None else key in wanted):
            continue
        yield Tracked(benchmark, figure, median(value.low for value in values), *_bounds(values), len(values))


def _bounds(values: Sequence[Value]) -> tuple[float | None, float | None]:
    lows = [value.low for value in values]
    highs = [value.high for value in values if value.high is not None]
    if len(highs) == len(values):
        return min(lows), max(highs)
    return (min(lows), max(lows)) if len(values) > 1 else (None, None)


def _is_tracked(figure: Figure) -> bool:
    """Return whether a figure is worth a history: no address space, no part of RSS, no I/O, not the machine's.

    I/O depends on what the page cache holds.
    """
    metric = metrics.of(figure.name.removeprefix("peak_"))
    if metric is None:
        return True
    is_whole = not metric.is_virtual and not metric.part_of
    return is_whole and metric.scope != metrics.MACHINE and metric.family in {None, metrics.CPU_TIME}
