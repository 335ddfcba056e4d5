"""The tables of a comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nncftools.analysis.comparison import CPU_TIME, DURATION, SIGNIFICANT, smallest_p, unit_for
from nncftools.render.tables.table import Column, Row, Table, Words
from nncftools.text import printable, shortened
from nncftools.units import UNKNOWN, MemoryUnit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from nncftools.analysis.comparison import ComparedOperation, Comparison, Difference, Run, Side
    from nncftools.analysis.gates import Verdict

_COMMAND = 200
_NAME = 60
_MANY = 30
"""Operations; of more those are shown whose figures changed most."""
_NAMED = 3
_UNCERTAIN = "~"
_EXCEEDS = "*"
_MINUTES_FROM_S = 600
_HOURS_FROM_S = 3 * 3600
_SMALLEST_SHOWN_P = 0.001
_NO_DECIMALS_FROM = 10


def figures(comparison: Comparison, differences: Mapping[str, Difference], unit: MemoryUnit) -> Table:
    """Return the figures of the run or of one operation; peaks in ``unit``, what was counted in one that fits."""
    columns = [Column("", is_text=True), *map(Column, ("Base", "New", "Change ", ""))]
    if comparison.is_of_groups:
        columns.append(Column("p  "))
    shown = _notable(differences)
    return Table(columns=columns, rows=[Row(cells=_cells(one, unit)[: len(columns)]) for one in shown])


def _cells(difference: Difference, unit: MemoryUnit) -> list[Words]:
    figure, base, new = difference.figure, difference.base, difference.new
    highest = max(*base.values, *new.values)
    write: _InBytes | _InSeconds | _InNumber
    if figure.unit == "B":
        write = _InBytes(unit if figure.is_peak else unit_for(highest))
    else:
        write = _InSeconds(highest) if figure.unit == "s" else _InNumber()
    change = _signed(write.text(difference.change))
    return [
        Words(f"{figure.label}, {write.unit}" if write.unit else figure.label),
        Words(write.text(base.median), below=_range(write, base.values)),
        Words(write.text(new.median), below=_range(write, new.values)),
        Words(f"{change}{_UNCERTAIN if difference.is_within_brackets else ' '}", is_strong=difference.change != 0),
        Words(_percent(difference.percent)),
        Words(_p(difference)),
    ]


class _InNumber:
    unit = ""

    def text(self, number: float) -> str:
        return f"{number:z,.0f}"


class _InBytes:
    def __init__(self, unit: MemoryUnit) -> None:
        self.unit = unit

    def text(self, size: float) -> str:
        return self.unit.text(size)


class _InSeconds:
    """Seconds, minutes or hours with as many decimals as leave three digits or more."""

    def __init__(self, highest_s: float) -> None:
        long = ((_HOURS_FROM_S, "h", 3600), (_MINUTES_FROM_S, "min", 60))
        self.unit, self._factor = next(((unit, of) for from_s, unit, of in long if highest_s >= from_s), ("s", 1))
        highest = highest_s / self._factor
        self._decimals = next((decimals for below, decimals in ((1, 3), (100, 2)) if highest < below), 1)

    def text(self, seconds: float) -> str:
        return f"{seconds / self._factor:z,.{self._decimals}f}"


def _range(write: _InBytes | _InSeconds | _InNumber, values: Sequence[float]) -> str:
    lowest, highest = write.text(min(values)), write.text(max(values))
    return f"{lowest}–{highest}" if lowest != highest else ""


def _signed(text: str) -> str:
    is_zero_or_less = text.startswith("-") or not text.strip("0.,")
    return text if is_zero_or_less else f"+{text}"


def _percent(percent: float | None) -> str:
    if percent is None:
        return UNKNOWN
    return _signed(f"{percent:z,.{0 if abs(percent) >= _NO_DECIMALS_FROM * 100 else 1}f}") + "%"


def _p(difference: Difference) -> str:
    if difference.p is None:
        return ""
    text = f"{difference.p:.3f}" if difference.p >= _SMALLEST_SHOWN_P else f"<{_SMALLEST_SHOWN_P}"
    return f"{text} {_EXCEEDS if difference.exceeds_spread else ' '}"


def sides(comparison: Comparison) -> Table:
    """Return what is compared: sessions and commands."""
    columns = [Column(heading, is_text=True) for heading in ("", "Session", "Command")]
    rows = [
        Row(cells=(Words(side), Words(printable(runs_text(runs))), Words(_command(runs))))
        for side, runs in (("Base", comparison.base), ("New", comparison.new))
    ]
    return Table(columns=columns, rows=rows)


def _command(runs: Sequence[Run]) -> str:
    return shortened(printable(runs[0].command), _COMMAND)


def gates(verdicts: Sequence[Verdict]) -> Table:
    """Return what came of gates."""
    columns = [Column(heading, is_text=True) for heading in ("Gate", "", "Measured")]
    rows = [
        Row(
            cells=(
                Words(printable(verdict.gate.text)),
                Words("passed" if verdict.passed else "failed", is_strong=not verdict.passed),
                Words(printable(verdict.measured)),
            )
        )
        for verdict in verdicts
    ]
    return Table(columns=columns, rows=rows)


def runs_text(runs: Sequence[Run]) -> str:
    """Return the names of runs, those of a large group shortened to the first and last."""
    titles = [run.title for run in runs]
    if len(titles) == 1:
        return titles[0]
    listed = titles if len(titles) <= _NAMED else [titles[0], "…", titles[-1]]
    return f"{len(titles)} runs: {', '.join(listed)}"


def shown(operations: Iterable[ComparedOperation]) -> tuple[list[ComparedOperation], int]:
    """Return the operations of both sides to show, in their order, and how many others there are."""
    both = [operation for operation in operations if operation.base_runs and operation.new_runs]
    largest = sorted(both, key=_largest_change, reverse=True)[:_MANY]
    kept = {operation.name for operation in largest}
    return [operation for operation in both if operation.name in kept], len(both) - len(largest)


def _largest_change(operation: ComparedOperation) -> tuple[float, float]:
    """Return by how much an operation's memory and time changed, in bytes and seconds."""
    peaks = [abs(difference.change) for difference in operation.differences.values() if difference.figure.is_peak]
    return max(peaks, default=0), abs(operation.differences[DURATION].change)


