"""One command recorded several times: a group of runs for ``nncf-tools compare``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nncftools.cli import screen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from nncftools.cli.destination import Destination
    from nncftools.render.view import View
    from nncftools.session.model import Session


def suffixes(count: int) -> list[str]:
    """Return what is added to the names of the runs' files: nothing to that of a single one."""
    return [""] if count == 1 else [f"-{number}" for number in range(1, count + 1)]


def repeat(
    count: int, places: Iterable[Destination], record: Callable[[Destination], int], view: View, *, quiet: bool
) -> int:
    """Record ``count`` times, up to the first run that fails; return the last exit status.

    After more than one, say how far the peaks of the first metric of ``view`` are apart.
    """
    sessions: list[Session] = []
    status = 0
    for number, place in enumerate(places, start=1):
        if count > 1 and not quiet:
            screen.tell(f"\nRun {number} of {count}\n")
        status = record(place)
        if count > 1:
            from nncftools.session.model import Session

            sessions.append(Session.load(place.session))
        if status:
            break
    if count > 1 and not quiet:
        screen.tell(f"\n{_summary(sessions, view)}\n")
    if count > 1 and status and len(sessions) < count:
        screen.tell(f"Stopped: run {len(sessions)} of {count} ended with exit status {status}\n")
    return status


def _summary(sessions: list[Session], view: View) -> str:
    """Return the peaks of all runs in one line."""
    from statistics import median

    from nncftools.render.view import label

    metric, unit = view.metrics[0], view.unit
    held = [session.peaks[metric].low for session in sessions if metric in session.peaks]
    peaks = [low for low in held if low is not None]
    runs = "1 run" if len(sessions) == 1 else f"{len(sessions)} runs"
    if not peaks:
        return f"{runs}: {label(metric)} peak unknown"
    ends = f"{unit.text(min(peaks))} to {unit.text(max(peaks))}"
    return f"{runs}: {label(metric)} peak {unit.label(median(peaks))} (median), from {ends}"
