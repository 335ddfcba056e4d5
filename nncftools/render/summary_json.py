"""The summary of a run, the tree of its peak, and the comparison, for scripts: JSON documents with stable keys.

``docs/report.md`` and ``docs/compare.md`` describe the keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from nncftools.analysis.build_up import NOT_SEEN, PROGRAM, SEEN, SHARED, BuildUp, of_peak, running_text
from nncftools.analysis.code_places import brief_label, is_of_user, last_line
from nncftools.analysis.comparison import Comparison
from nncftools.analysis.figures import Difference, Side, smallest_p
from nncftools.analysis.frames import WITHOUT_STACK, Holder, Node, peak_holders, tree_of
from nncftools.analysis.gates import Verdict
from nncftools.analysis.operation import Operation
from nncftools.analysis.rss_levels import kinds_near
from nncftools.analysis.session import Session
from nncftools.analysis.summary import cores_average, cpu_s, largest_process, level, short_lived, taken
from nncftools.limits.judges import verdict
from nncftools.limits.needs import needs
from nncftools.metrics import is_memory
from nncftools.render.listing import estimates_by_key, figures_by_key, timeline
from nncftools.render.sentences import hints, where_text
from nncftools.render.session_tables import significant
from nncftools.render.view import View, as_json
from nncftools.session.model import Frame
from nncftools.units import MemoryUnit

FORMAT = "nncf-tools-summary"
VERSION = 1
"""1: first version (2026-11)."""
_OF_OPERATION = (
    *("name", "kind", "call", "arguments", "signature", "saved", "source", "pid", "depth"),
    *("start_s", "end_s", "duration_s", "count", "total_s", "longest_s"),
    *("error", "has_peak", "is_parallel", "cpu_s", "cpu_average", "cpu_peak", "own_start", "own_end"),
)
_MOST_HOLDERS = 20
_OF_PROCESS = (
    *("id", "pid", "parent", "name", "command", "start_s", "end_s", "exit"),
    *("peak_rss", "high_water_mark", "cpu_s"),
)
_OF_VERDICT = ("cause", "certainty", "text", "at_s", "signal", "evidence", "is_not", "is_for_memory")
_OF_LARGEST = ("id", "pid", "name", "peak_rss", "high_water_mark")
_OF_RANK = ("name", "rank", "host", "start_s", "duration_s", "exit", "peaks", "cpu_s")


def report(session: Session, view: View) -> str:
    """Return the summary: all memory metrics in bytes, operations of the view's depth."""
    needed = needs(session)
    summary = {
        "format": FORMAT,
        "version": VERSION,
        "tool_version": session.tool_version,
        "title": view.title,
        **_fields(session, ("name", "command", "attached_to", "rank")),
        "ranks": [_fields(run, _OF_RANK) for run in session.ranks],
        **_fields(session, ("start", "duration_s", "finished", "exit")),
        "verdict": _verdict(session),
        **_fields(session, ("host", "from_zero", "peaks")),
        "peak": _peak(session),
        "needs": None if needed is None else _fields(needed, ("floor", "at_s", "comfortable", "is_bound")),
        "memory": {name: _level(session, name) for name in session.samples.metrics if is_memory(name)},
        "cpu": {"total_s": cpu_s(session), "cores_average": cores_average(session)},
        "totals": session.totals,
        "phases": [_operation(operation) for operation in timeline(session.operations, view.depth)],
        "processes": _processes(session),
        "models": session.models,
        "samples": {"kept": len(session.samples), "taken": taken(session), "metrics": session.samples.metrics},
        "sampler": session.sampler,
        "warnings": hints(session, MemoryUnit.MiB),
    }
    return as_json(summary)


def _verdict(session: Session) -> dict[str, Any] | None:
    if (judged := verdict(session, MemoryUnit.MiB)) is None:
        return None
    state = judged.state
    return {
        **_fields(judged, _OF_VERDICT),
        "process": None if judged.process is None else _fields(judged.process, ("id", "pid", "name")),
        "rss": None if state.at_s is None else state.rss,
        "rss_at_s": state.at_s,
        "growth_per_s": state.growth_per_s,
        "limit": None if judged.limit is None else judged.limit._asdict(),
        "operation": state.operation or None,
        "running": state.running or None,
        "largest": [_fields(process, _OF_LARGEST) for process in state.largest],
    }


def _fields(of: object, keys: Sequence[str]) -> dict[str, Any]:
    return {key: getattr(of, key) for key in keys}


def _level(session: Session, name: str) -> dict[str, float | None]:
    sizes = _fields(level(session, name), ("first", "final", "delta", "average", "lowest"))
    return {key: None if size is None else round(size) for key, size in sizes.items()}


def _peak(session: Session) -> dict[str, Any] | None:
    """Return the moment of the RSS peak and its operations by name, the outermost first."""
    if (peak := session.peak_place) is None:
        return None
    return {
        "rss": session.rss_peak.low,
        "from_s": peak.from_s,
        "to_s": peak.to_s,
        **{
            key: [operation.name for operation in operations]
            for key, operations in (("operation", peak.path), ("either", peak.either), ("rivals", peak.rivals))
        },
        "may_be_outside": peak.may_be_outside,
        "nearest": None if peak.nearest is None else peak.nearest.name,
        "text": where_text(session),
        "build_up": _build_up(session),
    }


