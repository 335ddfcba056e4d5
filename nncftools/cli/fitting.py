"""The runs of ``fit``: one without a limit, then under limits in control groups of our own."""

from __future__ import annotations

import os
import pathlib
import shlex
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from nncftools.cli import destination, recording, screen
from nncftools.cli.display import DisplayOptions
from nncftools.errors import NncfToolsError, UsageError
from nncftools.files import replacing
from nncftools.limits import groups, page_cache
from nncftools.limits.needs import needs
from nncftools.limits.search import Search
from nncftools.limits.trial import Fit, Free, Trial
from nncftools.render.fit import outputs, words
from nncftools.render.view import View
from nncftools.sampler.starter import Starter, held_back
from nncftools.text import printable
from nncftools.units import seconds_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Self

    from nncftools.journal.plan import Plan
    from nncftools.limits.groups import LimitedGroup
    from nncftools.sampler.control_groups import ControlGroup
    from nncftools.session.session import Session
    from nncftools.units import MemoryUnit

STATE = "fit.json"
_POLL_S = 0.1
_GRACE_S = 2.0
_SHORTEST_S = 2.0
"""No run is given up earlier."""
_WARM = 0.02
"""Of the comfortable amount: with more of a run's files in the page cache before it, its limit seems too low."""
_USUAL_RUNS = 6


@dataclass(frozen=True)
class Choices:
    """What the user asks for."""

    argv: Sequence[str]
    plan: Plan
    unit: MemoryUnit
    tolerance: float
    slower: float
    most_runs: int
    give_up: float
    swap: int
    success: str | None
    before: str | None
    free_only: bool


def folder(choices: Choices, output: pathlib.Path | None, *, resume: bool, force: bool) -> pathlib.Path:
    """Return the folder of the results. Raises UsageError."""
    if output is None:
        made = destination.new_folder(
            pathlib.Path("memory_logs"), f"fit-{pathlib.Path(choices.argv[0]).name}", [], [], plot=False
        )
        assert made.folder is not None
        return made.folder
    if (output / STATE).exists() and not (resume or force):
        raise UsageError(f"option --output: {str(output)!r} has a search already; use --resume or --force")
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"option --output: cannot make {str(output)!r}: {error.strerror}") from error
    return output.absolute()


def search(choices: Choices, place: pathlib.Path, parent: ControlGroup | None, *, resume: bool) -> int:
    """Run the command as often as needed; write and show the result. Return the exit status."""
    fit = _begun(choices, place) if resume else _new(choices)
    if parent is not None:
        for left in groups.remove_leftovers(parent):
            screen.to_stderr(f"Removed the control group of a search that was killed: {printable(left)}\n")
    with Starter() as starter:
        run = _Runs(choices, place, parent, fit, starter)
        if run.go() == _INTERRUPTED:
            screen.to_stderr(f"Interrupted; go on with: --resume --output {shlex.quote(str(place))}\n")
            return 128 + signal.SIGINT
    _write(fit, place)
    outputs.write(fit, choices.unit, place)
    screen.to_stdout(outputs.text(fit, choices.unit))
    screen.to_stderr(f"\nWritten to {printable(str(place))}\n")
    return 0 if fit.free is not None and (choices.free_only or fit.works_from is not None) else 1


def _new(choices: Choices) -> Fit:
    return Fit(
        command=[os.fsencode(word).decode(errors="backslashreplace") for word in choices.argv],
        tolerance=choices.tolerance,
        slower=choices.slower,
        swap=choices.swap,
    )


def _begun(choices: Choices, place: pathlib.Path) -> Fit:
    """Return a search that was begun before. Raises UsageError."""
    file = place / STATE
    try:
        fit = msgspec.json.decode(file.read_bytes(), type=Fit)
    except FileNotFoundError:
        return _new(choices)
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(f"option --resume: {str(file)!r} cannot be read: {error}") from error
    if fit.command != _new(choices).command:
        raise UsageError(f"option --resume: {str(file)!r} is of another command: {shlex.join(fit.command)}")
    return fit


def _write(fit: Fit, place: pathlib.Path) -> None:
    with replacing(place / STATE) as beside:
        beside.write_bytes(msgspec.json.format(msgspec.json.encode(fit), indent=2) + b"\n")


_DONE, _INTERRUPTED = range(2)


