"""``%load_ext nncftools`` in IPython and Jupyter: ``%%memory`` records a cell."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from nncftools.units import seconds_from, seconds_text

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from nncftools.api.session import Session

_INTERVAL_S = 0.05


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Add the magic ``%%memory [SECONDS]``: run a cell, sample every SECONDS (0.05), show what it cost."""
    from IPython.core.error import UsageError

    from nncftools.api.profiler import Profiler

    def memory(line: str, cell: str) -> Session:
        """Record memory, CPU and I/O of this cell and of all processes that it starts.

        Usage, in the first line of a cell::

            %%memory            a sample every 0.05 s
            %%memory 10ms       a sample every 0.01 s, from 0.001 on

        A separate process takes the samples, so a call that holds the interpreter leaves no gap. The kernel's memory
        before the cell is included: see "from zero" or "Delta" for what the cell added. Name parts of the cell to see
        what each cost::

            from nncftools import operation
            with operation("export"):
                ...

        The result is a nncftools.Session: _ in the next cell, and Out[N] later. It has report(), plot("run.png"),
        to_html("run.html"), to_pandas() and save("run.json"), which `nncf-tools report run.json` reads.
        """
        try:
            profiler = Profiler(seconds_from(line) if line.strip() else _INTERVAL_S)
        except ValueError:
            raise UsageError(
                "%%memory takes only the time between samples, such as 0.1 or 100ms: "
                f"seconds from 0.001 to a year expected, found {line.strip()!r}"
            ) from None
        if _needs_the_running_loop(shell, cell):
            raise UsageError(
                "%%memory cannot run a cell that awaits at its top level: this kernel's event loop is already running. "
                "Record it without %%memory: with nncftools.Profiler() as p: …, with the awaits inside, then p"
            )
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
    """Return what was recorded, and what to do next."""
    number = len(session.samples)
    samples = f"{number:,} {'sample' if number == 1 else 'samples'} in {seconds_text(session.duration_s)}"
    lines = [f"Recorded this kernel and the processes that it started: {samples}."]
    if not session.marks:
        lines.append('Name parts of the cell to see what each cost: with nncftools.operation("export"): …')
    lines.append('Next: s = _, then s.plot("run.png"), s.to_html("run.html"), s.report(), s.save("run.json")')
    return "\n".join(lines)
