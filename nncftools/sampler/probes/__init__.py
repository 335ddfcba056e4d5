"""Where figures come from: one file per source; ``nncftools.metrics`` names the probe of each metric.

There are four kinds of probes:

- A *process probe*, made with the position of its ``file`` among each process's kept files. ``read(processes)`` returns
  sums over the tree. ``retire(process)`` keeps the figures of a child of ours that has ended, before it is reaped.
- A *system probe*, made with the proc directory and the command's PID. ``read()`` returns figures of the machine, or of
  the command's surroundings, from files that it keeps open.
- A *slow probe*, made with the share of the time that it may take, reads every process from time to time in a thread of
  its own.
  ``read(processes)`` returns the sums when there are new ones, otherwise None for each.
- An *occasional probe*, made with the proc directory, the command's PID and the plan. ``read(thorough=...)`` returns
  figures that need not be in each sample. It is called once a second, thoroughly soon after the end of a process and at
  the end of the recording.

The values of ``read`` are in the order of ``metrics``. A new probe of devices has ``columns``, one for each device:
``npu_memory@npu0``. An unknown figure is None. ``source`` is the kernel file, as users know it. ``cost`` is the cost of
one sample, measured on one core of a 2-core machine. ``why_unavailable(root)`` of a class returns why its
figures are unknown on this system.
"""

from __future__ import annotations

from nncftools.metrics import METRICS, in_order, of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

PROCESS = "process"
SYSTEM = "system"
SLOW = "slow"
OCCASIONAL = "occasional"


def references(columns: Iterable[str] = METRICS) -> list[str]:
    """Return the probes of columns, each once, in the order in which the metrics are declared."""
    metrics = [metric for column in in_order(columns) if (metric := of(column)) is not None]
    return list(dict.fromkeys(metric.probe for metric in metrics if metric.probe))


def resolved(reference: str) -> Any:  # noqa: ANN401 — a class of any probe
    """Return the class that ``module:Class`` names."""
    module, _, name = reference.partition(":")
    return getattr(__import__(f"{__name__}.{module}", fromlist=[name]), name)


def columns_of(probe: Any) -> tuple[str, ...]:  # noqa: ANN401 — a probe of any class
    """Return the columns of a probe: its metrics, or one for each device."""
    columns: tuple[str, ...] = getattr(probe, "columns", probe.metrics)
    return columns


def why_unavailable(reference: str, root: str) -> str:
    """Return why the figures of a probe are unknown on this system; empty when they are known."""
    asked = getattr(resolved(reference), "why_unavailable", None)
    return asked(root) if asked is not None else ""
