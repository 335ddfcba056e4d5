"""The comparison for a terminal (80 columns, no colour needed), and as Markdown for a pull request.

The Markdown is short; everything else is folded.
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
from nncftools.render.markdown import render_table
from nncftools.render.table import Fitting, Row, Table, Text, painted, pairs, warnings
from nncftools.units import MemoryUnit, printable

_STARRED = "*"
_OF_RUNS = f"{_STARRED} changed by 1 % of memory or 5 % of time, or more; repeat the runs to see the noise"
_OF_GROUPS = "Medians, with the smallest and the largest run"
_EXCEEDS = f"{_OF_GROUPS}; {_STARRED} more than the spread explains"
_APART = f"{_OF_GROUPS}; {_STARRED} no run of one side lies between those of the other; too few for a test"


def as_text(
    comparison: Comparison, unit: MemoryUnit, verdicts: Sequence[Verdict] = (), *, has_details: bool = False
) -> RenderableType:
    """Return the comparison for Rich to print: the short form, or with ``has_details`` all figures."""
    parts = _details(comparison, unit) if has_details else _brief_text(comparison, unit)
    return Group(
        *_answer(comparison, unit, verdicts),
        Text(),
        pairs(_sides(comparison)),
        Text(),
        *parts,
    )


def _answer(comparison: Comparison, unit: MemoryUnit, verdicts: Sequence[Verdict]) -> Iterator[Text]:
    yield Text(tables.answer(comparison, unit), style="bold")
    if gates := tables.gate_text(verdicts):
        yield Text(gates, style="bold green" if all(of.passed for of in verdicts) else "bold red")
    yield from map(Text, tables.further(comparison, unit))


def _brief_text(comparison: Comparison, unit: MemoryUnit) -> Iterator[RenderableType]:
    table = tables.brief(comparison, unit)
    table = replace(table, rows=[_row(row) for row in table.rows])
    yield Fitting(table)
    yield from _settings(comparison)
    has_star = any(cell.text.endswith(_STARRED) for row in table.rows for cell in row.cells)
    can_exceed = smallest_p(len(comparison.base), len(comparison.new)) <= SIGNIFICANT
    note = _OF_RUNS if not comparison.is_of_groups else _EXCEEDS if can_exceed else _APART
    lines = [*([note] if has_star else []), *tables.only_one_side(comparison)]
    if lines or comparison.remarks:
        yield Text()
    yield from (Text(printable(line), style="dim") for line in lines)
    yield from warnings(comparison.remarks)


def _row(row: Row) -> Row:
    """Return a row with its function below the name, and with a star after a strong change."""
    name, base, new, change, *others = row.cells
    if change.is_strong:
        change = change._replace(text=f"{change.text[:-1]}{_STARRED}")
    return replace(row, cells=[name._replace(below=row.function), base, new, change, *others])


def _details(comparison: Comparison, unit: MemoryUnit) -> Iterator[RenderableType]:
    figures, grown = tables.figures(comparison, unit), tables.stacks(comparison, unit)
    yield Fitting(figures)
    yield from _more(figures)
    if grown.rows:
        yield Text()
        yield painted(grown, folds=True)
    yield from _settings(comparison)
    remarks = [Text(printable(note), style="dim") for note in tables.notes(comparison)]
    yield from ([Text()] if remarks or comparison.remarks else [])
    yield from remarks
    yield from warnings(comparison.remarks)


def _more(table: Table) -> Iterator[Text]:
    if table.more:
        yield Text(f"… {table.more}", style="dim")


def _settings(comparison: Comparison) -> Iterator[RenderableType]:
    table = tables.settings(comparison)
    if table.rows:
        yield Text()
        yield painted(table, folds=True)
    yield from _more(table)


def _sides(comparison: Comparison) -> Iterator[tuple[str, Text]]:
    rows = [[cell.text for cell in row.cells] for row in tables.sides(comparison).rows]
    same = len({command for *_, command in rows}) == 1
    for side, session, command in rows:
        yield side.lower(), Text(session)
        if not same:
            yield "", Text(command, style="dim")
    if same:
        yield "both", Text(rows[0][-1], style="dim")


_PAGE = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Comparison of runs</title>
<style>
:root {{ color-scheme: light dark }}
pre {{ overflow-x: auto; font: 14px/1.4 monospace }}
{stylesheet}
</style>
<pre>{code}</pre>
</html>
"""


def as_page(whole: RenderableType) -> str:
    """Return a text for Rich as a page without scripts, in the colours of the browser."""
    console = Console(file=io.StringIO(), record=True, width=100)
    console.print(whole)
    return console.export_html(code_format=_PAGE)


_FAILED, _PASSED = "❌", "✅"


def as_markdown(comparison: Comparison, unit: MemoryUnit, verdicts: Sequence[Verdict] = ()) -> str:
    """Return the comparison and the results of its gates as GitHub's Markdown."""
    blocks = [*_brief_markdown(comparison, unit, verdicts), *_folded(comparison, unit, verdicts)]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"


def _brief_markdown(comparison: Comparison, unit: MemoryUnit, verdicts: Sequence[Verdict]) -> Iterator[list[str]]:
    gates = tables.gate_text(verdicts)
    failed = [of for of in verdicts if not of.passed]
    symbol = f"{_FAILED} " if failed else f"{_PASSED} " if gates else ""
    yield [f"**{symbol}{text(tables.answer(comparison, unit))}**"]
    yield [". ".join(map(text, filter(None, (gates, *tables.further(comparison, unit)))))]
    base, new = (code(tables.runs_text(runs)) for runs in (comparison.base, comparison.new))
    yield [f"Base {base}, new {new}"]
    yield [f"- {_FAILED} {code(of.gate.text)}: {text(of.measured)}" for of in failed]
    yield from render_table(tables.brief(comparison, unit))
    yield from render_table(tables.settings(comparison))
    yield [f"- {text(line)}" for line in tables.only_one_side(comparison)]
    yield [f"- ⚠ {text(remark)}" for remark in comparison.remarks]


def _folded(comparison: Comparison, unit: MemoryUnit, verdicts: Sequence[Verdict]) -> Iterator[list[str]]:
    yield ["<details>", "<summary>All figures</summary>"]
    yield from render_table(tables.sides(comparison), code_in=2)
    yield from render_table(tables.gates(verdicts), code_in=0)
    yield from render_table(tables.figures(comparison, unit))
    yield from render_table(tables.stacks(comparison, unit))
    yield [f"- {text(line)}" for line in tables.notes(comparison)]
    yield ["</details>"]
