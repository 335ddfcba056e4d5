"""One recording, from its start to its files; loaded after all options have been checked.

After the command has started, we exit with its exit status, even if the recording fails. So every step after its end is
guarded, files are read through open descriptors, and modules for saving are imported while the command runs.
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
from nncftools.cli.destination import RecordingFiles, claim_files
from nncftools.cli.display import NO_DISPLAY, DisplayOptions, OutputDisplay
from nncftools.errors import NncfToolsError, UsageError
from nncftools.journal.lines import Header
from nncftools.journal.writing import Plan
from nncftools.marks.line import OUTPUT, OWNER, VARIABLE
from nncftools.metrics import columns_of
from nncftools.redaction import Redaction
from nncftools.render.view import View, label
from nncftools.sampler import client
from nncftools.sampler.client import Interrupted, Outcome, Starter
from nncftools.session import launcher
from nncftools.session.model import Exit, Snapshots
from nncftools.session.recording import StarterFacts, session_from
from nncftools.session.session import Session
from nncftools.units import printable

if TYPE_CHECKING:
    from nncftools.cli.destination import Destination, Log
    from nncftools.marks.calls import Call
    from nncftools.snapshots.client import Helper, StackAccess


@dataclass(frozen=True)
class Marking:
    """How operations are marked in addition to those that the command marks."""

    automatic: Sequence[Call] | None = None
    """The user's calls to mark in addition to the catalogue; None to mark no calls at all."""
    on: Callable[[str], str | None] | None = None
    """Returns the name of the operation that a line of output starts, or None."""


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
    looking: StackAccess | None = None
    """How stacks and mappings are taken; None to take none."""
    looking_share: float = 0.0
    """The share of one core's time that this may take."""
    entry: Sequence[str] = ()
    """Words before the command that make its process enter a control group, and then execute the command."""
    opens: bool = False
    """Whether a browser shows the page at the end."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that the command gets unless the user has set them."""


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
        header = client.header(run.name, run.argv, launcher.of(os.environ), run.plan)
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


def _run(run: Run, header: Header, claim: RecordingFiles, view: View, display: DisplayOptions) -> Outcome:
    """Start the command and wait for its end. If it cannot be started, remove all files and raise NncfToolsError."""
    try:
        outcome = _record_command(run, header, claim, view, display)
        if outcome.pid is None and run.argv:
            reason = None if outcome.end is None else outcome.end.get("error")
            not_started = NncfToolsError(reason or f"the sampler {outcome.lost or 'ended'} before the command began")
            not_started.exit_code = outcome.exit_code or not_started.exit_code
            raise not_started
    except OSError as error:
        claim.abandon()
        what = f"cannot write {str(run.place.journal)!r}: {error.strerror or error}"
        raise UsageError(f"option {run.place.option}: {what}") from error
    except NncfToolsError:
        claim.abandon()
        raise
    return outcome


def _record_command(run: Run, header: Header, claim: RecordingFiles, view: View, display: DisplayOptions) -> Outcome:
    """Run sampler and command inside the display. Raises OSError, NncfToolsError if the sampler cannot start."""
    with (
        OutputDisplay(display, view, _marking_lines(run, claim.marks), run.starter) as shown,
        _helper(claim.snapshots) as helper,
    ):
        sampler = client.Sampler(
            run.starter,
            run.plan,
            [*run.entry, *run.argv],
            marks=run.place.marks,
            environment={**_environment(run, helper), OWNER: str(os.fstat(claim.marks).st_uid)},
            outputs=shown.outputs,
            relays=shown.relays,
        )
        with sampler:
            sampler.start(header, claim.locked)
            if helper is not None and run.looking is not None:
                helper.follow(sampler.pid, run.plan, run.looking, run.looking_share)
            claim.hand_over()
            with _guarded("the command's output cannot be shown as requested"):
                shown.begin(run.place.journal, claim.journal.fileno(), sampler.release)
            with _guarded("nncf-tools is incomplete"):  # an upgrade in the meantime must not lose the recording
                import gzip  # noqa: F401 — used by a session whose name ends in .gz

                from nncftools.limits import aftermath  # noqa: F401
                from nncftools.marks import collecting  # noqa: F401
            outcome = sampler.wait()
            if helper is not None:
                helper.close()
            claim.hold()
            return outcome


@contextlib.contextmanager
def _helper(log: int | None) -> Iterator[Helper | None]:
    """Yield the process that takes stacks and mappings; None without a log of it."""
    if log is None:
        yield None
        return
    from nncftools.snapshots.client import Helper

    with contextlib.closing(Helper(log)) as helper:
        yield helper


