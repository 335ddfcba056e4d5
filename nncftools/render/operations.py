"""The operations of a run as pictures and tables list them: numbered, coloured, and a limited number of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nncftools import metrics
from nncftools.render.colours import REST, Fill, fills
from nncftools.session.model import UNFINISHED
from nncftools.session.operations import Figures, Operation
from nncftools.text import printable, shortened
from nncftools.units import seconds_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_LONGEST_TEXT = 200


@dataclass(frozen=True)
class Listed:
    """An operation, its number in the list and its fill."""

    number: int
    """From 1; 0 for the sum of several operations."""
    operation: Operation
    fill: Fill

    @property
    def title(self) -> str:
        """Name, number of calls, and whether it failed or did not end."""
        operation = self.operation
        times = f" ×{operation.count}" if operation.count > 1 else ""
        end = "" if operation.error is None else " …" if operation.error == UNFINISHED else " ✕"
        return f"{shortened(printable(operation.name), _LONGEST_TEXT)}{times}{end}"

    @property
    def details(self) -> str:
        """How it ended, the time in its calls, and the function that was called."""
        operation = self.operation
        error = operation.error if operation.error in {None, UNFINISHED} else f"✕ {operation.error}"
        calls = None if operation.total_s is None else f"{seconds_text(operation.total_s)} in {operation.count} calls"
        parts = (error, calls, operation.call)
        return shortened(printable(" · ".join(filter(None, parts))), _LONGEST_TEXT)


def counters_of(columns: Iterable[str]) -> list[str]:
    """Return the counters that are shown of each operation, for a session with these columns."""
    return [column for column in metrics.of_operations(columns) if metrics.is_counter(column)]


def by_key(operation: Operation) -> dict[str, float | None]:
    """Return the figures of an operation by their keys in exported documents.

    A gauge has ``NAME_start``, ``NAME_end``, ``NAME_delta`` and ``NAME_peak``; a counter has its name. Bytes are whole
    numbers.
    """
    found: dict[str, float | None] = {}
    for column in metrics.of_operations(operation.figures):
        figures = operation.of(column)
        levels = {"start": figures.start, "end": figures.end, "delta": figures.delta, "peak": figures.peak_low}
        of_column = {f"{column}_{key}": value for key, value in levels.items()}
        if metrics.is_counter(column):
            of_column = {column: figures.spent}
        if metrics.unit_of(column) == "B":
            of_column = {key: None if value is None else round(value) for key, value in of_column.items()}
        found |= of_column
    return found


def listed(operations: Sequence[Operation]) -> list[Listed]:
    """Return the operations numbered and coloured."""
    of = fills(operations)
    return [Listed(number, operation, of[operation.name]) for number, operation in enumerate(operations, start=1)]


def rows(every: Sequence[Listed], counters: Sequence[str], most: int) -> list[Listed]:
    """Return at most ``most`` rows in the order of the list.

    When there are more operations, the rows are those with the largest share of the time or of any counter, and the
    sum of all others.
    """
    if len(every) <= most:
        return list(every)
    whole = _sum(every, counters)

    def largest_share(one: Listed) -> float:
        shares = [one.operation.duration_s / whole.duration_s if whole.duration_s else 0.0]
        for column in counters:
            part, total = one.operation.of(column).spent, whole.of(column).spent
            if part and total:
                shares.append(part / total)
        return max(shares)

    kept = {one.number for one in sorted(every, key=largest_share, reverse=True)[: most - 1]}
    others = [one for one in every if one.number not in kept]
    return [*(one for one in every if one.number in kept), Listed(0, _sum(others, counters), REST)]


def lanes(every: Sequence[Listed], most: int) -> list[int | None]:
    """Return the first free lane for each operation; None when ``most`` lanes are in use."""
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


def _sum(every: Sequence[Listed], counters: Sequence[str]) -> Operation:
    """Return the sum of durations and counters as one operation; a counter that is unknown in one is unknown."""
    spent = {column: [one.operation.of(column).spent for one in every] for column in counters}
    known = {column: [value for value in values if value is not None] for column, values in spent.items()}
    return Operation(
        name=f"and {len(every):,} more",
        start_s=0.0,
        end_s=sum(one.operation.duration_s for one in every),
        figures={column: Figures(spent=sum(known[column])) for column in counters if None not in spent[column]},
    )
