"""``nncf-tools watch``: follows a recording that runs elsewhere, or a running process.

``nncf-tools replay``: shows a recorded run in the live view.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import platform
import tempfile
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from nncftools.cli import options
from nncftools.cli.parameters import RECORD, SHOW, argument, option
from nncftools.errors import NncfToolsError, UsageError
from nncftools.session.session import Session
from nncftools.units import MemoryUnit

if TYPE_CHECKING:
    from nncftools.live.follower import Follower, Replay


_SAVING_S = 10.0
_PATIENCE_S = 2.0


def watch(
    path: Annotated[
        pathlib.Path | None,
        argument(
            "SESSION",
            "A session, its journal, or a folder of them. Default: the newest running recording in memory_logs.",
            autocompletion=options.session_candidates,
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
    Keys: q quit, space pause, m metric, + and - zoom, l list of processes,
    s sort them, / filter them. Neither watching nor quitting affects the recording.
    """
    from nncftools.live.viewer import Ended

    if pid is not None and path is not None:
        raise UsageError("option --pid: either a session or --pid, not both")
    try:
        if pid is not None:
            return _watch_process(pid, types, interval, unit)
        return _watch_recording(path, types, unit)
    except Ended as ended:
        return ended.status
    except KeyboardInterrupt:
        return 130


def _watch_recording(path: pathlib.Path | None, types: list[str] | None, unit: MemoryUnit) -> int:
    from nncftools.cli import opening, screen
    from nncftools.journal.reading import is_recording

    path = None if path is None else _meant(path)
    journal = _journal(path)
    if journal is None or not is_recording(journal):
        if path is None:
            message = (
                f"no recording runs under {str(options.DEFAULT_LOG_DIR)!r}; `nncf-tools report` shows the last one"
            )
            raise NncfToolsError(message)
        found = (
            opening.open_session(path, options.DEFAULT_LOG_DIR) if journal is None else _open_finished(journal, journal)
        )
        _summary(found, types, unit, "This recording has ended.")
        return 0
    with _follow(journal) as follower:
        if not _show(follower, types, unit):
            screen.to_stdout("The recording continues.\n")
            return 0
        if follower.error is not None:
            raise NncfToolsError(f"nothing was recorded: {follower.error}")
    _summary(_open_finished(_wait_for_session(journal), journal), types, unit, "")
    return 0


def _meant(path: pathlib.Path) -> pathlib.Path:
    """Return the recording that a word such as ``latest`` means; any other path is returned as it is."""
    from nncftools.cli import destination

    return path if path.is_dir() else destination.recording(path, options.DEFAULT_LOG_DIR)


def _journal(path: pathlib.Path | None) -> pathlib.Path | None:
    """Return the journal of ``path``, or the newest running one of a folder; None if there is none."""
    from nncftools.cli import destination
    from nncftools.journal.reading import is_recording

    if path is not None and not path.is_dir():
        if path.name.endswith(destination.JOURNAL_ENDING):
            return path
        journal = path.with_name(destination.session_stem(path) + destination.JOURNAL_ENDING)
        return journal if journal.exists() else None
    folder = path or options.DEFAULT_LOG_DIR
    patterns = (f"*{destination.JOURNAL_ENDING}", f"*/*{destination.JOURNAL_ENDING}")
    running = {
        journal
        for pattern in patterns
        for journal in folder.glob(pattern)
        if destination.LATEST not in journal.relative_to(folder).parts[:-1] and is_recording(journal)
    }
    return max(running, key=destination.written_ns, default=None)


@contextlib.contextmanager
def _follow(journal: pathlib.Path) -> Iterator[Follower]:
    from nncftools.live.follower import Follower

    try:
        follower = Follower(journal)
    except OSError as error:
        raise NncfToolsError(f"{journal}: cannot be read: {error.strerror or error}") from error
    with follower:
        yield follower


