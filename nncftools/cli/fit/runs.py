"""The search of ``fit``: one run without a limit, then runs under limits in control groups of our own.

Each run is recorded with the same input, and ended when it takes too long.
"""

from __future__ import annotations

import contextlib
import math
import os
import pathlib
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from nncftools.analysis.session import Session
from nncftools.cli import destination, screen
from nncftools.cli.fit.search import OUT_OF_MEMORY, WORKED, Fit, FitOptions, Free, Trial
from nncftools.cli.series import Results, Runner, Shown, Watch, docker_mib, runner, shareable, whole_mib, with_limit
from nncftools.errors import NncfToolsError, UsageError
from nncftools.intake import Redaction
from nncftools.limits import needs
from nncftools.limits.needs import LimitedGroup, ParentGroup
from nncftools.render.table import Cell, Column, Row, Table, figure_cell, size_cell
from nncftools.units import MemoryUnit, printable, seconds_text

GIVE_UP = 5
"""A run that takes so many times the free time hangs, or reads the same files again and again: it is ended."""
_SHORTEST_S = 2.0
"""No run is given up earlier."""
_MANY_FILES = 32 << 20
"""Reading fewer bytes takes no time that matters."""
_NEAR_FULL_SPEED = 1.5
"""A smaller multiple of the free time has two decimals."""
_WIDE = 4
"""Limits that differ by more than this factor are drawn on a logarithmic axis."""


class Done(NamedTuple):
    """What is known of a run that ended."""

    name: str
    """Of its files, without the ending."""
    ended: str
    session: Session | None
    watch: GroupWatch


class GroupWatch(Watch):
    """Lists the files that a run without a limit maps, and at its end keeps the figures of its group."""

    def __init__(self, runner: Runner, group: LimitedGroup | None, most_s: float) -> None:
        super().__init__(runner, most_s)
        self._group = group
        self._lists_files = most_s == math.inf
        self._ours = needs.files_of([os.getpid()])
        """The files that this process maps, too: they cannot be dropped from the page cache."""
        self.files: set[str] = set()
        self.lost_processes = False
        """Whether the kernel killed processes because memory ran out; others may wait for them for ever."""
        self.charged: int | None = None
        self.refaults: int | None = None

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        if self._group is not None:
            self.lost_processes = self._group.oom_kills() > 0
            self.charged = self._group.most_charged()
            self.refaults = self._group.refaults()

    def look(self) -> None:
        """List the files that the processes of the group map."""
        if self._group is not None and self._lists_files:
            self.files |= needs.files_of(needs.pids_of(self._group.folder)) - self._ours


def new_search(request: FitOptions) -> Fit:
    """Return a search without runs."""
    success = request.success and Redaction().text(request.success)
    return Fit(command=shareable(request.words or ()), success=success)


def results_of(request: FitOptions) -> Results:
    """Return the folder of a search. Raises UsageError."""
    return Results(request, "fit", "search", "run")


def begun_search(wanted: Fit, results: Results) -> Fit:
    """Return the search to go on with, or ``wanted`` if there is none. Raises UsageError."""
    fit = results.begun(wanted)
    if fit.success != wanted.success:
        raise UsageError(f"option --success: the earlier runs were judged by {fit.success!r}")
    return fit


def search(request: FitOptions, parent: ParentGroup | None) -> int:
    """Run the command as often as needed; write and show the result. Return the exit status."""
    wanted, results = new_search(request), results_of(request)
    with results.locked():
        fit = begun_search(wanted, results)
        for left in () if parent is None else needs.remove_leftovers(parent):
            screen.message(f"removed the control group of a search that was killed: {left}")
        with runner() as runs:
            _Runs(request, results, parent, fit, runs).go()
        if fit.trials or not runs.is_interrupted():
            results.finish(fit, shown(fit, request.unit))
        if runs.is_interrupted():
            return results.interrupted(runs)
        return int(not request.free_only and fit.works_from is None)


