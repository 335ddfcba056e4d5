"""Parses and judges gates, which are limits that a run must keep: ``peak_rss>+5%`` fails if the peak rose by more.

A gate begins with METRIC[@OPERATION]. If every device (such as a GPU) has a value of the metric, the gate begins with
METRIC@DEVICE[@OPERATION]. OPERATION is the name of an operation or of a called function, also with arguments:
``compress_weights(INT4_SYM)``. Then follow ``>`` or ``<``, an optional sign, a number and an optional unit.

BASE is the earlier run, and NEW is the run to judge. With a sign, the limit applies to the change from BASE to NEW, in
per cent or in the unit of the metric. Without a sign, the limit applies to the value in NEW.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain

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
"""Matches ``function``, ``function(arguments)`` and ``function (2)``."""
_LISTED = 20
_ALIKE = 0.8
"""The least similarity of a suggested name. It is high, because all names of peaks begin alike: `peak_gpu` does not
mean `peak_uss`.
"""
_LONGEST = 1000


@dataclass(frozen=True, kw_only=True)
class Gate:
    """A limit. If ``above`` is true, a value above the limit fails; otherwise, a value below the limit fails."""

    text: str
    figure: Figure
    operation: str | None
    above: bool
    limit: Fraction
    """The number of the gate with the plus or minus sign. Memory is in bytes, time in seconds, a percentage in per
    cent."""
    relative: bool
    """Whether the limit applies to the change from BASE (the earlier run) to NEW."""
    percent: bool
    unit: MemoryUnit | None = None
    """The unit of a memory limit; None if the limit has no memory unit. Texts about the gate use the same unit."""

    def fails(self, base: float, new: float) -> bool:
        """Return whether ``new`` is beyond the limit. The comparison is exact, even at the limit itself."""
        limit = self.limit
        if self.percent:
            limit = Fraction(base) * (1 + limit / 100)
        elif self.relative:
            limit = Fraction(base) + limit
        return Fraction(new) > limit if self.above else Fraction(new) < limit


@dataclass(frozen=True)
class Verdict:
    """The result of a gate: passed or failed."""

    gate: Gate
    passed: bool
    measured: str
    """The measured values, as a text for users."""


def parse_gate(text: str) -> Gate:
    """Parse a gate. Raises UsageError."""
    parts = _GATE.fullmatch(text.strip()) if len(text) <= _LONGEST else None
    if parts is None:
        expected = "METRIC or METRIC@OPERATION, then > or <, then a number with a unit expected"
        examples = "'peak_rss>+5%', 'peak_rss@Export>8GiB' or 'duration>+10s'"
        raise UsageError(f"{text[:_LONGEST]!r} cannot be read: {expected}, as in {examples}")
    name, operation = _split_device(parts["metric"], parts["operation"])
    figure = figure_of(name)
    if figure is None:
        meant = metrics.OTHER_NAMES.get(name.removeprefix("peak_"), "")
        raise UsageError(f"{text!r}: {not_one_of(name, FIGURES, _ALIKE, meant)}")
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
    sign = -1 if parts["sign"] == "-" else 1
    return Gate(
        text=text.strip(),
        figure=figure,
        operation=operation.strip() if operation is not None else None,
        above=parts["relation"] == ">",
        limit=Fraction(parts["number"]) * factor * sign,
        relative=bool(parts["sign"]),
        percent=percent,
        unit=_MEMORY_UNITS.get(unit.casefold()) if figure.unit == "B" else None,
    )


def _split_device(metric: str, after_at: str | None) -> tuple[str, str | None]:
    """Return the name of the measured value, and the name of the operation (None if the gate has no operation).

    ``after_at`` is the text after the first ``@``; None if there is no ``@``. Some metrics are measured separately for
    each device (such as a GPU). For these metrics, ``after_at`` begins with the device, and the first returned name is
    ``METRIC@DEVICE``.
    """
    declared = metrics.of(metric.removeprefix("peak_"))
    if after_at is None or declared is None or declared.scope != metrics.DEVICE:
        return metric, after_at
    device, at, operation = after_at.partition("@")
    return f"{metric}@{device.strip()}", operation if at else None


def judge_gate(gate: Gate, comparison: Comparison) -> Verdict:
    """Return the verdict of a gate.

    If BASE and NEW are groups of runs, a limit on the change applies to the medians, and an absolute limit applies to
    every run of NEW. Raises UsageError if a needed value is unknown.
    """
    groups = [comparison.base, comparison.new] if gate.relative else [comparison.new]
    calls = [_find_calls(gate.operation, runs) for runs in groups]
    where = "in both BASE and NEW" if gate.relative else "in NEW"
    if gate.operation is not None and not all(calls):
        raise _no_operation(gate, groups, where)
    figures = [_read_figures(gate.operation, runs) for runs in groups]
    names = [name for name in figures[-1] if name in figures[0]]
    if gate.figure.name not in names:
        spent = [call.of(gate.figure.name).spent for call in chain.from_iterable(calls)]
        if spent and None not in spent:
            where += ", as some calls ran at the same time"
        listed = ", ".join(names) or "none"
        raise UsageError(f"{gate.text!r}: {gate.figure.name!r} is not known {where}; known there: {listed}")
    values = [group[gate.figure.name] for group in figures]
    counts = [sum(call.count for call in group) for group in reversed(calls)]
    in_calls = ""
    if sum(counts) > sum(map(len, groups)):
        in_calls = f" in {' and '.join(f'{count:,}' for count in counts)} calls"
    if gate.relative:
        return _judge_change(gate, comparison, values, in_calls)
    new_values = values[0]
    worst = max(new_values) if gate.above else min(new_values)
    text = _writer_for(gate, worst)(worst) + in_calls
    if len(comparison.new) > 1:
        text += f", the {'largest' if gate.above else 'smallest'} of {len(new_values)} runs"
    return Verdict(gate, not gate.fails(0.0, worst), text)


def _find_calls(operation: str | None, runs: Iterable[Run]) -> list[Operation]:
    calls: list[Operation] = []
    if operation is not None:
        for run in runs:
            calls += selected(operation, run.every)
    return calls


def _read_figures(operation: str | None, runs: Iterable[Run]) -> dict[str, list[float]]:
    """Return the values of each metric in the runs: ``{name: values}``.

    If ``operation`` is given, the values are of the operations that match this name. Otherwise, the values are of the
    whole runs.
    """
    by_name: dict[str, list[float]] = {}
    for run in runs:
        values = run.figures if operation is None else run.together(selected(operation, run.every))
        for name, value in values.items():
            by_name.setdefault(name, []).append(value.low)
    return by_name


def selected(operation: str, calls: Mapping[str, Operation]) -> list[Operation]:
    """Return all operations with this name. If there are none, return all calls of the function with this name.

    ``Export (2)`` is the second operation with this name, and ``compress_weights (2)`` is the second call of this
    function. ``compress_weights(INT4_SYM, awq)`` means all calls that have at least these arguments.
    """
    named = [call for call in calls.values() if call.name == operation]
    if named:
        return named
    first = operation.removesuffix(" (1)")  # the first operation has no number
    if first in calls:
        return [calls[first]]
    parts = _FUNCTION.fullmatch(operation)
    if parts is None:
        return []
    wanted = _split_arguments(parts["arguments"]) - {""}
    matching = []
    for call in calls.values():
        functions = [f".{function}" for function in (call.call or "").split(", ")]
        is_called = any(function.endswith(f".{parts['function']}") for function in functions)
        if is_called and wanted <= _split_arguments(call.arguments):
            matching.append(call)
    if parts["number"] is None:
        return matching
    number = int(parts["number"])
    return matching[number - 1 : number] if number else []


def _split_arguments(text: str | None) -> set[str]:
    arguments = (text or "").casefold().split(",")
    return {" ".join(argument.split()) for argument in arguments}


def _judge_change(gate: Gate, comparison: Comparison, values: Sequence[Sequence[float]], in_calls: str) -> Verdict:
    base_values, new_values = values
    difference = Difference(gate.figure, Side(base_values), Side(new_values))
    base = difference.base.median
    new = difference.new.median
    write = _writer_for(gate, min(filter(None, (base, new)), default=0.0))
    percent = "" if difference.percent is None else f", {difference.percent:+,.2f}%"
    sign = "-" if difference.change < 0 else "+"
    text = f"{write(new)} against {write(base)} ({sign}{write(abs(difference.change))}{percent}){in_calls}"
    if comparison.is_of_groups:
        text += f", medians of {len(new_values)} and {len(base_values)} runs"
    return Verdict(gate, not gate.fails(base, new), text)


def _no_operation(gate: Gate, groups: Sequence[Sequence[Run]], where: str) -> UsageError:
    names = [dict.fromkeys(chain.from_iterable(run.operations for run in runs)) for runs in groups]
    common = [repr(name) for name in names[0] if name in names[-1]]
    more = f" and {len(common) - _LISTED} more" if len(common) > _LISTED else ""
    listed = f"{', '.join(common[:_LISTED]) or 'none'}{more}"
    return UsageError(f"{gate.text!r}: no operation {gate.operation!r} {where}; known there: {listed}")


def _writer_for(gate: Gate, smallest: float) -> Callable[[float], str]:
    """Return a function that writes values of a gate in the unit of the limit.

    If the limit has no unit, the unit fits the smallest value.
    """
    if gate.figure.unit != "B":
        return lambda value: text_of(value, gate.figure.unit)
    return (gate.unit or unit_for(smallest)).label