def _build_up(session: Session) -> dict[str, Any] | None:
    """Return which code and which kinds of memory the peak consists of; None when the session has no stacks of it."""
    if (rise := of_peak(session)) is None:
        return None
    memory, root = kinds_near(session, rise.at_s, rise.size), tree_of(rise)
    groups: list[tuple[object, ...]] = []
    if memory is not None:
        groups = [(of.kind, of.file, of.rss, of.clean, of.anonymous) for of in memory.groups]
        groups += [("not_read", "", memory.not_read, None, None)] if memory.not_read else []
    return {
        "at_s": rise.at_s,
        "size": rise.size,
        **{kind: rise.sum_of(kind) for kind in (SEEN, PROGRAM, NOT_SEEN, SHARED)},
        "certain": root.certain,
        "running": None if rise.top is None else running_text(rise.top),
        "holders": [_holder(holder) for holder in peak_holders(session, _MOST_HOLDERS)],
        "memory_at_s": None if memory is None else memory.at_s,
        "memory_total": None if memory is None else memory.total,
        "memory": [dict(zip(("kind", "file", "size", "clean", "anonymous"), group, strict=True)) for group in groups],
    }


def _holder(of: Holder) -> dict[str, Any]:
    """Return who holds a part of the peak; the frames are those that name it, the outermost first."""
    frames = [{"function": frame.function, "file": frame.file, "line": frame.line or None} for frame in of.stack]
    optional = {key: getattr(of, key) or None for key in ("source", "program", "or_later")}
    parts = [{"name": name, "size": size} for name, size in of.parts]
    return {
        "label": of.label,
        "text": of.label,
        **optional,
        **_fields(of, ("kind", "size", "certain")),
        "parts": parts,
        "frames": frames,
    }


def _operation(operation: Operation) -> dict[str, Any]:
    bracket = operation.of("rss").peak
    bounds = {} if bracket is None else {f"rss_peak_{key}": getattr(bracket, key) for key in ("high", "from_s", "to_s")}
    fields = _fields(operation, _OF_OPERATION) | {"duration_s": operation.known_duration_s}
    return fields | figures_by_key(operation) | estimates_by_key(operation) | bounds


def _processes(session: Session) -> dict[str, Any]:
    largest = largest_process(session)
    return {
        "seen": len(session.processes) or None,
        "short_lived": short_lived(session) if session.processes else None,
        "largest": None if largest is None else {"id": largest.process.id, "bytes": largest.size},
        "mattering": [_fields(process, _OF_PROCESS) for process in significant(session.processes)],
    }


PEAK_FORMAT = "nncf-tools-peak"
_DEEPEST = 401
"""Levels of a tree, as many as a recorded stack has. Python's own ``json`` reads fewer than 500."""


def peak_tree(session: Session, rise: BuildUp, title: str) -> str:
    """Return which code held the memory as one line of JSON: deep trees would be mostly spaces with indentation."""
    has_files = session.snapshots is not None and any(watched.shared for watched in session.snapshots.processes)
    root = _node(tree_of(rise), _DEEPEST, has_files=has_files)
    document = {"format": PEAK_FORMAT, "version": VERSION, "at_s": rise.at_s, **root, "label": title}
    return msgspec.json.encode(document).decode() + "\n"


def _node(node: Node, levels: int, *, has_files: bool) -> dict[str, Any]:
    """Return a place in the code with so many levels of its parts; None for unknown."""
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
        "children": [_node(child, levels - 1, has_files=has_files) for child in children],
    }


COMPARISON_FORMAT = "nncf-tools-comparison"


def document(comparisons: Sequence[tuple[Comparison, Sequence[Verdict]]]) -> dict[str, Any]:
    """Return comparisons, each with the results of its gates, in bytes and seconds; None for unknown."""
    return {
        "format": COMPARISON_FORMAT,
        "version": VERSION,
        "comparisons": [_comparison(comparison, verdicts) for comparison, verdicts in comparisons],
    }


def _comparison(comparison: Comparison, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    grouped, of_stack = comparison.is_of_groups, ("function", "file", "base", "new", "change")
    stacks = [
        {"text": stack.label, **_fields(stack, of_stack), "within_bounds": stack.is_within_bounds}
        for stack in comparison.stacks or ()
    ]
    return {
        **{
            side: [{"session": run.title, "command": run.command, "peak": run.peak} for run in runs]
            for side, runs in (("base", comparison.base), ("new", comparison.new))
        },
        "smallest_p": smallest_p(len(comparison.base), len(comparison.new)) if grouped else None,
        "figures": _figures(comparison.figures),
        "operations": [
            {
                "name": operation.name,
                "base_runs": operation.base_runs,
                "new_runs": operation.new_runs,
                "base_functions": operation.base_signatures,
                "new_functions": operation.new_signatures,
                "figures": _figures(operation.differences),
            }
            for operation in comparison.operations
        ],
        "stacks": None if comparison.stacks is None else stacks,
        "only_base": [figure.name for figure in comparison.only_base],
        "only_new": [figure.name for figure in comparison.only_new],
        "gates": [{"gate": of.gate.text, "passed": of.passed, "measured": of.measured} for of in verdicts],
        "settings": [_fields(setting, ("name", "base", "new")) for setting in comparison.settings],
        "warnings": comparison.warnings,
    }


def _figures(differences: Mapping[str, Difference]) -> dict[str, Any]:
    return {
        name: {
            "unit": difference.figure.unit,
            "base": _side(difference.base),
            "new": _side(difference.new),
            **_fields(difference, ("change", "percent")),
            "within_brackets": difference.is_within_brackets,
            **_fields(difference, ("p", "exceeds_spread", "stands_out")),
        }
        for name, difference in differences.items()
    }


def _side(side: Side) -> dict[str, Any]:
    bounds = {"min": min(side.values), "max": max(side.values)}
    return {"median": side.median, **bounds, "high": side.high, "runs": side.values}
