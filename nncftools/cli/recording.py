"""One recording, from its start to its files; loaded after all options have been checked.

After the command has started, we exit with its exit status, even if the recording fails. So every step after its end is
guarded, files are read through open descriptors, and modules for saving are imported while the command runs.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shlex
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from nncftools.cli import destination, options, planning, screen
from nncftools.cli.destination import Destination, Log, RecordingFiles, claim_files
from nncftools.cli.options import Request
from nncftools.errors import NncfToolsError, UsageError, memory_shortage
from nncftools.journal.reading import Header
from nncftools.journal.writing import Plan
from nncftools.marks.line import OUTPUT, OWNER, VARIABLE
from nncftools.metrics import columns_of
from nncftools.redaction import Redaction
from nncftools.render.view import View
from nncftools.sampler import client
from nncftools.sampler.client import Interrupted, Outcome, Starter
from nncftools.session import launcher
from nncftools.session.model import Exit, Snapshots
from nncftools.session.recording import StarterFacts, session_from
from nncftools.session.session import Session
from nncftools.units import MemoryUnit, printable

if TYPE_CHECKING:
    from nncftools.marks.calls import Call
    from nncftools.snapshots.client import Helper, StackAccess


class Marking(NamedTuple):
    """How operations are marked in addition to those that the command marks."""

    automatic: Sequence[Call] | None = None
    """The user's calls to mark in addition to the catalogue; None to mark no calls at all."""
    on: Callable[[str], str | None] | None = None
    """Returns the name of the operation that a line of output starts, or None."""


class Run(NamedTuple):
    """What to record, what to show meanwhile, and where to save it."""

    starter: Starter
    plan: Plan
    name: str
    argv: Sequence[str]
    """The command; empty to attach to a process."""
    target: Destination
    marking: Marking = Marking()
    stack_access: StackAccess | None = None
    """How stacks and mappings are taken; None to take none."""
    stacks_share: float = 0.0
    """The share of one core's time that this may take."""
    has_sources: bool = True
    """Whether the session keeps the text of the lines that stacks stand at."""
    entry: Sequence[str] = ()
    """Words before the command that make its process enter a control group, and then execute the command."""
    opens: bool = False
    """Whether a browser shows the page at the end."""
    environment: Mapping[str, str] = {}
    """Variables that the command gets unless the user has set them."""
    live: bool = False
    """Whether the live view is shown."""
    output: pathlib.Path | int | None = None
    """The file for the command's output, or the descriptor of one that the caller has opened and will close."""
    copies: bool = False
    """Whether the output still goes to ours, too."""


class Recorded(NamedTuple):
    """The result of a run."""

    status: int
    """Our exit status: the command's, after it has started."""
    session: Session | None
    """None if it could not be made."""
    interrupted: bool = False
    """Whether a signal asked us to stop, for instance while the summary was shown."""


_NOTHING = View([])


def record(run: Run, view: View = _NOTHING, *, quiet: bool = True) -> Recorded:
    """Record and write the files; unless ``quiet``, show the summary.

    Raises NncfToolsError if the command could not be started, never afterwards.
    """
    files = claim_files(run.target, snapshots=run.stack_access is not None)
    try:
        header = client.header(run.name, run.argv, launcher.of(os.environ), run.plan)
        outcome = _run(run, header, files, view)
        status = int(bool(run.argv)) if outcome.exit_code is None else outcome.exit_code
        session, is_there = _make_and_save(run, header, files, outcome)
        try:
            with run.starter.interruptible():
                if session is not None:
                    _show(session, run, files if is_there else None, view, quiet=quiet)
        except Interrupted as interrupted:
            run.starter.asked_to_end = interrupted.number
            screen.drop_unread()
            where = f" to {run.target.shown}" if is_there else ""
            screen.message(f"{interrupted}: the session is written{where}, but files beside it may be missing")
        return Recorded(status, session, interrupted=run.starter.asked_to_end is not None)
    finally:
        files.close()


def _run(run: Run, header: Header, files: RecordingFiles, view: View) -> Outcome:
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


