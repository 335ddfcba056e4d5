"""``nncf-tools fit``: run a command without a limit, then with memory limits in control groups; write the results.

Each run is recorded and gets the same input. A run that takes too long is ended.
"""

from __future__ import annotations

import contextlib
import math
import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from nncftools.analysis.session import Session
from nncftools.cli import destination, planning, screen, series
from nncftools.cli.fit_search import OUT_OF_MEMORY, WORKED, Fit, FitOptions, Free, Trial
from nncftools.cli.parameters import with_options
from nncftools.cli.series import Results, Runner, Shown, Watch, docker_mib, runner, shareable, whole_mib, with_limit
from nncftools.errors import NncfToolsError, UsageError
from nncftools.intake import Redaction
from nncftools.limits import needs
from nncftools.limits.needs import LimitedGroup, ParentGroup
from nncftools.render.table import Cell, Column, Row, Table, figure_cell, size_cell
from nncftools.units import MemoryUnit, printable, seconds_text

_NO_GROUP = (
    "memory cannot be limited here: {}. Run as root, or as a user of systemd (control groups of version 2). "
    "Or use --free-only: it measures a run without a limit"
)
GIVE_UP = 5
"""A run with a limit is ended after this multiple of the duration without a limit. The command probably hangs, or reads
the same files again and again.
"""
_SHORTEST_S = 2.0
"""A slow run is ended after this time in seconds at the earliest."""
_MANY_FILES = 32 << 20
"""If a command uses fewer bytes of files than this, the run without a limit is not repeated, because reading so few
bytes takes little time.
"""
_NEAR_FULL_SPEED = 1.5
"""The table has a run's duration as a multiple of the duration without a limit. A multiple below this number has two
decimals.
"""
_WIDE = 4
"""If the largest limit is more than this multiple of the smallest limit, the picture has a logarithmic axis of limits.
"""


class Done(NamedTuple):
    """The result of a run."""

    name: str
    """Name of the run's files without the ending."""
    ended: str
    session: Session | None
    watch: GroupWatch


class GroupWatch(Watch):
    """Watches a run in a control group.

    During a run without a limit, the watch lists the files that the processes map. At the end of a run, the watch reads
    the figures of the control group.
    """

    def __init__(self, runner: Runner, group: LimitedGroup | None, most_s: float) -> None:
        super().__init__(runner, most_s)
        self._group = group
        self._lists_files = most_s == math.inf
        self._own_files = needs.files_of([os.getpid()])
        """The files that this process maps. They stay in the page cache while this process runs, so they are not added
        to ``files``.
        """
        self.files: set[str] = set()
        self.lost_processes = False
        """Whether the kernel killed processes because memory ran out. The other processes may wait forever for the
        killed processes.
        """
        self.charged: int | None = None
        self.refaults: int | None = None

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        if self._group is not None:
            self.lost_processes = self._group.oom_kills() > 0
            self.charged = self._group.most_charged()
            self.refaults = self._group.refaults()

    def look(self) -> None:
        """Add the files that the processes of the group map to ``files``."""
        if self._group is not None and self._lists_files:
            self.files |= needs.files_of(needs.pids_of(self._group.folder)) - self._own_files


def make_search(request: FitOptions) -> Fit:
    """Return a new search, without runs."""
    success = request.success and Redaction().text(request.success)
    return Fit(command=shareable(request.words or ()), success=success)


def make_results(request: FitOptions) -> Results:
    """Return the folder for the results of a search. Raises UsageError."""
    return Results(request, "fit", "search", "run")


def resume_search(new: Fit, results: Results) -> Fit:
    """Return the saved search if --resume is given, or else ``new``. Raises UsageError."""
    fit = results.begun(new)
    if fit.success != new.success:
        raise UsageError(f"option --success: the earlier runs used {fit.success!r}")
    return fit


def search(request: FitOptions, parent: ParentGroup | None) -> int:
    """Run the command as often as needed; write and show the result. Return the exit status."""
    results = make_results(request)
    with results.locked():
        fit = resume_search(make_search(request), results)
        if parent is not None:
            for name in needs.remove_leftovers(parent):
                screen.message(f"removed the control group of a search that was killed: {name}")
        series.name_scripts(request)
        with runner() as series_runner:
            _Runs(request, results, parent, fit=fit, runner=series_runner).run_all()
        if fit.trials or not series_runner.is_interrupted():
            results.finish(fit, make_result(fit, request.unit))
        if series_runner.is_interrupted():
            return results.interrupted(series_runner)
        return int(not request.free_only and fit.works_from is None)


