"""A comparison as text for a terminal (80 columns, no colour needed), as a page, and as Markdown for a pull request.

In Markdown, only the short form is visible; the rest is folded.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.console import Console, Group, RenderableType

from nncftools.analysis.comparison import Comparison
from nncftools.analysis.figures import SIGNIFICANT, smallest_p
from nncftools.analysis.gates import Verdict
from nncftools.markdown import code, text
from nncftools.render import comparison as tables
from nncftools.render.table import (
    Fitting,
    Row,
    Table,
    Text,
    join_blocks,
    pairs,
    render_markdown,
    render_table,
    render_warnings,
)
from nncftools.units import MemoryUnit, printable

_STARRED = "*"
_OF_RUNS = f"{_STARRED} changed by at least 1 % of memory or 5 % of time; repeat the runs to see the noise"
_OF_GROUPS = "Medians, with the smallest and the largest run"
_EXCEEDS = f"{_OF_GROUPS}; {_STARRED} the change exceeds the spread"
_APART = f"{_OF_GROUPS}; {_STARRED} all runs of one side are above all runs of the other; too few for a test"


def as_text(
    comparison: Comparison, unit: MemoryUnit, verdicts: Sequence[Verdict] = (), *, has_details: bool = False
) -> RenderableType:
    """Return the comparison for Rich to print: the short form, or all numbers if ``has_details`` is true."""
    parts = _render_details(comparison, unit) if has_details else _render_brief(comparison, unit)
    return Group(
        *_render_answer(comparison, unit, verdicts),
        Text(),
        pairs(_render_sides(comparison)),
        Text(),
        *parts,
    )


def _render_answer(comparison: Comparison, unit: MemoryUnit, verdicts: Sequence[Verdict]) -> Iterator[Text]:
    yield Text(tables.answer(comparison, unit), style="bold")
    gates = tables.gate_text(verdicts)
    if gates:
        has_passed = all(verdict.passed for verdict in verdicts)
        yield Text(gates, style="bold green" if has_passed else "bold red")
    yield from map(Text, tables.further(comparison, unit))


def many_as_text(judged: Sequence[tables.Judged], unit: MemoryUnit) -> Iterator[RenderableType]:
    """Yield the comparison of several runs for Rich to print."""
    answer, table = tables.describe_many(judged, unit)
    yield Text(f"{answer}\n", style="bold")
    yield Fitting(table)
    if table.note:
        yield Text(f"\n{table.note}")


def _render_brief(comparison: Comparison, unit: MemoryUnit) -> Iterator[RenderableType]:
    table = tables.brief(comparison, unit)
    table = replace(table, rows=[_add_star(row) for row in table.rows])
    yield Fitting(table)
    yield from _render_below(tables.settings(comparison))
    lines = list(tables.only_one_side(comparison))
    if any(row.cells[3].is_strong for row in table.rows):
        can_exceed = smallest_p(len(comparison.base), len(comparison.new)) <= SIGNIFICANT
        of_groups = _EXCEEDS if can_exceed else _APART
        lines.insert(0, of_groups if comparison.is_of_groups else _OF_RUNS)
    yield from _render_notes(comparison, lines)


def _add_star(row: Row) -> Row:
    """Return a row with the name of the function below the label. If the change is bold, add a star to the change."""
    name, base, new, change, *others = row.cells
    if change.is_strong:
        change = change._replace(text=f"{change.text[:-1]}{_STARRED}")
    name = name._replace(below=row.function)
    return replace(row, cells=[name, base, new, change, *others])


def _render_details(comparison: Comparison, unit: MemoryUnit) -> Iterator[RenderableType]:
    figures = tables.figures(comparison, unit)
    yield Fitting(figures)
    yield from _render_more(figures)
    yield from _render_below(tables.stacks(comparison, unit))
    yield from _render_below(tables.settings(comparison))
    yield from _render_notes(comparison, list(tables.notes(comparison)))


def _render_notes(comparison: Comparison, lines: Sequence[str]) -> Iterator[RenderableType]:
    if lines or comparison.remarks:
        yield Text()
    for line in lines:
        yield Text(printable(line), style="dim")
    yield from render_warnings(comparison.remarks)


def _render_more(table: Table) -> Iterator[Text]:
    if table.more:
        yield Text(f"… {table.more}", style="dim")


def _render_below(table: Table) -> Iterator[RenderableType]:
    if table.rows:
        yield Text()
        yield render_table(table)
    yield from _render_more(table)


def _render_sides(comparison: Comparison) -> Iterator[tuple[str, Text]]:
    """Yield labels and texts: session and command of each side, or one command if the commands are equal."""
    commands = []
    base, new = tables.sides(comparison).rows
    is_same = base.cells[-1] == new.cells[-1]
    for row in (base, new):
        side, session, command = [cell.text for cell in row.cells]
        yield side.lower(), Text(session)
        commands.append(Text(command, style="dim"))
        if not is_same:
            yield "", commands[-1]
    if is_same:
        yield "both", commands[0]


_PAGE = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Comparison of runs</title>
<style>
:root {{ color-scheme: light dark }}
body {{ container-type: inline-size }}
pre {{ overflow-x: auto; font: min(14px, 1.6cqw)/1.4 monospace }}
pre + pre {{ display: none; font-size: min(14px, 3.3cqw) }}
@media screen and (max-width: 700px) {{ pre {{ display: none }} pre + pre {{ display: block }} }}
</style>
<pre>{}</pre>
<pre>{}</pre>
</html>
"""


