"""Records this process and its descendants with a sampler process, and returns a session."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import pathlib
import shutil
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

from nncftools.errors import NncfToolsError, refuse_to_record
from nncftools.files import NEW_LOG
from nncftools.journal import reading
from nncftools.journal.writing import Plan
from nncftools.marks.line import VARIABLE
from nncftools.metrics import recorded_with
from nncftools.redaction import Redaction
from nncftools.session import launcher

if TYPE_CHECKING:
    from nncftools.api.session import Session
    from nncftools.sampler.client import DetachedSampler
    from nncftools.snapshots.client import Helper

SHORTEST_S = 0.001
_LONGEST_S = 366 * 24 * 3600.0
_READY_WITHIN_S = 30.0
_ENDED_EARLY = "the recording ended early"
_ENDS_WITHIN_S = 30.0
_log_lock = threading.Lock()
_log_users = 0
_own_log: tuple[str, Callable[[], None]] | None = None
"""The path of the log, and what removes it."""


def check_interval(interval_s: float) -> None:
    """Raise ValueError for an interval that is not from 1 ms to a year."""
    if not SHORTEST_S <= interval_s <= _LONGEST_S:
        raise ValueError(f"interval: seconds from {SHORTEST_S:g} to a year expected, found {interval_s!r}")


class Recorder:
    """Records until it is stopped or this process ends, however it ends.

    In a forked child the copy of a recorder does nothing: the recording belongs to the parent.
    """

    def __init__(  # noqa: PLR0913 — one parameter per choice of a recording
        self,
        metrics: Sequence[str],
        interval_s: float,
        *,
        children: bool = True,
        profiler: int = 0,
        stacks: bool = False,
        source: bool = True,
    ) -> None:
        """Prepare to record ``metrics``, and metrics that cost nothing extra, every ``interval_s`` seconds.

        With the number of a ``profiler``, the session holds its marks and those of no profiler, otherwise all. Raises
        ValueError for an interval that is not from 1 ms to a year.
        """
        check_interval(interval_s)
        self._plan = Plan(
            [*metrics, *recorded_with(metrics)],
            interval_s=interval_s,
            children=children,
        )
        self._folder: pathlib.Path | None = None
        self._profiler = profiler
        self._takes_stacks = stacks
        self._takes_source = source
        self._helper: Helper | None = None
        self._pid = 0
        self._sampler: DetachedSampler | None = None
        self._memory = -1
        self.journal = pathlib.Path()
        """Where samples are appended while it runs."""
        self.marks_log: pathlib.Path | None = None
        """Where marks are appended while it runs."""
        self._session: Session | None = None

    @property
    def is_running(self) -> bool:
        """Whether this process started a recording and has not stopped it."""
        return self._sampler is not None and self._pid == os.getpid()

    def start(self) -> None:
        """Start, and return after the first sample. Raises NncfToolsError."""
        refuse_to_record()
        from nncftools.sampler import client

        self._pid = self._plan.pid = os.getpid()
        client.check()
        self._plan.source = client.platform_source()
        if self._plan.source == "proc":
            self._plan.columns = list(dict.fromkeys((*self._plan.columns, *client.metrics_of_devices())))
        command = [sys.executable, *sys.argv]
        header = client.header("", command, launcher.of(os.environ), self._plan)
        try:
            journal = self._create_journal()
            try:
                self.marks_log = acquire_log()
                self._sampler = client.DetachedSampler(header, self._plan, journal, self.marks_log)
            finally:
                if journal != self._memory:
                    os.close(journal)
        except OSError as error:
            self._clear()
            raise NncfToolsError(f"the recording could not be started: {error}") from error
        if not self._sampler.has_begun(_READY_WITHIN_S):
            self._clear()
            raise NncfToolsError("the recording could not be started: the sampler ended or did not answer")
        if self._takes_stacks and self._folder is not None:  # not where the journal is in memory
            self._start_helper()

    def _start_helper(self) -> None:
        from nncftools.snapshots.client import DEFAULT_SHARE, Helper, stack_access

        log = os.open(reading.snapshots_beside(self.journal), NEW_LOG, reading.PRIVATE)
        self._helper = Helper(log, detached=True)
        os.close(log)
        self._helper.follow(self._pid, self._plan, stack_access(with_hook=False), DEFAULT_SHARE)

    def __deepcopy__(self, _: object) -> NoReturn:
        """Refuse: a second object would close the descriptors of the first."""
        raise TypeError("a recording cannot be copied; take its session")

    def stop(self) -> None:
        """End the recording and keep its session; does nothing if none is running.

        Warns if the sampler was killed: the session then holds the samples up to that time.
        """
        if not self.is_running or self._sampler is None:
            return
        if self._helper is not None:
            self._helper.close()
            self._helper = None
        self._sampler.stop()
        self._sampler.has_news(_ENDS_WITHIN_S)
        from nncftools.analysis.code_places import is_own
        from nncftools.session.snapshots import take_sources

        try:
            self._session = self._read()
            if self._takes_source:
                take_sources(self._session, Redaction(), is_own)
        except NncfToolsError as error:
            warnings.warn(f"the recording is lost: {error}", RuntimeWarning, stacklevel=3)
        else:
            if not self._session.finished:
                warnings.warn(f"{_ENDED_EARLY}: {self._session.warnings[-1]}", RuntimeWarning, stacklevel=3)
        self._clear()

    @property
    def session(self) -> Session | None:
        """The recording so far; None before the start."""
        return self._read() if self.is_running else self._session

    def _read(self) -> Session:
        from nncftools.api.session import Session
        from nncftools.reading_marks.collecting import take_own

        session = Session.load(self.journal)
        with (
            contextlib.suppress(OSError),  # the temporary folder may have been cleaned
            io.BytesIO() if self.marks_log is None else self.marks_log.open("rb") as log,
        ):
            take_own(session, log, "marks", self._pid, self._profiler)
        return session

    def _create_journal(self) -> int:
        """Create the journal in a temporary folder, or in memory if that fails; return its descriptor."""
        with contextlib.suppress(OSError):
            self._folder = pathlib.Path(tempfile.mkdtemp(prefix="nncf-tools-"))
            self.journal = self._folder / f"recording{reading.ENDING}"
            return reading.create(self.journal, replace=False)
        self._memory = os.memfd_create("nncf-tools")
        self.journal = pathlib.Path(f"/proc/{os.getpid()}/fd/{self._memory}")
        return self._memory

    def _clear(self) -> None:
        if self._sampler is not None:
            self._sampler.close()
            self._sampler = None
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1
        if self.marks_log is not None:
            release_log()
            self.marks_log = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def acquire_log() -> pathlib.Path:
    """Return the log for this program's marks; each call needs a matching ``release_log``.

    Inside a run of ``nncf-tools``, that is the log of the outer recording.
    """
    global _log_users, _own_log  # noqa: PLW0603 — one log for all recorders of a program
    with _log_lock:
        _log_users += 1
        path = os.environ.get(VARIABLE)
        if not path or not pathlib.Path(path).is_file():
            try:
                descriptor, path = tempfile.mkstemp(prefix="nncf-tools-", suffix=".marks.jsonl")
            except OSError:  # in memory where none can be written
                memory = os.memfd_create("nncf-tools-marks")
                path = f"/proc/{os.getpid()}/fd/{memory}"
                _own_log = path, functools.partial(os.close, memory)
            else:
                os.close(descriptor)
                _own_log = path, functools.partial(pathlib.Path(path).unlink, missing_ok=True)
            os.environ[VARIABLE] = path
        return pathlib.Path(path)


def release_log() -> None:
    """Release the log; the last user removes it."""
    global _log_users, _own_log  # noqa: PLW0603 — the same
    with _log_lock:
        _log_users -= 1
        if _log_users or _own_log is None:
            return
        path, remove = _own_log
        if os.environ.get(VARIABLE) == path:
            del os.environ[VARIABLE]
        remove()
        _own_log = None
