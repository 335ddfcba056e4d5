"""The comparison as Markdown tables, for a pull request."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nncftools.render.tables.comparison import figures, gates, notes, shown, sides, stacks, title_of
from nncftools.render.tables.markdown import painted, text
from nncftools.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nncftools.analysis.comparison import Comparison
    from nncftools.analysis.gates import Verdict
    from nncftools.units import MemoryUnit


def rendered(comparison: Comparison, unit: MemoryUnit, verdicts: Sequence[Verdict] = ()) -> str:
    """Return the comparison and the results of its gates as GitHub's Markdown."""
    blocks = _blocks(comparison, unit, verdicts)
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"


def _blocks(comparison: Comparison, unit: MemoryUnit, verdicts: Sequence[Verdict]) -> Iterator[list[str]]:
    yield from painted(sides(comparison), code_in=2)
    yield from painted(gates(verdicts), code_in=0)
    operations, left_out = shown(comparison.operations)
    parts = [(f"**{text(title_of(one, comparison))}**", one.differences) for one in operations]
    for heading, differences in (("", comparison.figures), *parts):
        table = figures(comparison, differences, unit)
        name, *others = table.columns
        yield from painted(replace(table, columns=[replace(name, heading=heading), *others]))
        if differences is comparison.figures:
            yield from painted(stacks(comparison, unit))
    if left_out:
        yield [f"… and {left_out:,} operations that changed less"]
    texts = [*notes(comparison), *(f"⚠ {warning}" for warning in comparison.warnings)]
    yield [f"- {text(printable(line))}" for line in texts]
