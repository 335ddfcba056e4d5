"""Where figures come from: one file per source; ``nncftools.metrics`` says which metric comes from which.

A *process probe* keeps one file of every process open (``file``) and sums its figures over the tree; a *system probe*
reads one file of the machine, or of the command's surroundings; a *slow probe* reads every process now and then in a
thread of its own. All name the ``metrics`` they give, in the order of the values of ``read``. A probe of devices names
its ``columns`` when it starts, one for each device: ``npu_memory@npu0``. A figure that cannot be known is None.
"""

from __future__ import annotations

from nncftools.metrics import METRICS, in_order, of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, Protocol

    from nncftools.sampler.tree import Process

    Row = tuple[float | None, ...]

    class Probe(Protocol):
        """What all sources have in common."""

        kind: str
        metrics: tuple[str, ...]
        source: str
        """The kernel file, as a reader knows it."""
        cost: str
        """What one sample costs, measured on one core of a 2-core machine."""

    class ProcessProbe(Probe, Protocol):
        """A source that is read once per process and summed."""

        file: str

        def __init__(self, slot: int) -> None:
            """Read the descriptor at ``slot`` of each process's kept files."""

        def read(self, processes: Sequence[Process]) -> Row:
            """Return one sum per metric; mark processes that are gone as not alive."""

        def retire(self, process: Process) -> None:
            """Keep the figures of a child of ours that has ended, while the kernel still has them."""

    class SystemProbe(Probe, Protocol):
        """A source that is read once per sample."""

        def __init__(self, root: str, pid: int) -> None:
            """Open the file under the proc directory ``root``, for the command ``pid``."""

        def read(self) -> Row:
            """Return one value per metric."""

    class SlowProbe(Probe, Protocol):
        """A source that takes so long that it must not hold up the others."""

        def __init__(self) -> None:
            """Begin with the next read."""

        def read(self, processes: Sequence[Process]) -> Row:
            """Return one sum per metric when one is ready, None for each otherwise."""


PROCESS = "process"
SYSTEM = "system"
SLOW = "slow"


def references(columns: Iterable[str] = METRICS) -> list[str]:
    """Return the probes that columns come from, each once, in the order of the metrics' declarations."""
    metrics = [metric for column in in_order(columns) if (metric := of(column)) is not None]
    return list(dict.fromkeys(metric.probe for metric in metrics if metric.probe))


def resolved(reference: str) -> Any:  # noqa: ANN401 — a class of any probe
    """Return the class that ``module:Class`` names."""
    return getattr(_module(reference), reference.partition(":")[2])


def columns_of(probe: Probe) -> tuple[str, ...]:
    """Return the columns that a started probe gives: its metrics, or one for each device."""
    columns: tuple[str, ...] = getattr(probe, "columns", probe.metrics)
    return columns


def why_not(reference: str, root: str) -> str:
    """Return why a probe cannot give its figures on this system, or nothing."""
    asked = getattr(_module(reference), "why_not", None)
    return asked(root) if asked is not None else ""


def _module(reference: str) -> Any:  # noqa: ANN401 — a module
    name = reference.partition(":")[0]
    return __import__(f"{__name__}.{name}", fromlist=[name])
