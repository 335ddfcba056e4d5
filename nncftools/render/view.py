"""What every renderer receives beside the session: which metrics to show, in which unit, and how."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nncftools import metrics
from nncftools.units import MemoryUnit, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.session.session import Session


@dataclass(frozen=True)
class View:
    """What the user wants to see of a session."""

    metrics: Sequence[str]
    """Memory metrics in the order of display."""
    unit: MemoryUnit = MemoryUnit.MiB
    from_zero: bool = False
    """Subtract the first sample from memory."""
    title: str = ""
    depth: int = 1
    """How many levels of nested operations to show."""

    @property
    def above(self) -> str:
        """What follows the name of a memory axis: nothing, or that it begins at the first sample."""
        return " above the first sample" if self.from_zero else ""


def label(column: str) -> str:
    """Return the display name of a column."""
    metric = metrics.of(column)
    return printable(column if metric is None else metric.label)


def command_text(session: Session) -> str:
    """Return the command as typed in a shell, without characters that a terminal would interpret."""
    return printable(shlex.join(session.command)) or printable(session.name) or "unknown command"
