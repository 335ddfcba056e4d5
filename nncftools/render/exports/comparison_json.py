"""The comparison for scripts; ``docs/compare.md`` describes its keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nncftools.analysis.figures import smallest_p

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nncftools.analysis.comparison import Comparison, Run
    from nncftools.analysis.figures import Difference, Side
    from nncftools.analysis.gates import Verdict

FORMAT = "nncf-tools-comparison"
VERSION = 1
"""1: first version (2026-11)."""


def document(comparisons: Sequence[tuple[Comparison, Sequence[Verdict]]]) -> dict[str, Any]:
    """Return comparisons, each with the results of its gates, in bytes and seconds; None for unknown."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "comparisons": [_comparison(comparison, verdicts) for comparison, verdicts in comparisons],
    }


def _comparison(comparison: Comparison, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    grouped = comparison.is_of_groups
    return {
        "base": [_run(run) for run in comparison.base],
        "new": [_run(run) for run in comparison.new],
        "smallest_p": smallest_p(len(comparison.base), len(comparison.new)) if grouped else None,
        "figures": _figures(comparison.figures),
        "operations": [
            {
                "name": operation.name,
                "base_runs": operation.base_runs,
                "new_runs": operation.new_runs,
                "base_functions": list(operation.base_signatures),
                "new_functions": list(operation.new_signatures),
                "figures": _figures(operation.differences),
            }
            for operation in comparison.operations
        ],
        "stacks": _stacks(comparison),
        "only_base": [figure.name for figure in comparison.only_base],
        "only_new": [figure.name for figure in comparison.only_new],
        "gates": [
            {"gate": verdict.gate.text, "passed": verdict.passed, "measured": verdict.measured} for verdict in verdicts
        ],
        "settings": [{"name": one.name, "base": one.base, "new": one.new} for one in comparison.settings],
        "warnings": comparison.warnings,
    }


def _stacks(comparison: Comparison) -> list[dict[str, Any]] | None:
    if comparison.stacks is None:
        return None
    return [
        {
            "text": one.label,
            "function": one.function,
            "file": one.file,
            "base": one.base,
            "new": one.new,
            "change": one.change,
            "within_bounds": one.is_within_bounds,
        }
        for one in comparison.stacks
    ]


def _run(run: Run) -> dict[str, str]:
    return {"session": run.title, "command": run.command, "peak": run.peak}


def _figures(differences: Mapping[str, Difference]) -> dict[str, Any]:
    return {
        name: {
            "unit": difference.figure.unit,
            "base": _side(difference.base),
            "new": _side(difference.new),
            "change": difference.change,
            "percent": difference.percent,
            "within_brackets": difference.is_within_brackets,
            "p": difference.p,
            "exceeds_spread": difference.exceeds_spread,
            "stands_out": difference.stands_out,
        }
        for name, difference in differences.items()
    }


def _side(side: Side) -> dict[str, Any]:
    return {
        "median": side.median,
        "min": min(side.values),
        "max": max(side.values),
        "high": side.high,
        "runs": list(side.values),
    }