class _Runs:
    """The runs of a search."""

    def __init__(
        self, choices: Choices, place: pathlib.Path, parent: ControlGroup | None, fit: Fit, starter: Starter
    ) -> None:
        self._choices = choices
        self._place = place
        self._parent = parent
        self._fit = fit
        self._starter = starter

    def go(self) -> int:
        """Run until both limits are found, or no run is left."""
        fit, choices = self._fit, self._choices
        if fit.free is None:
            self._say(f"Run 1: without a limit, {printable(shlex.join(fit.command))}")
            free = self._run_free()
            if free is None:
                return _INTERRUPTED
            fit.free = free
            _write(fit, self._place)
        if choices.free_only or self._parent is None:
            return _DONE
        of = Search(fit.free.floor, fit.free.comfortable, fit.free.duration_s, choices.tolerance, choices.slower)
        left = choices.most_runs - 1 - len(fit.trials)
        expected_s = fit.free.duration_s * min(left, _USUAL_RUNS) * 1.5
        self._say(f"{words.of_free(fit.free, choices.unit)}; usually 4 to 7 more runs, about {seconds_text(expected_s)}")
        while len(fit.trials) < choices.most_runs - 1:
            limit = of.next_limit(fit.trials)
            if limit is None:
                fit.is_finished = True
                break
            trial = self._try(limit, len(fit.trials) + 2)
            if trial is None:
                return _INTERRUPTED
            fit.trials.append(trial)
            self._say(words.of_trial(trial, len(fit.trials) + 1, choices.unit))
            works, fast = of.works_from(fit.trials), of.fast_from(fit.trials)
            fit.works_from = None if works is None else works.limit
            fit.fast_from = None if fast is None else fast.limit
            _write(fit, self._place)
        return _DONE

    def _say(self, text: str) -> None:
        screen.to_stderr(f"{text}\n")

    def _run_free(self) -> Free | None:
        if self._parent is None:
            done = self._record("run-1", None, None)
        else:
            with groups.LimitedGroup(self._parent, 1) as group:
                done = self._record("run-1", group, None)
        if done is None:
            return None
        session, watch = done.session, done.watch
        needed = None if session is None else needs(session)
        if session is None or needed is None or done.ended != words.WORKED:
            raise NncfToolsError(f"the command does not work without a limit: {done.ended}; see {self._place}/run-1.log")
        peak = session.peaks.get("rss")
        read = {file.path for file in session.files_read}
        return Free(
            duration_s=session.duration_s,
            floor=needed.floor,
            comfortable=needed.comfortable,
            peak_rss=0 if peak is None else peak.low or 0,
            session=f"{done.name}.json",
            files=sorted(read | watch.files),
        )

    def _try(self, limit: int, number: int) -> Trial | None:
        assert self._parent is not None
        assert self._fit.free is not None
        free = self._fit.free
        is_warm = page_cache.drop(free.files) > free.comfortable * _WARM
        with groups.LimitedGroup(self._parent, number) as group:
            group.limit(limit, self._choices.swap)
            most_s = max(_SHORTEST_S, free.duration_s * self._choices.give_up)
            done = self._record(f"run-{number}", group, most_s)
            if done is None:
                return None
            refaults = group.refaults()
        session = done.session
        duration_s = done.seconds if session is None else session.duration_s
        peak = None if session is None else session.peaks.get("rss")
        stall = None if session is None else session.totals.get("memory_stall")
        return Trial(
            limit=limit,
            worked=done.ended == words.WORKED,
            ended=done.ended,
            duration_s=duration_s,
            slower=duration_s / free.duration_s if free.duration_s else 0.0,
            refaults=refaults,
            stall_s=stall,
            peak_rss=None if peak is None else peak.low,
            session=f"{done.name}.json",
            is_warm=is_warm,
        )

    def _record(self, name: str, group: LimitedGroup | None, most_s: float | None) -> _Done | None:
        """Run the command once; return None if we were interrupted."""
        if self._choices.before is not None and self._shell(self._choices.before, name):
            raise NncfToolsError(f"--before failed: {self._choices.before}; see {self._place}/{name}.log")
        file = self._place / f"{name}.json"
        place = destination.at_file(file, [], [], plot=False, force=True)
        log = self._place / f"{name}.log"
        run = recording.Run(
            self._starter,
            replace_plan(self._choices.plan),
            name,
            self._choices.argv,
            place,
            entry=() if group is None else group.entry,
        )
        view = View(metrics=["rss"], unit=self._choices.unit)
        begun_s = time.monotonic()
        with _Watch(group, most_s) as watch:
            recorded = recording.record(run, view, quiet=True, display=DisplayOptions(capture=log))
        seconds = time.monotonic() - begun_s
        if recorded.interrupted or self._starter.asked_to_end is not None or recorded.status == 128 + signal.SIGINT:
            return None
        kills = 0 if group is None else group.oom_kills()
        if watch.gave_up:
            ended = f"given up after {seconds_text(most_s)}"
        elif kills:
            ended = "out of memory"
        elif recorded.status:
            ended = f"exit status {recorded.status}"
        elif self._choices.success is not None and self._shell(self._choices.success, name):
            ended = "--success failed"
        else:
            ended = words.WORKED
        return _Done(name, recorded.session, watch, ended, seconds)

    def _shell(self, script: str, name: str) -> int:
        """Run a shell command, whose output goes to the log of a run; return its exit status."""
        with (self._place / f"{name}.log").open("ab") as log:
            return subprocess.run(["sh", "-c", script], stdout=log, stderr=log, stdin=subprocess.DEVNULL, check=False).returncode


@dataclass(frozen=True)
class _Done:
    name: str
    session: Session | None
    watch: _Watch
    ended: str
    seconds: float


class _Watch:
    """A thread beside a run: it lists the files that the run maps, and ends a run that takes too long."""

    def __init__(self, group: LimitedGroup | None, most_s: float | None) -> None:
        self._group = group
        self._until_s = None if most_s is None else time.monotonic() + most_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.files: set[str] = set()
        self.gave_up = False

    def __enter__(self) -> Self:
        with held_back():
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        group = self._group
        while group is not None and not self._over.wait(_POLL_S):
            if self._until_s is None:
                self.files |= groups.files_of(group.pids())
            elif time.monotonic() > self._until_s:
                self.gave_up = True
                group.end(signal.SIGTERM)
                if not self._over.wait(_GRACE_S):
                    group.end(signal.SIGKILL)