@dataclass(frozen=True)
class _Runs:
    request: FitOptions
    results: Results
    parent: ParentGroup | None
    fit: Fit
    runner: Runner

    def run_all(self) -> None:
        """Run the command until both limits are found, or until ``--runs`` is reached.

        Raises NncfToolsError, Interrupted.
        """
        fit = self.fit
        if fit.free is None:
            screen.line(f"Run 1: {printable(shlex.join(fit.command))}, without a limit")
            self._run_free()
        limit = None if self.parent is None else fit.next_limit()
        while limit is not None and fit.runs < self.request.runs:
            trial = self._try_limit(limit)
            fit.trials.append(trial)
            limit = fit.next_limit()
            self.results.write(fit)
            more = "the last run" if limit is None else f"at most {self.request.runs - fit.runs} more"
            screen.line(f"Run {fit.runs}: {describe_trial(trial, self.request.unit)} ({more})")

    def _run_free(self) -> None:
        """Run the command without a limit.

        If most of the files were in the page cache, drop the files and run the command again, because the files are
        also dropped before each run with a limit.
        """
        fit = self.fit
        files = set() if fit.free is None else set(fit.free.files)
        done = self._record(None, math.inf, sorted(files))
        session = done.session
        if session is None or done.ended != WORKED:
            log = f"the output is in {self.results.folder / done.name}.log"
            raise NncfToolsError(f"the command does not work without a limit: {done.ended}; {log}")
        needed = needs.needs(session)
        if needed is None or not session.finished:
            reason = f"the run took only {seconds_text(session.duration_s)}, too short to measure memory"
            raise NncfToolsError(f"cannot use the run without a limit: {next(iter(session.warnings), reason)}")
        of_files = needed.comfortable - needed.floor
        from_storage = session.totals.get("read_bytes") or 0
        can_be_warm = self.parent is not None and fit.free_runs == 0 and of_files > _MANY_FILES
        is_warm = can_be_warm and from_storage < of_files / 2
        files |= done.watch.files
        files |= {file.path for file in session.files_read}
        fit.free = Free(
            duration_s=session.duration_s,
            floor=needed.floor,
            comfortable=needed.comfortable,
            is_short=needed.is_short,
            peak_rss=session.peaks["rss"].low or 0,
            charged=done.watch.charged,
            session=f"{done.name}.json",
            files=sorted(files),
        )
        fit.free_runs += 1
        again = "; runs again, because the files of the command were in the page cache" if is_warm else ""
        screen.line(f"Run {fit.runs}: {describe_free(fit.unlimited, self.request.unit)}{again}")
        self.results.write(fit)
        if is_warm:
            self._run_free()

    def _try_limit(self, limit: int) -> Trial:
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
        """Drop files from the page cache, then run the command once. Raises NncfToolsError, Interrupted."""
        runner = self.runner
        number = self.fit.runs + 1
        path = self.results.folder / f"run-{number}"
        with contextlib.ExitStack() as stack:
            group = None if self.parent is None else stack.enter_context(LimitedGroup(self.parent, number))
            if group is not None and limit is not None:
                group.limit(limit)
            log = stack.enter_context(destination.open_log("--output", path.with_suffix(".log")))
            stack.enter_context(series.prepare_run(runner.starter, self.request, f"run {number}"))
            with runner.starter.interruptible():
                needs.drop(files)
            watch = GroupWatch(runner, group, most_s)
            entry = () if group is None else group.entry
            recorded = runner.record(path, self.request.recorded, log, watch, entry=entry)
            session = recorded.session
            if watch.gave_up and session is not None:  # the session blames the signal that we sent
                text = f"nncf-tools fit ended the command after {seconds_text(watch.seconds)}: it took too long"
                session.warnings.insert(0, text)
                with contextlib.suppress(OSError):
                    session.save(path.with_suffix(".json"))
            ended = self._describe_end(recorded.status, watch, log)
        return Done(path.name, ended, session, watch)

    def _describe_end(self, status: int, watch: GroupWatch, log: int) -> str:
        given_up = f"given up after {seconds_text(watch.seconds)}"
        if watch.lost_processes:
            return f"{OUT_OF_MEMORY}, {given_up}" if watch.gave_up else OUT_OF_MEMORY
        if watch.gave_up:
            return given_up
        if status:
            return f"exit status {status}"
        success = self.request.success
        if success is not None and series.run_script(self.runner.starter, success, log):
            return "not successful"
        return WORKED


