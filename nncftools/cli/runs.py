"""``nncf-tools list`` shows the recordings of a folder, ``nncf-tools prune`` removes some of them."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Annotated, NamedTuple

from nncftools import files
from nncftools.analysis.session import Session
from nncftools.cli import destination, opening, options, screen
from nncftools.cli.parameters import OTHER, READ, WRITE, File, argument, option
from nncftools.errors import NncfToolsError, UsageError
from nncftools.journal.reading import is_recording
from nncftools.reading_marks.collecting import size_of
from nncftools.session.model import Exit
from nncftools.units import UNKNOWN, printable, seconds_from, seconds_text, shortened, size_text

_FOLDER = re.compile(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_.+")
_OURS = re.compile(r"session(\.marks|\.journal|\.snapshots)?\.(jsonl?|csv|html|png)|.+_memory_usage.*\.(txt|png)")
"""What a recording writes into its folder."""
_COMMAND = 40
_ROOM_FOR_ALL = 70

Folder = Annotated[File, argument("DIR", "The folder with the recordings. Default: memory_logs.")]


class _Run(NamedTuple):
    """A recording."""

    path: pathlib.Path
    session: Session | None
    """None when it cannot be read."""
    size: int
    """Of all its files, in bytes."""


def list(  # noqa: A001 — the name of the command
    folder: Folder = None, *, as_json: Annotated[bool, option("--json", OTHER, "Print JSON, for scripts.")] = False
) -> None:
    """List recordings, the newest first: when, name and command, peak, duration, status, size on disk.

    \b
    Examples:
      nncf-tools list
      nncf-tools list --json | jq '.[].path'

    The number is that of latest~N: `nncf-tools report latest~2` shows number 2.
    """
    runs = [_run(path) for path in destination.list_recordings(folder or options.DEFAULT_LOG_DIR)]
    if as_json:
        screen.to_stdout(f"{json.dumps([_facts(run) for run in runs], indent=2)}\n")
    elif runs:
        _show(runs, screen.OUT, range(len(runs)))
    else:
        screen.message(f"no recordings in {str(folder or options.DEFAULT_LOG_DIR)!r}")


def prune(
    folder: Folder = None,
    *,
    keep: Annotated[int | None, option("--keep N", WRITE, "Remove all but the newest N.", min=0)] = None,
    older: Annotated[
        float | None, option("--older TIME", READ, "Remove those older than TIME: 30d, 12h.", parser=seconds_from)
    ] = None,
    yes: Annotated[bool, option("--yes -y", OTHER, "Do not ask.")] = False,
) -> int:
    """Remove recordings: show which, and ask.

    \b
    Examples:
      nncf-tools prune --keep 20
      nncf-tools prune --older 30d --yes

    Only folders that `monitor` and `profile` made are removed, and only if nothing
    else is in them. What is still being recorded stays, and with --yes also what
    cannot be read as a recording.
    """
    if (keep is None) == (older is None):
        raise UsageError("option --keep: either --keep or --older expected; see `nncf-tools prune --help`")
    log_dir = folder or options.DEFAULT_LOG_DIR
    with destination.writing("--keep", log_dir), contextlib.suppress(FileNotFoundError):
        files.Folder(log_dir).close()
    paths = destination.list_recordings(log_dir)
    before_s = time.time() - (older or 0.0)
    unwanted = paths[keep:] if keep is not None else [at for at in paths if destination.write_time(at) < before_s]
    with destination.writing("--keep", log_dir):  # another prune may remove them now
        removable = [path for path in unwanted if _is_removable(path, log_dir)]
        shown = {path.parent: path.parent.stat() for path in removable}
    runs = [*map(_run, removable)]
    if not runs:
        screen.message("nothing to remove")
        return 0
    _show(runs, screen.ERR, [paths.index(run.path) for run in runs])
    agreed = _choose(runs, yes=yes)
    for removed in sorted(agreed):
        _remove(removed, shown[removed])
    link = log_dir / destination.LATEST
    if link.is_symlink() and not link.exists() and not files.other_owner(link.lstat()):
        link.unlink()
    if agreed:
        screen.line(f"Removed {_count_text([run for run in runs if run.path.parent in agreed])}")
        return 0
    screen.message("nothing was removed")
    return int(not yes)


def _choose(runs: Sequence[_Run], *, yes: bool) -> set[pathlib.Path]:
    """Ask which folders to remove; ``yes`` means all but those in which no file can be read as a recording."""
    readable = {run.path.parent for run in runs if run.session is not None}
    recordings = [run for run in runs if run.path.parent in readable]
    agreed = {*readable} if recordings and (yes or _agreed(f"Remove {_count_text(recordings)}? [y/N] ")) else set()
    for folder in dict.fromkeys(run.path.parent for run in runs if run.path.parent not in readable):
        if yes:
            screen.message(f"{str(folder)!r} stays: it cannot be read as a recording; without --yes you are asked")
        elif _agreed(f"Remove {str(folder)!r}, which cannot be read as a recording? [y/N] "):
            agreed.add(folder)
    return agreed


def _count_text(runs: Sequence[_Run]) -> str:
    what = f"{len(runs):,} recordings" if len(runs) > 1 else "1 recording"
    return f"{what}, {size_text(sum(run.size for run in runs))}"


def _is_removable(path: pathlib.Path, log_dir: pathlib.Path) -> bool:
    """Return whether a recording has a folder of its own, which holds nothing but what a recording writes."""
    folder = path.parent
    if folder.parent != log_dir or folder.is_symlink() or not _FOLDER.fullmatch(folder.name):
        return False
    is_ours = not files.other_owner(folder.stat()) and all(map(_is_ours, folder.iterdir()))
    return is_ours and not any(map(is_recording, folder.glob(f"*{destination.JOURNAL_ENDING}")))


def _is_ours(file: pathlib.Path) -> bool:
    """Return whether a recording of this user wrote a file, or made a link."""
    is_file = file.is_file() or file.is_symlink()
    return bool(_OURS.fullmatch(file.name)) and is_file and not files.other_owner(file.lstat())


def _remove(folder: pathlib.Path, shown: os.stat_result) -> None:
    """Remove the folder that was shown. Raises NncfToolsError for another one, or a link, in its place."""
    with destination.writing("--keep", folder):
        with files.Folder(folder) as held:
            if not os.path.samestat(os.fstat(held.descriptor), shown):
                raise OSError(f"{folder} is another folder now")
            for file in held.descriptor_path.iterdir():
                if _is_ours(file):
                    file.unlink()
        folder.rmdir()


def _agreed(question: str) -> bool:
    if not sys.stdin.isatty():
        raise UsageError("option --yes: needed where nobody can be asked")
    screen.to_stderr(question)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _run(path: pathlib.Path) -> _Run:
    size = size_of(path.parent if _FOLDER.fullmatch(path.parent.name) else path) or 0  # it may be gone
    try:
        return _Run(path, opening.open_session(path, path.parent), size)
    except NncfToolsError:
        return _Run(path, None, size)


def _facts(run: _Run) -> dict[str, object]:
    session, facts = run.session, {"path": str(run.path), "size": run.size}
    if session is None:
        return facts
    peak, ended = session.peaks.get("rss"), session.exit or Exit()
    facts |= {"start": session.start.utc, "name": session.name, "command": session.command}
    facts |= {"peak_rss": peak and peak.low}
    return {**facts, "duration_s": session.duration_s, "exit_code": ended.code, "signal": ended.signal}


def _show(runs: Sequence[_Run], stream: str, numbers: Sequence[int]) -> None:
    from nncftools.render.table import Cell, Column, Row, Table, painted

    columns = [Column("#"), Column("When, UTC", is_text=True), Column("Command", is_text=True)]
    columns += [*map(Column, ("Peak", "Lasted")), Column("Ended", is_text=True), Column("Size")]
    add_suffix = zip(numbers, runs, strict=True)
    rows = [Row(cells=[*map(Cell, (f"{number}", *_cells(run)))]) for number, run in add_suffix]
    table = Table(columns=columns, rows=rows)
    if shutil.get_terminal_size((screen.PLAIN_WIDTH, 1)).columns < _ROOM_FOR_ALL:
        table = table.with_columns([0, 2, 3, 5])  # number, command, peak, how it ended
    screen.if_read(painted(table, folds=True), stream)


def _cells(run: _Run) -> Iterator[str]:
    from nncftools.render.view import command_text

    session = run.session
    if session is None:
        yield from (UNKNOWN, shortened(printable(str(run.path)), _COMMAND), UNKNOWN, UNKNOWN, "cannot be read")
    else:
        peak = session.peaks.get("rss")
        yield printable((session.start.utc or UNKNOWN).replace("T", " ")[:16])
        name = f"{printable(session.name)}: " if session.name and session.command else ""
        yield shortened(f"{name}{command_text(session)}", _COMMAND)
        yield size_text(None if peak is None else peak.low)
        yield seconds_text(session.duration_s)
        yield "unfinished" if session.exit is None else session.exit.text.replace("exit status", "exit")
    yield size_text(run.size)
