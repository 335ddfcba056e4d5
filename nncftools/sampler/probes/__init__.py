"""The sources of the figures: a file per source; ``nncftools.metrics`` names the probe of each metric.

There are four kinds of probes:

- A *process probe*, made with the position of ``file`` among each process's kept files. ``read(processes)`` returns
  sums over the tree. ``retire(process)`` stores the last figures of an ended child, before the sampler reaps the child.
- A *system probe*, made with the proc directory and the command's PID. ``read()`` returns figures of the machine, or of
  the command's surroundings, from files that the probe keeps open.
- A *slow probe*, made with the share of the time that the probe may take, reads every process from time to time in a
  separate thread. ``read(processes)`` returns the new sums, or only None if there are no new sums.
- An *occasional probe*, made with the proc directory, the command's PID and the plan. ``read(thorough=...)`` returns
  figures that need not be in each sample. ``read`` is called once a second, thoroughly soon after the end of a process
  and at the end of the recording.

The values of ``read`` are in the order of ``metrics``. The devices probe has ``columns``, such as ``npu_memory@npu0``.
An unknown figure is None. ``source`` is the kernel file, as users know it. ``cost`` is the cost of a sample, measured
on a core of a 2-core machine. A class may have ``why_unavailable(root)``: the reason why the figures are unknown on
this system.
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


def list_references(columns: Iterable[str] = METRICS) -> list[str]:
    """Return the probes of columns, each once, in the order of the metrics."""
    metrics = map(of, in_order(columns))
    return list(dict.fromkeys(metric.probe for metric in metrics if metric is not None and metric.probe))


def load_probe(reference: str) -> Any:  # noqa: ANN401 — a class of any probe
    """Return the class that ``module:Class`` names."""
    module, _, name = reference.partition(":")
    return getattr(__import__(f"{__name__}.{module}", fromlist=[name]), name)


def explain_missing(reference: str, root: str) -> str:
    """Return why the figures of a probe are unknown on this system; empty when they are known."""
    explain = getattr(load_probe(reference), "why_unavailable", None)
    return explain(root) if explain is not None else ""
