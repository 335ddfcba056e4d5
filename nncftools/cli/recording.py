"""One recording from start to its files; imported by ``monitor`` when its options are known to be right.

What reads and shows sessions is imported while the command runs, not before it starts.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from nncftools import __version__
from nncftools.cli import screen
from nncftools.errors import NncfToolsError, UsageError
from nncftools.render import memory_log
from nncftools.render.view import View, printable
from nncftools.sampler import client
from nncftools.session.header import header

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.cli.destination import Destination
    from nncftools.sampler.plan import Plan
    from nncftools.session.model import Session
    from nncftools.units import MemoryUnit


def facts(name: str, argv: Sequence[str]) -> dict[str, Any]:
    """Return the facts of a run that its journal begins with."""
    return header(
        name=_as_text(name),
        command=[_as_text(word) for word in argv],
        cwd=_folder(),
        host=client.host(),
        tool_version=__version__,
    )


def record(plan: Plan, begin: dict[str, Any], place: Destination, view: View, *, quiet: bool) -> int:
    """Record, write the files and show the summary; return the exit status to end with.

    Raises NncfToolsError; its status is the command's, if that failed.
    """
    session, status = _session(plan, begin, place)
    try:
        _save(session, place)
        if not quiet:
            from nncftools.render import text

            screen.tell(text.report(session, view))
        _write_logs(session, place, view.unit)
    except NncfToolsError as error:
        error.exit_code = status or error.exit_code
        raise
    if not quiet:
        screen.tell(f"\nWritten to {printable(str(place.folder or place.session))}\n")
    return status


def _as_text(word: str) -> str:
    """Return a word of the command line, or a path, with bytes that are not UTF-8 written out."""
    return os.fsencode(word).decode(errors="backslashreplace")


def _folder() -> str:
    try:
        return _as_text(os.getcwd())  # noqa: PTH109 — a text
    except FileNotFoundError:  # removed while we are in it
        return ""


def _session(plan: Plan, begin: dict[str, Any], place: Destination) -> tuple[Session, int]:
    """Run the recording; return the session and the exit status to end with."""
    try:
        sampler = client.Sampler(begin, plan, place.journal)
    except OSError as error:
        option = "--output" if place.folder is None else "--log-dir"
        raise UsageError(f"option {option}: cannot write {str(place.journal)!r}: {error.strerror}") from error
    try:
        with sampler:
            from nncftools.session import journal, model

            ending = sampler.wait()
    except NncfToolsError:
        place.abandon()
        raise
    data = place.journal.read_bytes()
    try:
        session = journal.session_from(data, str(place.journal))
    except NncfToolsError as error:
        place.abandon()
        reason = str(error).removeprefix(f"{place.journal}: {journal.NOTHING_RECORDED}: ")
        failure = NncfToolsError(reason)
        failure.exit_code = ending.exit_code or error.exit_code
        raise failure from error
    if ending.lost is not None:
        text = f"the sampler {ending.lost}: the recording ended early, the command went on undisturbed"
        session.warnings.insert(0, text)
        session.exit = None if ending.status is None else model.Exit(**ending.status)
    return session, ending.exit_code or 0


def _save(session: Session, place: Destination) -> None:
    """Write the session; its journal stays until it is there."""
    try:
        session.save(place.session)
    except OSError as error:
        message = f"the session could not be written ({error}); `nncf-tools report {place.journal}` shows its journal"
        raise NncfToolsError(message) from error
    place.journal.unlink()
    place.point_latest()


def _write_logs(session: Session, place: Destination, unit: MemoryUnit) -> None:
    for log in place.logs:
        view = View(metrics=[log.metric], unit=unit, from_zero=log.from_zero)
        try:
            if log.text is not None:
                memory_log.write(session, view, log.metric, log.text)
            if log.picture is not None:
                from nncftools.render import plot

                plot.draw(session, view, log.picture)
        except Exception as error:  # matplotlib fails in many ways where its set-up is broken
            raise NncfToolsError(f"the session is written to {place.session}, but not its logs: {error}") from error
