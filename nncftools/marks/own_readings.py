"""What processes read of their own high-water mark when they marked operations: exact at the operations' ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from nncftools.session.peaks import drift, rss_peak

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nncftools.session.model import Mark, Process, Rise
    from nncftools.session.session import Session

    Readings = Sequence[tuple[float, int]]
    """Seconds since the start and bytes, in order."""

RSS = "rss"


def narrow(session: Session) -> None:
    """Narrow the times between which marks rose, and with them the moment of the peak."""
    if RSS not in session.peaks or not any(process.rises for process in session.processes):
        return
    by_pid = _by_pid(session.marks)
    for process in session.processes:
        readings = by_pid.get(process.pid) if process.rises else None
        if readings:
            own = [reading for reading in sorted(readings) if _lives(process, reading[0])]
            process.rises = [_narrowed(rise, own) for rise in process.rises]
    session.peaks[RSS] = rss_peak(session.samples, session.processes, session.sampler.peak_rss)


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


def _narrowed(rise: Rise, readings: Readings) -> Rise:
    risen = rise.high_water_mark - drift(rise.high_water_mark)
    most = rise.high_water_mark + drift(rise.high_water_mark)  # a higher one is that of a program before exec
    inside = [(at_s, mark) for at_s, mark in readings if rise.from_s <= at_s <= rise.to_s and mark <= most]
    from_s = max((at_s for at_s, mark in inside if mark < risen), default=rise.from_s)
    to_s = min((at_s for at_s, mark in inside if mark >= risen), default=rise.to_s)
    return replace(rise, from_s=from_s, to_s=to_s) if from_s <= to_s else rise
