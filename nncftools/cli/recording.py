"""One recording, from its start to its files; ``monitor`` imports this after it has checked its options.

After the command has started, we exit with its exit status, even if the recording fails. So every step after its end is
guarded, files are read through open descriptors, and modules for saving are imported while the command runs.

The standard input of a command that runs several times.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from nncftools.cli import screen
from nncftools.cli.claim import Claim, claim_files
from nncftools.cli.display import NO_DISPLAY, DisplayOptions, OutputDisplay
from nncftools.errors import NncfToolsError, UsageError
from nncftools.journal.lines import Header
from nncftools.journal.writing import Plan
from nncftools.marks.line import OUTPUT, VARIABLE
from nncftools.metrics import columns_of
from nncftools.redaction import Redaction
from nncftools.render.view import View, label
from nncftools.sampler import client
from nncftools.sampler.client import Outcome
from nncftools.sampler.starter import Interrupted, Starter
from nncftools.session import launcher
from nncftools.session.session import Session
from nncftools.snapshots.client import Helper, Looking
from nncftools.units import printable

if TYPE_CHECKING:
    from nncftools.cli.destination import Destination, Log
    from nncftools.marks.calls import Call


@dataclass(frozen=True)
class Marking:
    """How operations are marked in addition to those that the command marks."""

    automatic: Sequence[Call] | None = None
    """The user's calls to mark in addition to the catalogue; None to mark no calls at all."""
    on: Callable[[str], str | None] | None = None
    """Returns the name of the operation that a line of output starts, or None."""

    @property
    def is_on(self) -> bool:
        """Whether anything is marked in addition."""
        return self.automatic is not None or self.on is not None


@dataclass(frozen=True)
class Run:
    """What to record and where to save it."""

    starter: Starter
    plan: Plan
    name: str
    argv: Sequence[str]
    """The command; empty to attach to a process."""
    place: Destination
    marking: Marking = Marking()
    looking: Looking | None = None
    """How stacks and mappings are taken; None to take none."""
    looking_share: float = 0.0
    """The share of one core's time that this may take."""
    entry: Sequence[str] = ()
    """Words before the command that make its process enter a control group, and then execute the command."""
    opens: bool = False
    """Whether a browser shows the page at the end."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that the command gets unless the user has set them."""

    def header(self) -> Header:
        """Return the journal's header."""
        return client.header(self.name, self.argv, launcher.of(os.environ), self.plan)


class Recorded(NamedTuple):
    """The result of a run."""

    status: int
    """Our exit status: the command's, after it has started."""
    session: Session | None
    """None if it could not be made."""
    interrupted: bool = False
    """Whether a signal asked us to stop, for instance while the summary was shown."""


def record(run: Run, view: View, *, quiet: bool, display: DisplayOptions = NO_DISPLAY) -> Recorded:
    """Record, write the files and show the summary.

    Raises NncfToolsError if the command could not be started, never afterwards.
    """
    claim = claim_files(run.place, snapshots=run.looking is not None)
    try:
        header = run.header()
        outcome = _run(run, header, claim, view, display)
        status = int(bool(run.argv)) if outcome.exit_code is None else outcome.exit_code
        session, is_there = _make_and_save(run, header, claim, outcome)
        if session is None:
            return Recorded(status, None, interrupted=run.starter.asked_to_end is not None)
        try:
            with run.starter.interruptible():
                _show(session, run, claim if is_there else None, view, quiet=quiet)
        except Interrupted as interrupted:
            where = f" to {run.place.shown}" if is_there else ""
            screen.message(f"{interrupted}: the session is written{where}, but files beside it may be missing")
            return Recorded(status, session, interrupted=True)
        return Recorded(status, session, interrupted=run.starter.asked_to_end is not None)
    finally:
        claim.close()


def _run(run: Run, header: Header, claim: Claim, view: View, display: DisplayOptions) -> Outcome:
    """Start the command and wait for its end. If it cannot be started, remove all files and raise NncfToolsError."""
    try:
        outcome = _record_command(run, header, claim, view, display)
        if outcome.pid is None and run.argv:
            raise _not_started(outcome)
    except OSError as error:
        claim.abandon()
        reason = error.strerror or error
        message = f"option {run.place.option}: cannot write {str(run.place.journal)!r}: {reason}"
        raise UsageError(message) from error
    except NncfToolsError:
        claim.abandon()
        raise
    return outcome