def _notable(differences: Mapping[str, Difference]) -> list[Difference]:
    """Return differences without those of what was neither read nor written on either side."""
    return [
        difference
        for name, difference in differences.items()
        if difference.figure.is_peak
        or name in {DURATION, CPU_TIME}
        or max(difference.base.median, difference.new.median)
    ]


def title_of(operation: ComparedOperation, comparison: Comparison) -> str:
    """Return an operation's name, and in how many runs it is when it is not in all."""
    base, new = (operation.base_runs, len(comparison.base)), (operation.new_runs, len(comparison.new))
    name = shortened(printable(operation.name), _NAME)
    if base[0] == base[1] and new[0] == new[1]:
        return name
    return f"{name} (in {base[0]} of {base[1]} and {new[0]} of {new[1]} runs)"


def notes(comparison: Comparison) -> Iterator[str]:
    """Yield what the marks in the table mean, and what it does not hold."""
    every = [*comparison.figures.values(), *(of for one in comparison.operations for of in one.differences.values())]
    if comparison.is_of_groups:
        yield from _about_groups(len(comparison.base), len(comparison.new))
    for difference in every:
        if difference.is_within_brackets:
            unit = unit_for(min(difference.base.median, difference.new.median))
            base, new = (_bracket(side, unit) for side in (difference.base, difference.new))
            yield f"{_UNCERTAIN} {difference.figure.label}: within the brackets, base {base}, new {new}"
    for side, figures in (("base", comparison.only_base), ("new", comparison.only_new)):
        if figures:
            yield f"only in {side}: {_listed([figure.label for figure in figures])}"
    for side, operations in (("base", _only(comparison, new=False)), ("new", _only(comparison, new=True))):
        if operations:
            yield f"operations only in {side}: {_listed(operations)}"


def _about_groups(base: int, new: int) -> Iterator[str]:
    best = smallest_p(base, new)
    yield f"medians, smallest and largest of {base} and {new} runs; p: exact Mann-Whitney rank test"
    if best > SIGNIFICANT:
        yield f"so few runs reach p = {best:.2g} at best, and tell no difference from the spread (p ≤ {SIGNIFICANT})"
    else:
        yield f"{_EXCEEDS} the difference exceeds the spread (p ≤ {SIGNIFICANT}; so many runs can reach {best:.2g})"


def _bracket(side: Side, unit: MemoryUnit) -> str:
    return f"{unit.text(side.median)}–{unit.label(side.high)}"


def _only(comparison: Comparison, *, new: bool) -> list[str]:
    return [
        operation.name
        for operation in comparison.operations
        if not (operation.base_runs if new else operation.new_runs)
    ]


def _listed(names: Sequence[str]) -> str:
    most = 10
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"
