"""A forecast as a picture: memory over layers, a line for each operation that matters."""

from __future__ import annotations

import pathlib

from nncftools import drawing
from nncftools.analysis import forecast as analysis
from nncftools.analysis.forecast import Line, Result
from nncftools.units import MemoryUnit, shortened

_NAME = 44
_MOST_LINES = 5
_NEAR = 1.5
"""A limit that is further above is not drawn: lines would be at the bottom."""


def draw(result: Result, unit: MemoryUnit, path: pathlib.Path) -> None:
    """Draw the lines of operations, runs as dots, and the forecast with its interval. Raises OSError."""
    known = result.forecast
    assert known is not None
    canvas, axes = drawing.figure_of_command(result.command)
    used = result.used[-analysis.LEAST_SLICES :]
    for number, one in enumerate(_that_matter(analysis.lines(used), [*(part.layers for part in used), result.layers])):
        colour, style = drawing.line_style(number)
        name = shortened(f"{one.operation}, {one.what}", _NAME)
        begin = one.layers[-2] if one.is_bent else 0
        ends = [unit.of(one.at(count)) for count in (begin, result.layers)]
        axes.plot([begin, result.layers], ends, style, color=colour, linewidth=1.2, label=name)
        axes.plot(one.layers, [unit.of(size) for size in one.sizes], ".", color=colour, markersize=5)
    axes.plot([part.layers for part in result.used], [unit.of(part.peak) for part in result.used], "o",
              color=drawing.INK, markersize=7, fillstyle="none", label="peak of a slice")  # fmt: skip
    low, value, high = (unit.of(size) for size in (known.peak.low, known.peak.value, known.peak.high))
    axes.errorbar([result.layers], [value], [[value - low], [high - value]], fmt="D", color=drawing.INK,
                  markersize=6, capsize=5, label="forecast")  # fmt: skip
    least = "at least " if known.peak.is_at_least else ""
    at, box = (result.layers, value), {"fc": "white", "ec": "none", "pad": 1}
    drawing.annotate(axes, f"{least}{unit.label(known.peak.value)}", at, (-10, 8), fontsize=9, ha="right", bbox=box)
    floor, said = unit.of(known.floor.value), f"floor, {unit.label(known.floor.value)}"
    axes.plot(result.layers, floor, "v", color=drawing.FAINT, markersize=7, label=said)
    top = max(high, *(unit.of(part.peak) for part in result.used)) * 1.15
    if result.limit is not None:
        is_near = unit.of(result.limit) < top * _NEAR
        where = "" if is_near else " (above the picture)"
        drawing.draw_limit(axes, unit.of(result.limit), f"limit, {unit.label(result.limit)}{where}")
        top = max(top, unit.of(result.limit) * 1.05) if is_near else top
    axes.set(xlim=(0, result.layers * 1.04), ylim=(0, top), xlabel="Layers", ylabel=f"RSS ({unit})")
    axes.set_xticks(sorted({*(part.layers for part in result.used), result.layers}))
    axes.yaxis.set_major_formatter("{x:,.10g}")
    drawing.legend_below(canvas, 3)
    drawing.save(canvas, path)


def _that_matter(lines: list[Line], layers: list[int]) -> list[Line]:
    """Return the lines that are the highest with some number of layers, the one with all layers first."""
    peaks = [one for one in lines if not one.is_off] or lines
    highest = [max(peaks, key=lambda one: (one.at(count), one.what == "peak")) for count in layers[::-1] if peaks]
    return list({one.operation: one for one in highest}.values())[:_MOST_LINES]
