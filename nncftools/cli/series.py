"""Code for commands that run another command several times: ``fit``, ``forecast``, ``sweep``, and ``monitor --repeat``.

Each run is recorded and gets the same input. After a signal, no further run begins. ``fit``, ``forecast`` and ``sweep``
also end a run that ignores the signal, and keep results in a folder, so that a later call can continue.
"""

from __future__ import annotations

import _thread
import contextlib
import functools
import math
import os
import pathlib
import re
import shlex
import signal
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from nncftools import intake, markdown
from nncftools.cli import destination, options, planning, recording, screen
from nncftools.cli.destination import Destination
from nncftools.cli.options import Request, SeriesRequest
from nncftools.cli.recording import Recorded, RecordingJob
from nncftools.errors import NncfToolsError, SessionFileError, UsageError, memory_shortage
from nncftools.files import HELPER_PROCESS, write_file
from nncftools.intake import Redaction
from nncftools.render.table import Fitting, Table, join_blocks, render_markdown, render_warnings
from nncftools.sampler.client import Interrupted, Starter, block_signals
from nncftools.units import MemoryUnit, printable, shortened

if TYPE_CHECKING:
    from typing_extensions import Self

_ENDING = signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT
_POLL_S = 0.1
_GRACE_S = 2.0
"""How long a run may continue after SIGTERM, before SIGKILL is sent."""
_ERROR = re.compile(r"(?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt)\b(?!:\s*$).*")
_TAIL = 1 << 16
AGAIN = "-again"
"""Suffix of the file names of a run that is made a second time."""
LONGEST_REASON = 300
_LONGEST_SCRIPT = 60
_MOST_LINES = 20
"""Largest number of lines to show from the output of a failed shell command."""
_LEAST_OF_DOCKER = 6
"""The smallest memory limit that Docker accepts, in MiB."""


Ended = tuple[Destination | None, Recorded]
"""The files and the result of a run. A warm-up has no files, because the recording is thrown away."""


def repeat(
    starter: Starter, request: Request, record: Callable[[], Ended], warm_up: Callable[[], Ended]
) -> Iterator[tuple[str, Ended]]:
    """Make the runs of ``--warmup`` and ``--repeat``; stop after a run that fails or is interrupted.

    Yield the name and the result of each run; then run the command of ``--cleanup``. Raises NncfToolsError,
    Interrupted.
    """
    runs = [(f"warm-up {number} of {request.warmup}", warm_up) for number in range(1, request.warmup + 1)]
    runs += [(f"run {number} of {request.repeat}", record) for number in range(1, request.repeat + 1)]
    start = find_input()
    for name, run in runs:
        rewind_input(start)
        with prepare_run(starter, request, name):
            ended = run()
            yield name, ended
        _, recorded = ended
        if recorded.status:
            return


@contextlib.contextmanager
def prepare_run(starter: Starter, request: Request | SeriesRequest, name: str) -> Iterator[None]:
    """Run ``--prepare`` now, and ``--cleanup`` at the end of the context, even after a failure or a signal.

    A signal ends a shell command that is running, and no run begins after a signal. Raises NncfToolsError, Interrupted.
    If both the run and ``--cleanup`` fail, the failure of the run is raised.
    """
    number = starter.received
    if number is not None:
        raise Interrupted(number)
    _run_option(starter, "--prepare", request.prepare, f"before {name}")
    cleanup = functools.partial(_run_option, starter, "--cleanup", request.cleanup, when=f"after {name}")
    try:
        yield
    except BaseException:
        try:
            cleanup()
        except (Interrupted, NncfToolsError) as error:
            screen.message(str(error))
        raise
    cleanup()


def _run_option(starter: Starter, option: str, script: str | None, when: str) -> None:
    """Run the shell command of an option, if the option is given. Raises NncfToolsError, Interrupted."""
    if script is None:
        return
    shown = shortened(script, _LONGEST_SCRIPT)
    try:
        with tempfile.TemporaryFile() as log:
            status = run_script(starter, script, log.fileno())
            output = _read_tail(log.fileno())
    except Interrupted as interrupted:
        interrupted.args = (f"{interrupted} {when}",)
        raise
    except OSError as error:
        raise NncfToolsError(f"option {option}: cannot run {shown!r}: {error.strerror or error}") from error
    if status:
        text = f"option {option}: {shown!r} ended with exit status {status} {when}"
        lines = [f"{text}:", *output[-_MOST_LINES:]] if output else []
        failure = NncfToolsError(text, lines=lines)
        failure.exit_code = status
        raise failure


