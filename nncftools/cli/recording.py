"""Make a recording, from the start of the command to the saved session; imported after all options are checked.

After the command has started, nncf-tools always ends with the command's exit status, even if the recording fails. So
later exceptions are only printed, files are read by open descriptors, and the modules for saving are imported while
the command runs.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
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
    """A command to record, with all settings and the files of the recording."""

    starter: Starter
    request: Request
    """The user's options; the sampler's settings are in ``plan``."""
    argv: Sequence[str]
    """The command; empty to record a running process."""
    plan: Plan
    target: Destination
    calls: Sequence[Call] | None = None
    """The calls to mark in addition to those of the built-in catalogue.

    None means that no calls are marked, not even those of the catalogue.
    """
    patterns: Sequence[re.Pattern[str]] = ()
    """An operation begins at each output line that matches. The name is the group ``name``, or else the whole match."""
    stack_access: StackAccess | None = None
    """How stacks and mappings can be read; None if no stacks are wanted."""
    stacks_share: float = 0.0
    """Largest share of a CPU core for stacks."""
    output: Path | int | None = None
    """A file for the command's output, or an open descriptor; None for our own output.

    Output to a file is also written to our own output, unless there is a live view.
    """
    entry: Sequence[str] = ()
    """Words before the command: they make the process enter a control group, and then execute the command."""
    environment: Mapping[str, str] = {}
    """Environment variables for the command, unless they are set already."""

    @property
    def marks_operations(self) -> bool:
        """Whether any operations are marked."""
        return self.calls is not None or bool(self.patterns)


class Recorded(NamedTuple):
    """The result of a recording."""

    status: int
    """The exit status of nncf-tools, the same as the command's if the command started."""
    session: Session | None
    """The session; None after a failure."""
    is_saved: bool = False
    """Whether the session is at the requested path."""


def record(job: RecordingJob, view: View | None = None) -> Recorded:
    """Record a command and write the session; the live view shows the metrics of ``view``.

    Raises NncfToolsError if the command could not be started. After the start, nothing is raised.
    """
    files = claim_files(job.target, snapshots=job.stack_access is not None)
    try:
        rank = launcher.read_rank(os.environ)
        header = client.make_header(job.request.name, job.argv, rank, job.plan)
        outcome = _run(job, header, files, view or View([]))
        status = int(bool(job.argv)) if outcome.exit_code is None else outcome.exit_code
        return Recorded(status, *_make_and_save(job, header, files, outcome))
    finally:
        files.close()


def _run(job: RecordingJob, header: Header, files: RecordingFiles, view: View) -> Outcome:
    """Run the command. If the command cannot be started, remove all files and raise NncfToolsError."""
    try:
        with destination.writing(job.target.option, job.target.journal, UsageError):
            outcome = _record_command(job, header, files, view)
        if outcome.pid is None and job.argv:
            reason = None if outcome.end is None else outcome.end.get("error")
            not_started = NncfToolsError(reason or f"the sampler {outcome.lost or 'ended'} before the command began")
            not_started.exit_code = outcome.exit_code or not_started.exit_code
            raise not_started
    except NncfToolsError:
        files.abandon()
        raise
    return outcome


