"""How the user wants to see a run, and what the keys change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rich.color import ColorSystem

from nncftools import metrics
from nncftools.backports import StrEnum
from nncftools.metrics import is_memory
from nncftools.units import MemoryUnit

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_TOGETHER = 4
_DEEPEST = 6
_LONGEST_FILTER = 80
_ESCAPE, _ENTER, _ERASE = "\x1b", ("\r", "\n"), ("\x7f", "\b")


class Order(StrEnum):
    """What processes are sorted by, in the order in which the key changes it."""

    MEMORY = "memory"
    CPU = "CPU"
    AGE = "age"
    NAME = "name"


_ORDERS = list(Order)
_SAME = {"p": " ", "=": "+", "_": "-", "f": "/"}


@dataclass(frozen=True)
class Look:
    """The choices of a viewer."""

    metrics: Sequence[str] = ()
    """The requested memory metrics; empty: those that were recorded."""
    unit: MemoryUnit = MemoryUnit.MiB
    unicode: bool = True
    colours: ColorSystem | None = ColorSystem.EIGHT_BIT
    """None: no colours."""
    choice: int = 0
    """Which of ``charts`` is shown."""
    zoom: int = 0
    """Shows the last 1 / 2 ** zoom of the run."""
    paused: bool = False
    listing: bool = False
    """Whether a list of processes replaces the chart."""
    keys: bool = False
    """Whether keys work and are listed."""
    order: Order = Order.MEMORY
    filter: str = ""
    """Only processes whose command or PID contains this are listed."""
    typing: bool = False
    """Whether keys are characters of the filter."""
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
    if look.typing:
        return _after_typing(look, key)
    changes = {
        " ": {"paused": not look.paused},
        "m": {"choice": look.choice + 1},
        "+": {"zoom": min(_DEEPEST, look.zoom + 1)},
        "-": {"zoom": max(0, look.zoom - 1)},
        "l": {"listing": not look.listing},
        "s": {"order": _ORDERS[(_ORDERS.index(look.order) + 1) % len(_ORDERS)]},
        "/": {"typing": True},
        _ESCAPE: {"filter": ""},
    }
    return replace(look, **changes.get(_SAME.get(key, key), {}))  # type: ignore[arg-type] # each value fits its name


def _after_typing(look: Look, key: str) -> Look:
    if key in _ENTER:
        return replace(look, typing=False)
    if key == _ESCAPE:
        return replace(look, typing=False, filter="")
    if key in _ERASE:
        return replace(look, filter=look.filter[:-1])
    return replace(look, filter=(look.filter + key)[:_LONGEST_FILTER]) if key.isprintable() else look
