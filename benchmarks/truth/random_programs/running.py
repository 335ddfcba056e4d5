"""Record and judge random programs, several at a time."""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.truth.random_programs.judging import judge
from benchmarks.truth.random_programs.recording import noted, program, recorder
from benchmarks.truth.random_programs.table import Judged, faults_of
from benchmarks.truth.random_programs.truth import truth_of
from benchmarks.truth.recording import RunError
from nncftools import Session
from nncftools.errors import NncfToolsError

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Sequence


def judged(seed: int, interval_ms: int, folder: pathlib.Path) -> Judged:
    """Record and judge the program with a number; keep session and notes in ``folder``."""
    stem = f"seed-{seed}-{interval_ms}ms"
    session, fifo = folder / f"{stem}.json", folder / f"{stem}.fifo"
    try:
        notes = noted([*recorder(seed, interval_ms, session), *program(seed, fifo)], fifo)
        (folder / f"{stem}.notes").write_text("\n".join(notes) + "\n", encoding="ascii")
        return Judged(seed, interval_ms, judge(Session.load(session), truth_of(notes)))
    except (RunError, NncfToolsError, OSError) as error:
        return Judged(seed, interval_ms, (), str(error))


def run(first: int, count: int, intervals_ms: Sequence[int], jobs: int, folder: pathlib.Path) -> list[Judged]:
    """Judge programs with consecutive numbers; each takes one of the intervals in turn."""
    seeds = range(first, first + count)
    found = []
    with ProcessPoolExecutor(jobs) as pool:  # each has a process of its own: it must see at once when others end
        intervals = [intervals_ms[seed % len(intervals_ms)] for seed in seeds]
        for one in pool.map(partial(judged, folder=folder), seeds, intervals):
            found.append(one)
            faults = len(faults_of(one))
            text = f"{len(found)} of {count}: seed {one.seed}, {one.interval_ms} ms: {faults or 'no'} faults"
            print(text, file=sys.stderr, flush=True)
    return found