def make_table(fit: Fit, unit: MemoryUnit) -> Table:
    """Return a table of all runs, the largest limit first; the limits of the result are bold."""
    columns = [Column(f"Limit, {unit}"), Column("Ended", is_text=True)]
    columns += map(Column, ("Time", "× free time", "Refaults", "Stall"))
    free_s = fit.unlimited.duration_s
    free = Trial(limit=0, worked=True, ended=WORKED, duration_s=free_s, slower=1.0)
    rows = [_make_row(Cell("none"), free)]
    for trial in sorted(fit.trials, key=lambda trial: -trial.limit):
        is_result = trial.worked and trial.limit in {fit.works_from, fit.fast_from}
        rows.append(_make_row(size_cell(trial.limit, unit, is_strong=is_result), trial))
    return Table(columns=columns, rows=rows)


def _make_row(limit: Cell, trial: Trial) -> Row:
    slower = f"{trial.slower:.2f}" if trial.slower < _NEAR_FULL_SPEED else f"{trial.slower:.1f}"
    cells = [
        limit,
        Cell(trial.ended),
        figure_cell(trial.duration_s, "s"),
        Cell(slower),
        figure_cell(trial.refaults, "B"),
        figure_cell(trial.stall_s, "s"),
    ]
    return Row(cells=cells)


def describe_free(free: Free, unit: MemoryUnit) -> str:
    """Return duration and memory of a run without a limit, in a line."""
    floor = f"without a limit, {WORKED}, {seconds_text(free.duration_s)}, floor {_size_text(free.floor, unit)}"
    least = "more than " if free.is_short else ""
    return f"{floor}, comfortable {least}{_size_text(free.comfortable, unit)}, peak {_size_text(free.peak_rss, unit)}"


def describe_trial(trial: Trial, unit: MemoryUnit) -> str:
    """Return the result of a run with a limit: ``5.3 GiB, worked, 41 s``."""
    return f"{_size_text(trial.limit, unit)}, {trial.ended}, {seconds_text(trial.duration_s)}"


def write_answer(fit: Fit, unit: MemoryUnit) -> str:
    """Return the first line of the result: the smallest limit that works, or why this limit is unknown."""
    if not fit.trials:
        floor = _size_text(fit.unlimited.floor, unit)
        return f"Needs at least {floor}, measured in one run without a limit (no limit was tried)"
    if fit.works_from is None:
        largest = max(trial.limit for trial in fit.trials)
        return f"Unknown: the command failed with all limits that were tried, up to {_size_text(largest, unit)}"
    at_most = "" if fit.is_smallest else "at most "
    docker = f"docker run --memory {docker_mib(fit.works_from)}m"
    return f"Smallest memory limit that works: {at_most}{_limit_text(fit.works_from, unit)} ({docker})"


def write_sentences(fit: Fit, unit: MemoryUnit) -> Iterator[str]:
    """Yield the sentences after the first line: the peak without a limit, and the smallest limit with full speed."""
    if not (fit.trials or fit.unlimited.is_short):
        yield f"With {_size_text(fit.unlimited.comfortable, unit)}, the command reads no file twice"
    yield f"The peak without a limit is {_size_text(fit.unlimited.peak_rss, unit)}"
    if fit.fast and fit.fast_from is not None:
        size = _limit_text(fit.fast_from, unit)
        yield f"With {size} or more, the command is as fast as without a limit, as {len(fit.fast)} runs showed"


def write_notes(fit: Fit) -> Iterator[str]:
    """Yield notes for the user: reasons to doubt the result, with advice."""
    if fit.trials and not fit.is_finished:
        yield "the search is not finished; continue with --resume and a larger --runs"
    ran_out = any(trial.gave_up or trial.ended.startswith(OUT_OF_MEMORY) for trial in fit.trials)
    if fit.trials and fit.works_from is None and not ran_out:
        yield "no run was out of memory: see run-*.log for the errors; --prepare can remove files of earlier runs"


