"""Record and judge random programs, several at a time."""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.truth.random_programs.judging import judge
from benchmarks.truth.random_programs.recording import noted, program, recorder
from benchmarks.truth.random_programs.table import Judged, doubts_of, faults_of
from benchmarks.truth.random_programs.truth import truth_of
from benchmarks.truth.recording import RunError
from nncftools import Session
from nncftools.errors import NncfToolsError

if TYPE_CHECKING:
    import argparse
    import pathlib


def judged(seed: int, interval_ms: int, folder: pathlib.Path, *, again: bool = False) -> Judged:
    """Record and judge the program with a number; keep session and notes in ``folder``, or judge those ``again``."""
    session, notes, fifo = (folder / f"seed-{seed}-{interval_ms}ms.{ending}" for ending in ("json", "notes", "fifo"))
    try:
        if not again:
            lines = noted([*recorder(seed, interval_ms, session), *program(seed, fifo)], fifo)
            notes.write_text("\n".join(lines) + "\n", encoding="ascii")
        truth = truth_of(notes.read_text(encoding="ascii").splitlines())
        return Judged(seed, interval_ms, judge(Session.load(session), truth))
    except (RunError, NncfToolsError, OSError) as error:
        return Judged(seed, interval_ms, (), str(error))


def run(options: argparse.Namespace, folder: pathlib.Path) -> list[Judged]:
    """Judge programs with consecutive numbers; each takes one of the intervals in turn."""
    seeds = range(options.seed, options.seed + options.random)
    intervals_ms = [options.intervals[seed % len(options.intervals)] for seed in seeds]
    found = []
    with ProcessPoolExecutor(options.jobs) as pool:  # each has a process of its own: it sees at once when others end
        for one in pool.map(partial(judged, folder=folder, again=options.again), seeds, intervals_ms):
            found.append(one)
            count = len(faults_of(one)) or "no"
            print(
                f"{len(found)} of {len(seeds)}: seed {one.seed}, {one.interval_ms} ms: {count} faults", file=sys.stderr
            )
            for text in doubts_of(one):
                print(f"  {text}", file=sys.stderr)
    return found
