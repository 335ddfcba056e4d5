"""The tables and sentences of a comparison of sessions, and the table of repeated runs of a command.

The short form of a comparison has an answer, at most ten rows of numbers, and the settings that differ. The long form
has all numbers. The table of repeated runs has the median, smallest value, largest value and spread of each number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from math import inf
from statistics import median

from nncftools.analysis import figures as compared_figures
from nncftools.analysis.comparison import ComparedOperation, Comparison, Run, longest_in_all
from nncftools.analysis.figures import CPU_TIME, DURATION, Difference, Figure, GrownStack, Values
from nncftools.analysis.gates import Verdict
from nncftools.analysis.summary import unit_for
from nncftools.metrics import DEVICE_MEMORY
from nncftools.render.listing import keep_largest
from nncftools.render.table import Cell, Column, Row, Table, make_columns, signed
from nncftools.render.view import brief_label, clip
from nncftools.units import UNKNOWN, MemoryUnit, fixed, printable, seconds_text, shortened

Judged = tuple[Comparison, Sequence[Verdict]]
"""A comparison and the results of its gates (limits for measured values, such as ``peak_rss>1GiB``)."""
Write = Callable[[float], str]
"""A function that writes a number in a fixed unit, without the name of the unit."""

STACKS = "Code at the RSS peak"
_COMMAND = 200
"""Longest command in a table, in characters; the next two constants limit names and functions."""
_NAME = 60
_FUNCTION = 70
_MOST_OPERATIONS = 30
"""Largest number of operations in the long table of a comparison. The operations with the largest changes are shown."""
_MOST_NAMES = 10
_MOST_RUNS = 3
_UNCERTAIN = "~"
_EXCEEDS = "*"
_TIME_UNITS = (
    (3 * 3600, 3600, "h"),
    (600, 60, "min"),
    (-inf, 1, "s"),
)
"""Units of time: the smallest time that is written in the unit, the length of the unit in seconds, and the name."""
_SMALLEST_SHOWN_P = 0.001
_MANY_TIMES_P = 900
"""A change of at least this percentage is written as a factor: ``12×``."""
_THOUSAND_TIMES_P = 99_899.5


def figures(comparison: Comparison, unit: MemoryUnit) -> Table:
    """Return all measured values of the runs, then those of each operation; ``unit`` is the unit of memory peaks."""
    rows = list(_make_rows(comparison.figures, unit))
    operations, left_out = _select_operations(comparison.operations)
    for operation in operations:
        rows.append(
            Row(
                cells=[Cell("")] * (1 + _COLUMNS),
                heading=_write_title(operation, comparison),
            )
        )
        rows += _make_rows(operation.differences, unit, depth=1)
    more = f"and {left_out:,} operations that changed less" if left_out else ""
    return _make_table(rows, _COLUMNS + comparison.is_of_groups, more)


def _make_table(rows: Sequence[Row], count: int, more: str = "") -> Table:
    columns = make_columns("", ("Base", "New", "Change ", "", "p  "))
    return Table(columns=columns, rows=rows, more=more).with_columns(range(count))


def _make_rows(differences: Mapping[str, Difference], unit: MemoryUnit, depth: int = 0) -> Iterator[Row]:
    """Yield a row for each measured value, but none for a counter that is 0 on both sides."""
    for difference in differences.values():
        if _is_worth_a_row(difference.figure, [difference.base.median, difference.new.median]):
            yield Row(cells=_make_cells(difference, unit, difference.figure.label), depth=depth)


def _is_worth_a_row(figure: Figure, values: Sequence[float]) -> bool:
    return any(values) or figure.is_peak or figure.name in {DURATION, CPU_TIME}


def _make_cells(difference: Difference, unit: MemoryUnit, label: str) -> list[Cell]:
    base = difference.base
    new = difference.new
    name, write = _choose_unit(difference.figure, [*base.values, *new.values], unit)
    change = signed(write(difference.change))
    uncertain = _UNCERTAIN if difference.is_within_brackets else " "
    return [
        Cell(f"{label}, {name}" if name else label),
        Cell(write(base.median), below=_write_range(write, base.values)),
        Cell(write(new.median), below=_write_range(write, new.values)),
        Cell(f"{change}{uncertain}", is_strong=any(digit in "123456789" for digit in change)),
        Cell(_write_percent(difference.percent)),
        Cell(_write_p(difference)),
    ]


def _choose_unit(figure: Figure, values: Sequence[float], unit: MemoryUnit) -> tuple[str, Write]:
    """Return the name of the unit for a measured value, and a function that writes numbers in this unit.

    Memory peaks are in ``unit``. Any other value is in the unit that suits the largest value.
    """
    highest = max(values)
    if figure.unit == "B":
        size_unit = unit if figure.is_peak else unit_for(highest)
        return f"{size_unit}", size_unit.text
    if figure.unit != "s":
        return "", partial(fixed, decimals=0)
    factor, name = next((factor, name) for from_s, factor, name in _TIME_UNITS if highest >= from_s)
    decimals = 1
    if highest < factor:
        decimals = 3
    elif highest < 100 * factor:
        decimals = 2
    return name, lambda seconds: fixed(seconds / factor, decimals)


def stacks(comparison: Comparison, unit: MemoryUnit) -> Table:
    """Return the table of the code whose memory at the RSS peak differs between the sides."""
    columns = [
        Column("Base", unit=f"{unit}"),
        Column("New"),
        Column("Change "),
        Column(STACKS, is_text=True),
    ]
    rows = []
    for stack in comparison.stacks or ():
        uncertain = _UNCERTAIN if stack.is_within_bounds else " "
        change = Cell(f"{signed(unit.text(stack.change))}{uncertain}", is_strong=True)
        cells = [
            Cell(unit.text(stack.base)),
            Cell(unit.text(stack.new)),
            change,
            Cell(stack.label),
        ]
        rows.append(Row(cells=cells))
    return Table(columns=columns, rows=rows)


def _write_range(write: Write, values: Sequence[float]) -> str:
    lowest = write(min(values))
    highest = write(max(values))
    return f"{lowest}–{highest}" if lowest != highest else ""


def _write_percent(percent: float | None) -> str:
    if percent is None:
        return UNKNOWN
    if percent < _MANY_TIMES_P:
        return f"{signed(fixed(percent, 1))}%"
    return f"{1 + percent / 100:.3g}×" if percent < _THOUSAND_TIMES_P else ">1,000×"


def _write_p(difference: Difference) -> str:
    if difference.p is None:
        return ""
    text = f"{difference.p:.3f}" if difference.p >= _SMALLEST_SHOWN_P else f"<{_SMALLEST_SHOWN_P}"
    return f"{text} {_EXCEEDS if difference.exceeds_spread else ' '}"


def sides(comparison: Comparison) -> Table:
    """Return the table with the sessions and the command of both sides."""
    rows = []
    for side, runs in (("Base", comparison.base), ("New", comparison.new)):
        command = clip(runs[0].command, _COMMAND)
        rows.append([side, runs_text(runs), command])
    return _make_text_table(("", "Session", "Command"), rows)


def _make_text_table(headings: Iterable[str], texts: Iterable[Iterable[str]], more: str = "") -> Table:
    columns = [Column(heading, is_text=True) for heading in headings]
    cells = [[Cell(printable(text)) for text in row] for row in texts]
    rows = [Row(cells=row) for row in cells]
    return Table(columns=columns, rows=rows, more=more)


def gates(verdicts: Sequence[Verdict]) -> Table:
    """Return the table with the results of gates (limits for measured values, such as ``peak_rss>1GiB``)."""
    rows = []
    for verdict in verdicts:
        cells = [
            Cell(printable(verdict.gate.text)),
            Cell("passed" if verdict.passed else "failed", is_strong=not verdict.passed),
            Cell(printable(verdict.measured)),
        ]
        rows.append(Row(cells=cells))
    return replace(_make_text_table(("Gate", "", "Measured"), []), rows=rows)


def runs_text(runs: Sequence[Run]) -> str:
    """Return the names of runs; for more than three runs, only the first and the last name."""
    titles = [run.title for run in runs]
    if len(titles) == 1:
        return titles[0]
    names = titles if len(titles) <= _MOST_RUNS else [titles[0], "…", titles[-1]]
    return f"{len(titles)} runs: {', '.join(names)}"


def _select_operations(operations: Iterable[ComparedOperation]) -> tuple[list[ComparedOperation], int]:
    """Return the operations that changed most, in the order of the run, and the number of operations that changed less.

    Only operations that ran on both sides are returned or counted.
    """
    both = [operation for operation in operations if operation.base_runs and operation.new_runs]

    def measure_change(operation: ComparedOperation) -> tuple[float, float]:
        """Return the largest change of a peak in bytes, and the change of the duration in seconds."""
        differences = operation.differences
        peaks = [abs(difference.change) for difference in differences.values() if difference.figure.is_peak]
        duration_s = abs(differences[DURATION].change) if DURATION in differences else 0.0
        return max(peaks, default=0), duration_s

    changed_most = keep_largest(both, _MOST_OPERATIONS, measure_change)
    return changed_most, len(both) - len(changed_most)


def _write_title(operation: ComparedOperation, comparison: Comparison) -> str:
    """Return the name and the function of an operation.

    If some runs do not have the operation, the text also says how many runs have the operation.
    """
    function = _write_function(operation)
    name = _write_name(operation) + (f"  {function}" if function else "")
    base = len(comparison.base)
    new = len(comparison.new)
    if operation.base_runs == base and operation.new_runs == new:
        return name
    return f"{name} (in {operation.base_runs} of {base} and {operation.new_runs} of {new} runs)"


def _write_name(operation: ComparedOperation, length: int = _NAME) -> str:
    return clip(operation.title, length)


def _write_function(operation: ComparedOperation) -> str:
    """Return the function that an operation called; if the sides differ, ``old_function → new_function``."""
    sides = (operation.base_signatures, operation.new_signatures)
    texts = [clip(" or ".join(side), _FUNCTION) for side in sides]
    if not any(texts):
        return ""
    return " → ".join(text or UNKNOWN for text in dict.fromkeys(texts))


def notes(comparison: Comparison) -> Iterator[str]:
    """Yield explanations of the signs in the tables, and lists of the operations and metrics that only one side has."""
    differences = [("", difference) for difference in comparison.figures.values()]
    for operation in comparison.operations:
        title = f"{clip(operation.title, _FUNCTION)}: "
        differences += [(title, difference) for difference in operation.differences.values()]
    if comparison.is_of_groups:
        yield from _explain_groups(len(comparison.base), len(comparison.new))
    for title, difference in differences:
        if difference.is_within_brackets:
            unit = unit_for(difference.base.median)
            base, new = (f"{unit.text(of.median)}–{unit.label(of.high)}" for of in (difference.base, difference.new))
            text = f"both may be equal, because their bounds overlap: base {base}, new {new}"
            yield f"{_UNCERTAIN} {title}{difference.figure.label}: {text}"
    peaks = [printable(run.peak) for run in (*comparison.base, *comparison.new)]
    if not comparison.is_of_groups and any(peaks):
        yield f"RSS peak of base {peaks[0] or UNKNOWN}, of new {peaks[1] or UNKNOWN}"
    if any(stack.is_within_bounds for stack in comparison.stacks or ()):
        yield f"{_UNCERTAIN} code: both sizes may be equal, because they are not exactly known"
    yield from _list_names("only in base", [figure.label for figure in comparison.only_base])
    yield from _list_names("only in new", [figure.label for figure in comparison.only_new])
    yield from only_one_side(comparison)


def only_one_side(comparison: Comparison) -> Iterator[str]:
    """Yield, for each side, a line with the operations that only this side has."""
    base = [_write_name(operation) for operation in comparison.operations if not operation.new_runs]
    new = [_write_name(operation) for operation in comparison.operations if not operation.base_runs]
    yield from _list_names("Operations only in base", base)
    yield from _list_names("Operations only in new", new)


def _list_names(heading: str, names: Sequence[str]) -> Iterator[str]:
    if names:
        more = f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
        yield f"{heading}: {', '.join(names[:_MOST_NAMES])}{more}"


def _explain_groups(base: int, new: int) -> Iterator[str]:
    best = compared_figures.smallest_p(base, new)
    least = compared_figures.SIGNIFICANT
    yield f"medians, smallest and largest of {base} and {new} runs; p: exact Mann-Whitney rank test"
    if best > least:
        yield f"too few runs for a significant difference: p ≤ {least} is needed, {best:.2g} is the smallest possible"
    else:
        yield f"{_EXCEEDS} the difference exceeds the spread (p ≤ {least}; {best:.2g} is the smallest possible)"


MOST_ROWS = 10
_MOST_SETTINGS = 10
_BRIEF_NAME = 18
"""Longest name of an operation in the short form, in characters; the next three constants limit other texts."""
_SETTING = 80
_BRIEF_FUNCTION = 30
_PLACE = 100
_MOST = 0.5
"""Code is named as the cause if its memory changed by at least this share of the change of the peak."""
_PEAK_RSS = "peak_rss"
_COLUMNS = 5
"""Number of columns after the name in a table of numbers that has no column for p-values."""
_OF_RUN = (DURATION, CPU_TIME, "read_bytes", "write_bytes", compared_figures.MODEL_SIZE)
_HOST = "host"
_HOSTS = "The runs were on different hosts"


def answer(comparison: Comparison, unit: MemoryUnit) -> str:
    """Return a sentence about the change of the peak, and about the code that holds most of the change."""
    difference = comparison.figures[_choose_peak(comparison.figures) or DURATION]
    text = _describe_change(comparison, difference, unit)
    owner = ""
    if difference.stands_out and difference.figure.name == _PEAK_RSS:
        owner = _describe_owner(comparison, difference, unit)
    return f"{text}: {owner}" if owner else text


def further(comparison: Comparison, unit: MemoryUnit) -> Iterator[str]:
    """Yield the change of the duration, a note if the hosts differ, and the reason if the changed code is unknown."""
    if _choose_peak(comparison.figures):
        yield _describe_change(comparison, comparison.figures[DURATION], unit)
    if any(setting.name == _HOST for setting in comparison.settings):
        yield _HOSTS
    runs = [*comparison.base, *comparison.new]
    without = [run for run in runs if run.stacks is None]
    if comparison.stacks is None and len(without) < len(runs):
        remedy = without[0].why_no_stacks or "record it with `nncf-tools profile`"
        yield printable(f"Which code changed is unknown: {without[0].title} has no stacks; {remedy}")


def _describe_change(comparison: Comparison, difference: Difference, unit: MemoryUnit) -> str:
    figure = difference.figure
    name = "Peak memory" if figure.name == _PEAK_RSS else figure.label
    values = [*difference.base.values, *difference.new.values]
    unit_name, write = _choose_unit(figure, values, unit)
    base = write(difference.base.median)
    new = write(difference.new.median)
    between = f"({base} → {new} {unit_name})"
    runs = f"{len(comparison.base)} and {len(comparison.new)} runs"
    if not difference.stands_out:
        if base == new:
            return f"{name} did not change ({new} {unit_name})"
        if difference.is_within_brackets:
            return f"{name} may be the same {between}: the peaks are not known exactly enough"
        if difference.is_beyond_spread is False:
            return f"{name} did not change by more than the spread of {runs} {between}"
        return f"{name} hardly changed {between}"
    if figure.is_peak:
        base = unit.brief(difference.base.median)
        new = unit.brief(difference.new.median)
    fell = difference.change < 0
    percent = _write_percent(difference.percent)
    change = f"{write(abs(difference.change))} {unit_name} ({base} → {new} {unit_name}, {percent})"
    text = f"{name} {'fell' if fell else 'rose'} by {change}"
    if difference.p is None:
        return text
    if difference.exceeds_spread:
        return f"{text}, more than the spread of {runs}"
    return f"{text}; every run of new is {'below' if fell else 'above'} every run of base"


_WHOLE = 1.05
"""The text names the code that caused at least half of the peak's change. The text says "all of it" if the memory of
this code changed by more than 1.05 times the peak's change: other code then changed in the opposite direction.
Otherwise the text says "most of it". The limit is above 1 because a small excess may be an error of the estimated
sizes."""


def _describe_owner(comparison: Comparison, peak: Difference, unit: MemoryUnit) -> str:
    """Return the code whose memory caused at least half of the change of the RSS peak; empty if there is no such code.

    The code is a single line. If no line caused half of the change, the code is a function of the program, with all
    lines that the function runs. If the memory of the code grew by more than the peak grew, the text says that other
    code holds less than before.
    """
    lines = []
    owners: dict[object, list[GrownStack]] = {}
    for stack in comparison.stacks or ():
        lines.append([stack])
        owners.setdefault(stack.owner, []).append(stack)

    def share(group: Sequence[GrownStack]) -> float:
        return sum(stack.change for stack in group) / peak.change

    large = [line for line in lines if share(line) >= _MOST]
    large = large or [owner for owner in owners.values() if share(owner) >= _MOST]
    if not large:
        return ""
    best = min(large, key=lambda group: abs(share(group) - 1))
    name = best[0].label if len(best) == 1 else best[0].owner
    label = clip(name, _PLACE)
    likely = "likely " if any(stack.is_within_bounds for stack in best) else ""
    if share(best) > _WHOLE:
        return f"all of it {likely}{label}; other code holds {'more' if peak.change < 0 else 'less'}"
    return f"most of it {likely}{label}, {signed(brief_label(min(1.0, share(best)) * peak.change, unit))}"


def gate_text(verdicts: Sequence[Verdict]) -> str:
    """Return how many gates (limits for measured values) failed: ``1 of 2 gates failed``; empty without gates."""
    failed = sum(not verdict.passed for verdict in verdicts)
    number = len(verdicts)
    if not verdicts:
        return ""
    if failed:
        return "The gate failed" if number == 1 else f"{failed} of {number} gates failed"
    return "The gate passed" if number == 1 else f"All {number} gates passed"


def brief(comparison: Comparison, unit: MemoryUnit) -> Table:
    """Return the table of the run's main numbers, and of operations that changed by more than noise.

    Changes by more than noise are bold. If an operation called the same function in both runs, the row names the
    function. Otherwise, the row names no function; the function ``settings`` makes a table that lists both.
    """
    devices = [name for name in comparison.figures if name.startswith(f"peak_{DEVICE_MEMORY}@")]
    names = dict.fromkeys((_choose_peak(comparison.figures) or "", *devices, *_OF_RUN))
    rows = []
    for name in names:
        difference = comparison.figures.get(name)
        if difference is None:
            continue
        if difference.figure.is_peak or difference.base.median or difference.new.median:
            rows.append(_make_brief_row(difference, unit, difference.figure.label))
    for operation, difference in _select_changed(comparison, MOST_ROWS - len(rows)):
        figure = "peak" if difference.figure.is_peak else "duration"
        label = f"{_write_name(operation, _BRIEF_NAME)}: {figure}"
        is_same = operation.base_signatures == operation.new_signatures
        function = shortened(_write_function(operation), _BRIEF_FUNCTION) if is_same else ""
        rows.append(_make_brief_row(difference, unit, label, function))
    return _make_table(rows, _COLUMNS)


def _make_brief_row(difference: Difference, unit: MemoryUnit, label: str, function: str = "") -> Row:
    cells = _make_cells(difference, unit, label)
    if not difference.stands_out:
        cells = [cell._replace(is_strong=False) for cell in cells]
    return Row(cells=cells, function=function)


def _select_changed(comparison: Comparison, most: int) -> list[tuple[ComparedOperation, Difference]]:
    """Return the peaks and durations of operations that changed by more than noise, in the order of the run.

    If there are more than ``most`` such changes, return the largest. A change is measured as a share of the peak or the
    duration of the whole run.
    """
    names = [name for name in (_choose_peak(comparison.figures), DURATION) if name in comparison.figures]
    changed = []
    for operation in comparison.operations:
        for name in names:
            difference = operation.differences.get(name or "")
            if difference is not None and difference.stands_out:
                changed.append((operation, difference))

    def measure_share(row: tuple[ComparedOperation, Difference]) -> float:
        whole = comparison.figures[row[1].figure.name].base.median
        return abs(row[1].change) / whole if whole else 0.0

    return keep_largest(changed, most, measure_share)


def settings(comparison: Comparison) -> Table:
    """Return the table of the settings that differ between the two sides."""
    rows = []
    for setting in comparison.settings[:_MOST_SETTINGS]:
        texts = (setting.name, setting.base, setting.new)
        rows.append([clip(text, _SETTING) or UNKNOWN for text in texts])
    left_out = len(comparison.settings) - len(rows)
    return _make_text_table(("Differs", "Base", "New"), rows, f"and {left_out:,} more settings" if left_out else "")


def _choose_peak(figures: Iterable[str]) -> str | None:
    """Return the key of the RSS peak, or else of the peak of the first memory metric; None without memory metrics."""
    peaks = [name for name in figures if name.startswith(compared_figures.PEAK)]
    return _PEAK_RSS if _PEAK_RSS in peaks else next(iter(peaks), None)


def name_runs(runs: Sequence[Run]) -> Sequence[str]:
    """Return a name for each run: the name that the user gave, or else the file name.

    If two of these names are equal, return the file names of all runs.
    """
    files = [run.title.removesuffix("/session.json") for run in runs]
    names = [run.name or file for run, file in zip(runs, files, strict=True)]
    return [*map(printable, names if len({*names}) == len(runs) else files)]


def describe_many(judged: Sequence[Judged], unit: MemoryUnit) -> tuple[str, Table]:
    """Return a sentence about the run with the lowest peak, and a table of all runs compared with the first."""
    comparisons = [comparison for comparison, _ in judged]
    runs = [comparison.new[0] for comparison in comparisons]
    runs.insert(0, comparisons[0].base[0])
    names = name_runs(runs)
    first = runs[0].figures
    main = _choose_peak(first) or DURATION
    label = compared_figures.known_figure(main).label
    columns = make_columns("Run", (label, "", "Duration", "", "CPU time", ""))
    rows = []
    for name, run in zip(names, runs, strict=True):
        cells = [Cell(name)]
        differences = compared_figures.find_differences([first], [run.figures])
        for figure in (main, DURATION, CPU_TIME):
            value = run.figures.get(figure)
            write = unit.label if figure.startswith(compared_figures.PEAK) else seconds_text
            cells.append(Cell(write(value and value.low)))
            cells.append(_make_change_cell(differences.get(figure)))
        rows.append(Row(cells=cells))
    verdicts = chain.from_iterable(verdicts for _, verdicts in judged)
    notes = [gate_text([*verdicts])]
    if len({run.facts[_HOST] for run in runs}) > 1:
        notes.append(_HOSTS)
    for run in runs:
        notes += [f"{printable(run.title)} {remark}" for remark in run.remarks]
    known = [run for run in runs if main in run.figures]
    lowest = min(known, key=lambda run: run.figures[main].low)
    best = runs.index(lowest)
    text = f"{names[best]} has the lowest {label} of {len(runs)} runs"
    if best:
        text += f". Compared with {names[0]}: {answer(comparisons[best - 1], unit)}"
    return text, Table(columns=columns, rows=rows, notes=notes)


def _make_change_cell(difference: Difference | None) -> Cell:
    if difference is None or not difference.change:
        return Cell("")
    return Cell(_write_percent(difference.percent), is_strong=difference.stands_out)


_MOST_REPEATED_OPERATIONS = 6
_REPEATED_NAME = 30


def repeats(runs: Sequence[Run], metrics: Sequence[str], unit: MemoryUnit) -> Table:
    """Return the table of repeated runs: peaks, time, storage, and the durations of the longest operations."""
    figures = [run.figures for run in runs]
    rows: list[Row] = []
    for name in (*(f"peak_{metric}" for metric in metrics), *_OF_RUN):
        rows += _make_repeated_row(name, "", figures, unit)
    for title, values in longest_in_all(runs, _MOST_REPEATED_OPERATIONS, median):
        label = f"{clip(title, _REPEATED_NAME)}: duration"
        rows += _make_repeated_row(DURATION, label, values, unit)
    return Table(columns=make_columns("", ("Median", "Smallest", "Largest", "Spread")), rows=rows)


def _make_repeated_row(name: str, label: str, runs: Sequence[Values], unit: MemoryUnit) -> Iterator[Row]:
    figure = compared_figures.figure_of(name)
    values = [run[name].low for run in runs if name in run]
    if figure is None or not values or not _is_worth_a_row(figure, values):
        return
    unit_name, write = _choose_unit(figure, values, unit)
    middle = median(values)
    spread = f"{(max(values) - min(values)) / middle:.1%}" if middle else UNKNOWN
    yield Row(
        cells=[
            Cell(f"{label or figure.label}, {unit_name}"),
            Cell(write(middle), is_strong=True),
            Cell(write(min(values))),
            Cell(write(max(values))),
            Cell(spread),
        ]
    )
