"""Run the program with a number and write its notes: ``python -m benchmarks.workloads.random_programs SEED FILE``.

Without FILE, print what it does.
"""

from __future__ import annotations

import os
import sys

from benchmarks.workloads.random_programs.actions import lines
from benchmarks.workloads.random_programs.performing import Performer, Process
from benchmarks.workloads.random_programs.plan import plan

if __name__ == "__main__":
    seed, *file = sys.argv[1:]
    if file:
        process = Process(*file)
        process.notes.began(0, os.getpid(), 0)
        Performer(process).perform(plan(int(seed)))
    else:
        print("\n".join(lines(plan(int(seed)))))
