"""The search of ``fit``: one run without a limit, then runs under limits in control groups of our own.

Each run is recorded with the same input, and ended when it takes too long.
"""

from __future__ import annotations

import contextlib
import math
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nncftools.cli import groups, screen
from nncftools.cli.fit import outputs
from nncftools.cli.fit.options import FitOptions
from nncftools.cli.fit.search import OUT_OF_MEMORY, WORKED, Fit, Free, Trial
from nncftools.cli.groups import LimitedGroup, ParentGroup
from nncftools.cli.series import OneRun, Results, Runner, Watch, runner, shareable
from nncftools.errors import NncfToolsError, UsageError
from nncftools.limits.needs import needs
from nncftools.redaction import Redaction
from nncftools.session.session import Session
from nncftools.units import printable, seconds_text

GIVE_UP = 5
"""A run that takes so many times the free time hangs, or reads the same files again and again: it is ended."""
_SHORTEST_S = 2.0
"""No run is given up earlier."""
_MANY_FILES = 32 << 20
"""Reading fewer bytes takes no time that matters."""


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
        self._ours = groups.files_of([os.getpid()])
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
            self.files |= groups.files_of(groups.pids_of(self._group.folder)) - self._ours


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
        for left in () if parent is None else groups.remove_leftovers(parent):
            screen.message(f"removed the control group of a search that was killed: {left}")
        with runner() as runs:
            is_done = _Runs(request, results, parent, fit, runs).go()
        if is_done or fit.trials:
            results.finish(fit, outputs.shown(fit, request.unit))
        if not is_done:
            results.say_how_to_go_on()
            return runs.exit_status
        return int(not request.free_only and fit.works_from is None)


@dataclass(frozen=True)
class _Runs:
    """The runs of a search."""

    request: FitOptions
    results: Results
    parent: ParentGroup | None
    fit: Fit
    runner: Runner

    def go(self) -> bool:
        """Run until both limits are found, or no run is left; return False if we were interrupted before."""
        fit = self.fit
        if fit.free is None:
            screen.line(f"Run 1: {printable(shlex.join(fit.command))}, without a limit")
            if not self._run_free():
                return False
        limit = None if self.parent is None else fit.next_limit()
        while limit is not None and fit.runs < self.request.runs:
            trial = self._try(limit)
            if trial is None:
                return False
            fit.trials.append(trial)
            limit = fit.next_limit()
            self.results.write(fit)
            more = "the last run" if limit is None else f"at most {self.request.runs - fit.runs} more"
            screen.line(f"Run {fit.runs}: {outputs.of_trial(trial, self.request.unit)} ({more})")
        return True

    def _run_free(self) -> bool:
        """Run without a limit; again, if the first run found its files in the page cache.

        Return False if we were interrupted.
        """
        fit = self.fit
        known = [] if fit.free is None else fit.free.files
        done = self._record(None, math.inf, known)
        if done is None:
            return False
        session = done.session
        if session is None or done.ended != WORKED:
            log = f"its output is in {self.results.folder / done.name}.log"
            raise NncfToolsError(f"the command does not work without a limit: {done.ended}; {log}")
        needed = needs(session)
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
        screen.line(f"Run {fit.runs}: {outputs.of_free(fit.free, self.request.unit)}{again}")
        self.results.write(fit)
        return self._run_free() if is_warm else True

    def _try(self, limit: int) -> Trial | None:
        assert self.fit.free is not None
        free_s = self.fit.free.duration_s
        done = self._record(limit, max(_SHORTEST_S, free_s * GIVE_UP), self.fit.free.files)
        if done is None:
            return None
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

    def _record(self, limit: int | None, most_s: float, files: Sequence[str]) -> Done | None:
        """Drop files from the page cache, and run the command once; return None if we were interrupted.

        Raises NncfToolsError.
        """
        before, folder = self.request.before, self.results.folder
        number = self.fit.runs + 1
        name = f"run-{number}"
        with contextlib.ExitStack() as stack:
            group = None if self.parent is None else stack.enter_context(LimitedGroup(self.parent, number))
            if group is not None and limit is not None:
                group.limit(limit)
            run = stack.enter_context(self.runner.prepared(folder, name, self.request.recorded))
            failed = before is not None and run.shell(before)
            with self.runner.interruptible():
                groups.drop(files)
            if self.runner.is_interrupted():
                return None
            if failed:
                raise NncfToolsError(f"option --before: {before!r} failed; its output is in {folder / name}.log")
            watch = GroupWatch(self.runner, group, most_s)
            recorded = run.record(watch, entry=() if group is None else group.entry)
            session = recorded.session
            if watch.gave_up and session is not None:  # the signal in its verdict came from us
                text = f"it was ended by nncf-tools fit after {seconds_text(watch.seconds)}, because it took too long"
                session.warnings.insert(0, text)
                with contextlib.suppress(OSError):
                    session.save(run.file)
            ended = self._ended(recorded.status, watch, run)
        return None if self.runner.is_interrupted() else Done(name, ended, session, watch)

    def _ended(self, status: int, watch: GroupWatch, run: OneRun) -> str:
        given_up = f"given up after {seconds_text(watch.seconds)}"
        if watch.lost_processes:
            return f"{OUT_OF_MEMORY}, {given_up}" if watch.gave_up else OUT_OF_MEMORY
        if watch.gave_up:
            return given_up
        if status:
            return f"exit status {status}"
        success = self.request.success
        return "not successful" if success is not None and run.shell(success) else WORKED
