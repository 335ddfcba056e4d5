"""The short form of a comparison: a verdict, at most ten rows of figures, and the settings that differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nncftools.analysis.figures import CPU_TIME, DURATION, MODEL_SIZE
from nncftools.render.tables.comparison import cells, columns_of, function_text, name_of
from nncftools.render.tables.table import Cell, Column, Row, Table
from nncftools.units import UNKNOWN, printable, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nncftools.analysis.comparison import ComparedOperation, Comparison
    from nncftools.analysis.figures import Difference
    from nncftools.analysis.gates import Verdict
    from nncftools.units import MemoryUnit

MOST_ROWS = 10
_MOST_SETTINGS = 10
_NAME, _SETTING, _FUNCTION, _PLACE = 18, 80, 30, 100
"""Lengths of texts, in characters."""
_MOSTLY = (0.5, 1.5)
"""Of the change of the peak: code that changed by less is not the reason, by more not the only one."""
_COLUMNS = 5
"""Without p: what exceeds the spread is strong."""
_OF_RUN = (DURATION, CPU_TIME, "read_bytes", "write_bytes", MODEL_SIZE)
_WORDS = {True: ("higher", "lower"), False: ("longer", "shorter")}
"""More and less, of memory and of time."""
_HOST = "host"


def verdict(comparison: Comparison, unit: MemoryUnit) -> str:
    """Return in one sentence how the peak and the duration changed."""
    shown = [comparison.figures.get(name or "") for name in (_peak_name(comparison), DURATION)]
    parts = [_change_text(one, unit) for one in shown if one is not None]
    text = ", ".join(parts) or "No figure in common"
    machines = "; on different hosts" if any(one.name == _HOST for one in comparison.settings) else ""
    return f"{text[:1].upper()}{text[1:]}{machines}"


def gate_text(verdicts: Sequence[Verdict]) -> str:
    """Return how many gates failed: ``"1 of 2 gates failed"``; empty without gates."""
    failed = sum(not of.passed for of in verdicts)
    number = len(verdicts)
    if not verdicts:
        return ""
    if failed:
        return "The gate failed" if number == 1 else f"{failed} of {number} gates failed"
    return "The gate passed" if number == 1 else f"All {number} gates passed"


def owner(comparison: Comparison, unit: MemoryUnit) -> str:
    """Return the code that certainly holds most of the change of the RSS peak; empty when no single place does."""
    peak = comparison.figures.get("peak_rss")
    first = next(iter(comparison.stacks or ()), None)
    if peak is None or first is None or not peak.stands_out or first.is_within_bounds:
        return ""
    least, most = _MOSTLY
    if not least <= first.change / peak.change <= most:
        return ""
    sign = "+" if first.change > 0 else ""
    return f"Most of it: {sign}{unit.label(first.change)} in {shortened(printable(first.label), _PLACE)}"


def brief(comparison: Comparison, unit: MemoryUnit) -> Table:
    """Return the main figures of the runs, then of operations those that changed by more than noise.

    What changed by more than noise is strong. The function of an operation is there where both sides have the same;
    where they differ, it is one of the settings.
    """
    columns = columns_of(comparison)[:_COLUMNS]
    names = [name for name in (_peak_name(comparison), *_OF_RUN) if name is not None]
    of_run = [comparison.figures[name] for name in names if name in comparison.figures]
    known = [one for one in of_run if one.figure.is_peak or one.base.median or one.new.median]
    rows = [_row(cells(one, unit), one) for one in known]
    for one, difference in changed_most(comparison, MOST_ROWS - len(rows)):
        what = "peak" if difference.figure.is_peak else "duration"
        shown = cells(difference, unit, f"{name_of(one, _NAME)}: {what}")
        is_same = one.base_signatures == one.new_signatures
        function = shortened(function_text(one), _FUNCTION) if is_same else ""
        rows.append(_row(shown, difference, function))
    return Table(columns=columns, rows=rows)


def changed_most(comparison: Comparison, most: int) -> list[tuple[ComparedOperation, Difference]]:
    """Return the peaks and durations of operations that changed by more than noise, in the order of the run.

    Of too many, those that changed most as a share of the run's own figure.
    """
    names = [name for name in (_peak_name(comparison), DURATION) if name in comparison.figures]
    found = [
        (one, one.differences[name])
        for one in comparison.operations
        for name in names
        if name is not None and name in one.differences and one.differences[name].stands_out
    ]

    def share(of: tuple[ComparedOperation, Difference]) -> float:
        whole = comparison.figures[of[1].figure.name].base.median
        return abs(of[1].change) / whole if whole else 0.0

    kept = {id(of[1]) for of in sorted(found, key=share, reverse=True)[:most]}
    return [of for of in found if id(of[1]) in kept]


def settings(comparison: Comparison) -> Table:
    """Return what the runs were asked to do differently."""
    columns = [Column(heading, is_text=True) for heading in ("Differs", "Base", "New")]
    rows = [
        Row(cells=[Cell(shortened(printable(text), _SETTING) or UNKNOWN) for text in (one.name, one.base, one.new)])
        for one in comparison.settings
    ]
    left_out = len(rows) - _MOST_SETTINGS
    more = f"and {left_out:,} more settings" if left_out > 0 else ""
    return Table(columns=columns, rows=rows[:_MOST_SETTINGS], more=more)


def only_one_side(comparison: Comparison) -> Iterator[str]:
    """Yield the operations that only one side has."""
    for where, names in (
        ("base", [name_of(one) for one in comparison.operations if not one.new_runs]),
        ("new", [name_of(one) for one in comparison.operations if not one.base_runs]),
    ):
        if names:
            yield f"Operations only in {where}: {', '.join(names[:5])}{' …' if len(names) > 5 else ''}"  # noqa: PLR2004


def _row(shown: list[Cell], difference: Difference, function: str = "") -> Row:
    strong = [cell._replace(is_strong=difference.stands_out and cell.is_strong) for cell in shown]
    return Row(cells=strong[:_COLUMNS], function=function)


def _peak_name(comparison: Comparison) -> str | None:
    """Return the figure that the verdict is about: the peak of RSS, else of the first memory metric."""
    if "peak_rss" in comparison.figures:
        return "peak_rss"
    return next((name for name, one in comparison.figures.items() if one.figure.is_peak), None)


def _change_text(difference: Difference, unit: MemoryUnit) -> str:
    figure = difference.figure
    label, base, new = (cell.text for cell in cells(difference, unit)[:3])
    name, _, in_unit = label.rpartition(", ")
    name = f"{name[:1].lower()}{name[1:]}" if name[1:2].islower() else name
    between = f"({base} → {new} {in_unit})"
    if not difference.stands_out:
        why = "within the brackets" if difference.is_within_brackets else "no more than noise"
        return f"{name} as before {between[:-1]}, {why})" if base != new else f"{name} as before ({new} {in_unit})"
    word = _WORDS[figure.is_peak][difference.change < 0]
    percent = "" if difference.percent is None else f"{abs(difference.percent):,.1f} % "
    return f"{name} {percent}{word} {between}"
