"""What follows a recording: the last lines, the page in a browser, and the further runs of ``--repeat``.

The last line says where the files are, and what to type next.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import TYPE_CHECKING

from nncftools.analysis.session import Session
from nncftools.cli import destination, screen
from nncftools.cli.destination import Destination
from nncftools.errors import NncfToolsError
from nncftools.metrics import columns_of
from nncftools.render.view import SEPARATOR, View, label
from nncftools.session.session import load
from nncftools.units import printable, seconds_text, shortened

if TYPE_CHECKING:
    from nncftools.analysis.comparison import Run
    from nncftools.cli.recording import Recorded


_MOST_LOOKED_AT = 50
_LARGEST = 64 << 20
"""Reading a larger session would take longer than its line is worth."""
_LEAST_CHANGE = 1.0
"""A smaller change of the peak, in percent, is not worth a comparison."""
_SHORT_COMMAND = 24
"""With a longer one, the line would not fit in 80 columns."""
_LINE_BREAK = "\n"
_NEEDS_NO_QUOTES = re.compile(r"[\w./+-][\w./+~-]*")


def text(session: Session, target: Destination, view: View, *, profiled: bool) -> str:
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
    newest = destination.in_order(target.folder.parent)
    return destination.LATEST if newest[:1] == [target.session] else target.shown


def _next(session: Session, target: Destination, view: View, name: str, *, profiled: bool) -> tuple[str, str]:
    """Return the purpose of the next command, and the command."""
    earlier = _earlier(session, target)
    change = ""
    if earlier is not None:
        with contextlib.suppress(NncfToolsError):  # it was damaged since
            change = _change(session, earlier, view)
    if earlier is not None and change:
        newest = destination.in_order(earlier.parent.parent)
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
    others = (path for path in destination.in_order(target.folder.parent) if path.parent != target.folder)
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
    before = load(earlier)
    metric = view.metrics[0]
    now_peak, then_peak = session.peaks.get(metric), before.peaks.get(metric)
    if before.exit != session.exit or now_peak is None or then_peak is None or not now_peak.low or not then_peak.low:
        return ""
    percent = 100 * (now_peak.low / then_peak.low - 1)
    return f"peak {percent:+.0f} % against the last run" if abs(percent) >= _LEAST_CHANGE else ""


def repeat(
    count: int, targets: Iterable[Destination], record: Callable[[Destination], Recorded], view: View, *, quiet: bool
) -> int:
    """Record ``count`` times, without a report; stop after the first run that fails. Return the last exit status.

    Print one line for each run, the report of one that failed, and at the end one table of all runs.
    """
    from nncftools.analysis.comparison import measured
    from nncftools.render.sentences import when_text

    runs: list[Run] = []
    written: list[str] = []
    recorded = None
    done = 0
    for done, target in enumerate(targets, start=1):
        recorded = record(target)
        session = recorded.session
        if session is not None and not quiet and (session.rank is None or session.rank.number == 0):
            written.append(target.shown)
            ending = "" if session.exit is None or session.exit.code == 0 else f", {session.exit.text}"
            figures = f"{peak_text(session, view)}, {seconds_text(session.duration_s)}{ending}"
            screen.to_stderr(f"Run {done} of {count}: {figures}\n")
            with contextlib.suppress(NncfToolsError):  # a run without samples has no figures
                runs.append(measured(session, target.shown, peak=when_text(session)))
            if recorded.status and not recorded.interrupted:
                from nncftools.render import text

                screen.to_stderr("\n")
                screen.to_stderr(text.report(session, view))
        if recorded.status or recorded.interrupted:
            break
    assert recorded is not None
    if written:
        _summarize(runs, written, view)
    if done < count:
        why = "was interrupted" if recorded.interrupted else f"ended with exit status {recorded.status}"
        screen.message(f"stopped: run {done} of {count} {why}")
    return recorded.status


def peak_text(session: Session, view: View) -> str:
    """Return the peak of the first metric of a view: ``RSS peak 633.2 MiB``."""
    metric = next(iter(columns_of(view.metrics, session.peaks)), view.metrics[0])
    peak = session.peaks.get(metric)
    return f"{label(metric)} peak {view.unit.label(None if peak is None else peak.low)}"


def _summarize(runs: Sequence[Run], written: Sequence[str], view: View) -> None:
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


def show(page: pathlib.Path) -> None:
    """Open a page in the user's browser; without one, say where the page is."""
    import webbrowser

    if not webbrowser.open(page.absolute().as_uri()):
        screen.message(f"no browser could be opened; the page is {page}")
