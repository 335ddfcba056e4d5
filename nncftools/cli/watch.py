"""``nncf-tools watch``: follow a running recording or process; ``nncf-tools replay``: show a recorded run again."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from nncftools.analysis.session import Session
from nncftools.cli import destination, opening, options, planning, screen
from nncftools.cli.options import Request
from nncftools.cli.parameters import RECORD, SHOW, File, argument, option
from nncftools.errors import NncfToolsError, UsageError
from nncftools.journal import reading
from nncftools.journal.reading import is_recording
from nncftools.metrics import memory_of
from nncftools.render.view import View
from nncftools.units import MemoryUnit

if TYPE_CHECKING:
    from nncftools.live.follower import Follower, Replay


_SAVING_S = 10.0
_PATIENCE_S = 2.0
"""Longest time in which the sampler begins to replace the journal by the session."""


def watch(
    path: Annotated[
        File,
        argument(
            "SESSION",
            "A session, a journal, or a folder. Default: the newest running recording in memory_logs.",
            autocompletion=options.complete_session,
        ),
    ] = None,
    *,
    pid: Annotated[int | None, option("--pid PID", RECORD, "Watch this running process.", min=1)] = None,
    types: options.Types = None,
    interval: options.Interval = 0.1,
    unit: options.Unit = MemoryUnit.MiB,
) -> int:
    """Follow a recording in another terminal, job or CI runner until it ends, then show its summary.

    \b
    Examples:
      nncf-tools watch
      nncf-tools watch memory_logs/2026-11-21_09-30-00_python
      nncf-tools watch run.journal.jsonl
      nncf-tools watch --pid 4711

    \b
    Keys: q quit, space pause, m metric, l list of processes, ? help.
    Neither watching nor quitting affects the recording.
    """
    if pid is not None and path is not None:
        raise UsageError("option --pid: either a session or --pid, not both")
    if pid is not None:
        request = Request(pid=pid, types=types, interval=interval, unit=unit)
        return _run_until_end(lambda: _watch_process(request))
    return _run_until_end(lambda: _watch_recording(path, types, unit))


def _run_until_end(show: Callable[[], object]) -> int:
    """Return 0 after ``show``, or the exit status after the user or a signal ended the view."""
    from nncftools.live.viewer import Ended

    try:
        show()
    except Ended as ended:
        return ended.status
    return 0


def _watch_recording(path: Path | None, types: list[str] | None, unit: MemoryUnit) -> None:
    if path is not None and not path.is_dir():
        path = destination.find_recording(path, options.DEFAULT_LOG_DIR)
    journal = _find_journal(path)
    if journal is not None and is_recording(journal):
        with _follow(journal) as follower:
            if not _show_recording(follower, types, unit):
                screen.to_stdout("The recording continues.\n")
                return
            if follower.error is not None:
                raise NncfToolsError(f"nothing was recorded: {follower.error}")
        _summarize(_open_result(journal, _PATIENCE_S), types, unit)
        return
    if path is None:
        folder = repr(str(options.DEFAULT_LOG_DIR))
        raise NncfToolsError(f"no recording runs under {folder}; `nncf-tools report` shows the last recording")
    screen.to_stdout("This recording has ended.\n\n")
    if journal is not None:
        _summarize(_open_result(journal, 0.0), types, unit)
    else:
        _summarize(opening.open_session(path, options.DEFAULT_LOG_DIR), types, unit)


def _find_journal(path: Path | None) -> Path | None:
    """Return the journal of a session, or the newest running journal in a folder; None without any."""
    if path is not None and not path.is_dir():
        if path.name.endswith(destination.JOURNAL_ENDING):
            return path
        journal = path.with_name(destination.session_stem(path) + destination.JOURNAL_ENDING)
        return journal if journal.exists() else None
    for recording in destination.list_recordings(path or options.DEFAULT_LOG_DIR):
        if recording.name.endswith(destination.JOURNAL_ENDING) and is_recording(recording):
            return recording
    return None


def _follow(journal: Path) -> Follower:
    from nncftools.live.follower import Follower

    try:
        return Follower(journal)
    except OSError as error:
        raise NncfToolsError(f"{journal}: cannot be read: {error.strerror or error}") from error


def _show_recording(follower: Follower, types: list[str] | None, unit: MemoryUnit) -> bool:
    """Show a recording; return whether the recording has ended."""
    follower.read()
    is_here = follower.run.host.name == platform.node()
    metrics = options.memory_types(types, follower.run.columns, ()) if types else []
    return _show(follower, View(metrics, unit), "recording", is_here=is_here, stays=False)


def _show(source: Follower | Replay, view: View, state: str, *, is_here: bool, stays: bool) -> bool:
    """Show a run on the terminal, or print the last state without a terminal; return whether the run has ended."""
    from nncftools.cli.display import make_settings
    from nncftools.live import figures, viewer

    settings = make_settings(view, sys.stdout.encoding, state)
    machine = figures.Machine(is_here=is_here)
    return viewer.present(source, settings, machine, screen.to_stdout, stays=stays)


def _open_result(journal: Path, patience_s: float) -> Session:
    """Return the session that replaces a journal; after some time without a session, open the journal."""
    begun_s = time.monotonic()
    stem = journal.name.removesuffix(destination.JOURNAL_ENDING)
    while time.monotonic() < begun_s + (patience_s if journal.exists() else _SAVING_S):
        names = (f"{stem}.json", f"{stem}.json.gz", stem)
        saved = list(filter(Path.is_file, map(journal.with_name, names)))
        if saved and not journal.exists():
            return opening.open_session(saved[0], options.DEFAULT_LOG_DIR)
        time.sleep(0.05)
    return opening.open_session(journal, options.DEFAULT_LOG_DIR)


def _summarize(session: Session, types: list[str] | None, unit: MemoryUnit) -> None:
    from nncftools.render import text

    available = memory_of(session.samples.metrics)
    view = View(options.memory_types(types, available, available), unit, brief=True)
    screen.to_stdout(text.report(session, view))


def _watch_process(request: Request) -> None:
    _, columns = planning.columns(request)
    from nncftools.sampler import client
    from nncftools.sampler.client import Starter

    planning.target(request)
    plan = planning.plan(columns, request)
    with tempfile.TemporaryDirectory(prefix="nncf-tools-") as folder, Starter() as starter:
        journal = Path(folder, "session.journal.jsonl")
        descriptor = reading.create(journal, replace=False)
        with client.Sampler(starter, plan, []) as sampler:
            sampler.start(client.header("", [], None, plan), descriptor)
            os.close(descriptor)
            try:
                with _follow(journal) as follower:
                    _show_recording(follower, request.types, request.unit)
            finally:
                sampler.stop()
                sampler.wait()
        _summarize(opening.open_session(journal, options.DEFAULT_LOG_DIR), request.types, request.unit)


_SLOWEST = 0.01
_FASTEST = 1e6


def replay(
    path: Annotated[
        File,
        argument(
            "SESSION",
            "A session, a journal, a folder (the newest session in it), latest, or latest~1. Default: latest.",
            autocompletion=options.complete_session,
        ),
    ] = None,
    *,
    speed: Annotated[float, option("--speed N", SHOW, "Seconds of the run to show per second.")] = 10,
    types: options.RecordedTypes = None,
    unit: options.Unit = MemoryUnit.MiB,
) -> int:
    """Show a recorded run in the live view, at a multiple of its speed.

    \b
    Examples:
      nncf-tools replay
      nncf-tools replay run.json --speed 60

    Keys: q quit, space pause, ← → move, g peak, m metric, l list of processes, ? help.
    """
    from nncftools.live.follower import Replay

    if not _SLOWEST <= speed <= _FASTEST:
        raise UsageError(f"option --speed: a number from {_SLOWEST:g} to {_FASTEST:,.0f} expected, found {speed:g}")
    session = opening.open_session(path, options.DEFAULT_LOG_DIR)
    available = memory_of(session.samples.metrics)
    metrics = options.memory_types(types, available, ()) if types else []
    replay = Replay(session, speed)
    view = View(metrics, unit)
    return _run_until_end(lambda: _show(replay, view, f"replay ×{speed:g}", is_here=False, stays=True))
