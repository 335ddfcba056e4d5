"""``Profiler`` records what each operation of a program costs, in a separate process.

With ``%load_ext nncftools`` in IPython and Jupyter, ``%%memory`` records a cell.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
from typing import TYPE_CHECKING, Any, overload

from nncftools.api.recorder import Recorder
from nncftools.errors import NncfToolsError
from nncftools.marks import operations
from nncftools.units import MemoryUnit, seconds_from, seconds_text

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell
    from typing_extensions import Self

    from nncftools.api.session import Session


_METRICS = ("rss", "vms", "system")
_NOTHING = "Profiler: nothing was recorded yet. Start it by `with profiler:`, or by `profiler.start()`."


class Profiler:
    """Records this program and its descendants, and the operations that it names.

    Use ``with Profiler() as p:`` and inside it ``with p.operation("export"):`` or ``p.mark("export")``, or decorate a
    function with ``@p.operation("compile")``. Then call ``p.report()``, ``p.plot("run.png")`` or
    ``p.to_html("run.html")``, or use ``p.session``.
    """

    def __init__(
        self, interval: float = 0.05, *, include_children: bool = True, stacks: bool = False, source: bool = True
    ) -> None:
        """Prepare to sample every ``interval`` seconds. Raises ValueError unless it is from 1 ms to a year.

        With ``stacks``, a helper process also reads which code memory comes from. Without ``source``, the session does
        not keep the text of the lines of this code.
        """
        self._number = next(operations.profilers)
        more = {"children": include_children, "stacks": stacks, "source": source}
        self._recorder = Recorder(_METRICS, interval, profiler=self._number, **more)

    @property
    def is_running(self) -> bool:
        """Whether the recording was started and not stopped."""
        return self._recorder.is_running

    def start(self) -> Self:
        """Start, and return after the first sample. Raises RuntimeError if it is already running, NncfToolsError."""
        if self.is_running:
            raise RuntimeError("the profiler is already running")
        self._recorder.start()
        return self

    def stop(self) -> None:
        """End the recording; does nothing if none is running."""
        if self.is_running:
            self._recorder.stop()
            operations.end_marks(self._number)  # in a recording around this one, they would go on

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def mark(self, name: str) -> None:
        """Start an operation that the next ``mark`` on its level ends; nearly free if nothing is recorded."""
        if self._recorder.is_running:
            operations.mark(name, self._number)

    def operation(self, name: str) -> operations.Marking:
        """Name a ``with`` block or a decorated function as an operation; an exception ends it, too.

        A coroutine or generator function is an operation from its first step to its end.
        """
        return operations.Marking(name, lambda: self._number if self._recorder.is_running else None)

    @property
    def session(self) -> Session:
        """The recording so far, with its marks. Raises NncfToolsError before the start."""
        session = self._recorder.session
        if session is None:
            raise NncfToolsError("nothing was recorded: start the profiler first")
        return session

    def report(self) -> str:
        """Return the figures of the run and of its operations as text. Raises NncfToolsError before the start."""
        return self.session.report()

    def plot(self, path: str | os.PathLike[str]) -> pathlib.Path:
        """Draw memory, CPU, I/O and operations to a .png, .svg or .pdf file, and return its path.

        Raises NncfToolsError before the start, OSError.
        """
        return self.session.plot(path)

    @overload
    def to_html(self) -> str: ...

    @overload
    def to_html(self, path: str | os.PathLike[str]) -> pathlib.Path: ...

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str | pathlib.Path:
        """Return the page with interactive charts; with ``path``, write it and return its path.

        Raises NncfToolsError before the start, and when plotly is not installed; OSError.
        """
        return self.session.to_html() if path is None else self.session.to_html(path)

    def __repr__(self) -> str:
        """Return the session in five lines, or what to do before there is one."""
        return _NOTHING if self._recorder.session is None else repr(self.session)

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:  # noqa: ANN401, FBT001 — as IPython calls it
        """Show the report in a terminal."""
        printer.text(_NOTHING if self._recorder.session is None else self.report())

    def _repr_markdown_(self) -> str:
        """Show the picture and tables in a notebook."""
        return f"{self!r}" if self._recorder.session is None else self.session._repr_markdown_()


_INTERVAL_S = 0.05


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Add the magic ``%%memory [SECONDS] [stacks]``: run a cell, sample every SECONDS (0.05), show what it cost."""
    from IPython.core.error import UsageError

    def memory(line: str, cell: str) -> Session:
        """Record memory, CPU and I/O of this cell and of all processes that it starts.

        Usage, in the first line of a cell::

            %%memory            a sample every 0.05 s
            %%memory 10ms       a sample every 0.01 s, from 0.001 on
            %%memory stacks     also which code memory comes from

        The first line says how high memory went, and how much more that is than before the cell. A separate process
        takes the samples, so a call that holds the interpreter leaves no gap. Name parts of the cell to see what each
        cost::

            from nncftools import operation
            with operation("export"):
                ...

        The result is a nncftools.Session: _ in the next cell, and Out[N] later. It has report(), plot("run.png"),
        to_html("run.html"), to_pandas() and save("run.json"), which `nncf-tools report run.json` reads.
        """
        words = line.split()
        stacks = words[-1:] == ["stacks"]
        interval = " ".join(words[: len(words) - stacks])
        try:
            profiler = Profiler(seconds_from(interval) if interval else _INTERVAL_S, stacks=stacks)
        except ValueError:
            expected = "seconds from 0.001 to a year expected"
            takes = "%%memory takes the time between samples, such as 0.1 or 100ms, and the word stacks"
            raise UsageError(f"{takes}: {expected}, found {line.strip()!r}") from None
        if _needs_the_running_loop(shell, cell):
            why = "a cell that awaits at its top level: this kernel's event loop is already running"
            how = "with nncftools.Profiler() as p: …, with the awaits inside, then p"
            raise UsageError(f"%%memory cannot run {why}. Record it without %%memory: {how}")
        with profiler:
            shell.run_cell(cell)
        session = profiler.session
        print(_explained(session))
        return session

    shell.register_magic_function(memory, magic_kind="cell")


def _needs_the_running_loop(shell: InteractiveShell, cell: str) -> bool:
    """Return whether a cell awaits at its top level while a loop runs: a magic is called in it, and cannot await."""
    with contextlib.suppress(RuntimeError, SyntaxError):  # no loop runs, or the cell is wrong
        asyncio.get_running_loop()
        return bool(shell.should_run_async(cell, transformed_cell=shell.transform_cell(cell)))
    return False


def _explained(session: Session) -> str:
    from nncftools.analysis.summary import level

    rss = level(session, "rss")
    peak, added = (MemoryUnit.MiB.label(size) for size in (rss.peak, rss.from_zero().peak))
    number = len(session.samples)
    samples = f"{number:,} {'sample' if number == 1 else 'samples'} in {seconds_text(session.duration_s)}"
    lines = [
        f"Peak memory {peak}, {added} more than before the cell",
        f"Recorded this kernel and the processes that it started: {samples}.",
    ]
    if not session.marks:
        lines.append('Name parts of the cell to see what each cost: with nncftools.operation("export"): …')
    lines.append('Next: s = _, then s.plot("run.png"), s.to_html("run.html"), s.report(), s.save("run.json")')
    return "\n".join(lines)
