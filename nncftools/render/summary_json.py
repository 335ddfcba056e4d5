"""JSON documents for programs: the summary of a run, the tree of calls that held the peak, and comparisons.

Other documents have measured values for services that keep a history of runs. ``docs/reports.md`` and
``docs/compare-and-ci.md`` describe the keys. The services are:

- Bencher Metric Format has ``value`` and, where known, ``lower_value`` and ``upper_value``
  (https://bencher.dev/docs/reference/bencher-metric-format). This format has no units: our values are in bytes and
  seconds.
- github-action-benchmark with the tool ``customSmallerIsBetter`` reads a list of ``name``, ``unit``, ``value``, and the
  texts ``range`` and ``extra`` (https://github.com/benchmark-action/github-action-benchmark). Our memory sizes are in
  MiB, because a history needs the same unit in all runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import msgspec

from nncftools import metrics
from nncftools.analysis.build_up import NOT_SEEN, PROGRAM, SEEN, SHARED, BuildUp, held_at_end, of_peak, running_text
from nncftools.analysis.code_places import SEPARATOR, brief_label, is_of_user, last_line
from nncftools.analysis.comparison import Comparison, Run, figures_of_run, longest_in_all
from nncftools.analysis.figures import (
    CPU_TIME,
    DURATION,
    PEAK,
    Difference,
    Figure,
    Side,
    Value,
    Values,
    known_figure,
    smallest_p,
)
from nncftools.analysis.frames import WITHOUT_STACK, Holder, Node, peak_holders, tree_of
from nncftools.analysis.gates import Verdict
from nncftools.analysis.operation import Operation
from nncftools.analysis.rss_levels import kinds_near
from nncftools.analysis.session import Session
from nncftools.analysis.summary import (
    cores_average,
    count_samples,
    count_short_lived,
    cpu_s,
    largest_process,
    summarize_level,
)
from nncftools.limits.judges import verdict
from nncftools.limits.needs import needs
from nncftools.metrics import is_memory
from nncftools.render.listing import estimates_by_key, figures_by_key, list_operations
from nncftools.render.sentences import hints, where_text
from nncftools.render.session_tables import significant
from nncftools.render.view import View, as_json, clip, command_text
from nncftools.session.model import Frame
from nncftools.units import MemoryUnit

FORMAT = "nncf-tools-summary"
VERSION = 1
"""Version of the format. 1: first version (2026-11)."""
_OF_OPERATION = (
    *("name", "kind", "call", "arguments", "signature", "saved", "source", "pid", "depth"),
    *("start_s", "end_s", "duration_s", "count", "total_s", "longest_s"),
    *("error", "has_peak", "is_parallel", "cpu_s", "cpu_average", "cpu_peak", "own_start", "own_end", "spreads"),
)
_MOST_HOLDERS = 20
_OF_PROCESS = (
    *("id", "pid", "parent", "name", "command", "start_s", "end_s", "exit"),
    *("peak_rss", "high_water_mark", "cpu_s"),
)
_OF_VERDICT = ("cause", "certainty", "text", "at_s", "signal", "evidence", "is_not", "is_for_memory")
_OF_LARGEST = ("id", "pid", "name", "peak_rss", "high_water_mark")
_OF_RANK = ("name", "rank", "host", "start_s", "duration_s", "exit", "peaks", "cpu_s")
_OF_MEMORY = ("kind", "file", "size", "clean", "anonymous")


def report(session: Session, view: View) -> str:
    """Return the summary: all memory metrics in bytes, and the operations on the nesting levels that the view shows."""
    needed = needs(session)
    summary = {
        "format": FORMAT,
        "version": VERSION,
        "tool_version": session.tool_version,
        "title": view.title,
        **_read_fields(session, ("name", "command", "attached_to", "rank")),
        "ranks": [_read_fields(run, _OF_RANK) for run in session.ranks],
        **_read_fields(session, ("start", "duration_s", "finished", "exit")),
        "verdict": _write_verdict(session),
        **_read_fields(session, ("host", "from_zero", "peaks")),
        "peak": _write_peak(session),
        "held_at_end": held_at_end(session),
        "needs": None if needed is None else needed._asdict(),
        "memory": {name: _write_level(session, name) for name in session.samples.metrics if is_memory(name)},
        "cpu": {"total_s": cpu_s(session), "cores_average": cores_average(session)},
        "totals": session.totals,
        "phases": [_write_operation(operation) for operation in list_operations(session.operations, view.depth)],
        "processes": _write_processes(session),
        "models": session.models,
        "samples": {"kept": len(session.samples), "taken": count_samples(session), "metrics": session.samples.metrics},
        "sampler": session.sampler,
        "warnings": hints(session, MemoryUnit.MiB),
    }
    return as_json(summary)


def _write_verdict(session: Session) -> dict[str, Any] | None:
    judged = verdict(session, MemoryUnit.MiB)
    if judged is None:
        return None
    state = judged.state
    return {
        **_read_fields(judged, _OF_VERDICT),
        "process": None if judged.process is None else _read_fields(judged.process, ("id", "pid", "name")),
        "rss": None if state.at_s is None else state.rss,
        "rss_at_s": state.at_s,
        "growth_per_s": state.growth_per_s,
        "limit": None if judged.limit is None else judged.limit._asdict(),
        "operation": state.operation or None,
        "running": state.running or None,
        "largest": [_read_fields(process, _OF_LARGEST) for process in state.largest],
    }


def _read_fields(record: object, keys: Sequence[str]) -> dict[str, Any]:
    return {key: getattr(record, key) for key in keys}


def _write_level(session: Session, name: str) -> dict[str, float | None]:
    sizes = _read_fields(summarize_level(session, name), ("first", "final", "delta", "average", "lowest"))
    known = {key: round(size) for key, size in sizes.items() if size is not None}
    return dict.fromkeys(sizes) | known


def _write_peak(session: Session) -> dict[str, Any] | None:
    peak = session.peak_place
    if peak is None:
        return None
    return {
        "rss": session.rss_peak.low,
        "from_s": peak.from_s,
        "to_s": peak.to_s,
        "operation": [operation.name for operation in peak.path],
        "either": [operation.name for operation in peak.either],
        "rivals": [operation.name for operation in peak.rivals],
        "may_be_outside": peak.may_be_outside,
        "nearest": None if peak.nearest is None else peak.nearest.name,
        "text": where_text(session),
        "build_up": _write_build_up(session),
    }


def _write_build_up(session: Session) -> dict[str, Any] | None:
    """Return the code and the kinds of memory that made up the peak; None if the peak has no stacks."""
    rise = of_peak(session)
    if rise is None:
        return None
    memory = kinds_near(session, rise.at_s, rise.size)
    groups: list[tuple[object, ...]] = []
    if memory is not None:
        groups = [
            (
                group.kind,
                group.file,
                group.rss,
                group.clean,
                group.anonymous,
            )
            for group in memory.groups
        ]
        if memory.not_read:
            groups.append(("not_read", "", memory.not_read, None, None))
    return {
        "at_s": rise.at_s,
        "size": rise.size,
        **{kind: rise.sum_of(kind) for kind in (SEEN, PROGRAM, NOT_SEEN, SHARED)},
        "certain": tree_of(rise).certain,
        "running": None if rise.top is None else running_text(rise.top),
        "holders": [_write_holder(holder) for holder in peak_holders(session, _MOST_HOLDERS)],
        "memory_at_s": None if memory is None else memory.at_s,
        "memory_total": None if memory is None else memory.total,
        "memory": [dict(zip(_OF_MEMORY, group, strict=True)) for group in groups],
    }


def _write_holder(holder: Holder) -> dict[str, Any]:
    """Return a holder of memory at the peak as a JSON object; ``frames`` is its stack, the outermost frame first."""
    return {
        "label": holder.label,
        "text": holder.label,
        "source": holder.source or None,
        "program": holder.program or None,
        "or_later": holder.or_later or None,
        **_read_fields(holder, ("kind", "size", "certain")),
        "parts": [{"name": name, "size": size} for name, size in holder.parts],
        "frames": [
            {"function": frame.function, "file": frame.file, "line": frame.line or None} for frame in holder.stack
        ],
    }


def _write_operation(operation: Operation) -> dict[str, Any]:
    fields = _read_fields(operation, _OF_OPERATION)
    fields["duration_s"] = operation.known_duration_s
    fields |= figures_by_key(operation) | estimates_by_key(operation)
    bracket = operation.of("rss").peak
    if bracket is not None:
        fields |= {"rss_peak_high": bracket.high, "rss_peak_from_s": bracket.from_s, "rss_peak_to_s": bracket.to_s}
    return fields


def _write_processes(session: Session) -> dict[str, Any]:
    largest = largest_process(session)
    return {
        "seen": len(session.processes) or None,
        "short_lived": count_short_lived(session) if session.processes else None,
        "largest": None if largest is None else {"id": largest.process.id, "bytes": largest.size},
        "mattering": [_read_fields(process, _OF_PROCESS) for process in significant(session.processes)],
    }


PEAK_FORMAT = "nncf-tools-peak"
_DEEPEST = 401
"""Largest number of levels in a tree; a recorded stack has no more. Python's own ``json`` reads fewer than 500."""


