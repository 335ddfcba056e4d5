"""The runs of a search as a picture: time over limit."""

from __future__ import annotations

import pathlib

from nncftools import drawing
from nncftools.cli.fit.search import Fit, limit_text
from nncftools.units import MemoryUnit, seconds_text

_WORKED, _FAILED, _FREE = drawing.PALETTE[0], drawing.PALETTE[1], drawing.PALETTE[2]
_WIDE = 4
"""Limits that differ by more than this factor are drawn on a logarithmic axis."""


def draw(fit: Fit, unit: MemoryUnit, path: pathlib.Path) -> None:
    """Draw the runs, failed ones as crosses, with the floor and the peak of the free run. Raises OSError."""
    assert fit.free is not None
    canvas, axes = drawing.figure_of_command(fit.command)
    runs = sorted(fit.trials, key=lambda trial: trial.limit)
    for is_shown, style, color, label in ((True, "o-", _WORKED, "worked"), (False, "x", _FAILED, "failed or given up")):
        points = [(unit.of(trial.limit), trial.duration_s) for trial in runs if trial.worked is is_shown]
        if points:
            axes.plot(*zip(*points, strict=True), style, color=color, label=label)
    time_text = f"time without a limit, {seconds_text(fit.free.duration_s)}"
    axes.axhline(fit.free.duration_s, color=_FREE, label=time_text)
    for size, style, name in ((fit.free.floor, ":", "floor"), (fit.free.peak_rss, "--", "free peak")):
        label = f"{name}, {unit.brief(size)} {unit}"
        axes.axvline(unit.of(size), color=drawing.INK, linestyle=style, zorder=1.8, label=label)
    found = ("works", fit.works_from), ("full speed", fit.fast_from if fit.fast else None)
    for trial in runs:
        names = [name for name, limit in found if limit == trial.limit]
        if names:
            text = f"{', '.join(names)} from {limit_text(trial.limit, unit)}"
            drawing.annotate(axes, text, (unit.of(trial.limit), trial.duration_s), (6, 10), fontsize=9)
    if runs[-1].limit > runs[0].limit * _WIDE:
        axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:,.10g}")
    axes.margins(0.15)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("Time (s)")
    axes.set_xlabel(f"Memory limit ({unit})")
    drawing.legend_below(canvas, 5)
    drawing.save(canvas, path)
