"""Work after a recording: show the summary or the table of ``--repeat``, write files beside the session, open the page.

The last line names the files, and a command to type next.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from nncftools.analysis.session import Session
from nncftools.cli import destination, screen
from nncftools.cli.destination import Destination
from nncftools.cli.recording import Recorded, RecordingJob, guarded
from nncftools.errors import NncfToolsError
from nncftools.metrics import columns_of
from nncftools.render.view import SEPARATOR, View, label
from nncftools.sampler.client import Interrupted, Starter
from nncftools.session.model import UNKNOWN_PEAK
from nncftools.session.session import load
from nncftools.units import printable, seconds_text, shortened

if TYPE_CHECKING:
    from nncftools.analysis.comparison import Run as Measured
    from nncftools.cli.options import Request
    from nncftools.cli.series import Ended
    from nncftools.session.model import SessionData

_MOST_HEADS = 50
"""Largest number of earlier sessions that are searched for the same command."""

_LEAST_CHANGE = 1.0
"""Least change of the peak, in per cent, for which a comparison is suggested."""
_SHORT_COMMAND = 24
"""Longest command in the suggestion, in characters: a longer line would not fit in 80 columns."""
_LEAST_OF_A_PAGE_S = 1.0
_MOST_SAMPLES = 100_000
_MOST_STACKS = 500
"""Largest number of stacks in a page. With more stacks, or more samples than ``_MOST_SAMPLES``, the page takes over 1 s
to make.
"""
_NEEDS_NO_QUOTES = re.compile(r"[\w./+-][\w./+~-]*")


def last_lines(session: Session, target: Destination, view: View, *, profiled: bool) -> str:
    """Return a text with the location of the files, and a command to type next.

    If ``profiled`` is true, the command is not ``nncf-tools profile``, because the run was already profiled.
    """
    name = _name_session(target)
    views = [path for path in (target.page, target.panels) if path and path.exists()]
    shown = Path(target.shown)
    folder = shown.parent if target.folder is None else shown
    latest = shown.with_name(destination.LATEST)
    if name == destination.LATEST and latest.is_symlink():
        folder = latest
    file = str(folder / views[0].name) if views else target.shown
    if target.page is not None and target.page not in views:
        file += f", page: nncf-tools report{_argument(name)} --open"
    why, command = _suggest(session, target, view, name, profiled=profiled)
    columns = os.get_terminal_size(2).columns if sys.stderr.isatty() else inf
    is_short = len(f"{file}{SEPARATOR}{why}: {command}") <= columns
    separator = SEPARATOR if is_short else "\n"
    return f"{printable(file)}{separator}{why}: {screen.styled(command, screen.ERR)}\n"


def _name_session(target: Destination) -> str:
    """Return how the user can name the session: ``latest``, or the path."""
    if target.folder is None or not target.shown.startswith(f"{destination.DEFAULT_LOG_DIR}/"):
        return target.shown
    newest = destination.list_recordings(target.folder.parent)
    return destination.LATEST if newest[:1] == [target.session] else target.shown


def _argument(name: str) -> str:
    """Return the command-line argument for a session, with a space before it; empty for ``latest``, the default."""
    return "" if name == destination.LATEST else f" {_quote(name)}"


def _suggest(session: Session, target: Destination, view: View, name: str, *, profiled: bool) -> tuple[str, str]:
    """Return the purpose of the next command, and the command: ``("more", "nncf-tools report --details")``."""
    earlier = _find_earlier(session, target)
    change = "" if earlier is None else _describe_change(session, earlier, view.metrics[0])
    if earlier is not None and change:
        newest = destination.list_recordings(earlier.parent.parent)
        parent = target.shown.rpartition("/")[0]
        before = f"{name}~{newest.index(earlier)}" if name == destination.LATEST else f"{parent}/{earlier.parent.name}"
        return change, f"nncf-tools compare {_quote(before)} {_quote(name)}"
    if not profiled and not session.marks and session.attached_to is None and session.snapshots is None:
        command = printable(shlex.join(session.command))
        if len(command) > _SHORT_COMMAND:
            command = "COMMAND"
        return "which line held it", f"nncf-tools profile {command}"
    return "more", f"nncf-tools report{_argument(name)} --details"


def _quote(name: str) -> str:
    return name if _NEEDS_NO_QUOTES.fullmatch(name) else shlex.quote(name)


def _find_earlier(session: Session, target: Destination) -> Path | None:
    """Return the newest earlier session of the same command; None if there is none."""
    if target.folder is None or session.attached_to is not None:
        return None
    recordings = destination.list_recordings(target.folder.parent)
    sessions = [path for path in recordings if path.name == destination.SESSION and path != target.session]
    for path in sessions[:_MOST_HEADS]:
        if _read_command(path) == session.command:
            return path
    return None


def _read_command(path: Path) -> list[str] | None:
    """Return the command of a session, read from the first lines of the file; None if the lines cannot be read."""
    import msgspec

    with suppress(OSError, msgspec.MsgspecError):
        line = re.search(rb'^"command": (\[.*\])', destination.read_head(path), re.MULTILINE)
        if line is not None:
            return msgspec.json.decode(line[1], type=list[str])
    return None


def _describe_change(session: Session, earlier: Path, metric: str) -> str:
    """Return the change of the peak since an earlier run; empty if the change is small or the exit statuses differ."""
    try:
        before = load(earlier)
    except NncfToolsError:  # the file may be damaged by now
        return ""
    new = _find_peak(session, metric)
    old = _find_peak(before, metric)
    if before.exit != session.exit or not new or not old:
        return ""
    percent = 100 * (new / old - 1)
    return f"peak {percent:+.0f} % against the last run" if abs(percent) >= _LEAST_CHANGE else ""


def _find_peak(session: SessionData, metric: str) -> int | None:
    return session.peaks.get(metric, UNKNOWN_PEAK).low


def show(recorded: Recorded, run: RecordingJob, view: View, *, quiet: bool) -> None:
    """Show the summary unless ``quiet``, and write the files beside the session.

    If a signal arrives, end early, and say that files may be missing.
    """
    try:
        with run.starter.interruptible():
            if recorded.session is not None:
                _show(recorded.session, run, view, is_saved=recorded.is_saved, quiet=quiet)
    except Interrupted as interrupted:
        screen.drop_unread()
        where = f" to {run.target.shown}" if recorded.is_saved else ""
        screen.message(f"{interrupted}: the session is written{where}, but files beside it may be missing")


def _show(session: Session, run: RecordingJob, view: View, *, is_saved: bool, quiet: bool) -> None:
    target = run.target
    view = replace(view, metrics=columns_of(view.metrics, session.samples.metrics))
    rank = session.rank
    is_first = rank is None or rank.number == 0  # ranks share a terminal
    if not quiet and is_first:
        with guarded("the summary cannot be shown"):
            from nncftools.render import text

            screen.to_stderr(text.report(session, view))
    if not is_saved:
        return
    with guarded(f"the session is written to {target.shown}, but files beside it are missing"):
        target.check_place()
        _write_beside(session, target, view)
    if not quiet:
        with guarded("the summary cannot be shown"):
            if rank is None or is_first:
                screen.to_stderr(last_lines(session, target, view, profiled=run.marks_operations))
            else:
                ending = "" if session.exit is None else f", {session.exit.text}"
                line = f"Rank {rank.number}: {_describe_peak(session, view)}{ending}"
                screen.to_stderr(f"{line}: {printable(target.shown)}\n")
    if run.request.opens and target.page is not None and is_first:
        with guarded("the page could not be opened"):
            screen.open_page(target.page)


def _write_beside(session: Session, target: Destination, view: View) -> None:
    if target.sidecar is not None and session.marks:
        from nncftools.reading_marks.collecting import write_sidecar

        write_sidecar(session.marks, target.sidecar)
    for log in target.logs:
        from nncftools.render import plot, samples

        view_of_log = View([log.metric], view.unit, from_zero=log.from_zero)
        samples.write(session, view_of_log, log.metric, target.place.path / f"{log.name}.txt")
        plot.draw(session, view_of_log, target.place.path / f"{log.name}.png")
    if target.panels is not None:
        from nncftools.render import panels

        panels.draw(session, view, target.panels)
    if target.page is not None and (target.page_is_asked or is_worth_a_page(session)):
        from nncftools.files import write_file
        from nncftools.render import page

        write_file(target.page, page.report(session, view))


def is_worth_a_page(session: Session) -> bool:
    """Return whether a page would show more than the picture, and would take at most a second to make."""
    stacks = [] if session.snapshots is None else session.snapshots.stacks
    if len(session.samples) > _MOST_SAMPLES or len(stacks) > _MOST_STACKS:
        return False
    return session.duration_s >= _LEAST_OF_A_PAGE_S and bool(session.marks or stacks)


def show_repeats(request: Request, runs: Iterable[tuple[str, Ended]], starter: Starter, view: View) -> int:
    """Show the results of repeated runs as the runs end; return the exit status of the last run.

    Print a line for each run, the report of a failed run, and at the end a table of the runs without an interrupted
    run. The table is printed even if ``--prepare`` or ``--cleanup`` fails. If ``--repeat`` is 1, print only the lines
    of warm-ups, because ``show`` prints the summary of the run. If signal N stops the series after a successful run,
    return 128 + N. Raises NncfToolsError.
    """
    from nncftools.analysis.comparison import measure_run
    from nncftools.render.sentences import when_text

    figures: list[Measured] = []
    written: list[str] = []
    left = request.warmup + request.repeat
    status = 0
    stop = ""
    try:
        for name, (target, recorded) in runs:
            left -= 1
            status = recorded.status
            session = recorded.session
            if request.quiet or (target is not None and request.repeat == 1):
                continue
            if session is None or (session.rank is not None and session.rank.number):
                continue
            is_interrupted = starter.received is not None  # the signal may have cut the run short
            ending = ", interrupted" if is_interrupted else ""
            if session.exit is not None and session.exit.code != 0:
                ending = f", {session.exit.text}"
            result = f"{_describe_peak(session, view)}, {seconds_text(session.duration_s)}{ending}"
            screen.to_stderr(f"{name.capitalize()}: {result}\n")
            if target is not None:
                written.append(target.shown)
            if target is not None and not is_interrupted:
                with suppress(NncfToolsError):  # a run without samples has no figures
                    figures.append(measure_run(session, target.shown, peak=when_text(session)))
            if status and not is_interrupted:
                from nncftools.render import text

                screen.to_stderr("\n")
                screen.to_stderr(text.report(session, view))
    except Interrupted as interrupted:
        status = status or 128 + interrupted.number
        stop = str(interrupted)
    except NncfToolsError as error:
        error.exit_code = status or error.exit_code
        raise
    finally:
        if written:
            _summarize(figures, written, view)
    if left and not stop:
        stop = f"{name} ended with exit status {status}"
    if stop:
        screen.message(f"stopped: {stop}")
    return status


def _describe_peak(session: Session, view: View) -> str:
    """Return the peak of the view's first metric: ``RSS peak 633.2 MiB``."""
    metric = next(iter(columns_of(view.metrics, session.peaks)), view.metrics[0])
    return f"{label(metric)} peak {view.unit.label(_find_peak(session, metric))}"


def _summarize(runs: Sequence[Measured], written: Sequence[str], view: View) -> None:
    files = printable(written[0] if len(written) == 1 else f"{written[0]} … {written[-1]}")
    if len(runs) <= 1:  # the line of the run shows all figures
        screen.to_stderr(f"Written to {files}\n")
        return
    from nncftools.render.comparison import repeats
    from nncftools.render.table import Fitting

    title = screen.styled(f"{len(runs)} RUNS", screen.ERR)
    screen.to_stderr(f"\n{title}\n{shortened(printable(runs[0].command), 200)}\n\n")
    names = [name.removeprefix("peak_") for name in runs[0].figures]
    metrics = columns_of(view.metrics, names)
    screen.to_stderr(Fitting(repeats(runs, metrics, view.unit)))
    screen.to_stderr(f"\nWritten to {files}\n")
    beginning, _, end = written[0].rpartition("-1.")
    # without --output, each run has a folder; a pattern would include an interrupted run
    if beginning and len(runs) == len(written):
        command = f"nncf-tools compare --base {shlex.quote(f'{beginning}-*.{end}')} --new 'NEW-*.{end}'"
        screen.to_stderr(f"\nTo compare these runs with another group of runs, record the group, then: {command}\n")
