"""Where figures come from: one file per source.

A *process probe* keeps one file of every process open (``file``) and sums its figures over the tree; a *system probe*
reads one file of the machine. Both name the ``metrics`` they give, in the order of the values of ``read``. A figure
that cannot be known is None.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Protocol

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


_PROCESS_PROBES = (
    "nncftools.sampler.probes.statm:Statm",
    "nncftools.sampler.probes.stat:Stat",
    "nncftools.sampler.probes.io:Io",
)
_SYSTEM_PROBES = ("nncftools.sampler.probes.meminfo:Meminfo",)


def process_probes() -> list[type[ProcessProbe]]:
    """Return the sources that are read once per process."""
    return [_resolve(reference) for reference in _PROCESS_PROBES]


def system_probes() -> list[type[SystemProbe]]:
    """Return the sources that are read once per sample."""
    return [_resolve(reference) for reference in _SYSTEM_PROBES]


def _resolve(reference: str) -> Any:  # noqa: ANN401 — a class that the registry names
    module, _, name = reference.partition(":")
    return getattr(__import__(module, fromlist=[name]), name)
