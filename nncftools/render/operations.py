"""The operations of a run as a picture shows them: numbered, coloured, and few enough to be listed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nncftools.render.colours import REST, Look, looks
from nncftools.session.model import UNFINISHED
from nncftools.text import printable, shortened
from nncftools.units import seconds_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nncftools.session.phases import Phase

    Figures = tuple[float | None, float | None, float | None, float | None]

_LONG = 200
"""More is never shown."""


@dataclass(frozen=True)
class Operation:
    """A phase, its place in the list from 1, and its look."""

    number: int
    phase: Phase
    look: Look

    @property
    def title(self) -> str:
        """Name, number of calls, and whether it failed or did not end."""
        phase = self.phase
        times = f" ×{phase.count}" if phase.count > 1 else ""
        end = "" if phase.error is None else " …" if phase.error == UNFINISHED else " ✕"
        return f"{shortened(printable(phase.name), _LONG)}{times}{end}"

    @property
    def details(self) -> str:
        """What else is known of it: how it ended, the time in its calls, the function."""
        phase = self.phase
        error = phase.error if phase.error in {None, UNFINISHED} else f"✕ {phase.error}"
        calls = None if phase.total_s is None else f"{seconds_text(phase.total_s)} in {phase.count} calls"
        return shortened(printable(" · ".join(part for part in (error, calls, phase.call) if part)), _LONG)

    @property
    def figures(self) -> Figures:
        """Bytes read from and written to storage, read and written by system calls; None for unknown."""
        return self.phase.read_bytes, self.phase.write_bytes, self.phase.read_chars, self.phase.write_chars


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the panels that list operations; seconds and bytes, None for unknown."""

    number: int | None
    """None for several operations told together."""
    title: str
    look: Look
    duration_s: float
    figures: Figures
    details: str = ""
    in_calls_s: float | None = None
    """The part of the duration that was spent in repeated calls; None where there was but one."""
    depth: int = 0


def operations(phases: Sequence[Phase]) -> list[Operation]:
    """Return the phases numbered and coloured."""
    of = looks(phases)
    return [Operation(number, phase, of[phase.name]) for number, phase in enumerate(phases, start=1)]


def rows(every: Sequence[Operation], most: int) -> list[Row]:
    """Return at most ``most`` rows in the order of the list.

    When there are more operations, those stay that have the largest share of the time or of any kind of I/O, and the
    last row is the sum of all others.
    """
    if len(every) <= most:
        return [_row(operation) for operation in every]
    duration_s, sums = sum(operation.phase.duration_s for operation in every), _sums(every)

    def largest_share(operation: Operation) -> float:
        pairs = zip((operation.phase.duration_s, *operation.figures), (duration_s, *sums), strict=True)
        return max(part / whole if part and whole else 0.0 for part, whole in pairs)

    by_share = sorted(every, key=largest_share, reverse=True)
    kept = {operation.number for operation in by_share[: most - 1]}
    others = [operation for operation in every if operation.number not in kept]
    together = Row(
        number=None,
        title=f"and {len(others):,} more",
        look=REST,
        duration_s=sum(operation.phase.duration_s for operation in others),
        figures=_sums(others),
    )
    return [*(_row(operation) for operation in every if operation.number in kept), together]


def lanes(every: Sequence[Operation], most: int) -> list[int | None]:
    """Return the first free lane for each operation; None where ``most`` are in use."""
    ends: list[float] = []
    found: list[int | None] = []
    for operation in every:
        phase = operation.phase
        lane = next((lane for lane, end_s in enumerate(ends) if end_s <= phase.start_s), len(ends))
        if lane == most:
            found.append(None)
            continue
        ends[lane : lane + 1] = [phase.end_s]
        found.append(lane)
    return found


def _row(operation: Operation) -> Row:
    phase = operation.phase
    return Row(
        number=operation.number,
        title=operation.title,
        look=operation.look,
        duration_s=phase.duration_s,
        figures=operation.figures,
        details=operation.details,
        in_calls_s=phase.total_s,
        depth=phase.depth,
    )


def _sums(every: Iterable[Operation]) -> Figures:
    """Return the sums of the figures; None when one of them is unknown."""
    read, written, read_calls, written_calls = zip(*(operation.figures for operation in every), strict=True)
    return _sum(read), _sum(written), _sum(read_calls), _sum(written_calls)


def _sum(values: Iterable[float | None]) -> float | None:
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)
