"""mprof, the command of memory-profiler: psutil, one process, a line of text per sample."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.tools.base import Recording, Tool, made_up

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Sequence

_BACKENDS = {"rss": "psutil", "pss": "psutil_pss"}


class Mprof(Tool):
    """It writes the time after the epoch, and MiB."""

    name = "mprof"
    packages = ("memory-profiler", "matplotlib")

    def record(self, words: Sequence[str], interval_s: float, folder: pathlib.Path, metric: str) -> list[str]:
        """Return the command that writes a .dat file."""
        options = ("--include-children", "--interval", str(interval_s), "--backend", _BACKENDS[metric])
        return [self.script("mprof"), "run", *options, "--output", str(_dat(folder)), *words]

    def read(self, folder: pathlib.Path, metric: str) -> Recording:  # noqa: ARG002 — a file holds one metric
        """Return the recording from the .dat file."""
        lines = _dat(folder).read_text(encoding="utf-8").splitlines()
        rows = [tuple(map(float, line.split()[1:])) for line in lines if line.startswith("MEM ")]
        peak = max(mebibytes for mebibytes, _ in rows)
        return Recording(samples=len(rows), span_s=rows[-1][1] - rows[0][1], peak=round(peak * 2**20))

    def draw(self, folder: pathlib.Path) -> list[str]:
        """Return the command that draws the .dat file."""
        return [self.script("mprof"), "plot", "--output", str(folder / "drawn.png"), str(_dat(folder))]

    def grow(self, folder: pathlib.Path, count: int) -> None:
        """Write as many lines after the first, which names the command."""
        lines = _dat(folder).read_text(encoding="utf-8").splitlines()
        begin = float(lines[1].split()[2])
        with _dat(folder).open("w", encoding="utf-8") as file:
            file.write(f"{lines[0]}\n")
            file.writelines(f"MEM {size / 2**20:.6f} {begin + time_s:.4f}\n" for time_s, size in made_up(count))


def _dat(folder: pathlib.Path) -> pathlib.Path:
    return folder / "mprof.dat"
