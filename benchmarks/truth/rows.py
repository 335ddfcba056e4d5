"""The rows of the table: which workload is recorded, and how."""

from __future__ import annotations

from typing import NamedTuple

_PSS = ("-t", "rss", "-t", "pss")


class Row(NamedTuple):
    """One row of the table."""

    workload: str
    command: str
    """``monitor`` or ``profile``."""
    interval_ms: int
    options: tuple[str, ...] = ()
    is_attached: bool = False
    """Whether the workload starts first, and the recording is attached to it with ``--pid`` after it wrote a line."""
    name: str = ""
    """If several rows have this workload."""


def key(row: Row) -> str:
    """Return the name of a row."""
    return row.name or row.workload


def _plateau(interval_ms: int) -> Row:
    return Row("spike_then_plateau", "profile", interval_ms, name=f"spike_then_plateau_{interval_ms}ms")


ROWS = (
    Row("spike", "monitor", 100),
    Row("holds_the_gil", "monitor", 100),
    Row("threads", "profile", 50),
    Row("orphan", "monitor", 100),
    Row("copies", "monitor", 100, _PSS),
    Row("storm", "monitor", 10),
    Row("many_sleepers", "monitor", 100),
    Row("before_exec", "monitor", 100),
    Row("after_exec", "monitor", 100),
    Row("one_after_another", "monitor", 500),
    Row("attached", "monitor", 100, is_attached=True),
    Row("attached_late", "monitor", 100, is_attached=True),
    *map(_plateau, (50, 100, 500)),
    Row("child", "profile", 50),
    Row("across_boundary", "profile", 50),
    Row("parallel", "profile", 50),
    Row("fresh_forks", "profile", 50),
    Row("forked_pool", "profile", 50, _PSS),
    Row("data_loader", "profile", 50, _PSS),
    Row("mapped_weights", "monitor", 100),
    Row("freed_before_mark", "profile", 100),
    Row("small_operations", "profile", 50),
    Row("nested", "profile", 50),
    Row("failed_operation", "profile", 50),
    Row("last_mark", "profile", 50),
    Row("after_last_operation", "profile", 50),
    Row("just_after_last_operation", "profile", 50),
    Row("lines_of_output", "profile", 50, ("--mark-on", r"Phase \w+")),
)
"""Each workload is a function of this name in ``benchmarks/workloads/known``."""
