"""What a run held and did just before a moment at which something died."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from math import inf, isnan
from typing import TYPE_CHECKING, NamedTuple

from nncftools.analysis import build_up
from nncftools.analysis.frames import running_text
from nncftools.analysis.peak_text import SEPARATOR
from nncftools.session.peak_place import enclosing
from nncftools.units import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.session.model import Process
    from nncftools.session.operation import Operation
    from nncftools.session.session import Session

_TREND_S = 0.5
_FEWEST = 3
"""Samples that make a trend."""
_SLOWEST = 1 << 20
"""Bytes a second: slower growth is not named."""
_ENDING_S = 0.3
"""A process may leave the samples so long before its end is known."""
_NAMED = 3
_NAME = 40


class LastState(NamedTuple):
    """Bytes and seconds."""

    at_s: float | None
    """The time of the last sample before the moment; None if there was none."""
    rss: int
    growth_per_s: float | None
    """How fast RSS rose before it; None if it did not."""
    largest: Sequence[Process]
    """The processes that lived then, the one with the highest peak of its own first."""
    operation: str
    """The operations that ran, the outermost first; empty for none."""
    running: str
    """Where the program stood, by its stack; empty for unknown."""


UNKNOWN = LastState(None, 0, None, (), "", "")


def last_state(session: Session, before_s: float) -> LastState:
    """Return the state at the last sample before ``before_s``; what died then is not in the sample at that time."""
    samples = session.samples
    times = samples.time_s
    place = bisect_left(times, before_s) - 1
    values = samples["rss"] if "rss" in samples.metrics else []
    while place >= 0 and (not len(values) or isnan(values[place])):
        place -= 1
    at_s = None if place < 0 else times[place]
    rss = 0 if place < 0 else int(values[place])
    first = min(place - _FEWEST + 1, bisect_right(times, -inf if at_s is None else at_s - _TREND_S))
    span_s = 0.0 if at_s is None or first < 0 else at_s - times[first]
    growth = (rss - values[first]) / span_s if span_s > 0 and not isnan(values[first]) else 0.0
    lived = [process for process in session.processes if _lived(process, before_s)]
    return LastState(
        at_s,
        rss,
        growth if growth >= _SLOWEST else None,
        sorted(lived, key=_most, reverse=True)[:_NAMED],
        SEPARATOR.join(_operations(session, before_s)),
        "" if at_s is None else _running(session, at_s),
    )


def _lived(process: Process, at_s: float) -> bool:
    return (process.start_s or 0.0) <= at_s and (process.end_s is None or process.end_s >= at_s - _ENDING_S)


def _most(process: Process) -> int:
    return max(process.peak_rss or 0, process.high_water_mark or 0)


def _operations(session: Session, at_s: float) -> Sequence[str]:
    """Return the names of the operations that ran, the latest one and those inside of it."""
    above = enclosing(session.operations)
    latest: dict[int, Operation] = {}
    """By the ``id()`` of what it is inside of."""
    for operation in session.operations:
        if operation.start_s <= at_s <= operation.end_s + _ENDING_S:
            latest[id(above.get(id(operation)))] = operation
    names: list[str] = []
    innermost: Operation | None = None
    while (innermost := latest.get(id(innermost))) is not None:
        names.append(shortened(printable(innermost.name), _NAME))
    return names


def _running(session: Session, at_s: float) -> str:
    found = None if session.snapshots is None else build_up.at(session, at_s)
    return "" if found is None or found.top is None else running_text(found.top)