def _make_and_save(run: Run, header: Header, claim: RecordingFiles, outcome: Outcome) -> tuple[Session | None, bool]:
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


def _journal_location(claim: RecordingFiles) -> str:
    try:
        return f"the journal is {claim.surviving_journal()}"
    except OSError as error:
        return f"the journal could not be kept either: {error}"


def _session(run: Run, header: Header, claim: RecordingFiles, outcome: Outcome) -> Session:
    from nncftools.limits import aftermath

    known = StarterFacts(header, outcome.start, outcome.end)
    journal = str(run.place.journal)
    session = Session.of(session_from(claim.journal, journal, known, snapshots=claim.read_snapshots()))
    if outcome.lost is not None:
        aftermath.take_counts(session)
        text = f"the sampler {outcome.lost}: the recording ended early; the command was not affected"
        session.warnings.insert(0, text)
        session.exit = None if outcome.status is None else Exit(**outcome.status)
    if run.looking is not None and session.snapshots is None:
        session.snapshots = Snapshots(missing="the helper process could not be started")
    with _guarded("the kernel's log could not be read"):
        aftermath.take_kernel_log(session)
    with _guarded("the marks could not be read"), claim.open_marks() as log:
        _take_marks(session, log, run)
    return session


def _take_marks(session: Session, log: BinaryIO, run: Run) -> None:
    from nncftools.marks.collecting import no_marks_reason, take_log, take_sizes

    path = run.place.marks
    taken = take_log(session, log, path.name, Redaction(run.plan.redact), path)
    take_sizes(session.marks)
    if session.marks or run.marking.automatic is None:
        return
    why = no_marks_reason(session.processes, taken.programs, taken.outside, is_gone=taken.is_gone)
    others = "--mark-call marks other calls; `nncf-tools mark` and --mark-on mark operations, too"
    from nncftools.analysis.code_places import busiest

    function = busiest(session)
    if function:
        others = (
            "the stacks show where memory rose; "
            f"from Python 3.12 on, --mark-call __main__:{function} makes it an operation"
        )
    session.warnings.append(f"no operation was marked: {why}; {others}")


def _save(session: Session, place: Destination, claim: RecordingFiles) -> bool:
    """Write the session, to a temporary folder if the requested path fails; return whether it is at that path.

    The journal is removed only after the session is at the requested path. Raises OSError.
    """
    try:
        with claim.place() as files:
            session.save(files.session)
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


def _show(session: Session, run: Run, claim: RecordingFiles | None, view: View, *, quiet: bool) -> None:
    """Show the summary and write the files beside the session; without ``claim`` the session is elsewhere: no files."""
    place = run.place
    view = replace(view, metrics=columns_of(view.metrics, session.samples.metrics))
    is_first = session.rank is None or session.rank.number == 0  # ranks share a terminal
    if not quiet and is_first:
        with _guarded("the summary cannot be shown"):
            from nncftools.render import text

            screen.to_stderr(text.report(session, view))
    if claim is None:
        return
    with _guarded(f"the session is written to {place.shown}, but files beside it are missing"), claim.place() as files:
        _write_beside(session, files, view)
    if not quiet:
        with _guarded("the summary cannot be shown"):
            if is_first:
                from nncftools.cli import closing

                profiled = run.marking != Marking()
                screen.to_stderr(closing.text(session, place, view, profiled=profiled))
            else:
                screen.to_stderr(f"{_rank_line(session, view)}: {printable(place.shown)}\n")
    if run.opens and place.page is not None and is_first:
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


def _rank_line(session: Session, view: View) -> str:
    metric = view.metrics[0]
    peak = session.peaks.get(metric)
    size = view.unit.label(None if peak is None else peak.low)
    ending = "" if session.exit is None else f", {session.exit.text}"
    assert session.rank is not None
    return f"Rank {session.rank.number}: {label(metric)} peak {size}{ending}"


def _environment(run: Run, helper: Helper | None) -> dict[str, str]:
    log, marking = run.place.marks, run.marking
    wanted = {name: value for name, value in run.environment.items() if name not in os.environ}
    if marking.automatic is None:
        return {**wanted, VARIABLE: str(log)}
    from nncftools.marks import calls

    tracer = helper.pid if helper is not None and run.looking is not None and run.looking.needs_ptrace else None
    return {**wanted, **calls.environment(log, marking.automatic, tracer)}


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