@dataclass(frozen=True)
class _Runs:
    """The runs of a search."""

    request: FitOptions
    results: Results
    parent: ParentGroup | None
    fit: Fit
    runner: Runner

    def go(self) -> None:
        """Run until both limits are found, or no run is left. Raises NncfToolsError, Interrupted."""
        fit = self.fit
        if fit.free is None:
            screen.line(f"Run 1: {printable(shlex.join(fit.command))}, without a limit")
            self._run_free()
        limit = None if self.parent is None else fit.next_limit()
        while limit is not None and fit.runs < self.request.runs:
            trial = self._try(limit)
            fit.trials.append(trial)
            limit = fit.next_limit()
            self.results.write(fit)
            more = "the last run" if limit is None else f"at most {self.request.runs - fit.runs} more"
            screen.line(f"Run {fit.runs}: {of_trial(trial, self.request.unit)} ({more})")

    def _run_free(self) -> None:
        """Run without a limit; again, if the first run found its files in the page cache."""
        fit = self.fit
        known = [] if fit.free is None else fit.free.files
        done = self._record(None, math.inf, known)
        session = done.session
        if session is None or done.ended != WORKED:
            log = f"its output is in {self.results.folder / done.name}.log"
            raise NncfToolsError(f"the command does not work without a limit: {done.ended}; {log}")
        needed = needs.needs(session)
        if needed is None or not session.finished:
            too_short = f"it took {seconds_text(session.duration_s)}: too short to see what memory it needs"
            raise NncfToolsError(f"the run without a limit says nothing: {' '.join(session.warnings[:1]) or too_short}")
        of_files = needed.comfortable - needed.floor
        from_storage = session.totals.get("read_bytes") or 0
        can_be_warm = self.parent is not None and fit.free_runs == 0 and of_files > _MANY_FILES
        is_warm = can_be_warm and from_storage < of_files / 2
        fit.free = Free(
            duration_s=session.duration_s,
            floor=needed.floor,
            comfortable=needed.comfortable,
            peak_rss=session.peaks["rss"].low or 0,
            charged=done.watch.charged,
            session=f"{done.name}.json",
            files=sorted({*known, *done.watch.files, *(file.path for file in session.files_read)}),
        )
        fit.free_runs += 1
        again = "; again, because its files were in the page cache" if is_warm else ""
        screen.line(f"Run {fit.runs}: {of_free(fit.unlimited, self.request.unit)}{again}")
        self.results.write(fit)
        if is_warm:
            self._run_free()

    def _try(self, limit: int) -> Trial:
        free_s = self.fit.unlimited.duration_s
        done = self._record(limit, max(_SHORTEST_S, free_s * GIVE_UP), self.fit.unlimited.files)
        session = done.session
        duration_s = session.duration_s if session is not None and session.finished else done.watch.seconds
        return Trial(
            limit=limit,
            worked=done.ended == WORKED,
            ended=done.ended,
            gave_up=done.watch.gave_up and not done.watch.lost_processes,
            duration_s=duration_s,
            slower=duration_s / free_s,
            refaults=done.watch.refaults,
            stall_s=None if session is None else session.totals.get("memory_stall"),
            session=f"{done.name}.json",
        )

    def _record(self, limit: int | None, most_s: float, files: Sequence[str]) -> Done:
        """Drop files from the page cache, and run the command once. Raises NncfToolsError, Interrupted."""
        before, runner = self.request.before, self.runner
        number = self.fit.runs + 1
        path = self.results.folder / f"run-{number}"
        with contextlib.ExitStack() as stack:
            group = None if self.parent is None else stack.enter_context(LimitedGroup(self.parent, number))
            if group is not None and limit is not None:
                group.limit(limit)
            log = stack.enter_context(destination.opened("--output", path.with_suffix(".log")))
            failed = before is not None and runner.shell(before, log)
            with runner.starter.interruptible():
                needs.drop(files)
            if failed:
                raise NncfToolsError(f"option --before: {before!r} failed; its output is in {path}.log")
            watch = GroupWatch(runner, group, most_s)
            entry = () if group is None else group.entry
            status, session, _ = runner.record(path, self.request.recorded, log, watch, entry)
            if watch.gave_up and session is not None:  # the signal in its verdict came from us
                text = f"it was ended by nncf-tools fit after {seconds_text(watch.seconds)}, because it took too long"
                session.warnings.insert(0, text)
                with contextlib.suppress(OSError):
                    session.save(path.with_suffix(".json"))
            ended = self._ended(status, watch, log)
        return Done(path.name, ended, session, watch)

    def _ended(self, status: int, watch: GroupWatch, log: int) -> str:
        given_up = f"given up after {seconds_text(watch.seconds)}"
        if watch.lost_processes:
            return f"{OUT_OF_MEMORY}, {given_up}" if watch.gave_up else OUT_OF_MEMORY
        if watch.gave_up:
            return given_up
        if status:
            return f"exit status {status}"
        success = self.request.success
        return "not successful" if success is not None and self.runner.shell(success, log) else WORKED


