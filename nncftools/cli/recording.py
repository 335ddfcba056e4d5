"""One recording, from its start to its files; loaded after all options have been checked.

After the command has started, we exit with its exit status, even if the recording fails. So every step after its end is
guarded, files are read through open descriptors, and modules for saving are imported while the command runs.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from nncftools.analysis.session import Session
from nncftools.cli import destination, screen
from nncftools.cli.destination import Destination, RecordingFiles, claim_files
from nncftools.cli.options import Request
from nncftools.errors import NncfToolsError, UsageError, memory_shortage
from nncftools.intake import Redaction
from nncftools.journal import reading
from nncftools.journal.reading import Header
from nncftools.journal.writing import Plan
from nncftools.marks.line import OUTPUT, OWNER, VARIABLE
from nncftools.render.view import View
from nncftools.sampler import client
from nncftools.sampler.client import Interrupted, Outcome, Starter
from nncftools.session import launcher
from nncftools.session.model import Exit, Snapshots
from nncftools.session.recording import StarterFacts, session_from

if TYPE_CHECKING:
    from nncftools.marks.calls import Call
    from nncftools.snapshots.client import Helper, StackAccess


_LONGEST_NAME = 80


class RecordingJob(NamedTuple):
    """What to record, and where to save it."""

    starter: Starter
    request: Request
    """Its options for the plan have been used already."""
    argv: Sequence[str]
    """The command; empty to attach to a process."""
    plan: Plan
    target: Destination
    calls: Sequence[Call] | None = None
    """The calls to mark in addition to the catalogue; None to mark no calls at all."""
    patterns: Sequence[re.Pattern[str]] = ()
    """A line of output that one of them matches begins an operation, named by the match or its group ``name``."""
    stack_access: StackAccess | None = None
    """How stacks and mappings are taken; None to take none."""
    stacks_share: float = 0.0
    """The share of one core's time that this may take."""
    output: pathlib.Path | int | None = None
    """The file for the command's output, or the descriptor of one that the caller has opened and will close.

    Output to a file still goes to ours, too, unless there is a live view.
    """
    entry: Sequence[str] = ()
    """Words before the command that make its process enter a control group, and then execute the command."""
    environment: Mapping[str, str] = {}
    """Variables that the command gets unless the user has set them."""

    @property
    def marks_operations(self) -> bool:
        """Whether operations are marked in addition to those that the command marks."""
        return self.calls is not None or bool(self.patterns)


class Recorded(NamedTuple):
    """The result of a run."""

    status: int
    """Our exit status: the command's, after it has started."""
    session: Session | None
    """None if it could not be made."""
    is_saved: bool = False
    """Whether the session is at the requested path."""


def record(run: RecordingJob, view: View | None = None) -> Recorded:
    """Record a command and write its session; the live view shows the metrics of ``view``.

    Raises NncfToolsError if the command could not be started, never afterwards.
    """
    files = claim_files(run.target, snapshots=run.stack_access is not None)
    try:
        header = client.header(run.request.name, run.argv, launcher.of(os.environ), run.plan)
        outcome = _run(run, header, files, view or View([]))
        status = int(bool(run.argv)) if outcome.exit_code is None else outcome.exit_code
        return Recorded(status, *_make_and_save(run, header, files, outcome))
    finally:
        files.close()


def _run(run: RecordingJob, header: Header, files: RecordingFiles, view: View) -> Outcome:
    """Start the command and wait for its end. If it cannot be started, remove all files and raise NncfToolsError."""
    try:
        with destination.writing(run.target.option, run.target.journal, UsageError):
            outcome = _record_command(run, header, files, view)
        if outcome.pid is None and run.argv:
            reason = None if outcome.end is None else outcome.end.get("error")
            not_started = NncfToolsError(reason or f"the sampler {outcome.lost or 'ended'} before the command began")
            not_started.exit_code = outcome.exit_code or not_started.exit_code
            raise not_started
    except NncfToolsError:
        files.abandon()
        raise
    return outcome


def _record_command(run: RecordingJob, header: Header, files: RecordingFiles, view: View) -> Outcome:
    """Run sampler and command inside the display. Raises OSError, NncfToolsError if the sampler cannot start."""
    on_line = _marking_lines(run, files.marks)
    display = helper = None
    with contextlib.ExitStack() as stack:
        live = run.request.live
        if live or on_line is not None or run.output is not None:
            from nncftools.cli.display import OutputDisplay

            copies = not live and not isinstance(run.output, int)
            display = stack.enter_context(OutputDisplay(view, on_line, run.starter, live, run.output, copies))
        if files.snapshots is not None:
            from nncftools.snapshots.client import Helper

            helper = stack.enter_context(contextlib.closing(Helper(files.snapshots)))
        sampler = client.Sampler(
            run.starter,
            run.plan,
            [*run.entry, *run.argv],
            marks=run.target.marks,
            environment={**_environment(run, helper), OWNER: str(os.fstat(files.marks).st_uid)},
            outputs=(None, None) if display is None else display.outputs,
            relays=() if display is None else display.relays,
        )
        stack.enter_context(sampler)
        sampler.start(header, files.locked)
        if helper is not None and run.stack_access is not None:
            helper.follow(sampler.pid, run.plan, run.stack_access, run.stacks_share)
        files.hand_over()
        if display is not None:
            with guarded("the command's output cannot be shown as requested"):
                display.begin(run.target.journal, files.journal.fileno(), sampler.release)
        with guarded("nncf-tools is incomplete"):  # an upgrade in the meantime must not lose the recording
            import gzip  # noqa: F401 — used by a session whose name ends in .gz

            from nncftools.limits import verdict  # noqa: F401
            from nncftools.reading_marks import collecting  # noqa: F401
        outcome = sampler.wait()
        if helper is not None:
            helper.close()
        reading.hold(files.journal.fileno())  # so that others do not take it for an abandoned one
        return outcome


