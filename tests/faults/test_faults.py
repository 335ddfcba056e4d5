"""A sample of the table runs here; ``python -m tests.faults`` runs all of it."""

from __future__ import annotations

import os
import random
import re

import pytest

from tests.faults.case import RED, combinations, result_of
from tests.faults.commands import COMMANDS, MOMENTS
from tests.faults.faults import FAULTS

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make mounts, owners and control groups")
WERE_RED = (
    "forecast/middle/descriptors",
    "forecast/middle/folder swapped",
    "list/start/FIFO",
    "monitor/saving/folder swapped",
    "python/middle/descriptors",
    "report/middle/descriptors",
    "report/saving/term command line",
    "viz-compression/saving/hup command line",
    "watch/start/FIFO",
)
"""What the table found: each fails without its mend."""
HOW_MANY = {
    "forecast": 2,
    "prune": 4,
    "list": 2,
    "replay": 2,
    "pytest": 3,
    "python": 3,
    "monitor": 12,
    "profile": 4,
    "watch": 3,
    "report": 3,
    "compare": 2,
    "viz-compression": 1,
    "fit": 1,
    "sweep": 1,
}
"""The cheaper a command, the more of it."""
_LEFT_OUT = re.compile(
    "processes|threads"  # take long
    "|folder swapped|profile/middle/(folder gone|foreign|FIFO|device)"  # red: see docs/internals/promises.md
)


def sample() -> list[str]:
    """Return the names of what is tried: the same each time."""
    chosen = list(WERE_RED)
    for command, number in HOW_MANY.items():
        names = [name for name in combinations()[0] if name.startswith(f"{command}/") and not _LEFT_OUT.search(name)]
        chosen += random.Random(command).sample(names, min(number, len(names)))  # noqa: S311 — no secret
    return sorted(set(chosen))


@as_root
@pytest.mark.long
@pytest.mark.process
@pytest.mark.parametrize("name", sample())
def test_promises(name: str) -> None:
    """The five promises are kept, but for what a rule of the kernel excuses."""
    result = result_of(name, seed=1)

    assert result.colour != RED, (result.reasons, result.shown)


def test_combinations() -> None:
    """Each combination makes sense or is left out by a rule with a name; no command, moment or fault is forgotten."""
    names, omitted = combinations()
    elsewhere = [name for name, rule in omitted.items() if " need" in rule]
    parts = [set(part) for part in zip(*(name.split("/") for name in [*names, *elsewhere]), strict=True)]

    assert parts == [set(COMMANDS), set(MOMENTS), set(FAULTS)]
    assert len(names) + len(omitted) == len(COMMANDS) * len(MOMENTS) * len(FAULTS)
    assert all(omitted.values())
