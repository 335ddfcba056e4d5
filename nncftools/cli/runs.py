"""``nncf-tools list``: show the recordings in a folder; ``nncf-tools prune``: remove some of them."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from nncftools import files
from nncftools.analysis.session import Session, select_near_peak
from nncftools.backports import StrEnum
from nncftools.cli import destination, opening, options, screen
from nncftools.cli.parameters import OTHER, READ, SHOW, WRITE, File, argument, option
from nncftools.errors import NncfToolsError, UsageError
from nncftools.journal.reading import SIDECARS, SNAPSHOTS_ENDING, is_recording
from nncftools.reading_marks.collecting import measure_size
from nncftools.render.peak_lines import name_largest_holder
from nncftools.render.sentences import brief_where_text
from nncftools.render.view import command_text
from nncftools.session.model import Exit
from nncftools.units import UNKNOWN, MemoryUnit, count_text, printable, seconds_from, seconds_text, shortened, size_text

if TYPE_CHECKING:
    from rich.console import RenderableType

_FOLDER = re.compile(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_.+")
_ENDINGS = (".json", ".png", ".html", destination.JOURNAL_ENDING, SNAPSHOTS_ENDING, *SIDECARS)
_OURS = {f"session{ending}" for ending in _ENDINGS}
"""The names of all files that a recording writes into a new folder."""
_COMMAND = 40
_OWNER = 30
_ROOM_FOR_ALL = 100
_ROOM_FOR_MOST = 70
_LARGEST = 16 << 20
"""Largest size of a session, in bytes, for which the operation or code at the peak is searched. A larger session would
take more than 0.1 s."""
_MOST_LINES = 20
"""Stacks are read only for this number of newest recordings, because finding a line of code takes up to 0.1 s."""

Folder = Annotated[File, argument("DIR", "The folder with the recordings. Default: memory_logs.")]


class Sort(StrEnum):
    """The order of a list of recordings."""

    DATE = "date"
    PEAK = "peak"
    DURATION = "duration"
    SIZE = "size"


@dataclass
class _Run:
    number: int
    """The N in ``latest~N``."""
    path: Path
    session: Session | None
    """None if the recording cannot be read."""
    size: int
    """Size of all files of the recording, in bytes."""
    title: str
    """Name and command; if the recording cannot be read, the path."""
    peak: int | None = None
    duration: float | None = None
    trend: Sequence[int | None] = ()
    """The peaks of the last runs with the same title, up to this run, the oldest first."""
    bars: str = ""
    """The trend as bars from 0 to the highest peak; a ``-`` is an unknown peak."""


def list(  # noqa: A001 — the name of the command
    folder: Folder = None,
    *,
    name: Annotated[
        str, option("--name PATTERN", READ, "Only runs with this text in name or command; * and ? are wildcards.")
    ] = "",
    sort: Annotated[
        Sort,
        option(
            f"--sort {'|'.join(Sort)}",
            SHOW,
            "The newest, largest or longest first. Default: date.",
            autocompletion=options.complete_from(Sort),
        ),
    ] = Sort.DATE,
    trend: Annotated[
        int, option("--trend N", SHOW, "Draw the peaks of the last N runs of each command as bars.", min=2)
    ] = 0,
    as_json: Annotated[bool, option("--json", OTHER, "Print JSON, for scripts.")] = False,
) -> None:
    """List recordings: start, name, command, peak, duration, status, size on disk.

    \b
    Examples:
      nncf-tools list
      nncf-tools list --sort peak
      nncf-tools list --name 'export*int4' --trend 10
      nncf-tools list --json | jq '.[].path'

    The number is the N in latest~N: `nncf-tools report latest~2` shows number 2.
    "Peak in" is the operation at the peak, or else the line of code. Lines of code
    are only shown for the newest 20 recordings. Bars go from 0 to the highest peak,
    the oldest run first; a - is an unknown peak.
    """
    folder = folder or options.DEFAULT_LOG_DIR
    every = [_open_run(*each) for each in enumerate(destination.list_recordings(folder))]
    pattern = name.replace("[", "[[]")
    runs = [run for run in every if fnmatchcase(run.title, f"*{pattern}*")]
    if trend:
        _add_trends(runs, trend)
    if sort is not Sort.DATE:
        runs.sort(key=lambda run: getattr(run, sort) or 0, reverse=True)
    if as_json:
        screen.to_stdout(f"{json.dumps([_describe(run) for run in runs], indent=2)}\n")
    elif runs:
        screen.to_stdout(_make_table(runs))
    else:
        text = f" with {name!r} in name or command" if every else ""
        screen.message(f"no recordings{text} in {str(folder)!r}")


def _add_trends(runs: Sequence[_Run], most: int) -> None:
    """Set ``trend`` and ``bars`` of each run: the peaks of the last ``most`` runs with the same title, up to this run.

    ``runs`` begins with the newest run.
    """
    from nncftools.render.terminal_chart import draw_bars

    peaks: dict[str, Sequence[int | None]] = {}
    for run in reversed(runs):
        last = [*peaks.get(run.title, ()), run.peak]
        run.trend = last[-most:]
        peaks[run.title] = run.trend
        highest = max(peak or 1 for peak in run.trend)
        bars = draw_bars([(peak or 0) / highest for peak in run.trend])
        run.bars = bars.replace(" ", "-")


def prune(
    folder: Folder = None,
    *,
    keep: Annotated[int | None, option("--keep N", WRITE, "Keep the newest N readable recordings.", min=0)] = None,
    older: Annotated[
        float | None, option("--older TIME", READ, "Remove recordings older than TIME: 30d, 12h.", parser=seconds_from)
    ] = None,
    yes: Annotated[bool, option("--yes -y", OTHER, "Do not ask.")] = False,
) -> int:
    """Show the recordings to remove, ask, and remove them.

    \b
    Examples:
      nncf-tools prune --keep 20
      nncf-tools prune --older 30d --yes

    Only folders made by `monitor` and `profile` are removed, and only if they
    contain no other files. Running recordings stay. With --yes, unreadable
    recordings stay, too.
    """
    if (keep is None) == (older is None):
        raise UsageError("option --keep: either --keep or --older expected; see `nncf-tools prune --help`")
    log_dir = folder or options.DEFAULT_LOG_DIR
    with destination.writing("--keep", log_dir), suppress(FileNotFoundError):
        files.Folder(log_dir).close()
    paths = destination.list_recordings(log_dir)
    newest = paths[: _count_newest(paths, keep or 0)]
    if older is not None:
        begin_s = time.time() - older
        newest = [path for path in paths if destination.write_time(path) >= begin_s]
    kept = {path.parent for path in newest}
    with destination.writing("--keep", log_dir):  # another `prune` may remove them now
        removable = [path for path in paths if path.parent not in kept and _is_removable(path, log_dir)]
        checked = {path.parent: path.parent.stat() for path in removable}
    runs = [_open_run(paths.index(path), path) for path in removable]
    if not runs:
        screen.message("nothing to remove")
        return 0
    screen.to_stderr(_make_table(runs))
    agreed = _ask(runs, yes=yes)
    for run_folder in sorted(agreed):
        _remove(run_folder, checked[run_folder])
    link = log_dir / destination.LATEST
    is_broken = link.is_symlink() and not link.exists()
    if is_broken and not files.other_owner(link.lstat()):
        link.unlink()
    if not agreed:
        screen.message("nothing was removed")
        return int(not yes)
    screen.line(f"Removed {_count([run for run in runs if run.path.parent in agreed])}")
    return 0


def _count_newest(paths: Sequence[Path], readable: int) -> int:
    """Return how many recordings to keep, so that the newest ``readable`` recordings that can be read are kept."""
    for number, path in enumerate(paths):
        if not readable:
            return number
        readable -= _open_run(number, path).session is not None
    return len(paths)


def _ask(runs: Sequence[_Run], *, yes: bool) -> set[Path]:
    """Ask for each removal; return the folders to remove.

    If ``yes`` is true, return the folders of all readable recordings.
    """
    readable = {run.path.parent for run in runs if run.session is not None}
    recordings = [run for run in runs if run.path.parent in readable]
    agreed: set[Path] = set()
    if recordings and (yes or _is_confirmed(f"Remove {_count(recordings)}? [y/N] ")):
        agreed |= readable
    folders = dict.fromkeys(run.path.parent for run in runs)
    for folder in folders:
        if folder in readable:
            continue
        if yes:
            screen.message(f"{str(folder)!r} is kept: it cannot be read as a recording; run without --yes to remove it")
        elif _is_confirmed(f"Remove {str(folder)!r}, which cannot be read as a recording? [y/N] "):
            agreed.add(folder)
    return agreed


def _count(runs: Sequence[_Run]) -> str:
    return f"{count_text(len(runs), 'recording')}, {size_text(sum(run.size for run in runs))}"


def _is_removable(path: Path, log_dir: Path) -> bool:
    """Return whether the recording is not running, and its folder contains only files of a recording."""
    folder = path.parent
    if folder.parent != log_dir or folder.is_symlink() or not _FOLDER.fullmatch(folder.name):
        return False
    if files.other_owner(folder.stat()):
        return False
    journals = folder.glob(f"*{destination.JOURNAL_ENDING}")
    return all(map(_is_ours, folder.iterdir())) and not any(map(is_recording, journals))


def _is_ours(file: Path) -> bool:
    """Return whether a file or link was made by a recording of this user."""
    is_file = file.is_file() or file.is_symlink()
    return is_file and file.name in _OURS and not files.other_owner(file.lstat())


def _remove(folder: Path, checked: os.stat_result) -> None:
    """Remove a folder that was checked and shown before.

    Raises NncfToolsError if the path now leads to another folder.
    """
    with destination.writing("--keep", folder):
        with files.Folder(folder) as opened:
            if not os.path.samestat(os.fstat(opened.descriptor), checked):
                raise OSError(f"{folder} is another folder now")
            for file in opened.descriptor_path.iterdir():
                if _is_ours(file):
                    file.unlink()
        folder.rmdir()


def _is_confirmed(question: str) -> bool:
    if not sys.stdin.isatty():
        raise UsageError("option --yes: needed, because standard input is not a terminal")
    screen.to_stderr(question)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _open_run(number: int, path: Path) -> _Run:
    stem = path.name.removesuffix(destination.JOURNAL_ENDING).removesuffix(".json")
    size = sum(measure_size(path.with_name(f"{stem}{ending}")) or 0 for ending in _ENDINGS)  # 0 for a missing file
    try:
        session = opening.open_session(path, path.parent)
    except NncfToolsError:
        return _Run(number, path, None, size, title=printable(str(path)))
    name = f"{printable(session.name)}: " if session.name and session.command else ""
    return _Run(
        number=number,
        path=path,
        session=session,
        size=size,
        title=f"{name}{command_text(session)}",
        peak=session.rss_peak.low,
        duration=session.duration_s,
    )


def _find_owner(run: _Run) -> str:
    """Return the operation at the RSS peak, or else the line of code that held the most memory; empty if unknown."""
    session = run.session
    if session is None or len(session.unsaved.loaded) > _LARGEST:
        return ""
    with suppress(NncfToolsError):  # the samples are invalid
        operation = brief_where_text(select_near_peak(session)).removeprefix("during ")
        if operation or run.number >= _MOST_LINES:
            return operation
        return name_largest_holder(session, MemoryUnit.MiB).partition(" in ")[2]
    return ""


def _describe(run: _Run) -> dict[str, object]:
    session = run.session
    facts: dict[str, object] = {"path": str(run.path), "size": run.size}
    if session is None:
        return facts
    end = session.exit or Exit()
    return {
        **facts,
        "start": session.start.utc,
        "name": session.name,
        "command": session.command,
        "peak_rss": run.peak,
        "peak_in": _find_owner(run) or None,
        "trend": run.trend,
        "duration_s": session.duration_s,
        "exit_code": end.code,
        "signal": end.signal,
    }


def _make_table(runs: Sequence[_Run]) -> RenderableType:
    from nncftools.render.table import Cell, Column, Row, Table, render_table

    columns = [
        Column("#"),
        Column("When, UTC"),
        Column("Command", is_text=True),
        Column("Peak"),
        Column("Lasted"),
        Column("Ended", is_text=True),
        Column("Size"),
        Column("Peak in", is_text=True),
        Column("Trend", is_text=True),
    ]
    width = shutil.get_terminal_size((screen.PLAIN_WIDTH, 1)).columns
    shown = [0, 2, 3, 5] if width < _ROOM_FOR_MOST else [*range(7)]
    rows = []
    for run in runs:
        cells = [*map(Cell, _make_texts(run))]
        if width < _ROOM_FOR_ALL:
            owner = cells[7].text.strip(UNKNOWN)
            cells[2] = cells[2]._replace(below=owner)
        rows.append(Row(cells=cells))
    if width >= _ROOM_FOR_ALL:
        shown.append(7)
    if runs[0].bars:
        shown.append(8)
    table = Table(columns=columns, rows=rows).with_columns(shown)
    return render_table(table)


def _make_texts(run: _Run) -> Iterator[str]:
    start = UNKNOWN
    end = "cannot be read"
    session = run.session
    if session is not None:
        start = printable((session.start.utc or UNKNOWN).replace("T", " ")[:16])
        end = "unfinished" if session.exit is None else session.exit.text.replace("exit status", "exit")
    yield str(run.number)
    yield start
    yield shortened(run.title, _COMMAND)
    yield size_text(run.peak)
    yield seconds_text(run.duration)
    yield end
    yield size_text(run.size)
    yield shortened(_find_owner(run), _OWNER) or UNKNOWN
    yield run.bars
