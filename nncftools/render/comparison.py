"""The tables and sentences of a comparison: the answer, its main figures, all figures; and repeated runs of a command.

The short form has an answer, at most ten rows of figures, and the settings that differ. Repeated runs are the median of
each figure, and how far the runs are apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median

from nncftools.analysis import figures as compared_figures
from nncftools.analysis.comparison import ComparedOperation, Comparison, Run, longest_in_all
from nncftools.analysis.figures import CPU_TIME, DURATION, Difference, Figure, GrownStack, Values
from nncftools.analysis.gates import Verdict
from nncftools.analysis.summary import unit_for
from nncftools.metrics import DEVICE_MEMORY
from nncftools.render.table import Cell, Column, Row, Table, signed
from nncftools.units import UNKNOWN, MemoryUnit, fixed, printable, shortened

Write = Callable[[float], str]

STACKS = "Code at the RSS peak"
_COMMAND, _NAME, _FUNCTION = 200, 60, 70
"""Lengths of texts, in characters."""
_MOST_OPERATIONS = 30
"""When there are more, those whose figures changed most are shown."""
_MOST_NAMES = 10
_MOST_RUNS = 3
_UNCERTAIN = "~"
_EXCEEDS = "*"
_TIME_UNITS = ((3 * 3600, 3600, "h"), (600, 60, "min"), (0, 1, "s"))
"""From how many seconds on a unit is used, its seconds and its name."""
_SMALLEST_SHOWN_P = 0.001
_MANY_TIMES_P = 900
"""From this change in per cent on, a figure is so many times the other."""


def figures(comparison: Comparison, unit: MemoryUnit) -> Table:
    """Return the figures of the runs, then of each operation; peaks in ``unit``, others in the unit that suits them."""
    rows = list(_figure_rows(comparison.figures, unit))
    operations, left_out = shown(comparison.operations)
    for operation in operations:
        rows.append(Row(cells=[Cell(title_of(operation, comparison), is_strong=True), *[Cell("")] * _COLUMNS]))
        rows += _figure_rows(operation.differences, unit, "  ")
    more = f"and {left_out:,} operations that changed less" if left_out else ""
    return _table(rows, _COLUMNS + comparison.is_of_groups, more)


def _table(rows: Sequence[Row], count: int, more: str = "") -> Table:
    """Return a table with the first ``count`` columns of rows of figures."""
    columns = [Column("", is_text=True), *map(Column, ("Base", "New", "Change ", "", "p  "))]
    return Table(columns=columns, rows=rows, more=more).with_columns(range(count))


def _figure_rows(differences: Mapping[str, Difference], unit: MemoryUnit, indent: str = "") -> Iterator[Row]:
    """Yield the figures of the runs or of an operation, without what was neither read nor written on either side."""
    for name, of in differences.items():
        if of.figure.is_peak or name in {DURATION, CPU_TIME} or max(of.base.median, of.new.median):
            yield Row(cells=cells(of, unit, f"{indent}{of.figure.label}"))


def cells(difference: Difference, unit: MemoryUnit, label: str = "") -> list[Cell]:
    """Return label, both sides, change, per cent and p; ``label`` stands for that of the figure."""
    figure, base, new = difference.figure, difference.base, difference.new
    label = label or figure.label
    name, write = writer(figure, max(*base.values, *new.values), unit)
    uncertain = _UNCERTAIN if difference.is_within_brackets else " "
    change = signed(write(difference.change))
    return [
        Cell(f"{label}, {name}" if name else label),
        Cell(write(base.median), below=_range(write, base.values)),
        Cell(write(new.median), below=_range(write, new.values)),
        Cell(f"{change}{uncertain}", is_strong=any(digit in "123456789" for digit in change)),
        Cell(_percent(difference.percent)),
        Cell(_p(difference)),
    ]


def writer(figure: Figure, highest: float, unit: MemoryUnit) -> tuple[str, Write]:
    """Return the name of a unit and what writes numbers in it: peaks in ``unit``, others as ``highest`` needs."""
    if figure.unit == "B":
        size_unit = unit if figure.is_peak else unit_for(highest)
        return f"{size_unit}", size_unit.text
    return _in_seconds(highest) if figure.unit == "s" else ("", lambda number: fixed(number, 0))


def stacks(comparison: Comparison, unit: MemoryUnit) -> Table:
    """Return which code held more or less memory at the RSS peak."""
    columns = [Column("Base", "", f"{unit}"), Column("New"), Column("Change "), Column(STACKS, is_text=True)]
    rows = []
    for stack in comparison.stacks or ():
        change = f"{signed(unit.text(stack.change))}{_UNCERTAIN if stack.is_within_bounds else ' '}"
        sizes = [Cell(unit.text(size)) for size in (stack.base, stack.new)]
        rows.append(Row(cells=[*sizes, Cell(change, is_strong=True), Cell(stack.label)]))
    return Table(columns=columns, rows=rows)


def _in_seconds(highest_s: float) -> tuple[str, Write]:
    """Return the unit of a time and the function that writes it; ``highest_s`` has at least three digits in it."""
    factor, name = next((factor, name) for from_s, factor, name in _TIME_UNITS if abs(highest_s) >= from_s)
    decimals = next((decimals for below, decimals in ((1, 3), (100, 2)) if highest_s / factor < below), 1)
    return name, lambda seconds: fixed(seconds / factor, decimals)


def _range(write: Write, values: Sequence[float]) -> str:
    lowest, highest = write(min(values)), write(max(values))
    return f"{lowest}–{highest}" if lowest != highest else ""


def _percent(percent: float | None) -> str:
    if percent is None:
        return UNKNOWN
    return f"{_times(percent)}×" if percent >= _MANY_TIMES_P else f"{signed(fixed(percent, 1))}%"


def _times(percent: float) -> str:
    """Return how many times as large the new figure is, to three digits; of more than 1,000 times, only that."""
    return f"{1 + percent / 100:.3g}" if percent < 99_899.5 else ">1,000"  # noqa: PLR2004 — 1,000 times


def _p(difference: Difference) -> str:
    if difference.p is None:
        return ""
    text = f"{difference.p:.3f}" if difference.p >= _SMALLEST_SHOWN_P else f"<{_SMALLEST_SHOWN_P}"
    return f"{text} {_EXCEEDS if difference.exceeds_spread else ' '}"


def sides(comparison: Comparison) -> Table:
    """Return what is compared: sessions and commands."""
    every = (("Base", comparison.base), ("New", comparison.new))
    rows = [(side, runs_text(runs), shortened(printable(runs[0].command), _COMMAND)) for side, runs in every]
    return _of_texts(("", "Session", "Command"), rows)


def _of_texts(headings: Iterable[str], rows: Iterable[Iterable[str]], more: str = "") -> Table:
    columns = [Column(heading, is_text=True) for heading in headings]
    return Table(columns=columns, rows=[Row(cells=[Cell(printable(text)) for text in row]) for row in rows], more=more)


def gates(verdicts: Sequence[Verdict]) -> Table:
    """Return the results of gates."""
    columns = [Column(heading, is_text=True) for heading in ("Gate", "", "Measured")]
    rows = []
    for verdict in verdicts:
        result = Cell("passed" if verdict.passed else "failed", is_strong=not verdict.passed)
        rows.append(Row(cells=(Cell(printable(verdict.gate.text)), result, Cell(printable(verdict.measured)))))
    return Table(columns=columns, rows=rows)


def runs_text(runs: Sequence[Run]) -> str:
    """Return the names of runs; of a large group only the first and the last."""
    titles = [run.title for run in runs]
    if len(titles) == 1:
        return titles[0]
    names = titles if len(titles) <= _MOST_RUNS else [titles[0], "…", titles[-1]]
    return f"{len(titles)} runs: {', '.join(names)}"


def shown(operations: Iterable[ComparedOperation]) -> tuple[list[ComparedOperation], int]:
    """Return the operations of both sides to show, in their order, and the number of the others."""
    both = [operation for operation in operations if operation.base_runs and operation.new_runs]

    def largest_change(operation: ComparedOperation) -> tuple[float, float]:
        """Return the largest change of a peak in bytes, and the change of the duration in seconds."""
        peaks = [abs(difference.change) for difference in operation.differences.values() if difference.figure.is_peak]
        return max(peaks, default=0), abs(of.change) if (of := operation.differences.get(DURATION)) else 0.0

    largest = sorted(both, key=largest_change, reverse=True)[:_MOST_OPERATIONS]
    kept = {operation.name for operation in largest}
    return [operation for operation in both if operation.name in kept], len(both) - len(largest)


def title_of(operation: ComparedOperation, comparison: Comparison) -> str:
    """Return an operation's name, and how many runs contain it if some do not."""
    base, new = (operation.base_runs, len(comparison.base)), (operation.new_runs, len(comparison.new))
    function = function_text(operation)
    name = name_of(operation) + (f"  {function}" if function else "")
    if base[0] == base[1] and new[0] == new[1]:
        return name
    return f"{name} (in {base[0]} of {base[1]} and {new[0]} of {new[1]} runs)"