def _record_command(run: Run, header: Header, claim: Claim, view: View, display: DisplayOptions) -> Outcome:
    """Run sampler and command inside the display. Raises OSError, NncfToolsError if the sampler cannot start."""
    with (
        OutputDisplay(display, view, _marking_lines(run, claim.marks), run.starter) as shown,
        contextlib.closing(Helper(claim.snapshots)) as helper,
    ):
        sampler = client.Sampler(
            run.starter,
            run.plan,
            [*run.entry, *run.argv],
            marks=run.place.marks,
            environment=_environment(run, helper),
            outputs=shown.outputs,
            relays=shown.relays,
        )
        with sampler:
            sampler.start(header, claim.locked)
            if run.looking is not None:
                helper.follow(sampler.pid, run.plan, run.looking, run.looking_share)
            claim.hand_over()
            with _guarded("the command's output cannot be shown as requested"):
                shown.begin(run.place.journal, claim.journal.fileno(), sampler.release)
            with _guarded("nncf-tools is incomplete"):
                _load_what_saving_needs()
            outcome = sampler.wait()
            helper.close()
            claim.hold()
            return outcome


def _not_started(outcome: Outcome) -> NncfToolsError:
    """Return the reason why the command was not started, with our exit status."""
    reason = None if outcome.end is None else outcome.end.get("error")
    error = NncfToolsError(reason or f"the sampler {outcome.lost or 'ended'} before the command began")
    error.exit_code = outcome.exit_code or error.exit_code
    return error


def _load_what_saving_needs() -> None:
    """Import it while the command runs: an upgrade of nncf-tools in the meantime must not lose the recording."""
    import gzip  # noqa: F401 — used by a session whose name ends in .gz

    from nncftools.limits import aftermath  # noqa: F401
    from nncftools.marks import collecting  # noqa: F401
    from nncftools.session import (
        session,  # noqa: F401
    )


def _make_and_save(run: Run, header: Header, claim: Claim, outcome: Outcome) -> tuple[Session | None, bool]:
    """Make and write the session; on failure print why, and where the journal is.

    Return the session, and whether it is at the requested path.
    """
    session = None
    try:
        session = _session(run, header, claim, outcome)
        return session, _save(session, run.place, claim)
    except Exception as error:  # noqa: BLE001 — a failure here must not change the command's exit status
        what = "no session could be made" if session is None else "the session could not be written"
        screen.error(f"{what}: {error}; {_journal_location(claim)}")
        return session, False


def _journal_location(claim: Claim) -> str:
    try:
        return f"the journal is {claim.surviving_journal()}"
    except OSError as error:
        return f"the journal could not be kept either: {error}"


def _session(run: Run, header: Header, claim: Claim, outcome: Outcome) -> Session:
    from nncftools.limits import aftermath
    from nncftools.session import model, recording
    from nncftools.session.model import Snapshots
    from nncftools.session.session import Session

    session = Session.of(
        recording.session_from(
            claim.journal,
            str(run.place.journal),
            recording.StarterFacts(header, outcome.start, outcome.end),
            snapshots=claim.read_snapshots(),
        )
    )
    if outcome.lost is not None:
        aftermath.take_counts(session)
        text = f"the sampler {outcome.lost}: the recording ended early; the command was not affected"
        session.warnings.insert(0, text)
        session.exit = None if outcome.status is None else model.Exit(**outcome.status)
    if run.looking is not None and session.snapshots is None:
        session.snapshots = Snapshots(missing="the helper process could not be started")
    with _guarded("the kernel's log could not be read"):
        aftermath.take_kernel_log(session)
    with _guarded("the marks could not be read"):
        automatic = run.marking.automatic is not None
        redaction = Redaction(run.plan.redact)
        with claim.open_marks() as log:
            _take_marks(session, log, run.place.marks.name, redaction, automatic=automatic)
    return session


def _take_marks(session: Session, log: BinaryIO, name: str, redaction: Redaction, *, automatic: bool) -> None:
    from nncftools.marks.collecting import no_marks_reason, take_log, take_sizes

    found = take_log(session, log, name, redaction)
    take_sizes(session.marks)
    if session.marks or not automatic:
        return
    why = no_marks_reason(session.processes, found.programs, found.outside)
    others = "--mark-call marks other calls; `nncf-tools mark` and --mark-on mark operations, too"
    from nncftools.analysis.code_places import busiest

    function = busiest(session)
    if function:
        others = (
            "the stacks show where memory rose; "
            f"from Python 3.12 on, --mark-call __main__:{function} makes it an operation"
        )
    session.warnings.append(f"no operation was marked: {why}; {others}")


def _save(session: Session, place: Destination, claim: Claim) -> bool:
    """Write the session, to a temporary folder if the requested path fails; return whether it is at that path.

    The journal is removed only after the session is at the requested path. Raises OSError.
    """
    try:
        with claim.place() as found:
            session.save(found.session)
    except OSError as error:
        import tempfile

        elsewhere = pathlib.Path(tempfile.mkdtemp(prefix="nncf-tools-")) / place.session.name
        session.save(elsewhere)
        reason = error.strerror or error
        screen.error(f"the session could not be written to {place.session} ({reason}); it is {elsewhere}")
        return False
    claim.remove()
    place.point_latest()
    return True