def _record_command(run: Run, header: Header, files: RecordingFiles, view: View) -> Outcome:
    """Run sampler and command inside the display. Raises OSError, NncfToolsError if the sampler cannot start."""
    on_line = _marking_lines(run, files.marks)
    display = helper = None
    with contextlib.ExitStack() as stack:
        if run.live or on_line is not None or run.output is not None:
            from nncftools.cli.display import OutputDisplay

            display = stack.enter_context(OutputDisplay(view, on_line, run.starter, run.live, run.output, run.copies))
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
            with _guarded("the command's output cannot be shown as requested"):
                display.begin(run.target.journal, files.journal.fileno(), sampler.release)
        with _guarded("nncf-tools is incomplete"):  # an upgrade in the meantime must not lose the recording
            import gzip  # noqa: F401 — used by a session whose name ends in .gz

            from nncftools.limits import verdict  # noqa: F401
            from nncftools.marks import collecting  # noqa: F401
        outcome = sampler.wait()
        if helper is not None:
            helper.close()
        files.hold()
        return outcome


def _make_and_save(run: Run, header: Header, files: RecordingFiles, outcome: Outcome) -> tuple[Session | None, bool]:
    """Make and write the session; on failure print why, and where the journal is.

    Return the session, and whether it is at the requested path.
    """
    session = None
    try:
        with run.starter.interruptible(by_first=False):
            session = _session(run, header, files, outcome)
            is_there = _save(session, run.target, files)
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


def _session(run: Run, header: Header, files: RecordingFiles, outcome: Outcome) -> Session:
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
    if run.has_sources and session.snapshots is not None:
        with _guarded("the source text could not be read"):
            from nncftools.analysis.code_places import is_own
            from nncftools.session.sources import take_sources

            take_sources(session, Redaction(run.plan.redact), is_own)
    with _guarded("the kernel's log could not be read"):
        verdict.take_kernel_log(session)
    with _guarded("the marks could not be read"), files.open_marks() as log:
        _take_marks(session, log, run)
    return session


def _take_marks(session: Session, log: BinaryIO, run: Run) -> None:
    from nncftools.marks.collecting import no_marks_reason, take_log, take_sizes

    path = run.target.marks
    taken = take_log(session, log, path.name, Redaction(run.plan.redact), path)
    take_sizes(session.marks)
    calls = run.marking.automatic
    if taken.missing or taken.is_gone or run.marking == Marking():  # other warnings say so, or none was expected
        return
    from nncftools.analysis.missing import is_of_python
    from nncftools.analysis.summary import NO_CALLS, NO_HOOK, NO_LINES

    why = no_marks_reason(session.processes, taken.programs, taken.outside)
    if calls and not (session.marks and taken.programs):
        session.warnings.append(f"{NO_CALLS}: {why}")
    elif run.marking.on is not None and not any(mark.source == OUTPUT for mark in session.marks):
        session.warnings.append(f"{NO_LINES}: no line of the output matches the expression; check it")
    elif calls is not None and not (session.marks or taken.programs) and is_of_python(session):
        session.warnings.append(f"{NO_HOOK}: {why}")


def _save(session: Session, target: Destination, files: RecordingFiles) -> bool:
    """Write the session, to a temporary folder if the requested path fails; return whether it is at that path.

    The journal may be removed only after the session is at the requested path. Raises OSError.
    """
    try:
        files.check_place()
        session.save(target.session)
        files.check_place()
    except OSError as error:
        import tempfile

        elsewhere = pathlib.Path(tempfile.mkdtemp(prefix="nncf-tools-")) / target.session.name
        session.save(elsewhere)
        reason = error.strerror or error
        screen.error(f"the session could not be written to {target.session} ({reason}); it is {elsewhere}")
        return False
    return True


