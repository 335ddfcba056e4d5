"""The configurations that failed, as a list under the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nncftools.compression.table import escaped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.compression.results import Comparison


def failures(comparisons: Sequence[Comparison]) -> str:
    """Return a Markdown list of what failed, with the verdicts; empty if nothing did."""
    several = len(comparisons) > 1
    lines = []
    for comparison in comparisons:
        for failure in comparison.model.failures:
            what = failure.mode + (f" ({failure.plot_name})" if failure.plot_name else "")
            of = f"{comparison.name}: " if several else ""
            lines.append(f"- {escaped(of + what)}: {escaped(failure.verdict)}")
    return "\n\nFailed:\n\n" + "\n".join(lines) if lines else ""
