"""What runs are compared by: peaks, times, sizes and counters, by the names that gates use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nncftools import metrics

if TYPE_CHECKING:
    from collections.abc import Iterable

DURATION = "duration"
CPU_TIME = "cpu"
MODEL_SIZE = "model_size"
PEAK = "peak_"
"""Before the name of a memory metric."""


@dataclass(frozen=True)
class Figure:
    """What is compared: its name in a gate, its label, and its unit (``"B"``, ``"s"`` or ``""``)."""

    name: str
    label: str
    unit: str

    @property
    def is_peak(self) -> bool:
        """Whether it is the peak of a memory metric."""
        return self.name.startswith(PEAK)


_OF_EVERY_RUN = {
    DURATION: Figure(DURATION, "Duration", "s"),
    CPU_TIME: Figure(CPU_TIME, "CPU time", "s"),
    MODEL_SIZE: Figure(MODEL_SIZE, "Model size", "B"),
}


def figure_of(name: str) -> Figure | None:
    """Return the figure of this name; None when there is none."""
    if name in _OF_EVERY_RUN:
        return _OF_EVERY_RUN[name]
    metric = metrics.of(name.removeprefix(PEAK))
    if metric is None:
        return None
    if name.startswith(PEAK):
        return Figure(name, f"Peak {metric.label}", metric.unit) if metric.is_memory else None
    is_compared = metric.is_counter and metric.per_operation and metric.family != metrics.CPU_TIME
    return Figure(name, metric.short_label, metric.unit) if is_compared else None


def in_order(names: Iterable[str]) -> list[str]:
    """Return names of figures once each, in the order of display: peaks, duration, CPU time, counters."""
    known = dict.fromkeys(names)
    peaks = metrics.in_order(name.removeprefix(PEAK) for name in known if name.startswith(PEAK))
    counters = metrics.in_order(name for name in known if not name.startswith(PEAK) and name not in _OF_EVERY_RUN)
    return [*(PEAK + name for name in peaks), *(name for name in _OF_EVERY_RUN if name in known), *counters]


FIGURES = [
    name for name in in_order([*map(PEAK.__add__, metrics.MEMORY), *_OF_EVERY_RUN, *metrics.METRICS]) if figure_of(name)
]
"""The names of all figures except those of single devices."""


@dataclass(frozen=True)
class Value:
    """One figure of one run, in bytes or seconds."""

    low: float
    """The figure; for a peak, the lower end of its bracket."""
    high: float | None = None
    """The upper end of the bracket; None when there is none or it is unknown."""


Values = dict[str, Value]


def recorded(figures: Iterable[Values]) -> list[str]:
    """Return the names of figures that one of several runs has, in the order of display."""
    return in_order(name for of in figures for name in of)


def known_figure(name: str) -> Figure:
    """Return the figure of a name that there is."""
    found = figure_of(name)
    assert found is not None
    return found
