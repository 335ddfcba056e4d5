"""One recording from start to its files; imported by ``monitor`` when its options are known to be right."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from nncftools import __version__
from nncftools.errors import NncfToolsError, UsageError
from nncftools.render import memory_log
from nncftools.render.view import View
from nncftools.sampler import client
from nncftools.session import journal
from nncftools.session.model import Exit, Session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.cli.destination import Destination
    from nncftools.sampler.plan import Plan
    from nncftools.units import MemoryUnit


def header(name: str, argv: Sequence[str]) -> dict[str, Any]:
    """Return the facts of a run that its journal begins with."""
    return journal.header(
        name=_as_text(name),
        command=[_as_text(word) for word in argv],
        cwd=_as_text(os.getcwd()),  # noqa: PTH109 — a text
        host=client.host(),
        tool_version=__version__,
    )


def record(plan: Plan, facts: dict[str, Any], place: Destination, view: View, *, quiet: bool) -> int:
    """Record, write the files and show the summary; return the exit status to end with.

    Raises NncfToolsError; its status is the command's, if that failed.
    """
    session, status = _session(plan, facts, place)
    try:
        _write(session, place, view.unit)
    except NncfToolsError as error:
        error.exit_code = status or error.exit_code
        raise
    if not quiet:
        _show(session, place, view)
    return status


def _as_text(word: str) -> str:
    """Return a word of the command line, or a path, with bytes that are not UTF-8 written out."""
    return os.fsencode(word).decode(errors="backslashreplace")


def _session(plan: Plan, facts: dict[str, Any], place: Destination) -> tuple[Session, int]:
    """Run the recording; return the session and the exit status to end with."""
    try:
        sampler = client.Sampler(facts, plan, place.journal)
    except OSError as error:
        option = "--output" if place.folder is None else "--log-dir"
        raise UsageError(f"option {option}: cannot write {str(place.journal)!r}: {error.strerror}") from error
    with sampler:
        ending = sampler.wait()
    try:
        session = Session.load(place.journal)
    except NncfToolsError as error:
        place.abandon()
        error.exit_code = ending.exit_code or error.exit_code
        raise
    if ending.sampler_killed:
        session.warnings = ["the sampler was killed: the recording ended early, the command went on undisturbed"]
        session.exit = None if ending.status is None else Exit(**ending.status)
    return session, ending.exit_code or 0


def _write(session: Session, place: Destination, unit: MemoryUnit) -> None:
    """Write the session and what was asked for beside it; the journal stays until the session is there."""
    try:
        session.save(place.session)
    except OSError as error:
        message = f"the session could not be written ({error}); `nncf-tools report {place.journal}` shows its journal"
        raise NncfToolsError(message) from error
    place.journal.unlink()
    place.point_latest()
    for log in place.logs:
        view = View(metrics=[log.metric], unit=unit, from_zero=log.from_zero)
        try:
            if log.text is not None:
                memory_log.write(session, view, log.metric, log.text)
            if log.picture is not None:
                from nncftools.render import plot

                plot.draw(session, view, log.picture)
        except OSError as error:
            raise NncfToolsError(f"the session is written to {place.session}, but not its logs: {error}") from error


def _show(session: Session, place: Destination, view: View) -> None:
    from nncftools.cli import screen
    from nncftools.render import text

    screen.show(text.report(session, view), sys.stderr)
    print(f"\nWritten to {place.folder or place.session}", file=sys.stderr)
