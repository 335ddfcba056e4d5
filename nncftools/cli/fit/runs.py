"""The search of ``fit``: one run without a limit, then runs under limits in control groups of our own.

Each run is recorded with the same input, and ended when it takes too long.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shlex
import signal
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec.structs

from nncftools.cli import recording, screen
from nncftools.cli.fit import groups, outputs
from nncftools.cli.fit.groups import LimitedGroup, ParentGroup, Watcher
from nncftools.cli.fit.options import FitOptions
from nncftools.cli.fit.search import OUT_OF_MEMORY, WORKED, Fit, Free, Search, Trial
from nncftools.cli.recording import RepeatedInput
from nncftools.errors import NncfToolsError
from nncftools.limits.needs import needs
from nncftools.sampler.client import Interrupted, Starter
from nncftools.session.session import Session
from nncftools.units import about_text, printable, seconds_text

_POLL_S = 0.1
_GRACE_S = 2.0
_SHORTEST_S = 2.0
"""No run is given up earlier."""
_MANY_FILES = 32 << 20
"""Reading fewer bytes takes no time that matters."""
_MUCH = 0.02
"""The share of the comfortable amount that may be in the page cache before a run; with more, its limit is too low."""
_USUAL_RUNS, _SLOWER_AS_A_RULE = 7, 1.5


@dataclass(frozen=True)
class Done:
    """What is known of a run that ended."""

    name: str
    session: Session | None
    watch: Watch
    ended: str
    cached: int
    """Bytes of its files that were in the page cache before."""


class Watch(Watcher):
    """Lists the files that a run maps, and ends a run that takes too long.

    When this program is asked to end, it kills the processes that ignore the signal.
    """

    def __init__(self, group: LimitedGroup | None, most_s: float | None, starter: Starter) -> None:
        super().__init__(starter)
        self._group = group
        self._most_s = most_s
        self._ours = groups.files_of([os.getpid()])
        """The files that this process maps, too: they cannot be dropped from the page cache."""
        self._begun_s = time.monotonic()
        self.files: set[str] = set()
        self.gave_up = False
        self.lost_processes = False
        """Whether the kernel killed processes because memory ran out; others may wait for them for ever."""
        self.seconds = 0.0

    def __exit__(self, *_: object) -> None:
        self.seconds = time.monotonic() - self._begun_s
        super().__exit__()
        self.lost_processes = self._group is not None and self._group.oom_kills() > 0

    def _watch(self) -> None:
        group = self._group
        while group is not None and not self._over.wait(_POLL_S):
            too_long = self._most_s is not None and time.monotonic() > self._begun_s + self._most_s
            if not groups.is_interrupted(self.starter) and too_long:
                self.gave_up = True
                groups.send(signal.SIGTERM, group.folder)
            if groups.is_interrupted(self.starter) or too_long:
                if not self._over.wait(_GRACE_S):
                    groups.send(signal.SIGKILL, group.folder)
            elif self._most_s is None:
                self.files |= groups.files_of(groups.pids_of(group.folder)) - self._ours


def search(request: FitOptions, wanted: Fit, parent: ParentGroup | None) -> int:
    """Run the command as often as needed; write and show the result. Return the exit status."""
    with outputs.folder_of_runs(request) as folder:
        fit = outputs.begun_search(wanted, folder) if request.resume else wanted
        for left in () if parent is None else groups.remove_leftovers(parent):
            screen.message(f"removed the control group of a search that was killed: {left}")
        with groups.endable() as starter:
            is_done = _Runs(request, folder, parent, fit, starter).go()
        if is_done or fit.trials:
            outputs.finish(request, fit, outputs.shown(fit, request.unit), folder)
        if not is_done:
            return outputs.interrupted(folder, starter)
        return int(not request.free_only and fit.works_from is None)


class _Runs:
    """The runs of a search."""

    def __init__(
        self, request: FitOptions, folder: pathlib.Path, parent: ParentGroup | None, fit: Fit, starter: Starter
    ) -> None:
        self._request = request
        self._folder = folder
        self._parent = parent
        self._fit = fit
        self._starter = starter
        self._input = RepeatedInput()

    def go(self) -> bool:
        """Run until both limits are found, or no run is left; return False if we were interrupted before."""
        fit, request = self._fit, self._request
        if fit.free is None:
            screen.line(f"Run 1: {printable(shlex.join(fit.command))}, without a limit")
            if not self._run_free():
                return False
        assert fit.free is not None
        if request.free_only or self._parent is None:
            return True
        free = fit.free
        sizes = free.floor, free.comfortable, free.peak_rss
        plan = Search(*sizes, free.duration_s, fit.tolerance, fit.slower, free.charged)
        limit = plan.next_limit(fit.trials)
        fit.is_finished = limit is None
        if limit is not None and fit.runs < request.runs:
            screen.line(f"Usually 2 to {_USUAL_RUNS} runs under a limit; {self._left(free)}")
        while limit is not None and fit.runs < request.runs:
            trial = self._try(limit, free)
            if trial is None:
                return False
            fit.trials.append(trial)
            self._keep(plan)
            limit = plan.next_limit(fit.trials)
            left = self._left(free) if limit is not None and fit.runs < request.runs else "the last run"
            screen.line(f"Run {fit.runs}: {outputs.of_trial(trial, request.unit)} ({left})")
        fit.is_finished = limit is None
        self._keep(plan)
        return True

    def _keep(self, plan: Search) -> None:
        fit = self._fit
        fit.works_from, fit.fast_from = plan.works_from(fit.trials), plan.fast_from(fit.trials)
        outputs.write_state(fit, self._folder)

    def _left(self, free: Free) -> str:
        """Return how many runs may follow, and how long they take if each takes as long as those before."""
        most, trials = max(0, self._request.runs - self._fit.runs), self._fit.trials
        each_s = statistics.mean([t.duration_s for t in trials] or [free.duration_s * _SLOWER_AS_A_RULE])
        runs = min(most, max(1, _USUAL_RUNS - len(trials)))
        return f"at most {most} more, about {about_text(each_s * runs)}"

    def _run_free(self) -> bool:
        """Run without a limit; again, if the first run found its files in the page cache."""
        fit = self._fit
        is_warm = True
        while is_warm:
            known = [] if fit.free is None else fit.free.files
            figures = self._free(known)
            if figures is None:
                return False
            free, is_warm = figures
            fit.free = msgspec.structs.replace(free, files=sorted({*known, *free.files}))
            fit.free_runs += 1
            again = "; again, because its files were in the page cache" if is_warm else ""
            screen.line(f"Run {fit.runs}: {outputs.of_free(free, self._request.unit)}{again}")
        outputs.write_state(fit, self._folder)
        return True

    def _free(self, files: Sequence[str]) -> tuple[Free, bool] | None:
        """Run once without a limit; return the figures, and whether most of its files came from the page cache."""
        parent = self._parent
        with contextlib.nullcontext() if parent is None else LimitedGroup(parent, self._fit.runs + 1) as group:
            done = self._recorded(group, None, files)
            charged = None if group is None else group.most_charged()
        if done is None:
            return None
        session = done.session
        needed = None if session is None else needs(session)
        if session is None or done.ended != WORKED:
            log = self._folder / f"{done.name}.log"
            raise NncfToolsError(f"the command does not work without a limit: {done.ended}; its output is in {log}")
        if needed is None and session.finished:
            took = seconds_text(session.duration_s)
            raise NncfToolsError(f"the run without a limit took {took}: too short to see what memory it needs")
        if needed is None or not session.finished:
            raise NncfToolsError(
                f"the recording of the run without a limit ended early: {' '.join(session.warnings[:1])}"
            )
        peak = session.peaks.get("rss")
        of_files = needed.comfortable - needed.floor
        stored = session.totals.get("read_bytes")
        is_worth_it = self._parent is not None and of_files > max(_MANY_FILES, needed.comfortable * _MUCH)
        is_warm = is_worth_it and self._fit.free_runs == 0 and (stored is None or stored < of_files / 2)
        free = Free(
            duration_s=session.duration_s,
            floor=needed.floor,
            comfortable=needed.comfortable,
            peak_rss=0 if peak is None else peak.low or 0,
            session=f"{done.name}.json",
            charged=charged,
            files=sorted({file.path for file in session.files_read} | done.watch.files),
        )
        return free, is_warm

    def _try(self, limit: int, free: Free) -> Trial | None:
        assert self._parent is not None
        with LimitedGroup(self._parent, self._fit.runs + 1) as group:
            try:
                group.limit(limit, self._fit.swap)
            except OSError as error:
                reason = error.strerror or error
                raise NncfToolsError(f"the control group {str(group.folder)!r} takes no limit: {reason}") from error
            done = self._recorded(group, max(_SHORTEST_S, free.duration_s * self._fit.give_up), free.files)
            refaults = group.refaults()
        if done is None:
            return None
        session = done.session
        duration_s = session.duration_s if session is not None and session.finished else done.watch.seconds
        peak = None if session is None else session.peaks.get("rss")
        return Trial(
            limit=limit,
            worked=done.ended == WORKED,
            ended=done.ended,
            gave_up=done.watch.gave_up and not done.watch.lost_processes,
            duration_s=duration_s,
            slower=duration_s / free.duration_s if free.duration_s else 0.0,
            refaults=refaults,
            stall_s=None if session is None else session.totals.get("memory_stall"),
            peak_rss=None if peak is None else peak.low,
            session=f"{done.name}.json",
            is_warm=done.cached > free.comfortable * _MUCH,
        )

    def _recorded(self, group: LimitedGroup | None, most_s: float | None, files: Sequence[str]) -> Done | None:
        """Drop files from the page cache, and run the command once; return None if we were interrupted.

        Raises NncfToolsError.
        """
        request, name = self._request, f"run-{self._fit.runs + 1}"
        with recording.one_of_several(self._starter, self._folder, name, request.recorded) as (run, output):
            failed = request.before is not None and self._shell(request.before, output)
            if groups.is_interrupted(self._starter):
                return None
            if failed:
                log = self._folder / f"{name}.log"
                raise NncfToolsError(f"option --before: {request.before!r} failed; its output is in {log}")
            self._input.rewind()
            with contextlib.suppress(Interrupted), self._starter.interruptible():
                cached = groups.drop(files)
            if groups.is_interrupted(self._starter):
                return None
            with Watch(group, most_s, self._starter) as watch:
                entry = () if group is None else group.entry
                recorded = recording.record(run._replace(entry=entry))
            if groups.is_interrupted(self._starter):
                return None
            if watch.gave_up and recorded.session is not None:  # the signal in its verdict came from us
                why = f"after {seconds_text(watch.seconds)}, because it took too long (--give-up)"
                recorded.session.warnings.insert(0, f"it was ended by nncf-tools fit {why}")
                with contextlib.suppress(OSError):
                    recorded.session.save(run.target.session)
            ended = self._ended(recorded.status, watch, output)
        # its --success may have been ended
        return None if groups.is_interrupted(self._starter) else Done(name, recorded.session, watch, ended, cached)

    def _ended(self, status: int, watch: Watch, output: int) -> str:
        given_up = f"given up after {seconds_text(watch.seconds)}"
        if watch.lost_processes:
            return f"{OUT_OF_MEMORY}, {given_up}" if watch.gave_up else OUT_OF_MEMORY
        if watch.gave_up:
            return given_up
        if status:
            return f"exit status {status}"
        success = self._request.success
        return "not successful" if success is not None and self._shell(success, output) else WORKED

    def _shell(self, script: str, output: int) -> int:
        """Run a shell command, whose output goes to the log of a run; end it when we are asked to end."""
        words, nothing = ["sh", "-c", script], subprocess.DEVNULL
        with subprocess.Popen(words, stdin=nothing, stdout=output, stderr=output, start_new_session=True) as process:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return process.wait(_POLL_S)
                if groups.is_interrupted(self._starter):
                    os.killpg(process.pid, signal.SIGKILL)
