"""The runs of a search as a picture: time over limit."""

from __future__ import annotations

import pathlib
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from nncftools import drawing
from nncftools.cli.fit.search import Fit, limit_text
from nncftools.units import MemoryUnit, seconds_text

_WORKED, _FAILED, _FREE = drawing.PALETTE[0], drawing.PALETTE[1], drawing.PALETTE[2]
_WIDE = 4
"""Sizes that differ by more than this factor are drawn on a logarithmic axis."""


def draw(fit: Fit, unit: MemoryUnit, path: pathlib.Path) -> None:
    """Draw the runs, failed ones as crosses, with the floor and the peak of the free run. Raises OSError."""
    assert fit.free is not None
    canvas, axes = drawing.figure_of_command(fit.command)
    worked = sorted((unit.of(trial.limit), trial.duration_s) for trial in fit.trials if trial.worked)
    failed = [(unit.of(trial.limit), trial.duration_s) for trial in fit.trials if not trial.worked]
    if worked:
        axes.plot(*zip(*worked, strict=True), marker="o", color=_WORKED, linewidth=1.2, label="worked")
    if failed:
        cross: dict[str, Any] = {"markersize": 8, "markeredgewidth": 2, "label": "failed or given up"}
        axes.plot(*zip(*failed, strict=True), "x", color=_FAILED, **cross)
    free_text = f"time without a limit, {seconds_text(fit.free.duration_s)}"
    axes.axhline(fit.free.duration_s, color=_FREE, linewidth=1, label=free_text)
    for size, style, name in ((fit.free.floor, ":", "floor"), (fit.free.peak_rss, "--", "free peak")):
        label = f"{name}, {unit.brief(size)} {unit}"
        axes.axvline(unit.of(size), color=drawing.INK, linewidth=1, linestyle=style, zorder=1.8, label=label)
    _scale(axes, [*(trial.limit for trial in fit.trials), fit.free.floor, fit.free.peak_rss], unit)
    for trial in fit.trials:
        limits = {"works": fit.works_from, "full speed": fit.fast_from if fit.fast else None}
        names = [name for name, limit in limits.items() if limit == trial.limit and trial.worked]
        if names:
            text = f"{', '.join(names)} from {limit_text(trial.limit, unit)}"
            at = unit.of(trial.limit), trial.duration_s
            drawing.annotate(axes, text, at, (6, 10), fontsize=9, bbox={"fc": "white", "ec": "none", "pad": 1})
    axes.set_ylim(0, max(fit.free.duration_s, *(trial.duration_s for trial in fit.trials)) * 1.18)
    axes.set_ylabel("Time (s)")
    axes.set_xlabel(f"Memory limit ({unit})")
    drawing.legend_below(canvas, 5)
    drawing.save(canvas, path)


def _scale(axes: Axes, sizes: list[int], unit: MemoryUnit) -> None:
    """Leave room on both sides; a wide range is logarithmic."""
    least, most = unit.of(min(sizes)), unit.of(max(sizes))
    if most > least * _WIDE:
        axes.set_xscale("log")
        axes.set_xlim(least / 1.15, most * 1.35)
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        room = max(most - least, most * 0.05) * 0.08
        axes.set_xlim(least - room, most + 2.5 * room)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
