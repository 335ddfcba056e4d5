"""Records one command several times, as a group for ``nncf-tools compare``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nncftools.cli import screen
from nncftools.metrics import columns_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from nncftools.cli.destination import Destination
    from nncftools.cli.recording import Recorded
    from nncftools.render.view import View
    from nncftools.session.model import Peak


def suffixes(count: int) -> list[str]:
    """Return the suffixes for the file names of the runs; a single run gets none."""
    return [""] if count == 1 else [f"-{number}" for number in range(1, count + 1)]


def repeat(
    count: int, places: Iterable[Destination], record: Callable[[Destination], Recorded], view: View, *, quiet: bool
) -> int:
    """Record ``count`` times; stop after the first run that fails. Return the last exit status.

    After several runs, print median and range of the peaks of the first metric of ``view``.
    """
    peaks: list[dict[str, Peak]] = []
    recorded = None
    done = 0
    for done, place in enumerate(places, start=1):
        if count > 1 and not quiet:
            screen.to_stderr(f"\nRun {done} of {count}\n")
        recorded = record(place)
        if recorded.session is not None:
            peaks.append(recorded.session.peaks)
        if recorded.status or recorded.interrupted:
            break
    assert recorded is not None
    if count > 1 and not quiet:
        screen.to_stderr(f"\n{_summary(peaks, view)}\n")
    if done < count:
        why = "was interrupted" if recorded.interrupted else f"ended with exit status {recorded.status}"
        screen.message(f"stopped: run {done} of {count} {why}")
    return recorded.status


def _summary(of_runs: list[dict[str, Peak]], view: View) -> str:
    """Return the peaks of all runs in one line."""
    from statistics import median

    from nncftools.render.view import label

    metric = next(iter(columns_of(view.metrics, of_runs[0] if of_runs else ())), view.metrics[0])
    unit = view.unit
    held = [peaks[metric].low for peaks in of_runs if metric in peaks]
    peaks = [low for low in held if low is not None]
    runs = "1 run" if len(of_runs) == 1 else f"{len(of_runs)} runs"
    if not peaks:
        return f"{runs}: {label(metric)} peak unknown"
    ends = f"{unit.text(min(peaks))} to {unit.text(max(peaks))}"
    return f"{runs}: {label(metric)} peak {unit.label(median(peaks))} (median), from {ends}"