def run_script(starter: Starter, script: str, log: int) -> int:
    """Run a shell command with the output in a log; return the exit status, or 128 + N if signal N ended the command.

    If a signal arrives, kill the shell command and raise Interrupted. Raises OSError if the command cannot be started.
    """
    received: list[int] = []

    def take(number: int) -> None:
        if number in _ENDING:
            received.append(number)

    words = [planning.SHELL, "-c", script]
    starter.passes_to = take
    try:
        with subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        ) as process:
            while not received:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_S)
                    break
            else:
                os.killpg(process.pid, signal.SIGKILL)
    finally:
        starter.passes_to = None
    if received:
        raise Interrupted(received[0])
    code = process.returncode
    return code if code >= 0 else 128 - code


def name_scripts(request: SeriesRequest) -> None:
    """Print the shell commands that run before and after each run."""
    for when, script in (("Before", request.prepare), ("After", request.cleanup)):
        if script is not None:
            screen.line(f"{when} each run: {script}")


def find_input() -> int | None:
    """Return the position in standard input; None if standard input is not a regular file."""
    with contextlib.suppress(OSError):
        if stat.S_ISREG(os.fstat(0).st_mode):
            return os.lseek(0, 0, os.SEEK_CUR)
    return None


def rewind_input(start: int | None) -> None:
    """Go back to the position ``start`` in standard input, so that the next run reads the same input.

    If ``start`` is None, standard input has no position, and nothing happens.
    """
    if start is not None:
        os.lseek(0, start, os.SEEK_SET)


@contextlib.contextmanager
def runner() -> Iterator[Runner]:
    """Yield a runner for several recordings.

    A signal ends the context silently; then the runner's ``is_interrupted`` is true. After the context, signals end
    this process as before.
    """
    handlers = {number: signal.getsignal(number) for number in _ENDING}
    try:
        with contextlib.suppress(Interrupted), Starter() as starter:
            screen.starter = starter
            yield Runner(starter)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


class Runner:
    """Runs a command several times with the same input: the file on our standard input, or else nothing."""

    def __init__(self, starter: Starter) -> None:
        self.starter = starter
        self._start = find_input()
        if self._start is None:
            nothing = os.open(os.devnull, os.O_RDONLY)
            if nothing:  # descriptor 0 was open
                os.dup2(nothing, 0)
                os.close(nothing)
            os.set_inheritable(0, True)

    def is_interrupted(self) -> bool:
        """Return whether a signal has asked us to end."""
        return self.starter.received is not None

    @property
    def exit_status(self) -> int:
        """Our exit status after a signal."""
        return 128 + (self.starter.received or signal.SIGINT)

    def check(self) -> None:
        """Raise Interrupted if a signal has asked us to end."""
        if self.starter.received is not None:
            raise Interrupted(self.starter.received)

    def record(  # noqa: PLR0913, PLR0917 — the facts of a run
        self,
        path: pathlib.Path,
        request: Request,
        log: int,
        watch: Watch | None = None,
        entry: Sequence[str] = (),
        environment: Mapping[str, str] = {},
    ) -> Recorded:
        """Record a run as `profile` does; the command's output goes to ``log``. Raises NncfToolsError, Interrupted.

        ``path`` is the path of the run's files without an ending. See ``RecordingJob`` for ``entry`` and
        ``environment``.
        """
        target = destination.at_file(path.with_name(f"{path.name}.json"), force=True)
        argv = request.words or []
        plan = planning.make_plan(planning.choose_columns(request, options.PROFILE_TYPES)[1], request)
        planning.watch_disks(plan, argv, path.parent)
        run = RecordingJob(
            starter=self.starter,
            request=request,
            argv=argv,
            plan=plan,
            target=target,
            calls=None if request.no_auto else [],
            stack_access=planning.stack_access(request, default=True),
            stacks_share=options.share("--stacks-budget", request.stacks_budget),
            output=log,
            entry=entry,
            environment=environment,
        )
        rewind_input(self._start)
        try:
            with target.place, watch or Watch(self):
                return recording.record(run)
        finally:
            self.check()


def explain_failure(recorded: Recorded, log: int) -> str:
    """Return why a run failed: the probable cause (or else the exit status), and the last error in the log."""
    from nncftools.limits.judges import verdict
    from nncftools.render.peak_lines import write_verdict

    judged = None if recorded.session is None else verdict(recorded.session, MemoryUnit.MiB)
    ended = f"exit status {recorded.status}" + ("" if recorded.status else ", without a result")
    text = ended if judged is None else write_verdict(judged)
    with contextlib.suppress(OSError):
        lines = reversed(_read_tail(log))
        text += next((f": {line}" for line in lines if _ERROR.fullmatch(line)), "")
    return shortened(" ".join(text.split()), LONGEST_REASON)


