"""A recording of this process and its descendants by a sampler process, from start to session."""

from __future__ import annotations

import contextlib
import os
import pathlib
import select
import shutil
import sys
import tempfile
import warnings
from typing import TYPE_CHECKING

from nncftools import __version__
from nncftools.errors import NncfToolsError
from nncftools.marks import own_log
from nncftools.metrics import ALWAYS
from nncftools.sampler import client
from nncftools.session.header import header

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.sampler.plan import Plan
    from nncftools.session.model import Session

_SHORTEST_S = 0.001
_LONGEST_S = 366 * 24 * 3600.0
_READY_WITHIN_S = 30.0
_ENDED_EARLY = "the recording ended early"
_ENDS_WITHIN_S = 30.0


class Recorder:
    """Records until it is stopped, or until this process ends in whatever way.

    A child that was forked meanwhile holds a copy that does nothing: the recording is its parent's.
    """

    def __init__(self, metrics: Sequence[str], interval_s: float, *, children: bool = True) -> None:
        """Plan to record ``metrics``, and what costs nothing besides, every ``interval_s`` seconds.

        Raises ValueError for an interval that is not from 1 ms to a year.
        """
        if not _SHORTEST_S <= interval_s <= _LONGEST_S:
            raise ValueError(f"interval: seconds from {_SHORTEST_S:g} to a year expected, found {interval_s!r}")
        self._plan = client.own_plan([*metrics, *ALWAYS], interval_s, children=children)
        self._folder: pathlib.Path | None = None
        self._owner = 0
        self._control = -1
        self._status = -1
        self._memory = -1
        self._journal = pathlib.Path()
        self._marks: pathlib.Path | None = None
        self._session: Session | None = None

    @property
    def is_running(self) -> bool:
        """Whether a recording was started, by this very process, and not stopped."""
        return self._control >= 0 and self._owner == os.getpid()

    def start(self) -> None:
        """Start; return when the first sample is taken. Raises NncfToolsError."""
        self._owner = os.getpid()
        try:
            self._journal = self._place()
            self._marks = own_log.acquire()
            plan: Plan = {**self._plan, "marks": str(self._marks)}
            self._control, self._status = client.start_beside(self._begin(), plan, self._journal)
        except OSError as error:
            self._clear()
            raise NncfToolsError(f"the recording could not be started: {error}") from error
        ready, _, _ = select.select([self._status], [], [], _READY_WITHIN_S)
        if not ready or not os.read(self._status, 1):
            self._clear()
            raise NncfToolsError("the recording could not be started: the sampler ended, or did not answer")

    def stop(self) -> None:
        """End the recording and keep its session; does nothing when none runs.

        Warns when the sampler was killed meanwhile: the session then holds what was recorded up to then.
        """
        if not self.is_running:
            return
        with contextlib.suppress(OSError):  # the sampler was killed
            os.write(self._control, b"\n")
        select.select([self._status], [], [], _ENDS_WITHIN_S)
        try:
            self._session = self._read()
        except NncfToolsError as error:
            warnings.warn(f"the recording is lost: {error}", RuntimeWarning, stacklevel=3)
        else:
            if not self._session.finished:
                warnings.warn(f"{_ENDED_EARLY}: {self._session.warnings[-1]}", RuntimeWarning, stacklevel=3)
        self._clear()

    @property
    def session(self) -> Session | None:
        """What was recorded up to now; None before the start."""
        return self._read() if self.is_running else self._session

    def _read(self) -> Session:
        from nncftools.marks.collecting import take_own
        from nncftools.session.model import Session

        session = Session.load(self._journal)
        with contextlib.suppress(OSError):  # somebody has tidied up in the temporary folder
            take_own(session, b"" if self._marks is None else self._marks.read_bytes(), "marks", self._owner)
        return session

    def _place(self) -> pathlib.Path:
        """Return where the journal goes: a temporary folder, or memory where no folder can be written."""
        with contextlib.suppress(OSError):
            self._folder = pathlib.Path(tempfile.mkdtemp(prefix="nncf-tools-"))
            return self._folder / "recording.journal.jsonl"
        self._memory = os.memfd_create("nncf-tools")
        return pathlib.Path(f"/proc/{os.getpid()}/fd/{self._memory}")

    def _begin(self) -> dict[str, object]:
        return header(
            name="",
            command=[sys.executable, *sys.argv],
            cwd=str(pathlib.Path.cwd()),
            host=client.host(),
            tool_version=__version__,
        )

    def _clear(self) -> None:
        for descriptor in (self._control, self._status, self._memory):
            if descriptor >= 0:
                os.close(descriptor)
        self._control = self._status = self._memory = -1
        if self._marks is not None:
            own_log.release()
            self._marks = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