def _record_command(job: RecordingJob, header: Header, files: RecordingFiles, view: View) -> Outcome:
    """Run the sampler and the command. If requested, show the live view, or pass on the command's output.

    Raises OSError, and NncfToolsError if the sampler cannot start.
    """
    on_line = _make_marker(job, files.marks)
    display = None
    helper = None
    with contextlib.ExitStack() as stack:
        live = job.request.live
        if live or on_line is not None or job.output is not None:
            from nncftools.cli.display import OutputDisplay

            display = OutputDisplay(
                view,
                on_line,
                job.starter,
                live=live,
                output=job.output,
                copies=not live and not isinstance(job.output, int),
            )
            stack.enter_context(display)
        if files.snapshots is not None:
            from nncftools.snapshots.client import Helper

            helper = stack.enter_context(contextlib.closing(Helper(files.snapshots)))
        environment = _make_environment(job, helper)
        environment[OWNER] = str(os.fstat(files.marks).st_uid)
        sampler = client.Sampler(
            job.starter,
            job.plan,
            [*job.entry, *job.argv],
            marks=job.target.marks,
            environment=environment,
            outputs=(None, None) if display is None else display.outputs,
            relays=() if display is None else display.relays,
        )
        stack.enter_context(sampler)
        sampler.start(header, files.locked)
        if helper is not None and job.stack_access is not None:
            helper.follow(sampler.pid, job.plan, job.stack_access, job.stacks_share)
        files.hand_over()
        if display is not None:
            with guarded("the command's output cannot be shown as requested"):
                display.begin(job.target.journal, files.journal.fileno(), sampler.release)
        with guarded("nncf-tools is incomplete"):  # an upgrade during the run must not lose the recording
            import gzip  # noqa: F401 — for a session whose name ends in .gz

            from nncftools.limits import verdict  # noqa: F401
            from nncftools.reading_marks import collecting  # noqa: F401
        outcome = sampler.wait()
        if helper is not None:
            helper.close()
        reading.lock(files.journal.fileno())  # otherwise, another process would see an abandoned journal
        return outcome


def _make_and_save(
    job: RecordingJob, header: Header, files: RecordingFiles, outcome: Outcome
) -> tuple[Session | None, bool]:
    """Make and write the session; return the session, and whether it is at the requested path.

    After a failure, print the reason and the path of the journal (the file that the sampler has written).
    """
    session = None
    try:
        with job.starter.interruptible(by_first=False):
            session = _make_session(job, header, files, outcome)
            is_saved = _save(session, job.target)
        if is_saved:
            files.remove()
            job.target.point_latest()
    except Interrupted as interrupted:
        screen.drop_unread()
        screen.message(f"{interrupted}: the session is not saved; {_journal_location(files)}")
        return None, False
    except Exception as error:  # noqa: BLE001 — a failure here must not change the command's exit status
        failure = "no session could be made" if session is None else "the session could not be written"
        screen.error(f"{failure}: {memory_shortage(error) or error}; {_journal_location(files)}")
        return session, False
    else:
        return session, is_saved


def _journal_location(files: RecordingFiles) -> str:
    try:
        journal = str(files.surviving_journal())
        return f"the journal is {journal} (`nncf-tools report {shlex.quote(journal)}` reads it)"
    except OSError as error:
        return f"the journal could not be kept either: {error}"


def _make_session(job: RecordingJob, header: Header, files: RecordingFiles, outcome: Outcome) -> Session:
    from nncftools.limits import verdict

    facts = StarterFacts(header, outcome.start, outcome.end)
    journal = str(job.target.journal)
    session = Session.of(session_from(files.journal, journal, facts, snapshots=files.read_snapshots()))
    if outcome.lost is not None:
        verdict.take_counts(session)
        text = f"the sampler {outcome.lost}: the recording ended early; the command was not affected"
        session.warnings.insert(0, text)
        session.exit = None if outcome.status is None else Exit(**outcome.status)
    if job.stack_access is not None and session.snapshots is None:
        session.snapshots = Snapshots(missing="the helper process could not be started")
    if not job.request.no_source and session.snapshots is not None:
        with guarded("the source text could not be read"):
            from nncftools.analysis.code_places import is_own
            from nncftools.session.snapshots import take_sources

            take_sources(session, Redaction(job.plan.redact), is_own)
    with guarded("the kernel's log could not be read"):
        verdict.take_kernel_log(session)
    with guarded("the marks could not be read"), files.open_marks() as log:
        _take_marks(session, log, job)
    return session


