"""CPU and I/O over time: a row of bars for each, or a small area."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nncftools import metrics
from nncftools.metrics import cpu_counters
from nncftools.render.terminal.canvas import Canvas, Levels
from nncftools.render.terminal.rows import text
from nncftools.units import fixed, shortened, text_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from numpy.typing import NDArray

    from nncftools.render.terminal.palette import Medium
    from nncftools.render.terminal.rows import Row

_BLOCKS, _PLAIN_BLOCKS = "▁▂▃▄▅▆▇█", ".:-=+*#@"
_NAME = 5
LABEL = 2
_OF_STORAGE = {"read_bytes": ("Read", "read"), "write_bytes": ("Write", "write")}


class Rate(NamedTuple):
    """What rises at a rate: the counters whose sum it shows, and the unit of that sum."""

    name: str
    counters: tuple[str, ...]
    unit: str
    """``cores``, ``B``, ``s`` or empty."""
    role: str

    def figure(self, value: float) -> str:
        """Return a rate as text with its unit, which is the name of busy cores: ``0.98``, ``1.2 MiB/s``."""
        if self.unit == "cores":
            return fixed(value, 2)
        if not value:
            return "0 /s" if not self.unit else f"0 {self.unit}/s"
        return f"{text_of(value, self.unit) if self.unit else _brief(value)}/s"


def rates_shown(columns: Collection[str]) -> Sequence[Rate]:
    """Return the rates to show of a run with these columns: busy cores, storage, and counters of no family."""
    found = [Rate("Cores", cpu_counters(columns), "cores", "cpu")]
    for column in metrics.of_operations(columns):
        metric = metrics.of(column)
        if metric is not None and metric.is_counter and metric.family != metrics.SYSTEM_CALLS:
            name, role = _OF_STORAGE.get(column, (metric.label, "rate"))
            found.append(Rate(shortened(name, _NAME), (column,), metric.unit, role))
    return [rate for rate in found if rate.counters and all(name in columns for name in rate.counters)]


def rate_rows(
    rate: Rate, rates: NDArray[np.float64], figure: float | None, medium: Medium, height: int = 1
) -> Iterator[Row]:
    """Yield ``height`` rows: bars, or an area if there are several; ``figure`` is the rate beside them, or nothing."""
    full = float(np.nanmax(rates, initial=0.0))
    if rate.unit == "cores":
        full = max(full, 1.0)
    style = medium.style(rate.role)
    drawn = [_bars(rates, full, unicode=medium.unicode)] if height == 1 else _area(rates, full, height, medium)
    for place, bars in enumerate(drawn):
        label = rate_label(rate, figure, medium) if place == height - 1 else [text(" " * (medium.gutter + 1))]
        yield [*label, text(bars, style)]


def rate_label(rate: Rate, figure: float | None, medium: Medium) -> Row:
    """Return the name of a rate and a figure, as ``LABEL`` parts of a row."""
    room = medium.gutter - _NAME
    value = f"{'' if figure is None else _fitted(rate.figure(figure), room):>{room}} "
    return [text(f"{rate.name:<{_NAME}}"), text(value, medium.style("axis"))]


def _bars(rates: NDArray[np.float64], full: float, *, unicode: bool) -> str:
    """Return rates as one row of bars; ``full`` is the highest rate. 0 and unknown are blank."""
    blocks = _BLOCKS if unicode else _PLAIN_BLOCKS
    if full <= 0:
        return " " * len(rates)
    levels = np.minimum(np.ceil(np.nan_to_num(rates) / full * len(blocks) - 1e-9), len(blocks)).astype(int)
    return "".join(" " if level <= 0 else blocks[level - 1] for level in levels.tolist())


def _area(rates: NDArray[np.float64], full: float, height: int, medium: Medium) -> list[str]:
    """Return rates as an area of ``height`` rows."""
    canvas = Canvas(len(rates), height, unicode=medium.unicode)
    parts = np.repeat(rates / (full or 1.0), canvas.dots // len(rates))
    canvas.area(Levels(parts, parts), "")
    canvas.curve(Levels(parts, parts), "", "" if medium.unicode else "*")
    return ["".join(part for part, _ in row) for row in canvas.rows()]


def _brief(number: float) -> str:
    """Return a count, in thousands or millions if it is large: ``98k``."""
    factor, letter = next((pair for pair in ((1e6, "M"), (1e3, "k")) if number >= pair[0]), (1, ""))
    return f"{number / factor:.0f}{letter}"


def _fitted(figure: str, room: int) -> str:
    """Return a rate, shortened if necessary: without decimals, then with one letter of its unit."""
    number, _, unit = figure.partition(" ")
    if len(figure) < room or not unit:
        return figure[:room]
    whole = f"{float(number.replace(',', '')):.0f}"
    shorter = (f"{whole} {unit}", f"{whole}{unit[:1]}/s", f"{whole}{unit[:1]}")
    return next((short for short in shorter if len(short) < room), whole)[:room]
