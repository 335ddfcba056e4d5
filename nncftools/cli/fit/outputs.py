"""The result of a search in words, as a table and as a picture: time over limit."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from functools import partial

from nncftools.cli import series
from nncftools.cli.fit.search import OUT_OF_MEMORY, WORKED, Fit, Free, Trial
from nncftools.cli.series import Shown
from nncftools.render.table import Cell, Column, Row, Table, figure_cell, size_cell
from nncftools.units import MemoryUnit, seconds_text


def runs(fit: Fit, unit: MemoryUnit) -> Table:
    """Return a row for each run, the largest limit first; the limits that were found are strong."""
    columns = [Column(f"Limit, {unit}"), Column("Ended", is_text=True)]
    columns += map(Column, ("Time", "× free time", "Refaults", "Stall"))
    assert fit.free is not None
    free = Trial(limit=0, worked=True, ended=WORKED, duration_s=fit.free.duration_s, slower=1.0)
    rows = [_row(Cell("none"), free)]
    for trial in sorted(fit.trials, key=lambda trial: -trial.limit):
        is_result = trial.worked and trial.limit in {fit.works_from, fit.fast_from}
        rows.append(_row(size_cell(trial.limit, unit, is_strong=is_result), trial))
    return Table(columns=columns, rows=rows)


def _row(limit: Cell, trial: Trial) -> Row:
    slower = f"{trial.slower:.2f}" if trial.slower < _NEAR_FULL_SPEED else f"{trial.slower:.1f}"
    figures = figure_cell(trial.refaults, "B"), figure_cell(trial.stall_s, "s")
    return Row(cells=[limit, Cell(trial.ended), figure_cell(trial.duration_s, "s"), Cell(slower), *figures])


_NEAR_FULL_SPEED = 1.5
"""A smaller multiple of the free time has two decimals."""
_WIDE = 4
"""Limits that differ by more than this factor are drawn on a logarithmic axis."""


def of_free(free: Free, unit: MemoryUnit) -> str:
    """Return what a run without a limit took."""
    floor = f"without a limit, {WORKED}, {seconds_text(free.duration_s)}, floor {_size(free.floor, unit)}"
    return f"{floor}, comfortable {_size(free.comfortable, unit)}, peak {_size(free.peak_rss, unit)}"


def of_trial(trial: Trial, unit: MemoryUnit) -> str:
    """Return a run in one line: ``5.3 GiB, worked, 41 s``."""
    return f"{_size(trial.limit, unit)}, {trial.ended}, {seconds_text(trial.duration_s)}"


def answer(fit: Fit, unit: MemoryUnit) -> str:
    """Return the first line of the result: the smallest limit that works, or why it is not known."""
    assert fit.free is not None
    if not fit.trials:
        return f"Needs at least {_size(fit.free.floor, unit)}, by one run without a limit (no limit was tried)"
    if fit.works_from is None:
        most = max(trial.limit for trial in fit.trials)
        return f"Unknown: the command failed with each limit that was tried, up to {_size(most, unit)}"
    at_most = "" if fit.is_smallest else "at most "
    docker = f"docker run --memory {series.docker_mib(fit.works_from)}m"
    return f"Smallest memory limit that works: {at_most}{limit_text(fit.works_from, unit)} ({docker})"


def sentences(fit: Fit, unit: MemoryUnit) -> Iterator[str]:
    """Yield what follows the answer: the peak without a limit, and how a limit changes the time."""
    assert fit.free is not None
    if not fit.trials:
        yield f"With {_size(fit.free.comfortable, unit)} it reads no file twice"
    yield f"Without a limit, its peak is {_size(fit.free.peak_rss, unit)}"
    if fit.fast and fit.fast_from is not None:
        size = limit_text(fit.fast_from, unit)
        yield f"From {size} on it is as fast as without a limit: {len(fit.fast)} runs were"


def notes(fit: Fit) -> Iterator[str]:
    """Yield what makes the result less sure, and what to do about it."""
    if fit.trials and not fit.is_finished:
        yield "the search is not finished; go on with --resume and a larger --runs"
    ran_out = any(trial.gave_up or trial.ended.startswith(OUT_OF_MEMORY) for trial in fit.trials)
    if fit.trials and fit.works_from is None and not ran_out:
        yield "no run was out of memory: run-*.log say why they failed; --before can remove files of earlier runs"


def _size(size: float, unit: MemoryUnit) -> str:
    return f"{unit.brief(size)} {unit}"


def limit_text(size: float, unit: MemoryUnit) -> str:
    """Return a limit as it is set: in whole MiB, rounded up."""
    return _size(series.whole_mib(size) * MemoryUnit.MiB.factor, unit)


def shown(fit: Fit, unit: MemoryUnit) -> Shown:
    """Return the result as it is shown."""
    return Shown(
        command=fit.command,
        answer=answer(fit, unit),
        sentences=list(sentences(fit, unit)),
        notes=list(notes(fit)),
        table=runs(fit, unit),
        to_copy=[] if fit.works_from is None else series.with_limit(fit.command, fit.works_from),
        draw=partial(draw, fit, unit) if fit.trials else None,
    )


def draw(fit: Fit, unit: MemoryUnit, path: pathlib.Path) -> None:
    """Draw the runs, failed ones as crosses, with the floor and the peak of the free run. Raises OSError."""
    from nncftools import drawing

    worked, failed, free = drawing.PALETTE[:3]
    assert fit.free is not None
    canvas, axes = drawing.figure_of_command(fit.command)
    runs = sorted(fit.trials, key=lambda trial: trial.limit)
    for is_shown, style, color, label in ((True, "o-", worked, "worked"), (False, "x", failed, "failed or given up")):
        points = [(unit.of(trial.limit), trial.duration_s) for trial in runs if trial.worked is is_shown]
        if points:
            axes.plot(*zip(*points, strict=True), style, color=color, label=label)
    time_text = f"time without a limit, {seconds_text(fit.free.duration_s)}"
    axes.axhline(fit.free.duration_s, color=free, label=time_text)
    for size, style, name in ((fit.free.floor, ":", "floor"), (fit.free.peak_rss, "--", "free peak")):
        label = f"{name}, {_size(size, unit)}"
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
