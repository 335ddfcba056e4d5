"""The figures of runs for services that keep a history: Bencher and github-action-benchmark.

Bencher Metric Format has ``value`` and, where known, ``lower_value`` and ``upper_value``
(https://bencher.dev/docs/reference/bencher-metric-format). It has no units: all figures are in bytes and seconds.
github-action-benchmark with its tool ``customSmallerIsBetter`` reads a list of ``name``, ``unit``, ``value``, and texts
that it only shows: ``range`` and ``extra`` (https://github.com/benchmark-action/github-action-benchmark). There memory
is always in MiB: a history needs one unit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any, NamedTuple

from nncftools import metrics
from nncftools.analysis.comparison import Run, figures_of_run, longest_in_all
from nncftools.analysis.figures import CPU_TIME, DURATION, PEAK, Figure, Value, Values, known_figure
from nncftools.analysis.session import Session
from nncftools.render.view import View, as_json, command_text
from nncftools.units import MemoryUnit, printable, shortened

SEPARATOR = " › "
_LONGEST = 1000
"""Bencher takes names of up to 1,024 characters."""
_LONGEST_SLUG = 64
_MOST_OPERATIONS = 50
_OF_OPERATIONS = (f"{PEAK}rss", DURATION, CPU_TIME)
_UNIT = MemoryUnit.MiB
_DIGITS = 6


class Tracked(NamedTuple):
    """One figure of one benchmark in bytes, seconds or as a number, with bounds where they are known."""

    benchmark: str
    """The run, or an operation of it."""
    figure: Figure
    value: float
    """The median of several runs."""
    lower: float | None
    upper: float | None
    runs: int


def write_history(service: str, groups: Mapping[str, Sequence[Run]]) -> str:
    """Return runs, or groups of repeated runs, as JSON for a service; ``groups`` has them by name of benchmark."""
    figures = [figure for name, runs in groups.items() for figure in _tracked(name, runs)]
    return as_json(_SERVICES[service](figures))


def _report(service: str, session: Session, view: View) -> str:
    """Return the figures of a session; the benchmark has the name of the title, or else of the command."""
    name = view.title or command_text(session)
    return write_history(service, {name: [figures_of_run(session, name, view.depth)]})


bencher_report = partial(_report, "bencher")
benchmark_action_report = partial(_report, "benchmark-action")


def _tracked(name: str, runs: Sequence[Run]) -> Iterator[Tracked]:
    """Yield the figures of one run or a group of repeated runs, then those of its longest operations.

    The bounds of a peak are its bracket. The bounds of several runs are the smallest and the largest value.
    """
    yield from _figures(name, [run.figures for run in runs], _is_tracked)
    for title, values in longest_in_all(runs, _MOST_OPERATIONS, max):
        yield from _figures(f"{name}{SEPARATOR}{title}", values, _OF_OPERATIONS.__contains__)


def _figures(name: str, runs: Sequence[Values], is_wanted: Callable[[str], bool]) -> Iterator[Tracked]:
    benchmark = shortened(printable(name), _LONGEST)
    for key in runs[0]:
        values = [of[key] for of in runs if key in of]
        if is_wanted(key) and len(values) == len(runs):
            middle = median(value.low for value in values)
            yield Tracked(benchmark, known_figure(key), middle, *_bounds(values), len(values))


def _bounds(values: Sequence[Value]) -> tuple[float | None, float | None]:
    lows = [value.low for value in values]
    highs = [value.high for value in values if value.high is not None]
    if len(highs) == len(values):
        return min(lows), max(highs)
    return (min(lows), max(lows)) if len(values) > 1 else (None, None)


def _is_tracked(name: str) -> bool:
    """Return whether a figure is worth a history: no address space, no part of RSS, no I/O, not the machine's.

    I/O depends on the contents of the page cache.
    """
    metric = metrics.of(name.removeprefix(PEAK))
    if metric is None:
        return True
    is_whole = not metric.is_virtual and not metric.part_of
    return is_whole and metric.scope != metrics.MACHINE and metric.family in {None, metrics.CPU_TIME}


def _as_bencher(figures: Sequence[Tracked]) -> dict[str, dict[str, Any]]:
    benchmarks: dict[str, dict[str, Any]] = {}
    for figure in figures:
        values = {"value": figure.value, "lower_value": figure.lower, "upper_value": figure.upper}
        slug = re.sub(r"[\W_]", "-", figure.figure.name)[:_LONGEST_SLUG]
        measures = benchmarks.setdefault(figure.benchmark, {})
        measures[slug] = {key: value for key, value in values.items() if value is not None}
    return benchmarks


def _as_benchmark_action(figures: Sequence[Tracked]) -> list[dict[str, Any]]:
    return list(map(_entry, figures))


def _entry(of: Tracked) -> dict[str, Any]:
    is_size = of.figure.unit == "B"
    factor = _UNIT.factor if is_size else 1
    entry: dict[str, Any] = {
        "name": f"{of.benchmark}{SEPARATOR}{of.figure.label}",
        "unit": str(_UNIT) if is_size else of.figure.unit or "times",
        "value": round(of.value / factor, _DIGITS),
    }
    if of.lower is not None and of.upper is not None:
        entry["range"] = f"{of.lower / factor:.6g} to {of.upper / factor:.6g}"
    if of.runs > 1:
        entry["extra"] = f"median of {of.runs} runs; range: the smallest and the largest"
    elif "range" in entry:
        entry["extra"] = "range: the bounds of the real peak"
    return entry


_SERVICES = {"bencher": _as_bencher, "benchmark-action": _as_benchmark_action}
