"""One run of the command of ``fit``: recorded, in a group if it has one, and ended when it takes too long."""

from __future__ import annotations

import contextlib
import copy
import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nncftools.cli import destination, planning, recording
from nncftools.cli.display import DisplayOptions
from nncftools.cli.repeated_input import RepeatedInput
from nncftools.errors import NncfToolsError
from nncftools.limits import groups, page_cache
from nncftools.limits.trial import WORKED
from nncftools.render.view import View
from nncftools.sampler.starter import held_back
from nncftools.units import seconds_text

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Sequence

    from typing_extensions import Self

    from nncftools.cli.fit_files import Choices
    from nncftools.limits.groups import LimitedGroup
    from nncftools.sampler.starter import Starter
    from nncftools.session.session import Session

_POLL_S = 0.1
_GRACE_S = 2.0


@dataclass(frozen=True)
class Done:
    """What is known of a run that ended."""

    name: str
    session: Session | None
    watch: Watch
    ended: str
    seconds: float
    cached: int
    """Bytes of its files that were in the page cache before."""


class Recorder:
    """Records runs of the command, each with the same input."""

    def __init__(self, choices: Choices, place: pathlib.Path, starter: Starter) -> None:
        self._choices = choices
        self._place = place
        self._starter = starter
        self._input = RepeatedInput()

    def is_interrupted(self) -> bool:
        """Return whether we were asked to end."""
        return self._starter.received is not None

    def record(
        self, number: int, group: LimitedGroup | None, most_s: float | None, files: Sequence[str] = ()
    ) -> Done | None:
        """Drop files from the page cache, and run the command once; return None if we were interrupted.

        Raises NncfToolsError.
        """
        log = self._place / f"run-{number}.log"
        with destination.opened("--output", log) as output:
            failed = self._choices.before is not None and self._shell(self._choices.before, output)
            if self.is_interrupted():
                return None
            if failed:
                raise NncfToolsError(f"option --before: {self._choices.before!r} failed; its output is in {log}")
            return self._record(f"run-{number}", group, most_s, files, output)

    def _record(
        self, name: str, group: LimitedGroup | None, most_s: float | None, files: Sequence[str], output: int
    ) -> Done | None:
        file = self._place / f"{name}.json"
        place = destination.at_file(file, force=True)
        plan = copy.deepcopy(self._choices.plan)
        planning.watch_disks(plan, self._choices.argv, self._place)
        entry = () if group is None else group.entry
        run = recording.Run(self._starter, plan, name, self._choices.argv, place, entry=entry)
        view = View(metrics=["rss"], unit=self._choices.unit)
        self._input.rewind()
        cached = page_cache.drop(files)
        with Watch(group, most_s, self._starter) as watch:
            recorded = recording.record(run, view, quiet=True, display=DisplayOptions(capture=output))
        if self.is_interrupted():
            return None
        if watch.gave_up and recorded.session is not None:
            _say_who_ended(recorded.session, watch.seconds, file)
        ended = self._ended(recorded.status, watch, output)
        if self.is_interrupted():  # its --success was ended
            return None
        return Done(name, recorded.session, watch, ended, watch.seconds, cached)

    def _ended(self, status: int, watch: Watch, output: int) -> str:
        """Return how a run ended."""
        given_up = f"given up after {seconds_text(watch.seconds)}"
        if watch.lost_processes:
            return f"out of memory, {given_up}" if watch.gave_up else "out of memory"
        if watch.gave_up:
            return given_up
        if status:
            return f"exit status {status}"
        if self._choices.success is not None and self._shell(self._choices.success, output):
            return "not successful"
        return WORKED

    def _shell(self, script: str, output: int) -> int:
        """Run a shell command, whose output goes to the log of a run; end it when we are asked to end."""
        words, nothing = ["sh", "-c", script], subprocess.DEVNULL
        with subprocess.Popen(words, stdin=nothing, stdout=output, stderr=output, start_new_session=True) as process:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return process.wait(_POLL_S)
                if self.is_interrupted():
                    os.killpg(process.pid, signal.SIGKILL)


def _say_who_ended(session: Session, after_s: float, file: pathlib.Path) -> None:
    """Add to a recording that the signal in its verdict came from us."""
    text = f"it was ended by nncf-tools fit after {seconds_text(after_s)}, because it took too long (--give-up)"
    session.warnings.insert(0, text)
    with contextlib.suppress(OSError):
        session.save(file)


class Watch:
    """A thread beside a run: it lists the files that the run maps, and ends a run that takes too long.

    It also ends what ignores that we were asked to end.
    """

    def __init__(self, group: LimitedGroup | None, most_s: float | None, starter: Starter) -> None:
        self._group = group
        self._most_s = most_s
        self._starter = starter
        self._begun_s = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._ours = groups.files_of([os.getpid()])
        """They stay in the page cache: we have mapped them, too."""
        self.files: set[str] = set()
        self.gave_up = False
        self.lost_processes = False
        """Whether the kernel killed some for want of memory; the others may wait for them for ever."""
        self.seconds = 0.0

    def __enter__(self) -> Self:
        self._begun_s = time.monotonic()
        with held_back():
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.monotonic() - self._begun_s
        self._over.set()
        self._thread.join()
        self.lost_processes = self._group is not None and self._group.oom_kills() > 0

    def _watch(self) -> None:
        group = self._group
        while group is not None and not self._over.wait(_POLL_S):
            if self._starter.received is not None:
                self._end(group)
            elif self._most_s is None:
                self.files |= groups.files_of(group.pids()) - self._ours
            elif time.monotonic() > self._begun_s + self._most_s:
                self.gave_up = True
                group.end(signal.SIGTERM)
                self._end(group)

    def _end(self, group: LimitedGroup) -> None:
        """Kill what does not end by itself."""
        if not self._over.wait(_GRACE_S):
            group.end(signal.SIGKILL)
