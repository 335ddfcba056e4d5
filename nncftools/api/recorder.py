"""Record this program with a sampler process: ``Recorder``, ``Profiler``, the magic ``%%memory``, and ``Session``.

In IPython and Jupyter, ``%load_ext nncftools`` adds the magic ``%%memory``, which records a cell.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import io
import os
import pathlib
import shutil
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, overload

from nncftools.analysis import session as analysis
from nncftools.errors import NncfToolsError, refuse_to_record
from nncftools.files import NEW_LOG, write_file
from nncftools.intake import Redaction
from nncftools.journal import reading
from nncftools.journal.writing import Plan
from nncftools.marks import operations
from nncftools.marks.line import VARIABLE
from nncftools.metrics import memory_of, recorded_with
from nncftools.session import launcher
from nncftools.units import MemoryUnit, count_text, seconds_from, seconds_text

if TYPE_CHECKING:
    from _typeshed import StrPath
    from IPython.core.interactiveshell import InteractiveShell
    from typing_extensions import Self

    from nncftools.render.view import View
    from nncftools.sampler.client import DetachedSampler
    from nncftools.snapshots.client import Helper

_SHOWN = ("rss", "pss", "uss", "system")
"""The memory metrics that outputs show. Outputs show other memory metrics only if a session has none of these."""
_WIDTH = 100


class Session(analysis.Session):
    """One recorded run. Sizes are bytes and times are seconds. An unknown figure is None (NaN in samples), never 0.

    ``Session.load(path)`` reads a session or journal that an ``nncf-tools`` command has written. ``report()`` returns
    text, ``plot("run.png")`` draws a picture, ``to_html()`` returns a page, ``to_pandas()`` returns the samples as a
    table, and ``save(path)`` writes a file. A notebook shows the picture and tables.
    """

    def report(self) -> str:
        """Return the figures of the run and of all operations as text of at most 100 columns, with memory in MiB."""
        from rich.console import Console

        from nncftools.render import text

        console = Console(file=io.StringIO(), width=_WIDTH, highlight=False, color_system=None)
        with console.capture() as captured:
            console.print(text.report(self, self._view()))
        return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())

    def plot(self, path: StrPath) -> pathlib.Path:
        """Draw memory, CPU, I/O and operations to a .png, .svg or .pdf file, and return the path.

        Raises NncfToolsError if the file name has another ending; OSError.
        """
        from nncftools.render import panels
        from nncftools.render.view import PICTURES

        picture = pathlib.Path(path)
        if picture.suffix.lower() not in PICTURES:
            raise NncfToolsError(f"{str(path)!r}: the name of a picture ends in {', '.join(PICTURES)}")
        panels.draw(self, self._view(), picture)
        return picture

    @overload
    def to_html(self) -> str: ...

    @overload
    def to_html(self, path: StrPath) -> pathlib.Path: ...

    def to_html(self, path: StrPath | None = None) -> str | pathlib.Path:
        """Return an HTML page with interactive charts. If ``path`` is given, write the page and return ``path``.

        The page needs no network. Raises NncfToolsError if plotly is not installed; OSError.
        """
        from nncftools.render import page

        content = page.report(self, self._view())
        if path is None:
            return content.decode()
        written = pathlib.Path(path)
        write_file(written, content)
        return written

    def __repr__(self) -> str:
        """Return five lines: command, date and duration of the run, memory peak, cost in CPU and I/O, recorded data."""
        from nncftools.render.text import five_lines

        return five_lines(self, self._view().metrics)

    def _repr_markdown_(self) -> str:
        """Show the picture and tables in a notebook."""
        from nncftools.render.text import notebook_cell

        return notebook_cell(self, self._view())

    def _view(self) -> View:
        from nncftools.render.view import View

        memory = memory_of(self.samples.metrics)
        recorded = [name for name in memory if self.samples.figures(name).known]
        return View([name for name in recorded if name in _SHOWN] or recorded)


SHORTEST_S = 0.001
_LONGEST_S = 366 * 24 * 3600.0
_READY_WITHIN_S = 30.0
_ENDED_EARLY = "the recording ended early"
_ENDS_WITHIN_S = 30.0


def check_interval(interval_s: float) -> None:
    """Raise ValueError unless the interval is from 1 ms to a year."""
    if not SHORTEST_S <= interval_s <= _LONGEST_S:
        raise ValueError(f"interval: seconds from {SHORTEST_S:g} to a year expected, found {interval_s!r}")


class Recorder:
    """Record until ``stop``, or until this process ends or is killed.

    In a forked child the copy of a recorder does nothing: the recording belongs to the parent.
    """

    def __init__(  # noqa: PLR0913 — one parameter per choice of a recording
        self,
        metrics: Sequence[str],
        interval_s: float,
        *,
        children: bool = True,
        profiler: int = 0,
        stacks: bool = False,
        source: bool = True,
    ) -> None:
        """Prepare to record ``metrics`` every ``interval_s`` seconds.

        Metrics that cost next to nothing are recorded, too.

        If ``profiler`` (the number of a profiler) is not 0, the session leaves out the marks of other profilers. Raises
        ValueError if the interval is not from 1 ms to a year.
        """
        check_interval(interval_s)
        columns = [*metrics, *recorded_with(metrics)]
        self._plan = Plan(columns, interval_s=interval_s, children=children)
        self._folder: pathlib.Path | None = None
        self._profiler = profiler
        self._takes_stacks = stacks
        self._takes_source = source
        self._helper: Helper | None = None
        self._pid = 0
        self._sampler: DetachedSampler | None = None
        self._memory = -1
        self.journal = pathlib.Path()
        """The journal: the file with the samples, while the recording runs."""
        self.marks_log: pathlib.Path | None = None
        """The file with the marks, while the recording runs."""
        self._session: Session | None = None

    @property
    def is_running(self) -> bool:
        """Whether this process is recording."""
        return self._sampler is not None and self._pid == os.getpid()

    def start(self) -> None:
        """Start to record, and return after the first sample. Raises NncfToolsError."""
        refuse_to_record()
        from nncftools.sampler import client

        self._pid = os.getpid()
        self._plan.pid = self._pid
        client.check()
        self._plan.source = client.platform_source()
        if self._plan.source == "proc":
            columns = *self._plan.columns, *client.list_device_metrics()
            self._plan.columns = list(dict.fromkeys(columns))
        command = [sys.executable, *sys.argv]
        header = client.make_header("", command, launcher.read_rank(os.environ), self._plan)
        try:
            journal = self._create_journal()
            try:
                self.marks_log = acquire_log()
                self._sampler = client.DetachedSampler(header, self._plan, journal, self.marks_log)
            finally:
                if journal != self._memory:
                    os.close(journal)
        except OSError as error:
            self._clear()
            raise NncfToolsError(f"the recording could not be started: {error}") from error
        if not self._sampler.has_begun(_READY_WITHIN_S):
            self._clear()
            raise NncfToolsError("the recording could not be started: the sampler ended or did not answer")
        if self._takes_stacks and self._folder is not None:  # a journal in memory has no folder for the helper's log
            self._start_helper()

    def _start_helper(self) -> None:
        from nncftools.snapshots.client import DEFAULT_SHARE, Helper, stack_access

        log = os.open(reading.snapshots_beside(self.journal), NEW_LOG, reading.PRIVATE)
        self._helper = Helper(log, detached=True)
        os.close(log)
        self._helper.follow(self._pid, self._plan, stack_access(with_hook=False), DEFAULT_SHARE)

    def __deepcopy__(self, _: object) -> NoReturn:
        """Refuse a copy: the copy would close the descriptors of this object."""
        raise TypeError("a recording cannot be copied; copy the attribute `session`")

    def stop(self) -> None:
        """End the recording and keep the session. Do nothing if no recording is running.

        If the sampler was killed, warn that the recording ended early.
        """
        if not self.is_running or self._sampler is None:
            return
        if self._helper is not None:
            self._helper.close()
            self._helper = None
        self._sampler.stop()
        self._sampler.has_news(_ENDS_WITHIN_S)
        from nncftools.analysis.code_places import is_own
        from nncftools.session.snapshots import take_sources

        try:
            self._session = self._read()
            if self._takes_source:
                take_sources(self._session, Redaction(), is_own)
        except NncfToolsError as error:
            warnings.warn(f"the recording is lost: {error}", RuntimeWarning, stacklevel=3)
        else:
            if not self._session.finished:
                warnings.warn(f"{_ENDED_EARLY}: {self._session.warnings[-1]}", RuntimeWarning, stacklevel=3)
        self._clear()

    @property
    def session(self) -> Session | None:
        """The recording so far; None if no recording was started."""
        return self._read() if self.is_running else self._session

    def _read(self) -> Session:
        from nncftools.reading_marks.collecting import take_own

        session = Session.load(self.journal)
        with (
            contextlib.suppress(OSError),  # someone may have cleaned the temporary folder
            io.BytesIO() if self.marks_log is None else self.marks_log.open("rb") as log,
        ):
            take_own(session, log, "marks", self._pid, profiler=self._profiler)
        return session

    def _create_journal(self) -> int:
        """Create the journal in a temporary folder, or in memory if no folder can be made; return the descriptor."""
        with contextlib.suppress(OSError):
            self._folder = pathlib.Path(tempfile.mkdtemp(prefix="nncf-tools-"))
            self.journal = self._folder / f"recording{reading.ENDING}"
            return reading.create(self.journal, replace=False)
        self._memory = os.memfd_create("nncf-tools")
        self.journal = pathlib.Path(f"/proc/{os.getpid()}/fd/{self._memory}")
        return self._memory

    def _clear(self) -> None:
        if self._sampler is not None:
            self._sampler.close()
            self._sampler = None
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1
        if self.marks_log is not None:
            release_log()
            self.marks_log = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


_log_lock = threading.Lock()
_log_users = 0
_own_log: tuple[str, Callable[[], None]] | None = None
"""``(path, function that removes the file)`` of a marks log that this program made; None if there is none."""


def acquire_log() -> pathlib.Path:
    """Return the path of the log for this program's marks. Each call needs a matching call of ``release_log``.

    If this program runs inside a recording of ``nncf-tools``, return the log of the outer recording.
    """
    global _log_users, _own_log  # noqa: PLW0603 — all recorders of a program share a log
    with _log_lock:
        _log_users += 1
        path = os.environ.get(VARIABLE)
        if not path or not pathlib.Path(path).is_file():
            try:
                descriptor, path = tempfile.mkstemp(prefix="nncf-tools-", suffix=".marks.jsonl")
            except OSError:  # no file can be written
                memory = os.memfd_create("nncf-tools-marks")
                path = f"/proc/{os.getpid()}/fd/{memory}"
                _own_log = path, functools.partial(os.close, memory)
            else:
                os.close(descriptor)
                _own_log = path, functools.partial(pathlib.Path(path).unlink, missing_ok=True)
            os.environ[VARIABLE] = path
        return pathlib.Path(path)


def release_log() -> None:
    """Stop using the log. When nobody uses the log any longer, remove the file."""
    global _log_users, _own_log  # noqa: PLW0603 — all recorders of a program share a log
    with _log_lock:
        _log_users -= 1
        if _log_users or _own_log is None:
            return
        path, remove = _own_log
        if os.environ.get(VARIABLE) == path:
            del os.environ[VARIABLE]
        remove()
        _own_log = None


_METRICS = ("rss", "vms", "system")
_INTERVAL_S = 0.05
_NOTHING = "Profiler: nothing was recorded yet. Start it by `with profiler:`, or by `profiler.start()`."


class Profiler:
    """Record this program and all descendants, with the operations that the program names.

    Use ``with Profiler() as p:``. In the block, name operations by ``with p.operation("export"):`` or
    ``p.mark("export")``, or decorate a function with ``@p.operation("compile")``. Then call ``p.report()``,
    ``p.plot("run.png")`` or ``p.to_html("run.html")``, or use ``p.session``.
    """

    def __init__(
        self,
        interval: float = _INTERVAL_S,
        *,
        include_children: bool = True,
        stacks: bool = False,
        source: bool = True,
    ) -> None:
        """Prepare to sample every ``interval`` seconds. Raises ValueError unless ``interval`` is from 1 ms to a year.

        If ``stacks`` is true, a helper process also finds the code that memory comes from. If ``source`` is false, the
        session does not keep the text of these lines of code.
        """
        self._number = next(operations.profilers)
        self._recorder = Recorder(
            _METRICS,
            interval,
            children=include_children,
            profiler=self._number,
            stacks=stacks,
            source=source,
        )

    @property
    def is_running(self) -> bool:
        """Whether the profiler is recording."""
        return self._recorder.is_running

    def start(self) -> Self:
        """Start to record, and return after the first sample.

        Raises NncfToolsError if nothing can be recorded, and RuntimeError if the profiler is already running.
        """
        if self.is_running:
            raise RuntimeError("the profiler is already running")
        self._recorder.start()
        return self

    def stop(self) -> None:
        """End the recording. Do nothing if no recording is running."""
        if self.is_running:
            self._recorder.stop()
            operations.end_marks(self._number)  # otherwise, the operations would continue in an outer recording

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def mark(self, name: str) -> None:
        """Start an operation. It ends at the next ``mark``, or when the operation around it ends.

        A ``mark`` inside an operation does not end an operation that was marked outside. If nothing is recorded, a call
        takes almost no time.
        """
        if self._recorder.is_running:
            operations.mark(name, self._number)

    def operation(self, name: str) -> operations.Marking:
        """Name a ``with`` block or a decorated function as an operation; an exception ends the operation, too.

        A coroutine or generator function is an operation from the first step to the end.
        """
        return operations.Marking(name, lambda: self._number if self._recorder.is_running else None)

    @property
    def session(self) -> Session:
        """The recording so far, with marks. Raises NncfToolsError if no recording was started."""
        session = self._recorder.session
        if session is None:
            raise NncfToolsError("nothing was recorded: start the profiler first")
        return session

    def report(self) -> str:
        """Return the measured values of the run and of all operations as text.

        Raises NncfToolsError if no recording was started.
        """
        return self.session.report()

    def plot(self, path: StrPath) -> pathlib.Path:
        """Draw memory, CPU, I/O and operations to a .png, .svg or .pdf file, and return the path.

        Raises NncfToolsError if no recording was started, or if the file name has another ending. Raises OSError.
        """
        return self.session.plot(path)

    @overload
    def to_html(self) -> str: ...

    @overload
    def to_html(self, path: StrPath) -> pathlib.Path: ...

    def to_html(self, path: StrPath | None = None) -> str | pathlib.Path:
        """Return an HTML page with interactive charts. If ``path`` is given, write the page and return ``path``.

        Raises NncfToolsError if no recording was started, or if plotly is not installed. Raises OSError.
        """
        return self.session.to_html() if path is None else self.session.to_html(path)

    def __repr__(self) -> str:
        """Return five lines about the session; if no recording was started, a sentence that says how to start."""
        return _NOTHING if self._recorder.session is None else repr(self.session)

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:  # noqa: ANN401, FBT001 — as IPython calls it
        """Show the report in a terminal."""
        printer.text(_NOTHING if self._recorder.session is None else self.report())

    def _repr_markdown_(self) -> str:
        """Show the picture and tables in a notebook."""
        return _NOTHING if self._recorder.session is None else self.session._repr_markdown_()


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Add the magic ``%%memory [SECONDS] [stacks]``, which runs and records a cell, and shows the cost.

    SECONDS is the time between two samples, by default 0.05.
    """
    from IPython.core.error import UsageError

    def memory(line: str, cell: str) -> Session:
        """Record memory, CPU and I/O of this cell and of all processes that it starts.

        Usage, in the first line of a cell::

            %%memory            a sample every 0.05 s
            %%memory 10ms       a sample every 0.01 s (0.001 s is the shortest time)
            %%memory stacks     also finds the code that memory comes from

        The first line of the output has the peak of memory, and the rise above the memory before the cell. A separate
        process takes the samples, so there is no gap while a call blocks the interpreter. Name parts of the cell to see
        the cost of each part::

            from nncftools import operation
            with operation("export"):
                ...

        The result is a nncftools.Session: _ in the next cell, and Out[N] later. It has report(), plot("run.png"),
        to_html("run.html"), to_pandas() and save("run.json"). `nncf-tools report run.json` reads the saved file.
        """
        words = line.split()
        stacks = words[-1:] == ["stacks"]
        interval = " ".join(words[: len(words) - stacks])
        try:
            profiler = Profiler(seconds_from(interval) if interval else _INTERVAL_S, stacks=stacks)
        except ValueError:
            expected = "seconds from 0.001 to a year expected"
            takes = "the arguments of %%memory are the time between samples, such as 0.1 or 100ms, and the word stacks"
            raise UsageError(f"{takes}: {expected}, found {line.strip()!r}") from None
        if _awaits_in_running_loop(shell, cell):
            reason = "a cell that awaits at its top level: this kernel's event loop is already running"
            remedy = "put the awaits into `with nncftools.Profiler() as p:`, and end the cell with `p`"
            raise UsageError(f"%%memory cannot run {reason}. Record it without %%memory: {remedy}")
        with profiler:
            shell.run_cell(cell)
        session = profiler.session
        print(_explain(session))
        return session

    shell.register_magic_function(memory, magic_kind="cell")


def _awaits_in_running_loop(shell: InteractiveShell, cell: str) -> bool:
    """Return whether a cell awaits at the top level while an event loop runs.

    The running loop calls the magic, and the magic cannot await.
    """
    with contextlib.suppress(RuntimeError, SyntaxError):  # no loop runs, or the cell has a syntax error
        asyncio.get_running_loop()
        return bool(shell.should_run_async(cell, transformed_cell=shell.transform_cell(cell)))
    return False


def _explain(session: Session) -> str:
    from nncftools.analysis.summary import summarize_level

    rss = summarize_level(session, "rss")
    peak = MemoryUnit.MiB.label(rss.peak)
    added = MemoryUnit.MiB.label(rss.from_zero().peak)
    samples = f"{count_text(len(session.samples), 'sample')} in {seconds_text(session.duration_s)}"
    lines = [
        f"Peak memory {peak}, {added} more than before the cell",
        f"Recorded this kernel and the processes that it started: {samples}.",
    ]
    if not session.marks:
        lines.append('Name parts of the cell to see the cost of each: with nncftools.operation("export"): …')
    lines.append('Next: s = _, then s.plot("run.png"), s.to_html("run.html"), s.report(), s.save("run.json")')
    return "\n".join(lines)
