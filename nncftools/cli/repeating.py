"""Records one command several times, as a group for ``nncf-tools compare``."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from nncftools.cli import screen
from nncftools.errors import NncfToolsError
from nncftools.metrics import columns_of
from nncftools.units import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from nncftools.analysis.comparison import Run
    from nncftools.cli.destination import Destination
    from nncftools.cli.recording import Recorded
    from nncftools.render.view import View
    from nncftools.session.session import Session

_COMMAND = 200


def suffixes(count: int) -> list[str]:
    """Return the suffixes for the file names of the runs; a single run gets none."""
    return [""] if count == 1 else [f"-{number}" for number in range(1, count + 1)]


def repeat(
    count: int, places: Iterable[Destination], record: Callable[[Destination], Recorded], view: View, *, quiet: bool
) -> int:
    """Record ``count`` times, without a report; stop after the first run that fails. Return the last exit status.

    Print one line for each run, the report of one that failed, and at the end one table of all runs.
    """
    runs: list[Run] = []
    written: list[str] = []
    recorded = None
    done = 0
    for done, place in enumerate(places, start=1):
        recorded = record(place)
        session = None if quiet or _is_later_rank(recorded.session) else recorded.session
        if session is not None:
            written.append(place.shown)
            screen.to_stderr(f"Run {done} of {count}: {_line(session, view)}\n")
            _take(session, place, runs)
        if recorded.status or recorded.interrupted:
            if session is not None and not recorded.interrupted:
                _report(session, view)
            break
    assert recorded is not None
    if written:
        _summarize(runs, written, view)
    if done < count:
        why = "was interrupted" if recorded.interrupted else f"ended with exit status {recorded.status}"
        screen.message(f"stopped: run {done} of {count} {why}")
    return recorded.status


def _is_later_rank(session: Session | None) -> bool:
    """Return whether it is not the rank that prints: ranks share a terminal."""
    return session is not None and session.rank is not None and session.rank.number > 0


def _line(session: Session, view: View) -> str:
    from nncftools.render.view import label
    from nncftools.units import seconds_text

    metric = next(iter(columns_of(view.metrics, session.peaks)), view.metrics[0])
    peak = session.peaks.get(metric)
    ending = "" if session.exit is None or session.exit.code == 0 else f", {session.exit.text}"
    held = view.unit.label(None if peak is None else peak.low)
    return f"{label(metric)} peak {held}, {seconds_text(session.duration_s)}{ending}"


def _take(session: Session, place: Destination, runs: list[Run]) -> None:
    """Keep the figures of a run; one without samples has none."""
    from nncftools.analysis.comparison import measured

    try:
        runs.append(measured(session, place.shown))
    except NncfToolsError:
        return


def _report(session: Session, view: View) -> None:
    from nncftools.render import text

    screen.to_stderr("\n")
    screen.to_stderr(text.report(session, view))


def _summarize(runs: Sequence[Run], written: Sequence[str], view: View) -> None:
    from rich.console import Group
    from rich.text import Text

    from nncftools.render.comparison import repeats
    from nncftools.render.table import painted

    files = printable(written[0] if len(written) == 1 else f"{written[0]} … {written[-1]}")
    if len(runs) <= 1:  # the lines of the runs say it all
        screen.to_stderr(f"Written to {files}\n")
        return
    metrics = columns_of(view.metrics, [name.removeprefix("peak_") for name in runs[0].figures])
    screen.to_stderr(
        Group(
            Text(),
            Text(f"{len(runs)} RUNS", style="bold"),
            Text(shortened(printable(runs[0].command), _COMMAND), style="dim"),
            Text(),
            painted(repeats(runs, metrics, view.unit)),
            Text(),
            Text(f"Written to {files}"),
            Text(),
            Text(f"Next  nncf-tools compare --base {_group(written)} --new 'NEW-*'  when another group is recorded"),
        )
    )


def _group(written: Sequence[str]) -> str:
    """Return the quoted pattern of files that ``--output`` named; another one where each run has a folder."""
    beginning, _, end = written[0].rpartition("-1.")
    return shlex.quote(f"{beginning}-*.{end}") if beginning else "'OLD-*'"
