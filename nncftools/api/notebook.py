"""``%load_ext nncftools`` in IPython and Jupyter: ``%%memory`` records a cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_INTERVAL_S = 0.05


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Add the magic ``%%memory [SECONDS]``: run a cell, sample every SECONDS (0.05), show what it cost."""
    from IPython.core.error import UsageError
    from IPython.display import display

    from nncftools.api.profiler import Profiler

    def memory(line: str, cell: str) -> None:
        try:
            profiler = Profiler(float(line) if line.strip() else _INTERVAL_S)
        except ValueError:
            raise UsageError(f"%%memory: seconds from 0.001 to a year expected, found {line.strip()!r}") from None
        with profiler:
            shell.run_cell(cell)
        display(profiler)

    shell.register_magic_function(memory, magic_kind="cell")