def _take_marks(session: Session, log: BinaryIO, job: RecordingJob) -> None:
    """Add the marks in the marks log to a session. If marks are missing that ``job`` asks for, add a warning."""
    from nncftools.reading_marks.collecting import take_log, take_sizes

    path = job.target.marks
    redaction = Redaction(job.plan.redact)
    taken = take_log(session, log, path.name, redaction, path=path)
    take_sizes(session.marks)
    if taken.missing or taken.is_gone or not job.marks_operations:  # other warnings say so, or no marks are expected
        return
    from nncftools.analysis.summary import is_of_python
    from nncftools.marks.calls import parse
    from nncftools.render import sentences

    why = sentences.explain_missing_marks(session.processes, taken.programs, taken.outside)
    warnings = "\n".join(session.warnings)
    marked = [f".{call}" for call in {mark.call for mark in session.marks}]
    unmarked = {}
    for call in job.calls or ():
        text = f"{call.module}:{call.function}"
        # a function in several modules is marked under one name; a renamed function of the script has no module
        is_marked = any(name.endswith(f".{call.function}") for name in marked)
        if not is_marked and f"--mark-call {text}:" not in warnings:
            unmarked[call] = text
    typed = parse(job.request.mark_call or ())
    missed = [unmarked[call] for call in typed if call in unmarked]
    if missed:
        session.warnings.append(f"{sentences.NO_CALLS} for {', '.join(missed)}: {why}")
    elif job.patterns and not any(mark.source == OUTPUT for mark in session.marks):
        session.warnings.append(f"{sentences.NO_LINES}: no line of the output matches the expression; check it")
    elif not session.marks:
        is_expected = unmarked if taken.programs else is_of_python(session)
        if is_expected:
            session.warnings.append(f"{sentences.NO_HOOK}: {why}")


def _save(session: Session, target: Destination) -> bool:
    """Write the session; return whether the session is at the requested path. Raises OSError.

    If the path cannot be written, the session is written into a temporary folder. Then the caller must not remove the
    journal.
    """
    try:
        target.check_place()
        session.save(target.session)
        target.check_place()
    except OSError as error:
        import tempfile

        elsewhere = Path(tempfile.mkdtemp(prefix="nncf-tools-")) / target.session.name
        session.save(elsewhere)
        reason = error.strerror or error
        screen.error(f"the session could not be written to {target.session} ({reason}); it is {elsewhere}")
        return False
    return True


@contextlib.contextmanager
def guarded(failure: str) -> Iterator[None]:
    """Print an exception as a message and continue, because the command has started."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 — matplotlib fails in many ways if its installation is broken
        screen.error(f"{failure}: {memory_shortage(error) or error}")


def _make_environment(job: RecordingJob, helper: Helper | None) -> dict[str, str]:
    log = job.target.marks
    unset = job.environment.keys() - os.environ.keys()
    defaults = {name: job.environment[name] for name in unset}
    if job.calls is None:
        return {**defaults, VARIABLE: str(log)}
    from nncftools.marks import calls

    tracer = None
    if helper is not None and job.stack_access is not None and job.stack_access.needs_ptrace:
        tracer = helper.pid
    return {**defaults, **calls.environment(log, job.calls, tracer)}


def _make_marker(job: RecordingJob, log: int) -> Callable[[str], None] | None:
    """Return a callback that marks operations by output lines; None without --mark-on.

    ``log`` is the descriptor of the marks log.
    """
    if not job.patterns:
        return None
    from nncftools.marks.operations import mark_from_outside

    redaction = Redaction(job.plan.redact)

    def mark(text: str) -> None:
        for pattern in job.patterns:
            match = pattern.search(text)
            if match is not None:
                name = match.groupdict().get("name") or match[0] or text
                name = name.strip()[:_LONGEST_NAME]
                if name:
                    with contextlib.suppress(OSError):
                        mark_from_outside(log, redaction.text(name), OUTPUT)
                return

    return mark
