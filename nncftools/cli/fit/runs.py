"""The search of ``fit``: one run without a limit, then runs under limits in control groups of our own.

Each run is recorded with the same input, and ended when it takes too long.
"""

from __future__ import annotations

import contextlib
import math
import os
import pathlib
import shlex
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from nncftools.analysis.session import Session
from nncftools.cli import recording, screen
from nncftools.cli.fit import groups, outputs
from nncftools.cli.fit.groups import LimitedGroup, ParentGroup, Watcher
from nncftools.cli.fit.options import FitOptions
from nncftools.cli.fit.search import OUT_OF_MEMORY, WORKED, Fit, Free, Trial
from nncftools.cli.recording import RepeatedInput
from nncftools.errors import NncfToolsError
from nncftools.limits.needs import needs
from nncftools.sampler.client import Interrupted, Starter
from nncftools.units import printable, seconds_text

GIVE_UP = 5
"""A run that takes so many times the free time hangs, or reads the same files again and again: it is ended."""
_SHORTEST_S = 2.0
"""No run is given up earlier."""
_POLL_S = 0.1
_GRACE_S = 2.0
_MANY_FILES = 32 << 20
"""Reading fewer bytes takes no time that matters."""


class Done(NamedTuple):
    """What is known of a run that ended."""

    name: str
    """Of its files, without the ending."""
    ended: str
    session: Session | None
    watch: Watch


class Watch(Watcher):
    """Lists the files that a run maps, and ends a run that takes too long, or whose processes ignore a signal."""

    def __init__(self, group: LimitedGroup | None, most_s: float, starter: Starter) -> None:
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
        self.charged: int | None = None
        self.refaults: int | None = None
        self.seconds = 0.0

    def __exit__(self, *_: object) -> None:
        self.seconds = time.monotonic() - self._begun_s
        super().__exit__()
        if self._group is not None:
            self.lost_processes = self._group.oom_kills() > 0
            self.charged = self._group.most_charged()
            self.refaults = self._group.refaults()

    def _watch(self) -> None:
        group = self._group
        while group is not None and not self._over.wait(_POLL_S):
            self.gave_up = time.monotonic() > self._begun_s + self._most_s
            if self.gave_up or groups.is_interrupted(self.starter):
                groups.send(signal.SIGTERM, group.folder)
                if not self._over.wait(_GRACE_S):
                    groups.send(signal.SIGKILL, group.folder)
            elif self._most_s == math.inf:
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


@dataclass(frozen=True)
class _Runs:
    """The runs of a search."""

    request: FitOptions
    folder: pathlib.Path
    parent: ParentGroup | None
    fit: Fit
    starter: Starter
    input: RepeatedInput = field(default_factory=RepeatedInput)

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
            outputs.write_state(fit, self.folder)
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
            log = f"its output is in {self.folder / done.name}.log"
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
        outputs.write_state(fit, self.folder)
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
        before = self.request.before
        number = self.fit.runs + 1
        name = f"run-{number}"
        with contextlib.ExitStack() as stack:
            group = None if self.parent is None else stack.enter_context(LimitedGroup(self.parent, number))
            if group is not None and limit is not None:
                group.limit(limit)
            several = recording.one_of_several(self.starter, self.folder, name, self.request.recorded)
            run, output = stack.enter_context(several)
            failed = before is not None and self._shell(before, output)
            self.input.rewind()
            with contextlib.suppress(Interrupted), self.starter.interruptible():
                groups.drop(files)
            if groups.is_interrupted(self.starter):
                return None
            if failed:
                raise NncfToolsError(f"option --before: {before!r} failed; its output is in {self.folder / name}.log")
            with Watch(group, most_s, self.starter) as watch:
                recorded = recording.record(run._replace(entry=() if group is None else group.entry))
            if watch.gave_up and recorded.session is not None:  # the signal in its verdict came from us
                text = f"it was ended by nncf-tools fit after {seconds_text(watch.seconds)}, because it took too long"
                recorded.session.warnings.insert(0, text)
                with contextlib.suppress(OSError):
                    recorded.session.save(run.target.session)
            ended = self._ended(recorded.status, watch, output)
        return None if groups.is_interrupted(self.starter) else Done(name, ended, recorded.session, watch)

    def _ended(self, status: int, watch: Watch, output: int) -> str:
        given_up = f"given up after {seconds_text(watch.seconds)}"
        if watch.lost_processes:
            return f"{OUT_OF_MEMORY}, {given_up}" if watch.gave_up else OUT_OF_MEMORY
        if watch.gave_up:
            return given_up
        if status:
            return f"exit status {status}"
        success = self.request.success
        return "not successful" if success is not None and self._shell(success, output) else WORKED

    def _shell(self, script: str, output: int) -> int:
        """Run a shell command, whose output goes to the log of a run; end it when we are asked to end."""
        with subprocess.Popen(
            ["/bin/sh", "-c", script], stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        ) as process:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return process.wait(_POLL_S)
                if groups.is_interrupted(self.starter):
                    os.killpg(process.pid, signal.SIGKILL)