def _show(session: Session, run: Run, claim: Claim | None, view: View, *, quiet: bool) -> None:
    """Show the summary and write the files beside the session; without ``claim`` the session is elsewhere: no files."""
    place = run.place
    view = replace(view, metrics=columns_of(view.metrics, session.samples.metrics))
    rank_number = _later_rank(session)
    if not quiet and rank_number is None:
        with _guarded("the summary cannot be shown"):
            from nncftools.render import text

            screen.to_stderr(text.report(session, view))
    if claim is None:
        return
    with _guarded(f"the session is written to {place.shown}, but files beside it are missing"), claim.place() as found:
        _write_beside(session, found, view)
    if not quiet:
        with _guarded("the summary cannot be shown"):
            if rank_number is None:
                from nncftools.cli import closing

                screen.to_stderr(closing.text(session, place, view, profiled=run.marking.is_on))
            else:
                screen.to_stderr(f"{_rank_line(rank_number, session, view)}: {printable(place.shown)}\n")
    if run.opens and place.page is not None and rank_number is None:
        with _guarded("the page could not be opened"):
            from nncftools.cli import closing

            closing.show(place.page)


@contextlib.contextmanager
def _guarded(failure: str) -> Iterator[None]:
    """Print a failure in one line and continue: the command has started."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 — matplotlib fails in many ways if its installation is broken
        screen.error(f"{failure}: {error}")


def _later_rank(session: Session) -> int | None:
    """Return the rank if it is above 0. Ranks share a terminal, so only rank 0 prints its summary."""
    return session.rank.number if session.rank is not None and session.rank.number > 0 else None


def _rank_line(rank: int, session: Session, view: View) -> str:

    metric = view.metrics[0]
    peak = session.peaks.get(metric)
    held = view.unit.label(None if peak is None else peak.low)
    ending = "" if session.exit is None else f", {session.exit.text}"
    return f"Rank {rank}: {label(metric)} peak {held}{ending}"


def _environment(run: Run, helper: Helper) -> dict[str, str]:
    log, marking = run.place.marks, run.marking
    wanted = {name: value for name, value in run.environment.items() if name not in os.environ}
    if marking.automatic is None:
        return {**wanted, VARIABLE: str(log)}
    from nncftools.marks import calls

    needs_door = run.looking is not None and run.looking.needs_door
    return {**wanted, **calls.environment(log, marking.automatic, helper.pid if needs_door else None)}


def _marking_lines(run: Run, log: int) -> Callable[[str], None] | None:
    """Return a callback that marks operations by lines of output, None without --mark-on; ``log`` is a descriptor."""
    name_of = run.marking.on
    if name_of is None:
        return None
    from nncftools.marks.operations import mark_from_outside

    redaction = Redaction(run.plan.redact)

    def mark(text: str) -> None:
        name = name_of(text)
        if name is not None:
            with contextlib.suppress(OSError):
                mark_from_outside(log, redaction.text(name), OUTPUT)

    return mark


def _write_beside(session: Session, place: Destination, view: View) -> None:
    if place.sidecar is not None and session.marks:
        from nncftools.marks.collecting import write_sidecar

        write_sidecar(session.marks, place.sidecar)
    for log in place.logs:
        for column in columns_of([log.metric], session.samples.metrics):
            _write_log(session, log, column, view)
    if place.panels is not None:
        from nncftools.render import panels

        panels.draw(session, view, place.panels)
    if place.page is not None:
        from nncftools.files import replacing
        from nncftools.render import page

        content = page.report(session, view)
        with replacing(place.page) as beside:
            beside.write_bytes(content)


def _write_log(session: Session, log: Log, column: str, view: View) -> None:
    from nncftools.render import samples

    of_log = View(metrics=[column], unit=view.unit, from_zero=log.from_zero)
    name = samples.stem(column, from_zero=log.from_zero)
    text, picture = (
        path if path is None or column == log.metric else path.with_name(name + path.suffix)
        for path in (log.text, log.picture)
    )
    if text is not None:
        samples.write(session, of_log, column, text)
    if picture is not None:
        from nncftools.render import plot

        plot.draw(session, of_log, picture)


class RepeatedInput:
    """Our standard input, the same for each run: a file from where it is now, or nothing."""

    def __init__(self) -> None:
        self._start: int | None = None
        with contextlib.suppress(OSError):
            if stat.S_ISREG(os.fstat(0).st_mode):
                self._start = os.lseek(0, 0, os.SEEK_CUR)
        if self._start is None:
            nothing = os.open(os.devnull, os.O_RDONLY)
            os.dup2(nothing, 0)
            os.set_inheritable(0, True)
            if nothing:
                os.close(nothing)

    def rewind(self) -> None:
        """Make the next run read what the first one read."""
        if self._start is not None:
            os.lseek(0, self._start, os.SEEK_SET)
