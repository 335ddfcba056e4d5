"""From options to the sampler's plan; shared by the commands that record."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from nncftools.cli import command, options
from nncftools.errors import NncfToolsError, UsageError, refuse_to_record
from nncftools.journal.writing import Plan
from nncftools.metrics import MEMORY, METRICS, is_memory, is_room, recorded_with

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Sequence

    from nncftools.journal.lines import MemoryLimit
    from nncftools.snapshots.client import Looking


def plan(  # noqa: PLR0913 — one parameter per option
    columns: Sequence[str],
    *,
    interval: float,
    pid: int | None = None,
    duration: float | None = None,
    children: bool = True,
    wait_all: bool = False,
    per_process: bool = False,
    max_samples: int = options.DEFAULT_MAX_SAMPLES,
    source: str = options.DEFAULT_SOURCE,
    limit: MemoryLimit | None = None,
    redact: Sequence[str] | None = (),
    pss_budget: str = options.DEFAULT_PSS_BUDGET,
) -> Plan:
    """Return the plan of a recording. Raises UsageError."""
    options.checked_seconds("--interval", interval, options.SHORTEST_INTERVAL_S)
    if duration is not None:
        options.checked_seconds("--duration", duration, 0)
    return Plan(
        columns if limit is None or "rss" in columns else ["rss", *columns],
        pid=pid,
        interval_s=interval,
        duration_s=duration,
        children=children,
        wait_all=wait_all,
        per_process=per_process,
        max_samples=max_samples,
        source=source,
        limit=limit,
        redact=redact,
        slow_share=options.share("--pss-budget", pss_budget),
    )


def watch_disks(plan: Plan, argv: Sequence[str], output: pathlib.Path) -> None:
    """Make a plan watch the file systems that a command probably writes to; ``output`` is the recording's."""
    from nncftools.limits.needs import file_systems

    if argv and plan.source == "proc":
        plan.file_systems = [list(pair) for pair in file_systems(argv, output)]
        plan.columns += filter(is_room, METRICS)


def looking(*, stacks: bool | None, default: bool, source: str) -> Looking | None:
    """Return how stacks and mappings are taken, None to take none.

    Raises UsageError if stacks are asked for and cannot be taken here.
    """
    if stacks is False or not (stacks or default):
        return None
    from nncftools.snapshots import client

    found = client.looking(with_hook=default) if source == "proc" else client.Looking(None, f"not with {source}")
    if stacks and found.py_spy is None:
        raise UsageError(f"option --stacks: {found.missing}")
    return found if source == "proc" and sys.platform == "linux" else None


def columns(types: list[str] | None, source: str, default: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the memory metrics to record, and the other metrics that are always recorded.

    Raises NncfToolsError if this machine cannot record them.
    """
    refuse_to_record()
    from nncftools.sampler import client

    options.check_source(source)
    client.check(source)
    offers = client.offers(source)
    for name in options.listed(types or ()):
        if is_memory(name) and (name not in offers or offers[name].missing):
            reason = offers[name].missing if name in offers else f"not from --source {source}"
            raise UsageError(f"option --type: {name!r} is not available here: {reason}")
    here = [name for name, offer in offers.items() if not offer.missing]
    memory = [name for name in MEMORY if name in here]
    shown = options.memory_types(types, memory, default)
    return shown, [name for name in recorded_with(shown) if name in here]


def target(words: list[str], pid: int | None, *, shell: bool) -> list[str]:
    """Return the argument list to execute; an empty one attaches to ``pid``. Raises NncfToolsError."""
    if pid is None:
        argv = command.arguments(words, shell=shell)
        if not argv:
            raise UsageError("argument COMMAND: missing; give a command to run, such as `python script.py`")
        command.check_executable(argv)
        return argv
    if words:
        raise UsageError("option --pid: either a command or --pid, not both")
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        raise NncfToolsError(f"option --pid: there is no process {pid}") from None
    except PermissionError:
        pass
    return []
