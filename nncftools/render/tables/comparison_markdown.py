"""The comparison as Markdown, for a pull request: short, with everything else folded."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nncftools.render.tables.comparison import figures, gates, notes, runs_text, shown, sides, stacks, title_of
from nncftools.render.tables.comparison_brief import brief, gate_text, only_one_side, owner, settings, verdict
from nncftools.render.tables.markdown import code, painted, text
from nncftools.units import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nncftools.analysis.comparison import Comparison
    from nncftools.analysis.gates import Verdict
    from nncftools.units import MemoryUnit

_FAILED, _PASSED = "❌", "✅"


def rendered(comparison: Comparison, unit: MemoryUnit, verdicts: Sequence[Verdict] = ()) -> str:
    """Return the comparison and the results of its gates as GitHub's Markdown."""
    blocks = [*_brief(comparison, unit, verdicts), *_folded(comparison, unit, verdicts)]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"


def _brief(comparison: Comparison, unit: MemoryUnit, verdicts: Sequence[Verdict]) -> Iterator[list[str]]:
    said = gate_text(verdicts)
    failed = [of for of in verdicts if not of.passed]
    symbol = f"{_FAILED} {said}. " if failed else f"{_PASSED} {said}. " if said else ""
    yield [f"**{symbol}{text(verdict(comparison, unit))}**"]
    yield [f"Base {code(printable(runs_text(comparison.base)))}, new {code(printable(runs_text(comparison.new)))}"]
    yield [f"- {_FAILED} {code(printable(of.gate.text))}: {text(printable(of.measured))}" for of in failed]
    yield [text(line) for line in [owner(comparison, unit)] if line]
    yield from painted(brief(comparison, unit))
    yield from painted(settings(comparison))
    yield [f"- {text(printable(line))}" for line in only_one_side(comparison)]
    yield [f"- ⚠ {text(printable(remark))}" for remark in comparison.remarks]


def _folded(comparison: Comparison, unit: MemoryUnit, verdicts: Sequence[Verdict]) -> Iterator[list[str]]:
    yield ["<details>", "<summary>All figures</summary>"]
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
    yield [f"- {text(printable(line))}" for line in notes(comparison)]
    yield ["</details>"]
