"""The few places inside the package that the goldens need: a step that moves a module changes lines here alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.color import ColorSystem

import nncftools
from nncftools.cli import app
from nncftools.journal import reading
from nncftools.live.figures import Machine, ViewSettings, apply_key, status_line
from nncftools.live.follower import Follower, Replay
from nncftools.live.layout import Drawing
from nncftools.live.run import Run
from nncftools.session.recording import Recording
from nncftools.testing.meter import LiveReader


def command_line() -> int:
    """Run the command line with ``sys.argv`` in this process; return its exit status."""
    return app.run()


def replayed(session: nncftools.Session, moments: Sequence[float]) -> Iterator[Run]:
    """Yield the run of a session at each moment: parts of its duration."""
    replay = Replay(session)
    for part in moments:
        replay.advance(part * session.duration_s)
        yield replay.run


class Followed:
    """A journal that grows, as ``watch`` and ``--live`` follow it."""

    def __init__(self, journal: Path) -> None:
        self._follower = Follower(journal)

    def read(self) -> Run:
        """Return the run after reading what is new."""
        self._follower.read()
        return self._follower.run

    def close(self) -> None:
        """Close the files."""
        self._follower.__exit__()


def frame(  # noqa: PLR0913 — one parameter per choice of a view
    run: Run,
    size: tuple[int, int],
    *,
    colours: str | None = None,
    unicode: bool = True,
    keys: str | None = None,
    state: str = "replay ×10",
) -> list[str]:
    """Return the lines of a view; ``colours`` is a name of Rich's ``ColorSystem``; with ``keys``, they were pressed."""
    system = None if colours is None else ColorSystem[colours]
    look = ViewSettings(unicode=unicode, colours=system, state=state, keys=keys is not None)
    for key in keys or "":
        look = apply_key(look, key, len(run.processes))
    return Drawing(Machine(is_here=False)).frame(run, look, *size)


def alive(run: Run) -> str:
    """Return the processes that a run holds to be alive; the view lists only those whose RSS it knows."""
    return ", ".join(f"{number} {process.name} {process.pid}" for number, process in sorted(run.processes.items()))


def status(run: Run) -> str:
    """Return the line that a terminal without a cursor gets."""
    return status_line(run, ViewSettings(unicode=True, colours=None, state="recording"), Machine(is_here=False))


class Tapped:
    """A journal that grows, as the pytest plugin reads it."""

    def __init__(self, journal: Path) -> None:
        self._tap = LiveReader(1.0)
        self._tap._file = file = reading.reader(journal)
        self._tap._recording = Recording(file, str(journal))

    def rows(self) -> list[object]:
        """Return the new samples: moment, RSS, processes, RSS of each, and the largest process."""
        rows = self._tap.rows()
        return [[row.at_ns, row.rss, row.processes, row.each, self._tap.largest_process(row)] for row in rows]

    def close(self) -> None:
        """Close the journal."""
        self._tap._clear()
