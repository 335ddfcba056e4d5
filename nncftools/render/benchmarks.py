"""The figures of runs for tools that keep a history: Bencher, github-action-benchmark, and readers of hyperfine's JSON.

Bencher Metric Format has ``value`` and, where known, ``lower_value`` and ``upper_value``
(https://bencher.dev/docs/reference/bencher-metric-format). It has no units: all is in bytes and seconds.
github-action-benchmark with its tool ``customSmallerIsBetter`` reads a list of ``name``, ``unit``, ``value``, and texts
that it only shows: ``range`` and ``extra`` (https://github.com/benchmark-action/github-action-benchmark). There memory
is always in MiB: a history needs one unit. hyperfine's format is that of ``--export-json`` of version 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, median, stdev
from typing import Any, NamedTuple

from nncftools import metrics
from nncftools.analysis.comparison import Run, figures_of_run, longest_in_all
from nncftools.analysis.figures import CPU_TIME, DURATION, Figure, Value, Values, figure_of
from nncftools.render.view import View, as_json, command_text
from nncftools.session.session import Session
from nncftools.units import MemoryUnit, printable, shortened

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
    for title, values in longest_in_all(runs, _MOST_OPERATIONS, max):
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
    if (metric := metrics.of(figure.name.removeprefix("peak_"))) is None:
        return True
    is_whole = not metric.is_virtual and not metric.part_of
    return is_whole and metric.scope != metrics.MACHINE and metric.family in {None, metrics.CPU_TIME}


def _as_group(session: Session, view: View) -> dict[str, list[Run]]:
    name = view.title or command_text(session)
    return {name: [figures_of_run(session, name, view.depth)]}


def bencher_report(session: Session, view: View) -> str:
    """Return the figures of a session; the benchmark is called as the title, or else as the command."""
    return bencher_document(_as_group(session, view))


def bencher_document(groups: Mapping[str, Sequence[Run]]) -> str:
    """Return runs or groups of repeated runs by the names of their benchmarks, as JSON."""
    benchmarks: dict[str, dict[str, Any]] = {}
    for figure in (figure for name, runs in groups.items() for figure in tracked(name, runs)):
        values = {"value": figure.value, "lower_value": figure.lower, "upper_value": figure.upper}
        slug = "".join(character if character.isalnum() else "-" for character in figure.figure.name)[:64]
        measures = benchmarks.setdefault(figure.benchmark, {})
        measures[slug] = {key: value for key, value in values.items() if value is not None}
    return as_json(benchmarks)


_UNIT = MemoryUnit.MiB
_DIGITS = 6


def benchmark_action_report(session: Session, view: View) -> str:
    """Return the figures of a session; their names begin with the title, or else with the command."""
    return benchmark_action_document(_as_group(session, view))


def benchmark_action_document(groups: Mapping[str, Sequence[Run]]) -> str:
    """Return runs or groups of repeated runs by the names of their benchmarks, as JSON."""
    return as_json([_entry(figure) for name, runs in groups.items() for figure in tracked(name, runs)])


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


_KILLED = 128
"""Added to a signal's number, as hyperfine and shells do."""


class Timing(NamedTuple):
    """The figures of one run in hyperfine's export; seconds and bytes, None for unknown."""

    duration_s: float
    user_s: float | None
    system_s: float | None
    peak_rss: int | None
    exit_code: int | None


def report(session: Session, view: View) -> str:
    """Return the session as one command with one run; all in seconds and bytes."""
    return document([result(view.title or command_text(session), [timing(session)])])


def timing(session: Session) -> Timing:
    """Return the figures of a run; the peak of RSS is the lower bound of its bracket."""
    peak, exit_ = None if session.from_zero else session.peaks.get("rss"), session.exit
    code = None if exit_ is None else exit_.code if exit_.signal is None else _KILLED + exit_.signal
    user_s, system_s = session.totals.get("cpu_user"), session.totals.get("cpu_system")
    return Timing(session.duration_s, user_s, system_s, None if peak is None else peak.low, code)


def result(command: str, runs: Sequence[Timing]) -> dict[str, Any]:
    """Return one command with its runs, of which there is at least one."""
    times = [run.duration_s for run in runs]
    sizes = [run.peak_rss for run in runs]
    return {
        "command": command,
        "mean": fmean(times),
        "stddev": stdev(times) if len(times) > 1 else None,
        "median": median(times),
        "user": _mean([run.user_s for run in runs]),
        "system": _mean([run.system_s for run in runs]),
        "min": min(times),
        "max": max(times),
        "times": times,
        **({} if None in sizes else {"memory_usage_byte": sizes}),
        "exit_codes": [run.exit_code for run in runs],
    }


def document(results: Sequence[dict[str, Any]]) -> str:
    """Return the export of several commands as JSON."""
    return as_json({"results": results})


def _mean(values: Sequence[float | None]) -> float | None:
    return None if None in values else fmean(value for value in values if value is not None)
