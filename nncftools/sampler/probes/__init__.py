"""Where figures come from: one file per source.

A *process probe* keeps one file of every process open (``file``) and sums its figures over the tree; a *system probe*
reads one file of the machine. Both name the ``metrics`` they give, in the order of the values of ``read``. A figure
that cannot be known is None.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    from nncftools.sampler.tree import Process

    class ProcessProbe(Protocol):
        """A source that is read once per process and summed."""

        metrics: tuple[str, ...]
        file: str

        def __init__(self, slot: int) -> None:
            """Read the descriptor at ``slot`` of each process's kept files."""

        def read(self, processes: Sequence[Process]) -> tuple[float | None, ...]:
            """Return one sum per metric; mark processes that are gone as not alive."""

        def retire(self, process: Process) -> None:
            """Keep the figures of a child of ours that has ended, while the kernel still has them."""

    class SystemProbe(Protocol):
        """A source that is read once per sample."""

        metrics: tuple[str, ...]

        def __init__(self, root: str) -> None:
            """Open the file under the proc directory ``root``."""

        def read(self) -> tuple[float | None, ...]:
            """Return one value per metric."""


PROCESS_PROBES = {
    "statm": "nncftools.sampler.probes.statm:Statm",
    "stat": "nncftools.sampler.probes.stat:Stat",
    "io": "nncftools.sampler.probes.io:Io",
}
SYSTEM_PROBES = {
    "meminfo": "nncftools.sampler.probes.meminfo:Meminfo",
}


def resolve(reference: str) -> type:
    """Return the class that ``package.module:Class`` names."""
    module, _, name = reference.partition(":")
    found: type = getattr(__import__(module, fromlist=[name]), name)
    return found
