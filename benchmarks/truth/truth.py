"""What a workload knows about the peak of its run."""

from __future__ import annotations

import msgspec


class Truth(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The peak of the sum of RSS over all processes."""

    peak: int
    """In bytes."""
    begin_ns: int
    """The first moment at which all of it was held, on CLOCK_MONOTONIC."""
    end_ns: int
    """The last such moment."""
    path: list[str] = []
    """The operations in which memory first reached the peak, the outermost first."""
    beside: list[str] = []
    """Parallel operations, each of which holds the peak as much as ``path`` does."""
    spans: list[str] = []
    """The operations that the report may name together: the peak spans both, or marks come from outside."""
    nearest: str = ""
    """If no operation holds the peak: the nearest one."""
    pid: int | None = None
    """The process that reached it; None when it took several."""
    spread: int = 0
    """The peak may be higher by this many bytes: other processes came and went."""
    pss: int | None = None
    """PSS of all processes at the peak, if the workload is about it."""
    growth: dict[str, int] = {}
    """By how much RSS of all processes grew in an operation, by name, if the workload is about it."""
