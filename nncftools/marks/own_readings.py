"""What processes read of their own high-water mark when they marked operations: exact at the operations' ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from nncftools.session.model import Rise
from nncftools.session.operation import RSS
from nncftools.session.peaks import drift, read_at_marks, rss_peak

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from nncftools.session.model import Mark, Process
    from nncftools.session.session import Session

    Readings = Sequence[tuple[float, int]]
    """Seconds since the start and bytes, in order."""


def narrow(session: Session) -> None:
    """Narrow the times between which marks rose, and with them the moment of the peak."""
    if RSS not in session.peaks:
        return
    by_pid = _by_pid(session.marks)
    for process in session.processes:
        readings = sorted(by_pid.get(process.pid, ()))
        own = [one for one in readings if _lives(process, one[0]) and one[0] <= session.duration_s]
        if own:
            process.rises = [*(_narrowed(rise, own) for rise in process.rises), *_unrecorded(process, own)]
    held = read_at_marks(session.marks)
    session.peaks[RSS] = rss_peak(session.samples, session.processes, session.sampler.peak_rss, held=held)


def _by_pid(marks: Iterable[Mark]) -> dict[int | None, list[tuple[float, int]]]:
    found: dict[int | None, list[tuple[float, int]]] = {}
    for mark in marks:
        for at_s, own in ((mark.start_s, mark.own_start), (mark.end_s, mark.own_end)):
            if at_s is not None and own is not None and own.high_water_mark is not None:
                found.setdefault(mark.pid, []).append((at_s, own.high_water_mark))
    return found


def _lives(process: Process, at_s: float) -> bool:
    """Return whether a process lives at a moment: a PID may be reused."""
    return (process.start_s or 0.0) <= at_s and (process.end_s is None or at_s <= process.end_s)


def _unrecorded(process: Process, readings: Readings) -> Iterator[Rise]:
    """Yield the rise to the highest mark that the process read of itself, if neither sample nor rise shows it."""
    highest = max(mark for _, mark in readings)
    shown = max([process.peak_rss or 0, *(rise.high_water_mark for rise in process.rises)])
    risen = highest - drift(highest)
    if shown < risen:
        to_s = min(at_s for at_s, mark in readings if mark >= risen)
        from_s = max((at_s for at_s, mark in readings if at_s < to_s and mark < risen), default=None)
        if from_s is not None:
            yield Rise(from_s=from_s, to_s=to_s, high_water_mark=highest)


def _narrowed(rise: Rise, readings: Readings) -> Rise:
    risen = rise.high_water_mark - drift(rise.high_water_mark)
    most = rise.high_water_mark + drift(rise.high_water_mark)  # a higher one is that of a program before exec
    inside = [(at_s, mark) for at_s, mark in readings if rise.from_s <= at_s <= rise.to_s and mark <= most]
    from_s = max((at_s for at_s, mark in inside if mark < risen), default=rise.from_s)
    to_s = min((at_s for at_s, mark in inside if mark >= risen), default=rise.to_s)
    return replace(rise, from_s=from_s, to_s=to_s) if from_s <= to_s else rise