def name_of(operation: ComparedOperation, length: int = _NAME) -> str:
    """Return an operation's name, shortened."""
    return shortened(printable(operation.title), length)


def function_text(operation: ComparedOperation) -> str:
    """Return what an operation called; if the sides differ, both."""
    sides = [" or ".join(signatures) for signatures in (operation.base_signatures, operation.new_signatures)]
    different = dict.fromkeys(shortened(printable(side), _FUNCTION) for side in sides)
    return " → ".join(side or UNKNOWN for side in different) if any(different) else ""


def notes(comparison: Comparison) -> Iterator[str]:
    """Yield explanations of the marks in the tables, and what only one side has."""
    of_operations = (of for operation in comparison.operations for of in operation.differences.values())
    every = [*comparison.figures.values(), *of_operations]
    if comparison.is_of_groups:
        yield from _about_groups(len(comparison.base), len(comparison.new))
    for difference in every:
        if difference.is_within_brackets:
            sides = (difference.base, difference.new)
            unit = unit_for(min(side.median for side in sides))
            base, new = (f"{unit.text(side.median)}–{unit.label(side.high)}" for side in sides)
            text = "both may be equal, as the brackets overlap:"
            yield f"{_UNCERTAIN} {difference.figure.label}: {text} base {base}, new {new}"
    peaks = [run.peak for run in (*comparison.base, *comparison.new)]
    if not comparison.is_of_groups and any(peaks):
        base, new = (printable(peak) or UNKNOWN for peak in peaks)
        yield f"RSS peak of base {base}, of new {new}"
    if any(stack.is_within_bounds for stack in comparison.stacks or ()):
        yield f"{_UNCERTAIN} code: it may have held the same: not all of it is certain"
    yield from _some("only in base", [figure.label for figure in comparison.only_base])
    yield from _some("only in new", [figure.label for figure in comparison.only_new])
    yield from only_one_side(comparison)


