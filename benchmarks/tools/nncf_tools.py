"""nncf-tools itself, run by the interpreter that runs the benchmark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from benchmarks.tools.base import Recording, Tool, made_up

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Sequence


class NncfTools(Tool):
    """A command line and a sampler, two processes."""

    name = "nncf-tools"
    packages = ("nncf-tools",)

    def record(self, words: Sequence[str], interval_s: float, folder: pathlib.Path, metric: str) -> list[str]:
        """Return the command that records one metric."""
        quiet = ("monitor", "--quiet", "--no-plot", "--force", "-i", str(interval_s), "-t", metric)
        return [str(self.python), "-m", "nncftools", *quiet, "-o", str(_session(folder)), "--", *words]

    def read(self, folder: pathlib.Path, metric: str) -> Recording:
        """Return the recording from the session; its peak is the lower end of the bracket, as in a report."""
        session = json.loads(_session(folder).read_bytes())
        times = session["samples"]["time_s"]
        return Recording(
            samples=len(times),
            span_s=times[-1] - times[0],
            peak=session["peaks"][metric]["low"],
            processes=len(session["processes"]),
            sampler_rss=session["sampler"]["peak_rss"],
        )

    def draw(self, folder: pathlib.Path) -> list[str]:
        """Return the command that prints a report and draws it."""
        picture = str(folder / "drawn.png")
        return [str(self.python), "-m", "nncftools", "report", str(_session(folder)), "--plot", picture, "--force"]

    def grow(self, folder: pathlib.Path, count: int) -> None:
        """Replace all columns by time and RSS."""
        session = json.loads(_session(folder).read_bytes())
        times, sizes = zip(*made_up(count), strict=True)
        session["samples"] = {"time_s": times, "rss": sizes}
        session["duration_s"] = times[-1]
        _session(folder).write_text(json.dumps(session), encoding="utf-8")


def _session(folder: pathlib.Path) -> pathlib.Path:
    return folder / "session.json"
