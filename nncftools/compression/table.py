"""The results as text cells, as a Markdown table that no cell can break, and by column name."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from nncftools.compression.checking import number
from nncftools.compression.columns import (
    DECIMALS,
    ERROR,
    INT4,
    INT8,
    LORA_RANK,
    MODE,
    PLOT_NAME,
    RATE,
    SIZE,
    STDERR,
)
from nncftools.compression.recommending import chosen
from nncftools.units import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.compression.recommending import Bounds
    from nncftools.compression.results import Comparison, Result

_COLUMNS = (MODE, INT4, INT8, LORA_RANK, ERROR, RATE)
MODEL = "model"
_SPECIAL = re.compile(r"[\\`*\[\]<>&|~$@{}]|(?<!\w)_|_(?!\w)|(?<=\bwww)\.|:(?=//)|!(?=\[)")
"""What Markdown, its common extensions or HTML may interpret; ``_`` is harmless inside a word."""


def cells(comparisons: Sequence[Comparison], *, extra: bool = False) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the table as plain text; several models get a name column.

    With ``extra``, the files' other columns follow.
    """
    found = (name for comparison in comparisons for result in comparison.results for name in result.row.extra)
    more = list(dict.fromkeys(found)) if extra else []
    several = len(comparisons) > 1
    header = [*([MODEL] if several else []), *_COLUMNS, *more]
    rows = [
        [
            *([comparison.name] if several else []),
            *_standard(result),
            *(extra_text(name, result.row.extra.get(name, "")) for name in more),
        ]
        for comparison in comparisons
        for result in comparison.results
    ]
    return header, rows


def details(comparison: Comparison, result: Result) -> dict[str, object]:
    """Return all that is known of a result, by column name; None is unknown."""
    row = result.row
    return {
        **{name: _known(name, cell) for name, cell in row.extra.items()},
        comparison.model.setup or MODEL: row.model,
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


def rows(comparisons: Sequence[Comparison], bounds: Bounds | None = None) -> list[dict[str, object]]:
    """Return the details of all results.

    With bounds, ``within bounds`` is None when only unknown figures decide, and ``recommended`` marks each model's best
    choice.
    """
    found: list[dict[str, object]] = []
    for comparison in comparisons:
        best = chosen(comparison, bounds).best if bounds is not None else None
        for result in comparison.results:
            judged = {} if bounds is None else {"within bounds": bounds.hold(result), "recommended": result is best}
            found.append({**details(comparison, result), **judged})
    return found


def extra_text(name: str, cell: str) -> str:
    """Return a cell of a further column; the figures of known ones have as many digits as they need."""
    value = number(cell) if name in DECIMALS else None
    return cell if value is None or not math.isfinite(value) else f"{value:.{DECIMALS[name]}f}"


def _known(name: str, cell: str) -> str | float | None:
    """Return the figure of a known column, None for an empty cell; any other cell as it is."""
    if name not in DECIMALS:
        return cell
    value = number(cell)
    return (cell or None) if value is None or not math.isfinite(value) else value


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table whose columns are aligned in the source, too, without a newline at its end.

    It is laid out as NNCF's visualizer does it, so that a published table changes only where figures do.
    """
    from tabulate import tabulate

    return tabulate(
        [[escaped(cell) for cell in row] for row in rows],
        headers=[escaped(name).replace(" ", "<br>") for name in header],
        tablefmt="pipe",
        disable_numparse=True,
        colalign=["right" if name == LORA_RANK else "left" for name in header] if rows else None,
    )


def escaped(text: str) -> str:
    """Escape text for Markdown, on one line, without control characters."""
    plain = printable(" ".join(text.split()))
    return _SPECIAL.sub(lambda match: f"&#{ord(match[0])};", plain)


def percent(fraction: float) -> str:
    """Return a fraction as a percentage, with a decimal only when needed."""
    return f"{round(fraction * 100, 1):g}%"


def error_text(error: float) -> str:
    """Return a relative error in percent with one decimal."""
    return f"{round(error * 100, 1) + 0.0:.1f}%"


def rate_text(rate: float) -> str:
    """Return a compression rate: how many times smaller."""
    return f"{rate:.1f}x"


def _standard(result: Result) -> list[str]:
    row = result.row
    rank = "" if row.lora_rank is None else str(row.lora_rank)
    return [row.mode, percent(row.int4), percent(row.int8), rank, error_text(result.error), rate_text(result.rate)]