def _show(session: Session, run: Run, files: RecordingFiles | None, view: View, *, quiet: bool) -> None:
    """Show the summary and write the files beside the session; without ``files``, the session is elsewhere."""
    target = run.target
    view = replace(view, metrics=columns_of(view.metrics, session.samples.metrics))
    rank = session.rank
    is_first = rank is None or rank.number == 0  # ranks share a terminal
    if not quiet and is_first:
        with _guarded("the summary cannot be shown"):
            from nncftools.render import text

            screen.to_stderr(text.report(session, view))
    if files is None:
        return
    with _guarded(f"the session is written to {target.shown}, but files beside it are missing"):
        files.check_place()
        _write_beside(session, target, view)
    if not quiet:
        with _guarded("the summary cannot be shown"):
            from nncftools.cli import closing

            if rank is None or is_first:
                profiled = run.marking != Marking()
                screen.to_stderr(closing.text(session, target, view, profiled=profiled))
            else:
                ending = "" if session.exit is None else f", {session.exit.text}"
                line = f"Rank {rank.number}: {closing.peak_text(session, view)}{ending}"
                screen.to_stderr(f"{line}: {printable(target.shown)}\n")
    if run.opens and target.page is not None and is_first:
        with _guarded("the page could not be opened"):
            from nncftools.cli import closing

            closing.show(target.page)


@contextlib.contextmanager
def _guarded(failure: str) -> Iterator[None]:
    """Print a failure in one line and continue: the command has started."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 — matplotlib fails in many ways if its installation is broken
        screen.error(f"{failure}: {memory_shortage(error) or error}")


def _environment(run: Run, helper: Helper | None) -> dict[str, str]:
    log, marking = run.target.marks, run.marking
    wanted = {name: value for name, value in run.environment.items() if name not in os.environ}
    if marking.automatic is None:
        return {**wanted, VARIABLE: str(log)}
    from nncftools.marks import calls

    tracer = (
        helper.pid if helper is not None and run.stack_access is not None and run.stack_access.needs_ptrace else None
    )
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


def _write_beside(session: Session, target: Destination, view: View) -> None:
    if target.sidecar is not None and session.marks:
        from nncftools.marks.collecting import write_sidecar

        write_sidecar(session.marks, target.sidecar)
    for log in target.logs:
        _write_log(session, log, view.unit, target.session.parent)
    if target.panels is not None:
        from nncftools.render import panels

        panels.draw(session, view, target.panels)
    if target.page is not None and (target.page_is_asked or is_worth_a_page(session)):
        from nncftools.files import write_file
        from nncftools.render import page

        write_file(target.page, page.report(session, view))


_LEAST_OF_A_PAGE_S = 1.0
_MOST_SAMPLES, _MOST_STACKS = 100_000, 500
"""With more, making the page takes longer than a second."""


def is_worth_a_page(session: Session) -> bool:
    """Return whether a page shows more than the picture, and is made within a second."""
    stacks = [] if session.snapshots is None else session.snapshots.stacks
    is_quick = len(session.samples) <= _MOST_SAMPLES and len(stacks) <= _MOST_STACKS
    return is_quick and session.duration_s >= _LEAST_OF_A_PAGE_S and bool(session.marks or stacks)


def _write_log(session: Session, log: Log, unit: MemoryUnit, folder: pathlib.Path) -> None:
    from nncftools.render import plot, samples

    view = View([log.metric], unit, from_zero=log.from_zero)
    samples.write(session, view, log.metric, folder / f"{log.name}.txt")
    plot.draw(session, view, folder / f"{log.name}.png")


@contextlib.contextmanager
def one_of_several(starter: Starter, folder: pathlib.Path, name: str, request: Request) -> Iterator[tuple[Run, int]]:
    """Yield a run as by `profile`, whose files are in a folder of ours, and the descriptor of the log of its output.

    Raises NncfToolsError.
    """
    target = destination.at_file(folder / f"{name}.json", force=True)
    argv, plan = request.words or [], planning.plan(planning.columns(request, options.PROFILE_TYPES)[1], request)
    planning.watch_disks(plan, argv, folder)
    access = planning.stack_access(request, default=True)
    marking, share = Marking(None if request.no_auto else []), options.share("--stacks-budget", request.stacks_budget)
    with destination.opened("--output", folder / f"{name}.log") as log:
        yield Run(starter, plan, name, argv, target, marking, access, share, output=log), log


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
