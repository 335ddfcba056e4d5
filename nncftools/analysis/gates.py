"""Limits that a run must keep, written as text: ``peak_rss>+5%`` fails when the peak rose by more than 5 %.

The form is METRIC[@OPERATION], or METRIC@DEVICE[@OPERATION] for a figure of one device, where OPERATION is the name of
an operation or a function that it called, also with arguments: ``compress_weights(INT4_SYM)``. Then ``>`` or ``<``, an
optional sign, a number and an optional unit. With a sign, the limit applies to the change against BASE, in per cent or
in the metric's unit; without, to the figure of NEW itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from nncftools import metrics
from nncftools.analysis.comparison import Comparison, Run
from nncftools.analysis.figures import FIGURES, Difference, Figure, Side, figure_of
from nncftools.analysis.operation import Operation
from nncftools.analysis.summary import unit_for
from nncftools.errors import UsageError
from nncftools.units import MemoryUnit, not_one_of, text_of

_PERCENT = "%"
_GATE = re.compile(
    r"(?P<metric>\w+)(?:@(?P<operation>.+))?\s*(?P<relation>[<>])\s*"
    r"(?P<sign>[+-]?)\s*(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(?P<unit>%|[A-Za-z]*)",
    re.DOTALL,
)
_MEMORY_UNITS = {unit.value.casefold(): unit for unit in MemoryUnit}
_UNITS = {
    "B": {name: Fraction(unit.factor) for name, unit in _MEMORY_UNITS.items()},
    "s": {"s": Fraction(1)},
    "": {},
}
_FUNCTION = re.compile(r"(?P<function>[\w.]+)(?:\((?P<arguments>.*?)\))?(?: \((?P<number>[0-9]{1,9})\))?", re.DOTALL)
"""A function, its arguments, and a number before which there is a space."""
_LISTED = 20
_ALIKE = 0.8
"""All peaks begin alike: `peak_gpu` is not meant to be `peak_uss`."""
_LONGEST = 1000


@dataclass(frozen=True, kw_only=True)
class Gate:
    """A limit; it fails when the figure is above it, or below when not ``above``."""

    text: str
    figure: Figure
    operation: str | None
    above: bool
    limit: Fraction
    """In bytes, seconds or per cent; with its sign."""
    relative: bool
    """Whether the limit applies to the change against BASE."""
    percent: bool
    unit: MemoryUnit | None = None
    """The unit of a limit in memory; figures are shown in it, too."""

    def fails(self, base: float, new: float) -> bool:
        """Return whether the figure ``new`` is beyond the limit; exact even at the limit itself."""
        limit = self.limit
        if self.percent:
            limit = Fraction(base) * (1 + limit / 100)
        elif self.relative:
            limit = Fraction(base) + limit
        return Fraction(new) > limit if self.above else Fraction(new) < limit


@dataclass(frozen=True)
class Verdict:
    """The result of a gate."""

    gate: Gate
    passed: bool
    measured: str
    """What was measured, for a reader."""


def parsed(text: str) -> Gate:
    """Return the gate that ``text`` means. Raises UsageError."""
    parts = _GATE.fullmatch(text.strip()) if len(text) <= _LONGEST else None
    if parts is None:
        expected = "METRIC or METRIC@OPERATION, > or <, a number and its unit expected"
        examples = "'peak_rss>+5%', 'peak_rss@Export>8GiB' or 'duration>+10s'"
        raise UsageError(f"{text[:_LONGEST]!r} cannot be read: {expected}, as in {examples}")
    name, operation = _name_and_operation(parts["metric"], parts["operation"])
    if (figure := figure_of(name)) is None:
        raise UsageError(f"{text!r}: {not_one_of(name, FIGURES, _ALIKE)}")
    unit = parts["unit"]
    percent = unit == _PERCENT
    if percent and not parts["sign"]:
        either = f"+{parts['number']}% or -{parts['number']}%"
        raise UsageError(f"{text!r}: a percentage is a change against BASE: {either} expected")
    factors = _UNITS[figure.unit]
    if unit and not percent and unit.casefold() not in factors:
        names = ", ".join([_PERCENT, *(MemoryUnit if figure.unit == "B" else factors)])
        raise UsageError(f"{text!r}: the unit {unit!r} is not one of {names}")
    if figure.unit == "B" and not unit and float(parts["number"]):
        raise UsageError(f"{text!r}: a size needs its unit ({', '.join(MemoryUnit)}), as in {text.strip()}MiB")
    factor = Fraction(1) if percent or not unit else factors[unit.casefold()]
    return Gate(
        text=text.strip(),
        figure=figure,
        operation=operation.strip() if operation is not None else None,
        above=parts["relation"] == ">",
        limit=Fraction(parts["number"]) * factor * (-1 if parts["sign"] == "-" else 1),
        relative=bool(parts["sign"]),
        percent=percent,
        unit=None if percent or figure.unit != "B" else _MEMORY_UNITS.get(unit.casefold()),
    )


def _name_and_operation(metric: str, rest: str | None) -> tuple[str, str | None]:
    """Return the name of a figure, which contains the device of a device's metric, and the operation."""
    declared = metrics.of(metric.removeprefix("peak_"))
    if rest is None or declared is None or declared.scope != metrics.DEVICE:
        return metric, rest
    device, at, operation = rest.partition("@")
    return f"{metric}@{device.strip()}", operation if at else None