class _Recording:
    """A running recording, as the source of a view."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self.run = follower.run

    def step(self, _passed_s: float) -> bool:
        """Read what is new; return whether more may follow."""
        lives = self._follower.recorder_lives()
        self._follower.read()
        return lives and not self.run.ended


def _show(follower: Follower, types: list[str] | None, unit: MemoryUnit) -> bool:
    """Show a recording; return whether it has ended."""
    import sys

    from nncftools.cli import screen
    from nncftools.cli.display import look_of
    from nncftools.live import figures, viewer
    from nncftools.live.shared_terminal import can_draw
    from nncftools.render.view import View

    follower.read()
    metrics = options.memory_types(types, follower.run.columns, ()) if types else []
    look = look_of(View(metrics, unit), sys.stdout.encoding, "recording")
    here = figures.Machine(is_here=follower.run.host.name == platform.node())
    source = _Recording(follower)
    if can_draw(sys.stdout.fileno()):
        return viewer.show(source, look, here, sys.stdout.fileno(), stays=False)
    viewer.print_status(source, look, here, screen.to_stdout)
    return True


def _session_of(journal: pathlib.Path) -> pathlib.Path | None:
    """Return the session made from a journal, or None."""
    from nncftools.cli import destination

    name = journal.name.removesuffix(destination.JOURNAL_ENDING)
    candidates = (journal.with_name(name + ending) for ending in (".json", ".json.gz", ""))
    return next((path for path in candidates if path.is_file()), None)


def _wait_for_session(journal: pathlib.Path) -> pathlib.Path:
    """Wait until the recorder has replaced its journal with the session; if it never does, return the journal."""
    deadline = time.monotonic() + _SAVING_S
    patience = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        found = _session_of(journal)
        if not journal.exists() and found is not None:
            return found
        if time.monotonic() > patience and journal.exists():
            return journal
        time.sleep(0.05)
    return journal


def _open_finished(found: pathlib.Path, journal: pathlib.Path) -> Session:
    """Return the session in ``found``; if that is a journal, the recorder may be replacing it right now."""
    from nncftools.cli import opening

    with contextlib.suppress(NncfToolsError):
        session = opening.open_session(found, options.DEFAULT_LOG_DIR)
        if found.exists():
            return session
    return opening.open_session(_session_of(journal) or found, options.DEFAULT_LOG_DIR)


def _summary(session: Session, types: list[str] | None, unit: MemoryUnit, first: str) -> None:
    from nncftools.cli import screen
    from nncftools.metrics import memory_of
    from nncftools.render import text
    from nncftools.render.view import View

    available = memory_of(session.samples.metrics)
    view = View(options.memory_types(types, available, available), unit)
    if first:
        screen.to_stdout(f"{first}\n\n")
    screen.to_stdout(text.report(session, view))


def _watch_process(pid: int, types: list[str] | None, interval: float, unit: MemoryUnit) -> int:
    """Record a process into a temporary folder and show it."""
    from nncftools.cli import opening, planning

    request = options.Request(types=types, pid=pid, interval=interval)
    _, columns = planning.columns(request)
    from nncftools.journal import reading
    from nncftools.sampler import client
    from nncftools.sampler.starter import Starter

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
                    _show(follower, types, unit)
            finally:
                sampler.stop()
                sampler.wait()
        _summary(opening.open_session(journal, options.DEFAULT_LOG_DIR), types, unit, "")
    return 0


_SLOWEST, _FASTEST = 0.01, 1e6


def replay(
    path: Annotated[
        pathlib.Path | None,
        argument(
            "SESSION",
            "A session, a journal, a folder (its newest session), latest, or latest~1. Default: latest.",
            autocompletion=options.session_candidates,
        ),
    ] = None,
    *,
    speed: Annotated[float, option("--speed N", SHOW, "Seconds of the run to show per second.")] = 10.0,
    types: options.RecordedTypes = None,
    unit: options.Unit = MemoryUnit.MiB,
    max_size: options.MaxSize = None,
) -> int:
    """Show a recorded run in the live view, at a multiple of its speed.

    \b
    Examples:
      nncf-tools replay
      nncf-tools replay run.json --speed 60

    \b
    Keys: q quit, space pause, m metric, + and - zoom, l list of processes,
    s sort them, / filter them.
    """
    import sys

    from nncftools.cli import opening, screen
    from nncftools.cli.display import look_of
    from nncftools.live import figures, viewer
    from nncftools.live.follower import Replay
    from nncftools.live.shared_terminal import can_draw
    from nncftools.live.viewer import Ended
    from nncftools.metrics import memory_of
    from nncftools.render.view import View

    if not _SLOWEST <= speed <= _FASTEST:
        raise UsageError(f"option --speed: a number from {_SLOWEST:g} to {_FASTEST:,.0f} expected, found {speed:g}")
    with options.reading(max_size):
        session = opening.open_session(path, options.DEFAULT_LOG_DIR)
    available = memory_of(session.samples.metrics)
    metrics = options.memory_types(types, available, ()) if types else []
    look = look_of(View(metrics, unit), sys.stdout.encoding, f"replay ×{speed:g}")
    source = _Faster(Replay(session), speed)
    here = figures.Machine(is_here=False)
    try:
        if can_draw(sys.stdout.fileno()):
            viewer.show(source, look, here, sys.stdout.fileno(), stays=True)
        else:
            viewer.print_status(source, look, here, screen.to_stdout)
    except Ended as ended:
        return ended.status
    except KeyboardInterrupt:
        return 130
    return 0


class _Faster:
    """A replay at ``speed`` times the original speed."""

    def __init__(self, replay: Replay, speed: float) -> None:
        self._replay = replay
        self._speed = speed
        self._now_s = 0.0
        self.run = replay.run

    def step(self, passed_s: float) -> bool:
        """Advance the replay; return whether there is more to show."""
        self._now_s += passed_s * self._speed
        self._replay.advance(self._now_s)
        return not self.run.ended
