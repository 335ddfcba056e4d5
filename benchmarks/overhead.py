"""What a recording costs around the command: ``python -m benchmarks.overhead`` prints a Markdown table.

CPU seconds and added time are medians of paired runs. The CPU time of a recording is in times of ``import typer``,
which each start of the command line needs: a ratio depends little on the machine and on what else runs there. The added
time is the wall time of ``nncf-tools monitor --quiet --no-plot -- true`` less that of ``true``, run in turn; the
sampler's memory is its own high-water mark from its session at an interval of 10 ms.
"""

from __future__ import annotations

import os
import pathlib
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

from nncftools import Session

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RUNS = 15
TOOL = (sys.executable, "-m", "nncftools")
QUIET = (*TOOL, "monitor", "--quiet", "--no-plot")
TYPER = (sys.executable, "-c", "import typer")
STARTS = {
    ("monitor", "-q", "-o", "x.json", "--force", "--", "true"): 2.4,
    ("monitor", "-o", "x.json", "--force", "--", "true"): 3.2,
}
"""Commands with the limit of their CPU time, in times of ``TYPER``."""


def cpu_s(words: Sequence[str], folder: str) -> float:
    """Return the CPU seconds of one run of ``words`` and all its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(words, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def starts(folder: str) -> Iterator[tuple[str, float, float]]:
    """Yield each command of ``STARTS``, its limit, and its CPU time in times of ``TYPER``; all run in turn."""
    commands = [TYPER, *((*TOOL, *words) for words in STARTS)]
    rounds = [[cpu_s(words, folder) for words in commands] for _ in range(RUNS)]
    typer_s, *medians = [statistics.median(times) for times in zip(*rounds, strict=True)]
    for (words, limit), median_s in zip(STARTS.items(), medians, strict=True):
        yield " ".join(words), limit, median_s / typer_s


def wall_s(words: Sequence[str], folder: str) -> float:
    """Return the wall time of one run of ``words``."""
    begin = time.perf_counter()
    subprocess.run(words, cwd=folder, check=True)
    return time.perf_counter() - begin


def sampler_bytes(folder: str) -> int:
    """Return the sampler's own high-water mark in a recording of two seconds at 10 ms."""
    path = pathlib.Path(folder) / "session.json"
    subprocess.run([*QUIET, "--force", "-i", "0.01", "-o", str(path), "sleep", "2"], cwd=folder, check=True)
    return Session.load(path).sampler.peak_rss or 0


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        cpu_s([*TOOL, "--help"], folder)  # compiles and caches what later runs only load
        help_s = statistics.median(cpu_s([*TOOL, "--help"], folder) for _ in range(RUNS))
        added_s = statistics.median(wall_s([*QUIET, "true"], folder) - wall_s(["true"], folder) for _ in range(RUNS))
        ratios = list(starts(folder))
        memory = statistics.median(sampler_bytes(folder) for _ in range(3))
    print(f"Python {platform.python_version()}, {platform.system()} {platform.release()}, medians of {RUNS} runs\n")
    print("| | limit | measured |")
    print("|---|---:|---:|")
    print(f"| `nncf-tools --help`, CPU | 150 ms | {help_s * 1000:.0f} ms |")
    for command, limit, ratio in ratios:
        print(f"| `nncf-tools {command}`, CPU in times of `import typer` | {limit} | {ratio:.2f} |")
    print(f"| added by `nncf-tools monitor --quiet --no-plot -- true` | 250 ms | {added_s * 1000:.0f} ms |")
    print(f"| resident memory of the sampler at 10 ms | 16 MiB | {memory / 2**20:.1f} MiB |")


if __name__ == "__main__":
    main()