def _read_tail(log: int) -> list[str]:
    """Return the last lines of a log. Raises OSError."""
    begin = max(0, os.fstat(log).st_size - _TAIL)
    tail = os.pread(log, _TAIL, begin)
    return tail.decode("utf-8", errors="replace").splitlines()


class Watch:
    """A thread that watches a run, and ends the processes if they take too long, or if a signal has asked us to end."""

    def __init__(self, runner: Runner, most_s: float = math.inf) -> None:
        self._runner = runner
        self._most_s = most_s
        self._begun_s = time.monotonic()
        self._over = threading.Event()
        self._ended = threading.Event()
        self.gave_up = False
        self.seconds = 0.0

    def __enter__(self) -> Self:
        import psutil  # noqa: F401 — the thread may be unable to open a file later

        with block_signals():
            # Thread.start() would wait forever if there is no memory for the new thread
            _thread.start_new_thread(self._watch, ())
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.monotonic() - self._begun_s
        self._over.set()
        self._ended.wait(5 * _GRACE_S)

    def _watch(self) -> None:
        try:
            self._look_until_over()
        finally:
            self._ended.set()

    def _look_until_over(self) -> None:
        while not self._over.wait(_POLL_S):
            self.gave_up = time.monotonic() > self._begun_s + self._most_s
            if self.gave_up or self._runner.is_interrupted():
                _send(signal.SIGTERM)
                if not self._over.wait(_GRACE_S):
                    _send(signal.SIGKILL)
            else:
                self.look()

    def look(self) -> None:
        """Inspect the running command. The watch calls this method every 0.1 s.

        Here, the method does nothing. Subclasses may override it.
        """


def _send(number: int) -> None:
    """Send a signal to the command and all descendants, but not to our helper processes."""
    import psutil

    with contextlib.suppress(OSError):  # a process that may open nothing cannot list its descendants
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if HELPER_PROCESS not in process.cmdline():
                    process.send_signal(number)


class Shown(NamedTuple):
    """The result of a subcommand such as ``fit``, to print and to write as Markdown."""

    command: Sequence[str]
    answer: str
    sentences: Sequence[str]
    notes: Sequence[str]
    """Reasons to doubt the result."""
    table: Table
    to_copy: Sequence[str]
    """Shell commands to copy; they are never wrapped."""
    draw: Callable[[pathlib.Path], None] | None
    """Function that draws the picture; None if there is no picture."""

    @property
    def text(self) -> RenderableType:
        """The result for Rich to print, without the shell commands."""
        said = [Text(f"{printable(sentence)}.") for sentence in self.sentences]
        head = Text(self.answer, style="bold")
        table = Fitting(self.table)
        return Group(head, *said, *render_warnings(self.notes), Text(), table)

    @property
    def markdown(self) -> str:
        """The result as Markdown."""
        said = [f"- {markdown.text(sentence)}." for sentence in self.sentences]
        said += [f"- ⚠ {markdown.text(note)}" for note in self.notes]
        head = [f"**{markdown.text(self.answer)}**"], [markdown.code(shlex.join(self.command))], said
        code = ["```sh", *self.to_copy, "```"] if self.to_copy else []
        blocks = (*head, *render_markdown(self.table), code)
        return join_blocks(blocks)


def with_limit(words: Sequence[str], limit: float) -> list[str]:
    """Return two command lines, for Docker and systemd-run, that run a command with a memory limit.

    ``limit`` is in bytes, and is rounded up to whole MiB.
    """
    size = whole_mib(limit)
    of_docker = docker_mib(limit)
    command = " ".join(map(_quote, words))
    return [
        f"docker run --memory {of_docker}m --memory-swap {of_docker}m IMAGE {command}",
        f"systemd-run --scope -p MemoryMax={size}M -p MemorySwapMax=0M {command}",
    ]


def whole_mib(size: float) -> int:
    """Return a size in MiB, rounded up."""
    return math.ceil(size / MemoryUnit.MiB.factor)


def docker_mib(size: float) -> int:
    """Return a limit in MiB, rounded up, that Docker accepts."""
    return max(whole_mib(size), _LEAST_OF_DOCKER)


def _quote(word: str) -> str:
    """Return a word for bash, quoted. Line breaks and other control characters are written as escapes."""
    if word.isprintable():
        return shlex.quote(word)
    escaped = word.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{printable(escaped)}'"


def shareable(words: Iterable[str]) -> list[str]:
    """Return a command that may be saved: without secrets, as valid Unicode."""
    encoded = [os.fsencode(word) for word in words]
    return Redaction().words([word.decode(errors="backslashreplace") for word in encoded])


class _State(Protocol):
    format: str
    version: int
    command: list[str]


_Begun = TypeVar("_Begun", bound=_State)