def as_page(whole: RenderableType) -> str:
    """Return a text for Rich as an HTML page without scripts, in the browser's light or dark colours.

    The page has the text in lines of 100 and of 48 characters, and shows the text that suits the width of the screen.
    """
    texts = []
    for width in (100, 48):
        console = Console(file=io.StringIO(), record=True, width=width)
        console.print(whole)
        texts.append(console.export_html(code_format="{code}", inline_styles=True))
    return _PAGE.format(*texts)


_FAILED = "❌"
_PASSED = "✅"


def as_markdown(comparison: Comparison, unit: MemoryUnit, verdicts: Sequence[Verdict] = ()) -> str:
    """Return the comparison and the results of the gates as GitHub's Markdown."""
    return join_blocks([*_render_visible(comparison, unit, verdicts), *_render_folded(comparison, unit, verdicts)])


def many_as_markdown(judged: Sequence[tables.Judged], unit: MemoryUnit) -> str:
    """Return the comparison of several runs as GitHub's Markdown."""
    answer, table = tables.describe_many(judged, unit)
    return join_blocks([[f"**{text(answer)}**"], *render_markdown(table)])


def _render_visible(comparison: Comparison, unit: MemoryUnit, verdicts: Sequence[Verdict]) -> Iterator[list[str]]:
    failed = [verdict for verdict in verdicts if not verdict.passed]
    symbol = ""
    if verdicts:
        symbol = f"{_FAILED} " if failed else f"{_PASSED} "
    yield [f"**{symbol}{text(tables.answer(comparison, unit))}**"]
    sentences = [tables.gate_text(verdicts), *tables.further(comparison, unit)]
    yield [". ".join(text(sentence) for sentence in sentences if sentence)]
    base = code(tables.runs_text(comparison.base))
    yield [f"Base {base}, new {code(tables.runs_text(comparison.new))}"]
    yield [f"- {_FAILED} {code(verdict.gate.text)}: {text(verdict.measured)}" for verdict in failed]
    yield from render_markdown(tables.brief(comparison, unit))
    yield from render_markdown(tables.settings(comparison))
    yield [f"- {text(line)}" for line in tables.only_one_side(comparison)]
    yield [f"- ⚠ {text(remark)}" for remark in comparison.remarks]


def _render_folded(comparison: Comparison, unit: MemoryUnit, verdicts: Sequence[Verdict]) -> Iterator[list[str]]:
    yield ["<details>", "<summary>All figures</summary>"]
    yield from render_markdown(tables.sides(comparison), code_in=2)
    yield from render_markdown(tables.gates(verdicts), code_in=0)
    yield from render_markdown(tables.figures(comparison, unit))
    yield from render_markdown(tables.stacks(comparison, unit))
    yield [f"- {text(line)}" for line in tables.notes(comparison)]
    yield ["</details>"]