def only_one_side(comparison: Comparison) -> Iterator[str]:
    """Yield the operations that only one side has."""
    base = [name_of(operation) for operation in comparison.operations if not operation.new_runs]
    new = [name_of(operation) for operation in comparison.operations if not operation.base_runs]
    yield from _some("Operations only in base", base)
    yield from _some("Operations only in new", new)


def _some(where: str, names: Sequence[str]) -> Iterator[str]:
    if names:
        more = f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
        yield f"{where}: {', '.join(names[:_MOST_NAMES])}{more}"


def _about_groups(base: int, new: int) -> Iterator[str]:
    best, least = compared_figures.smallest_p(base, new), compared_figures.SIGNIFICANT
    yield f"medians, smallest and largest of {base} and {new} runs; p: exact Mann-Whitney rank test"
    if best > least:
        yield f"so few runs reach p = {best:.2g} at best: too few to show a significant difference (p ≤ {least})"
    else:
        yield f"{_EXCEEDS} the difference exceeds the spread (p ≤ {least}; this many runs can reach {best:.2g})"


MOST_ROWS = 10
_MOST_SETTINGS = 10
_BRIEF_NAME, _SETTING, _BRIEF_FUNCTION, _PLACE = 18, 80, 30, 100
"""Lengths of texts, in characters."""
_MOST = 0.5
"""Of the change of the peak."""
_PEAK_RSS = "peak_rss"
_COLUMNS = 5
"""Without p: what exceeds the spread is strong."""
_OF_RUN = (DURATION, CPU_TIME, "read_bytes", "write_bytes", compared_figures.MODEL_SIZE)
_HOST = "host"


def answer(comparison: Comparison, unit: MemoryUnit) -> str:
    """Return in one sentence how the peak changed, and which code holds most of the change."""
    difference = comparison.figures[_peak_name(comparison) or DURATION]
    text = _change_text(comparison, difference, unit)
    has_owner = difference.stands_out and difference.figure.name == _PEAK_RSS
    owner = _owner(comparison, difference, unit) if has_owner else ""
    return f"{text}: {owner}" if owner else text


