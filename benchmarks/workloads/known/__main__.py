"""Run a workload and write the truth about it to FILE: ``python -m benchmarks.workloads.known NAME FILE``."""

from __future__ import annotations

import sys

from benchmarks.workloads.known import catalogue
from benchmarks.workloads.known.witness import Witness

if __name__ == "__main__":
    name, file = sys.argv[1:]
    catalogue.workload(name)(Witness(file))
