"""One recording from start to its files; imported by ``monitor`` when its options are known to be right.

What reads and shows sessions is imported while the command runs, not before it starts.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nncftools import __version__
from nncftools.cli import screen
from nncftools.cli.showing import NOTHING, Scene, Showing
from nncftools.errors import NncfToolsError, UsageError
from nncftools.marks.line import OUTPUT, VARIABLE
from nncftools.render import memory_log
from nncftools.render.view import View, label, printable
from nncftools.sampler import client
from nncftools.session.header import header

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable, Sequence

    from nncftools.cli.destination import Destination
    from nncftools.marks.calls import Call
    from nncftools.sampler.plan import Plan
    from nncftools.session.model import Session


def facts(name: str, argv: Sequence[str]) -> dict[str, Any]:
    """Return the facts of a run that its journal begins with."""
    return header(
        name=_as_text(name),
        command=[_as_text(word) for word in argv],
        cwd=_folder(),
        host=client.host(),
        tool_version=__version__,
    )


@dataclass(frozen=True)
class Marking:
    """How the operations of a command come to be marked, besides by themselves."""

    automatic: Sequence[Call] | None = None
    """The user's calls to mark besides those of the catalogue; None to mark none of either."""
    on: Callable[[str], str | None] | None = None
    """What names the operation that a line of output begins, None when it begins none."""


def record(  # noqa: PLR0913 — what to record, where to leave it and how to show it
    plan: Plan,
    begin: dict[str, Any],
    place: Destination,
    view: View,
    *,
    quiet: bool,
    marking: Marking = Marking(),
    showing: Showing = NOTHING,
) -> int:
    """Record, write the files and show the summary; return the exit status to end with.

    Raises NncfToolsError; its status is the command's, if that failed.
    """
    scene = Scene(showing, view, None if marking.on is None else _heeding(place.marks, marking.on))
    session, status = _session(plan, begin, place, marking, scene)
    try:
        _save(session, place)
        rank = _rank_beside_others(session)
        if not quiet and rank is None:
            from nncftools.render import text

            screen.tell(text.report(session, view))
        _write_beside(session, place, view)
    except NncfToolsError as error:
        error.exit_code = status or error.exit_code
        raise
    if not quiet:
        said = "\nWritten to " if rank is None else f"{_in_short(rank, session, view)}: "
        screen.tell(f"{said}{printable(str(place.folder or place.session))}\n")
    return status


def _rank_beside_others(session: Session) -> int | None:
    """Return the rank of a job's part but the first, which tells its summary: they share a terminal."""
    return session.rank.number if session.rank is not None and session.rank.number > 0 else None


def _in_short(rank: int, session: Session, view: View) -> str:
    from nncftools.render.facts import exit_text

    metric = view.metrics[0]
    peak = session.peaks.get(metric)
    held = view.unit.label(None if peak is None else peak.low)
    ending = "" if session.exit is None else f", {exit_text(session.exit)}"
    return f"Rank {rank}: {label(metric)} peak {held}{ending}"


def _as_text(word: str) -> str:
    """Return a word of the command line, or a path, with bytes that are not UTF-8 written out."""
    return os.fsencode(word).decode(errors="backslashreplace")


def _folder() -> str:
    try:
        return _as_text(os.getcwd())  # noqa: PTH109 — a text
    except FileNotFoundError:  # removed while we are in it
        return ""


def _session(
    plan: Plan, begin: dict[str, Any], place: Destination, marking: Marking, scene: Scene
) -> tuple[Session, int]:
    """Run the recording; return the session and the exit status to end with."""
    log = str(place.marks.absolute())
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(scene)
            place.marks.touch(exist_ok=False)
            environment = _environment(place.marks, marking)
            sampler = client.Sampler(begin, {**plan, "marks": log}, place.journal, environment, scene.outputs)
        except OSError as error:
            place.marks.unlink(missing_ok=True)
            option = "--output" if place.folder is None else "--log-dir"
            raise UsageError(f"option {option}: cannot write {str(place.journal)!r}: {error.strerror}") from error
        except NncfToolsError:
            place.abandon()
            raise
        try:
            with sampler:
                scene.begin(place.journal)
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
    _take_marks(session, place, automatic=marking.automatic is not None)
    return session, ending.exit_code or 0


def _environment(log: pathlib.Path, marking: Marking) -> dict[str, str]:
    if marking.automatic is None:
        return {VARIABLE: str(log.absolute())}
    from nncftools.marks import calls

    return calls.environment(log, marking.automatic)


def _heeding(log: pathlib.Path, name_of: Callable[[str], str | None]) -> Callable[[str], None]:
    """Return what marks the operations that lines of the command's output begin."""
    from nncftools.marks.operations import mark_from_outside

    path = str(log.absolute())

    def heed(text: str) -> None:
        name = name_of(text)
        if name is not None:
            with contextlib.suppress(OSError):
                mark_from_outside(path, name, OUTPUT)

    return heed


def _take_marks(session: Session, place: Destination, *, automatic: bool) -> None:
    data = place.marks.read_bytes() if place.marks.exists() else b""
    if not (data or automatic):
        return
    from nncftools.marks.collecting import take_log

    programs = take_log(session, data, place.marks.name)
    if session.marks or not automatic:
        return
    why = (
        f"none of the {programs} Python programs called a catalogued function: name others with --mark-call"
        if programs
        else "no Python program could be looked into (python -I, -E or -S, a cleaned environment, another language)"
    )
    session.warnings.append(f"no operation was marked: {why}; `nncf-tools mark` and --mark-on mark others")


def _save(session: Session, place: Destination) -> None:
    """Write the session; its journal stays until it is there."""
    try:
        session.save(place.session)
    except OSError as error:
        message = f"the session could not be written ({error}); `nncf-tools report {place.journal}` shows its journal"
        raise NncfToolsError(message) from error
    place.journal.unlink()
    place.marks.unlink(missing_ok=True)
    place.point_latest()


def _write_beside(session: Session, place: Destination, view: View) -> None:
    try:
        if place.sidecar is not None:
            from nncftools.marks.collecting import write_sidecar

            write_sidecar(session.marks, place.sidecar)
        for log in place.logs:
            of_log = View(metrics=[log.metric], unit=view.unit, from_zero=log.from_zero)
            if log.text is not None:
                memory_log.write(session, of_log, log.metric, log.text)
            if log.picture is not None:
                from nncftools.render import plot

                plot.draw(session, of_log, log.picture)
        if place.panels is not None:
            from nncftools.render import panels

            panels.draw(session, view, place.panels)
    except Exception as error:  # matplotlib fails in many ways where its set-up is broken
        message = f"the session is written to {place.session}, but not all beside it: {error}"
        raise NncfToolsError(message) from error