def further(comparison: Comparison, unit: MemoryUnit) -> Iterator[str]:
    """Yield how the duration changed, whether the machines differ, and why it is unknown which code changed."""
    if _peak_name(comparison):
        yield _change_text(comparison, comparison.figures[DURATION], unit)
    if any(setting.name == _HOST for setting in comparison.settings):
        yield "The runs were on different hosts"
    runs = [*comparison.base, *comparison.new]
    without = [run for run in runs if run.stacks is None]
    if comparison.stacks is None and len(without) < len(runs):
        remedy = without[0].why_no_stacks or "record it with `nncf-tools profile`"
        yield printable(f"Which code changed is unknown: {without[0].title} has no stacks; {remedy}")


def _change_text(comparison: Comparison, difference: Difference, unit: MemoryUnit) -> str:
    figure, change = difference.figure, difference.change
    in_unit, write = writer(figure, max(*difference.base.values, *difference.new.values), unit)
    name = "Peak memory" if figure.name == _PEAK_RSS else figure.label
    runs = f"{len(comparison.base)} and {len(comparison.new)} runs"
    if not difference.stands_out:
        base, new = write(difference.base.median), write(difference.new.median)
        between = f"({base} → {new} {in_unit})"
        if base == new:
            return f"{name} did not change ({new} {in_unit})"
        if difference.is_within_brackets:
            return f"{name} may be the same {between}: neither peak is known exactly enough"
        if difference.is_beyond_spread is False:
            return f"{name} did not change by more than the spread of {runs} {between}"
        return f"{name} hardly changed {between}"
    brief = unit.brief if figure.is_peak else write
    between = f"{brief(difference.base.median)} → {brief(difference.new.median)} {in_unit}"
    by = f"by {write(abs(change))} {in_unit} ({between}, {_percent(difference.percent)})"
    text = f"{name} {'fell' if change < 0 else 'rose'} {by}"
    if difference.p is None:
        return text
    if difference.exceeds_spread:
        return f"{text}, more than the spread of {runs}"
    return f"{text}, with every run of new {'below' if change < 0 else 'above'} every run of base"


def _share(places: Sequence[GrownStack], peak: Difference) -> float:
    return sum(place.change for place in places) / peak.change


_WHOLE = 1.05
"""A part that is larger than the whole change by less is that change: sizes are likely ones."""


def _owner(comparison: Comparison, peak: Difference, unit: MemoryUnit) -> str:
    """Return the code that holds most of the change of the RSS peak: a place, else an own function; empty for neither.

    No part is larger than the change: if code holds more than that, other code holds less than before.
    """
    stacks = comparison.stacks or ()
    owners = dict.fromkeys(place.owner for place in stacks)
    groups = [[place for place in stacks if place.owner == owner] for owner in owners]
    best: list[GrownStack] = []
    for every in ([[place] for place in stacks], groups):
        large = [places for places in every if _share(places, peak) >= _MOST]
        if large:  # where others took and gave, the one nearest to the whole explains it
            best = best or min(large, key=lambda places: abs(_share(places, peak) - 1))
    if not best:
        return ""
    share = _share(best, peak)
    label = shortened(printable(best[0].label if len(best) == 1 else best[0].owner), _PLACE)
    likely = "likely " if any(place.is_within_bounds for place in best) else ""
    if share > _WHOLE:
        return f"all of it {likely}{label}; other code holds {'more' if peak.change < 0 else 'less'}"
    return f"most of it {likely}{label}, {signed(unit.brief(min(1.0, share) * peak.change))} {unit}"


def gate_text(verdicts: Sequence[Verdict]) -> str:
    """Return how many gates failed: ``"1 of 2 gates failed"``; empty without gates."""
    failed = sum(not of.passed for of in verdicts)
    number = len(verdicts)
    if not verdicts:
        return ""
    if failed:
        return "The gate failed" if number == 1 else f"{failed} of {number} gates failed"
    return "The gate passed" if number == 1 else f"All {number} gates passed"


