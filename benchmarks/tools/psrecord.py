"""psrecord: psutil, one process; it draws only while it records."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from benchmarks.tools.base import Recording, Tool, ToolError, refuse_pss

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Sequence

_REAL_MIB = 2
"""Column of the log, called "Real (MB)"; it is MiB."""


class Psrecord(Tool):
    """It starts its command through a shell, which it would record, too, if the shell did not ``exec`` the command."""

    name = "psrecord"
    packages = ("psrecord",)

    def record(self, words: Sequence[str], interval_s: float, folder: pathlib.Path, metric: str) -> list[str]:
        """Return the command that writes a log."""
        refuse_pss(metric)
        options = ("--include-children", "--interval", str(interval_s), "--log", str(_log(folder)))
        return [self.script("psrecord"), *options, f"exec {shlex.join(words)}"]

    def read(self, folder: pathlib.Path, metric: str) -> Recording:  # noqa: ARG002 — RSS is all it has
        """Return the recording from the log."""
        lines = _log(folder).read_text(encoding="utf-8").splitlines()
        rows = [[float(word) for word in line.split()] for line in lines if not line.startswith("#")]
        peak = max(row[_REAL_MIB] for row in rows)
        return Recording(samples=len(rows), span_s=rows[-1][0] - rows[0][0], peak=round(peak * 2**20))

    def draw(self, folder: pathlib.Path) -> list[str]:  # noqa: ARG002 — it cannot
        """Raise ToolError."""
        raise ToolError("draws only while it records")

    def grow(self, folder: pathlib.Path, count: int) -> None:
        """Do nothing: it would not be drawn."""


def _log(folder: pathlib.Path) -> pathlib.Path:
    return folder / "psrecord.txt"
