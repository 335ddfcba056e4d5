"""Which operations a reader is shown: those of the outer levels, repeated calls told together."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from nncftools.session.phases import Phase

_FEW_INSIDE = 3
"""Up to this number, calls of one function inside of one operation are shown one by one."""
_FEW_IN_A_ROW = 12
"""The same for outermost calls that follow one another."""


def timeline(phases: Sequence[Phase], depth: int) -> list[Phase]:
    """Return the operations of the outer ``depth`` levels, in the order of their starts.

    Many calls of one function inside of one operation are one row, with their number, their time together and the
    longest of them; so are many outermost ones with no other between them.
    """
    shown = [phase for phase in phases if phase.depth < depth]
    outer = [phase for phase in shown if phase.depth == 0]
    rows = [row for _, run in groupby(outer, key=_what) for row in _if_many(list(run), _FEW_IN_A_ROW)]
    inside: dict[tuple[object, ...], list[Phase]] = {}
    above: dict[int, Phase] = {}
    for phase in shown:
        above[phase.depth] = phase
        if phase.depth:
            inside.setdefault((id(above.get(phase.depth - 1)), phase.depth, *_what(phase)), []).append(phase)
    rows += [row for group in inside.values() for row in _if_many(group, _FEW_INSIDE)]
    return sorted(rows, key=lambda phase: (phase.start_s, phase.depth))


def _what(phase: Phase) -> tuple[object, ...]:
    return phase.source, phase.name, phase.call


def _if_many(group: Sequence[Phase], few: int) -> Iterable[Phase]:
    return [together(group)] if len(group) > few else group


def together(group: Sequence[Phase]) -> Phase:
    """Return operations as one: from the first start to the last end, what they cost added up."""
    first, last = group[0], max(group, key=lambda phase: phase.end_s)

    def added(figure: Callable[[Phase], float | None]) -> float | None:
        values = [figure(phase) for phase in group]
        return None if None in values else sum(value for value in values if value is not None)

    def largest(figure: Callable[[Phase], float | None]) -> float | None:
        return max((value for phase in group if (value := figure(phase)) is not None), default=None)

    return replace(
        first,
        end_s=last.end_s,
        error=next((phase.error for phase in reversed(group) if phase.error), None),
        count=sum(phase.count for phase in group),
        total_s=sum(phase.duration_s if phase.total_s is None else phase.total_s for phase in group),
        longest_s=max(phase.duration_s if phase.longest_s is None else phase.longest_s for phase in group),
        rss_end=last.rss_end,
        rss_peak=largest(lambda phase: phase.rss_peak),
        has_peak=any(phase.has_peak for phase in group),
        cpu_s=added(lambda phase: phase.cpu_s),
        cpu_peak=largest(lambda phase: phase.cpu_peak),
        read_bytes=added(lambda phase: phase.read_bytes),
        write_bytes=added(lambda phase: phase.write_bytes),
        read_chars=added(lambda phase: phase.read_chars),
        write_chars=added(lambda phase: phase.write_chars),
    )
