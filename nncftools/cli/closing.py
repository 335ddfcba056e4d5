"""What follows a recording: its summary, files beside its session, the page in a browser, the table of ``--repeat``.

The last line says where the files are, and what to type next.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from nncftools.analysis.session import Session
from nncftools.cli import destination, screen
from nncftools.cli.destination import Destination
from nncftools.cli.recording import Recorded, RecordingJob, guarded
from nncftools.errors import NncfToolsError
from nncftools.metrics import columns_of
from nncftools.render.view import SEPARATOR, View, label
from nncftools.sampler.client import Interrupted, Starter
from nncftools.session.session import load
from nncftools.units import printable, seconds_text, shortened

if TYPE_CHECKING:
    from nncftools.analysis.comparison import Run as Measured

_MOST_LOOKED_AT = 50
_LARGEST = 64 << 20
"""Reading a larger session would take longer than its line is worth."""
_LEAST_CHANGE = 1.0
"""A smaller change of the peak, in percent, is not worth a comparison."""
_SHORT_COMMAND = 24
"""With a longer one, the line would not fit in 80 columns."""
_LEAST_OF_A_PAGE_S = 1.0
_MOST_SAMPLES, _MOST_STACKS = 100_000, 500
"""With more, making the page takes longer than a second."""
_LINE_BREAK = "\n"
_NEEDS_NO_QUOTES = re.compile(r"[\w./+-][\w./+~-]*")


def last_lines(session: Session, target: Destination, view: View, *, profiled: bool) -> str:
    """Return where the files are and one next command, ready to print; after `profile` (``profiled``), not that one."""
    name = _name(target)
    views = [path for path in (target.page, target.panels) if path and path.exists()]
    shown = pathlib.Path(target.shown)
    folder = shown.parent if target.folder is None else shown
    latest = shown.with_name(destination.LATEST)
    if name == destination.LATEST and latest.is_symlink():
        folder = latest
    file = str(folder / views[0].name) if views else target.shown
    of = "" if name == destination.LATEST else f" {_typed(name)}"
    if target.page is not None and target.page not in views:
        file += f", page: nncf-tools report{of} --open"
    why, command = _next(session, target, view, name, profiled=profiled)
    columns = os.get_terminal_size(2).columns if sys.stderr.isatty() else inf
    length = len(why) + len(": ") + len(command)
    before = SEPARATOR if len(file) + len(SEPARATOR) + length <= columns else _LINE_BREAK
    between = " " if length <= columns else _LINE_BREAK
    return f"{printable(file)}{before}{why}:{between}{screen.styled(command, screen.ERR)}\n"


def _name(target: Destination) -> str:
    """Return how a command names the session: ``latest``, if that leads to it."""
    if target.folder is None or not target.shown.startswith(f"{destination.DEFAULT_LOG_DIR}/"):
        return target.shown
    newest = destination.list_recordings(target.folder.parent)
    return destination.LATEST if newest[:1] == [target.session] else target.shown


def _next(session: Session, target: Destination, view: View, name: str, *, profiled: bool) -> tuple[str, str]:
    """Return the purpose of the next command, and the command."""
    earlier = _earlier(session, target)
    change = "" if earlier is None else _change(session, earlier, view)
    if earlier is not None and change:
        newest = destination.list_recordings(earlier.parent.parent)
        parent = target.shown.rpartition("/")[0]
        before = f"{name}~{newest.index(earlier)}" if name == destination.LATEST else f"{parent}/{earlier.parent.name}"
        return change, f"nncf-tools compare {_typed(before)} {_typed(name)}"
    if not profiled and not session.marks and session.attached_to is None and session.snapshots is None:
        command = printable(shlex.join(session.command))
        return "which line held it", f"nncf-tools profile {command if len(command) <= _SHORT_COMMAND else 'COMMAND'}"
    return "more", f"nncf-tools report{'' if name == destination.LATEST else f' {_typed(name)}'} --details"


def _typed(name: str) -> str:
    """Return a name as it must be typed in a shell."""
    return name if _NEEDS_NO_QUOTES.fullmatch(name) else shlex.quote(name)


def _earlier(session: Session, target: Destination) -> pathlib.Path | None:
    if target.folder is None or session.attached_to is not None:
        return None
    others = (path for path in destination.list_recordings(target.folder.parent) if path.parent != target.folder)
    of_sessions = [path for path in others if path.name == destination.SESSION][:_MOST_LOOKED_AT]
    return next((path for path in of_sessions if _command(path) == session.command), None)


def _command(path: pathlib.Path) -> list[str] | None:
    """Return the command of a session, read from its first lines: each holds one key."""
    import msgspec

    with contextlib.suppress(OSError, msgspec.MsgspecError):
        line = re.search(rb'^"command": (\[.*\])', destination.read_head(path), re.MULTILINE)
        if line is not None and path.stat().st_size <= _LARGEST:
            return msgspec.json.decode(line[1], type=list[str])
    return None


def _change(session: Session, earlier: pathlib.Path, view: View) -> str:
    """Return how the peak differs from that of an earlier run; empty if it does not, or if that run ended otherwise."""
    try:
        before = load(earlier)
    except NncfToolsError:  # it was damaged since
        return ""
    metric = view.metrics[0]
    now_peak, then_peak = session.peaks.get(metric), before.peaks.get(metric)
    if before.exit != session.exit or now_peak is None or then_peak is None or not now_peak.low or not then_peak.low:
        return ""
    percent = 100 * (now_peak.low / then_peak.low - 1)
    return f"peak {percent:+.0f} % against the last run" if abs(percent) >= _LEAST_CHANGE else ""


def show(recorded: Recorded, run: RecordingJob, view: View, *, quiet: bool) -> None:
    """Show the summary unless ``quiet``, and write the files beside the session; a signal ends it early."""
    try:
        with run.starter.interruptible():
            if recorded.session is not None:
                _show(recorded.session, run, view, is_saved=recorded.is_saved, quiet=quiet)
    except Interrupted as interrupted:
        run.starter.asked_to_end = interrupted.number
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
                line = f"Rank {rank.number}: {_peak_text(session, view)}{ending}"
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
    """Return whether a page shows more than the picture, and is made within a second."""
    stacks = [] if session.snapshots is None else session.snapshots.stacks
    is_quick = len(session.samples) <= _MOST_SAMPLES and len(stacks) <= _MOST_STACKS
    return is_quick and session.duration_s >= _LEAST_OF_A_PAGE_S and bool(session.marks or stacks)


def show_repeats(
    count: int, runs: Iterable[tuple[Destination, Recorded]], starter: Starter, view: View, *, quiet: bool
) -> int:
    """Show runs while they end, none of which has shown a report; return the last exit status.

    Print one line for each run, the report of one that failed, and at the end one table of all runs.
    """
    from nncftools.analysis.comparison import measured
    from nncftools.render.sentences import when_text

    figures: list[Measured] = []
    written: list[str] = []
    done = status = 0
    for target, recorded in runs:
        done += 1
        status, session = recorded.status, recorded.session
        if session is None or quiet or (session.rank is not None and session.rank.number):
            continue
        written.append(target.shown)
        ending = "" if session.exit is None or session.exit.code == 0 else f", {session.exit.text}"
        text_of_run = f"{_peak_text(session, view)}, {seconds_text(session.duration_s)}{ending}"
        screen.to_stderr(f"Run {done} of {count}: {text_of_run}\n")
        with contextlib.suppress(NncfToolsError):  # a run without samples has no figures
            figures.append(measured(session, target.shown, peak=when_text(session)))
        if status and starter.asked_to_end is None:
            from nncftools.render import text

            screen.to_stderr("\n")
            screen.to_stderr(text.report(session, view))
    if written:
        _summarize(figures, written, view)
    if done < count:
        why = f"ended with exit status {status}" if starter.asked_to_end is None else "was interrupted"
        screen.message(f"stopped: run {done} of {count} {why}")
    return status


def _peak_text(session: Session, view: View) -> str:
    """Return the peak of the first metric of a view: ``RSS peak 633.2 MiB``."""
    metric = next(iter(columns_of(view.metrics, session.peaks)), view.metrics[0])
    peak = session.peaks.get(metric)
    return f"{label(metric)} peak {view.unit.label(None if peak is None else peak.low)}"


def _summarize(runs: Sequence[Measured], written: Sequence[str], view: View) -> None:
    files = printable(written[0] if len(written) == 1 else f"{written[0]} … {written[-1]}")
    if len(runs) <= 1:  # the lines of the runs say it all
        screen.to_stderr(f"Written to {files}\n")
        return
    from nncftools.render.comparison import repeats
    from nncftools.render.table import Fitting

    title = screen.styled(f"{len(runs)} RUNS", screen.ERR)
    screen.to_stderr(f"\n{title}\n{shortened(printable(runs[0].command), 200)}\n\n")
    metrics = columns_of(view.metrics, [name.removeprefix("peak_") for name in runs[0].figures])
    screen.to_stderr(Fitting(repeats(runs, metrics, view.unit)))
    beginning, _, end = written[0].rpartition("-1.")  # without --output, each run has a folder
    group = f"{beginning}-*.{end}" if beginning else "NEW-*"
    earlier = _earlier_group(pathlib.Path(written[0]), f"-1.{end}") if beginning else "OLD-*"
    base, new = (earlier, group) if earlier else (group, f"NEW-*.{end}")
    when = "" if earlier and beginning else "  when another group is recorded"
    command = f"nncf-tools compare --base {shlex.quote(base)} --new {shlex.quote(new)}"
    screen.to_stderr(f"\nWritten to {files}\n\nNext  {command}{when}\n")


def _earlier_group(first: pathlib.Path, end: str) -> str:
    """Return the pattern of the newest other group in the folder of this one; empty if there is none."""
    others = [path for path in first.parent.iterdir() if path.name.endswith(end) and path.name != first.name]
    newest = max(others, key=lambda path: path.stat().st_mtime_ns, default=None)
    return "" if newest is None else f"{newest}".removesuffix(end) + end.replace("1", "*", 1)
