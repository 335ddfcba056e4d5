"""The comparison as tables for a pull request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nncftools.render.tables.comparison import cells, notable, notes, runs_text, shown, title
from nncftools.render.tables.markdown import code, text
from nncftools.text import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from nncftools.analysis.comparison import Comparison, Difference
    from nncftools.analysis.gates import Verdict
    from nncftools.units import MemoryUnit

_COMMAND = 200
_NAME = 60


def rendered(comparison: Comparison, unit: MemoryUnit, verdicts: Sequence[Verdict] = ()) -> str:
    """Return the comparison as GitHub's Markdown, with what came of its gates."""
    return "\n".join([*_lines(comparison, unit, verdicts), ""])


def _lines(comparison: Comparison, unit: MemoryUnit, verdicts: Sequence[Verdict]) -> Iterator[str]:
    yield "| | Session | Command |"
    yield "|:--|:--|:--|"
    for side, runs in (("Base", comparison.base), ("New", comparison.new)):
        yield f"| {side} | {_plain(runs_text(runs))} | {code(shortened(printable(runs[0].command), _COMMAND))} |"
    if verdicts:
        yield ""
        yield from _gates(verdicts)
    yield ""
    yield from _table(comparison, "", notable(comparison.figures), unit)
    operations, left_out = shown(comparison.operations)
    for operation in operations:
        yield ""
        name = f"**{_plain(shortened(title(operation, comparison), _NAME))}**"
        yield from _table(comparison, name, notable(operation.differences), unit)
    if left_out:
        yield ""
        yield f"… and {left_out:,} operations that changed less"
    said = [*notes(comparison), *(f"⚠ {warning}" for warning in comparison.warnings)]
    if said:
        yield ""
    for line in said:
        yield f"- {_plain(line)}"


def _gates(verdicts: Iterable[Verdict]) -> Iterator[str]:
    yield "| Gate | | Measured |"
    yield "|:--|:--|:--|"
    for verdict in verdicts:
        result = "passed" if verdict.passed else "**failed**"
        yield f"| {code(printable(verdict.gate.text))} | {result} | {_plain(verdict.measured)} |"


def _table(comparison: Comparison, heading: str, differences: Iterable[Difference], unit: MemoryUnit) -> Iterator[str]:
    grouped = comparison.is_of_groups
    yield f"| {heading} | Base | New | Change | |{' p |' if grouped else ''}"
    yield f"|:--|--:|--:|--:|--:|{'--:|' if grouped else ''}"
    for difference in differences:
        of = cells(difference, unit)
        base, new = _with_range(of.base, of.base_range), _with_range(of.new, of.new_range)
        change = f"**{of.change}**" if difference.change else of.change
        p = f" {_plain(of.p.strip())} |" if grouped else ""
        yield f"| {of.name} | {base} | {new} | {change}{_plain(of.mark)} | {of.percent} |{p}"


def _with_range(text: str, ends: str) -> str:
    return f"{text} ({ends})" if ends else text


def _plain(words: str) -> str:
    return text(printable(words))
