"""``--max-memory`` and ``--on-limit``: a limit on the command's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from nncftools.errors import UsageError
from nncftools.units import size_from

if TYPE_CHECKING:
    from nncftools.journal.lines import MemoryLimit

ACTIONS = ("warn", "kill")

MaxMemory = Annotated[
    str | None,
    typer.Option(
        "--max-memory", metavar="SIZE", help="Limit on the sum of RSS over all processes, such as 8GiB or 500MiB."
    ),
]
OnLimit = Annotated[
    str,
    typer.Option(
        "--on-limit",
        metavar="|".join(ACTIONS),
        help="If a sample exceeds it: warn once, or end all processes (SIGTERM, after 5 s SIGKILL).",
    ),
]


def limit(max_memory: str | None, action: str) -> MemoryLimit | None:
    """Return the limit that the two options set, or None. Raises UsageError."""
    if action not in ACTIONS:
        raise UsageError(f"option --on-limit: {action!r} is not one of {', '.join(ACTIONS)}")
    if max_memory is None:
        if action != ACTIONS[0]:
            raise UsageError("option --on-limit: only with --max-memory")
        return None
    try:
        size, _ = size_from(max_memory)
    except ValueError as error:
        raise UsageError(f"option --max-memory: {error}") from error
    return {"rss": size, "action": action}
