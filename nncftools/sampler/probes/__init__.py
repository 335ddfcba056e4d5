"""The probes: classes that measure the values of a sample. ``nncftools.metrics`` names the probe of each metric.

There are four kinds of probes:

- A *process probe* reads the file ``/proc/PID/{file}`` of each process. The constructor gets the index of this file
  among the files that are kept open for each process. ``read(processes)`` returns sums over the process tree. When a
  child of the sampler has ended, ``retire(process)`` adds its last values to all later sums.
- A *system probe* reads values of the machine, or of the command's control group, from files that the probe keeps
  open. The constructor gets the proc directory and the command's PID. ``read()`` returns the values.
- A *slow probe* reads every process from time to time in a separate thread. The constructor gets the CPU time that the
  thread may use, as a part of the time of the recording: 0.01 for 1 % of a core. ``read(processes)`` returns new sums.
  If there are no new sums, all values are None.
- An *occasional probe* reads values that need not be in each sample. The constructor gets the proc directory, the
  command's PID and the plan (the settings of the recording). ``read(thorough=...)`` is called once a second.
  ``thorough`` is true soon after the end of a process, and at the end of the recording.

``read`` returns the values in the order of ``metrics``. A probe of several devices has ``columns``, such as
``npu_memory@npu0``, and returns a value for each column. An unknown value is None. ``source`` tells the user where the
values come from, such as ``/proc/PID/stat``. ``cost`` is the CPU time of a sample on a core of a 2-core machine, as
text. If a class has ``why_unavailable(root)``, this function returns the reason why the values are unknown on this
system, or an empty text.
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
    """Return the references ``module:Class`` of the probes that read ``columns``, in the order of the metrics."""
    metrics = map(of, in_order(columns))
    return list(dict.fromkeys(metric.probe for metric in metrics if metric is not None and metric.probe))


def load_probe(reference: str) -> Any:  # noqa: ANN401 — a class of any probe
    """Return the class that ``module:Class`` names."""
    module, _, name = reference.partition(":")
    return getattr(__import__(f"{__name__}.{module}", fromlist=[name]), name)


def explain_missing(reference: str, root: str) -> str:
    """Return the reason why the figures of a probe are unknown on this system. Empty if the figures are known."""
    explain = getattr(load_probe(reference), "why_unavailable", None)
    return explain(root) if explain is not None else ""
