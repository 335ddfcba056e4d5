"""A small program that takes memory, holds it and ends; its imports are few, so that it starts in 10 ms."""

from __future__ import annotations

import sys
import time

from benchmarks.workloads.random_programs.memory import MIB, Area
from benchmarks.workloads.random_programs.notes import Notes

CODE = f"from {__name__} import main; main()"
"""What the interpreter runs, in the folder that contains ``benchmarks``."""


def main() -> None:
    """Do what the command line says."""
    file, mebibytes, kind, before_ms, hold_ms, is_freed = sys.argv[1:]
    notes = Notes(file)
    notes.own()
    notes.flush()
    time.sleep(int(before_ms) / 1000)
    notes.own()
    area = Area(int(mebibytes) * MIB, kind, notes.own)
    notes.flush()
    time.sleep(int(hold_ms) / 1000)
    notes.own()
    if is_freed == "True":
        area.close()
        notes.own()
    notes.flush()
