"""The last lines after a recording: what was written, what changed since the last run, and what to type next.

Records one command several times, as a group for ``nncf-tools compare``.

Shows a page in a browser.
"""

from __future__ import annotations

import contextlib
import pathlib
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from nncftools.cli import destination, screen
from nncftools.cli.destination import Destination
from nncftools.errors import NncfToolsError
from nncftools.metrics import columns_of
from nncftools.render.view import View, label
from nncftools.session.session import Session
from nncftools.units import printable, seconds_text, shortened

if TYPE_CHECKING:
    from nncftools.analysis.comparison import Run
    from nncftools.cli.recording import Recorded


_HEAD = 65_536
_MOST_LOOKED_AT = 50
_LARGEST = 64 << 20
"""Reading a larger session would take longer than its line is worth."""
_SAME = 0.005
_SHORT_COMMAND = 24
"""With a longer one, the line would not fit in 80 columns."""
_LONG_ENOUGH_S = 0.5
"""The duration of a shorter run says more about its start than about its work."""
_NEEDS_NO_QUOTES = re.compile(r"[\w./+-][\w./+~-]*")


def text(session: Session, place: Destination, view: View, *, profiled: bool) -> str:
    """Return the lines, ready to print; ``profiled``: `profile` made the session, and is not named again."""
    earlier = _earlier(session, place)
    lines = [f"\nWritten to {printable(place.shown)}"]
    of_views = (("page", place.page), ("picture", place.panels))
    lines += [f"  {name:<8} {printable(_shown(path, place))}" for name, path in of_views if path and path.exists()]
    if earlier is not None:
        with contextlib.suppress(NncfToolsError):  # it was damaged since
            lines += _change(session, earlier, view)
    steps = list(_next(session, place, earlier, profiled=profiled))
    width = max(len(typed) for typed, _ in steps)
    for number, (typed, meaning) in enumerate(steps):
        heading = "\nNext" if number == 0 else "    "
        lines.append(f"{heading}  {screen.bold(typed, screen.ERR)}{' ' * (width - len(typed))}  {meaning}")
    return "\n".join(lines) + "\n"


def _shown(path: pathlib.Path, place: Destination) -> str:
    """Return a file beside the session as the user would type it."""
    if place.folder is not None:
        return f"{place.shown}/{path.name}"
    return str(pathlib.Path(place.shown).with_name(path.name))


def _next(
    session: Session, place: Destination, earlier: pathlib.Path | None, *, profiled: bool
) -> list[tuple[str, str]]:
    """Return what to type next, with what it shows."""
    name = _name(place)
    word = "" if name == destination.WORDS[0] else f" {_typed(name)}"
    steps = []
    if session.snapshots is not None and session.snapshots.stacks:
        steps.append((f"nncf-tools report{word} --peak", "which code holds the memory"))
    elif not profiled and not session.marks and session.attached_to is None and session.snapshots is None:
        steps.append((f"nncf-tools profile {_brief(session)}", "which operation and which code cost it"))
    if earlier is not None:
        both = f"{_typed(_before(earlier, place))} {_typed(name)}"
        steps.append((f"nncf-tools compare {both}", "what changed since the last run"))
    if find_spec("plotly") is None:
        steps.append(("pip install 'nncf-tools[html]'", "then there is an interactive page, too"))
    else:
        steps.append((f"nncf-tools report{word} --open", "the interactive page, with all of it"))
    return steps


def _typed(name: str) -> str:
    """Return a name as it must be typed in a shell."""
    return name if _NEEDS_NO_QUOTES.fullmatch(name) else shlex.quote(name)


def _name(place: Destination) -> str:
    """Return the shortest name of the session for other commands."""
    if place.folder is None:
        return place.shown
    return destination.WORDS[0] if _is_usual(place) else place.shown


def _is_usual(place: Destination) -> bool:
    """Return whether a word such as ``latest`` means this session: no other recording is newer."""
    if place.folder is None or not place.shown.startswith(f"{destination.DEFAULT_LOG_DIR}/"):
        return False
    return destination.in_order(place.folder.parent)[:1] == [place.session]


def _before(earlier: pathlib.Path, place: Destination) -> str:
    """Return the shortest name of an earlier session in the same log folder."""
    assert place.folder is not None
    if _is_usual(place):
        return f"{destination.WORDS[0]}~{destination.in_order(place.folder.parent).index(earlier)}"
    return f"{place.shown.rpartition('/')[0]}/{earlier.parent.name}"


def _brief(session: Session) -> str:
    words = printable(shlex.join(session.command))
    return words if len(words) <= _SHORT_COMMAND else "COMMAND"


def _earlier(session: Session, place: Destination) -> pathlib.Path | None:
    """Return the newest other session of the same command beside this one."""
    if place.folder is None or session.attached_to is not None:
        return None
    others = (path for path in destination.in_order(place.folder.parent) if path.parent != place.folder)
    of_sessions = [path for path in others if path.name == destination.SESSION][:_MOST_LOOKED_AT]
    return next((path for path in of_sessions if _command(path) == session.command), None)


def _command(path: pathlib.Path) -> list[str] | None:
    """Return the command of a session by its first lines, of which each holds one key."""
    import msgspec

    try:
        with path.open("rb") as file:
            if path.stat().st_size > _LARGEST:
                return None
            head = file.read(_HEAD)
        line = next(line for line in head.split(b"\n") if line.startswith(b'"command": '))
        return msgspec.json.decode(line.partition(b": ")[2].removesuffix(b","), type=list[str])
    except (OSError, StopIteration, msgspec.MsgspecError):
        return None


def _change(session: Session, earlier: pathlib.Path, view: View) -> list[str]:
    """Return in one line how peak and duration differ from an earlier run; nothing if it ended otherwise."""
    from nncftools.session import session as session_session

    before = session_session.load(earlier)
    if before.exit != session.exit:
        return []
    metric = view.metrics[0]
    now_peak, then_peak = (peaks.get(metric) for peaks in (session.peaks, before.peaks))
    now = None if now_peak is None else now_peak.low
    then = None if then_peak is None else then_peak.low
    if not now or not then:
        return []
    against = "as in" if _is_same(now, then) else "against"
    peak = f"{label(metric)} peak {_percent(now, then)} {against} the last run ({view.unit.label(then)})"
    lasted = f", duration {_percent(session.duration_s, before.duration_s)} ({seconds_text(before.duration_s)})"
    return [f"{screen.bold(peak, screen.ERR)}{lasted if before.duration_s >= _LONG_ENOUGH_S else ''}"]


def _percent(now: float, then: float) -> str:
    return "the same" if _is_same(now, then) else f"{100 * (now / then - 1):+.0f} %"


def _is_same(now: float, then: float) -> bool:
    return not then or abs(now / then - 1) < _SAME


_COMMAND = 200


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


def show(page: pathlib.Path) -> None:
    """Open a page in the user's browser; without one, say where the page is."""
    import webbrowser

    if not webbrowser.open(page.absolute().as_uri()):
        screen.message(f"no browser could be opened; the page is {page}")
