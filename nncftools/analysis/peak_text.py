"""The moment and the operation of the RSS peak as text, the same in every output."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from nncftools.analysis.performers import Performers
from nncftools.analysis.told_apart import told_apart
from nncftools.session.model import Peak
from nncftools.session.peak_place import place_of
from nncftools.text import printable, shortened
from nncftools.units import UNKNOWN, seconds_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nncftools.session.operation import Operation
    from nncftools.session.peak_place import PeakPlace
    from nncftools.session.session import Session

SEPARATOR = " › "
_NAME = 40
_LONGEST, _MOST_NAMES = 400, 1000
"""Of longer or more names, the beginnings are not compared."""
_MOST_LEVELS = 10
"""Operations inside each other that are named; of more, the outermost and the innermost ones."""
_MOST_RIVALS = 2
_SECONDS = " s"


def span_text(span_s: tuple[float, float] | None) -> str:
    """Return a moment that lies between two others: ``"12.30–12.35 s"``, or ``"12.30 s"`` if they read the same."""
    if span_s is None:
        return UNKNOWN
    first, last = map(seconds_text, span_s)
    if first == last:
        return last
    both_short = all(text.count(" ") == 1 for text in (first, last))
    return f"{first.removesuffix(_SECONDS)}–{last}" if both_short else f"{first} – {last}"


def where_text(session: Session) -> str:
    """Return the operation of the RSS peak as part of a sentence; empty when no operation is near it."""
    return _where(session.peak_place, session)


def _where(place: PeakPlace | None, session: Session) -> str:
    if place is None:
        return ""
    performers, short = Performers(session), _short_names(place, session)
    names = [_name(operation, performers, short) for operation in place.path]
    if len(names) > _MOST_LEVELS:
        names[_MOST_LEVELS // 2 : -_MOST_LEVELS // 2] = ["…"]
    path = SEPARATOR.join(names)
    rest = ("the rest of " if any(one is around for around in place.path) else "" for one in place.rivals)
    rivals = _rivals([of + _name(one, performers, short) for of, one in zip(rest, place.rivals, strict=True)])
    rivals += ", or outside of all operations" if place.may_be_outside else ""
    if place.either:
        either = _either(place, [_name(operation, performers, short) for operation in place.either])
        return (f"during {path}, {either}" if path else either) + rivals
    if path:
        return f"during {path}{rivals}"
    nearest = place.nearest
    return "" if nearest is None else _beside(place, nearest, _name(nearest, performers, short))


def _rivals(names: Sequence[str]) -> str:
    """Return what is said of operations whose own peaks are not known well enough to exclude them."""
    if not names:
        return ""
    return f", or in {' or '.join(names)}" if len(names) <= _MOST_RIVALS else f", or in one of {len(names):,} others"


def where_reached(session: Session, level: int, at_s: float) -> str:
    """Return the operation in which RSS reached a level that the sample at ``at_s`` shows first, as ``where_text``."""
    times = session.samples.time_s
    before_s = times[max(0, bisect_left(times, at_s) - 1)] if len(times) else at_s
    reached = Peak(sampled=level, at_s=at_s, low=level, rose_from_s=min(before_s, at_s), rose_to_s=at_s)
    return _where(place_of(reached, session.operations, session.processes, session.duration_s), session)


def _name(operation: Operation, performers: Performers, short: Mapping[str, str]) -> str:
    name, by = printable(operation.name), performers.of(operation)
    if len(name) > _NAME:
        name = shortened(short.get(name, name), _NAME)
    return f"{name} ({by})" if by else name


def _short_names(place: PeakPlace, session: Session) -> dict[str, str]:
    """Return what tells long names from others, if an operation of the peak has one."""
    of_peak = [*place.path, *place.either, *place.rivals, *([] if place.nearest is None else [place.nearest])]
    if all(len(one.name) <= _NAME for one in of_peak):
        return {}
    names = {printable(one.name) for one in session.operations if len(one.name) < _LONGEST}
    return told_apart(sorted(names)) if len(names) <= _MOST_NAMES else {}


def _either(place: PeakPlace, names: Sequence[str]) -> str:
    """Return which operations may hold the peak; their spans overlap the time between its two moments."""
    first, last = place.either[0], place.either[-1]
    if len(names) == 1 and first.end_s < place.to_s:
        return f"at the end of {names[0]} or just after it"
    if len(names) == 1:
        return f"at the start of {names[0]} or just before it"
    if len(names) == 2:  # noqa: PLR2004 — both are named
        at_start = "at the start of " if last.start_s >= first.end_s else ""
        return f"in {names[0]} or {at_start}{names[1]}"
    if len(set(names)) == 1:
        return f"in one of {len(names):,} operations named {names[0]}"
    return f"in one of {len(names):,} operations, from {names[0]} to {names[-1]}"


def _beside(place: PeakPlace, nearest: Operation, name: str) -> str:
    after_s = place.from_s - nearest.end_s
    if after_s >= 0:
        return f"{seconds_text(after_s)} after {name}"
    return f"{seconds_text(max(0.0, nearest.start_s - place.to_s))} before {name}"
