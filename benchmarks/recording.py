"""Have a tool record a workload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks import launch, launcher
from benchmarks.tools import Recording, Tool, ToolError
from benchmarks.workloads import program

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Sequence

_BOUND_S = 60
"""All workloads end within a few seconds, under all tools."""


@dataclass(frozen=True)
class Order:
    """What is recorded, and how."""

    words: Sequence[str]
    interval_s: float
    metric: str = "rss"
    beside: Sequence[str] = ()
    """What runs during the recording, and is not recorded."""


def run(tool: Tool, order: Order, folder: pathlib.Path) -> launch.Cost:
    """Record into ``folder`` and return what tool and workload cost, a workload that was attached to left out.

    Raises ToolError.
    """
    recorded = [launcher.PID] if tool.attaches else order.words
    command = tool.record(recorded, order.interval_s, folder, order.metric)
    watched = order.words if tool.attaches else ()
    return launch.run_job(launch.Job(command, watched, order.beside), folder, _BOUND_S)


def record(tool: Tool, order: Order, folder: pathlib.Path) -> tuple[launch.Cost, Recording]:
    """Record into ``folder`` and read the result. Raises ToolError."""
    cost = run(tool, order, folder)
    try:
        recording = tool.read(folder, order.metric)
    except (OSError, ValueError, LookupError) as error:
        raise ToolError(f"left no usable result: {type(error).__name__}: {error}") from error
    if not recording.samples:
        raise ToolError("took no sample")
    return cost, recording


def first(tool: Tool, folder: pathlib.Path, _number: int) -> dict[str, float | None]:
    """Record a short run: the first one compiles and caches what later ones only load. Raises ToolError."""
    cost, _ = record(tool, Order(program("sleepers", 1, 0.5), 0.05), folder)
    return {"cpu_s": cost.cpu_s}
