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
from pathlib import Path
from typing import Annotated, NamedTuple

from nncftools import files
from nncftools.analysis.session import Session
from nncftools.cli import destination, opening, options, screen
from nncftools.cli.parameters import OTHER, READ, WRITE, File, argument, option
from nncftools.errors import NncfToolsError, UsageError
from nncftools.journal.reading import is_recording
from nncftools.reading_marks.collecting import measure_size
from nncftools.session.model import Exit
from nncftools.units import UNKNOWN, printable, seconds_from, seconds_text, shortened, size_text

_FOLDER = re.compile(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_.+")
_OURS = re.compile(r"session(\.marks|\.journal|\.snapshots)?\.(jsonl?|csv|html|png)|.+_memory_usage.*\.(txt|png)")
"""Names of the files that a recording writes into a new folder."""
_COMMAND = 40
_ROOM_FOR_ALL = 70

Folder = Annotated[File, argument("DIR", "The folder with the recordings. Default: memory_logs.")]


class _Run(NamedTuple):
    """A recording."""

    path: Path
    session: Session | None
    """None for an unreadable recording."""
    size: int
    """Size of all files of the recording, in bytes."""


def list(  # noqa: A001 — the name of the command
    folder: Folder = None, *, as_json: Annotated[bool, option("--json", OTHER, "Print JSON, for scripts.")] = False
) -> None:
    """List recordings, the newest first: when, name and command, peak, duration, status, size on disk.

    \b
    Examples:
      nncf-tools list
      nncf-tools list --json | jq '.[].path'

    The number is the N in latest~N: `nncf-tools report latest~2` shows number 2.
    """
    folder = folder or options.DEFAULT_LOG_DIR
    runs = [_open_run(path) for path in destination.list_recordings(folder)]
    if as_json:
        screen.to_stdout(f"{json.dumps([_describe(run) for run in runs], indent=2)}\n")
    elif runs:
        _show(runs, screen.OUT, range(len(runs)))
    else:
        screen.message(f"no recordings in {str(folder)!r}")


def prune(
    folder: Folder = None,
    *,
    keep: Annotated[int | None, option("--keep N", WRITE, "Keep the newest N recordings.", min=0)] = None,
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
    unwanted = paths[keep:]
    if older is not None:
        begin_s = time.time() - older
        unwanted = [path for path in paths if destination.write_time(path) < begin_s]
    with destination.writing("--keep", log_dir):  # another prune may remove them now
        removable = [path for path in unwanted if _is_removable(path, log_dir)]
        checked = {path.parent: path.parent.stat() for path in removable}
    runs = [*map(_open_run, removable)]
    if not runs:
        screen.message("nothing to remove")
        return 0
    _show(runs, screen.ERR, [paths.index(run.path) for run in runs])
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


def _ask(runs: Sequence[_Run], *, yes: bool) -> set[Path]:
    """Ask which folders to remove; with ``yes``, return the folders of all readable recordings."""
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
            screen.message(f"{str(folder)!r} stays: it cannot be read as a recording; without --yes you are asked")
        elif _is_confirmed(f"Remove {str(folder)!r}, which cannot be read as a recording? [y/N] "):
            agreed.add(folder)
    return agreed


def _count(runs: Sequence[_Run]) -> str:
    number = f"{len(runs):,} recordings" if len(runs) > 1 else "1 recording"
    return f"{number}, {size_text(sum(run.size for run in runs))}"


def _is_removable(path: Path, log_dir: Path) -> bool:
    """Return whether a recording has a folder of its own with no other files."""
    folder = path.parent
    if folder.parent != log_dir or folder.is_symlink() or not _FOLDER.fullmatch(folder.name):
        return False
    if files.other_owner(folder.stat()):
        return False
    journals = folder.glob(f"*{destination.JOURNAL_ENDING}")
    return all(map(_is_ours, folder.iterdir())) and not any(map(is_recording, journals))


def _is_ours(file: Path) -> bool:
    """Return whether a recording of this user wrote a file, or made a link."""
    if not file.is_file() and not file.is_symlink():
        return False
    return bool(_OURS.fullmatch(file.name)) and not files.other_owner(file.lstat())


def _remove(folder: Path, checked: os.stat_result) -> None:
    """Remove a folder that was checked and shown. Raises NncfToolsError if the path now is another folder or a link."""
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
        raise UsageError("option --yes: needed where nobody can be asked")
    screen.to_stderr(question)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _open_run(path: Path) -> _Run:
    size = measure_size(path.parent if _FOLDER.fullmatch(path.parent.name) else path) or 0  # a missing file has no size
    session = None
    with suppress(NncfToolsError):
        session = opening.open_session(path, path.parent)
    return _Run(path, session, size)


def _describe(run: _Run) -> dict[str, object]:
    session = run.session
    facts: dict[str, object] = {"path": str(run.path), "size": run.size}
    if session is None:
        return facts
    peak = session.peaks.get("rss")
    end = session.exit or Exit()
    return {
        **facts,
        "start": session.start.utc,
        "name": session.name,
        "command": session.command,
        "peak_rss": peak and peak.low,
        "duration_s": session.duration_s,
        "exit_code": end.code,
        "signal": end.signal,
    }


def _show(runs: Sequence[_Run], stream: str, numbers: Sequence[int]) -> None:
    from nncftools.render.table import Cell, Column, Row, Table, render_table

    columns = [
        Column("#"),
        Column("When, UTC", is_text=True),
        Column("Command", is_text=True),
        Column("Peak"),
        Column("Lasted"),
        Column("Ended", is_text=True),
        Column("Size"),
    ]
    rows = []
    for number, run in zip(numbers, runs, strict=True):
        texts = [str(number), *_make_cells(run)]
        rows.append(Row(cells=[*map(Cell, texts)]))
    table = Table(columns=columns, rows=rows)
    if shutil.get_terminal_size((screen.PLAIN_WIDTH, 1)).columns < _ROOM_FOR_ALL:
        table = table.with_columns([0, 2, 3, 5])  # number, command, peak, end
    screen.if_read(render_table(table, folds=True), stream)


def _make_cells(run: _Run) -> Iterator[str]:
    """Yield the cells of a row after the number."""
    from nncftools.render.view import command_text

    session = run.session
    if session is None:
        path = shortened(printable(str(run.path)), _COMMAND)
        yield from (UNKNOWN, path, UNKNOWN, UNKNOWN, "cannot be read")
    else:
        yield printable((session.start.utc or UNKNOWN).replace("T", " ")[:16])
        name = f"{printable(session.name)}: " if session.name and session.command else ""
        yield shortened(f"{name}{command_text(session)}", _COMMAND)
        peak = session.peaks.get("rss")
        yield size_text(None if peak is None else peak.low)
        yield seconds_text(session.duration_s)
        yield "unfinished" if session.exit is None else session.exit.text.replace("exit status", "exit")
    yield size_text(run.size)
