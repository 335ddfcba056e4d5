"""What every renderer is told: which metrics, in which unit, how."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nncftools import metrics
from nncftools.text import printable
from nncftools.units import MemoryUnit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.session.session import Session


@dataclass(frozen=True)
class View:
    """The choices of someone who looks at a session."""

    metrics: Sequence[str]
    """Memory metrics, in the order to show them."""
    unit: MemoryUnit = MemoryUnit.MiB
    from_zero: bool = False
    """Show memory minus its first sample."""
    title: str = ""
    depth: int = 1
    """How many levels of operations to show."""


def label(column: str) -> str:
    """Return the name of a column as a reader sees it."""
    found = metrics.of(column)
    return printable(column if found is None else found.label)


def command_text(session: Session) -> str:
    """Return the command as one could type it, without anything that a terminal would act on."""
    return printable(shlex.join(session.command)) or printable(session.name) or "unknown command"
