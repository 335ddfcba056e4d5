"""The comparison as tables for a pull request."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nncftools.render.tables.comparison import figures, gates, notes, shown, sides, title_of
from nncftools.render.tables.markdown import painted, text
from nncftools.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from nncftools.analysis.comparison import Comparison, Difference
    from nncftools.analysis.gates import Verdict
    from nncftools.units import MemoryUnit


def rendered(comparison: Comparison, unit: MemoryUnit, verdicts: Sequence[Verdict] = ()) -> str:
    """Return the comparison as GitHub's Markdown, with what came of its gates."""
    blocks = _blocks(comparison, unit, verdicts)
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"


def _blocks(comparison: Comparison, unit: MemoryUnit, verdicts: Sequence[Verdict]) -> Iterator[list[str]]:
    yield from painted(sides(comparison), code_in=2)
    yield from painted(gates(verdicts), code_in=0)
    yield from _figures(comparison, "", comparison.figures, unit)
    operations, left_out = shown(comparison.operations)
    for operation in operations:
        yield from _figures(comparison, title_of(operation, comparison), operation.differences, unit)
    if left_out:
        yield [f"… and {left_out:,} operations that changed less"]
    said = [*notes(comparison), *(f"⚠ {warning}" for warning in comparison.warnings)]
    yield [f"- {text(printable(line))}" for line in said]


def _figures(
    comparison: Comparison, title: str, differences: Mapping[str, Difference], unit: MemoryUnit
) -> Iterator[list[str]]:
    table = figures(comparison, differences, unit)
    name, *others = table.columns
    heading = f"**{text(title)}**" if title else ""
    yield from painted(replace(table, columns=[replace(name, heading=heading), *others]))