class Results:
    """The folder with the results of ``fit`` or ``forecast``: the state after each run, and other files."""

    def __init__(self, request: SeriesRequest, name: str, result: str, run: str) -> None:
        """Choose the folder: the folder of ``--output``, or else a new folder in the log folder. Raises UsageError.

        ``name`` is the subcommand, ``result`` the word for the result in messages, and ``run`` the beginning of the
        runs' file names.
        """
        self._request = request
        self._name = name
        self._result = result
        self._run = run
        output = request.output
        if output is None:
            program = pathlib.Path((request.words or [""])[0]).name
            output = destination.new_folder(destination.DEFAULT_LOG_DIR, f"{name}-{program}").session.parent
        self.folder = output.absolute()
        self.state = self.folder / f"{name}.json"
        if os.path.lexists(self.state) and not (request.resume or request.force):
            raise UsageError(f"option --output: {str(output)!r} has a {result} already; use --resume or --force")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder; unless --resume is given, remove earlier runs. Raises NncfToolsError."""
        busy = f"another {self._result} writes to {str(self.folder)!r}; wait for its end"
        with destination.lock_folder("--output", self.folder, busy):
            if os.path.lexists(self.state) and not self._request.resume:
                self._remove_earlier()
            try:
                yield
            except NncfToolsError:
                if self._request.output is None:
                    self._remove_unused()
                raise

    def _remove_unused(self) -> None:
        """Remove the new folder if the first run could not be made: then all files in the folder are empty."""
        with contextlib.suppress(OSError):
            logs = list(self.folder.iterdir())
            if not any(log.stat().st_size for log in logs):
                for log in logs:
                    log.unlink()
                self.folder.rmdir()
                self.folder.parent.rmdir()

    def _remove_earlier(self) -> None:
        """Remove the files and the saved state of earlier runs."""
        ours = re.compile(rf"{self._name}\.(json|md|png)|{self._run}-[0-9]+({AGAIN})?\.(json|log)")
        with destination.writing("--output", self.folder):
            for path in self.folder.iterdir():
                if ours.fullmatch(path.name):
                    path.unlink()

    def begun(self, wanted: _Begun) -> _Begun:
        """With --resume, return the saved state if there is one. Otherwise, return ``wanted``. Raises UsageError."""
        file = self.state
        if not (self._request.resume and os.path.lexists(file)):
            return wanted
        try:
            content = intake.read_file(file, may_wait=False)
            found = msgspec.json.decode(content, type=type(wanted))
        except SessionFileError as error:
            raise UsageError(f"option --resume: {error}") from error
        except msgspec.MsgspecError as error:
            raise UsageError(f"option --resume: {str(file)!r} cannot be read: {error}") from error
        if (found.format, found.version) != (wanted.format, wanted.version):
            raise UsageError(
                f"option --resume: {str(file)!r} is not a result of this command, or is from a newer version"
            )
        if found.command != wanted.command:
            raise UsageError(
                f"option --resume: {str(file)!r} was made with another command: {shlex.join(found.command)}"
            )
        return found

    def write(self, document: object) -> None:
        """Write ``document``, the state after the last run, to the file ``state`` as JSON. Raises NncfToolsError."""
        destination.open_folder("--output", self.folder).close()
        with destination.writing("--output", self.state):
            write_file(self.state, _as_json(document))

    def finish(self, document: object, result: Shown) -> None:
        """Write the result as Markdown and as picture; print the result. Raises NncfToolsError.

        The result is printed even if writing fails, because the runs took long.
        """
        text = f"{self._name}.md"
        picture = f"{self._name}.png"
        try:
            write_file(self.folder / text, result.markdown.encode())
            if result.draw is not None:
                result.draw(self.folder / picture)
        except Exception as error:  # a broken matplotlib fails in many ways
            text_of_error = str(getattr(error, "strerror", None) or error)
            reason = memory_shortage(error) or " ".join(text_of_error.split())
            files = f"{self.state.name} in {str(self.folder)!r} is complete, {text} or {picture} is not"
            raise NncfToolsError(f"option --output: {files}: {reason}") from error
        finally:
            screen.to_stdout(_as_json(document) if self._request.as_json else result.text)
            if result.to_copy and not self._request.as_json:
                screen.to_stdout("\n  " + "\n  ".join(result.to_copy) + "\n")
        screen.to_stderr(f"\nWritten to {printable(str(self.folder))}\n")

    def interrupted(self, runner: Runner) -> int:
        """Print how to continue after a signal; return the exit status."""
        how = f"--resume --output {shlex.quote(str(self.folder))}"
        screen.line(f"nncf-tools: interrupted; the runs that ended are kept; continue with: {how}")
        return runner.exit_status


def _as_json(document: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