def _size_text(size: float, unit: MemoryUnit) -> str:
    return f"{unit.brief(size)} {unit}"


def _limit_text(size: float, unit: MemoryUnit) -> str:
    """Return a limit, rounded up to whole MiB."""
    return _size_text(whole_mib(size) * MemoryUnit.MiB.factor, unit)


def make_result(fit: Fit, unit: MemoryUnit) -> Shown:
    """Return the result of a search, ready for output."""
    return Shown(
        command=fit.command,
        answer=write_answer(fit, unit),
        sentences=list(write_sentences(fit, unit)),
        notes=list(write_notes(fit)),
        table=make_table(fit, unit),
        to_copy=[] if fit.works_from is None else with_limit(fit.command, fit.works_from),
        draw=partial(draw, fit, unit) if fit.trials else None,
    )


def draw(fit: Fit, unit: MemoryUnit, path: Path) -> None:
    """Draw the duration of each run over the limit; failed runs are crosses. Raises OSError.

    Vertical lines show the floor (memory that the kernel can neither drop nor share) and the peak without a limit.
    """
    from nncftools import drawing

    worked, failed, free = drawing.PALETTE[:3]
    canvas, axes = drawing.figure_of_command(fit.command)
    trials = sorted(fit.trials, key=lambda trial: trial.limit)
    styles = {True: ("o-", worked, "worked"), False: ("x", failed, "failed or given up")}
    for has_worked, (style, color, label) in styles.items():
        drawn = [trial for trial in trials if trial.worked is has_worked]
        if drawn:
            limits = [unit.of(trial.limit) for trial in drawn]
            seconds = [trial.duration_s for trial in drawn]
            axes.plot(limits, seconds, style, color=color, label=label)
    free_s = fit.unlimited.duration_s
    axes.axhline(free_s, color=free, label=f"time without a limit, {seconds_text(free_s)}")
    draw_size = partial(axes.axvline, color=drawing.INK, zorder=1.8)
    floor = fit.unlimited.floor
    peak = fit.unlimited.peak_rss
    draw_size(unit.of(floor), linestyle=":", label=f"floor, {_size_text(floor, unit)}")
    draw_size(unit.of(peak), linestyle="--", label=f"free peak, {_size_text(peak, unit)}")
    results = {"works": fit.works_from, "full speed": fit.fast_from if fit.fast else None}
    for trial in trials:
        names = [name for name, limit in results.items() if limit == trial.limit]
        if names:
            text = f"{', '.join(names)} from {_limit_text(trial.limit, unit)}"
            point = unit.of(trial.limit), trial.duration_s
            drawing.annotate(axes, text, point, (6, 10), fontsize=9)
    if trials[-1].limit > trials[0].limit * _WIDE:
        axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:,.10g}")
    axes.margins(0.15)
    axes.set_ylim(0, axes.dataLim.ymax * 1.2)
    axes.set_ylabel("Time (s)")
    axes.set_xlabel(f"Memory limit ({unit})")
    drawing.legend_below(canvas, 5)
    drawing.save(canvas, path)


@with_options(FitOptions)
def fit(request: FitOptions) -> int:
    """Find the smallest memory limit with which a command works, and the smallest limit with full speed.

    \b
    Examples:
      nncf-tools fit python quantize.py
      nncf-tools fit --prepare 'rm -rf OUT' optimum-cli export openvino -m DIR OUT
      nncf-tools fit --success 'test -s OUT/openvino_model.bin' ./export.sh
      nncf-tools fit --output fits/export --resume ./export.sh
      nncf-tools fit --free-only ./export.sh

    The command runs once without a limit and then, usually 2 to 7 times, in a
    control group with a limit. A run worked if the exit status is 0 and the kernel
    killed none of the processes. Control groups need root, or a user's systemd.
    """
    planning.make_plan([], request.recorded)
    argv = planning.resolve_target(request.recorded)
    request.check_resume()
    if request.prepare and request.before:
        raise UsageError("option --before: the former name of --prepare; give only --prepare")
    prepare = request.prepare or request.before
    parent = None
    if not request.free_only:
        try:
            parent = needs.parent_group()
        except OSError as error:
            needs.start_in_scope()
            raise NncfToolsError(_NO_GROUP.format(error.strerror or error)) from error
    return search(replace(request, words=argv, prepare=prepare), parent)