def peak_tree(session: Session, rise: BuildUp, title: str) -> str:
    """Return the tree of the code that held the memory, as one line of JSON.

    With indentation, a deep tree would consist mostly of spaces.
    """
    has_files = session.snapshots is not None and any(watched.shared for watched in session.snapshots.processes)
    root = _write_node(tree_of(rise), _DEEPEST, has_files=has_files)
    document = {"format": PEAK_FORMAT, "version": VERSION, "at_s": rise.at_s, **root, "label": title}
    return msgspec.json.encode(document).decode() + "\n"


def _write_node(node: Node, levels: int, *, has_files: bool) -> dict[str, Any]:
    """Return a function as a JSON object, with its callees as ``children``, down to a depth of ``levels``."""
    frame = node.frame or Frame("", "", 0)
    last = last_line(frame)
    children = node.sorted_children if levels else ()
    return {
        "bytes": node.size,
        "certain": None if node.kind in WITHOUT_STACK else node.certain,
        "file_bytes": node.file_size if has_files else None,
        "kind": node.kind,
        "file": frame.file or None,
        "function": frame.function or None,
        "line": None if last else frame.line or None,
        "lines": [frame.line, last] if last else None,
        "own": None if node.frame is None else is_of_user(frame),
        "label": node.text if node.frame is None else brief_label(frame),
        "or_later": node.or_later or None,
        "children": [_write_node(child, levels - 1, has_files=has_files) for child in children],
    }