def judged(gate: Gate, comparison: Comparison) -> Verdict:
    """Return whether NEW keeps the limit.

    In groups a change is that of the medians, and every run must keep an absolute limit. Raises UsageError when the
    figure is not known where it is needed.
    """
    groups = [comparison.base, comparison.new] if gate.relative else [comparison.new]
    calls = [_calls(gate.operation, runs) for runs in groups]
    where = "in both BASE and NEW" if gate.relative else "in NEW"
    if gate.operation is not None and not all(calls):
        raise _no_operation(gate, groups, where)
    figures = [_figures(gate.operation, runs) for runs in groups]
    known = [name for name in figures[-1] if name in figures[0]]
    if gate.figure.name not in known:
        every = [call for of_side in calls for call in of_side]
        if every and all(call.of(gate.figure.name).spent is not None for call in every):
            where += ", as some calls ran at the same time"
        there = ", ".join(known) or "none"
        raise UsageError(f"{gate.text!r}: {gate.figure.name!r} is not known {where}; known there: {there}")
    values = [of[gate.figure.name] for of in figures]
    numbers = [sum(call.count for call in of_side) for of_side in reversed(calls)]
    are_several = sum(numbers) > sum(map(len, groups))
    in_calls = f" in {' and '.join(map('{:,}'.format, numbers))} calls" if are_several else ""
    if gate.relative:
        return _relative(gate, comparison, values[0], values[1], in_calls)
    (of_new,) = values
    worst = max(of_new) if gate.above else min(of_new)
    measured = _writer(gate, worst)(worst) + in_calls
    if len(comparison.new) > 1:
        measured += f", the {'largest' if gate.above else 'smallest'} of {len(of_new)} runs"
    return Verdict(gate, not gate.fails(0.0, worst), measured)


def _calls(operation: str | None, runs: Sequence[Run]) -> list[Operation]:
    if operation is None:
        return []
    return [call for run in runs for call in selected(operation, run.every)]


def _figures(operation: str | None, runs: Sequence[Run]) -> dict[str, list[float]]:
    """Return by figure its values in the runs, or in the operations of them that are meant, where it is known."""
    values: dict[str, list[float]] = {}
    for run in runs:
        of = run.figures if operation is None else run.together(selected(operation, run.every))
        for figure, value in of.items():
            values.setdefault(figure, []).append(value.low)
    return values


def selected(operation: str, calls: Mapping[str, Operation]) -> list[Operation]:
    """Return the operations that a text means: all that have this name, or all that called this function.

    ``Export (2)`` is the second one of this name, ``compress_weights (2)`` the second call of this function, and
    ``compress_weights(INT4_SYM, awq)`` are the calls with these arguments, among others.
    """
    if of_name := [of for of in calls.values() if of.name == operation]:
        return of_name
    if (numbered := operation.removesuffix(" (1)")) in calls:  # the first one has the name alone
        return [calls[numbered]]
    if (parts := _FUNCTION.fullmatch(operation)) is None:
        return []
    wanted = {_plain(word) for word in (parts["arguments"] or "").split(",") if word.strip()}
    matching = []
    for of in calls.values():
        given = {_plain(argument) for argument in (of.arguments or "").split(",")}
        functions = (of.call or "").split(", ")
        if any(f".{function}".endswith(f".{parts['function']}") for function in functions) and given >= wanted:
            matching.append(of)
    if parts["number"] is None:
        return matching
    number = int(parts["number"])
    return matching[number - 1 : number] if number else []


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def _relative(
    gate: Gate, comparison: Comparison, of_base: Sequence[float], of_new: Sequence[float], in_calls: str
) -> Verdict:
    difference = Difference(gate.figure, Side(of_base), Side(of_new))
    base, new = difference.base.median, difference.new.median
    percent = "" if difference.percent is None else f", {difference.percent:+,.2f}%"
    text = _writer(gate, min(filter(None, (base, new)), default=0.0))
    change = ("-" if difference.change < 0 else "+") + text(abs(difference.change))
    measured = f"{text(new)} against {text(base)} ({change}{percent}){in_calls}"
    if comparison.is_of_groups:
        measured += f", medians of {len(of_new)} and {len(of_base)} runs"
    return Verdict(gate, not gate.fails(base, new), measured)


def _no_operation(gate: Gate, groups: Sequence[Sequence[Run]], where: str) -> UsageError:
    names = [dict.fromkeys(name for run in runs for name in run.operations) for runs in groups]
    there = [repr(name) for name in names[0] if name in names[-1]]
    more = f" and {len(there) - _LISTED} more" if len(there) > _LISTED else ""
    known = f"{', '.join(there[:_LISTED]) or 'none'}{more}"
    return UsageError(f"{gate.text!r}: no operation {gate.operation!r} {where}; known there: {known}")


def _writer(gate: Gate, smallest: float) -> Callable[[float], str]:
    """Return the function that writes all figures of a gate in one unit: that of its limit, or one that fits."""
    if gate.figure.unit != "B":
        return lambda value: text_of(value, gate.figure.unit)
    return (gate.unit or unit_for(smallest)).label
