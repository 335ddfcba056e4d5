"""Compare nncf-tools with its peers: ``python -m benchmarks`` prints a Markdown table.

Each tool comes from PyPI into a virtual environment of its own; for root, each sees a process list of its own. All run
the same workloads in turn, each round beginning with another one; figures are medians, ratios the medians of the ratios
within the rounds.
"""

from __future__ import annotations

import argparse
import pathlib
import signal
import sys
import tempfile

import nncftools
from benchmarks import launch, machine, recording, venvs
from benchmarks.bench import Bench
from benchmarks.cases import CASES
from benchmarks.cases import README as README_CASES
from benchmarks.scale import FULL, README, SMALL
from benchmarks.table import Row, markdown
from benchmarks.tools import OURS, PEERS, Tool

_RUNS = 5


def positive(text: str) -> int:
    """Return a number of runs. Raises ValueError."""
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def arguments() -> argparse.Namespace:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Compare nncf-tools with its peers.")
    parser.add_argument("--venvs", type=pathlib.Path, metavar="DIR", help="keep the peers' environments here")
    parser.add_argument("--output", type=pathlib.Path, metavar="FILE", help="write the table to this file, too")
    parser.add_argument(
        "--runs", type=positive, default=_RUNS, metavar="N", help=f"rounds of a measurement, default {_RUNS}"
    )
    parser.add_argument("--only", action="append", choices=CASES, metavar="WORKLOAD", help=", ".join(CASES))
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--small", action="store_true", help="small workloads: does everything run?")
    size.add_argument("--readme", action="store_true", help="the rows that README shows, from shorter runs")
    return parser.parse_args()


def heading(runs: int, versions: list[str]) -> str:
    """Return the text above the table."""
    what = f"medians of at least {runs} paired runs; × is the ratio to nncf-tools"
    return f"{machine.description()}\n\n{', '.join(versions)}; {what}\n\n{surroundings(isolated=launch.isolates())}\n"


def surroundings(*, isolated: bool) -> str:
    """Return which other processes the tools could see."""
    if isolated:
        return "Each tool ran in a process list (PID namespace) of its own."
    return f"Each tool ran beside {machine.processes():,} other processes; root gives each a process list of its own."


def measure(options: argparse.Namespace, folder: pathlib.Path) -> str:
    """Install, run, and return the table; ``--output`` is rewritten after each workload, so that no result is lost."""
    tools: list[Tool] = [OURS(pathlib.Path(sys.executable))]
    versions = [f"{OURS.name} {nncftools.__version__}"]
    for peer in PEERS:
        python = venvs.prepared(folder / peer.packages[0], peer.packages)
        tools.append(peer(python))
        versions.append(f"{peer.packages[0]} {venvs.versions(python, peer.packages)[0]}")
    cases = README_CASES if options.readme else CASES
    bench = Bench(tools, README if options.readme else SMALL if options.small else FULL, options.runs)
    if options.output:
        options.output.touch()
    bench.paired("first run, not counted", recording.first, 1)
    rows: list[Row] = []
    text = ""
    for name in options.only or cases:
        rows += cases[name](bench)
        text = f"{heading(options.runs, versions)}\n{markdown([tool.name for tool in tools], rows)}"
        if options.output:
            options.output.write_text(text, encoding="utf-8")
    return text


def main() -> None:
    """Measure and print."""
    options = arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends running programs as Ctrl-C does
    with tempfile.TemporaryDirectory(prefix="nncf-tools-venvs-") as temporary:
        print(measure(options, (options.venvs or pathlib.Path(temporary)).absolute()))


if __name__ == "__main__":
    main()
