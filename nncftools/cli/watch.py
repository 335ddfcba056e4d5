"""``nncf-tools watch`` follows a recording or a process that runs; ``nncf-tools replay`` shows a recorded run again."""

from __future__ import annotations

import os
import pathlib
import platform
import sys
import tempfile
import time
from collections.abc import Callable
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


def watch(
    path: Annotated[
        File,
        argument(
            "SESSION",
            "A session, its journal, or a folder of them. Default: the newest running recording in memory_logs.",
            autocompletion=options.complete_session,
        ),
    ] = None,
    *,
    pid: Annotated[int | None, option("--pid PID", RECORD, "Watch a running process instead.", min=1)] = None,
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
    if pid is None:
        return _until_stopped(lambda: _watch_recording(path, types, unit))
    return _until_stopped(lambda: _watch_process(Request(pid=pid, types=types, interval=interval, unit=unit)))


def _until_stopped(watch: Callable[[], object]) -> int:
    """Return 0 after ``watch``, or the exit status for what ended it: the user or a signal."""
    from nncftools.live.viewer import Ended

    try:
        watch()
    except Ended as ended:
        return ended.status
    return 0


def _watch_recording(path: pathlib.Path | None, types: list[str] | None, unit: MemoryUnit) -> None:
    if path is not None and not path.is_dir():
        path = destination.find_recording(path, options.DEFAULT_LOG_DIR)
    journal = _journal(path)
    if journal is None or not is_recording(journal):
        if path is None:
            where = repr(str(options.DEFAULT_LOG_DIR))
            raise NncfToolsError(f"no recording runs under {where}; `nncf-tools report` shows the last one")
        ended = opening.open_session(path, options.DEFAULT_LOG_DIR) if journal is None else _finished(journal, 0.0)
        _summarize(ended, types, unit, "This recording has ended.\n\n")
        return
    with _follow(journal) as follower:
        if not _show(follower, types, unit):
            screen.to_stdout("The recording continues.\n")
            return
        if follower.error is not None:
            raise NncfToolsError(f"nothing was recorded: {follower.error}")
    _summarize(_finished(journal, _PATIENCE_S), types, unit)


def _journal(path: pathlib.Path | None) -> pathlib.Path | None:
    """Return the journal of ``path``, or the newest running one of a folder; None if no recording runs there."""
    if path is not None and not path.is_dir():
        if path.name.endswith(destination.JOURNAL_ENDING):
            return path
        journal = path.with_name(destination.session_stem(path) + destination.JOURNAL_ENDING)
        return journal if journal.exists() else None
    recordings = destination.list_recordings(path or options.DEFAULT_LOG_DIR)
    journals = (path for path in recordings if path.name.endswith(destination.JOURNAL_ENDING))
    return next(filter(is_recording, journals), None)


def _follow(journal: pathlib.Path) -> Follower:
    from nncftools.live.follower import Follower

    try:
        return Follower(journal)
    except OSError as error:
        raise NncfToolsError(f"{journal}: cannot be read: {error.strerror or error}") from error


def _show(follower: Follower, types: list[str] | None, unit: MemoryUnit) -> bool:
    """Show a recording; return whether it has ended."""
    follower.read()
    is_here = follower.run.host.name == platform.node()
    metrics = options.memory_types(types, follower.run.columns, ()) if types else []
    return _draw(follower, View(metrics, unit), "recording", is_here=is_here, stays=False)


def _draw(source: Follower | Replay, view: View, state: str, *, is_here: bool, stays: bool) -> bool:
    """Show a source on the terminal, without one print its last state; return whether it has ended."""
    from nncftools.cli.display import view_settings
    from nncftools.live import figures, viewer

    look = view_settings(view, sys.stdout.encoding, state)
    return viewer.present(source, look, figures.Machine(is_here=is_here), screen.to_stdout, stays=stays)


def _finished(journal: pathlib.Path, patience_s: float) -> Session:
    """Return the session that replaces a journal; after some time in which none does, what the journal has."""
    begun_s = time.monotonic()
    name = journal.name.removesuffix(destination.JOURNAL_ENDING)
    while time.monotonic() < begun_s + (patience_s if journal.exists() else _SAVING_S):
        sessions = (journal.with_name(name + ending) for ending in (".json", ".json.gz", ""))
        session = next((path for path in sessions if path.is_file()), None)
        if session is not None and not journal.exists():
            return opening.open_session(session, options.DEFAULT_LOG_DIR)
        time.sleep(0.05)
    return opening.open_session(journal, options.DEFAULT_LOG_DIR)


def _summarize(session: Session, types: list[str] | None, unit: MemoryUnit, before: str = "") -> None:
    from nncftools.render import text

    available = memory_of(session.samples.metrics)
    view = View(options.memory_types(types, available, available), unit, brief=True)
    screen.to_stdout(before)
    screen.to_stdout(text.report(session, view))


def _watch_process(request: Request) -> None:
    _, columns = planning.columns(request)
    from nncftools.sampler import client
    from nncftools.sampler.client import Starter

    planning.target(request)
    plan = planning.plan(columns, request)
    with tempfile.TemporaryDirectory(prefix="nncf-tools-") as folder, Starter() as starter:
        journal = pathlib.Path(folder, "session.journal.jsonl")
        descriptor = reading.create(journal, replace=False)
        with client.Sampler(starter, plan, []) as sampler:
            sampler.start(client.header("", [], None, plan), descriptor)
            os.close(descriptor)
            try:
                with _follow(journal) as follower:
                    _show(follower, request.types, request.unit)
            finally:
                sampler.stop()
                sampler.wait()
        _summarize(opening.open_session(journal, options.DEFAULT_LOG_DIR), request.types, request.unit)


_SLOWEST, _FASTEST = 0.01, 1e6


def replay(
    path: Annotated[
        File,
        argument(
            "SESSION",
            "A session, a journal, a folder (its newest session), latest, or latest~1. Default: latest.",
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
    source, view = Replay(session, speed), View(metrics, unit)
    return _until_stopped(lambda: _draw(source, view, f"replay ×{speed:g}", is_here=False, stays=True))