def table(fit: Fit, unit: MemoryUnit) -> Table:
    """Return a row for each run, the largest limit first; the limits that were found are strong."""
    columns = [Column(f"Limit, {unit}"), Column("Ended", is_text=True)]
    columns += map(Column, ("Time", "× free time", "Refaults", "Stall"))
    free = Trial(limit=0, worked=True, ended=WORKED, duration_s=fit.unlimited.duration_s, slower=1.0)
    rows = [_row(Cell("none"), free)]
    for trial in sorted(fit.trials, key=lambda trial: -trial.limit):
        is_result = trial.worked and trial.limit in {fit.works_from, fit.fast_from}
        rows.append(_row(size_cell(trial.limit, unit, is_strong=is_result), trial))
    return Table(columns=columns, rows=rows)


def _row(limit: Cell, trial: Trial) -> Row:
    slower = f"{trial.slower:.2f}" if trial.slower < _NEAR_FULL_SPEED else f"{trial.slower:.1f}"
    figures = figure_cell(trial.refaults, "B"), figure_cell(trial.stall_s, "s")
    return Row(cells=[limit, Cell(trial.ended), figure_cell(trial.duration_s, "s"), Cell(slower), *figures])


def of_free(free: Free, unit: MemoryUnit) -> str:
    """Return what a run without a limit took."""
    floor = f"without a limit, {WORKED}, {seconds_text(free.duration_s)}, floor {_size(free.floor, unit)}"
    return f"{floor}, comfortable {_size(free.comfortable, unit)}, peak {_size(free.peak_rss, unit)}"


def of_trial(trial: Trial, unit: MemoryUnit) -> str:
    """Return a run in one line: ``5.3 GiB, worked, 41 s``."""
    return f"{_size(trial.limit, unit)}, {trial.ended}, {seconds_text(trial.duration_s)}"


def answer(fit: Fit, unit: MemoryUnit) -> str:
    """Return the first line of the result: the smallest limit that works, or why it is not known."""
    if not fit.trials:
        return f"Needs at least {_size(fit.unlimited.floor, unit)}, by one run without a limit (no limit was tried)"
    if fit.works_from is None:
        most = max(trial.limit for trial in fit.trials)
        return f"Unknown: the command failed with each limit that was tried, up to {_size(most, unit)}"
    at_most = "" if fit.is_smallest else "at most "
    docker = f"docker run --memory {docker_mib(fit.works_from)}m"
    return f"Smallest memory limit that works: {at_most}{limit_text(fit.works_from, unit)} ({docker})"


def sentences(fit: Fit, unit: MemoryUnit) -> Iterator[str]:
    """Yield what follows the answer: the peak without a limit, and how a limit changes the time."""
    if not fit.trials:
        yield f"With {_size(fit.unlimited.comfortable, unit)} it reads no file twice"
    yield f"Without a limit, its peak is {_size(fit.unlimited.peak_rss, unit)}"
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
    return _size(whole_mib(size) * MemoryUnit.MiB.factor, unit)


def shown(fit: Fit, unit: MemoryUnit) -> Shown:
    """Return the result as it is shown."""
    return Shown(
        command=fit.command,
        answer=answer(fit, unit),
        sentences=list(sentences(fit, unit)),
        notes=list(notes(fit)),
        table=table(fit, unit),
        to_copy=[] if fit.works_from is None else with_limit(fit.command, fit.works_from),
        draw=partial(draw, fit, unit) if fit.trials else None,
    )


def draw(fit: Fit, unit: MemoryUnit, path: pathlib.Path) -> None:
    """Draw the runs, failed ones as crosses, with the floor and the peak of the free run. Raises OSError."""
    from nncftools import drawing

    worked, failed, free = drawing.PALETTE[:3]
    canvas, axes = drawing.figure_of_command(fit.command)
    runs = sorted(fit.trials, key=lambda trial: trial.limit)
    for is_shown, style, color, label in ((True, "o-", worked, "worked"), (False, "x", failed, "failed or given up")):
        points = [(unit.of(trial.limit), trial.duration_s) for trial in runs if trial.worked is is_shown]
        if points:
            axes.plot(*zip(*points, strict=True), style, color=color, label=label)
    time_text = f"time without a limit, {seconds_text(fit.unlimited.duration_s)}"
    axes.axhline(fit.unlimited.duration_s, color=free, label=time_text)
    for size, style, name in ((fit.unlimited.floor, ":", "floor"), (fit.unlimited.peak_rss, "--", "free peak")):
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
