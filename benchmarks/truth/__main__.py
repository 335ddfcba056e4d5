"""Judge the peaks that nncf-tools reports: ``python -m benchmarks.truth`` prints a Markdown table.

``--random N`` judges what operations cost instead, in N programs that are made up. The exit status is 1 if anything was
wrong in any run.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile
from typing import NamedTuple

import nncftools
from benchmarks import machine
from benchmarks.__main__ import positive
from benchmarks.truth.judging import faults, said, told
from benchmarks.truth.random_programs import running, table
from benchmarks.truth.recording import RunError, record
from benchmarks.truth.rows import ROWS, Row, key
from benchmarks.workloads.known.catalogue import workload
from nncftools.errors import NncfToolsError

_RUNS = 3
_INTERVALS_MS = (10, 50, 500)


class Result(NamedTuple):
    """What came of all runs of a row."""

    row: Row
    truth: str
    said: str
    """The first wrong answer, or the last one."""
    wrong: list[list[str]]
    """For each run, what was wrong."""

    @property
    def right(self) -> int:
        """Return how many runs were right."""
        return sum(not found for found in self.wrong)


def arguments() -> argparse.Namespace:
    """Return the parsed command line."""
    names = [key(row) for row in ROWS]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.truth", description="Judge the peaks of nncf-tools.")
    parser.add_argument("--runs", type=positive, default=_RUNS, metavar="N", help=f"runs of a row, default {_RUNS}")
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--output", type=pathlib.Path, metavar="FILE", help="write the table to this file, too")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR", help="keep sessions and truths here")
    made_up = parser.add_argument_group("programs that are made up")
    made_up.add_argument("--random", type=positive, metavar="N", help="judge operations of N programs")
    made_up.add_argument("--seed", type=int, default=1, metavar="N", help="number of the first program, default 1")
    made_up.add_argument(
        "--intervals", type=_intervals, default=_INTERVALS_MS, metavar="MS,MS", help="take turns, default 10,50,500"
    )
    made_up.add_argument("--jobs", type=positive, default=2, metavar="N", help="programs at a time, default 2")
    made_up.add_argument("--again", action="store_true", help="judge what --keep kept, without recording it")
    options = parser.parse_args()
    if options.again and not options.keep:
        parser.error("--again needs --keep DIR")
    return options


def _intervals(text: str) -> list[int]:
    """Return intervals in milliseconds. Raises ValueError."""
    return [positive(word) for word in text.split(",")]


def judge(row: Row, folder: pathlib.Path, runs: int) -> Result:
    """Record and judge a row."""
    wrong: list[list[str]] = []
    texts = ("", "")
    for number in range(1, runs + 1):
        was_wrong = any(wrong)
        try:
            truth, session = record(row, folder, number)
        except (RunError, NncfToolsError, OSError) as error:
            wrong.append([f"failed: {error}"])
            continue
        wrong.append(faults(row, truth, session))
        if not was_wrong:
            texts = told(truth, session), said(session)
        print(f"{key(row)}, {number} of {runs}: {'; '.join(wrong[-1]) or 'right'}", file=sys.stderr, flush=True)
    return Result(row, *texts, wrong)


def markdown(results: list[Result]) -> str:
    """Return the table, and below it what was wrong."""
    lines = ["| row | sampled at | truth | nncf-tools says | right |", "|---|---:|---|---|---:|"]
    for result in results:
        row, often = result.row, f"{result.right} of {len(result.wrong)}"
        what = (workload(row.workload).__doc__ or "").removesuffix(".")
        lines.append(f"| {what} | {row.interval_ms} ms | {result.truth} | {result.said} | {often} |")
    notes = [
        f"- {key(result.row)}, run {number}: {'; '.join(found)}"
        for result in results
        for number, found in enumerate(result.wrong, start=1)
        if found
    ]
    return "\n".join([*lines, *(["", *notes] if notes else [])]) + "\n"


def _judge_rows(options: argparse.Namespace, folder: pathlib.Path) -> tuple[str, bool]:
    """Return the table of the rows, and whether anything was wrong."""
    rows = [row for row in ROWS if not options.only or key(row) in options.only]
    results = [judge(row, folder, options.runs) for row in rows]
    return markdown(results), any(result.right < options.runs for result in results)


def _judge_random(options: argparse.Namespace, folder: pathlib.Path) -> tuple[str, bool]:
    """Return the table of random programs, and whether anything is worse than it must be."""
    programs = running.run(options, folder)
    unmet = table.unmet(programs)
    for text in unmet:
        print(f"not reached: {text}", file=sys.stderr)
    return table.markdown(programs), bool(unmet)


def main() -> int:
    """Judge and print; return the exit status."""
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="nncf-tools-truth-") as temporary:
        folder = (options.keep or pathlib.Path(temporary)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        found, is_wrong = (_judge_random if options.random else _judge_rows)(options, folder)
    text = f"nncf-tools {nncftools.__version__}; {machine.description()}\n\n{found}"
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    print(text)
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main())