COMPARISON_FORMAT = "nncf-tools-comparison"


def document(comparisons: Sequence[tuple[Comparison, Sequence[Verdict]]]) -> dict[str, Any]:
    """Return comparisons and the results of their gates as a JSON document, in bytes and seconds."""
    return {
        "format": COMPARISON_FORMAT,
        "version": VERSION,
        "comparisons": [_write_comparison(comparison, verdicts) for comparison, verdicts in comparisons],
    }


def _write_comparison(comparison: Comparison, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    stacks = None
    if comparison.stacks is not None:
        stacks = []
        for stack in comparison.stacks:
            fields = _read_fields(stack, ("function", "file", "base", "new", "change"))
            stacks.append({"text": stack.label, **fields, "within_bounds": stack.is_within_bounds})
    best = smallest_p(len(comparison.base), len(comparison.new)) if comparison.is_of_groups else None
    return {
        "base": list(map(_write_run, comparison.base)),
        "new": list(map(_write_run, comparison.new)),
        "smallest_p": best,
        "figures": _write_differences(comparison.figures),
        "operations": [
            {
                "name": operation.name,
                "base_runs": operation.base_runs,
                "new_runs": operation.new_runs,
                "base_functions": operation.base_signatures,
                "new_functions": operation.new_signatures,
                "figures": _write_differences(operation.differences),
            }
            for operation in comparison.operations
        ],
        "stacks": stacks,
        "only_base": [figure.name for figure in comparison.only_base],
        "only_new": [figure.name for figure in comparison.only_new],
        "gates": [
            {"gate": verdict.gate.text, "passed": verdict.passed, "measured": verdict.measured} for verdict in verdicts
        ],
        "settings": [_read_fields(setting, ("name", "base", "new")) for setting in comparison.settings],
        "warnings": comparison.warnings,
    }


def _write_run(run: Run) -> dict[str, Any]:
    return {"session": run.title, **_read_fields(run, ("name", "command", "peak"))}


def _write_differences(differences: Mapping[str, Difference]) -> dict[str, Any]:
    return {
        name: {
            "unit": difference.figure.unit,
            "base": _write_side(difference.base),
            "new": _write_side(difference.new),
            **_read_fields(difference, ("change", "percent")),
            "within_brackets": difference.is_within_brackets,
            **_read_fields(difference, ("p", "exceeds_spread", "stands_out")),
        }
        for name, difference in differences.items()
    }


def _write_side(side: Side) -> dict[str, Any]:
    values = side.values
    return {
        "median": side.median,
        "min": min(values),
        "max": max(values),
        "high": side.high,
        "runs": values,
    }


_LONGEST = 1000
"""Longest name of a benchmark; Bencher accepts up to 1,024 characters."""
_LONGEST_SLUG = 64
_MOST_OPERATIONS = 50
_OF_TRACKED_OPERATION = (f"{PEAK}rss", DURATION, CPU_TIME)
_DIGITS = 6


class _Tracked(NamedTuple):
    """A measured value of a benchmark, in bytes, in seconds or as a count; bounds are None if unknown."""

    benchmark: str
    """Name of the benchmark: a run, or an operation of a run."""
    figure: Figure
    value: float
    """The value, or the median of several runs."""
    lower: float | None
    upper: float | None
    runs: int


def write_history(service: str, groups: Mapping[str, Sequence[Run]]) -> str:
    """Return measured values of runs, such as peaks, as JSON for a service: ``bencher`` or ``benchmark-action``.

    The keys of ``groups`` are names of benchmarks; the values are single runs or repeated runs.
    """
    figures: list[_Tracked] = []
    for name, runs in groups.items():
        figures += _track(name, runs)
    return as_json(_SERVICES[service](figures))


def _report_history(service: str, session: Session, view: View) -> str:
    """Return the measured values of a session. The benchmark's name is the title, or else the command."""
    name = view.title or command_text(session)
    return write_history(service, {name: [figures_of_run(session, name, view.depth)]})


bencher_report = partial(_report_history, "bencher")
benchmark_action_report = partial(_report_history, "benchmark-action")


def _track(name: str, runs: Sequence[Run]) -> Iterator[_Tracked]:
    """Yield the measured values of a run or of repeated runs, then the values of the longest operations."""
    yield from _select_figures(name, [run.figures for run in runs], _is_tracked)
    for title, values in longest_in_all(runs, _MOST_OPERATIONS, max):
        yield from _select_figures(f"{name}{SEPARATOR}{title}", values, _OF_TRACKED_OPERATION.__contains__)


def _select_figures(name: str, runs: Sequence[Values], is_wanted: Callable[[str], bool]) -> Iterator[_Tracked]:
    """Yield the wanted measured values, but only values that all runs have."""
    benchmark = clip(name, _LONGEST)
    for key in runs[0]:
        values = [run[key] for run in runs if key in run]
        if is_wanted(key) and len(values) == len(runs):
            lower, upper = _find_bounds(values)
            yield _Tracked(
                benchmark=benchmark,
                figure=known_figure(key),
                value=median(value.low for value in values),
                lower=lower,
                upper=upper,
                runs=len(values),
            )


def _find_bounds(values: Sequence[Value]) -> tuple[float | None, float | None]:
    """Return a lower and an upper bound of a value: from the bounds of all runs, or from the values of several runs.

    For a single run without bounds, return ``(None, None)``.
    """
    lows = [value.low for value in values]
    highs = [value.high for value in values if value.high is not None]
    if len(highs) == len(values):
        return min(lows), max(highs)
    return (min(lows), max(lows)) if len(values) > 1 else (None, None)


def _is_tracked(name: str) -> bool:
    """Return whether a service that keeps a history of runs gets this measured value.

    Address space, parts of RSS, and values of the whole machine are left out. Storage I/O and system calls are left
    out, too, because they depend on the contents of the page cache.
    """
    metric = metrics.of(name.removeprefix(PEAK))
    if metric is None:
        return True
    if metric.is_virtual or metric.part_of or metric.scope == metrics.MACHINE:
        return False
    return metric.family in {None, metrics.CPU_TIME}


def _write_bencher(figures: Sequence[_Tracked]) -> dict[str, dict[str, Any]]:
    benchmarks: dict[str, dict[str, Any]] = {}
    for tracked in figures:
        values = {"value": tracked.value, "lower_value": tracked.lower, "upper_value": tracked.upper}
        slug = re.sub(r"[\W_]", "-", tracked.figure.name)[:_LONGEST_SLUG]
        measures = benchmarks.setdefault(tracked.benchmark, {})
        measures[slug] = {key: value for key, value in values.items() if value is not None}
    return benchmarks


def _write_benchmark_action(figures: Sequence[_Tracked]) -> list[dict[str, Any]]:
    entries = []
    for tracked in figures:
        is_size = tracked.figure.unit == "B"
        factor = MemoryUnit.MiB.factor if is_size else 1
        entry: dict[str, Any] = {
            "name": f"{tracked.benchmark}{SEPARATOR}{tracked.figure.label}",
            "unit": "MiB" if is_size else tracked.figure.unit or "times",
            "value": round(tracked.value / factor, _DIGITS),
        }
        if tracked.lower is not None and tracked.upper is not None:
            entry["range"] = f"{tracked.lower / factor:.6g} to {tracked.upper / factor:.6g}"
            entry["extra"] = "range: the bounds of the real peak"
        if tracked.runs > 1:
            entry["extra"] = f"median of {tracked.runs} runs; range: the smallest and the largest"
        entries.append(entry)
    return entries


_SERVICES = {"bencher": _write_bencher, "benchmark-action": _write_benchmark_action}