def brief(comparison: Comparison, unit: MemoryUnit) -> Table:
    """Return the main figures of the runs, then of operations those that changed by more than noise.

    What changed by more than noise is strong. The function of an operation is there where both sides have the same;
    where they differ, it is one of the settings.
    """
    of_devices = [name for name in comparison.figures if name.startswith(f"peak_{DEVICE_MEMORY}@")]
    names = dict.fromkeys((_peak_name(comparison) or "", *of_devices, *_OF_RUN))
    of_run = [comparison.figures[name] for name in names if name in comparison.figures]
    known = [of for of in of_run if of.figure.is_peak or of.base.median or of.new.median]
    rows = [_row(cells(of, unit), of) for of in known]
    for operation, difference in changed_most(comparison, MOST_ROWS - len(rows)):
        what = "peak" if difference.figure.is_peak else "duration"
        shown = cells(difference, unit, f"{name_of(operation, _BRIEF_NAME)}: {what}")
        is_same = operation.base_signatures == operation.new_signatures
        function = shortened(function_text(operation), _BRIEF_FUNCTION) if is_same else ""
        rows.append(_row(shown, difference, function))
    return _table(rows, _COLUMNS)


def changed_most(comparison: Comparison, most: int) -> list[tuple[ComparedOperation, Difference]]:
    """Return the peaks and durations of operations that changed by more than noise, in the order of the run.

    Of too many, those that changed most as a share of the run's own figure.
    """
    names = [name for name in (_peak_name(comparison), DURATION) if name in comparison.figures]
    both = [(operation, operation.differences.get(name or "")) for operation in comparison.operations for name in names]
    changed = [(operation, of) for operation, of in both if of is not None and of.stands_out]

    def share(of: tuple[ComparedOperation, Difference]) -> float:
        whole = comparison.figures[of[1].figure.name].base.median
        return abs(of[1].change) / whole if whole else 0.0

    kept = {id(of[1]) for of in sorted(changed, key=share, reverse=True)[:most]}
    return [of for of in changed if id(of[1]) in kept]


def settings(comparison: Comparison) -> Table:
    """Return what the runs were asked to do differently."""
    every = [(setting.name, setting.base, setting.new) for setting in comparison.settings]
    rows = [[shortened(printable(text), _SETTING) or UNKNOWN for text in row] for row in every[:_MOST_SETTINGS]]
    left_out = len(every) - len(rows)
    return _of_texts(("Differs", "Base", "New"), rows, f"and {left_out:,} more settings" if left_out else "")


def _row(shown: list[Cell], difference: Difference, function: str = "") -> Row:
    strong = [cell._replace(is_strong=difference.stands_out and cell.is_strong) for cell in shown]
    return Row(cells=strong, function=function)


def _peak_name(comparison: Comparison) -> str | None:
    """Return the figure that the answer is about: the peak of RSS, else of the first memory metric."""
    if _PEAK_RSS in comparison.figures:
        return _PEAK_RSS
    return next((name for name, difference in comparison.figures.items() if difference.figure.is_peak), None)


_MOST_REPEATED_OPERATIONS = 6
_REPEATED_NAME = 30


def repeats(runs: Sequence[Run], metrics: Sequence[str], unit: MemoryUnit) -> Table:
    """Return the figures of runs: peaks of ``metrics``, time, storage, and the time of the longest operations."""
    columns = [Column("", is_text=True), *map(Column, ("Median", "Smallest", "Largest", "Spread"))]
    names = [*(f"peak_{name}" for name in metrics), *_OF_RUN]
    figures = [run.figures for run in runs]
    rows = [row for name in names for row in _repeated_row(name, "", figures, unit)]
    for title, values in longest_in_all(runs, _MOST_REPEATED_OPERATIONS, median):
        rows += _repeated_row(DURATION, f"{shortened(printable(title), _REPEATED_NAME)}: duration", values, unit)
    return Table(columns=columns, rows=rows)


def _repeated_row(name: str, label: str, runs: Sequence[Values], unit: MemoryUnit) -> Iterator[Row]:
    """Yield the row of a figure, unless no run knows it, or no run read or wrote anything."""
    figure = compared_figures.figure_of(name)
    values = [of[name].low for of in runs if name in of]
    if figure is None or not values or not (max(values) or figure.is_peak or name in {DURATION, CPU_TIME}):
        return
    in_unit, write = writer(figure, max(values), unit)
    middle = median(values)
    spread = f"{(max(values) - min(values)) / middle:.1%}" if middle else UNKNOWN
    sizes = [Cell(write(middle), is_strong=True), Cell(write(min(values))), Cell(write(max(values)))]
    yield Row(cells=[Cell(f"{label or figure.label}, {in_unit}"), *sizes, Cell(spread)])
