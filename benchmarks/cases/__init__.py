"""The measurements: a file for those that belong together, and a line here for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.cases import cpu, memory, peaks, punctuality, report, startup, storm

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.bench import Bench
    from benchmarks.table import Row

CASES: dict[str, Callable[[Bench], list[Row]]] = {
    "cpu": cpu.alone,
    "crowd": cpu.in_a_crowd,
    "punctuality": punctuality.measure,
    "memory": memory.measure,
    "startup": startup.measure,
    "spike": peaks.spike,
    "orphan": peaks.orphan,
    "shared": peaks.shared,
    "storm": storm.measure,
    "report": report.measure,
}

README: dict[str, Callable[[Bench], list[Row]]] = {
    "cpu": cpu.alone,
    "crowd": cpu.in_a_crowd,
    "punctuality": lambda bench: [punctuality.many(bench)],
    "spike": peaks.spike,
    "orphan": peaks.orphan,
}
"""Those that README shows."""
