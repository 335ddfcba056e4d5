"""Everything known about one result, by column name: for JSON output and for the page's tooltips."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nncftools.compression.columns import ERROR, INT4, INT8, LORA_RANK, MODE, PLOT_NAME, RATE, SIZE, STDERR
from nncftools.compression.recommend import recommended

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.compression.recommend import Bound
    from nncftools.compression.results import Comparison, Result


def details(comparison: Comparison, result: Result) -> dict[str, object]:
    """Return all values of a result; None is unknown."""
    row = result.row
    return {
        **row.extra,
        comparison.model.setup: row.model,
        MODE: row.mode,
        INT4: row.int4,
        INT8: row.int8,
        LORA_RANK: row.lora_rank,
        PLOT_NAME: row.plot_name,
        SIZE: row.size,
        **row.values,
        **{metric.stderr_column: row.stderrs.get(metric.column) for metric in comparison.metrics},
        ERROR: result.error,
        ERROR + STDERR: result.error_stderr,
        RATE: result.rate,
        "kind": str(result.group),
        "on Pareto front": result.is_pareto,
        "file": comparison.model.path.name,
        "row": row.number,
    }


def rows(comparisons: Sequence[Comparison], bound: Bound | None = None) -> list[dict[str, object]]:
    """Return the details of all results; with a bound, ``recommended`` marks each model's best choice."""
    found: list[dict[str, object]] = []
    for comparison in comparisons:
        best = recommended(comparison, bound) if bound is not None else None
        for result in comparison.results:
            chosen = {} if bound is None else {"recommended": result is best}
            found.append({**details(comparison, result), **chosen})
    return found
