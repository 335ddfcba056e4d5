"""What the tables of a comparison say in their cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nncftools.analysis.comparison import SIGNIFICANT, unit_for
from nncftools.analysis.mann_whitney import smallest_p
from nncftools.units import UNKNOWN, MemoryUnit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from nncftools.analysis.comparison import Comparison, Difference, Operation, Run, Side

_MANY = 30
"""Operations; of more those are shown whose figures changed most."""
_NAMED = 3
_UNCERTAIN = "~"
_EXCEEDS = "*"
_MINUTES_FROM_S = 600
_HOURS_FROM_S = 3 * 3600
_SMALLEST_SHOWN_P = 0.001
_NO_DECIMALS_FROM = 10


@dataclass(frozen=True)
class Cells:
    """One figure on both sides, as text in one unit."""

    name: str
    """With its unit."""
    base: str
    new: str
    base_range: str
    """From the smallest to the largest of the runs; empty when these are equal."""
    new_range: str
    change: str
    mark: str
    """Whether the difference is within the brackets."""
    percent: str
    p: str
    """With a mark when the difference exceeds the spread; empty for one run each."""


def cells(difference: Difference, unit: MemoryUnit) -> Cells:
    """Return the cells of a figure; peaks in ``unit``, what was read and written in one that fits."""
    figure, base, new = difference.figure, difference.base, difference.new
    write: _InBytes | _InSeconds
    highest = max(*base.values, *new.values)
    if figure.unit == "s":
        write = _InSeconds(highest)
    else:
        write = _InBytes(unit if figure.name.startswith("peak_") else unit_for(highest))
    return Cells(
        name=f"{figure.label}, {write.unit}",
        base=write.text(base.median),
        new=write.text(new.median),
        base_range=_range(write, base.values),
        new_range=_range(write, new.values),
        change=_signed(write.text(difference.change)),
        mark=_UNCERTAIN if difference.is_within_brackets else "",
        percent=_percent(difference.percent),
        p=_p(difference),
    )


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


def _range(write: _InBytes | _InSeconds, values: Sequence[float]) -> str:
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


def runs_text(runs: Sequence[Run]) -> str:
    """Return the names of runs, those of a large group shortened to the first and last."""
    titles = [run.title for run in runs]
    if len(titles) == 1:
        return titles[0]
    listed = titles if len(titles) <= _NAMED else [titles[0], "…", titles[-1]]
    return f"{len(titles)} runs: {', '.join(listed)}"


def shown(operations: Iterable[Operation]) -> tuple[list[Operation], int]:
    """Return the operations of both sides to show, in their order, and how many others there are."""
    both = [operation for operation in operations if operation.base_runs and operation.new_runs]
    largest = sorted(both, key=_largest_change, reverse=True)[:_MANY]
    kept = {operation.name for operation in largest}
    return [operation for operation in both if operation.name in kept], len(both) - len(largest)


def _largest_change(operation: Operation) -> tuple[float, float]:
    """Return by how much an operation's memory and time changed, in bytes and seconds."""
    changes = {name: abs(difference.change) for name, difference in operation.differences.items()}
    return max((value for name, value in changes.items() if name.startswith("peak_")), default=0), changes["duration"]


def notable(differences: Mapping[str, Difference]) -> list[Difference]:
    """Return differences without those of what was neither read nor written on either side."""
    return [
        difference
        for name, difference in differences.items()
        if name.startswith("peak_") or name in {"duration", "cpu"} or max(difference.base.median, difference.new.median)
    ]


def title(operation: Operation, comparison: Comparison) -> str:
    """Return an operation's name, and in how many runs it is when it is not in all."""
    base, new = (operation.base_runs, len(comparison.base)), (operation.new_runs, len(comparison.new))
    if base[0] == base[1] and new[0] == new[1]:
        return operation.name
    return f"{operation.name} (in {base[0]} of {base[1]} and {new[0]} of {new[1]} runs)"


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
