"""How the user wants to see a run, and what the keys change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from nncftools import metrics
from nncftools.metrics import is_memory
from nncftools.units import MemoryUnit

if TYPE_CHECKING:
    from collections.abc import Sequence

KEYS = "q quit   space pause   m metric   + - zoom   l processes"
_MOST_TOGETHER = 4
_DEEPEST = 6


@dataclass(frozen=True)
class Look:
    """The choices of a viewer."""

    metrics: Sequence[str] = ()
    """The requested memory metrics; empty: those that were recorded."""
    unit: MemoryUnit = MemoryUnit.MiB
    unicode: bool = True
    colour: bool = True
    choice: int = 0
    """Which of ``charts`` is shown."""
    zoom: int = 0
    """Shows the last 1 / 2 ** zoom of the run."""
    paused: bool = False
    listing: bool = False
    """Whether a list of processes replaces the chart."""
    keys: bool = False
    """Whether keys work and are listed."""
    state: str = ""
    """What the title calls this: ``recording``, ``replay x10``."""

    def charts(self, columns: Sequence[str]) -> list[list[str]]:
        """Return what can be charted: the metrics of the run on one axis, then each metric by itself."""
        here = [name for name in columns if is_memory(name)]
        asked = metrics.columns_of(self.metrics, here) or here
        together = [name for name in asked if _fits_the_run(name)][:_MOST_TOGETHER]
        alone = [[name] for name in (*asked, *(name for name in here if name not in asked))]
        return [together, *alone] if len(together) > 1 else alone

    def chart(self, columns: Sequence[str]) -> list[str]:
        """Return the metrics in the chart."""
        charts = self.charts(columns)
        return charts[self.choice % len(charts)] if charts else []


def _fits_the_run(column: str) -> bool:
    """Return whether a metric is memory of the run: that of the machine and address space have another scale."""
    metric = metrics.of(column)
    return metric is not None and metric.scope == metrics.TREE and not metric.is_virtual


def after(look: Look, key: str) -> Look:
    """Return the look after a key was pressed; unknown keys change nothing."""
    match key:
        case " " | "p":
            return replace(look, paused=not look.paused)
        case "m":
            return replace(look, choice=look.choice + 1)
        case "+" | "=":
            return replace(look, zoom=min(_DEEPEST, look.zoom + 1))
        case "-" | "_":
            return replace(look, zoom=max(0, look.zoom - 1))
        case "l":
            return replace(look, listing=not look.listing)
    return look