def _make_and_save(
    run: RecordingJob, header: Header, files: RecordingFiles, outcome: Outcome
) -> tuple[Session | None, bool]:
    """Make and write the session; on failure print why, and where the journal is.

    Return the session, and whether it is at the requested path.
    """
    session = None
    try:
        with run.starter.interruptible(by_first=False):
            session = _session(run, header, files, outcome)
            is_there = _save(session, run.target)
        if is_there:
            files.remove()
            run.target.point_latest()
    except Interrupted as interrupted:
        run.starter.asked_to_end = interrupted.number
        screen.drop_unread()
        screen.message(f"{interrupted}: the session is not saved; {_journal_location(files)}")
        return None, False
    except Exception as error:  # noqa: BLE001 — a failure here must not change the command's exit status
        what = "no session could be made" if session is None else "the session could not be written"
        screen.error(f"{what}: {memory_shortage(error) or error}; {_journal_location(files)}")
        return session, False
    else:
        return session, is_there


def _journal_location(files: RecordingFiles) -> str:
    try:
        journal = str(files.surviving_journal())
        return f"the journal is {journal} (`nncf-tools report {shlex.quote(journal)}` reads it)"
    except OSError as error:
        return f"the journal could not be kept either: {error}"


def _session(run: RecordingJob, header: Header, files: RecordingFiles, outcome: Outcome) -> Session:
    from nncftools.limits import verdict

    known = StarterFacts(header, outcome.start, outcome.end)
    journal = str(run.target.journal)
    session = Session.of(session_from(files.journal, journal, known, snapshots=files.read_snapshots()))
    if outcome.lost is not None:
        verdict.take_counts(session)
        text = f"the sampler {outcome.lost}: the recording ended early; the command was not affected"
        session.warnings.insert(0, text)
        session.exit = None if outcome.status is None else Exit(**outcome.status)
    if run.stack_access is not None and session.snapshots is None:
        session.snapshots = Snapshots(missing="the helper process could not be started")
    if not run.request.no_source and session.snapshots is not None:
        with guarded("the source text could not be read"):
            from nncftools.analysis.code_places import is_own
            from nncftools.session.snapshots import take_sources

            take_sources(session, Redaction(run.plan.redact), is_own)
    with guarded("the kernel's log could not be read"):
        verdict.take_kernel_log(session)
    with guarded("the marks could not be read"), files.open_marks() as log:
        _take_marks(session, log, run)
    return session


def _take_marks(session: Session, log: BinaryIO, run: RecordingJob) -> None:
    from nncftools.reading_marks.collecting import take_log, take_sizes
    from nncftools.render.sentences import no_marks_reason

    path = run.target.marks
    taken = take_log(session, log, path.name, Redaction(run.plan.redact), path)
    take_sizes(session.marks)
    calls = run.calls
    if taken.missing or taken.is_gone or not run.marks_operations:  # other warnings say so, or none was expected
        return
    from nncftools.analysis.summary import is_of_python
    from nncftools.render.sentences import NO_CALLS, NO_HOOK, NO_LINES

    why = no_marks_reason(session.processes, taken.programs, taken.outside)
    if calls and not (session.marks and taken.programs):
        session.warnings.append(f"{NO_CALLS}: {why}")
    elif run.patterns and not any(mark.source == OUTPUT for mark in session.marks):
        session.warnings.append(f"{NO_LINES}: no line of the output matches the expression; check it")
    elif calls is not None and not (session.marks or taken.programs) and is_of_python(session):
        session.warnings.append(f"{NO_HOOK}: {why}")


def _save(session: Session, target: Destination) -> bool:
    """Write the session, to a temporary folder if the requested path fails; return whether it is at that path.

    The journal may be removed only after the session is at the requested path. Raises OSError.
    """
    try:
        target.check_place()
        session.save(target.session)
        target.check_place()
    except OSError as error:
        import tempfile

        elsewhere = pathlib.Path(tempfile.mkdtemp(prefix="nncf-tools-")) / target.session.name
        session.save(elsewhere)
        reason = error.strerror or error
        screen.error(f"the session could not be written to {target.session} ({reason}); it is {elsewhere}")
        return False
    return True


@contextlib.contextmanager
def guarded(failure: str) -> Iterator[None]:
    """Print a failure in one line and continue: the command has started."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 — matplotlib fails in many ways if its installation is broken
        screen.error(f"{failure}: {memory_shortage(error) or error}")


def _environment(run: RecordingJob, helper: Helper | None) -> dict[str, str]:
    log = run.target.marks
    wanted = {name: value for name, value in run.environment.items() if name not in os.environ}
    if run.calls is None:
        return {**wanted, VARIABLE: str(log)}
    from nncftools.marks import calls

    tracer = (
        helper.pid if helper is not None and run.stack_access is not None and run.stack_access.needs_ptrace else None
    )
    return {**wanted, **calls.environment(log, run.calls, tracer)}


def _marking_lines(run: RecordingJob, log: int) -> Callable[[str], None] | None:
    """Return a callback that marks operations by lines of output, None without --mark-on; ``log`` is a descriptor."""
    if not run.patterns:
        return None
    from nncftools.marks.operations import mark_from_outside

    redaction = Redaction(run.plan.redact)

    def mark(text: str) -> None:
        match = next((match for pattern in run.patterns if (match := pattern.search(text))), None)
        name = "" if match is None else (match.groupdict().get("name") or match[0] or text).strip()[:_LONGEST_NAME]
        if name:
            with contextlib.suppress(OSError):
                mark_from_outside(log, redaction.text(name), OUTPUT)

    return mark
