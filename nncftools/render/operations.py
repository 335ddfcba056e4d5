"""The operations of a run as a picture shows them: numbered, coloured, and few enough to be listed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nncftools import metrics
from nncftools.render.colours import REST, Fill, fills
from nncftools.session.model import UNFINISHED
from nncftools.text import printable, shortened
from nncftools.units import seconds_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from nncftools.session.operations import Operation

_LONG = 200
"""More is never shown."""


@dataclass(frozen=True)
class Listed:
    """An operation, its place in the list from 1, and how it is filled."""

    number: int
    operation: Operation
    fill: Fill

    @property
    def title(self) -> str:
        """Name, number of calls, and whether it failed or did not end."""
        operation = self.operation
        times = f" ×{operation.count}" if operation.count > 1 else ""
        end = "" if operation.error is None else " …" if operation.error == UNFINISHED else " ✕"
        return f"{shortened(printable(operation.name), _LONG)}{times}{end}"

    @property
    def details(self) -> str:
        """What else is known of it: how it ended, the time in its calls, the function."""
        operation = self.operation
        error = operation.error if operation.error in {None, UNFINISHED} else f"✕ {operation.error}"
        calls = None if operation.total_s is None else f"{seconds_text(operation.total_s)} in {operation.count} calls"
        return shortened(printable(" · ".join(part for part in (error, calls, operation.call) if part)), _LONG)

    def spent(self, counters: Iterable[str]) -> dict[str, float | None]:
        """Return by how much counters rose; None for unknown."""
        return {column: self.operation.of(column).spent for column in counters}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the panels that list operations; seconds, and counters in their units; None for unknown."""

    number: int | None
    """None for the row that stands for several operations."""
    title: str
    fill: Fill
    duration_s: float
    spent: Mapping[str, float | None]
    """By counter."""
    details: str = ""
    in_calls_s: float | None = None
    """The part of the duration that was spent in repeated calls; None where there was but one."""
    depth: int = 0


def counters_of(columns: Iterable[str]) -> list[str]:
    """Return the counters that are shown of each operation, for a session with these columns."""
    return [column for column in metrics.of_operations(columns) if metrics.is_counter(column)]


def by_key(operation: Operation) -> dict[str, float | None]:
    """Return the figures of an operation by the keys of documents.

    A gauge has ``NAME_start``, ``NAME_end``, ``NAME_delta`` and ``NAME_peak``; a counter its name.
    """
    found: dict[str, float | None] = {}
    for column in metrics.of_operations(operation.figures):
        figures = operation.of(column)
        if metrics.is_counter(column):
            found[column] = figures.spent
        else:
            levels = {"start": figures.start, "end": figures.end, "delta": figures.delta, "peak": figures.peak}
            found.update({f"{column}_{key}": value for key, value in levels.items()})
    return found


def listed(operations: Sequence[Operation]) -> list[Listed]:
    """Return the operations numbered and coloured."""
    of = fills(operations)
    return [Listed(number, operation, of[operation.name]) for number, operation in enumerate(operations, start=1)]


def rows(every: Sequence[Listed], counters: Sequence[str], most: int) -> list[Row]:
    """Return at most ``most`` rows in the order of the list.

    When there are more operations, those stay that have the largest share of the time or of any counter, and the last
    row is the sum of all others.
    """
    if len(every) <= most:
        return [_row(one, counters) for one in every]
    duration_s, sums = sum(one.operation.duration_s for one in every), _sums(every, counters)

    def largest_share(one: Listed) -> float:
        shares = [one.operation.duration_s / duration_s if duration_s else 0.0]
        spent = one.spent(counters)
        shares += [part / whole for column in counters if (part := spent[column]) and (whole := sums[column])]
        return max(shares)

    by_share = sorted(every, key=largest_share, reverse=True)
    kept = {one.number for one in by_share[: most - 1]}
    others = [one for one in every if one.number not in kept]
    rest = Row(
        number=None,
        title=f"and {len(others):,} more",
        fill=REST,
        duration_s=sum(one.operation.duration_s for one in others),
        spent=_sums(others, counters),
    )
    return [*(_row(one, counters) for one in every if one.number in kept), rest]


def lanes(every: Sequence[Listed], most: int) -> list[int | None]:
    """Return the first free lane for each operation; None where ``most`` are in use."""
    ends: list[float] = []
    found: list[int | None] = []
    for one in every:
        operation = one.operation
        lane = next((lane for lane, end_s in enumerate(ends) if end_s <= operation.start_s), len(ends))
        if lane == most:
            found.append(None)
            continue
        ends[lane : lane + 1] = [operation.end_s]
        found.append(lane)
    return found


def _row(one: Listed, counters: Sequence[str]) -> Row:
    return Row(
        number=one.number,
        title=one.title,
        fill=one.fill,
        duration_s=one.operation.duration_s,
        spent=one.spent(counters),
        details=one.details,
        in_calls_s=one.operation.total_s,
        depth=one.operation.depth,
    )


def _sums(every: Sequence[Listed], counters: Sequence[str]) -> dict[str, float | None]:
    """Return the sums of counters; None where one is unknown."""
    return {column: _sum([one.operation.of(column).spent for one in every]) for column in counters}


def _sum(values: Sequence[float | None]) -> float | None:
    return None if None in values else sum(value for value in values if value is not None)
