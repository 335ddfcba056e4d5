"""``--max-memory`` and ``--on-limit``: the most memory that a command may hold."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from nncftools.errors import UsageError
from nncftools.units import MemoryUnit

if TYPE_CHECKING:
    from nncftools.sampler.plan import MemoryLimit, Plan

ACTIONS = ("warn", "kill")
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)")
_UNITS = {unit.value.casefold(): unit for unit in MemoryUnit}

MaxMemory = Annotated[
    str | None,
    typer.Option("--max-memory", metavar="SIZE", help="The most RSS of all processes together, as 8GiB or 500MiB."),
]
OnLimit = Annotated[
    str,
    typer.Option(
        "--on-limit",
        metavar="|".join(ACTIONS),
        help="When a sample is above: warn once, or end all (SIGTERM, after 5 s SIGKILL).",
    ),
]


def limit(max_memory: str | None, action: str) -> MemoryLimit | None:
    """Return the limit of two options, None when there is none. Raises UsageError."""
    if action not in ACTIONS:
        raise UsageError(f"option --on-limit: {action!r} is not one of {', '.join(ACTIONS)}")
    if max_memory is None:
        if action != ACTIONS[0]:
            raise UsageError("option --on-limit: only with --max-memory")
        return None
    found = _SIZE.fullmatch(max_memory.strip())
    unit = None if found is None else _UNITS.get(found[2].casefold())
    size = 0 if found is None or unit is None else round(float(found[1]) * unit.factor)
    if size <= 0:
        expected = f"a size above 0 with its unit ({', '.join(MemoryUnit)}) expected, as 8GiB"
        raise UsageError(f"option --max-memory: {expected}, found {max_memory!r}")
    return {"rss": size, "action": action}


def with_limit(plan: Plan, of: MemoryLimit) -> Plan:
    """Return a plan with a limit, which needs RSS to be recorded."""
    columns = plan["columns"]
    return {**plan, "limit": of, "columns": columns if "rss" in columns else ["rss", *columns]}
